"""Tells Griffe, which reads the docstrings for the API reference, three things about them.

Docstrings of this project describe arguments that belong together in one entry, where Griffe sees
one argument with a strange name:

    low, high: the two limits.

The docstring of an optimizer's file has formulas, which become MathML. And what a class is
constructed from is the signature of `__new__`, where it has no `__init__`.
"""

import pathlib
import re
import runpy
from typing import Any

import griffe

rendered = runpy.run_path(str(pathlib.Path(__file__).with_name("formulas.py")))["rendered"]

_ENTRY = re.compile(r"^( {2,4})((?:\*{0,2}\w+,\s+)+\*{0,2}\w+):(\s.*(?:\n\1 +\S.*)*)", re.M)
_SECTION = re.compile(r"(^(?:Args|Attributes):\n)((?:(?: +.*)?\n?)*)", re.M)


def split(text: str) -> str:
    """Returns a docstring whose Args and Attributes have one entry for each name."""

    def entries(match: re.Match[str]) -> str:
        names = re.split(r",\s+", match[2])
        return "\n".join(f"{match[1]}{name}:{match[3]}" for name in names)

    return _SECTION.sub(lambda match: match[1] + _ENTRY.sub(entries, match[2]), text)


class Names(griffe.Extension):
    """Completes what Griffe has read of a docstring or a class."""

    def on_object(self, *, obj: griffe.Object, **kwargs: Any) -> None:
        """Called by Griffe for everything that it finds."""
        if obj.docstring and not obj.is_alias:
            obj.docstring.value = split(obj.docstring.value)
            if obj.is_module and obj.path.startswith("estimator_emb.optimizers."):
                obj.docstring.value = rendered(obj.docstring.value)

    def on_class_members(self, *, cls: griffe.Class, **kwargs: Any) -> None:
        """Called by Griffe when it has read a class."""
        if "__new__" in cls.members and "__init__" not in cls.members:
            cls.members["__init__"] = cls.members["__new__"]
