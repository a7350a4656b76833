"""Draws the pictures of the pages as SVG files in this folder: python docs/pictures.py."""

import pathlib
import re
from html import escape

GRAY, RED, GREEN, BLUE, YELLOW = "#f1f3f4", "#fce8e6", "#e6f4ea", "#e8f0fe", "#fef7e0"
# (setting of the program, color, text: where the model runs and, in bold, where its tables are)
PLACES = (
    ("use_tpu=False", BLUE, ["the model on this CPU", "", "*tables in this process"]),
    (
        "the same, and TF_CONFIG",
        BLUE,
        ["the model on each worker", "", "*tables divided over its", "*parameter servers"],
    ),
    (
        'device="emulate"',
        BLUE,
        [
            "the model on the cores",
            "of an emulated TPU",
            "",
            "*tables in this process,",
            "*once for all cores",
        ],
    ),
    (
        "use_tpu=True",
        YELLOW,
        [
            "the model on a TPU v2 to v4",
            "(untested)",
            "",
            "*tables in its embedding",
            "*hardware",
        ],
    ),
)


def box(x, y, width, height, color, lines):
    """Returns a rectangle with centred lines. A leading "*" makes a line bold, "`" code."""
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


def arrow(path, begin=""):
    """Returns a line along a path, with an arrowhead at its end, or at both ends if `begin`."""
    start = ' marker-start="url(#tip)"' if begin else ""
    return (
        f'<path d="{path}" stroke="#444" stroke-width="1.5" fill="none"{start}'
        ' marker-end="url(#tip)"/>'
    )


def label(x, y, text, anchor="middle"):
    """Returns a line of text."""
    where = f'x="{x}" y="{y}" text-anchor="{anchor}"'
    return f'<text {where} fill="#444">{escape(text, quote=False)}</text>'


def cylinder(x, y, width, height, lines):
    """Returns a cylinder (a store of tables) with centred lines."""
    edge = f"a {width / 2:g} 12 0 0"
    return [
        f'<path d="M {x} {y + 12} {edge} 1 {width} 0 v {height - 24} {edge} 1 -{width} 0 z"'
        f' fill="{YELLOW}" stroke="#444" stroke-width="1.5"/>',
        f'<path d="M {x} {y + 12} {edge} 0 {width} 0" fill="none" stroke="#444"/>',
        *box(x, y + 16, width, height - 24, "none", lines)[1:],
    ]


def picture(width, height, title, *parts):
    """Returns an SVG file as text."""
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}"'
        ' font-family="sans-serif" font-size="13" role="img">',
        f"<title>{escape(title, quote=False)}</title>",
        '<defs><marker id="tip" viewBox="0 0 10 10" refX="9" refY="5" markerWidth="7"'
        ' markerHeight="7" orient="auto-start-reverse"><path d="M 0 0 L 10 5 L 0 10 z"'
        ' fill="#444"/></marker></defs>',
        f'<rect width="{width}" height="{height}" fill="#ffffff"/>',
        *parts,
        "</svg>",
    ]
    return "\n".join(lines) + "\n"


def overview():
    """Ways to run a program of 2019 today, and where its tables are."""
    parts = [
        *box(
            20,
            20,
            300,
            126,
            GRAY,
            [
                "*A program of 2019",
                "`tf.estimator.DNNClassifier",
                "`tf.estimator.tpu.TPUEstimator",
                "`EmbeddingConfigSpec",
                "`tf.contrib.tpu",
            ],
        ),
        *box(
            500,
            20,
            380,
            54,
            RED,
            [
                "*TensorFlow 2.16 and later, alone",
                "`module 'tensorflow' has no attribute 'estimator'",
            ],
        ),
        *box(
            500,
            92,
            380,
            54,
            GREEN,
            [
                "*with estimator_emb, TensorFlow 2.15.1 to 2.22",
                "estimator-emb run, migrate, or install()",
            ],
        ),
        arrow("M 320 47 H 497"),
        arrow("M 320 119 H 497"),
        label(20, 174, "Where the program says that it runs:", "start"),
        arrow("M 690 146 V 182"),
        '<path d="M 122 182 H 778" stroke="#444" stroke-width="1.5"/>',
    ]
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
    parts += box(
        20,
        424,
        861,
        56,
        GREEN,
        [
            "*One kind of checkpoint",
            "the old names, rows in the order of ids: train in one place, go on in another",
        ],
    )
    return picture(900, 500, str(overview.__doc__), *parts)


def step():
    """The flow of a training step."""
    boxes = (
        (20, GREEN, ["*1. ids", "one form for every feature; bad ones are an error"]),
        (105, GREEN, ["*2. lookup", "each table's distinct rows, combined to activations"]),
        (190, BLUE, ["*3. model_fn", "features[key] is the activation; returns the loss"]),
        (275, BLUE, ["*4. the program's optimizer", "gradients; trains the dense variables"]),
        (
            380,
            GREEN,
            [
                "*5. update",
                "gradients of each row summed and clipped;",
                "the table's own optimizer",
            ],
        ),
    )
    parts = [
        *box(20, 20, 150, 60, BLUE, ["*input_fn", "features, labels"]),
        *cylinder(
            660, 75, 150, 320, ["*tables", "weights [rows, dim]", "slots [rows, dim]", "float32"]
        ),
        arrow("M 170 50 H 198"),
        arrow("M 658 135 H 602"),
        arrow("M 600 415 H 735 V 398"),
        label(630, 126, "rows"),
        label(690, 434, "new rows, slots"),
        label(490, 362, "activations' gradients"),
        *box(20, 400, 14, 14, BLUE, []),
        label(40, 412, "the program", "start"),
        *box(20, 424, 14, 14, GREEN, []),
        label(40, 436, "estimator_emb", "start"),
    ]
    for number, (y, color, lines) in enumerate(boxes):
        height = 70 if number == 4 else 60
        parts += box(200, y, 400, height, color, lines)
        if number < 4:
            parts.append(arrow(f"M 400 {y + 60} V {boxes[number + 1][0] - 2}"))
    return picture(830, 470, str(step.__doc__), *parts)


