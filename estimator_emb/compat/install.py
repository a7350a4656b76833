# SPDX-License-Identifier: Apache-2.0
"""Puts estimator_emb where programs of TensorFlow 1 and 2 look for `tf.estimator`.

TensorFlow's API has several module objects for one name: `tensorflow.compat.v1`, once imported by
that name, is another object than the `tensorflow._api.v2.compat.v1` from which it was made, and
replaces it as `tf.compat.v1`. `install` changes all of them. Where a class of ours replaces one of
tensorflow-estimator's, the module that defines the latter stays as it is, because it names its own
class in `super(...)`. Imports find another module in its place, which shares everything else.
"""

from __future__ import annotations

import importlib
import importlib.abc
import importlib.machinery
import importlib.util
import re
import sys
from collections.abc import Callable, Sequence
from types import ModuleType
from typing import Any

from estimator_emb import config, estimator, optimizers, options
from estimator_emb.cluster import training
from estimator_emb.compat import async_checkpoint, emulated_tpu, input_checkpoint

_ESTIMATOR = "tensorflow_estimator.python.estimator"
_OPTIMIZERS: dict[str, Any] = {
    parameters.__name__: parameters for parameters in optimizers.PARAMETERS
}

_REPLACED: dict[str, dict[str, Any]] = {
    "tpu.tpu_estimator": {"TPUEstimator": estimator.TPUEstimator},
    "tpu.tpu_config": {"TPUConfig": options.TPUConfig},
    "training": {"train_and_evaluate": training.train_and_evaluate},
    "tpu._tpu_estimator_embedding": {
        "EmbeddingConfigSpec": config.EmbeddingConfigSpec,
        **_OPTIMIZERS,
    },
}
"""Module of tensorflow-estimator -> the names that it is to have from this package."""

_API_REPLACED: dict[str, dict[str, Any]] = {
    "tpu": {"TPUEstimator": estimator.TPUEstimator, "TPUConfig": options.TPUConfig},
    "tpu.experimental": {"EmbeddingConfigSpec": config.EmbeddingConfigSpec},
}
"""The same for the modules of its API, which hold the classes that they have imported."""

_ALIASES = {
    "tensorflow.estimator": f"{_ESTIMATOR}.api._v2.estimator",
    "tensorflow.compat.v1.estimator": f"{_ESTIMATOR}.api._v1.estimator",
    "tensorflow.compat.v2.estimator": f"{_ESTIMATOR}.api._v2.estimator",
    "tensorflow.python.estimator": _ESTIMATOR,
    **{
        f"tensorflow.python.tpu.{name}": f"{_ESTIMATOR}.tpu.{name}"
        for name in ("error_handling", "tpu_config", "tpu_context", "tpu_estimator", "util")
    },
}
"""Name in an import -> the module that it finds; submodules likewise."""

_API_COPIES = {
    f"{copy}.{module}": f"{api}.{module}"
    for copy, api in (
        ("tensorflow", "tensorflow._api.v2"),
        ("tensorflow.compat.v1", "tensorflow._api.v2.compat.v1"),
        ("tensorflow.compat.v2", "tensorflow._api.v2.compat.v2"),
    )
    for module in ("compat", "data", "tpu")
    if f"{copy}.{module}" != "tensorflow.compat"
}
"""The same for modules of TensorFlow's API that an import would load a second time."""

_API_ROOT = re.compile(r"tensorflow(\._api\.v2(\.v2)?)?(\.compat\.v[12])*")
_ABSENT = object()

_installed: _Changes | None = None


def install() -> None:
    """Makes unchanged programs find `tf.estimator`, and estimator_emb in it.

    Afterwards, on every TensorFlow from 2.15.1 on, whether it was imported before or not:

    * `tf.estimator`, `tf.compat.v1.estimator` and `tf.compat.v2.estimator` exist as attributes, and
      can be imported. `tf.compat.v1.estimator.tpu` has `TPUEstimator`, `TPUConfig` and
      `experimental.EmbeddingConfigSpec` of estimator_emb.
    * `tf.compat.v1.tpu.experimental` has every optimizer class of the legacy vocabulary, and
      `tf.data.experimental` has our `CheckpointInputPipelineHook`.
    * `tensorflow_estimator.python.estimator` has the classes of estimator_emb, also by its old
    names
      `tensorflow.python.estimator` and `tensorflow.python.tpu.tpu_estimator`.
    * While the environment variable ESTIMATOR_EMB_DEVICE is 'host', a `TPUClusterResolver` and the
      `master` of a TPU's `RunConfig` mean the emulated TPU, whatever name they are given, and
      initialising a TPU system does nothing.

    Names that a program has imported from these modules before by `from ... import <class>` stay
    as they were. A second call changes nothing. `uninstall` restores everything.
    """
    global _installed
    if _installed is not None:
        return
    changes = _Changes()
    try:
        _replace_modules(changes)
        _alias_modules(changes)
        _extend_api(changes)
        emulated_tpu.install(changes.set_attribute)
    except BaseException:
        changes.undo()
        raise
    _installed = changes


def uninstall() -> None:
    """Undoes `install`. Without an `install` before, it changes nothing."""
    global _installed
    if _installed is not None:
        _installed.undo()
        _installed = None


def _replace_modules(changes: _Changes) -> None:
    for name, ours in _REPLACED.items():
        name = f"{_ESTIMATOR}.{name}"
        shared = SharedModule(importlib.import_module(name), ours)
        changes.set_module(name, shared)
        parent, _, leaf = name.rpartition(".")
        changes.set_attribute(importlib.import_module(parent), leaf, shared)
    for api in (f"{_ESTIMATOR}.api._v1", "tensorflow_estimator._api.v1"):
        for path, replaced in _API_REPLACED.items():
            module = importlib.import_module(f"{api}.estimator.{path}")
            for name, our in replaced.items():
                changes.set_attribute(module, name, our)


