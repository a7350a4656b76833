"""Cases that TensorFlow 1.15 can run too: the keys of tests/data/contrib_goldens.json.

This writes their values, with tensorflow 1.15.5 and protobuf below 3.20:

    python3.7 tests/legacy/contrib_cases.py
"""

import inspect
import json
import os

FILE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../data/contrib_goldens.json")


def hparams(training, lines):
    """Returns the result or error of each line about HParams, and the values after it."""
    results = {}
    for line in lines:
        h = training.HParams(rate=0.1, steps=3, layers=[1, 2], on=True, name="x", nothing=None)
        h.add_hparam("dotted.name", 1)
        try:
            result = eval(line, {"h": h, "training": training})
        except Exception as error:
            result = f"{type(error).__name__}: {error}"
        if result is h:
            result = "itself"
        results[line] = [repr(result), repr(sorted(h.values().items()))]
    return results


def signature(function):
    """Returns names and defaults of a function's arguments."""
    return [
        [parameter.name, repr(parameter.default), parameter.kind == parameter.VAR_KEYWORD]
        for parameter in inspect.signature(function).parameters.values()
        if parameter.name != "self"
    ]


if __name__ == "__main__":
    import tensorflow

    contrib = tensorflow.contrib
    with open(FILE) as file:
        cases = json.load(file)
    functions = (name.split(".") for name in cases["signatures"])
    made = {
        "hparams": hparams(contrib.training, cases["hparams"]),
        "signatures": {
            ".".join(path): signature(getattr(getattr(contrib, path[0]), path[1]))
            for path in functions
        },
    }
    with open(FILE, "w") as file:
        file.write(json.dumps(made, indent=1, sort_keys=True) + "\n")
