"""Replaces attributes and modules reversibly, and imports modules under other names."""

import contextlib
import functools
import importlib
import importlib.abc
import importlib.machinery
import importlib.util
import sys
import threading
import warnings
from collections.abc import Callable, Iterator, Sequence
from types import ModuleType
from typing import Any

_ABSENT = object()


class SharedModule(ModuleType):
    """A module that keeps its `own` attributes and forwards all others to `original`."""

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
    """Finds modules and their submodules under `aliases`: imported name -> real name."""

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
        # The import statement returns the entry of `sys.modules`, not `module`.
        assert module.__spec__ is not None
        name = module.__spec__.name
        sys.modules[name] = importlib.import_module(module.__spec__.loader_state)


class Changes(contextlib.ExitStack):
    """Changes to modules and classes. Leaving the `with` undoes them, except after `pop_all`."""

    def __init__(self) -> None:
        super().__init__()
        self._wrapped: dict[tuple[Any, str], Any] = {}
        self.attributes: dict[str, None] = {}
        """The dotted names of all attributes that were set."""

    def set_attribute(self, owner: Any, name: str, value: Any) -> None:
        module = owner if isinstance(owner, ModuleType) else sys.modules[owner.__module__]
        path = [module.__name__, *([] if owner is module else [owner.__qualname__]), name]
        self.attributes[".".join(path)] = None
        before = vars(owner).get(name, _ABSENT)
        _set_or_delete(owner, name, value)
        self.callback(_set_or_delete, owner, name, before)

    def wrap(self, owner: Any, name: str, make: Callable[[Any], Any]) -> None:
        """Replaces a function by `make(function)`, unless this method has already wrapped it."""
        function = getattr(owner, name)
        if function is not self._wrapped.get((owner, name)):
            wrapper = functools.wraps(function)(make(function))
            self._wrapped[owner, name] = wrapper
            self.set_attribute(owner, name, wrapper)

    def hide_attribute(self, owner: Any, name: str) -> None:
        self.set_attribute(owner, name, _ABSENT)

    def set_module(self, name: str, module: ModuleType) -> None:
        before = sys.modules.get(name)
        sys.modules[name] = module
        if before is None:
            self.callback(sys.modules.pop, name, None)
        else:
            self.callback(sys.modules.__setitem__, name, before)

    def hide_modules(self, *names: str) -> None:
        """Removes modules and their submodules, so that they are imported again."""
        self.callback(sys.modules.update, _remove_modules(names))
        self.callback(_remove_modules, names)

    def add_finder(self, finder: importlib.abc.MetaPathFinder) -> None:
        sys.meta_path.insert(0, finder)
        self.callback(sys.meta_path.remove, finder)


LASTING = Changes()
"""Changes that last until the process ends. docs/importing.md lists them."""
_without_warnings = threading.Lock()


@contextlib.contextmanager
def without_warnings() -> Iterator[None]:
    """Drops all warnings inside.

    `warnings.catch_warnings` is unsuitable because it makes Python show earlier warnings again.
    """
    with _without_warnings, Changes() as changes:
        changes.set_attribute(warnings, "warn", lambda *args, **kwargs: None)
        yield


def _set_or_delete(owner: Any, name: str, value: Any) -> None:
    if value is not _ABSENT:
        setattr(owner, name, value)
    elif name in vars(owner):
        getattr(owner, name)  # TensorFlow's lazy modules delete only attributes that were read.
        delattr(owner, name)


def _remove_modules(names: Sequence[str]) -> dict[str, ModuleType]:
    within = tuple(f"{name}." for name in names)
    return {
        module: sys.modules.pop(module)
        for module in list(sys.modules)
        if f"{module}.".startswith(within)
    }
