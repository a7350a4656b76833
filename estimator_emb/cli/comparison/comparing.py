"""Compares the records of two sides, and decides whether the sides are the same.

It reports all that could make the verdict wrong unnoticed: a variable, metric, model directory or
step on one side only, values that are NaN on both sides, and a training that changes nothing.
"""

import dataclasses
import fnmatch
import functools
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from estimator_emb.checkpoints.files.checkpoint_reader import CheckpointReader
from estimator_emb.cli.comparison import CannotCompare, distances, name_pairs, noise
from estimator_emb.cli.comparison.recorded import Outputs, Run, Training
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
class OfTraining:
    """The comparison of a model directory. `losses` holds (step, loss of A, loss of B).

    `noise` names variables that only rounding noise changes on both sides.
    """

    losses: list[tuple[int, float, float]]
    loss: Item
    variables: list[Item]
    matching: name_pairs.Matching
    random: list[str]
    noise: list[str] = dataclasses.field(default_factory=list)


@dataclasses.dataclass
class Comparison:
    """The comparison of two runs. `outputs` holds (item, A's value, B's value), None for arrays."""

    trainings: list[OfTraining]
    outputs: list[tuple[Item, Any, Any]]
    problems: list[str]

    def items(self) -> list[Item]:
        of_trainings = [
            item
            for training in self.trainings
            for item in (training.loss, *training.variables)
            if item.steps
        ]
        return [*of_trainings, *(item for item, _, _ in self.outputs)]

    @property
    def first(self) -> int | None:
        """Returns the first step with any difference past the tolerance."""
        firsts = [item.first for item in self.items() if item.first is not None]
        return min(firsts, default=None)


def compare(
    a: Run, b: Run, tolerance: distances.Tolerance, ignore: Sequence[str] = ()
) -> Comparison:
    """Compares two runs, ignoring the names that match a pattern in `ignore`."""
    problems = []
    if len(a.trainings) != len(b.trainings):
        problems.append(
            f"A trains {counted(len(a.trainings), 'model directory', 'model directories')}, B "
            f"{len(b.trainings)}."
        )
    if (a.ended_after is None) != (b.ended_after is None):
        ended, went = ("A", "B") if a.ended_after else ("B", "A")
        problems.append(f"{ended} would have trained on after its last step, {went} would not.")
    several = len(a.trainings) > 1
    trainings = []
    for index, (one, other) in enumerate(zip(a.trainings, b.trainings, strict=False)):
        prefix = f"Model directory {index + 1}: " if several else ""
        found: list[str] = []
        trainings.append(_compare_training(one, other, tolerance, ignore, found))
        problems += [f"{prefix}{problem}" for problem in found]
    if not trainings:
        raise CannotCompare("no model directory was trained.")
    outputs: list[tuple[Item, Any, Any]] = []
    last = max((step for one in trainings for step, _, _ in one.losses), default=0)
    for kind, ours, theirs in (
        ("metric", a.evaluations, b.evaluations),
        ("prediction", a.predictions, b.predictions),
    ):
        outputs += _compare_outputs(kind, ours, theirs, tolerance, ignore, last, problems)
    if not any(training.variables for training in trainings):
        raise CannotCompare("no variable is left to compare.")
    return Comparison(trainings, outputs, problems)


def _compare_training(
    a: Training,
    b: Training,
    tolerance: distances.Tolerance,
    ignore: Sequence[str],
    problems: list[str],
) -> OfTraining:
    steps = sorted(a.losses.keys() & b.losses.keys())
    losses = [(step, a.losses[step], b.losses[step]) for step in steps]
    loss = Item("loss")
    for step, one, other in losses:
        loss.steps[step] = distances.between(one, other, tolerance)
    for what, ours, theirs in (("losses", a.losses, b.losses), ("checkpoints", a.saved, b.saved)):
        if ours.keys() != theirs.keys() and (what == "checkpoints" or (ours and theirs)):
            of_a, of_b = (steps_as_text(sorted(one)) for one in (ours, theirs))
            problems.append(f"A has {what} of {of_a}, B of {of_b}.")
    for name in sorted({*a.unsaved, *b.unsaved}):
        if not any(fnmatch.fnmatchcase(name, pattern) for pattern in ignore):
            problems.append(
                f"{name} is in no checkpoint, so its start could differ, and it is not compared."
            )
    saved = sorted(a.saved.keys() & b.saved.keys())
    if not saved:
        raise CannotCompare("the sides saved their variables at different steps.")
    first, last = (CheckpointReader(one.saved[saved[-1]]) for one in (a, b))
    matching = name_pairs.match(first.shapes, last.shapes, ignore)
    for label, only in (("A", matching.only_a), ("B", matching.only_b)):
        problems += [f"Only {label} has the variable {name}." for name in only]
    variables = []
    noisy: set[str] = set()
    for ours, theirs, _ in matching.pairs:
        shapes = first.shapes[ours], last.shapes[theirs]
        dtypes = first.dtypes[ours].name, last.dtypes[theirs].name
        for what, (of_a, of_b) in {"shape": shapes, "type": dtypes}.items():
            if of_a != of_b:
                problems.append(f"{ours} has the {what} {of_a} on A, and {of_b} on B.")
        if shapes[0] == shapes[1] and dtypes[0] == dtypes[1]:
            variables.append((Item(ours, shapes[0]), theirs))
    for step in saved:
        with CheckpointReader(a.saved[step]) as in_a, CheckpointReader(b.saved[step]) as in_b:
            for item, theirs in variables:
                shape = in_a.shapes.get(item.name)
                if shape is None or shape != in_b.shapes.get(theirs):
                    problems.append(
                        f"{item.name} has another shape after step {step}, or is missing."
                    )
                    continue
                pieces = functools.partial(_pairs, in_a, item.name, in_b, theirs)
                item.steps[step] = distances.pieces_distance(pieces, tolerance)
            if a.start is not None and b.start is not None:
                _allow_noise(step, variables, in_a, in_b, noisy)
    random = sorted({*a.random, *b.random})
    return OfTraining(
        losses, loss, [item for item, _ in variables], matching, random, sorted(noisy)
    )


