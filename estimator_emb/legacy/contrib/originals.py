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
        return _GeneratedOps(spec.name) if ".gen_" in spec.name else None

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
            if module.__name__ in stand_ins.ADDED:
                owner, name, value = stand_ins.ADDED[module.__name__]
                setattr(getattr(module, owner), name, value)
            self._complete(module)


def _gather_tree(
    step_ids: Any, parent_ids: Any, max_sequence_lengths: Any, end_token: Any, name: Any = None
) -> tf.Tensor:
    """Returns the ids of full beams [time, batch, beam], from each step's ids and parent beams.

    From the last step of a sample on, each beam continues with its parent at the step before. After
    its first end token, a beam has only end tokens.
    """
    where = tf.raw_ops.SelectV2
    with tf.compat.v1.name_scope(name, "GatherTree"):
        ids = tf.convert_to_tensor(step_ids)
        end = tf.cast(end_token, ids.dtype)
        times, batch, beam = tf.unstack(tf.shape(ids), num=3)

        def back(later: Any, step: Any) -> Any:
            beams, _ = later
            found, parents, time = step
            within = (time < max_sequence_lengths)[:, None]
            found = where(condition=within, t=tf.gather(found, beams, batch_dims=1), e=end)
            parents = tf.gather(parents, beams, batch_dims=1)
            return where(condition=within, t=parents, e=beams), found

        start = tf.broadcast_to(tf.range(beam), [batch, beam])
        steps = ids, tf.convert_to_tensor(parent_ids), tf.range(times)
        _, full = tf.scan(back, steps, (start, tf.zeros_like(ids[0])), reverse=True)
        ended = tf.cumsum(tf.cast(tf.equal(full, end), tf.int32), exclusive=True) > 0
        return where(condition=ended, t=end, e=full)


_IN_PYTHON = {"gather_tree": _gather_tree}
"""Op in C++ that TensorFlow lacks -> a function of TensorFlow's ops."""
_RENAMED = {"sparse_feature_cross_v2": "SparseCross"}
"""Wrapper -> TensorFlow's op that does the same."""


class _GeneratedOps(ModuleType):
    """A module of wrappers of C++ ops."""

    __all__: list[str]

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        if name in _IN_PYTHON:
            return _IN_PYTHON[name]
        kernel = _RENAMED.get(name, "".join(part.capitalize() for part in name.split("_")))
        op = getattr(tf.raw_ops, kernel, None)
        arguments = list(inspect.signature(op).parameters) if op is not None else []

        def call(*args: Any, **kwargs: Any) -> Any:
            if op is None:  # Not a NotImplementedError, which seq2seq.dynamic_decode ignores.
                raise RuntimeError(f"{self.__name__}.{name} is a C++ op that TensorFlow 2 lacks.")
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
