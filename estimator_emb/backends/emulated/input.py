"""Feeds the cores of an emulated TPU, depending on the deployment of input_fn.

    PER_SHARD_V1  calls input_fn for each core
    PER_HOST_V1   calls input_fn for each host, and splits the batch among the host's cores
    PER_HOST_V2   calls input_fn for each host, and each core takes the next batch of the dataset
    BROADCAST     calls input_fn once, on host 0, and every core gets the whole batch
    SLICED        for evaluation and prediction: like BROADCAST, but splits the batch among cores

If a model's replica spans several cores, the replica is fed like a single core.

Source: `_InputPipeline` of tensorflow_estimator/python/estimator/tpu/tpu_estimator.py, 2.15.0.
"""

import contextlib
import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import tensorflow as tf

from estimator_emb.backends import tpu_checks
from estimator_emb.backends.emulated.topology import EmulatedContext, host_calls, replicas_of
from estimator_emb.compat.internals.estimators import ModeKeys
from estimator_emb.compat.internals.graphs import data_nest, not_converted
from estimator_emb.compat.internals.tpu_estimator import Inputs, TPUContext
from estimator_emb.engine import structure_checks
from estimator_emb.engine.bad_input import require
from estimator_emb.engine.cores import Cores, parts_of
from estimator_emb.engine.inputs import SparsePlaces
from estimator_emb.guards.checks import batch_names
from estimator_emb.reporting import error_notes
from estimator_emb.spec.resolved import Table


@dataclasses.dataclass(frozen=True)
class CoreInput:
    """The input of core 0. `Cores.per_core` has registered the input of the other cores.

    Attributes:
      features: the features that no table consumes.
      looked_up: the features that tables consume, for the whole batch.
      real: in prediction, bool [samples of all cores], False for samples that pad the last batch.
        None in other modes.
    """

    features: Any
    labels: Any
    looked_up: Any
    real: tf.Tensor | None
    initializers: list[tf.Operation]


_Batch = dict[str, Any]
"""Features, optional labels, and in prediction `real`, which is False for padding."""


def read_cores(
    ctx: EmulatedContext,
    input_fn: Callable[[TPUContext], Any],
    batch_axis: Sequence[int] | None,
    cores: Cores,
    tables: Sequence[Table],
    consumed: set[str],
    from_previous_step: Callable[[Any], Any],
) -> CoreInput:
    """Calls input_fn as often as its deployment requires, and returns the input of the cores.

    `batch_axis` holds the axis that PER_HOST_V1 splits, for each tensor of features and labels.
    `consumed` and `from_previous_step` are as in `TableStep`.

    Raises:
      TypeError: the deployment needs a dataset and input_fn returns tensors, or the reverse.
      ValueError: `batch_axis` has a wrong length, or input_fn calls yield different features or
        labels. `tpu_checks.check_infeed` raises both types of errors too.
    """
    fed, initializers = _fed(ctx, input_fn, batch_axis, cores.own)
    real = [batch["real"] for batch, _ in fed if "real" in batch]
    parts: dict[int, _Batch] = {}
    for batch, replicas in fed:
        kept = {key: value for key, value in batch.items() if key != "real"}
        kept["features"] = _without(batch["features"], consumed)
        tpu_checks.check_infeed(kept, cores.count)
        divided = [kept] * len(replicas)
        if len(replicas) > 1 and not _same_for_all(ctx):
            size = ctx.batch_size_for_input_fn
            divided = _split(kept, batch_axis, len(replicas), size)
        parts.update(zip(replicas, divided, strict=True))
    of_cores = [parts[core] for core in cores.own]
    for core, batch in zip(cores.own, of_cores, strict=True):
        _check_same(of_cores[0], batch, core)
    # A batch that all cores share is processed once.
    distinct = of_cores[:1] if _same_for_all(ctx) else of_cores
    each = [data_nest.flatten(batch) for batch in distinct]
    if _same_for_all(ctx):
        each = [ctx.host.batch_of_chief(each[0])]
    flat = from_previous_step(each)
    if len(distinct) > 1:
        mine = [cores.per_core(values) for values in zip(*flat, strict=True)]
    else:
        mine = flat[0]
    packed = data_nest.pack_sequence_as(of_cores[0], mine)
    return CoreInput(
        features=packed["features"],
        labels=packed.get("labels"),
        looked_up=_merged([batch["features"] for batch, _ in fed], consumed, tables),
        real=tf.concat(real, axis=0) if real else None,
        initializers=initializers,
    )


