"""Compares the records of two sides, and prints and draws the report of the comparison."""

import argparse
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from estimator_emb.cli.comparison import comparing, distances, name_pairs, recorded
from estimator_emb.cli.comparison.comparing import Comparison, Item, OfTraining, steps_as_text
from estimator_emb.reporting.text_columns import aligned, escaped

_MOST_LINES = 8
_MOST_LOSSES = 8
_MOST_ROWS = 25


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
        runs = [recorded.run_of_model_dir(side.model_dir) for side in sides]
    else:
        runs = [recorded.run_of_events(events) for events in (a, b)]
        for run, label in zip(runs, "AB", strict=True):
            comparing.check_change(run, label)
    comparison = comparing.compare(runs[0], runs[1], tolerance, options.ignore)
    differs = bool(comparison.problems) or comparison.first is not None
    repeated = None
    if repeat is not None and (options.repeat == "yes" or (options.repeat == "auto" and differs)):
        again = recorded.run_of_events(repeat())
        repeated = comparing.compare(runs[0], again, tolerance, options.ignore)
    status, line = comparing.verdict(comparison, repeated, tolerance)
    print(_head(options, sides, runs))
    print(body(comparison, repeated))
    if options.plot is not None:
        draw(comparison, [side.described() for side in sides], options.plot)
        print(f"Plot: {options.plot}")
    print(escaped(line), flush=True)
    return status


def _head(options: argparse.Namespace, sides: Sequence[Any], runs: Sequence[recorded.Run]) -> str:
    lines = []
    for side, run in zip(sides, runs, strict=True):
        lines.append(f"{side.label}: {side.described()}")
        if side.model_dir is None:
            lines.append(f"   {run.versions}")
    if sides[0].model_dir is None:
        start = "the initial values of A"
        if options.start is not None:
            start = f"the values of {options.start}"
        lines.append(f"Both start from {start}, and from the same seeds.")
        if runs[0].ended_after is not None:
            lines.append(
                f"The program would go on training, but was ended after {runs[0].ended_after:,} "
                "steps: what it does later is not compared."
            )
    return "\n".join(lines)


def body(comparison: Comparison, repeated: Comparison | None) -> str:
    """Returns the body of the report: the compared items and their differences."""
    lines = []
    for index, training in enumerate(comparison.trainings):
        if len(comparison.trainings) > 1:
            lines.append(f"\nModel directory {index + 1}")
        lines += [*_losses(training), *_variables(training), *_names(training.matching)]
    if comparison.outputs:
        lines += ["", "Metrics and predictions"]
        rows: list[tuple[str, ...]] = [("", "A", "B", "largest difference", "relative", "")]
        for item, a, b in comparison.outputs:
            _, largest = item.largest
            past = "past the tolerance" if largest.past else ""
            past = "NaN on both sides" if largest.nan else past
            values = [_shape(item.shape), ""] if item.shape else [_value(a), _value(b)]
            rows.append(
                (item.name, *values, f"{largest.absolute:.2g}", f"{largest.relative:.2g}", past)
            )
        lines += _table(rows)
    if comparison.problems:
        lines += ["", "What one side lacks, or what does not fit"]
        lines += [f"  {escaped(problem)}" for problem in comparison.problems]
    if repeated is not None:
        apart = max((item.largest[1].absolute for item in repeated.items()), default=0.0)
        first = repeated.first
        when = "within the tolerance" if first is None else f"past the tolerance from step {first}"
        lines += ["", f"A, run twice, is up to {apart:.2g} apart from itself: {when}."]
    noise = sorted({one for training in comparison.trainings for one in training.noise})
    if noise:
        lines += [
            "",
            f"Only rounding noise, which an Adam makes as large as any step, moves "
            f"{', '.join(map(escaped, noise))} on both sides: these differences do not count.",
        ]
    random = sorted({one for training in comparison.trainings for one in training.random})
    if random and (comparison.first is not None or repeated is not None):
        lines += [
            "",
            f"A step draws random numbers: {', '.join(random)}. They differ between versions of "
            "TensorFlow and numbers of cores, and no seed makes them equal.",
        ]
    return "\n".join([*lines, ""])


def _losses(training: OfTraining) -> list[str]:
    lines = []
    if training.losses:
        step, largest = training.loss.largest
        lines += ["", f"Losses of {steps_as_text([one for one, _, _ in training.losses])}"]
        rows = [("step", "A", "B", "difference")]
        shown = training.losses
        if len(shown) > _MOST_LOSSES:
            wanted = {*(one[0] for one in (*shown[:3], *shown[-3:])), step}
            shown = [one for one in shown if one[0] in wanted]
        rows += [(f"{at:,}", f"{a:.7g}", f"{b:.7g}", f"{abs(a - b):.2g}") for at, a, b in shown]
        lines += _table(rows, right=True)
        first = training.loss.first
        past = "" if first is None else f"; past the tolerance from step {first:,} on"
        lines.append(f"  The largest difference is {largest.absolute:.2g}, at step {step:,}{past}.")
    return lines


