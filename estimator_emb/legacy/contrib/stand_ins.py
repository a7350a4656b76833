"""Stands in for what the sources of `tf.contrib` import from TensorFlow 1.15, and what is gone.

Only those sources get the stand-ins: TensorFlow's own modules stay as they are.
"""

import builtins
import contextlib
import importlib
from collections.abc import Callable, Mapping, Sequence
from types import ModuleType
from typing import Any

import tensorflow as tf

_train = tf.compat.v1.train


def _nothing(*_: Any, **__: Any) -> None:
    pass


def _register_gradient(op_type: str) -> Callable[[Any], Any]:
    def register(function: Any) -> Any:
        with contextlib.suppress(KeyError):  # By now TensorFlow has a gradient for some of the ops.
            tf.RegisterGradient(op_type)(function)
        return function

    return register


class _AnyOperation(type):
    def __instancecheck__(cls, instance: Any) -> bool:
        return isinstance(instance, tf.Operation)


class _Operation(metaclass=_AnyOperation):
    """`tf.Operation`, made from a NodeDef as in TensorFlow 1."""

    def __new__(cls, *args: Any, **kwargs: Any) -> Any:
        return tf.Operation.from_node_def(*args, **kwargs)


REPLACED: dict[str, Any] = {
    # The wheel's ops in C++ need TensorFlow 1's library. `originals` has their wrappers.
    "tensorflow.contrib.util.loader.load_op_library": _nothing,
    # It takes other arguments now. `graph_editor` copies ops with it.
    "tensorflow.python.framework.ops.Operation": _Operation,
    # TensorFlow knows the shapes of its ops.
    "tensorflow.python.framework.common_shapes.call_cpp_shape_fn": _nothing,
    "tensorflow.python.framework.ops.RegisterGradient": _register_gradient,
    "tensorflow.python.framework.ops.RegisterShape": lambda *_, **__: lambda function: function,
    "tensorflow.python.pywrap_tensorflow.NewCheckpointReader": _train.NewCheckpointReader,
    # It would delete names of TensorFlow's own modules, such as nest.
    "tensorflow.python.util.all_util.remove_undocumented": _nothing,
}
"""Name in TensorFlow 1.15 -> its stand-in."""

ADDED: dict[str, tuple[str, str, Any]] = {
    # It does not call its base class's constructor.
    "tensorflow.contrib.learn.python.learn.estimators.run_config": (
        "RunConfig",
        "_checkpoint_save_graph_def",
        True,
    ),
}
"""Module of `tf.contrib` -> its class, and an attribute that TensorFlow now reads, with a value."""

_ROOTS = tuple(
    f"{root}."
    for root in (
        "tensorflow.contrib.util",
        "tensorflow.core",
        "tensorflow.python",
        "tensorflow.tools",
        "tensorflow_estimator.python",
    )
)
_KERAS = "tensorflow.python.keras"


class _Gone:
    """A name that TensorFlow no longer has. Calling it is an error, and so is a derived class's."""

    def __init__(self, path: str):
        self._path = path

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return _Gone(f"{self._path}.{name}")

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        raise RuntimeError(f"{self._path} left TensorFlow after version 1.15.")

    def __mro_entries__(self, bases: Any) -> tuple[type, ...]:
        return (type("Gone", (), {"__init__": self.__call__}),)


class _View(ModuleType):
    """A module of TensorFlow, or None, as the sources of `tf.contrib` see it."""

    def __init__(self, name: str, module: ModuleType | None):
        super().__init__(name)
        self._module = module

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            return getattr(self._module, name)
        path = f"{self.__name__}.{name}"
        if path in REPLACED:
            return REPLACED[path]
        found = None if path == _KERAS else getattr(self._module, name, None)
        if found is None:
            found = _imported(path)
        if isinstance(found, ModuleType):
            return _View(path, found)
        return _Gone(path) if found is None and not hasattr(self._module, name) else found


def import_(
    name: str,
    globals: Mapping[str, Any] | None = None,
    locals: Mapping[str, Any] | None = None,
    fromlist: Sequence[str] | None = (),
    level: int = 0,
) -> Any:
    """Imports for the sources of `tf.contrib`, in the place of `__import__`."""
    if level or not fromlist or "*" in fromlist or not f"{name}.".startswith(_ROOTS):
        return builtins.__import__(name, globals, locals, fromlist or (), level)
    return _View(name, _imported(name))


def _imported(name: str) -> ModuleType | None:
    if f"{name}.".startswith(f"{_KERAS}."):
        # The Keras of tf.layers, so that a layer is an instance of the classes that they import.
        root = tf.compat.v1.layers.Dense.__module__.partition(".legacy_tf_layers")[0]
        name = root + name.removeprefix(_KERAS)
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError:
        return None
