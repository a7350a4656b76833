"""Writes the table of tested versions into docs/tested.md: `python docs/tested.py`.

The versions come from docs/constraints, which `.ci/run --all` writes.
"""

import pathlib
import re
from collections.abc import Iterator

PAGE = pathlib.Path(__file__).with_suffix(".md")
BEGIN = "<!-- docs/tested.py writes the rest of this page. -->\n"
PACKAGES = ("tensorflow", "tf_keras", "keras", "numpy", "protobuf", "pandas", "jax")


def _row(file: pathlib.Path) -> list[str]:
    first, *lines = file.read_text().splitlines()
    versions = dict(line.split("==") for line in lines if "==" in line)
    python = first.removeprefix("# Python ")
    link = f"[{file.stem}]({file.relative_to(PAGE.parent)})"
    return [link, python, *(versions.get(name, "") for name in PACKAGES)]


def _numbers(version: str) -> list[int]:
    return [int(number) for number in re.findall(r"\d+", version)]


def _lines() -> Iterator[str]:
    rows = [_row(file) for file in sorted(PAGE.parent.glob("constraints/*.txt"))]
    head = ["constraints", "Python", *PACKAGES]
    _, *versions = zip(*rows, strict=True)
    newest = ["the newest", *(max(column, key=_numbers) for column in versions)]
    for row in (head, ["---"] * len(head), *rows, newest):
        yield f"| {' | '.join(row)} |\n"


def text() -> str:
    """Returns the page, its table written anew."""
    return "".join([PAGE.read_text().partition(BEGIN)[0], BEGIN, "\n", *_lines()])


if __name__ == "__main__":
    PAGE.write_text(text())
