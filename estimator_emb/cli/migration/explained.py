"""Says in a line where a legacy name is today.

`estimator-emb migrate --explain` prints such lines, and docs/legacy_names.md lists them all.
"""

import contextlib
import functools
import importlib
import re
from types import ModuleType
from typing import Any

from estimator_emb.catalog import contrib as contrib_names
from estimator_emb.catalog import tf1 as tf1_names
from estimator_emb.cli import load_package
from estimator_emb.cli.migration import renames
from estimator_emb.reporting.suggestions import suggestion

_CONTRIB = "tf.contrib."
_UNLISTED = ("left ", "neither ", "TensorFlow 1.15's ")
"""Start of the text about a name that a module may have, although no table lists it."""


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
    place = where(name)
    if place is not None and not (place.startswith(_UNLISTED) and near(name)):
        found.insert(0, name)
    elif not found:
        found = [one for one in _known() if one.endswith(f".{name}")]
    return [f"{one}: {where(one)}" for one in found]


def near(name: str) -> str:
    """Returns " Did you mean 'x'?" for a name that is no known name but resembles one, or ''."""
    name = re.sub(r"^tf\.compat\.v1\.(?!estimator\b)", "tf.", _listed(name))
    tensorflow = _module("tensorflow")
    if name in _known() or (tensorflow and not _is_missing(tensorflow, name.removeprefix("tf."))):
        return ""
    owner, _, last = name.rpartition(".")
    parts = [one.rpartition(".") for one in _known()]
    inside = [leaf for module, _, leaf in parts if owner in ("", module)]
    if inside or owner in _known():
        return suggestion(last, inside)
    return suggestion(owner, {module for module, _, _ in parts})


@functools.cache
def _known() -> list[str]:
    """Returns all listed names, and the names of TensorFlow 1 in `tf.compat.v1` and its modules."""
    v1 = _module(renames.TF1)
    found = dir(v1) if v1 else []
    for name, module in [(name, getattr(v1, name)) for name in found]:
        if isinstance(module, ModuleType) and not name.startswith("_"):
            found += [f"{name}.{leaf}" for leaf in dir(module)]
    return [*names(), *(f"tf.{path}" for path in found if tf1_names.part_of(path))]


@functools.cache
def _module(name: str) -> Any:
    """Returns a module of TensorFlow, or None without TensorFlow."""
    with contextlib.suppress(ImportError):
        load_package()
        return importlib.import_module(name)
    return None


def _is_missing(owner: Any, path: str) -> bool:
    """Returns whether a module, or a module in it, lacks the name."""
    for part in path.split("."):
        if not isinstance(owner, ModuleType):
            break  # The attributes of an object may depend on the program.
        if not hasattr(owner, part):
            return True
        owner = getattr(owner, part)
    return False


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
        if (
            path == name
            or tf1_names.part_of(path) is None
            or _is_missing(_module(renames.TF1), path)
        ):
            return None
        return f"now tf.compat.v1.{path}. --tf-v1 has it."
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
