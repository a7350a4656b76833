"""Edits the source of a program, and reads the comments of its imports."""

import re
from dataclasses import dataclass, field

import libcst as cst

_LINE_END = re.compile(rb"\r\n|\n|\r")


class Edits:
    """Collects replacements of parts of a UTF-8 source, and applies them together."""

    def __init__(self, source: bytes):
        self.source = source
        self._edits: list[tuple[int, int, bytes]] = []

    def replace(self, start: int, end: int, text: str) -> None:
        self._edits.append((start, end, text.encode()))

    def apply(self) -> bytes:
        result, at = [], 0
        for start, end, text in sorted(self._edits, key=lambda edit: edit[:2]):
            assert start >= at, "Two edits overlap."
            result += [self.source[at:start], text]
            at = end
        return b"".join([*result, self.source[at:]])

    def lines(self) -> dict[int, int]:
        shifts: dict[int, int] = {}
        line, at = 1, 0
        for start, end, text in sorted(self._edits, key=lambda edit: edit[1]):
            line, at = line + self.source.count(b"\n", at, end), end
            added = text.count(b"\n") - self.source.count(b"\n", start, end)
            shifts[line] = shifts.get(line, 0) + added
        result, shift = {}, 0
        for line in range(1, self.source.count(b"\n") + 2):
            shift += shifts.get(line, 0)
            result[line] = line + shift
        return result

    def line_start(self, at: int) -> int:
        start = self.source.rfind(b"\n", 0, at) + 1
        return max(start, self.source.rfind(b"\r", start, at) + 1)

    def line_end(self, at: int) -> int:
        found = _LINE_END.search(self.source, at)
        return len(self.source) if found is None else found.end()

    def indent(self, at: int) -> str:
        """Returns the indentation of the line that contains the position `at`."""
        line = self.source[self.line_start(at) : at].decode()
        return line[: len(line) - len(line.lstrip())]


@dataclass
class Comments:
    """The comments on a name of a parenthesized import: the lines above it, the text after it."""

    above: list[str] = field(default_factory=list)
    behind: str = ""


def comments_of(statement: cst.Import | cst.ImportFrom) -> dict[cst.ImportAlias, Comments]:
    """Returns the comments of each name of an import."""
    assert not isinstance(statement.names, cst.ImportStar)
    result = {alias: Comments() for alias in statement.names}
    if not isinstance(statement, cst.ImportFrom) or statement.lpar is None:
        return result
    assert statement.rpar is not None
    aliases = list(statement.names)
    behind = [getattr(alias.comma, "whitespace_after", None) for alias in aliases]
    spaces = [statement.lpar.whitespace_after, *behind, statement.rpar.whitespace_before]
    for index, space in enumerate(spaces):
        if isinstance(space, cst.ParenthesizedWhitespace):
            before, after = (aliases[min(i, len(aliases) - 1)] for i in (max(index - 1, 0), index))
            first = space.first_line.comment
            if first is not None and index:
                result[before].behind = first.value
            elif first is not None:
                result[after].above.append(first.value)
            lines = [line.comment.value for line in space.empty_lines if line.comment]
            result[after].above += lines
    return result
