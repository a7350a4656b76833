"""Imports TensorFlow 1.15's own `tf.contrib` from the wheel or folder that the user names.

Python reads modules from a wheel in place. What their sources need and TensorFlow no longer has is
in `stand_ins`. Wrappers of C++ ops call TensorFlow's op of that name. If TensorFlow has no such op,
calling the wrapper is an error.
"""

import ast
import builtins
import importlib
import importlib.abc
import importlib.machinery
import inspect
import re
from collections.abc import Callable, Sequence
from types import ModuleType
from typing import Any

import tensorflow as tf
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

from estimator_emb.legacy.contrib import stand_ins

_DESCRIPTOR = re.compile(r"serialized_pb=_b\(('(?:[^'\\]|\\.)*')\)")


class Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """A finder of the packages of `catalog.wheel.Wheel`. `complete` gets each module at its end."""

    def __init__(self, packages: dict[str, list[str]], complete: Callable[[ModuleType], None]):
        self._packages = packages
        self._complete = complete

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        package = next(
            (one for one in self._packages if f"{fullname}.".startswith(one + ".")), None
        )
        if package is None:
            return None
        search = self._packages[package] if fullname == package else path
        spec = importlib.machinery.PathFinder.find_spec(fullname, search)
        if spec is not None:
            spec.loader_state = spec.loader
            spec.loader = self
        return spec

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType | None:
        leaf = spec.name.rpartition(".")[2]
        return _GeneratedOps(spec.name) if leaf.startswith("gen_") else None

    def exec_module(self, module: ModuleType) -> None:
        assert module.__spec__ is not None
        loader: Any = module.__spec__.loader_state
        module.__loader__ = loader
        if isinstance(module, _GeneratedOps):
            module.__all__ = []
        elif module.__name__.endswith("_pb2"):
            _add_messages(module, loader.get_source(module.__name__))
        else:
            own = {**vars(builtins), "__import__": stand_ins.import_}
            vars(module)["__builtins__"] = own
            exec(loader.get_code(module.__name__), vars(module))
            self._complete(module)


class _GeneratedOps(ModuleType):
    """A module of wrappers of C++ ops."""

    __all__: list[str]

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        op = getattr(tf.raw_ops, "".join(part.capitalize() for part in name.split("_")), None)
        arguments = list(inspect.signature(op).parameters) if op is not None else []

        def call(*args: Any, **kwargs: Any) -> Any:
            if op is None:
                raise NotImplementedError(
                    f"{self.__name__}.{name} is an op in C++ that only TensorFlow 1 has."
                )
            return op(**dict(zip(arguments, args, strict=False)), **kwargs)

        return call


def _add_messages(module: ModuleType, source: str) -> None:
    """Makes the messages of an old *_pb2 module, whose code today's protobuf refuses."""
    found = _DESCRIPTOR.search(source)
    assert found is not None, module.__name__
    serialized = ast.literal_eval("b" + found[1])
    pool = descriptor_pool.Default()
    file = descriptor_pb2.FileDescriptorProto.FromString(serialized)
    for needed in file.dependency:
        importlib.import_module(needed.replace("/", ".").removesuffix(".proto") + "_pb2")
    pool.AddSerializedFile(serialized)
    made = pool.FindFileByName(file.name)
    for enum in made.enum_types_by_name.values():
        vars(module).update({value.name: value.number for value in enum.values})
    for message, descriptor in made.message_types_by_name.items():
        setattr(module, message, message_factory.GetMessageClass(descriptor))
