# SPDX-License-Identifier: Apache-2.0
"""Bad input, found when the step runs: an error before any table changes, or ids dropped."""

import dataclasses
from collections.abc import Callable

import tensorflow as tf

from estimator_emb.tables.inputs import Ids


def check(inputs: list[Ids], batch_size: int | None = None) -> list[Ids]:
    """`inputs`, whose use in the graph waits until all of them are found good.

    When the step runs, any of these stops it before anything is looked up or written: a batch
    without samples, features of different batch sizes, a sparse index outside the dense shape, two
    ids at one position of a sequence, another number of weights than of ids, weights at other
    places, an id outside [0, vocabulary size), a weight that is NaN or infinite, or another batch
    size than `batch_size`, where that is given.

    Raises:
      tf.errors.InvalidArgumentError: when the step runs, naming feature, table and value.
    """
    first = inputs[0]
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
    good = tf.reduce_all(tf.stack([holds for holds, _ in problems]))

    def explain() -> tf.Tensor:
        # In order: the first problem found is the one reported.
        previous: list[tf.Operation] = []
        for holds, message in problems:
            with tf.control_dependencies(previous):
                previous = [tf.raw_ops.Assert(condition=holds, data=[message()], summarize=1)]
        with tf.control_dependencies(previous):
            return tf.constant(False)

    with tf.name_scope("check_ids"):
        checked = tf.cond(good, lambda: tf.constant(True), explain)
    with tf.control_dependencies([checked]):
        return [
            dataclasses.replace(
                of_size(one, batch_size),
                ids=_narrow(one),
                weights=None if one.weights is None else tf.identity(one.weights),
            )
            for one in inputs
        ]


def of_size(one: Ids, batch_size: int | None) -> Ids:
    """`one` of a batch of the size that `check` holds it to.

    Raises:
      ValueError: the graph fixes another size.
    """
    if batch_size is None:
        return one
    if one.static_batch not in (None, batch_size):
        raise ValueError(
            f"{one.owner} has {one.static_batch} samples, but the batch size is {batch_size}."
        )
    lengths = one.lengths
    if lengths is not None:
        lengths = tf.identity(lengths)
        lengths.set_shape([batch_size])
    return dataclasses.replace(one, static_batch=batch_size, lengths=lengths)


def places_hold(inputs: list[Ids], batch_size: int | None) -> list[tf.Tensor]:
    """Of what `check` asks, all that neither concerns an id or a weight by itself nor whether
    features have batches of one size, at least 1: bool scalars that hold where all is well."""
    return [
        holds
        for one in inputs
        for problem in (_wrong_batch(one, batch_size), *_of_places(one))
        if problem is not None
        for holds, _ in [problem]
    ]


_Problem = tuple[tf.Tensor, Callable[[], tf.Tensor]]
"""A bool tensor that holds where all is well, and the message where it does not."""


def _of_batch(one: Ids, first: Ids, batch_size: int | None) -> list[_Problem | None]:
    return [_empty_batch(one), _other_batch(one, first), _wrong_batch(one, batch_size)]


def _of_places(one: Ids) -> list[_Problem | None]:
    return [_misplaced(one), _repeated(one), _unequal_weights(one), _misplaced_weights(one)]


def _empty_batch(one: Ids) -> _Problem | None:
    if one.static_batch:
        return None
    return one.batch > 0, lambda: tf.constant(f"{one.owner}: the batch has no samples.")


def _other_batch(one: Ids, first: Ids) -> _Problem | None:
    if one is first:
        return None
    if one.static_batch is not None and one.static_batch == first.static_batch:
        return None
    text = f"{one.owner} has {{}} samples, but feature {first.feature.key} has {{}}."
    return (
        tf.equal(one.batch, first.batch),
        lambda: tf.strings.format(text, (one.batch, first.batch)),
    )


def _wrong_batch(one: Ids, batch_size: int | None) -> _Problem | None:
    if batch_size is None or one.static_batch == batch_size:
        return None
    text = f"{one.owner} has {{}} samples, but the batch size is {batch_size}."
    return tf.equal(one.batch, batch_size), lambda: tf.strings.format(text, (one.batch,))


def _misplaced(one: Ids) -> _Problem | None:
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


def _repeated(one: Ids) -> _Problem | None:
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


def _unequal_weights(one: Ids) -> _Problem | None:
    if one.fit is None:
        return None
    counts = one.fit.ids, one.fit.weights
    text = f"{one.owner} has {{}} ids but {{}} weights."
    return tf.equal(*counts), lambda: tf.strings.format(text, counts)


def _misplaced_weights(one: Ids) -> _Problem | None:
    if one.fit is None:
        return None
    text = f"{one.owner}: its weights stand at other indices than its ids."
    return one.fit.aligned, lambda: tf.constant(text)


def outside(one: Ids) -> tf.Tensor:
    """bool [n]: ids outside [0, vocabulary size)."""
    size = one.table.config.vocabulary_size
    if size > one.ids.dtype.max:
        return one.ids < 0
    return (one.ids < 0) | (one.ids >= tf.constant(size, one.ids.dtype))


def _bad_id(one: Ids) -> _Problem:
    bad = outside(one)
    text = f"{one.owner}: id {{}} is outside [0, {one.table.config.vocabulary_size})."
    return (
        tf.logical_not(tf.reduce_any(bad)),
        lambda: tf.strings.format(text, (_first(one.ids, bad),)),
    )


def _bad_weight(one: Ids) -> _Problem | None:
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
    small = one.table.config.vocabulary_size <= tf.int32.max
    return tf.cast(one.ids, tf.int32 if small else tf.int64)
