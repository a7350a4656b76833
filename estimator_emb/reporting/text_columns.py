"""Text for a terminal: aligned columns, names of unknown origin, and counted things."""

from collections.abc import Sequence


def escaped(name: str) -> str:
    """Returns a name that ends no line and that no terminal obeys, by escapes."""
    return "".join(
        sign if sign.isprintable() else sign.encode("unicode_escape").decode() for sign in name
    )


def counted(count: int, noun: str, plural: str = "") -> str:
    """Returns a number and the noun that it counts, whose plural is by default with an s."""
    return f"{count:,} {noun if count == 1 else plural or f'{noun}s'}"


def some_of(names: Sequence[str], shown: int = 3) -> str:
    """Returns the first names of a list, and how many more there are."""
    more = f" and {len(names) - shown} more" if len(names) > shown else ""
    return ", ".join(names[:shown]) + more


def aligned(rows: Sequence[Sequence[str]], right: bool = False) -> str:
    """Returns rows of equally many cells, escaped, as aligned lines; `right` aligns the ends."""
    rows = [[escaped(cell) for cell in row] for row in rows]
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    return "\n".join(
        "  ".join(
            cell.rjust(width) if right else cell.ljust(width)
            for cell, width in zip(row, widths, strict=True)
        ).rstrip()
        for row in rows
    )
