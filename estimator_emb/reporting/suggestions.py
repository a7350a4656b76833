"""Checks arguments, and suggests the intended name for a misspelled name."""

import difflib
from collections.abc import Iterable


def check_argument(owner: str, holds: object, name: str, allowed: str, got: object) -> None:
    """Raises ValueError unless `holds`. It names the argument, the `allowed` values and `got`."""
    if not holds:
        raise ValueError(f"{owner}: {name} must be {allowed}; got {got!r}.")


def suggestion(name: object, names: Iterable[object]) -> str:
    """Returns " Did you mean 'x'?" with a close match from `names`, or ''."""
    lower = {str(known).lower(): known for known in names}
    cutoff = 0.7 if len(str(name)) > 4 else 0.6  # A wrong letter of 'run' leaves two thirds.
    close = difflib.get_close_matches(str(name).lower(), lower, cutoff=cutoff)
    return f" Did you mean {lower[close[0]]!r}?" if close else ""
