"""Gives programs the names that Python and NumPy have dropped, with their old meaning.

Only absent names are added: NumPy 2 keeps its own `numpy.bool`. A function that has lost an
argument takes it again.
"""

import ast
import asyncio
import base64
import collections
import collections.abc
import contextlib
import fractions
import functools
import importlib
import importlib.machinery
import importlib.util
import inspect
import operator
import pickle
import sys
import time
import types
import warnings
from collections.abc import Callable, Iterable
from types import ModuleType
from typing import Any, cast

import numpy as np
import tensorflow as tf

from estimator_emb.compat.internals.patches import AliasFinder, Changes

ArgSpec = collections.namedtuple("ArgSpec", "args varargs keywords defaults")


def getargspec(func: Callable[..., Any]) -> ArgSpec:
    """Returns the names of a function's arguments, as `inspect.getargspec` did until Python 3.10.

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


def asfarray(a: Any, dtype: Any = np.float64) -> Any:
    """Returns an array of floats, as `numpy.asfarray` did until NumPy 2.0."""
    dtype = np.dtype(dtype)
    return np.asarray(a, dtype if np.issubdtype(dtype, np.inexact) else np.float64)


def find_common_type(array_types: Iterable[Any], scalar_types: Iterable[Any]) -> Any:
    """Returns the common type of arrays. Scalars count only if their kind is higher (NumPy < 2)."""
    arrays, scalars = (
        functools.reduce(np.promote_types, map(np.dtype, types)) if types else None
        for types in (list(array_types), list(scalar_types))
    )
    if arrays is None or scalars is None:
        return scalars if arrays is None else arrays
    kinds = "buifcO"
    if not {arrays.kind, scalars.kind} <= {*kinds}:
        return None
    higher = kinds.index(scalars.kind) > kinds.index(arrays.kind)
    return np.promote_types(scalars, arrays) if higher else arrays


def in1d(ar1: Any, ar2: Any, *args: Any, **kwargs: Any) -> Any:
    """Returns for each element of the flattened `ar1` whether `ar2` has it."""
    return np.isin(np.ravel(ar1), ar2, *args, **kwargs)


class _Cast:
    """`numpy.cast`: maps a type to a function that casts to it."""

    def __getitem__(self, kind: Any) -> Callable[[Any], Any]:
        return lambda values: np.asarray(values).astype(kind)


_NUMPY: dict[str, Any] = {
    **{kind.__name__: kind for kind in (bool, complex, float, int, object, str)},
    **dict.fromkeys(("Inf", "Infinity", "PINF", "infty"), np.inf),
    **dict.fromkeys(("NaN", "NAN"), np.nan),
    "long": int,
    "unicode": str,
    "NINF": -np.inf,
    "NZERO": -0.0,
    "PZERO": 0.0,
    "alen": lambda a: len(np.array(a, ndmin=1)),
    "alltrue": np.all,
    "asfarray": asfarray,
    "asscalar": operator.methodcaller("item"),
    "cfloat": np.complex128,
    "cast": _Cast(),
    "clongfloat": np.clongdouble,
    "complex_": np.complex128,
    "cumproduct": np.cumprod,
    "find_common_type": find_common_type,
    "float_": np.float64,
    "in1d": in1d,
    "int0": np.intp,
    "loads": pickle.loads,
    "longcomplex": np.clongdouble,
    "longfloat": np.longdouble,
    "mat": np.asmatrix,
    "msort": functools.partial(np.sort, axis=0),
    "object0": np.object_,
    "product": np.prod,
    "rank": np.ndim,
    "round_": np.round,
    "row_stack": np.vstack,
    "safe_eval": ast.literal_eval,
    "singlecomplex": np.complex64,
    "sometrue": np.any,
    "string_": np.bytes_,
    "trapz": getattr(np, "trapezoid", None),
    "uint0": np.uintp,
    "unicode_": np.str_,
}
"""Name that NumPy has removed -> its value."""


def _with_binary_mode(original: Callable[..., Any]) -> Callable[..., Any]:
    """Lets `numpy.fromstring` read bytes again. NumPy 2.3 refuses them."""

    @functools.wraps(original)
    def fromstring(
        string: Any, dtype: Any = float, count: int = -1, sep: str = "", **more: Any
    ) -> Any:
        if sep:
            return original(string, dtype, count, sep=sep, **more)
        data = string.encode("latin-1") if isinstance(string, str) else string
        return np.frombuffer(data, dtype, count, **more).copy()

    return fromstring


def _with_interpolation(original: Callable[..., Any]) -> Callable[..., Any]:
    """Lets a quantile function take its `method` as `interpolation`, as until NumPy 1.22."""

    @functools.wraps(original)
    def quantile(*args: Any, **kwargs: Any) -> Any:
        if "interpolation" in kwargs:
            kwargs["method"] = kwargs.pop("interpolation")
        return original(*args, **kwargs)

    return quantile


def _with_generators(original: Callable[..., Any]) -> Callable[..., Any]:
    """Lets `numpy.sum` add what a generator yields. NumPy 2.4 refuses generators."""

    @functools.wraps(original)
    def sum_(a: Any, *args: Any, **kwargs: Any) -> Any:
        return sum(a) if isinstance(a, types.GeneratorType) else original(a, *args, **kwargs)

    return sum_


def _takes(call: Callable[[], Any]) -> bool:
    """Returns whether a call raises no TypeError."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            call()
        except TypeError:
            return False
    return True


