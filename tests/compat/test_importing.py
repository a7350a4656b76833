"""An import changes only what docs/importing.md lists."""

import json
import re

import harness
import processes
import pytest

from estimator_emb.catalog.legacy import LACKING

PAGE = (processes.ROOT / "docs" / "importing.md").read_text()

# Imports the package. Prints the changes of `state`, the files that read the command line, and the
# attributes of other packages that were replaced.
PROGRAM = """
import atexit, contextlib, gc, json, locale, logging, os, random, signal, sys, threading, types
import absl.logging, numpy, packaging.tags, tensorflow as tf, tqdm, warnings
from tensorflow.python.framework import ops
from tensorflow.python.util import tf_export
with contextlib.suppress(ImportError):  # Keras imports it if it is there.
    import scipy.ndimage, scipy.special

class Watched(list):
    readers = []

    def read(self, name, *args):
        Watched.readers.append(sys._getframe(2).f_code.co_filename)
        return getattr(list, name)(self, *args)

for name in ("__getitem__", "__iter__", "__len__"):
    setattr(Watched, name, lambda self, *args, name=name: self.read(name, *args))

def loggers():
    named = {"root": logging.root, **logging.root.manager.loggerDict}
    return {
        name: [type(one).__qualname__, one.level, one.propagate, one.disabled,
               *([str(f) for f in owner.filters] for owner in (one, *one.handlers)),
               [str(handler) for handler in one.handlers]]
        for name, one in named.items() if isinstance(one, logging.Logger)
    }

def state():
    return {
        **{f"logger {name}": value for name, value in loggers().items()},
        **{f"variable {name}": value for name, value in os.environ.items()},
        **{f"signal {one}": str(signal.getsignal(one)) for one in signal.valid_signals()},
        **{f"module {name}": module.__name__ for name, module in list(sys.modules.items())
           if name.split(".")[0] != "estimator_emb"
           and str(getattr(module, "__name__", "")).startswith("estimator_emb.")},
        **{f"path {name}": list(one.__path__)
           for name, one in [("", tf), ("v1", tf.compat.v1), ("v2", tf.compat.v2)]},
        "API names": sorted(tf_export.API_ATTRS) + sorted(tf_export.API_ATTRS_V1),
        "ESTIMATOR_API_NAME": getattr(tf_export, "ESTIMATOR_API_NAME", None),
        "tf.estimator": [hasattr(one, "estimator") for one in (tf, tf.compat.v1)],
        "logging": [str(logging.getLoggerClass()), str(logging.lastResort),
                    logging.root.manager.disable, logging.raiseExceptions],
        "hooks": [str(hook) for hook in (sys.excepthook, sys.displayhook, sys.unraisablehook,
                                         sys.breakpointhook, threading.excepthook)],
        "paths": [str(one) for one in (sys.path, sys.meta_path, sys.path_hooks, os.getcwd())],
        "warnings": [str(one) for one in warnings.filters],
        "at exit": atexit._ncallbacks(),
        "numbers": [gc.get_threshold(), gc.isenabled(), sys.getrecursionlimit(),
                    sys.getswitchinterval(), locale.setlocale(locale.LC_ALL), numpy.geterr()],
        "random": [str(random.getstate()), str(numpy.random.get_state())],
        "threads": [one.name for one in threading.enumerate()],
        "gradients": sorted(ops.gradient_registry.list()),
        "TensorFlow": [tf.executing_eagerly(), tf.compat.v1.control_flow_v2_enabled(),
                       tf.compat.v1.resource_variables_enabled(),
                       tf.debugging.is_traceback_filtering_enabled()],
    }

def replaced():
    # Functions in place of others'.
    packages = "absl keras logging numpy tensorflow tensorflow_estimator tf_keras warnings".split()
    for name, module in list(sys.modules.items()):
        if not isinstance(module, types.ModuleType) or name.split(".")[0] not in packages:
            continue
        for key, value in list(vars(module).items()):
            # By their types: some objects of TensorFlow load things when they are looked at.
            is_class = issubclass(type(value), type)
            if not is_class and type(value) is not types.FunctionType:
                continue
            if str(value.__module__).startswith("estimator_emb."):
                continue
            for inner, one in vars(value).items() if is_class else [("", value)]:
                one = one.__func__ if type(one) in (classmethod, staticmethod) else one
                if type(one) is types.FunctionType and one.__code__.co_filename.startswith(FOLDER):
                    yield f"{name}.{key}.{inner}"

def attributes():
    return {
        (name, key): value for name, module in list(sys.modules.items())
        if name.split(".")[0] == "tensorflow" and isinstance(module, types.ModuleType)
        for key, value in list(vars(module).items())
    }

def rebound(before, modules):
    # Attributes of TensorFlow's modules with another value, but for imported submodules.
    for (name, key), value in attributes().items():
        place, old = f"{name}.{key}", before.get((name, key))
        if name not in modules or value is old or place in sys.modules or key == "__path__":
            continue
        # Set when Keras is imported, or loaded then.
        of_keras = getattr(value, "__module__", "").split(".")[0] in ("keras", "tf_keras")
        if not of_keras and type(old).__name__ != "KerasLazyLoader":
            yield place

before, attributes_before, modules = state(), attributes(), set(sys.modules)
assert len(attributes_before) > 10000
sys.argv, sys.orig_argv = Watched(sys.argv), Watched(sys.orig_argv)
import estimator_emb, feature_columns
readers = list(Watched.readers)
sys.argv, sys.orig_argv = list(sys.argv), list(sys.orig_argv)
FOLDER = os.path.join(estimator_emb.__path__[0], "")
after = state()
changed = {key: after.get(key) for key in {**before, **after} if before.get(key) != after.get(key)}
assert attributes_before.keys() <= attributes().keys()
others = sorted([*replaced(), *rebound(attributes_before, modules)])
print(json.dumps([changed, readers, others]))
"""

