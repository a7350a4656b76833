"""Says in a line where a legacy name is today.

`estimator-emb migrate --explain` prints such lines, and docs/legacy_names.md lists them all.
"""

import re

from estimator_emb.catalog import contrib as contrib_names
from estimator_emb.catalog import tf1 as tf1_names
from estimator_emb.cli.migration import renames

_CONTRIB = "tf.contrib."


def names() -> list[str]:
    """Returns all listed legacy names, each module of tf.contrib before the names in it."""
    listed = []
    for owner, module in sorted(contrib_names.MODULES.items()):
        inside = {*module.members, *module.modules, *module.elsewhere}
        listed += [owner, *sorted(f"{owner}.{name}" for name in inside)]
    return [*(f"{_CONTRIB}{name}" for name in listed), *sorted(renames.TABLE)]


def lines(name: str) -> list[str]:
    """Returns the lines of a name and of the names inside it. Unknown names give [].

    The last part of a name, such as `fully_connected`, gives the lines of all names that end so.
    """
    name = _listed(name)
    found = [one for one in names() if one.startswith(f"{name}.")]
    if where(name) is not None:
        found.insert(0, name)
    elif not found:
        found = [one for one in names() if one.endswith(f".{name}")]
    return [f"{one}: {where(one)}" for one in found]


def _listed(name: str) -> str:
    """Returns a name as the list spells it. A module inside tf.contrib.crf gives tf.contrib.crf."""
    name = re.sub(r"^tensorflow(?=\.(?!python\b|core\b))", "tf", name)
    name = re.sub(r"^tf\.compat\.v1\.contrib\b", "tf.contrib", name)
    owner = contrib_names.NAMESPACES.get(name.removeprefix(_CONTRIB))
    return f"{_CONTRIB}{owner}" if owner and name.startswith(_CONTRIB) else name


def where(name: str) -> str | None:
    """Returns where a dotted legacy name is today, or None if no table has the name."""
    spelled = f"tensorflow.{name.removeprefix('tf.')}" if name.startswith("tf.") else name
    found = renames.look_up(spelled)
    if found is None:
        path = name.removeprefix("tf.")
        is_v1 = path != name and tf1_names.part_of(path) is not None
        return f"now tf.compat.v1.{path}. --tf-v1 has it." if is_v1 else None
    meaning, count = found
    if isinstance(meaning, renames.Target):
        return f"now {'.'.join([meaning.path, *spelled.split('.')[count:]])}."
    if isinstance(meaning, renames.Namespace):
        return _module_line(spelled.partition(".contrib.")[2], meaning)
    path = meaning.text.split(" ", 1)[0]
    return meaning.text.removeprefix(f"{path} ") if path.startswith(_CONTRIB) else meaning.text


def _module_line(path: str, meaning: renames.Namespace) -> str:
    """Returns where a module is today. `path` is its name below tf.contrib, or ''."""
    moved = meaning.moved or contrib_names.MOVED.get(path)
    if moved:
        return f"now the module {moved}."
    module = contrib_names.MODULES.get(path)
    if module is None:
        owner, _, leaf = path.partition(".")
        advice = contrib_names.MODULES[owner].elsewhere.get(leaf) if path else None
        return f"now in {advice}." if advice else "a module with the names below."
    parts = ["a module with the names below."]
    if module.package:
        parts.append("With the package tf_slim, --tf-v1 finds that package's names too.")
    if module.rest:
        parts.append(f"For other names: {module.rest}.")
    return " ".join(parts)
