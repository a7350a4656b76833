# SPDX-License-Identifier: Apache-2.0
"""Builds and loads the ops of ops.cc, and the rules of optimizers that they call."""

import ctypes
import dataclasses
import functools
from typing import Any

import tensorflow as tf

from estimator_emb.native import build, rules
from estimator_emb.optimizers import OptimizationParameters


@dataclasses.dataclass(frozen=True, eq=False)
class Library:
    """The loaded library of ops.

    Attributes:
      ops: the module of Python wrappers that TensorFlow creates.
      register: function that makes the rule of an optimizer known to the ops.
    """

    ops: Any
    register: Any

    def rule(self, parameters: OptimizationParameters, clipping_limit: float | None) -> rules.Rule:
        """Returns the traced rule of an optimizer, built and registered under its name.

        Raises:
          build.BuildError: the rule cannot be built.
        """
        rule = rules.trace(parameters, clipping_limit)
        _register(self, rule.name, rule.source("rule_any"), rule.source("rule_avx2"))
        return rule


@functools.cache
def _register(library: Library, name: str, any_source: str, avx2_source: str) -> None:
    units = [build.numeric(any_source)]
    if build.x86():
        units.append(build.avx2(avx2_source))
    loaded = _open(build.library(name, units))
    library.register(name.encode(), loaded.rule_any, loaded.rule_avx2 if build.x86() else None)


def load() -> Library:
    """Returns the library of ops, and builds it if it is not cached.

    Raises:
      build.BuildError: it cannot be built or loaded.
    """
    kernels = build.read("kernels.cc")
    # What matters for speed is in the other units.
    flags = ("-O1", *tf.sysconfig.get_compile_flags(), *_define("ESTIMATOR_EMB_X86"))
    units = [
        build.Unit(build.read("ops.cc"), flags),
        build.Unit(build.read("trainers.cc"), flags),
        build.Unit(
            build.read("servers.cc"), (*flags, f'-DESTIMATOR_EMB_SOURCES="{build.sources()}"')
        ),
        build.numeric(kernels, "-DKERNELS=kernels_any"),
    ]
    if build.x86():
        units.append(build.avx2(kernels, "-DKERNELS=kernels_avx2"))
    path = build.library("ops", units, tf.sysconfig.get_link_flags(), "native kernels")
    return _load(path)


def _define(name: str) -> tuple[str, ...]:
    return (f"-D{name}",) if build.x86() else ()


@functools.cache
def _load(path: str) -> Library:
    try:
        ops = tf.load_op_library(path)
    except tf.errors.OpError as error:
        raise build.BuildError(f"{path} cannot be loaded: {error.message}") from error
    register = _open(path).estimator_emb_register_rule
    register.argtypes = [ctypes.c_char_p, ctypes.c_void_p, ctypes.c_void_p]
    register.restype = None
    return Library(ops, register)


def _open(path: str) -> ctypes.CDLL:
    try:
        return ctypes.CDLL(path)
    except OSError as error:
        raise build.BuildError(f"{path} cannot be loaded: {error}") from error
