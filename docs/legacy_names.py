"""Writes the list at the end of legacy_names.md: python docs/legacy_names.py."""

import itertools
import pathlib

from estimator_emb.catalog import contrib as contrib_names
from estimator_emb.cli.migration import renames

PAGE = pathlib.Path(__file__).with_suffix(".md")
BEGIN = "<!-- docs/legacy_names.py writes the rest of this page. -->\n"
WITHOUT_NAMES = "Other modules of tf.contrib"
CONTRIB = "tf.contrib."


def names() -> list[str]:
    """Returns all listed legacy names, each module of tf.contrib before the names in it."""
    listed = []
    for owner, module in sorted(contrib_names.MODULES.items()):
        inside = {*module.members, *module.modules, *module.elsewhere}
        listed += [owner, *sorted(f"{owner}.{name}" for name in inside)]
    return [*(f"{CONTRIB}{name}" for name in listed), *sorted(renames.TABLE)]


def where(name: str) -> str:
    """Returns where a listed legacy name is today."""
    meaning, _ = renames.look_up(name.replace("tf.", "tensorflow.", 1))
    if isinstance(meaning, renames.Target):
        return f"now {meaning.path}."
    if isinstance(meaning, renames.Namespace):
        return _of_module(name.removeprefix(CONTRIB), meaning)
    path = meaning.text.split(" ", 1)[0]
    return meaning.text.removeprefix(f"{path} ") if path.startswith(CONTRIB) else meaning.text


def _of_module(path: str, meaning: renames.Namespace) -> str:
    """Returns where a module is today. `path` is its name below tf.contrib."""
    moved = meaning.moved or contrib_names.MOVED.get(path)
    if moved:
        return f"now the module {moved}."
    module = contrib_names.MODULES.get(path)
    if module is None:
        owner, _, leaf = path.partition(".")
        advice = contrib_names.MODULES[owner].elsewhere.get(leaf)
        return f"now in {advice}." if advice else "a module with the names below."
    parts = ["a module with the names below."]
    if module.package:
        parts.append("With the package tf_slim, --tf-v1 finds that package's names too.")
    if module.rest:
        parts.append(f"For other names: {module.rest}.")
    return " ".join(parts)


def _section(name: str) -> str:
    """Returns the heading for a name: its module, or `WITHOUT_NAMES` for a module without names."""
    if not name.startswith(CONTRIB):
        return name.rpartition(".")[0]
    module = ".".join(name.split(".")[:3])
    has_names = any(one.startswith(f"{module}.") for one in names())
    return module if has_names else WITHOUT_NAMES


def _place(name: str) -> tuple[bool, bool, str]:
    section = _section(name)
    return not name.startswith(CONTRIB), section == WITHOUT_NAMES, section


def text() -> str:
    """Returns the page, its list written anew."""
    before = PAGE.read_text().partition(BEGIN)[0]
    sections = [before + BEGIN]
    for (_, _, section), inside in itertools.groupby(sorted(names(), key=_place), _place):
        items = [f"* `{name}`: {where(name)}\n" for name in inside]
        sections.append(f"### {section}\n\n{''.join(items)}")
    return "\n".join(sections)


if __name__ == "__main__":
    PAGE.write_text(text())
