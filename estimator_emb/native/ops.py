# SPDX-License-Identifier: Apache-2.0
"""Loads the native ops, the arithmetic that they call, and the rules of optimizers.

The arithmetic (kernels.cc) does not depend on TensorFlow; the ops (in the other .cc files) depend
on its release. A wheel may contain both, as two libraries (`prebuilt`); otherwise they are built as
one.
"""

import ctypes
import dataclasses
import functools
from typing import Any

import tensorflow as tf

from estimator_emb.native import build, prebuilt, rules
from estimator_emb.native.build import Unit
from estimator_emb.optimizers import OptimizationParameters

_TAKE, _REGISTER = "estimator_emb_take_kernels", "estimator_emb_register_rule"


@dataclasses.dataclass(frozen=True, eq=False)
class Library:
    """The loaded libraries; `register` takes a rule's name, its function and that for AVX2."""

    ops: Any
    arithmetic: ctypes.CDLL
    register: Any

    def rule(self, parameters: OptimizationParameters, clipping_limit: float | None) -> rules.Rule:
        """Returns an optimizer's rule, registered with the ops, and built if it is not prebuilt."""
        rule = rules.trace(parameters, clipping_limit)
        _register(self, rule)
        return rule


@functools.cache
def _register(library: Library, rule: rules.Rule) -> None:
    loaded = library.arithmetic
    if not hasattr(loaded, f"{rule.name}_any"):
        units = build.arithmetic_units(rule.source, rule.name, build.x86())
        loaded = _open(build.library(rule.name, units, _symbols(rule.name)))
    avx2 = getattr(loaded, f"{rule.name}_avx2") if build.x86() else None
    library.register(rule.name.encode(), getattr(loaded, f"{rule.name}_any"), avx2)


def _symbols(name: str) -> list[str]:
    return [f"{name}_any", *([f"{name}_avx2"] if build.x86() else [])]


def kernel_units(x86: bool) -> list[Unit]:
    """Returns the units that define `kernels_any`, on x86 also `kernels_avx2`."""
    return build.arithmetic_units(build.read_source("kernels.cc"), "kernels", x86)


def op_unit(flags: tuple[str, ...], x86: bool) -> Unit:
    """Returns the unit of the ops; `flags` are TensorFlow's compile flags."""
    # -O1 is enough, because the arithmetic is elsewhere. One unit reads TensorFlow's headers only
    # once, which takes most of the time.
    flags = ("-O1", *flags, *(["-DESTIMATOR_EMB_X86"] if x86 else []))
    sources = f'-DESTIMATOR_EMB_SOURCES="{build.sources()}"'
    files = ("ops.cc", "trainers.cc", "servers.cc", "to_ids.cc")
    return Unit("\n".join(build.read_source(name) for name in files), (*flags, sources))


def load() -> Library:
    """Loads the prebuilt libraries, or else builds them; raises build.BuildError."""
    found = prebuilt.libraries()
    if found is None:
        flags = tuple(tf.sysconfig.get_compile_flags())
        units = [op_unit(flags, build.x86()), *kernel_units(build.x86())]
        symbols = [_TAKE, _REGISTER, *_symbols("kernels")]
        link = tf.sysconfig.get_link_flags()
        path = build.library("ops", units, symbols, link, "native kernels")
        found = path, path
    return _load(*found)


@functools.cache
def _load(arithmetic_path: str, ops_path: str) -> Library:
    try:
        # Before ctypes opens it: TensorFlow finds the ops that are registered as it loads a file.
        ops = tf.load_op_library(ops_path)
    except tf.errors.OpError as error:
        raise build.BuildError(f"{ops_path} cannot be loaded: {error.message}") from error
    opened, arithmetic = _open(ops_path), _open(arithmetic_path)
    take = opened[_TAKE]
    take.argtypes = [ctypes.c_void_p, ctypes.c_void_p]
    take.restype = None
    take(_address(arithmetic, "kernels_any"), _address(arithmetic, "kernels_avx2"))
    register = opened[_REGISTER]
    register.argtypes = [ctypes.c_char_p, ctypes.c_void_p, ctypes.c_void_p]
    register.restype = None
    return Library(ops, arithmetic, register)


def _address(library: ctypes.CDLL, name: str) -> int | None:
    if name == "kernels_avx2" and not build.x86():
        return None
    return ctypes.addressof(ctypes.c_char.in_dll(library, name))


def _open(path: str) -> ctypes.CDLL:
    try:
        return ctypes.CDLL(path)
    except OSError as error:
        raise build.BuildError(f"{path} cannot be loaded: {error}") from error
