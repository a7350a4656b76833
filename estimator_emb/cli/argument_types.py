# SPDX-License-Identifier: Apache-2.0
"""Types of the subcommands' arguments. Each refuses in words what it does not take."""

from __future__ import annotations

import argparse
from collections.abc import Callable

from estimator_emb.names import slices
from estimator_emb.names.generations import GENERATIONS


def tolerance(text: str) -> float:
    """Returns the number >= 0 that an argument gives."""
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 <= value < float("inf"):
        raise argparse.ArgumentTypeError(f"must be a number >= 0; got {text!r}")
    return value


def at_least_one(text: str) -> int:
    """Returns the integer >= 1 that an argument gives."""
    try:
        value = int(text)
    except ValueError:
        value = 0
    if value < 1:
        raise argparse.ArgumentTypeError(f"must be an integer >= 1; got {text!r}")
    return value


def cores(text: str) -> int:
    """Returns a number of cores that an emulated TPU can have."""
    count = at_least_one(text)
    try:
        slices.of_cores(count)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None
    return count


def topology(text: str) -> str:
    """Returns the name of a slice that can be emulated."""
    try:
        slices.named(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None
    return text


def positive(kind: Callable[[str], float]) -> Callable[[str], float]:
    """Returns a type of arguments: a number of a kind, above 0."""

    def positive(text: str) -> float:
        value = kind(text)
        if not value > 0:
            raise argparse.ArgumentTypeError(f"{text} is not positive")
        return value

    return positive


def generations(text: str) -> tuple[str, ...]:
    """Returns the names of TPU generations that an argument lists."""
    names = tuple(text.split(","))
    for name in names:
        if name not in GENERATIONS:
            raise argparse.ArgumentTypeError(f"{name!r} is none of {', '.join(GENERATIONS)}")
    return names