MODULES = {
    f"module {name}": f"estimator_emb.{'legacy' if leaf == 'tpu_embedding' else 'compat'}.{leaf}"
    for name in LACKING
    for leaf in [name.rpartition(".")[2]]
}
"""Modules that TensorFlow >= 2.16 lacks -> the modules of this package in their place."""
CHANGES = MODULES | {
    "variable TF_USE_LEGACY_KERAS": "1",
    "variable TF_TPU_GRACEFUL_SHUTDOWN_MODE": "",
    "ESTIMATOR_API_NAME": "estimator",
}


@pytest.mark.slow
@pytest.mark.any_version
def test_import_changes_only_what_the_page_lists():
    """A program that imports the package for its own reasons must not notice the import."""
    done = processes.run_python("-c", PROGRAM, "--help", status=0)
    changed, argv_read, others = json.loads(done.stdout)
    assert argv_read == []
    added = [] if harness.IS_2_15 else ["tensorflow.python.util.tf_export.ESTIMATOR_API_NAME"]
    assert others == added
    paths = {name: changed.pop(name) for name in list(changed) if name.startswith("path ")}
    free = ["Logger", 0, True, False, [], []]  # Without level, filters and handlers.
    assert changed.pop("logger estimator_emb") == free
    if harness.IS_2_15:
        assert changed == {} and paths == {}
        return
    # `import tensorflow.keras` and its v1 and v2 must find Keras 2 first.
    assert len(paths) == 3 and all("tf_keras" in folders[0] for folders in paths.values())
    assert "estimator" in changed.pop("API names")
    assert changed == CHANGES


def test_docs_page_names_every_change():
    named = [change.rpartition(" ")[2] for change in CHANGES]
    for name in (*named, "API_ATTRS", "__path__"):
        assert re.search(rf"`[^`]*\b{re.escape(name)}\b[^`]*`", PAGE), name
