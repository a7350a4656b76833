"""Finds bad input when the step runs, and stops the step before any table changes."""

import contextlib
import dataclasses
from collections.abc import Iterator

import tensorflow as tf

from estimator_emb.engine import structure_checks
from estimator_emb.engine.inputs import Ids, Source
from estimator_emb.engine.structure_checks import Problem
from estimator_emb.spec.resolved import Table

_TOGETHER = " Batch the whole dataset, with drop_remainder=True."


def checked(inputs: list[Ids], batch_size: int | None = None) -> tuple[list[Ids], tf.Tensor]:
    """Returns `inputs`, which ops can read only once all of them are found good, and that finding.

    Any of these stops a step before anything is looked up or written: values and indices that
    differ in number, a dense shape that is negative or larger than memory, a batch without samples,
    features of different batch sizes, a sparse index outside the dense shape, two ids at one
    position of a sequence, another number of weights than of ids, weights at other places, an id
    outside [0, vocabulary size), a weight that is NaN or infinite, or a batch size other than
    `batch_size`. The tf.errors.InvalidArgumentError names feature, table and value.
    """
    with after_forms(inputs):
        good = require(list(_problems(inputs, batch_size)), "check_ids")
    with tf.control_dependencies([good]):
        return [
            dataclasses.replace(
                with_batch_size(ids, batch_size),
                ids=_narrow(ids),
                weights=None if ids.weights is None else tf.identity(ids.weights),
            )
            for ids in inputs
        ], good


def _problems(inputs: list[Ids], batch_size: int | None) -> Iterator[Problem]:
    for ids in inputs:
        yield from _batch_problems(ids, inputs[0], batch_size)
        yield from _misplaced(ids)
        yield from _repeated(ids)
        yield from _weight_problems(ids)
        yield _bad_id(ids)
        yield from _bad_weight(ids)


def problems(inputs: list[Ids], batch_size: int | None) -> Iterator[Problem]:
    """Yields what `checked` requires, in the order in which it raises an error."""
    for ids in inputs:
        yield from structure_checks.problems(ids)
    yield from _problems(inputs, batch_size)


def after_forms(inputs: list[Ids]) -> contextlib.AbstractContextManager:
    """Returns a context that waits for the check of forms, as the ops that read `inputs` do."""
    problems = [problem for ids in inputs for problem in structure_checks.problems(ids)]
    if not problems:
        return contextlib.nullcontext()
    good = require(problems, "check_forms")
    for ids in inputs:
        structure_checks.hold(ids.source, good)
    return tf.control_dependencies([good])


def require(problems: list[Problem], name: str) -> tf.Tensor:
    """Returns a tensor that fails in a step with a problem; the error reports the first one."""
    good = tf.reduce_all(tf.stack([holds for holds, _ in problems]))

    def explain() -> tf.Tensor:
        # In order: the first problem found is the one reported.
        previous: list[tf.Operation] = []
        for holds, message in problems:
            stops = tf.raw_ops.Assert(condition=holds, data=[message()], summarize=1)
            if not tf.executing_eagerly():
                # tf.control_dependencies would leave out an op if one of its inputs is first
                # captured inside of the context.
                stops._add_control_inputs(previous)
                previous = [stops]
        with tf.control_dependencies(previous):
            return tf.constant(False)

    with tf.name_scope(name):
        return tf.cond(good, lambda: tf.constant(True), explain)


def readable(message: str) -> str:
    """Returns an error message of `checked` without the backslashes before its quotes."""
    return message.replace("\\'", "'")


def with_batch_size(ids: Ids, batch_size: int | None) -> Ids:
    """Returns `ids` with `batch_size`, if given, in their static shapes."""
    if batch_size is None:
        return ids
    lengths, samples = ids.lengths, ids.static_batch
    if samples is None and lengths is not None:
        samples = tf.compat.dimension_value(lengths.shape[0])
    check_size(ids, samples, batch_size)
    if lengths is not None:
        lengths = tf.identity(lengths)
        lengths.set_shape([batch_size])
    return dataclasses.replace(ids, static_batch=batch_size, lengths=lengths)


def check_size(of: Ids | Source, samples: int | None, batch_size: int | None) -> None:
    """Raises ValueError if the graph fixes another number of samples than `batch_size`."""
    if samples is not None and batch_size not in (None, samples):
        raise ValueError(
            f"{of.owner} has {samples} samples, but the batch size is {batch_size}." + _TOGETHER
        )


