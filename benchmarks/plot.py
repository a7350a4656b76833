"""Draws the figures of `embedding_step.py`: CPU milliseconds of a step, by workload and peer.

    python benchmarks/plot.py FIGURES.svg FIGURES.json [FIGURES.json ...]

Each file gets a row of panels, and each workload gets a panel in it. Needs matplotlib.
"""

import json
import pathlib
import sys


def draw(file: str, measured: list[dict], workloads: tuple[str, ...] = ("standard", "20 ids")):
    """Draws the figures.

    Args:
      file: the file to write. Its extension is its format.
      measured: figures of one TensorFlow version each.
      workloads: names of the workloads to draw, if they were measured.
    """
    import matplotlib

    matplotlib.use("agg")
    matplotlib.rcParams["svg.hashsalt"] = "estimator_emb"
    from matplotlib import pyplot

    shown = [
        name for name in workloads if any(name in figures["workloads"] for figures in measured)
    ]
    figure, panels = pyplot.subplots(
        len(measured), len(shown), figsize=(5 * len(shown), 3 * len(measured)), squeeze=False
    )
    for row, figures in zip(panels, measured, strict=True):
        for panel, name in zip(row, shown, strict=True):
            if name not in figures["workloads"]:
                panel.axis("off")
                continue
            work = figures["workloads"][name]
            times = {peer: at["cpu"] for peer, at in work["peers"].items() if "cpu" in at}
            colors = ["tab:orange" if peer.startswith("ours") else "tab:gray" for peer in times]
            bars = panel.barh(list(times), list(times.values()), color=colors)
            panel.bar_label(bars, fmt="%.1f", padding=2, fontsize=8)
            panel.invert_yaxis()
            panel.margins(x=0.15)
            panel.spines[["top", "right"]].set_visible(False)
            panel.tick_params(labelsize=8)
            panel.set_title(
                f"TensorFlow {figures['tensorflow']}, {name}: {work['tables']} tables of "
                f"{work['vocabulary']:,} x {work['dimension']}",
                fontsize=8,
            )
            panel.set_xlabel("CPU ms of a step's embedding work", fontsize=8)
    figure.tight_layout()
    figure.savefig(file, metadata={"Date": None} if file.endswith(".svg") else None)


if __name__ == "__main__":
    draw(sys.argv[1], [json.loads(pathlib.Path(name).read_text()) for name in sys.argv[2:]])
