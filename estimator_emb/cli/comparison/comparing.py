"""Compares two finished runs, and decides whether they are the same.

It reports all that could make the verdict wrong unnoticed: a variable, metric or step on one side
only, and values that are NaN on both sides.
"""

import dataclasses
import fnmatch
import functools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from estimator_emb.checkpoints.files.checkpoint_reader import CheckpointReader
from estimator_emb.cli.comparison import CannotCompare, distances, name_pairs
from estimator_emb.cli.comparison.finished import Run
from estimator_emb.reporting.text_columns import counted

SAME, DIFFERENT, CANNOT_COMPARE = 0, 1, 2


@dataclasses.dataclass
class Item:
    """A quantity of both sides, named as on A. `steps` maps a step to the distance after it."""

    name: str
    shape: tuple[int, ...] = ()
    steps: dict[int, distances.Distance] = dataclasses.field(default_factory=dict)

    @property
    def first(self) -> int | None:
        """Returns the first step with a difference between the sides past the tolerance."""
        return min((step for step, one in self.steps.items() if one.past), default=None)

    @property
    def largest(self) -> tuple[int, distances.Distance]:
        """Returns the step with the largest difference between the sides, and that distance."""
        return max(self.steps.items(), key=lambda one: (one[1].absolute, -one[0]))

    @property
    def relative(self) -> float:
        return max(one.relative for one in self.steps.values())

    @property
    def nan(self) -> int | None:
        return min((step for step, one in self.steps.items() if one.nan), default=None)


@dataclasses.dataclass
class Comparison:
    """The comparison of two runs.

    `losses` holds (step, loss of A, loss of B). `metrics` holds (item, A's value, B's value).
    """

    losses: list[tuple[int, float, float]]
    loss: Item
    variables: list[Item]
    matching: name_pairs.Matching
    metrics: list[tuple[Item, float, float]]
    problems: list[str]

    def items(self) -> list[Item]:
        items = [self.loss, *self.variables, *(item for item, _, _ in self.metrics)]
        return [item for item in items if item.steps]

    @property
    def first(self) -> int | None:
        """Returns the first step with any difference past the tolerance."""
        firsts = [item.first for item in self.items() if item.first is not None]
        return min(firsts, default=None)


def compare(
    a: Run, b: Run, tolerance: distances.Tolerance, ignore: Sequence[str] = ()
) -> Comparison:
    """Compares two runs, ignoring the names that match a pattern in `ignore`."""
    problems: list[str] = []
    losses: list[tuple[int, float, float]] = []
    loss = Item("loss")
    if not _matches("loss", ignore):
        steps = sorted(a.losses.keys() & b.losses.keys())
        losses = [(step, a.losses[step], b.losses[step]) for step in steps]
        for step, one, other in losses:
            loss.steps[step] = distances.between(one, other, tolerance)
        _check_steps("losses", a.losses, b.losses, problems)
    _check_steps("checkpoints", a.saved, b.saved, problems)
    saved = sorted(a.saved.keys() & b.saved.keys())
    if not saved:
        raise CannotCompare("the runs saved their variables at different steps.")
    variables, matching = _compare_variables(
        {step: (a.saved[step], b.saved[step]) for step in saved}, tolerance, ignore, problems
    )
    if not variables:
        raise CannotCompare("no variable is left to compare.")
    for name in sorted(a.exports.keys() & b.exports.keys()):
        of_export, _ = _compare_variables(
            {saved[-1]: (a.exports[name], b.exports[name])}, tolerance, ignore, problems
        )
        for item in of_export:
            item.name = f"export {name}: {item.name}"
        variables += of_export
    metrics = _compare_metrics(a, b, tolerance, ignore, problems)
    return Comparison(losses, loss, variables, matching, metrics, problems)


def _matches(name: str, patterns: Sequence[str]) -> bool:
    return any(fnmatch.fnmatchcase(name, pattern) for pattern in patterns)


def _check_steps(
    what: str, a: Mapping[int, Any], b: Mapping[int, Any], problems: list[str]
) -> None:
    if max(a, default=None) != max(b, default=None):
        of_a, of_b = (steps_as_text(sorted(one)) for one in (a, b))
        problems.append(f"A has {what} of {of_a}, B of {of_b}.")