def _fed(
    ctx: EmulatedContext, input_fn: Callable[..., Any], batch_axis: Sequence[int] | None, own: range
) -> tuple[list[tuple[_Batch, Sequence[int]]], list[tf.Operation]]:
    """Returns a step's batches with the replicas they feed, and the initializers of iterators."""
    fed: list[tuple[_Batch, Sequence[int]]] = []
    initializers: list[tf.Operation] = []
    broadcast = ctx.is_input_broadcast_with_iterators()
    for_each_core = ctx.is_input_sharded_per_core()
    each_core_takes_one = ctx.is_input_per_host_with_iterators() and not broadcast
    calls = [(0, 0)] if broadcast else host_calls(ctx)
    if for_each_core:
        hosts = range(ctx.num_hosts)
        calls = [(host, core) for host in hosts for core in replicas_of(ctx, host)]
    if not broadcast:
        calls = [one for one in calls if one[0] in ctx.own_hosts]
    for host, index in calls:
        # The caller has opened the name scope of host 0.
        with tf.name_scope(f"input_pipeline_task{host}/") if host else contextlib.nullcontext():
            result = _call(ctx, input_fn, index, host)
            if broadcast:
                replicas: Sequence[int] = own
            elif for_each_core or ctx.is_replica_across_hosts():
                replicas = [index]
            else:
                replicas = replicas_of(ctx, host)
            fed_by = [[replica] for replica in replicas] if each_core_takes_one else [replicas]
            taken, initializes = _taken(ctx, result, batch_axis, fed_by)
            initializers += initializes
            fed += zip(taken, fed_by, strict=True)
    if ctx.model_parallelism_enabled:
        # The samples of a batch are in the order of the replicas.
        fed.sort(key=lambda one: one[1][0])
    return fed, initializers


def _taken(
    ctx: EmulatedContext,
    result: Any,
    batch_axis: Sequence[int] | None,
    fed_by: Sequence[Sequence[int]],
) -> tuple[list[_Batch], list[tf.Operation]]:
    """Returns a batch for each entry of `fed_by`, and the initializers of iterators."""
    predicting = ctx.mode == ModeKeys.PREDICT
    if not isinstance(result, tf.data.Dataset):
        if predicting:
            raise TypeError(
                "For mode PREDICT, `input_fn` must return `Dataset` instead of `features` and "
                "`labels`."
            )
        if ctx.is_input_per_host_with_iterators() and not ctx.is_input_broadcast_with_iterators():
            raise TypeError(
                "`input_fn` must return a `Dataset` for the PER_HOST_V2 input pipeline "
                "configuration."
            )
        return [_parsed(result)], []
    if ctx.is_input_sharded_per_core():
        raise TypeError(
            "`input_fn` returning `Dataset`  is not yet supported in per-Core input pipeline "
            "deployment yet. Please set TPUConfig.per_host_input_for_training to True or return "
            "`features` and `labels` from `input_fn`"
        )
    if predicting:
        if batch_axis is not None:
            raise TypeError("For mode PREDICT, batch_axis is not supported yet.")
        result = _filled_up(result, ctx.batch_size_for_input_fn, len(fed_by))
    iterator = tf.compat.v1.data.make_initializable_iterator(result)
    batches = []
    before: list[tf.Tensor] = []
    for _ in fed_by:
        # Read the batches in sequence, so that core 0 takes the first batch.
        with tf.control_dependencies(before):
            element = iterator.get_next()
        before = data_nest.flatten(element)[:1]
        before = [before[0].values if hasattr(before[0], "values") else before[0]]
        batches.append(element if predicting else _parsed(element))
    return batches, [iterator.initializer]


def _call(ctx: EmulatedContext, input_fn: Callable[..., Any], index: int, host: int) -> Any:
    device = ctx.tpu_host_placement_function(host_id=host)
    context = TPUContext(
        internal_ctx=ctx, input_device=device, invocation_index=index, host_id=host
    )
    with tf.device(device):
        return input_fn(context)


