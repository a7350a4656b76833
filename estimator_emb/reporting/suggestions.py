"""Suggests the intended name for a misspelled name, mainly for keyword arguments."""

import difflib
import inspect
import re
from collections.abc import Callable, Iterable
from typing import Any

_KEYWORDS = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
_UNEXPECTED = re.compile(
    r"(\w+)\.__(new|init)__\(\) got an unexpected keyword argument '(\w+)'"
    r"(?:\. Did you mean '\w+'\?)?"  # Since Python 3.13.
)


def check_argument(owner: str, holds: object, name: str, allowed: str, got: object) -> None:
    """Raises ValueError unless `holds`. It names the argument, the `allowed` values and `got`."""
    if not holds:
        raise ValueError(f"{owner}: {name} must be {allowed}; got {got!r}.")


def suggestion(name: object, names: Iterable[object]) -> str:
    """Returns " Did you mean 'x'?" with a close match from `names`, or ''."""
    lower = {str(known).lower(): known for known in names}
    close = difflib.get_close_matches(str(name).lower(), lower, 1, 0.7)
    return f" Did you mean {lower[close[0]]!r}?" if close else ""


def suggest(error: Exception, *classes: type) -> None:
    """Adds the right name to Python's error about an unknown argument of these classes."""
    found = _UNEXPECTED.fullmatch(str(error))
    for cls in classes if found else ():
        if found and cls.__name__ == found[1]:
            names = names_of(getattr(cls, f"__{found[2]}__"))
            error.args = (_unexpected(f"{found[1]}()", found[3], names),)


def check_names(owner: str, names: list[str], given: Iterable[str]) -> None:
    """Raises TypeError for a given name that is not in `names`. Suggests a name, or lists all."""
    for name in given:
        if name not in names:
            raise TypeError(_unexpected(owner, name, names))


def names_of(*functions: Callable[..., Any]) -> list[str]:
    """Returns the names of the functions' keyword arguments, without self or cls."""
    names: dict[str, None] = {}
    for function in functions:
        for parameter in list(inspect.signature(function).parameters.values())[1:]:
            if parameter.kind in _KEYWORDS:
                names[parameter.name] = None
    return list(names)


def _unexpected(owner: str, name: str, names: list[str]) -> str:
    advice = suggestion(name, names) or f" It takes {', '.join(names)}."
    return f"{owner} got an unexpected keyword argument {name!r}.{advice}"
