"""Draws losses and differences of two sides."""

from collections.abc import Sequence

from estimator_emb.comparison.comparing import Comparison

_MOST_LINES = 8


def draw(comparison: Comparison, sides: Sequence[str], path: str) -> None:
    """Draws losses and differences into a new PNG file, two diagrams for each model directory."""
    from matplotlib.figure import Figure

    count = len(comparison.trainings)
    figure = Figure(figsize=(12, 0.8 + 4 * count), layout="constrained")
    lines = [f"{label}: {_short(side)}" for label, side in zip("AB", sides, strict=True)]
    figure.suptitle("\n".join(lines), fontsize=10, x=0.01, ha="left")
    axes = figure.subplots(count, 2, squeeze=False)
    for (left, right), training in zip(axes, comparison.trainings, strict=True):
        steps = [step for step, _, _ in training.losses]
        if steps:
            # B is drawn over A: a wider A stays visible where both are the same.
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