def _same_for_all(ctx: EmulatedContext) -> bool:
    return (
        ctx.is_input_broadcast_with_iterators() and not ctx.is_input_slice_broadcast_to_all_cores()
    )


def _filled_up(dataset: tf.data.Dataset, size: int, together: int) -> tf.data.Dataset:
    """Pads the dataset to batches of `size` samples and steps of `together` batches."""

    @not_converted
    def fill_up(*element: Any) -> dict[str, Any]:
        batch = _parsed(element[0] if len(element) == 1 else element)
        first = data_nest.flatten(batch["features"])[0]
        too_many = f"A batch of input_fn has more than {size} samples. {batch_names.REMEDY}"
        if first.shape.rank and (first.shape[0] or 0) > size:
            raise ValueError(too_many)
        samples = tf.cast(_samples(first), tf.int32)
        fits = tf.debugging.assert_less_equal(samples, size, message=too_many)
        with tf.control_dependencies([fits]):
            missing = size - samples
        with tf.control_dependencies(_size_checks(batch)):
            missing = tf.identity(missing)
        parts = batch["features"], batch.get("labels")
        with error_notes.explained(batch_names.explain, *parts, size):
            filled = data_nest.map_structure(lambda value: _with_empty(value, missing, size), batch)
        return {**filled, "real": tf.range(size) < size - missing}

    def not_real(element: dict[str, Any]) -> dict[str, Any]:
        return {**element, "real": tf.zeros_like(element["real"])}

    dataset = dataset.map(fill_up)
    if together > 1:
        dataset = dataset.concatenate(dataset.take(1).map(not_real).repeat(together - 1))
    return dataset.prefetch(2)


def _size_checks(batch: _Batch) -> list[tf.Tensor]:
    """Returns ops that check that each value has as many samples as the first feature."""
    (first, samples), *others = (
        (name, _samples(value)) for name, value in batch_names.named(batch)
    )

    def problem(name: str, size: tf.Tensor) -> structure_checks.Problem:
        text = f"{name} has {{}} samples, but {first} has {{}}. {batch_names.REMEDY}"
        return tf.equal(size, samples), lambda: tf.strings.format(text, (size, samples))

    problems = [problem(name, size) for name, size in others]
    return [require(problems, "check_batch")] if problems else []


def _with_empty(value: Any, missing: tf.Tensor, size: int) -> Any:
    if isinstance(value, tf.SparseTensor):
        shape = tf.concat([[tf.constant(size, tf.int64)], value.dense_shape[1:]], axis=0)
        return tf.SparseTensor(value.indices, value.values, shape)
    if isinstance(value, tf.RaggedTensor):
        lengths = tf.pad(value.row_lengths(), [[0, missing]])
        return tf.RaggedTensor.from_row_lengths(value.values, lengths)
    padded = tf.pad(value, [[0, missing], *([[0, 0]] * (value.shape.rank - 1))])
    return tf.ensure_shape(padded, [size, *value.shape[1:]])


def _without(features: Any, consumed: set[str]) -> Any:
    if not consumed or not isinstance(features, Mapping):
        return features
    return {key: value for key, value in features.items() if key not in consumed}


def _parsed(result: Any) -> _Batch:
    features, labels = Inputs._parse_inputs(result)
    return {"features": features} if labels is None else {"features": features, "labels": labels}


def _check_same(first: _Batch, other: _Batch, core: int) -> None:
    names, others = (sorted(name for name, _ in batch_names.named(one)) for one in (first, other))
    if names != others:
        raise ValueError(
            "input_fn must yield the same features and labels in each of its calls; got "
            f"{', '.join(names)} for core 0, and {', '.join(others)} for core {core}."
        )


def _split(batch: _Batch, batch_axis: Sequence[int] | None, count: int, size: int) -> list[_Batch]:
    flat = data_nest.flatten(batch)
    axes = [0] * len(flat) if batch_axis is None else list(batch_axis)
    if len(axes) != len(flat):
        raise ValueError(
            f"batch_axis has {len(axes)} elements, {tuple(axes)}, but input_fn yields {len(flat)} "
            "tensors of features and labels."
        )
    samples = None if any(axes) else size
    with batch_names.compared(batch["features"], batch.get("labels"), samples):
        pieces = [parts_of(value, count, axis) for value, axis in zip(flat, axes, strict=True)]
    # `pieces` may be empty. Each core then gets an empty batch.
    return [
        data_nest.pack_sequence_as(batch, [piece[core] for piece in pieces])
        for core in range(count)
    ]


