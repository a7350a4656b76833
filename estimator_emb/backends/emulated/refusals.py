"""Refuses on an emulated TPU what a TPU refuses, and the host could do.

tensorflow-estimator makes its own checks here as on a TPU. This module has those of the ops of a
TPU's input and of its embedding hardware, and `computation` those of its loops. Messages keep the
phrase that a TPU's error has.

Source: `_tpu_estimator_embedding.split_inputs` and `tpu_estimator._InputPipeline` of
tensorflow-estimator 2.15.0; tpu_feed.py, tpu_sharding.py, training_loop.py and ops/tpu_ops.py of
tensorflow/python/tpu, 2.15.1. `tests/backends/test_refusals.py` compares the errors with those of a
described TPU.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import tensorflow as tf

from estimator_emb.compat.internals.graphs import data_nest
from estimator_emb.compat.internals.tpu import SUPPORTED_INFEED_DTYPES, PartitionedInfeedQueue
from estimator_emb.compat.internals.tpu_estimator import InputPipeline, InternalTPUContext
from estimator_emb.guards.checks import ids_on_tpus
from estimator_emb.guards.checks.batch_names import named
from estimator_emb.spec.resolved import Table


def check_features(tables: Sequence[Table], features: Any) -> None:
    """Raises ValueError for ids and weights of the input that do not reach a TPU."""
    if not isinstance(features, Mapping):
        return
    shared = ids_on_tpus.shared_weight_refusals(tables)
    for table in tables:
        for feature in table.features:
            ids, weights = features.get(feature.key), features.get(feature.weight_key)
            refusal = shared.get(feature.key)
            refusal = refusal or ids_on_tpus.feature_refusal(table, feature, ids, weights)
            if refusal is not None:
                raise ValueError(str(refusal))


def check_infeed(batch: Mapping[str, Any], replicas: int) -> None:
    """Refuses features and labels that no infeed carries.

    Raises TypeError for a sparse or ragged value, or a type that a TPU does not have, and
    ValueError for a tensor without an axis to divide over several cores, or over groups that run
    one model each.
    """
    for name, value in named(batch):
        if isinstance(value, (tf.RaggedTensor, tf.SparseTensor)):
            raise TypeError(
                f"{name}: Can not convert a {type(value).__name__} into a Tensor: only dense "
                "tensors reach the model on a TPU. Make it dense in input_fn, or look it up "
                "through the EmbeddingConfigSpec."
            )
        value = tf.convert_to_tensor(value)
        if value.dtype not in SUPPORTED_INFEED_DTYPES:
            supported = ", ".join(sorted(dtype.name for dtype in SUPPORTED_INFEED_DTYPES))
            raise TypeError(
                f"{name}: {value.dtype} is not a supported TPU infeed type. Supported types are: "
                f"{supported}. Cast it in input_fn, or leave it out of what input_fn returns."
            )
        if replicas > 1 and value.shape.rank == 0:
            raise ValueError(
                f"{name}: Shape [] does not contain shard_dimension 0, which {replicas} cores "
                "divide between them. Give each sample a value of its own in input_fn."
            )


def check_loss(loss: tf.Tensor, training: bool) -> None:
    """Raises TypeError for a loss that is not float32, in which a TPU's loop carries it."""
    if loss.dtype == tf.float32:
        return
    words = (
        "Mismatch between input types and output types for training loop body: "
        f"[tf.int32, tf.float32] vs [tf.int32, {loss.dtype!r}]"
        if training
        else f"Input 'y' of 'AddV2' Op has type {loss.dtype.name} that does not match type float32 "
        "of argument 'x'"
    )
    raise TypeError(
        f"{words}: the loss of model_fn is {loss.dtype.name}. Return tf.cast(loss, tf.float32)."
    )


def check_partition_dims(ctx: InternalTPUContext, features: Any, labels: Any) -> None:
    """Raises ValueError if `TPUConfig.input_partition_dims` do not fit a replica's infeed."""
    if not ctx.input_partition_dims:
        return
    recorder = InputPipeline.InputsStructureRecorder(ctx.input_partition_dims)
    recorder.validate_and_record_structure(features, labels)
    tensors = [*data_nest.flatten(features), *data_nest.flatten([] if labels is None else labels)]
    queue = PartitionedInfeedQueue(
        number_of_tuple_elements=len(tensors),
        device_assignment=ctx.device_assignment,
        host_id=0,
        input_partition_dims=recorder.flattened_input_dims,
    )
    for tensor, dims in zip(tensors, recorder.flattened_input_dims, strict=True):
        try:
            queue._check_input_partition_dims(tensor, dims)
        except ValueError as error:
            raise ValueError(
                f"TPUConfig.input_partition_dims: {error} They are {dims} for {tensor}."
            ) from error
