"""Griffe extension that prepares docstrings and classes for the API reference.

It makes four changes:

* This project documents related arguments in a single entry, such as `low, high: the two limits.`
  Griffe would read this as one argument with a strange name, so the entry is split.
* Formulas in the docstrings of optimizer modules become MathML.
* Base classes are shown by their public names. Private base classes are left out.
* If a class defines `__new__` but not `__init__`, the signature of `__new__` is shown.
"""

import pathlib
import re
import runpy
from collections.abc import Iterable, Iterator
from typing import Any

import griffe

rendered = runpy.run_path(str(pathlib.Path(__file__).with_name("formulas.py")))["rendered"]

_ENTRY = re.compile(r"^( {2,4})((?:\*{0,2}\w+,\s+)+\*{0,2}\w+):(\s.*(?:\n\1 +\S.*)*)", re.M)
_SECTION = re.compile(r"(^(?:Args|Attributes):\n)((?:(?: +.*)?\n?)*)", re.M)


def split(text: str) -> str:
    """Returns the docstring with a separate entry for each name in Args and Attributes."""

    def entries(match: re.Match[str]) -> str:
        names = re.split(r",\s+", match[2])
        return "\n".join(f"{match[1]}{name}:{match[3]}" for name in names)

    return _SECTION.sub(lambda match: match[1] + _ENTRY.sub(entries, match[2]), text)


def public_bases(bases: Iterable[Any]) -> Iterator[Any]:
    """Yields the base classes to show."""
    for base in bases:
        name = str(base).partition("(")[0].rpartition(".")[2]
        if name.startswith("Stock"):
            yield f"tf.compat.v1.estimator.tpu.{name.removeprefix('Stock')}"
        elif name == "namedtuple":
            yield "collections.namedtuple"
        elif not name.startswith("_"):
            yield base


class Names(griffe.Extension):
    """Applies the four changes to the objects that Griffe has read."""

    def on_object(self, *, obj: griffe.Object, **kwargs: Any) -> None:
        """Rewrites the docstring of an object. Griffe calls this for every object it finds."""
        if obj.docstring and not obj.is_alias:
            obj.docstring.value = split(obj.docstring.value)
            if obj.is_module and obj.path.startswith("estimator_emb.optimizers."):
                obj.docstring.value = rendered(obj.docstring.value)

    def on_class_members(self, *, cls: griffe.Class, **kwargs: Any) -> None:
        """Shows `__new__` as the constructor. Griffe calls this after it has read a class."""
        cls.bases = list(public_bases(cls.bases))
        if "__new__" in cls.members and "__init__" not in cls.members:
            cls.members["__init__"] = cls.members["__new__"]