def _reads_bytes() -> bool:
    with warnings.catch_warnings(), contextlib.suppress(ValueError):
        warnings.simplefilter("ignore")
        np.fromstring(b"1", np.uint8, sep="")
        return True
    return False


def _changed_functions() -> dict[str, Any]:
    """Returns the NumPy functions that have lost an argument, wrapped to take it again."""
    changed = {} if _reads_bytes() else {"fromstring": _with_binary_mode(np.fromstring)}
    if not _takes(lambda: cast(Any, np.sum)(one for one in (1,))):
        changed["sum"] = _with_generators(np.sum)
    for name in ("quantile", "percentile", "nanquantile", "nanpercentile"):
        function = getattr(np, name)
        if "interpolation" not in inspect.signature(function).parameters:
            changed[name] = _with_interpolation(function)
    return changed


_INT64_LIST = tf.train.Int64List


class _TakesBools(type):
    """Makes `_Int64List` the class tf.train.Int64List in everything but its calls."""

    def __call__(cls, value: Iterable[Any] | None = None, **more: Any) -> Any:
        value = () if value is None else value
        numbers = (int(one) if isinstance(one, (bool, np.bool_)) else one for one in value)
        return _INT64_LIST(value=numbers, **more)

    def __getattr__(cls, name: str) -> Any:
        return getattr(_INT64_LIST, name)

    def __instancecheck__(cls, instance: Any) -> bool:
        return isinstance(instance, _INT64_LIST)


class _Int64List(metaclass=_TakesBools):
    """`tf.train.Int64List`, which takes True as 1 again. protobuf 7 refuses it, 6 NumPy's."""


def supply(changes: Changes) -> None:
    """Adds the names that Python and NumPy have dropped. `changes` can undo it."""
    for owner, name, value in (
        *(
            (collections, name, getattr(collections.abc, name))
            for name in collections.abc.__all__
            if name != "Buffer"  # collections never had it.
        ),
        (asyncio, "coroutine", types.coroutine),
        (base64, "decodestring", base64.decodebytes),
        (base64, "encodestring", base64.encodebytes),
        (fractions, "gcd", gcd),
        (inspect, "ArgSpec", ArgSpec),
        (inspect, "getargspec", getargspec),
        (time, "clock", time.process_time),
        *((np, name, value) for name, value in _NUMPY.items()),
    ):
        # Not hasattr: NumPy may warn about a removed name.
        if name not in vars(owner):
            changes.set_attribute(owner, name, value)
    for name, function in _changed_functions().items():
        changes.set_attribute(np, name, function)
    if not _takes(lambda: _INT64_LIST(value=[True, np.True_])):
        changes.set_attribute(tf.compat.v1.train, "Int64List", _Int64List)
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
