# SPDX-License-Identifier: Apache-2.0
"""Bad input, found when the step runs: an error before any table changes, or ids dropped."""

import contextlib
import dataclasses

import tensorflow as tf

from estimator_emb.spec import Table
from estimator_emb.tables import forms
from estimator_emb.tables.forms import Problem
from estimator_emb.tables.inputs import Ids

_TOGETHER = " Batch the whole dataset, with drop_remainder=True."


def check(inputs: list[Ids], batch_size: int | None = None) -> list[Ids]:
    """`inputs`, whose use in the graph waits until all of them are found good; see `checked`."""
    return checked(inputs, batch_size)[0]


def checked(inputs: list[Ids], batch_size: int | None = None) -> tuple[list[Ids], tf.Tensor]:
    """`inputs`, whose use in the graph waits until all of them are found good, and that finding.

    When the step runs, any of these stops it before anything is looked up or written: values and
    indices that differ in number, a dense shape that is negative or larger than memory, a batch
    without samples, features of different batch sizes, a sparse index outside the dense shape, two
    ids at one position of a sequence, another number of weights than of ids, weights at other
    places, an id outside [0, vocabulary size), a weight that is NaN or infinite, or another batch
    size than `batch_size`, where that is given.

    Raises:
      tf.errors.InvalidArgumentError: when the step runs, naming feature, table and value.
    """
    first = inputs[0]
    with after_forms(inputs):
        problems = [
            problem
            for one in inputs
            for problem in (
                *_of_batch(one, first, batch_size),
                *_of_places(one),
                _bad_id(one),
                _bad_weight(one),
            )
            if problem is not None
        ]
        good = require(problems, "check_ids")
    with tf.control_dependencies([good]):
        return [
            dataclasses.replace(
                of_size(one, batch_size),
                ids=_narrow(one),
                weights=None if one.weights is None else tf.identity(one.weights),
            )
            for one in inputs
        ], good


def after_forms(inputs: list[Ids]) -> contextlib.AbstractContextManager:
    """A context for ops that read `inputs` as they came: they wait until the forms were checked.

    So does all that was read from them before.
    """
    problems = [problem for one in inputs for problem in forms.problems(one)]
    if not problems:
        return contextlib.nullcontext()
    good = require(problems, "check_forms")
    for one in inputs:
        forms.hold(one, good)
    return tf.control_dependencies([good])


def require(problems: list[Problem], name: str) -> tf.Tensor:
    """A tensor that cannot be computed where there is a problem; the first is the error."""
    good = tf.reduce_all(tf.stack([holds for holds, _ in problems]))

    def explain() -> tf.Tensor:
        # In order: the first problem found is the one reported.
        previous: list[tf.Operation] = []
        for holds, message in problems:
            stops = tf.raw_ops.Assert(condition=holds, data=[message()], summarize=1)
            if not tf.executing_eagerly():
                # Not by tf.control_dependencies, which leaves out an op whose input is first
                # captured under them.
                stops._add_control_inputs(previous)
                previous = [stops]
        with tf.control_dependencies(previous):
            return tf.constant(False)

    with tf.name_scope(name):
        return tf.cond(good, lambda: tf.constant(True), explain)


def readable(message: str) -> str:
    """The message of an error of `checked`, whose op puts a backslash before each quote."""
    return message.replace("\\'", "'")


def of_size(one: Ids, batch_size: int | None) -> Ids:
    """`one` of a batch of the size that `check` holds it to.

    Raises:
      ValueError: the graph fixes another size.
    """
    if batch_size is None:
        return one
    lengths, samples = one.lengths, one.static_batch
    if samples is None and lengths is not None:
        samples = tf.compat.dimension_value(lengths.shape[0])
    if samples not in (None, batch_size):
        raise ValueError(
            f"{one.owner} has {samples} samples, but the batch size is {batch_size}." + _TOGETHER
        )
    if lengths is not None:
        lengths = tf.identity(lengths)
        lengths.set_shape([batch_size])
    return dataclasses.replace(one, static_batch=batch_size, lengths=lengths)


def reading_holds(inputs: list[Ids]) -> list[tf.Tensor]:
    """Returns what reading `inputs` alone can tell: bool scalars that hold where all is well.

    It is the part of what `check` asks that cannot be seen in ids, segments and weights any more.
    """
    return [
        holds
        for one in inputs
        for problem in (
            _misplaced(one),
            _unequal_weights(one),
            _misplaced_weights(one),
            None if one.uncut is None else _bad_id(one),
        )
        if problem is not None
        for holds, _ in [problem]
    ]


def _of_batch(one: Ids, first: Ids, batch_size: int | None) -> list[Problem | None]:
    return [_empty_batch(one), _other_batch(one, first), _wrong_batch(one, batch_size)]