def _alias_modules(changes: _Changes) -> None:
    aliases = {**_ALIASES}
    name = "tensorflow.python.tpu.async_checkpoint"
    if importlib.util.find_spec(name) is None:
        aliases[name] = async_checkpoint.__name__
    for name in aliases:
        changes.hide_modules(name)
        parent, _, leaf = name.rpartition(".")
        changes.hide_attribute(importlib.import_module(parent), leaf)
    changes.add_finder(AliasFinder({**aliases, **_API_COPIES}))


def _extend_api(changes: _Changes) -> None:
    estimators = {
        version: importlib.import_module(f"{_ESTIMATOR}.api._{version}.estimator")
        for version in ("v1", "v2")
    }
    others = [
        importlib.import_module(f"tensorflow_estimator._api.{one}.estimator") for one in estimators
    ]
    for api in (*estimators.values(), *others):
        changes.set_attribute(api, "train_and_evaluate", training.train_and_evaluate)
    for name, root in list(sys.modules.items()):
        if not _API_ROOT.fullmatch(name) or root is None:
            continue
        version = "v1" if name.endswith("v1") else "v2"
        changes.set_attribute(root, "estimator", estimators[version])
        if version == "v1":
            for optimizer_name, optimizer in _OPTIMIZERS.items():
                changes.set_attribute(root.tpu.experimental, optimizer_name, optimizer)
        if hasattr(root, "data"):
            hook = input_checkpoint.CheckpointInputPipelineHook
            changes.set_attribute(root.data.experimental, hook.__name__, hook)


class SharedModule(ModuleType):
    """A module that has some names of its own and shares all others with another module.

    Args:
      original: the other module. Attributes other than `own` are set there.
      own: name -> value of the attributes of this module alone.
    """

    def __init__(self, original: ModuleType, own: dict[str, Any]):
        super().__init__(original.__name__, original.__doc__)
        for name in ("__file__", "__path__", "__spec__", "__loader__", "__package__"):
            if hasattr(original, name):
                self.__dict__[name] = getattr(original, name)
        self.__dict__.update(own, _original=original, _own=frozenset(own))

    def __getattr__(self, name: str) -> Any:
        if name == "__all__" and not hasattr(self._original, name):
            return [public for public in dir(self) if not public.startswith("_")]
        return getattr(self._original, name)

    def __setattr__(self, name: str, value: Any) -> None:
        if name in self._own:
            self.__dict__[name] = value
        else:
            setattr(self._original, name, value)

    def __delattr__(self, name: str) -> None:
        if name in self._own:
            del self.__dict__[name]
        else:
            delattr(self._original, name)

    def __dir__(self) -> list[str]:
        return sorted({*dir(self._original), *self._own})


class AliasFinder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """A finder that imports modules, and their submodules, under other names.

    Args:
      aliases: name in an import -> name of the module that it finds.
    """

    def __init__(self, aliases: dict[str, str]):
        self._aliases = aliases

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        name, rest = fullname, ""
        while name:
            if name in self._aliases:
                state = self._aliases[name] + rest
                try:
                    if importlib.util.find_spec(state) is None:
                        return None
                except ModuleNotFoundError:
                    return None
                return importlib.machinery.ModuleSpec(fullname, self, loader_state=state)
            name, dot, leaf = name.rpartition(".")
            rest = dot + leaf + rest
        return None

    def exec_module(self, module: ModuleType) -> None:
        # An import returns the module that is here when this returns.
        assert module.__spec__ is not None
        name = module.__spec__.name
        sys.modules[name] = importlib.import_module(module.__spec__.loader_state)


class _Changes:
    """A list of changes to modules, each with a function that undoes it."""

    def __init__(self) -> None:
        self._undo: list[Callable[[], Any]] = []

    def set_attribute(self, owner: Any, name: str, value: Any) -> None:
        before = vars(owner).get(name, _ABSENT)
        setattr(owner, name, value)
        self._undo.append(lambda: _restore_attribute(owner, name, before))

    def hide_attribute(self, owner: Any, name: str) -> None:
        before = vars(owner).get(name, _ABSENT)
        _restore_attribute(owner, name, _ABSENT)
        self._undo.append(lambda: _restore_attribute(owner, name, before))

    def set_module(self, name: str, module: ModuleType) -> None:
        before = sys.modules.get(name)
        sys.modules[name] = module
        self._undo.append(lambda: _restore_modules(name, {} if before is None else {name: before}))

    def hide_modules(self, name: str) -> None:
        """Removes module `name` and its submodules, so that they are imported again."""
        before = {
            module: sys.modules[module] for module in list(sys.modules) if _is_within(module, name)
        }
        _restore_modules(name, {})
        self._undo.append(lambda: _restore_modules(name, before))

    def add_finder(self, finder: importlib.abc.MetaPathFinder) -> None:
        sys.meta_path.insert(0, finder)
        self._undo.append(lambda: sys.meta_path.remove(finder))

    def undo(self) -> None:
        while self._undo:
            self._undo.pop()()


def _is_within(module: str, package: str) -> bool:
    return module == package or module.startswith(package + ".")


def _restore_attribute(owner: Any, name: str, value: Any) -> None:
    if value is not _ABSENT:
        setattr(owner, name, value)
    elif name in vars(owner):
        getattr(owner, name)  # TensorFlow's lazy modules can delete only what was read once.
        delattr(owner, name)


def _restore_modules(name: str, modules: dict[str, ModuleType]) -> None:
    for module in list(sys.modules):
        if _is_within(module, name):
            del sys.modules[module]
    sys.modules.update(modules)
