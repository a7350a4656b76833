# SPDX-License-Identifier: Apache-2.0
"""Checks keyword arguments, and suggests the one that a misspelt one may stand for."""

import difflib
import functools
import inspect
from collections.abc import Callable, Iterable
from typing import Any

_KEYWORDS = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)


def suggestion(name: object, names: Iterable[object]) -> str:
    """Returns " Did you mean 'x'?" with one of `names` that resembles `name`; '' if none does."""
    lower = {str(known).lower(): known for known in names}
    close = difflib.get_close_matches(str(name).lower(), lower, 1, 0.7)
    return f" Did you mean {lower[close[0]]!r}?" if close else ""


def check(owner: str, given: Iterable[str], names: Iterable[str]) -> None:
    """Raises an error for a keyword argument that does not exist, as Python does, with advice.

    Raises:
      TypeError: one of `given` is not among `names`; the message suggests one, or lists all.
    """
    names = list(names)
    for name in given:
        if name not in names:
            advice = suggestion(name, names) or f" It takes {', '.join(names)}."
            raise TypeError(f"{owner} got an unexpected keyword argument {name!r}.{advice}")


def names_of(*functions: Callable[..., Any]) -> list[str]:
    """Returns the keyword arguments of functions, without the first of each: self or cls."""
    names: dict[str, None] = {}
    for function in functions:
        for parameter in list(inspect.signature(function).parameters.values())[1:]:
            if parameter.kind in _KEYWORDS:
                names[parameter.name] = None
    return list(names)


def suggesting(
    function: Callable[..., Any], owner: str, names: Iterable[str] | None = None
) -> Callable[..., Any]:
    """Wraps a method, so that `check` sees its keyword arguments before it runs.

    Args:
      function: the method, or `__new__`.
      owner: what messages call the method.
      names: the keyword arguments that the method takes; None for those of its signature.
    """
    known = list(names_of(function) if names is None else names)

    @functools.wraps(function)
    def checked(*args: Any, **kwargs: Any) -> Any:
        if kwargs:
            check(owner, kwargs, known)
        return function(*args, **kwargs)

    checked._suggests = True  # type: ignore[attr-defined]
    return checked


def suggest_in(cls: type, method: str, *others: Callable[..., Any]) -> None:
    """Makes a method of a class check its keyword arguments; a second call changes nothing.

    Args:
      cls: the class, ours or tensorflow-estimator's.
      method: the name of the method, which the class itself defines.
      *others: methods whose arguments it takes too, because it passes `**kwargs` on to them.
    """
    function = cls.__dict__[method]
    function = getattr(function, "__func__", function)
    if getattr(function, "_suggests", False):
        return
    plain = method in ("__init__", "__new__")
    owner = f"{cls.__name__}()" if plain else f"{cls.__name__}.{method}()"
    checked = suggesting(function, owner, names_of(function, *others))
    setattr(cls, method, staticmethod(checked) if method == "__new__" else checked)
