"""Tells whether an import is inside a `try` that catches ImportError."""

import ast
import functools
import linecache
from types import FrameType

from estimator_emb.reporting import frames

_NAMES = frozenset(("ImportError", "ModuleNotFoundError"))
_ALL = _NAMES | {"Exception", "BaseException", ""}
"""Names in an `except` that catches an ImportError. '' means an `except` without a class."""


def is_guarded(frame: FrameType | None) -> bool:
    """Returns whether the program catches ImportError around the import at `frame`.

    Programs choose a module this way. In frames around the program's innermost frame, an `except`
    must name ImportError to count, because many programs run in a `try` for any exception.
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
    """Returns (first line, last line, caught names) for each `try` of a file."""
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
