"""Changes and checks the patterns of `WarmStartSettings`, and logs the variables that they find."""

import os
import re
from collections.abc import Collection
from typing import Any

import tensorflow as tf

from estimator_emb.checkpoints.restoring import compare_graph
from estimator_emb.engine.tables.storage import saved_name
from estimator_emb.reporting.console import logger
from estimator_emb.reporting.suggestions import suggestion

_STEP = "global_step"
_WITHOUT_STEP = re.compile(rf"^(\(\?\w+\))?\(\?!{_STEP}:0\$\)\(\?:(.*)\)$", re.S)
"""Matches the patterns that `without_global_step` writes."""
_SHOWN = 6


def without_global_step(settings: Any) -> Any:
    """Returns `WarmStartSettings` that take the global step only if a pattern names it.

    A list of patterns searches all variables, so '.*' would take the global step too. `max_steps`
    and a decaying rate would then count the steps of the other training.
    """
    patterns: Any = getattr(settings, "vars_to_warm_start", None)
    if not _are_names(patterns):
        return settings
    return settings._replace(vars_to_warm_start=[_without_step(one) for one in patterns])


def is_of_keras(settings: Any, model_dir: str) -> bool:
    """Returns whether `model_to_estimator` made the settings for the weights of its model."""
    path = os.path.join(model_dir, "keras", "keras_model.ckpt")
    return getattr(settings, "ckpt_to_initialize_from", None) == path


def with_all_weights(settings: Any, model_dir: str) -> Any:
    """Returns settings that take all weights of a Keras model, not only its trainable weights.

    Other settings are returned unchanged. The variables are taken from the default graph.
    """
    if not is_of_keras(settings, model_dir) or tf.distribute.has_strategy():
        return settings
    saved = compare_graph.names_in(settings.ckpt_to_initialize_from)
    taken = [name for name in _names(tf.compat.v1.GraphKeys.GLOBAL_VARIABLES) if name in saved]
    patterns = [f"{re.escape(name)}:0$" for name in taken if name != _STEP]
    return settings._replace(vars_to_warm_start=patterns)


def check_patterns(settings: Any) -> None:
    """Raises a ValueError for a pattern or name of `WarmStartSettings` that no variable fits.

    `without_global_step` may have changed the program's patterns.
    """
    patterns, keys = settings.vars_to_warm_start, tf.compat.v1.GraphKeys
    for field in ("var_name_to_prev_var_name", "var_name_to_vocab_info"):
        names = _names(keys.GLOBAL_VARIABLES)
        for name in getattr(settings, field) or {}:
            if name not in names:
                advice = suggestion(name, names) or f" The model has {_some(names, 'none')}."
                raise ValueError(
                    f"warm_start_from: {field} has {name!r}, which is no variable of the "
                    f"model.{advice}"
                )
    listed = _are_names(patterns)
    if not listed and (not isinstance(patterns, str) or patterns == ".*"):
        return
    collection = keys.GLOBAL_VARIABLES if listed else keys.TRAINABLE_VARIABLES
    names = _names(collection)
    for pattern in patterns if listed else [patterns]:
        if tf.compat.v1.get_collection(collection, pattern):
            continue
        written = _WITHOUT_STEP.sub(r"\1\2", pattern)
        fits = "variable" if listed else "trainable variable"
        raise ValueError(
            f"warm_start_from: vars_to_warm_start has the pattern {written!r}, which fits no "
            f"{fits} of the model.{_advice(written, names, listed)}"
        )


def say(path: str, names: Collection[str]) -> None:
    """Logs which variables of the default graph a training takes from a checkpoint."""
    others = [name for name in _names(tf.compat.v1.GraphKeys.GLOBAL_VARIABLES) if name not in names]
    logger.info(
        "Warm start from %s: %s; %s.",
        path,
        _some(sorted(names), "no variable"),
        f"initialized: {_some(others)}" if others else "nothing else is to be initialized",
    )


def _without_step(pattern: str) -> str:
    if _STEP in pattern:
        return pattern
    flags = re.match(r"\(\?[aiLmsux]+\)|", pattern)  # Python requires them at the beginning.
    begin = flags[0] if flags else ""
    return f"{begin}(?!{_STEP}:0$)(?:{pattern[len(begin) :]})"


def _are_names(patterns: Any) -> bool:
    return (
        isinstance(patterns, list)
        and bool(patterns)
        and all(isinstance(pattern, str) for pattern in patterns)
    )


def _names(collection: str) -> list[str]:
    return sorted({saved_name(one) for one in tf.compat.v1.get_collection(collection)})


def _advice(pattern: str, names: list[str], listed: bool) -> str:
    if listed and re.match(pattern, f"{_STEP}:0"):
        return f" {_STEP} is taken only where a pattern names it: '{_STEP}'."
    inside = [name for name in names if re.search(pattern, name)]
    if inside:
        return f" It must fit from the beginning of a name: '.*{pattern}' finds {_some(inside)}."
    if not listed and tf.compat.v1.get_collection(tf.compat.v1.GraphKeys.GLOBAL_VARIABLES, pattern):
        return (
            f" A list of patterns is looked up in all variables: vars_to_warm_start=[{pattern!r}]."
        )
    return suggestion(pattern, names) or f" The model has {_some(names, 'none')}."


def _some(names: list[str], none: str = "") -> str:
    more = [f"{len(names) - _SHOWN:,} more"] if len(names) > _SHOWN else []
    return ", ".join([*names[:_SHOWN], *more]) or none
