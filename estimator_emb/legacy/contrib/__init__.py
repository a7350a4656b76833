"""TensorFlow 1's `tf.contrib`.

A name comes from where it still exists: in TensorFlow, in tensorflow-estimator or in this folder.
The rest comes from TensorFlow 1.15's own `tf.contrib`, if the user names its wheel (`originals`).
Without the wheel, the package tf_slim has some names. Using any other name raises an error that
says where it is today. Importing such a name is no error, because many programs use it only under a
flag. The table is in `estimator_emb.catalog.contrib`.
"""

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
from estimator_emb.catalog import environment
from estimator_emb.catalog import wheel as wheels
from estimator_emb.compat.internals.patches import AliasFinder, Changes
from estimator_emb.legacy.contrib import originals
from estimator_emb.legacy.guarded_imports import is_guarded

_tf1 = tf.compat.v1

NAME = "tensorflow.contrib"
_EXAMPLES = "tensorflow.examples"
_OURS = f"{__name__}."

_PUBLIC = {
    "eager": "eager.python.tfe",
    "optimizer_v2": "optimizer_v2.optimizer_v2_symbols",
    "receptive_field": "receptive_field.receptive_field_api",
    "recurrent": "recurrent.python.recurrent_api",
    "remote_fused_graph": "remote_fused_graph.pylib",
    "specs": "specs.python",
}
"""Attribute of `tf.contrib` -> the module below `tf.contrib` that it is in TensorFlow 1.15."""


class _Top(ModuleType):
    """`tf.contrib`, which imports its modules when they are used."""

    def __init__(self, path: list[str]):
        super().__init__(NAME)
        self.__path__ = path

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        if self.__path__ or (name == "slim" and _installed("tf_slim")):
            public = _PUBLIC.get(name, name) if self.__path__ else name
            return importlib.import_module(f"{NAME}.{public}")
        raise AttributeError(_error(name))

    def __setattr__(self, name: str, value: Any) -> None:
        if name not in _PUBLIC or not self.__path__:  # Else `__getattr__` finds the module.
            super().__setattr__(name, value)

    def __dir__(self) -> list[str]:
        return sorted({*super().__dir__(), *contrib_names.MODULES})


class _Namespace(ModuleType):
    """A module of `tf.contrib` by the catalog, or a stand-in for a removed name that is imported.

    It also has the names of its top module of `tf.contrib`. Using any other name is an error.
    """

    def __init__(self, path: str):
        super().__init__(f"{NAME}.{path}")
        self.__path__: list[str] = [
            f"{folder}/{path.replace('.', '/')}" for folder in sys.modules[NAME].__path__
        ]
        self._path = path
        self._owner = path.partition(".")[0]

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        found = _member(contrib_names.MODULES[self._owner], name)
        if found is not None:
            return found
        raise AttributeError(_error(f"{self._path}.{name}"))

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        raise AttributeError(_error(self._path))

    def __mro_entries__(self, bases: Any) -> Any:
        raise AttributeError(_error(self._path))

    def __dir__(self) -> list[str]:
        return sorted({*super().__dir__(), *contrib_names.MODULES[self._owner].members})


def _error(path: str) -> str:
    """Returns the message about a name that is missing, with the way to get it."""
    module = contrib_names.MODULES.get(path.partition(".")[0])
    said = contrib_names.advice_about(path)
    if module is None or not module.is_original or sys.modules[NAME].__path__:
        return said
    return f"{said} {_HOW}"


_HOW = (
    f"Download it once: `{wheels.DOWNLOAD}`. Then add --contrib={wheels.WHEEL} to --tf-v1, or set "
    f"{environment.CONTRIB}."
)


def _member(module: contrib_names.Module, name: str) -> Any:
    where = module.members.get(name)
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
        if fullname.startswith(f"{_EXAMPLES}.tutorials") or fullname == _EXAMPLES:
            said = f"{fullname} left TensorFlow with version 2. TensorFlow 1.15's wheel has it."
            raise ModuleNotFoundError(f"{said} {_HOW}", name="tensorflow")
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
        raise ModuleNotFoundError(_error(rest), name=NAME)

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType:
        return _Namespace(spec.name.removeprefix(NAME + "."))

    def exec_module(self, module: ModuleType) -> None:
        pass


def add_contrib(changes: Changes, wheel: wheels.Wheel | None = None) -> ModuleType:
    """Makes `tensorflow.contrib` importable, and returns it. `changes` can undo it."""
    packages = {} if wheel is None else wheel.packages
    top = _Top([f"{folder}/contrib" for folder in packages.get(NAME, ())])
    changes.hide_modules(NAME)
    changes.set_module(NAME, top)
    for name, module in contrib_names.MODULES.items():
        if wheel is not None and name not in contrib_names.MAPPED:
            continue
        if module.members or module.modules or (module.package and name != "slim"):
            _namespace(name, changes)
        for inner in module.inner:
            _namespace(f"{name}.{inner}", changes)
    for path, module_name in contrib_names.MOVED.items():
        if importlib.util.find_spec(module_name) is None:
            continue
        today = importlib.import_module(module_name)
        changes.set_module(f"{NAME}.{path}", today)
        if wheel is None or path.partition(".")[0] in contrib_names.MAPPED:
            parent, _, leaf = path.rpartition(".")
            setattr(_namespace(parent, changes), leaf, today)
    changes.add_finder(_Finder())
    if wheel is not None:
        changes.add_finder(originals.Finder(packages, _add_todays))
    return top


def _add_todays(module: ModuleType) -> None:
    """Gives an original module the names that TensorFlow has today in another place.

    Modules inside a module of `tf.contrib` keep their own names, which their functions use.
    """
    path = module.__name__.removeprefix(f"{NAME}.")
    owner = contrib_names.MODULES.get(contrib_names.NAMESPACES.get(path, ""))
    if owner is None:
        return
    for name, where in owner.members.items():
        found = None if where.startswith(_OURS) else _member(owner, name)
        if found is not None and ("." not in path or name not in vars(module)):
            setattr(module, name, found)


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
