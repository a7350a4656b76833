"""Prints the names of TensorFlow 1.15 for tensorflow_1_15.json.

Run with Python 3.7, tensorflow 1.15.5 and a protobuf older than 3.20.
"""

import importlib
import json
import pkgutil
import types

import tensorflow as tf

_NOT_PUBLIC = ("compat", "compiler", "contrib", "core", "examples", "python", "tools")


def names_of(module):
    return [name for name in dir(module) if not name.startswith("_")]


def modules_of(module, prefix=""):
    """Returns the dotted names of the public modules below `module`."""
    found = []
    for name in names_of(module):
        value = getattr(module, name)
        if prefix + name in _NOT_PUBLIC or not isinstance(value, types.ModuleType):
            continue
        if any(part in value.__name__ for part in ("_api", "tensorflow_estimator", "keras")):
            found += [prefix + name, *modules_of(value, prefix + name + ".")]
    return found


PACKAGES = (
    "crf distributions estimator factorization framework graph_editor image layers learn "
    "legacy_seq2seq lookup losses metrics model_pruning opt predictor quantize resampler rnn "
    "seq2seq slim slim.nets sparsemax timeseries training"
).split()
"""Packages of tf.contrib that programs use."""


def callables_of(path):
    """Yields a package's path and the names of its functions and classes.

    Modules in it follow, with names that are not in the package. slim repeats the names of
    layers and framework.
    """
    package = importlib.import_module("tensorflow.contrib." + path)
    prefix = f"tensorflow.contrib.{path.partition('.')[0]}."
    for where in ["", *names_of(package)]:
        module = getattr(package, where) if where else package
        if isinstance(module, types.ModuleType) and (not where or prefix in own_path(module)):
            names = [
                name
                for name in names_of(module)
                if callable(getattr(module, name))
                and not (where and getattr(package, name, None) is getattr(module, name))
                and ((not where and path != "slim") or prefix in own_path(getattr(module, name)))
            ]
            if names:
                yield f"{path}.{where}".strip("."), " ".join(names)


def own_path(value):
    """Returns the path of a module, or of the module that a function or class is from."""
    path = getattr(value, "__name__" if isinstance(value, types.ModuleType) else "__module__", "")
    return str(path).replace("tensorflow_core.", "tensorflow.") + "."


contrib = {}
for info in pkgutil.iter_modules(tf.contrib.__path__):
    module = importlib.import_module("tensorflow.contrib." + info.name)
    # These two re-export all names of TensorFlow's ops, or of other contrib modules.
    names = [] if info.name in ("quantization", "slim") else names_of(module)
    contrib[info.name] = " ".join(sorted(set(names) - set(dir(__import__("__future__")))))
found = {
    "callables": dict(pair for path in PACKAGES for pair in callables_of(path)),
    "contrib": contrib,
    "modules": sorted(modules_of(tf)),
}
print(json.dumps(found, indent=1, sort_keys=True))