def reading_holds(inputs: list[Ids]) -> list[tf.Tensor]:
    """Returns bool scalars, True if all is well, for what only the input as it came can tell.

    They are the part of `checked` that ids, segments and weights no longer show.
    """
    return [
        holds
        for ids in inputs
        for holds, _ in (
            *_misplaced(ids),
            *_weight_problems(ids),
            *([] if ids.uncut is None else [_bad_id(ids)]),
        )
    ]


def _batch_problems(ids: Ids, first: Ids, batch_size: int | None) -> Iterator[Problem]:
    if not ids.static_batch:
        yield ids.batch > 0, structure_checks.message(f"{ids.owner}: the batch has no samples.")
    known_alike = ids.static_batch is not None and ids.static_batch == first.static_batch
    if ids is not first and not known_alike:
        text = f"{ids.owner} has {{}} samples, but feature {first.feature.key} has {{}}."
        text += " All features of a batch need the same number."
        yield (
            tf.equal(ids.batch, first.batch),
            structure_checks.message(text, ids.batch, first.batch),
        )
    if batch_size is not None and ids.static_batch != batch_size:
        text = f"{ids.owner} has {{}} samples, but the batch size is {batch_size}.{_TOGETHER}"
        yield tf.equal(ids.batch, batch_size), structure_checks.message(text, ids.batch)


def _misplaced(ids: Ids) -> Iterator[Problem]:
    places = ids.places
    if places is not None:
        text = f"{ids.owner}: sparse index {{}} is outside the dense shape {{}}."

        def message() -> tf.Tensor:
            index = _first(places.indices, tf.logical_not(places.inside()))
            return tf.strings.format(text, (index, places.shape))

        yield places.all_inside(), message


def _repeated(ids: Ids) -> Iterator[Problem]:
    if ids.places is None or ids.lengths is None:
        return
    assert ids.segments is not None
    limit = ids.segments_per_sample
    counts = tf.math.unsorted_segment_sum(
        tf.ones_like(ids.segments, tf.int32), ids.segments, ids.batch * limit
    )
    text = f"{ids.owner}: two ids stand at position {{}} of the sequence of sample {{}}."

    def message() -> tf.Tensor:
        segment = _first(tf.range(ids.batch * limit), counts > 1)
        return tf.strings.format(text, (segment % limit, segment // limit))

    yield tf.reduce_all(counts <= 1), message


def _weight_problems(ids: Ids) -> Iterator[Problem]:
    if ids.fit is not None:
        counts = ids.fit.ids, ids.fit.weights
        yield (
            tf.equal(*counts),
            structure_checks.message(f"{ids.owner} has {{}} ids but {{}} weights.", *counts),
        )
        text = f"{ids.owner}: its weights stand at other indices than its ids."
        yield ids.fit.aligned, structure_checks.message(text)


def outside(table: Table, ids: tf.Tensor) -> tf.Tensor:
    """Returns, as bool [n], which ids are outside [0, vocabulary size)."""
    size = table.config.vocabulary_size
    if size > ids.dtype.max:
        return ids < 0
    return (ids < 0) | (ids >= tf.constant(size, ids.dtype))


def _bad_id(ids: Ids) -> Problem:
    values = ids.ids if ids.uncut is None else ids.uncut
    bad = outside(ids.table, values)
    text = f"{ids.owner}: id {{}} is outside [0, {ids.table.config.vocabulary_size})."
    text += " TPUConfig(bad_ids='drop') leaves such ids out and counts them."
    good = tf.logical_not(tf.reduce_any(bad))
    return good, lambda: tf.strings.format(text, (_first(values, bad),))


def _bad_weight(ids: Ids) -> Iterator[Problem]:
    weights = ids.weights
    if weights is not None:
        finite = tf.math.is_finite(weights)
        text = f"{ids.owner}: weight {{}} is not finite."

        def message() -> tf.Tensor:
            return tf.strings.format(text, (_first(weights, tf.logical_not(finite)),))

        yield tf.reduce_all(finite), message


def _first(values: tf.Tensor, chosen: tf.Tensor) -> tf.Tensor:
    # One more element, because this also runs for a feature without a problem if another has one.
    none = tf.zeros([1, *values.shape[1:]], values.dtype)
    some = tf.concat([tf.gather(values, tf.where(chosen)[:1, 0]), none], axis=0)
    return some[0]


def _narrow(ids: Ids) -> tf.Tensor:
    # int32 has half the bytes to hash and compare, and the check has shown that the ids fit.
    dtype = tf.int32 if ids.table.config.vocabulary_size <= tf.int32.max else tf.int64
    if ids.ids.dtype == dtype:
        return tf.identity(ids.ids)  # tf.cast would make no op that waits for the check.
    return tf.cast(ids.ids, dtype)
