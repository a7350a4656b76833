"""The part of TensorFlow 1's `tf.contrib` that programs for TPUs use.

Most of it still exists elsewhere: in TensorFlow, in tensorflow-estimator or in the package tf_slim.
The modules in this folder have the rest. Using any other name raises an error that says where it is
today. Importing such a name is no error, because many programs use it only under a flag. The table
is in `estimator_emb.catalog.contrib`.
"""

import functools
import importlib
import importlib.abc
import importlib.machinery
import importlib.util
import inspect
import operator
import sys
from collections.abc import Sequence
from types import ModuleType
from typing import Any

import tensorflow as tf

from estimator_emb.catalog import contrib as contrib_names
from estimator_emb.compat.internals.patches import AliasFinder, Changes
from estimator_emb.legacy.guarded_imports import is_guarded

_tf1 = tf.compat.v1

NAME = "tensorflow.contrib"


class _Namespace(ModuleType):
    """`tf.contrib`, a module of it, or a stand-in for a removed name that a program imports.

    It also has the names of its top module of `tf.contrib`. Using any other name is an error.
    """

    def __init__(self, path: str):
        super().__init__(f"{NAME}.{path}" if path else NAME)
        self.__path__: list[str] = []
        self._path = path
        self._owner = path.partition(".")[0]

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        if not self._path and name == "slim" and _installed("tf_slim"):
            return importlib.import_module(f"{NAME}.slim")
        if self._path:
            found = _member(contrib_names.MODULES[self._owner], name)
            if found is not None:
                return found
        path = f"{self._path}.{name}" if self._path else name
        raise AttributeError(contrib_names.advice_about(path))

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        raise AttributeError(contrib_names.advice_about(self._path))

    def __mro_entries__(self, bases: Any) -> Any:
        raise AttributeError(contrib_names.advice_about(self._path))

    def __dir__(self) -> list[str]:
        module = contrib_names.MODULES.get(self._owner)
        members = module.members if module is not None else contrib_names.MODULES
        return sorted({*super().__dir__(), *members})


def _member(module: contrib_names.Module, name: str) -> Any:
    where = module.members.get(name)
    shared = module.shared.get(name)
    if shared is not None and _installed(shared.partition(".")[0]):
        where = shared
    if where is not None:
        start, rest = _start(where)
        if has_path(start, rest):  # Only some versions of TensorFlow have it.
            return operator.attrgetter(rest)(start)
    for place in module.package:
        if _installed(place.partition(".")[0]):
            found = getattr(importlib.import_module(place), name, None)
            if found is not None:
                return found
    return None


@functools.cache
def _installed(package: str) -> bool:
    return importlib.util.find_spec(package) is not None


_SLIM = dict.fromkeys(
    (f"{NAME}.slim", f"{NAME}.slim.python", f"{NAME}.slim.python.slim"), "tf_slim"
)
"""Paths of slim. In TensorFlow 1.15, slim's `python` submodule repeats all of it."""


class _Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """A finder that gives stand-ins for removed modules. Existing modules are in `sys.modules`.

    If the program catches an ImportError to choose between modules, the finder raises it. The error
    explains why the module is absent.
    """

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if not fullname.startswith(NAME + "."):
            return None
        rest = fullname.removeprefix(NAME + ".")
        if rest.partition(".")[0] == "slim" and _installed("tf_slim"):
            return AliasFinder(_SLIM).find_spec(fullname, path, target)
        parent, _, leaf = fullname.rpartition(".")
        owner = contrib_names.MODULES.get(rest.partition(".")[0])
        if owner is not None and leaf in owner.members:
            module = getattr(sys.modules.get(parent), leaf, None)
            if isinstance(module, ModuleType):  # Such as framework.nest.
                return AliasFinder({fullname: module.__name__}).find_spec(fullname, path, target)
        if owner is not None and not is_guarded(inspect.currentframe()):
            return importlib.machinery.ModuleSpec(fullname, self, is_package=True)
        # With the name of the imported module, `from` would drop the message.
        raise ModuleNotFoundError(contrib_names.advice_about(rest), name=NAME)

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType:
        return _Namespace(spec.name.removeprefix(NAME + "."))

    def exec_module(self, module: ModuleType) -> None:
        pass


def add_contrib(changes: Changes) -> ModuleType:
    """Makes `tensorflow.contrib` importable, and returns it. `changes` can undo it."""
    top = _Namespace("")
    changes.hide_modules(NAME)
    changes.set_module(NAME, top)
    for name, module in contrib_names.MODULES.items():
        if module.members or module.modules or (module.package and name != "slim"):
            _namespace(name, changes)
        for inner in module.inner:
            _namespace(f"{name}.{inner}", changes)
        for path, module_name in module.modules.items():
            if importlib.util.find_spec(module_name) is None:
                continue
            parent, _, leaf = f"{name}.{path}".rpartition(".")
            place = importlib.import_module(module_name)
            setattr(_namespace(parent, changes), leaf, place)
            changes.set_module(f"{NAME}.{name}.{path}", place)
    changes.add_finder(_Finder())
    return top


def has_path(owner: Any, path: str) -> bool:
    """Returns whether `owner` has an attribute with the dotted name `path`."""
    try:
        operator.attrgetter(path)(owner)
    except AttributeError:
        return False
    return True


def _start(where: str) -> tuple[Any, str]:
    if where.startswith("tf."):
        return _tf1, where.removeprefix("tf.")
    module, _, name = where.rpartition(".")
    return importlib.import_module(module), name


def _namespace(path: str, changes: Changes) -> ModuleType:
    name = f"{NAME}.{path}" if path else NAME
    if name not in sys.modules:
        changes.set_module(name, _Namespace(path))
        parent, _, leaf = path.rpartition(".")
        # In contrib.framework.python.ops, arg_scope is the function, as in TensorFlow 1.15.
        owner = contrib_names.MODULES.get(path.partition(".")[0])
        if owner is None or "." not in path or leaf not in owner.members:
            setattr(_namespace(parent, changes), leaf, sys.modules[name])
    return sys.modules[name]
