"""Cases of tf.contrib that TensorFlow 1.15 can run too.

This writes the expected values of the tests, with tensorflow 1.15.5 and protobuf below 3.20:

    python3.7 tests/legacy/contrib_cases.py > tests/data/contrib_goldens.json
"""

import inspect
import json

HPARAMS = [
    "h.parse('rate=0.5,layers=[3, 4],on=false,name=x_1')",
    "h.parse('layers[1]=7')",
    "h.parse('on=1')",
    "h.parse('on=maybe')",
    "h.parse('rate=abc')",
    "h.parse('rate=1,rate=2')",
    "h.parse('layers=[1],layers=[2]')",
    "h.parse('layers[1]=[2,3]')",
    "h.parse('nonsense=1')",
    "h.parse('rate 1')",
    "h.parse('steps=1.5')",
    "h.parse('dotted.name=3')",
    "h.set_hparam('rate', 3)",
    "h.set_hparam('steps', 3.0)",
    "h.set_hparam('steps', True)",
    "h.set_hparam('on', 1)",
    "h.set_hparam('name', 3)",
    "h.set_hparam('layers', 3)",
    "h.set_hparam('rate', [3.0])",
    "h.set_hparam('nonsense', 3)",
    "h.set_hparam('nothing', 'anything')",
    "h.add_hparam('new', 'x')",
    "h.add_hparam('values', 1)",
    "h.add_hparam('rate', 1)",
    "h.add_hparam('empty', [])",
    "h.del_hparam('rate')",
    "h.del_hparam('nonsense')",
    "h.override_from_dict({'rate': 2, 'layers': [9]})",
    'h.parse_json(\'{"rate": 3, "name": "y"}\')',
    "h.to_json(sort_keys=True)",
    "h.get('rate')",
    "h.get('rate', 1.5)",
    "h.get('rate', 'x')",
    "h.get('layers', 3)",
    "h.get('nonsense', 5)",
    "'rate' in h, 'nonsense' in h",
    "repr(h)",
    "sorted(str(h).split(','))",
    "training.parse_values('a=1,b[2]=x', {'a': int, 'b': str})",
    "training.parse_values('a=1,c=2', {'a': int}, ignore_unknown=True)",
    "training.parse_values('a[0]=1,a[0]=2', {'a': int})",
    "training.parse_values('a=1,a[0]=2', {'a': int})",
]


def hparams(training):
    """Returns the result or error of each line of HPARAMS, and the values after it."""
    results = {}
    for line in HPARAMS:
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


SIGNATURES = {
    "framework": "load_variable list_variables load_checkpoint init_from_checkpoint "
    "get_or_create_global_step",
    "layers": "flatten layer_norm l1_regularizer l2_regularizer variance_scaling_initializer "
    "xavier_initializer",
    "training": "HParams parse_values",
}


def signatures(contrib):
    return {
        f"{module}.{name}": signature(getattr(getattr(contrib, module), name))
        for module, names in SIGNATURES.items()
        for name in names.split()
    }


def everything(contrib):
    return {
        "hparams": hparams(contrib.training),
        "signatures": signatures(contrib),
    }


if __name__ == "__main__":
    import tensorflow

    print(json.dumps(everything(tensorflow.contrib), indent=1, sort_keys=True))
