"""`arg_scope` of `tf.contrib.framework`: default arguments for functions within a block.

If the package tf_slim is installed, its functions replace these, so that scopes reach its layers.
Source: tensorflow/contrib/framework/python/ops/arg_scope.py, TF 1.15.
"""

import contextlib
import functools
from collections.abc import Callable, Iterator
from typing import Any

_scopes: list[dict[Any, dict[str, Any]]] = [{}]
_argument_names: dict[Any, tuple[str, ...]] = {}


def current_arg_scope() -> dict[Any, dict[str, Any]]:
    """Returns the current scope: a function's key -> default arguments."""
    return _scopes[-1]


def arg_scope_func_key(op: Any) -> Any:
    """Returns the key of a function in scopes."""
    return getattr(op, "_key_op", str(op))


@contextlib.contextmanager
def arg_scope(list_ops_or_scope: Any, **kwargs: Any) -> Iterator[dict[Any, dict[str, Any]]]:
    """Gives default arguments to functions decorated by `add_arg_scope`, within a block.

    Instead of functions, it takes the scope of an earlier block, without arguments. Raises
    ValueError for a function that is not decorated.
    """
    if isinstance(list_ops_or_scope, dict):
        if kwargs:
            raise ValueError(
                "When attempting to re-use a scope by suppling a dictionary, kwargs must be empty."
            )
        scope = dict(list_ops_or_scope)
    elif isinstance(list_ops_or_scope, (list, tuple)):
        scope = dict(current_arg_scope())
        for op in list_ops_or_scope:
            if not has_arg_scope(op):
                raise ValueError(
                    f"{(op.__module__, op.__name__)} is not decorated with @add_arg_scope"
                )
            key = arg_scope_func_key(op)
            scope[key] = {**scope.get(key, {}), **kwargs}
    else:
        raise TypeError("list_ops_or_scope must either be a list/tuple or reused scope (i.e. dict)")
    _scopes.append(scope)
    try:
        yield scope
    finally:
        _scopes.pop()


def add_arg_scope(func: Callable[..., Any]) -> Callable[..., Any]:
    """Decorates a function, so that `arg_scope` can give it default arguments."""
    key = arg_scope_func_key(func)

    @functools.wraps(func)
    def scoped(*args: Any, **kwargs: Any) -> Any:
        return func(*args, **{**current_arg_scope().get(key, {}), **kwargs})

    code: Any = getattr(func, "__code__", None)
    count = len(getattr(func, "__defaults__", None) or ())
    names = code.co_varnames[: code.co_argcount] if code else ()
    _argument_names[key] = names[len(names) - count :]
    scoped._key_op = key  # type: ignore[attr-defined]
    return scoped


def has_arg_scope(func: Any) -> bool:
    """Returns whether a function is decorated by `add_arg_scope`."""
    return arg_scope_func_key(func) in _argument_names


def arg_scoped_arguments(func: Any) -> tuple[str, ...]:
    """Returns the names of a decorated function's arguments that have defaults."""
    return _argument_names[arg_scope_func_key(func)]
