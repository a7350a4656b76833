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


contrib = {}
for info in pkgutil.iter_modules(tf.contrib.__path__):
    module = importlib.import_module("tensorflow.contrib." + info.name)
    # These two re-export all names of TensorFlow's ops, or of other contrib modules.
    names = [] if info.name in ("quantization", "slim") else names_of(module)
    contrib[info.name] = " ".join(sorted(set(names) - set(dir(__import__("__future__")))))
print(json.dumps({"modules": sorted(modules_of(tf)), "contrib": contrib}, indent=1, sort_keys=True))
