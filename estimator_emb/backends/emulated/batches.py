# SPDX-License-Identifier: Apache-2.0
"""Joins the batches of several cores into one, after each was found good by itself.

In the joined batch, an index beyond one core's samples would look like an index of the next core.
"""

import contextlib
from collections.abc import Mapping
from typing import Any

import tensorflow as tf

from estimator_emb.checks import input_errors
from estimator_emb.step import forms
from estimator_emb.step.checks import require
from estimator_emb.step.inputs import SparsePlaces


def after_checks(
    of_cores: Mapping[str, list[Any]],
) -> contextlib.AbstractContextManager:
    """Makes a context for ops that join the cores' values by feature, each good by itself."""
    fit, inside = [], []
    for key, values in of_cores.items():
        for core, value in enumerate(values):
            owner = input_errors.owner(key, core)
            if isinstance(value, (tf.RaggedTensor, tf.SparseTensor)):
                fit += forms.of_parts(owner, value)
            elif value.shape.rank == 2 and not value.shape[1:].is_fully_defined():
                fit += _as_wide(owner, value, values[0])
    if not fit:
        return contextlib.nullcontext()
    checked = require(fit, "check_forms")
    with tf.control_dependencies([checked]):
        for key, values in of_cores.items():
            for core, value in enumerate(values):
                owner = input_errors.owner(key, core)
                if isinstance(value, tf.SparseTensor):
                    inside.append(_inside(owner, value))
                inside += _as_many(owner, value, values[0])
        if inside:
            checked = require(inside, "check_places")
    return tf.control_dependencies([checked])


def concatenated(values: list[Any]) -> Any:
    """Returns the samples of all cores, one core after the other."""
    if not isinstance(values[0], tf.SparseTensor):
        return tf.concat(values, axis=0)
    if values[0].shape.rank not in (None, 2):
        return values[0]  # `inputs.source_of` refuses it.
    # tf.sparse.concat ends the process where the dense shapes have too many places to be counted.
    shapes = tf.stack([value.dense_shape for value in values])
    starts = tf.cumsum(shapes[:, 0], exclusive=True)
    indices = [value.indices + tf.stack([starts[core], 0]) for core, value in enumerate(values)]
    return tf.SparseTensor(
        tf.concat(indices, axis=0),
        tf.concat([value.values for value in values], axis=0),
        tf.stack([tf.reduce_sum(shapes[:, 0]), tf.reduce_max(shapes[:, 1])]),
    )


def _as_wide(owner: str, value: tf.Tensor, first: tf.Tensor) -> list[forms.Problem]:
    if value is first:
        return []
    widths = tf.shape(first)[1], tf.shape(value)[1]
    text = f"{owner} have shape {{}}, but those of core 0 have {{}}: pad batches to one width."
    shapes = tf.shape(value), tf.shape(first)
    return [(tf.equal(*widths), forms.message(text, *shapes))]


def _as_many(owner: str, value: Any, first: Any) -> list[forms.Problem]:
    if value is first or (value.shape.rank and value.shape[0] == first.shape[0] is not None):
        return []
    counts = samples(value), samples(first)
    text = f"{owner} have {{}} samples, but those of core 0 have {{}}."
    return [(tf.equal(*counts), forms.message(text, *counts))]


def samples(value: Any) -> tf.Tensor:
    """Returns the number of samples of a value of a batch, int64."""
    if isinstance(value, tf.SparseTensor):
        return value.dense_shape[0]
    if isinstance(value, tf.RaggedTensor):
        return tf.cast(value.nrows(), tf.int64)
    return tf.shape(value, out_type=tf.int64)[0]


def _inside(owner: str, value: tf.SparseTensor) -> forms.Problem:
    places = SparsePlaces(value.indices, value.dense_shape)
    few = tf.reduce_all(value.dense_shape >= 0) & (value.dense_shape[0] < 2**31)
    text = f"{owner} have sparse indices outside the dense shape {{}}."
    return few & places.all_inside(), forms.message(text, value.dense_shape)
