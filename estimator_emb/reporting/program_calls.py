"""Wraps the functions that programs call: shows the log, shortens tracebacks."""

import functools
import inspect
import itertools
import sys
from collections.abc import Callable, Iterator
from typing import Any

from estimator_emb.reporting import console, error_notes, frames

_SHORTENED = (Exception, KeyboardInterrupt, SystemExit)


def called_by_program(
    function: Callable[..., Any], applies: Callable[..., bool] = lambda *args: True
) -> Callable[..., Any]:
    """Wraps a function or a generator function that programs call.

    Its log is shown (see `console`). A generator's log is shown until the first value, and at its
    end. Tracebacks of its errors keep only the program's lines. A call whose positional arguments
    `applies` refuses is not wrapped.
    """

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        if not applies(*args):
            return function(*args, **kwargs)
        before = sys.exc_info()[1]
        try:
            with console.shown():
                result = function(*args, **kwargs)
        except _SHORTENED as error:
            shorten_traceback(error, before)
            if sys.version_info < (3, 11):
                raise error  # A bare raise would bring the whole traceback back.
            raise
        return generate(result) if inspect.isgenerator(result) else result

    def generate(values: Any) -> Iterator[Any]:
        before = sys.exc_info()[1]
        try:
            try:
                with console.shown():
                    first = list(itertools.islice(values, 1))
                yield from first
                yield from values
            finally:
                with console.shown():
                    values.close()
        except _SHORTENED as error:
            shorten_traceback(error, before)
            if sys.version_info < (3, 11):
                raise error  # A bare raise would bring the whole traceback back.
            raise

    return call


def method_of_program(cls: type, method: str) -> None:
    """Wraps a method or a constructor that programs call."""
    called = called_by_program(getattr(cls, method))
    setattr(cls, method, staticmethod(called) if method == "__new__" else called)


def shorten_traceback(error: BaseException, before: BaseException | None) -> None:
    """Keeps only the program's lines in an error and its causes, up to the handled `before`.

    A cause that no line of the program raised is hidden if the next error repeats its message.
    """
    if error_notes.is_full():
        return
    seen: set[int] = set()
    one: BaseException | None = error
    while one is not None and one is not before and id(one) not in seen:
        seen.add(id(one))
        one.with_traceback(frames.program_frames(one.__traceback__))
        cause = _cause(one)
        while (
            cause is not None
            and cause is not before
            and frames.program_frames(cause.__traceback__) is None
            and str(cause).strip("'") in str(one)
        ):
            cause = one.__cause__ = _cause(cause)
        one = cause


def _cause(error: BaseException) -> BaseException | None:
    """Returns the error that Python shows above an error."""
    return error.__cause__ or (None if error.__suppress_context__ else error.__context__)
