"""Makes `import tensorflow` mean TensorFlow 1, and tells which programs need that."""

import contextlib
import functools
import importlib
import importlib.abc
import importlib.machinery
import os
import re
import sys
import warnings
from collections.abc import Sequence
from types import ModuleType
from typing import Any, cast

from estimator_emb.catalog import extras
from estimator_emb.catalog import wheel as wheels
from estimator_emb.catalog.legacy import TREES
from estimator_emb.compat.internals.patches import AliasFinder, Changes, SharedModule
from estimator_emb.legacy import contrib, removed_aliases
from estimator_emb.reporting import console
from estimator_emb.reporting.console import logger

_IMPORTED_BEFORE = (
    "estimator_emb.embedding",
    "estimator_emb.flags",
    "estimator_emb.keras",
    "feature_columns",
    "tensorflow_estimator.python.estimator.keras_lib",
)
"""Modules that need TensorFlow 2 from `import tensorflow`, imported before the switch to v1."""
_EXTRAS_BEFORE = {
    "backends.hosts.agreement": "hosts",
    "backends.pjrt.backend": "devices",
    "embedding.checkpoints": "formats",
    "native.select_kernels": "native",
}
"""Modules of extras that must also import TensorFlow before -> the extra."""

_V1 = "tensorflow.compat.v1"
_ROOTS = (_V1, "tensorflow")
_NOT_OF_THE_API = "_api compat compiler contrib core dtensor python tools tsl".split()
"""Modules of `tensorflow` that are the same in both versions, or that `install` adds."""

_API = re.compile(
    r"tensorflow(\._api\.v2(\.v2)?)?(\.compat\.v2)?(\.(?P<tensorflow>.+))?"
    r"|tensorflow_estimator\.python\.estimator\.api\._v2\.(?P<estimator>.+)"
)
_API_V1 = r"tensorflow(\._api\.v2)*\.compat\.v1"
_TRY = "try --tf-v1 of estimator-emb run, or estimator_emb.install(tf_v1=True)"
_HINT = f"tf.contrib is a part of TensorFlow 1: {_TRY}."


@functools.cache
def bind(contrib_place: str | None = None) -> None:
    """Gives programs TensorFlow 1's API, behaviour and `tf.contrib`. `install` calls it.

    `contrib_place` is the wheel of TensorFlow 1.15 that has `tf.contrib`, or a folder with its
    files. Raises ValueError if it is something else.

    `import tensorflow` gives the names of `tensorflow.compat.v1`, and `contrib` from
    `estimator_emb.legacy.contrib`. Every form of `import tensorflow.<module>` gives the module
    `tf.compat.v1.<module>`. Graphs, sessions, variables, shapes and comparisons of tensors behave
    as in TensorFlow 1 (`tf.compat.v1.disable_v2_behavior`). Names that Python and NumPy have
    dropped exist again (`removed_aliases`).
    """
    import tensorflow as tf2

    wheel = None if contrib_place is None else wheels.opened(os.path.abspath(contrib_place))
    if wheel is not None:
        logger.info("tf.contrib comes from TensorFlow %s: %s.", wheel.version, wheel.path)
    main = vars(sys.modules["__main__"])
    for early in [name for name, value in main.items() if value is tf2]:
        warnings.warn(
            f"install(tf_v1=True) comes after the import of TensorFlow: {early!r} stays "
            "TensorFlow 2. Move the call before that import.",
            stacklevel=3,
        )
    for name in _IMPORTED_BEFORE:
        importlib.import_module(name)
    for module, extra in _EXTRAS_BEFORE.items():
        with contextlib.suppress(extras.MissingExtra):
            extras.load(extra, module)
    v1 = importlib.import_module(_V1)
    with console.shown():  # Hides a deprecation warning about this call's own calls.
        v1.disable_v2_behavior()
    with Changes() as changes:
        names = ("name", "file", "path", "spec", "loader", "package")
        own = {f"__{name}__": getattr(tf2, f"__{name}__") for name in names}
        # Keras and others use this attribute to import `tensorflow.compat.v2 as tf`.
        own["compat"] = tf2.compat
        own["contrib"] = contrib.add_contrib(changes, wheel)
        changes.set_attribute(v1, "contrib", own["contrib"])
        finder = _ApiFinder(v1, os.path.dirname(tf2.__file__))
        _replace_imported(changes, finder)
        changes.set_module("tensorflow", SharedModule(v1, own))
        changes.add_finder(finder)
        removed_aliases.supply(changes)
        _restore_layers(changes)
        changes.pop_all()  # The changes stay.