def emulation():
    """An emulated TPU of two cores: its copies per core, and its shared parts."""
    parts = [
        *box(20, 30, 170, 60, BLUE, ["*input_fn", "the batch of all cores"]),
        arrow("M 190 60 H 248"),
        *box(250, 30, 400, 60, GREEN, ["*ids and lookup", "once, for the whole batch"]),
        *cylinder(710, 110, 150, 180, ["*tables", "and their slots,", "once"]),
        arrow("M 785 108 V 60 H 652"),
        *box(250, 330, 400, 60, GREEN, ["*update", "once, with the gradients of all cores"]),
        arrow("M 650 360 H 785 V 292"),
        label(700, 52, "rows"),
    ]
    for core in (0, 1):
        x = 250 + 210 * core
        parts += [
            arrow(f"M {x + 95} 90 V 133"),
            *box(
                x,
                135,
                190,
                150,
                BLUE,
                [
                    f"*core {core}",
                    "model_fn on its part,",
                    "its own variables:",
                    "the same on all cores",
                    "while gradients are summed",
                ],
            ),
            arrow(f"M {x + 95} 285 V 328"),
        ]
    parts += [
        arrow("M 440 210 H 460", "both"),
        label(20, 192, "CrossShardOptimizer and", "start"),
        label(20, 210, "cross_replica_sum", "start"),
        label(20, 228, "sum over the cores", "start"),
        arrow("M 190 210 H 248"),
        *box(20, 340, 14, 14, BLUE, []),
        label(40, 352, "the program, a copy a core", "start"),
        *box(20, 364, 14, 14, GREEN, []),
        label(40, 376, "estimator_emb, once", "start"),
    ]
    return picture(880, 420, str(emulation.__doc__), *parts)


def cluster():
    """Start of a cluster with a chief, a worker, two parameter servers and an evaluator."""
    parts = [
        *box(
            20,
            20,
            840,
            48,
            GRAY,
            [
                "*One program, started five times",
                "with the same flags, and another task in TF_CONFIG",
            ],
        ),
        *box(
            20,
            300,
            620,
            56,
            GREEN,
            ["*model_dir, which all see", "the chief saves; a resumed cluster goes on from here"],
        ),
    ]
    tasks = (
        (20, BLUE, ["*chief", "asks the servers,", "trains, saves"]),
        (180, BLUE, ["*worker 0", "asks the servers,", "trains"]),
        (340, YELLOW, ["*server 0", "waits;", "ids 0 to V/2"]),
        (500, YELLOW, ["*server 1", "waits;", "ids V/2 to V"]),
        (700, BLUE, ["*evaluator", "waits for", "a new checkpoint"]),
    )
    for x, color, lines in tasks:
        width = 160 if x == 700 else 140
        parts += [arrow(f"M {x + width / 2:g} 68 V 118"), *box(x, 120, width, 70, color, lines)]
    parts += [
        '<path d="M 90 190 V 240 H 570 M 250 190 V 240" stroke="#444" stroke-width="1.5"'
        ' fill="none"/>',
        arrow("M 410 240 V 192"),
        arrow("M 570 240 V 192"),
        label(330, 258, "each step: a message to each server, for rows and for gradients"),
        arrow("M 60 190 V 298"),
        label(66, 284, "checkpoints", "start"),
        arrow("M 640 328 H 780 V 192"),
    ]
    return picture(880, 376, str(cluster.__doc__), *parts)


def benchmarks():
    """CPU time of the embedding work of a step on TensorFlow 2.21.0, 23 November 2026."""
    page = pathlib.Path(__file__).with_name("benchmarks.md").read_text()
    (table,) = re.findall(r"^\| native kernels, cpu ms .*?(?=^\| wall)", page, re.M | re.S)
    kernels, *peers = [
        [cell.strip() for cell in row.strip("|").split("|")] for row in table.splitlines()
    ]
    parts = [label(20, 24, str(benchmarks.__doc__).removesuffix("."), "start")]
    for number, (column, ids) in enumerate(((3, "1 id"), (4, "20 ids"))):
        x = 20 + 440 * number
        title = f"{ids} per sample, as multiples of the native kernels' {kernels[column]} ms"
        parts.append(label(x, 54, title, "start"))
        bars = [("native kernels", 1.0)]
        bars += [(row[0], float(row[column].split(",")[0])) for row in peers]
        for line, (name, multiple) in enumerate(sorted(bars, key=lambda bar: bar[1])):
            y = 66 + 26 * line
            width = 240 * multiple / max(multiple for _, multiple in bars)
            color = GREEN if name == "native kernels" else GRAY
            parts += [
                label(x + 110, y + 15, name, "end"),
                f'<rect x="{x + 118}" y="{y}" width="{width:.1f}" height="20" fill="{color}"'
                ' stroke="#444"/>',
                label(x + 126 + round(width), y + 15, f"{multiple:g}", "start"),
            ]
    return picture(900, 290, str(benchmarks.__doc__), *parts)


PICTURES = (overview, step, emulation, cluster, benchmarks)

if __name__ == "__main__":
    for one in PICTURES:
        pathlib.Path(__file__).with_name(f"{one.__name__}.svg").write_text(one())