def _compare_variables(
    saved: Mapping[int, tuple[str, str]],
    tolerance: distances.Tolerance,
    ignore: Sequence[str],
    problems: list[str],
) -> tuple[list[Item], name_pairs.Matching]:
    """Compares the variables of two checkpoints for each step."""
    first, last = map(CheckpointReader, saved[max(saved)])
    matching = name_pairs.match(first.shapes, last.shapes, ignore)
    for label, only in (("A", matching.only_a), ("B", matching.only_b)):
        problems += [f"Only {label} has the variable {name}." for name in only]
    variables = []
    for ours, theirs, _ in matching.pairs:
        shapes = first.shapes[ours], last.shapes[theirs]
        dtypes = first.dtypes[ours].name, last.dtypes[theirs].name
        for what, (of_a, of_b) in {"shape": shapes, "type": dtypes}.items():
            if of_a != of_b:
                problems.append(f"{ours} has the {what} {of_a} on A, and {of_b} on B.")
        if shapes[0] == shapes[1] and dtypes[0] == dtypes[1]:
            variables.append((Item(ours, shapes[0]), theirs))
    for step, (of_a, of_b) in sorted(saved.items()):
        with CheckpointReader(of_a) as in_a, CheckpointReader(of_b) as in_b:
            for item, theirs in variables:
                shape = in_a.shapes.get(item.name)
                if shape is None or shape != in_b.shapes.get(theirs):
                    problems.append(
                        f"{item.name} has another shape after step {step}, or is missing."
                    )
                    continue
                pieces = functools.partial(_pairs, in_a, item.name, in_b, theirs)
                item.steps[step] = distances.pieces_distance(pieces, tolerance)
    return [item for item, _ in variables], matching


def _compare_metrics(
    a: Run,
    b: Run,
    tolerance: distances.Tolerance,
    ignore: Sequence[str],
    problems: list[str],
) -> list[tuple[Item, float, float]]:
    found = []
    for name in sorted({*a.evaluations, *b.evaluations}):
        ours, theirs = a.evaluations.get(name, {}), b.evaluations.get(name, {})
        _check_steps(f"evaluations in {name}", ours, theirs, problems)
        for step in sorted(ours.keys() & theirs.keys()):
            for metric in sorted({*ours[step], *theirs[step]}):
                if _matches(metric, ignore):
                    continue
                if metric not in ours[step] or metric not in theirs[step]:
                    label = "A" if metric in ours[step] else "B"
                    problems.append(f"{name} at step {step}: only {label} has the metric {metric}.")
                    continue
                one, other = ours[step][metric], theirs[step][metric]
                item = Item(f"{name} at step {step}: {metric}")
                item.steps[step] = distances.between(one, other, tolerance)
                found.append((item, one, other))
    return found


def _pairs(
    a: CheckpointReader, ours: str, b: CheckpointReader, theirs: str
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    return zip(a.pieces(ours), b.pieces(theirs), strict=True)


def verdict(comparison: Comparison, tolerance: distances.Tolerance) -> tuple[int, str]:
    """Returns the exit status and a sentence about it."""
    within = f"within {tolerance}"
    first = comparison.first
    if comparison.problems or first is not None:
        items = [item for item in comparison.items() if item.first is not None]
        parts = []
        if items:
            items.sort(key=lambda item: item.first or 0)
            some = ", ".join(item.name for item in items[:3])
            more = f" and {len(items) - 3} more" if len(items) > 3 else ""
            parts.append(
                f"{some}{more} are not the same {within}{_scale(items[0])}, from step {first} on"
            )
        if comparison.problems:
            things = counted(len(comparison.problems), "thing")
            parts.append(f"{things} that one side lacks or that do not fit, listed above")
        return DIFFERENT, f"The sides differ: {'; '.join(parts)}."
    nan = next((item for item in comparison.items() if item.nan is not None), None)
    if nan is not None:
        why = f"{nan.name} is NaN on both sides, from step {nan.nan} on."
        return CANNOT_COMPARE, f"Nothing can be said: {why}"
    return SAME, f"The sides are the same {within}."


def _scale(item: Item) -> str:
    """Returns the scale of an item's tolerance at its first difference, as text. A 1 gives ''."""
    scale = item.steps[item.first or 0].scale
    if scale == 1:
        return ""
    return f" x {scale:.2g}, the largest value of {item.name}"


def steps_as_text(steps: Sequence[int]) -> str:
    """Returns steps as text, shortened if there are many."""
    if not steps:
        return "no step"
    if len(steps) == 1:
        return f"step {steps[0]:,}"
    if len(steps) > 2 and steps == list(range(steps[0], steps[-1] + 1)):
        return f"steps {steps[0]:,} to {steps[-1]:,}"
    if len(steps) > 8:
        return f"steps {steps[0]:,}, {steps[1]:,}, ... {steps[-1]:,} ({len(steps)} of them)"
    return "steps " + ", ".join(f"{step:,}" for step in steps)
