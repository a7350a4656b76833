"""Checks the input when a step runs, and stops the step before any table changes."""

import contextlib
import dataclasses
from collections.abc import Iterator

import tensorflow as tf

from estimator_emb.engine import structure_checks
from estimator_emb.engine.bad_values import text
from estimator_emb.engine.inputs import Ids, Source
from estimator_emb.engine.structure_checks import Problem


def checked(inputs: list[Ids], batch_size: int | None = None) -> tuple[list[Ids], tf.Tensor]:
    """Returns `inputs`, guarded by checks at run time, and the tensor that runs the checks.

    Ops that read the returned inputs wait for the checks. These problems stop a step before it
    looks up or writes anything, with a tf.errors.InvalidArgumentError that names feature, table and
    value:

    * Values and indices differ in number. A dense shape is negative or larger than memory.
    * A batch is empty, or its size is not `batch_size`. Features have different batch sizes.
    * A sparse index is outside the dense shape. Two ids have the same position in a sequence.
    * Weights differ from the ids in number or position. A weight is NaN or infinite.
    * An id is outside [0, vocabulary size).
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
    yield from _bad_ids(inputs)
    for ids in inputs:
        yield from _bad_weight(ids)


def after_forms(inputs: list[Ids]) -> contextlib.AbstractContextManager:
    """Makes readers of `inputs`, and ops in the returned context, wait for structure checks."""
    problems = [problem for ids in inputs for problem in structure_checks.problems(ids)]
    if not problems:
        return contextlib.nullcontext()
    good = require(problems, "check_forms")
    for ids in inputs:
        structure_checks.hold(ids.source, good)
    return tf.control_dependencies([good])


def require(problems: list[Problem], name: str) -> tf.Tensor:
    """Returns a tensor that fails in a step with a problem. The error reports the first problem."""
    good = tf.reduce_all(tf.stack([holds for holds, _ in problems]))

    def explain() -> tf.Tensor:
        # The assertions run in order, so that the first problem is reported.
        previous: list[tf.Operation] = []
        for holds, message in problems:
            stops = tf.raw_ops.Assert(condition=holds, data=[message()])
            if not tf.executing_eagerly():
                # tf.control_dependencies would ignore an op with an input that is first captured
                # inside the context.
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
    """Returns `ids` with their static batch size set to `batch_size`, if given."""
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
    """Raises ValueError if the static number of samples differs from `batch_size`."""
    if samples is not None and batch_size not in (None, samples):
        said = text("batch size", owner=of.owner, size=batch_size)
        raise ValueError(said.replace("{}", str(samples)))


def reading_holds(inputs: list[Ids]) -> list[tf.Tensor]:
    """Returns the checks that need the original input, as bool scalars, True if all is well.

    For the other checks of `checked`, ids, segments and weights are enough.
    """
    cut = [ids for ids in inputs if ids.uncut is not None]
    possible = [
        *_bad_ids(cut),
        *(problem for ids in inputs for problem in (*_misplaced(ids), *_weight_problems(ids))),
    ]
    return [holds for holds, _ in possible]


def _batch_problems(ids: Ids, first: Ids, batch_size: int | None) -> Iterator[Problem]:
    if not ids.static_batch:
        yield ids.batch > 0, structure_checks.message(text("empty", owner=ids.owner))
    known_alike = ids.static_batch is not None and ids.static_batch == first.static_batch
    if ids is not first and not known_alike:
        said = text("samples", owner=ids.owner, first=first.feature.key)
        yield (
            tf.equal(ids.batch, first.batch),
            structure_checks.message(said, ids.batch, first.batch),
        )
    if batch_size is not None and ids.static_batch != batch_size:
        said = text("batch size", owner=ids.owner, size=batch_size)
        yield tf.equal(ids.batch, batch_size), structure_checks.message(said, ids.batch)


def _misplaced(ids: Ids) -> Iterator[Problem]:
    places = ids.places
    if places is not None:

        def message() -> tf.Tensor:
            index = _first(places.indices, tf.logical_not(places.inside()))
            return tf.strings.format(text("misplaced", owner=ids.owner), (index, places.shape))

        yield places.all_inside(), message


def _repeated(ids: Ids) -> Iterator[Problem]:
    if ids.places is None or ids.lengths is None:
        return
    assert ids.segments is not None
    limit = ids.segments_per_sample
    counts = tf.math.unsorted_segment_sum(
        tf.ones_like(ids.segments, tf.int32), ids.segments, ids.batch * limit
    )

    def message() -> tf.Tensor:
        segment = _first(tf.range(ids.batch * limit), counts > 1)
        said = text("repeated", owner=ids.owner)
        return tf.strings.format(said, (segment % limit, segment // limit))

    yield tf.reduce_all(counts <= 1), message


def _weight_problems(ids: Ids) -> Iterator[Problem]:
    if ids.fit is not None:
        counts = ids.fit.ids, ids.fit.weights
        said = text("weights", owner=ids.owner)
        yield tf.equal(*counts), structure_checks.message(said, *counts)
        yield ids.fit.aligned, structure_checks.message(text("aligned", owner=ids.owner))


def _bad_ids(inputs: list[Ids]) -> Iterator[Problem]:
    """Yields a single check of the ids of all features, because each op prolongs the start."""
    if not inputs:
        return
    values = [ids.ids if ids.uncut is None else ids.uncut for ids in inputs]
    sizes = tf.constant([ids.table.config.vocabulary_size for ids in inputs], tf.int64)
    axis = tf.constant(0)
    lowest, highest = (
        tf.stack([tf.cast(extreme(input=one, axis=axis), tf.int64) for one in values])
        for extreme in (tf.raw_ops.Min, tf.raw_ops.Max)
    )

    def message() -> tf.Tensor:
        counts = tf.stack([tf.size(one) for one in values])
        every = tf.concat([tf.cast(one, tf.int64) for one in values], axis=0)
        bad = (every < 0) | (every >= tf.repeat(sizes, counts))
        feature = _first(tf.repeat(tf.range(len(inputs)), counts), bad)
        said = [
            text("id", owner=ids.owner, size=ids.table.config.vocabulary_size) for ids in inputs
        ]
        shown = tf.strings.as_string(_first(every, bad))
        return tf.strings.regex_replace(tf.gather(said, feature), r"\{\}", shown)

    yield tf.reduce_all((lowest >= 0) & (highest < sizes)), message


def _bad_weight(ids: Ids) -> Iterator[Problem]:
    weights = ids.weights
    if weights is not None:
        finite = tf.math.is_finite(weights)

        def message() -> tf.Tensor:
            bad = _first(weights, tf.logical_not(finite))
            return tf.strings.format(text("weight", owner=ids.owner), (bad,))

        yield tf.reduce_all(finite), message


def _first(values: tf.Tensor, chosen: tf.Tensor) -> tf.Tensor:
    # Appends an element, because this also runs for features without a problem.
    none = tf.zeros([1, *values.shape[1:]], values.dtype)
    some = tf.concat([tf.gather(values, tf.where(chosen)[:1, 0]), none], axis=0)
    return some[0]


def _narrow(ids: Ids) -> tf.Tensor:
    # int32 ids have half the bytes to hash and compare. The check has shown that they fit.
    dtype = tf.int32 if ids.table.config.vocabulary_size <= tf.int32.max else tf.int64
    if ids.ids.dtype == dtype:
        return tf.identity(ids.ids)  # tf.cast would create no op that can wait for the check.
    return tf.cast(ids.ids, dtype)