def _allow_noise(
    step: int,
    variables: Sequence[tuple[Item, str]],
    a: CheckpointReader,
    b: CheckpointReader,
    noisy: set[str],
) -> None:
    """Accepts differences that come from rounding noise, and adds the variables to `noisy`.

    Later differences of these variables are accepted too: a bias that noise has changed gets a
    gradient that changes it back.
    """
    past = [pair for pair in variables if step in pair[0].steps and pair[0].steps[step].past]
    if any(item.name not in noisy for item, _ in past):
        (noise_a, still_a), (noise_b, still_b) = noise.groups(a), noise.groups(b)
        for item, theirs in past:
            group = noise_a.get(item.name) or still_a.get(item.name)
            moved = item.name in noise_a or theirs in noise_b
            if group and moved and (theirs in noise_b or theirs in still_b):
                noisy.update(group)
    for item, _ in past:
        if item.name in noisy:
            item.steps[step].past = 0


def _compare_outputs(
    kind: str,
    a: Sequence[Outputs],
    b: Sequence[Outputs],
    tolerance: distances.Tolerance,
    ignore: Sequence[str],
    last: int,
    problems: list[str],
) -> list[tuple[Item, Any, Any]]:
    calls = {"metric": ("evaluation",), "prediction": ("call of predict", "calls of predict")}
    if len(a) != len(b):
        problems.append(f"A has {counted(len(a), *calls[kind])}, B {len(b)}.")
    found: list[tuple[Item, Any, Any]] = []
    for ours, theirs in zip(a, b, strict=False):
        if ours.name != theirs.name:
            problems.append(f"A has {ours.name} where B has {theirs.name}.")
            continue
        for count, value in ours.counts.items():
            if value != theirs.counts.get(count):
                problems.append(
                    f"{ours.name}: {count} is {value} on A, and {theirs.counts.get(count)} on B."
                )
        step = ours.counts.get("the step")
        for name in sorted({*ours.values, *theirs.values}):
            if any(fnmatch.fnmatchcase(name, pattern) for pattern in ignore):
                continue
            if name not in ours.values or name not in theirs.values:
                label = "A" if name in ours.values else "B"
                problems.append(f"{ours.name}: only {label} has the {kind} {name}.")
                continue
            one, other = ours.values[name], theirs.values[name]
            if one.shape != other.shape:
                problems.append(
                    f"{ours.name}: {name} has the shape {one.shape} on A, and {other.shape} on B."
                )
                continue
            item = Item(f"{ours.name}: {name}" if name else ours.name, one.shape)
            item.steps[last if step is None else step] = distances.between(one, other, tolerance)
            scalar = not one.shape
            found.append((item, one[()] if scalar else None, other[()] if scalar else None))
    return found


def _pairs(
    a: CheckpointReader, ours: str, b: CheckpointReader, theirs: str
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    return zip(a.pieces(ours), b.pieces(theirs), strict=True)


def check_change(run: Run, label: str) -> None:
    """Raises CannotCompare if a side's training changes no variable except the global step."""
    for training in run.trainings:
        if training.start is None or not training.saved:
            continue
        last = training.saved[max(training.saved)]
        with CheckpointReader(training.start) as before, CheckpointReader(last) as after:
            for name in (before.shapes.keys() & after.shapes.keys()) - {"global_step"}:
                if before.shapes[name] != after.shapes[name]:
                    return
                if not all(map(np.array_equal, before.pieces(name), after.pieces(name))):
                    return
    if any(training.start is not None for training in run.trainings):
        raise CannotCompare(f"{label}: training changes no variable but the global step.")


def verdict(
    comparison: Comparison, repeated: Comparison | None, tolerance: distances.Tolerance
) -> tuple[int, str]:
    """Returns the exit status and a sentence about it. `repeated` compares side A with itself."""
    within = f"within {tolerance}"

    def unknown(why: str) -> tuple[int, str]:
        return CANNOT_COMPARE, f"Nothing can be said: {why}"

    chance = None
    if repeated is not None:
        if repeated.problems:
            return unknown(f"side A differs from itself. {repeated.problems[0]}")
        chance = repeated.first
    first = comparison.first
    differs = comparison.problems or (first is not None and (chance is None or first < chance))
    if differs:
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
    if first is not None:
        return unknown(
            f"run twice, side A differs from itself from step {chance} on, and the sides from step "
            f"{first} on. Seed what is random, or give larger tolerances."
        )
    if chance is not None:
        return unknown(f"run twice, side A differs from itself from step {chance} on.")
    nan = next((item for item in comparison.items() if item.nan is not None), None)
    if nan is not None:
        return unknown(f"{nan.name} is NaN on both sides, from step {nan.nan} on.")
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
