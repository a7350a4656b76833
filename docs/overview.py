# SPDX-License-Identifier: Apache-2.0
"""Draws overview.svg: what a program of 2019 meets today, and where its tables live.

python docs/overview.py docs/overview.svg
"""

import pathlib
import sys
from html import escape

WIDTH, HEIGHT = 900, 500
GRAY, RED, GREEN, BLUE, YELLOW = "#f1f3f4", "#fce8e6", "#e6f4ea", "#e8f0fe", "#fef7e0"
# What the program says; where its model runs then, and, in bold, where its tables live.
PLACES = (
    ("use_tpu=False", BLUE, ["the model on this CPU", "", "*tables in this process"]),
    (
        "the same, and TF_CONFIG",
        BLUE,
        ["the model on each worker", "", "*tables divided over its", "*parameter servers"],
    ),
    (
        'use_tpu=True, device="host"',
        BLUE,
        ["the model on the cores", "of an emulated TPU", "", "*tables in this process,",
         "*once for all cores"],
    ),
    (
        "use_tpu=True",
        YELLOW,
        ["the model on a TPU v2 to v4", "(nobody has run that)", "", "*tables in its embedding",
         "*hardware"],
    ),
)  # fmt: skip


def box(x, y, width, height, color, lines):
    """Returns a rectangle with centred lines; one that begins with "*" is bold, with "`" code."""
    parts = [
        f'<rect x="{x}" y="{y}" width="{width}" height="{height}" rx="6" fill="{color}"'
        f' stroke="#444" stroke-width="1.5"/>'
    ]
    top = y + height / 2 - 9 * len(lines) + 14
    for number, line in enumerate(lines):
        style = {"*": ' font-weight="bold"', "`": ' font-family="monospace" font-size="12"'}
        parts.append(
            f'<text x="{x + width / 2:g}" y="{top + 18 * number:g}" text-anchor="middle"'
            f"{style.get(line[:1], '')}>{escape(line.lstrip('*`'), quote=False)}</text>"
        )
    return parts


def arrow(path):
    """Returns a line along a path, with a tip."""
    return f'<path d="{path}" stroke="#444" stroke-width="1.5" fill="none" marker-end="url(#tip)"/>'


def drawing() -> str:
    """Returns the text of the picture."""
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}"'
        ' font-family="sans-serif" font-size="13" role="img">',
        "<title>What a program of 2019 meets today, and where its tables live</title>",
        '<defs><marker id="tip" viewBox="0 0 10 10" refX="9" refY="5" markerWidth="7"'
        ' markerHeight="7" orient="auto"><path d="M 0 0 L 10 5 L 0 10 z" fill="#444"/>'
        "</marker></defs>",
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="#ffffff"/>',
        *box(20, 20, 300, 126, GRAY, ["*A program of 2019", "`tf.estimator.DNNClassifier",
             "`tf.estimator.tpu.TPUEstimator", "`EmbeddingConfigSpec", "`tf.contrib.tpu"]),
        *box(500, 20, 380, 54, RED, ["*TensorFlow 2.16 and later, alone",
             "`module 'tensorflow' has no attribute 'estimator'"]),
        *box(500, 92, 380, 54, GREEN, ["*with estimator_emb, TensorFlow 2.15.1 to 2.21",
             "estimator-emb run, migrate, or install()"]),
        arrow("M 320 47 H 497"),
        arrow("M 320 119 H 497"),
        '<text x="20" y="174" fill="#444">Where the program says that it runs:</text>',
        arrow("M 690 146 V 182"),
        '<path d="M 122 182 H 778" stroke="#444" stroke-width="1.5"/>',
    ]  # fmt: skip
    for number, (says, color, lines) in enumerate(PLACES):
        x = 20 + 219 * number
        middle = x + 102
        parts += [
            arrow(f"M {middle} 182 V 222"),
            *box(x, 224, 204, 34, GRAY, [f"`{says}"]),
            arrow(f"M {middle} 258 V 280"),
            *box(x, 282, 204, 108, color, lines),
            arrow(f"M {middle} 390 V 422"),
        ]
    parts += [
        *box(20, 424, 861, 56, GREEN, ["*One kind of checkpoint",
             "the old names, rows in the order of ids: train in one place, go on in another"]),
        "</svg>",
    ]  # fmt: skip
    return "\n".join(parts) + "\n"


if __name__ == "__main__":
    pathlib.Path(sys.argv[1]).write_text(drawing())
