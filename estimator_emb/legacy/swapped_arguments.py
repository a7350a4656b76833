"""Detects arguments of TensorFlow's feature columns that a program has swapped."""

import inspect
import traceback

from estimator_emb.legacy import python2_hints


def advice_about_columns(error: BaseException) -> str | None:
    """Returns advice if a feature column got a number as its first argument."""
    if not isinstance(error, TypeError) or error.__traceback__ is None:
        return None
    *before, (frame, _) = traceback.walk_tb(error.__traceback__)
    arguments = inspect.getargvalues(frame)
    first, second, *_ = *arguments.args, None, None
    given = arguments.locals.get(str(first))
    is_column = (
        frame.f_globals.get("__name__") == "tensorflow.python.feature_column.feature_column_v2"
    )
    if not is_column or not isinstance(given, (int, float)):
        return None
    callers = [one for one in before if not _is_tensorflow(one[0].f_globals.get("__name__"))]
    place = python2_hints.place(callers[-1][0].f_code.co_filename, callers[-1][1])
    return (
        f"{place}: {frame.f_code.co_name} got {first}={given!r}; perhaps swapped: {first} comes "
        f"before {second}."
    )


def _is_tensorflow(module: object) -> bool:
    return str(module).split(".")[0] == "tensorflow"