def _merged(features: list[Any], consumed: set[str], tables: Sequence[Table]) -> Any:
    if len(features) == 1 or not consumed or not isinstance(features[0], Mapping):
        return features[0]
    of_cores = {
        key: [of_core[key] for of_core in features] for key in features[0] if key in consumed
    }
    with _after_checks(of_cores, tables):
        return {key: _concatenated(values) for key, values in of_cores.items()}


def _after_checks(
    of_cores: Mapping[str, list[Any]], tables: Sequence[Table]
) -> contextlib.AbstractContextManager:
    """Returns a context that checks each core's values before ops in it join them.

    In the joined batch, an index beyond a core's last sample would point to the next core's sample.
    """
    fit, inside = [], []
    for key, values in of_cores.items():
        for core, value in enumerate(values):
            owner = batch_names.owner(f"features[{key!r}] of core {core}", tables)
            if isinstance(value, (tf.RaggedTensor, tf.SparseTensor)):
                fit += structure_checks.part_problems(owner, value)
            elif value.shape.rank == 2 and not value.shape[1:].is_fully_defined():
                fit += _as_wide(owner, value, values[0])
    if not fit:
        return contextlib.nullcontext()
    checked = require(fit, "check_forms")
    with tf.control_dependencies([checked]):
        for key, values in of_cores.items():
            for core, value in enumerate(values):
                owner = batch_names.owner(f"features[{key!r}] of core {core}", tables)
                if isinstance(value, tf.SparseTensor):
                    inside.append(_inside(owner, value))
                inside += _as_many(owner, value, values[0])
        if inside:
            checked = require(inside, "check_places")
    return tf.control_dependencies([checked])


def _concatenated(values: list[Any]) -> Any:
    """Returns the samples of all cores, in the order of the cores."""
    if not isinstance(values[0], tf.SparseTensor):
        return tf.concat(values, axis=0)
    if values[0].shape.rank not in (None, 2):
        return values[0]  # `inputs.source_of` refuses this rank.
    # tf.sparse.concat would end the process if a dense shape has too many elements to count.
    shapes = tf.stack([value.dense_shape for value in values])
    starts = tf.cumsum(shapes[:, 0], exclusive=True)
    indices = [value.indices + tf.stack([starts[core], 0]) for core, value in enumerate(values)]
    return tf.SparseTensor(
        tf.concat(indices, axis=0),
        tf.concat([value.values for value in values], axis=0),
        tf.stack([tf.reduce_sum(shapes[:, 0]), tf.reduce_max(shapes[:, 1])]),
    )


def _as_wide(owner: str, value: tf.Tensor, first: tf.Tensor) -> list[structure_checks.Problem]:
    if value is first:
        return []
    widths = tf.shape(first)[1], tf.shape(value)[1]
    text = f"{owner} have shape {{}}, but those of core 0 have {{}}: pad batches to one width."
    shapes = tf.shape(value), tf.shape(first)
    return [(tf.equal(*widths), structure_checks.message(text, *shapes))]


def _as_many(owner: str, value: Any, first: Any) -> list[structure_checks.Problem]:
    if value is first or (value.shape.rank and value.shape[0] == first.shape[0] is not None):
        return []
    counts = _samples(value), _samples(first)
    text = f"{owner} have {{}} samples, but those of core 0 have {{}}."
    return [(tf.equal(*counts), structure_checks.message(text, *counts))]


def _samples(value: Any) -> tf.Tensor:
    """Returns the number of samples in a value of a batch, as int64."""
    if isinstance(value, tf.SparseTensor):
        return value.dense_shape[0]
    if isinstance(value, tf.RaggedTensor):
        return tf.cast(value.nrows(), tf.int64)
    return tf.shape(value, out_type=tf.int64)[0]


def _inside(owner: str, value: tf.SparseTensor) -> structure_checks.Problem:
    places = SparsePlaces(value.indices, value.dense_shape)
    few = tf.reduce_all(value.dense_shape >= 0) & (value.dense_shape[0] < 2**31)
    text = f"{owner} have sparse indices outside the dense shape {{}}."
    return few & places.all_inside(), structure_checks.message(text, value.dense_shape)
