"""Tells whether an import stands in a `try` whose `except` takes an ImportError."""

import ast
import functools
import linecache
from types import FrameType

from estimator_emb.reporting import frames

_NAMES = frozenset(("ImportError", "ModuleNotFoundError"))
_ALL = _NAMES | {"Exception", "BaseException", ""}
"""Names in an `except` that takes an ImportError; '' for one without a name."""


def is_guarded(frame: FrameType | None) -> bool:
    """Returns whether an import at `frame`, or an import that led to it, is in such a `try`.

    Programs choose by it what they use. Of the program's frames around the innermost, only one that
    names an ImportError counts: many programs run in a `try` for any exception.
    """
    names = _ALL
    while frame is not None:
        file = frame.f_code.co_filename
        if frames.is_of_program(file):
            if any(
                first <= frame.f_lineno <= last and names & taken
                for first, last, taken in _guarded_lines(file)
            ):
                return True
            names = _NAMES
        frame = frame.f_back
    return False


@functools.cache
def _guarded_lines(file: str) -> list[tuple[int, int, frozenset[str]]]:
    """Returns the first and last line in each `try` of a file, and the names it takes."""
    try:
        tree = ast.parse("".join(linecache.getlines(file)))
    except SyntaxError:
        return []
    return [
        (node.body[0].lineno, node.body[-1].end_lineno or 0, _taken(node))
        for node in ast.walk(tree)
        if isinstance(node, ast.Try)
    ]


def _taken(node: ast.Try) -> frozenset[str]:
    found = set()
    for handler in node.handlers:
        kinds = handler.type.elts if isinstance(handler.type, ast.Tuple) else [handler.type]
        for kind in kinds:
            found.add("" if kind is None else ast.unparse(kind).rpartition(".")[2])
    return frozenset(found)
