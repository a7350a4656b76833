"""Gives programs names that Python and NumPy have dropped, with their old meaning.

Only absent names are added: NumPy 2 has a `numpy.bool` of its own, which stays.
"""

import asyncio
import collections
import collections.abc
import fractions
import importlib
import importlib.machinery
import importlib.util
import inspect
import operator
import sys
import time
import types
from collections.abc import Callable
from types import ModuleType
from typing import Any

import numpy as np

from estimator_emb.private.patches import AliasFinder, Changes

ArgSpec = collections.namedtuple("ArgSpec", "args varargs keywords defaults")


def getargspec(func: Callable[..., Any]) -> ArgSpec:
    """Returns the names of a function's arguments, as `inspect.getargspec` until Python 3.10.

    Raises ValueError for a function with keyword-only arguments or annotations.
    """
    args, varargs, keywords, defaults, keyword_only, _, annotations = inspect.getfullargspec(func)
    if keyword_only or annotations:
        raise ValueError(
            "Function has keyword-only parameters or annotations, use inspect.signature() API "
            "which can support them"
        )
    return ArgSpec(args, varargs, keywords, defaults)


def gcd(a: Any, b: Any) -> Any:
    """Returns the greatest common divisor, with the sign of b, as `fractions.gcd` did."""
    while b:
        a, b = b, a % b
    return a


_NUMPY: dict[str, Any] = {
    **{kind.__name__: kind for kind in (bool, complex, float, int, object, str)},
    **dict.fromkeys(("Inf", "Infinity", "PINF", "infty"), np.inf),
    **dict.fromkeys(("NaN", "NAN"), np.nan),
    "long": int,
    "unicode": str,
    "NINF": -np.inf,
    "NZERO": -0.0,
    "PZERO": 0.0,
    "alltrue": np.all,
    "asscalar": operator.methodcaller("item"),
    "cfloat": np.complex128,
    "complex_": np.complex128,
    "cumproduct": np.cumprod,
    "float_": np.float64,
    "int0": np.intp,
    "object0": np.object_,
    "product": np.prod,
    "round_": np.round,
    "row_stack": np.vstack,
    "singlecomplex": np.complex64,
    "sometrue": np.any,
    "string_": np.bytes_,
    "uint0": np.uintp,
    "unicode_": np.str_,
}
"""Alias that NumPy 1.20 or 2.0 removed -> its meaning."""


def supply(changes: Changes) -> None:
    """Adds the absent names by changes that can be undone."""
    for owner, name, value in (
        *(
            (collections, name, getattr(collections.abc, name))
            for name in collections.abc.__all__
            if name != "Buffer"  # collections never had it.
        ),
        (asyncio, "coroutine", types.coroutine),
        (fractions, "gcd", gcd),
        (inspect, "ArgSpec", ArgSpec),
        (inspect, "getargspec", getargspec),
        (time, "clock", time.process_time),
        *((np, name, value) for name, value in _NUMPY.items()),
    ):
        # Not hasattr: NumPy may warn of a name that is gone.
        if name not in vars(owner):
            changes.set_attribute(owner, name, value)
    if importlib.util.find_spec("imp") is None:
        changes.set_module("imp", _imp())
    if importlib.util.find_spec("distutils") is None:
        changes.add_finder(AliasFinder({"distutils": "setuptools._distutils"}))


def _imp() -> ModuleType:
    module = ModuleType("imp")
    module.__spec__ = importlib.machinery.ModuleSpec("imp", None)
    vars(module).update(
        new_module=ModuleType,
        reload=importlib.reload,
        load_source=_load_source,
        __getattr__=_lacking_in_imp,
    )
    return module


def _lacking_in_imp(name: str) -> Any:
    if name.startswith("__"):
        raise AttributeError(name)
    raise AttributeError(
        f"imp.{name}: Python 3.12 has dropped the module imp, and estimator-emb --tf-v1 supplies "
        "load_source, new_module and reload of it. Use importlib."
    )


def _load_source(name: str, pathname: str, file: Any = None) -> ModuleType:
    spec = importlib.util.spec_from_file_location(
        name, pathname, loader=importlib.machinery.SourceFileLoader(name, pathname)
    )
    assert spec is not None and spec.loader is not None
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
