"""Measures the distance between two arrays."""

import dataclasses
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

_SMALLEST_SCALE = 1e-6
"""A gradient of 0 may differ from 0 by less than this, because of rounding."""


@dataclasses.dataclass(frozen=True)
class Tolerance:
    """Values a and b count as equal if |a - b| <= atol scale + rtol max(|a|, |b|).

    The scale of a variable is its largest absolute value, between 1e-6 and 1: Adam's second moments
    may all be 1e-9, and atol alone would accept any value. Everything else has the scale 1.
    """

    rtol: float = 1e-4
    atol: float = 1e-5

    def __str__(self) -> str:
        return f"rtol {self.rtol:g} and atol {self.atol:g}"


@dataclasses.dataclass
class Distance:
    """The distance between two arrays: `past` counts pairs past the tolerance, `nan` pairs of NaN.

    `scale` is the scale in the tolerance.
    """

    absolute: float = 0.0
    relative: float = 0.0
    past: int = 0
    nan: int = 0
    scale: float = 1.0

    def add(self, other: "Distance") -> None:
        self.absolute = max(self.absolute, other.absolute)
        self.relative = max(self.relative, other.relative)
        self.past += other.past
        self.nan += other.nan


def _scale_of(array: Any) -> float:
    values = np.asarray(array)
    if not _is_float(values):
        return _SMALLEST_SCALE
    values = np.abs(values.astype(np.float64))
    largest = float(values.max(where=np.isfinite(values), initial=_SMALLEST_SCALE))
    return min(1.0, largest)


def between(a: Any, b: Any, tolerance: Tolerance, scale: float = 1.0) -> Distance:
    """Returns the distance between two arrays. Integers, booleans and strings must be equal."""
    a, b = np.asarray(a), np.asarray(b)
    if not (_is_float(a) and _is_float(b)):
        return _between_exact(a, b)
    kind = np.complex128 if a.dtype.kind == "c" or b.dtype.kind == "c" else np.float64
    a, b = a.astype(kind), b.astype(kind)
    nan = np.isnan(a) & np.isnan(b)
    same = nan | (a == b)  # Equal infinities are the same, although their difference is NaN.
    # Most pairs are the same, so only the others need the operations below.
    x, y = a[~same], b[~same]
    with np.errstate(invalid="ignore", over="ignore"):
        apart = np.abs(x - y)
        size = np.maximum(np.abs(x), np.abs(y))
        apart = np.where(np.isfinite(apart), apart, np.inf)
        past = ~(apart <= tolerance.atol * scale + tolerance.rtol * size) | ~np.isfinite(apart)
        relative = np.where(np.isfinite(apart), apart / size, np.inf)
    relative = relative[apart > tolerance.atol * scale]
    return Distance(
        float(apart.max(initial=0.0)),
        float(relative.max(initial=0.0)),
        int(past.sum()),
        int(nan.sum()),
    )


def _between_exact(a: np.ndarray, b: np.ndarray) -> Distance:
    unequal = np.asarray(a != b)
    past = int(unequal.sum())
    if not past or a.dtype.kind not in "iu" or b.dtype.kind not in "iu":
        return Distance(np.inf if past else 0.0, np.inf if past else 0.0, past)
    x, y = (one[unequal].astype(np.float64) for one in (a, b))
    apart = np.maximum(np.abs(x - y), 1.0)  # float64 may round both integers to the same value.
    relative = apart / np.maximum(np.abs(x), np.abs(y))
    return Distance(float(apart.max()), float(relative.max()), past)


def pieces_distance(
    pieces: Callable[[], Iterable[tuple[Any, Any]]], tolerance: Tolerance
) -> Distance:
    """Returns the distance between two values of a variable. Each `pieces()` reads them again."""
    scale, total = 0.0, Distance()
    for a, b in pieces():
        scale = max(scale, _scale_of(a), _scale_of(b))
        if scale == 1.0:
            break
    total.scale = max(scale, _SMALLEST_SCALE)
    for a, b in pieces():
        total.add(between(a, b, tolerance, scale))
    return total


def _is_float(values: np.ndarray) -> bool:
    # NumPy has no dtype kind for bfloat16.
    return values.dtype.kind in "fc" or "float" in values.dtype.name
