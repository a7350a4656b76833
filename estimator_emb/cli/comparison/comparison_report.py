"""Compares two finished runs, and prints and draws the report of the comparison."""

import argparse
from collections.abc import Sequence
from typing import Any

from estimator_emb.cli.comparison import comparing, distances, finished, name_pairs
from estimator_emb.cli.comparison.comparing import Comparison, Item, steps_as_text
from estimator_emb.reporting.text_columns import aligned, escaped

_MOST_LINES = 8
_MOST_LOSSES = 8
_MOST_ROWS = 25


def report(options: argparse.Namespace) -> int:
    """Compares two model directories, prints the report, and returns the exit status."""
    tolerance = distances.Tolerance(options.rtol, options.atol)
    runs = [finished.run_of(path) for path in (options.a, options.b)]
    comparison = comparing.compare(runs[0], runs[1], tolerance, options.ignore)
    status, line = comparing.verdict(comparison, tolerance)
    for label, run in zip("AB", runs, strict=True):
        print(f"{label}: {escaped(run.path)}")
    print(body(comparison))
    if options.plot is not None:
        draw(comparison, [run.path for run in runs], options.plot)
        print(f"Plot: {escaped(options.plot)}")
    print(escaped(line), flush=True)
    return status


def body(comparison: Comparison) -> str:
    """Returns the body of the report: the compared items and their differences."""
    lines = [*_losses(comparison), *_variables(comparison), *_names(comparison.matching)]
    if comparison.metrics:
        lines += ["", "Metrics"]
        rows: list[tuple[str, ...]] = [("", "A", "B", "largest difference", "relative", "")]
        for item, a, b in comparison.metrics:
            _, largest = item.largest
            past = "past the tolerance" if largest.past else ""
            past = "NaN on both sides" if largest.nan else past
            apart = f"{largest.absolute:.2g}", f"{largest.relative:.2g}"
            rows.append((item.name, f"{a:.7g}", f"{b:.7g}", *apart, past))
        lines += _table(rows)
    if comparison.problems:
        lines += ["", "What one side lacks, or what does not fit"]
        lines += [f"  {escaped(problem)}" for problem in comparison.problems]
    return "\n".join([*lines, ""])


def _losses(comparison: Comparison) -> list[str]:
    lines = []
    if comparison.losses:
        step, largest = comparison.loss.largest
        lines += ["", f"Losses of {steps_as_text([one for one, _, _ in comparison.losses])}"]
        rows = [("step", "A", "B", "difference")]
        shown = comparison.losses
        if len(shown) > _MOST_LOSSES:
            wanted = {*(one[0] for one in (*shown[:3], *shown[-3:])), step}
            shown = [one for one in shown if one[0] in wanted]
        rows += [(f"{at:,}", f"{a:.7g}", f"{b:.7g}", f"{abs(a - b):.2g}") for at, a, b in shown]
        lines += _table(rows, right=True)
        first = comparison.loss.first
        past = "" if first is None else f"; past the tolerance from step {first:,} on"
        lines.append(f"  The largest difference is {largest.absolute:.2g}, at step {step:,}{past}.")
    return lines


def _variables(comparison: Comparison) -> list[str]:
    steps = sorted({step for item in comparison.variables for step in item.steps})
    lines = ["", f"Variables after {steps_as_text(steps)}"]
    rows = [("variable", "shape", "largest difference", "relative", "at step", "past tolerance")]
    items = sorted(comparison.variables, key=_order)
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


def _shape(shape: Sequence[int]) -> str:
    return " x ".join(f"{size:,}" for size in shape) or "scalar"


def draw(comparison: Comparison, sides: Sequence[str], path: str) -> None:
    """Draws losses and differences into a new PNG file."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(12, 4.8), layout="constrained")
    lines = [f"{label}: {_short(side)}" for label, side in zip("AB", sides, strict=True)]
    figure.suptitle("\n".join(lines), fontsize=10, x=0.01, ha="left")
    left, right = figure.subplots(1, 2)
    steps = [step for step, _, _ in comparison.losses]
    if steps:
        # A has a wider line, so that it stays visible under B if both are equal.
        left.plot(steps, [a for _, a, _ in comparison.losses], "C0-", lw=5, alpha=0.4, label="A")
        left.plot(steps, [b for _, _, b in comparison.losses], "C1.-", lw=1.2, label="B")
        left.legend(frameon=False)
    left.set(title="Loss", xlabel="step")
    items = [("loss", comparison.loss)] if steps else []
    variables = sorted(comparison.variables, key=lambda item: -item.largest[1].absolute)
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
