"""Writes the list at the end of legacy_names.md: python docs/legacy_names.py."""

import itertools
import pathlib

from estimator_emb.cli.migration import explained

PAGE = pathlib.Path(__file__).with_suffix(".md")
BEGIN = "<!-- docs/legacy_names.py writes the rest of this page. -->\n"
WITHOUT_NAMES = "Other modules of tf.contrib"


def _section(name: str) -> str:
    """Returns the heading for a name: its module, or `WITHOUT_NAMES` for a module without names."""
    if not name.startswith("tf.contrib."):
        return name.rpartition(".")[0]
    module = ".".join(name.split(".")[:3])
    return module if len(explained.lines(module)) > 1 else WITHOUT_NAMES


def _place(name: str) -> tuple[bool, bool, str]:
    section = _section(name)
    return not name.startswith("tf.contrib."), section == WITHOUT_NAMES, section


def text() -> str:
    """Returns the page, its list written anew."""
    before = PAGE.read_text().partition(BEGIN)[0]
    sections = [before + BEGIN]
    for (_, _, section), inside in itertools.groupby(sorted(explained.names(), key=_place), _place):
        items = [f"* `{name}`: {explained.where(name)}\n" for name in inside]
        sections.append(f"### {section}\n\n{''.join(items)}")
    return "\n".join(sections)


if __name__ == "__main__":
    PAGE.write_text(text())