_CELLS = (
    "BasicLSTMCell BasicRNNCell DeviceWrapper DropoutWrapper GRUCell LSTMCell LSTMStateTuple "
    "MultiRNNCell RNNCell ResidualWrapper"
)


def _restore_layers(changes: Changes) -> None:
    """Makes TensorFlow's private layers and cells those of `tf.layers` and `tf.nn.rnn_cell`.

    In TensorFlow 1 they are the same. Programs and `tf.contrib` derive classes from the private
    ones, and ask whether an object is an instance.
    """
    v1 = importlib.import_module(_V1)
    layers = v1.layers.Dense.__module__.rpartition(".")[0]
    names = "base convolutional core normalization pooling".split()
    aliases = {f"tensorflow.python.layers.{name}": f"{layers}.{name}" for name in names}
    changes.hide_modules(*aliases, "tensorflow.python.layers.layers")
    changes.add_finder(AliasFinder(aliases))
    package = importlib.import_module("tensorflow.python.layers")
    for name in [*names, "layers"]:
        changes.hide_attribute(package, name)
    # TensorFlow loads this module when a name of it is read.
    own = {name: getattr(v1.nn.rnn_cell, name) for name in _CELLS.split()}
    own["LayerRNNCell"] = v1.nn.rnn_cell.LSTMCell.__base__
    for name in ("rnn_cell", "rnn_cell_impl"):
        path = f"tensorflow.python.ops.{name}"
        module = SharedModule(importlib.import_module(path), own)
        changes.set_module(path, module)
        changes.set_attribute(importlib.import_module("tensorflow.python.ops"), name, module)


def advice_about_name(error: BaseException) -> str | None:
    """Returns advice if a program with TensorFlow 2's API used a name of TensorFlow 1."""
    if isinstance(error, ModuleNotFoundError):
        return _HINT if f"{error.name}.".startswith(f"{contrib.NAME}.") else None
    if not isinstance(error, AttributeError) or not isinstance(error.obj, ModuleType):
        return None
    if error.name == "contrib" and re.fullmatch(_API_V1, error.obj.__name__):
        return _HINT
    if str(error.name).startswith("BoostedTrees"):
        return TREES
    match = _API.fullmatch(error.obj.__name__)
    if match is None or ".compat.v1" in error.obj.__name__:
        return None
    owner = match["tensorflow"] or match["estimator"]
    path = f"{owner}.{error.name}" if owner else str(error.name)
    if path == "contrib":
        return _HINT
    if contrib.has_path(importlib.import_module(_V1), path):
        return (
            f"tf.{path} is a name of TensorFlow 1: {_TRY}. In TensorFlow 2 it is "
            f"tf.compat.v1.{path}."
        )
    return None


def _replace_imported(changes: Changes, finder: "_ApiFinder") -> None:
    for name, before in list(sys.modules.items()):
        module = finder.module(name)
        if module is None or module is before:
            continue
        # `import tensorflow.lite.python.lite as lite` looks for attributes, module by module.
        for child, value in list(vars(before).items()):
            inner = f"{name}.{child}"
            is_module = value is not None and value is sys.modules.get(inner)
            if is_module and finder.module(inner) is None:
                changes.set_attribute(module, child, value)
        changes.set_module(name, module)


class _ApiFinder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """A finder that imports, for example, the module `tf.compat.v1.train` as `tensorflow.train`.

    Below an API module, other submodules are searched in `folder`, TensorFlow's own folder.
    """

    def __init__(self, v1: ModuleType, folder: str):
        self._v1 = v1
        self._folder = folder

    def module(self, fullname: str) -> ModuleType | None:
        for root in _ROOTS:
            if fullname.startswith(root + "."):
                path = fullname.removeprefix(root + ".").split(".")
                break
        else:
            return None
        if root != _V1 and path[0] in _NOT_OF_THE_API:
            return None
        module: Any = self._v1
        for name in path:
            module = getattr(module, name, None)
            if not isinstance(module, ModuleType):
                return None
        return cast(ModuleType, module)

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if self.module(fullname) is not None:
            return importlib.machinery.ModuleSpec(fullname, self)
        parent = fullname.rpartition(".")[0]
        if parent == _V1 or self.module(parent) is None:
            return None
        folder = os.path.join(self._folder, *parent.split(".")[1:])
        return importlib.machinery.PathFinder.find_spec(fullname, [folder])

    def exec_module(self, module: ModuleType) -> None:
        # An import returns the module in sys.modules when this returns.
        name = module.__name__
        found = self.module(name)
        assert found is not None
        sys.modules[name] = found
