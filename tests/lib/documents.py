"""Extracts the code of README and docs pages, and runs it.

    python tests/lib/documents.py FOLDER PAGE...

runs the Python code of each page in its own namespace, in FOLDER, and prints how long it took.
"""

import os
import pathlib
import re
import runpy
import sys
import time
import traceback

REPOSITORY = pathlib.Path(__file__).parents[2]
PAGES = sorted(
    str(path.relative_to(REPOSITORY))
    for path in [REPOSITORY / "README.md", *(REPOSITORY / "docs").rglob("*.md")]
)
LIBRARIES = "docs/libraries/"
"""Pages that need optional packages. tests/libraries/ runs them."""

_FENCE = re.compile(
    r"^(?P<indent> *)```(?P<language>\w*)\n(?P<code>.*?)^(?P=indent)```$", re.M | re.S
)

# Code that runs before the code of a page about the reader's own program.
BEFORE = {
    "docs/api/checkpoint.md": f"import os; os.symlink({str(REPOSITORY / 'tests')!r}, 'tests')",
    "docs/tensorflow2.md": f"import os; os.symlink({str(REPOSITORY / 'tests')!r}, 'tests')",
    "docs/preflight.md": """
import harness, estimator_emb as ee, tensorflow as tf
def model_fn(features, labels, mode, params):
    w = tf.compat.v1.get_variable("w", [])
    return harness.minimized(mode, tf.reduce_mean(tf.square(features["x"] * w - labels)), 0.1)
def train_input_fn(params):
    batch = {"x": tf.zeros([8])}, tf.zeros([8])
    dataset = tf.data.Dataset.from_tensor_slices(batch).repeat()
    return dataset.batch(params["batch_size"], drop_remainder=True)
config = ee.RunConfig(tpu_config=ee.TPUConfig(device="host"))
estimator = ee.TPUEstimator(model_fn, config=config, train_batch_size=16)
""",
}


def blocks(page):
    """Returns (language, code, line) of each block of a page."""
    text = (REPOSITORY / page).read_text()
    found = []
    for match in _FENCE.finditer(text):
        indent = len(match["indent"])
        code = "".join(line[indent:] or "\n" for line in match["code"].splitlines(keepends=True))
        found.append((match["language"], code, text.count("\n", 0, match.start("code")) + 1))
    return found


def program_of(page):
    """Returns the Python code of a page, on its original lines, or '' without any."""
    lines = []
    for language, code, line in blocks(page):
        if language == "python":
            lines += [""] * (line - 1 - len(lines))
            lines += code.rstrip("\n").split("\n")
    return "\n".join([*lines, ""]) if lines else ""


def main(folder, pages):
    """Runs the Python code of each page in its own folder. Returns 1 if a page fails."""
    import estimator_emb  # Selects Keras 2 before a page uses TensorFlow.

    for page in pages:
        started = time.monotonic()
        work = pathlib.Path(folder, page)
        work.mkdir(parents=True)
        os.chdir(work)
        program = work / "page.py"
        program.write_text(program_of(page))
        names = {}
        exec(BEFORE.get(page, ""), names)
        try:
            runpy.run_path(str(program), names, run_name="__main__")
        except BaseException:
            traceback.print_exc(file=sys.stdout)
            print(f"{page} failed.")
            return 1
        estimator_emb.uninstall()
        print(f"{page}: {time.monotonic() - started:.1f} s", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2:]))