def _of_places(one: Ids) -> list[Problem | None]:
    return [_misplaced(one), _repeated(one), _unequal_weights(one), _misplaced_weights(one)]


def _empty_batch(one: Ids) -> Problem | None:
    if one.static_batch:
        return None
    return one.batch > 0, lambda: tf.constant(f"{one.owner}: the batch has no samples.")


def _other_batch(one: Ids, first: Ids) -> Problem | None:
    if one is first:
        return None
    if one.static_batch is not None and one.static_batch == first.static_batch:
        return None
    text = f"{one.owner} has {{}} samples, but feature {first.feature.key} has {{}}."
    text += " All features of a batch need the same number."
    return (
        tf.equal(one.batch, first.batch),
        lambda: tf.strings.format(text, (one.batch, first.batch)),
    )


def _wrong_batch(one: Ids, batch_size: int | None) -> Problem | None:
    if batch_size is None or one.static_batch == batch_size:
        return None
    text = f"{one.owner} has {{}} samples, but the batch size is {batch_size}."
    text += _TOGETHER
    return tf.equal(one.batch, batch_size), lambda: tf.strings.format(text, (one.batch,))


def _misplaced(one: Ids) -> Problem | None:
    if one.places is None:
        return None
    places = one.places
    text = f"{one.owner}: sparse index {{}} is outside the dense shape {{}}."
    return (
        places.all_inside(),
        lambda: tf.strings.format(
            text, (_first(places.indices, tf.logical_not(places.inside())), places.shape)
        ),
    )


def _repeated(one: Ids) -> Problem | None:
    """Two ids of a combined feature may share an index; in a sequence they would be added up."""
    if one.places is None or one.lengths is None:
        return None
    assert one.segments is not None
    limit = one.segments_per_sample
    counts = tf.math.unsorted_segment_sum(
        tf.ones_like(one.segments, tf.int32), one.segments, one.batch * limit
    )
    text = f"{one.owner}: two ids stand at position {{}} of the sequence of sample {{}}."

    def message() -> tf.Tensor:
        segment = _first(tf.range(one.batch * limit), counts > 1)
        return tf.strings.format(text, (segment % limit, segment // limit))

    return tf.reduce_all(counts <= 1), message


def _unequal_weights(one: Ids) -> Problem | None:
    if one.fit is None:
        return None
    counts = one.fit.ids, one.fit.weights
    text = f"{one.owner} has {{}} ids but {{}} weights."
    return tf.equal(*counts), lambda: tf.strings.format(text, counts)


def _misplaced_weights(one: Ids) -> Problem | None:
    if one.fit is None:
        return None
    text = f"{one.owner}: its weights stand at other indices than its ids."
    return one.fit.aligned, lambda: tf.constant(text)


def outside(table: Table, ids: tf.Tensor) -> tf.Tensor:
    """Returns bool [n]: which ids are outside [0, vocabulary size)."""
    size = table.config.vocabulary_size
    if size > ids.dtype.max:
        return ids < 0
    return (ids < 0) | (ids >= tf.constant(size, ids.dtype))


def _bad_id(one: Ids) -> Problem:
    ids = one.ids if one.uncut is None else one.uncut
    bad = outside(one.table, ids)
    text = f"{one.owner}: id {{}} is outside [0, {one.table.config.vocabulary_size})."
    text += " TPUConfig(bad_ids='drop') leaves such ids out and counts them."
    return (
        tf.logical_not(tf.reduce_any(bad)),
        lambda: tf.strings.format(text, (_first(ids, bad),)),
    )


def _bad_weight(one: Ids) -> Problem | None:
    if one.weights is None:
        return None
    weights = one.weights
    finite = tf.math.is_finite(weights)
    text = f"{one.owner}: weight {{}} is not finite."
    return (
        tf.reduce_all(finite),
        lambda: tf.strings.format(text, (_first(weights, tf.logical_not(finite)),)),
    )


def _first(values: tf.Tensor, chosen: tf.Tensor) -> tf.Tensor:
    # One more element keeps this defined in a branch that runs for another feature's problem.
    none = tf.zeros([1, *values.shape[1:]], values.dtype)
    some = tf.concat([tf.boolean_mask(values, chosen), none], axis=0)
    return some[0]


def _narrow(one: Ids) -> tf.Tensor:
    # Half the bytes to hash and compare; the check has shown that the ids fit.
    dtype = tf.int32 if one.table.config.vocabulary_size <= tf.int32.max else tf.int64
    if one.ids.dtype == dtype:
        return tf.identity(one.ids)  # A cast would be no op, and not wait for the check.
    return tf.cast(one.ids, dtype)
