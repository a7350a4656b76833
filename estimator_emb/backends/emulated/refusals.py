"""Refuses inputs and losses that a TPU refuses, although the host could run them.

tensorflow-estimator makes its own checks on an emulated TPU too. This module adds the checks of a
TPU's infeed, loss and embedding hardware. `computation` adds the checks of a TPU's loop. Messages
keep the key phrase of the TPU's error.

Source: `_tpu_estimator_embedding.split_inputs` and `tpu_estimator._InputPipeline` of
tensorflow-estimator 2.15.0; tpu_feed.py, tpu_sharding.py, training_loop.py and ops/tpu_ops.py of
tensorflow/python/tpu, 2.15.1. `tests/backends/test_refusals.py` compares these errors with a
described TPU's errors.
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
    """Raises ValueError if a TPU cannot receive the input's ids or weights."""
    if not isinstance(features, Mapping):
        return
    shared = ids_on_tpus.shared_weight_refusals(tables)
    for table in tables:
        for feature in table.features:
            refusal = shared.get(feature.key)
            refusal = refusal or ids_on_tpus.feature_refusal(table, feature, features)
            if refusal is not None:
                raise ValueError(str(refusal))


def check_infeed(batch: Mapping[str, Any], replicas: int) -> None:
    """Refuses features and labels that a TPU's infeed cannot carry.

    Raises:
      TypeError: a value is sparse or ragged, or a TPU does not support its dtype.
      ValueError: a value is a scalar, and several replicas would have to divide it.
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
    """Raises TypeError if the loss is not float32: a TPU's loop carries it as float32."""
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
    """Raises ValueError if `TPUConfig.input_partition_dims` does not fit a replica's input."""
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
