"""Text for a terminal: aligned columns, escaped names and counted nouns."""

from collections.abc import Sequence


def escaped(name: str) -> str:
    """Returns a name with escapes for all characters that break a line or control a terminal."""
    return "".join(
        sign if sign.isprintable() else sign.encode("unicode_escape").decode() for sign in name
    )


def counted(count: int, noun: str, plural: str = "") -> str:
    """Returns a number with its noun, in the plural (by default with an s) unless it is 1."""
    return f"{count:,} {noun if count == 1 else plural or f'{noun}s'}"


def some_of(names: Sequence[str], shown: int = 3) -> str:
    """Returns the first names of a list and the number of remaining names."""
    more = f" and {len(names) - shown} more" if len(names) > shown else ""
    return ", ".join(names[:shown]) + more


def aligned(rows: Sequence[Sequence[str]], right: bool = False) -> str:
    """Returns rows of equally many cells as aligned lines, escaped. `right` aligns to the right."""
    rows = [[escaped(cell) for cell in row] for row in rows]
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    return "\n".join(
        "  ".join(
            cell.rjust(width) if right else cell.ljust(width)
            for cell, width in zip(row, widths, strict=True)
        ).rstrip()
        for row in rows
    )
