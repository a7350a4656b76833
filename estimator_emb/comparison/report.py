# SPDX-License-Identifier: Apache-2.0
"""Compares what two sides have recorded, and prints the report."""

import argparse
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from estimator_emb.comparison import comparing, distances, recorded, text
from estimator_emb.messages import text_columns


def report(
    options: argparse.Namespace,
    sides: Sequence[Any],
    a: Sequence[Mapping[str, Any]],
    b: Sequence[Mapping[str, Any]],
    repeat: Callable[[], Sequence[Mapping[str, Any]]] | None,
) -> int:
    """Compares two sides by their events, prints the report, and returns the exit status."""
    tolerance = distances.Tolerance(options.rtol, options.atol)
    if repeat is None:
        runs = [recorded.of_model_dir(side.model_dir) for side in sides]
    else:
        runs = [recorded.of_events(events) for events in (a, b)]
        for run, label in zip(runs, "AB", strict=True):
            comparing.check_change(run, label)
    comparison = comparing.compare(runs[0], runs[1], tolerance, options.ignore)
    differs = bool(comparison.problems) or comparison.first is not None
    repeated = None
    if repeat is not None and (options.repeat == "yes" or (options.repeat == "auto" and differs)):
        again = recorded.of_events(repeat())
        repeated = comparing.compare(runs[0], again, tolerance, options.ignore)
    status, line = comparing.verdict(comparison, repeated, tolerance)
    print(text.head(options, sides, runs))
    print(text.body(comparison, repeated))
    if options.plot is not None:
        from estimator_emb.comparison import plot

        plot.draw(comparison, [side.described() for side in sides], options.plot)
        print(f"Plot: {options.plot}")
    print(text_columns.escaped(line), flush=True)
    return status