def _variables(training: OfTraining) -> list[str]:
    steps = sorted({step for item in training.variables for step in item.steps})
    lines = ["", f"Variables after {steps_as_text(steps)}"]
    rows = [("variable", "shape", "largest difference", "relative", "at step", "past tolerance")]
    items = sorted(training.variables, key=_order)
    for item in items[:_MOST_ROWS]:
        step, largest = item.largest
        past = "" if item.first is None else f"from step {item.first:,}"
        if item.nan is not None:
            past = f"NaN on both sides from step {item.nan:,}"
        at = f"{step:,}" if largest.absolute else ""
        cells = (f"{largest.absolute:.2g}", f"{item.relative:.2g}", at, past)
        rows.append((item.name, _shape(item.shape), *cells))
    lines += _table(rows)
    rest = items[_MOST_ROWS:]
    if rest:
        count = sum(item.first is not None for item in rest)
        largest_of_rest = max(item.largest[1].absolute for item in rest)
        lines.append(
            f"  and {len(rest):,} more, at most {largest_of_rest:.2g} apart, "
            f"{count:,} of them past the tolerance"
        )
    return lines


def _order(item: Item) -> tuple[Any, ...]:
    first = item.first
    return first is None, first or 0, -item.largest[1].absolute, item.name


def _names(matching: name_pairs.Matching) -> list[str]:
    lines = []
    ruled = [pair for pair in matching.pairs if pair[2]]
    if ruled:
        lines += ["", "Different names of the same variable"]
        lines += [f"  {escaped(a)} on A is {escaped(b)} on B" for a, b, _ in ruled]
        rules = sorted({rule for _, _, found in ruled for rule in found.split("+")})
        lines += [f"  Rule: {name_pairs.RULES[rule]}." for rule in rules]
    if matching.left_out:
        lines += ["", f"Left out: {escaped(', '.join(matching.left_out))}"]
        lines.append(f"  Rule: {name_pairs.RULES['beta']}.")
    if matching.ignored:
        lines += ["", f"Ignored, as asked: {escaped(', '.join(matching.ignored))}"]
    return lines


def _table(rows: Sequence[Sequence[str]], right: bool = False) -> list[str]:
    return [f"  {line}" for line in aligned(rows, right).split("\n")]


def _value(value: Any) -> str:
    try:
        return f"{float(value):.7g}"
    except (TypeError, ValueError):
        return str(value)[:40]


def _shape(shape: Sequence[int]) -> str:
    return " x ".join(f"{size:,}" for size in shape) or "scalar"


def draw(comparison: Comparison, sides: Sequence[str], path: str) -> None:
    """Draws losses and differences into a new PNG file, two plots for each model directory."""
    from matplotlib.figure import Figure

    count = len(comparison.trainings)
    figure = Figure(figsize=(12, 0.8 + 4 * count), layout="constrained")
    lines = [f"{label}: {_short(side)}" for label, side in zip("AB", sides, strict=True)]
    figure.suptitle("\n".join(lines), fontsize=10, x=0.01, ha="left")
    axes = figure.subplots(count, 2, squeeze=False)
    for (left, right), training in zip(axes, comparison.trainings, strict=True):
        steps = [step for step, _, _ in training.losses]
        if steps:
            # A has a wider line, so that it stays visible under B if both are equal.
            left.plot(steps, [a for _, a, _ in training.losses], "C0-", lw=5, alpha=0.4, label="A")
            left.plot(steps, [b for _, _, b in training.losses], "C1.-", lw=1.2, label="B")
            left.legend(frameon=False)
        left.set(title="Loss", xlabel="step")
        items = [("loss", training.loss)] if steps else []
        variables = sorted(training.variables, key=lambda item: -item.largest[1].absolute)
        items += [(item.name, item) for item in variables[:_MOST_LINES]]
        smallest = 1e-12
        for name, item in items:
            of_item = sorted(item.steps.items())
            right.plot(
                [step for step, _ in of_item],
                [max(one.absolute, smallest) for _, one in of_item],
                "k.-" if name == "loss" else ".-",
                lw=1.8 if name == "loss" else 1.0,
                label=_short(name, 44),
            )
        right.set_yscale("log")
        right.set(title="Largest |A - B| (0 is drawn as 1e-12)", xlabel="step")
        right.legend(frameon=False, fontsize=8, loc="center left", bbox_to_anchor=(1.0, 0.5))
        for one in (left, right):
            one.spines[["top", "right"]].set_visible(False)
            one.xaxis.get_major_locator().set_params(integer=True)
    figure.savefig(path, dpi=110)


def _short(text: str, length: int = 110) -> str:
    return text if len(text) <= length else f"{text[: length // 2]}...{text[-length // 2 + 3 :]}"
