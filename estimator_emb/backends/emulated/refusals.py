# SPDX-License-Identifier: Apache-2.0
"""What a TPU refuses, and the host could do: an emulated TPU refuses it too.

Whatever tensorflow-estimator checks by itself, it checks here as on a TPU. This module has what
only the ops of a TPU's input and of its embedding hardware would refuse, and `computation` what its
loops would. Messages keep the phrase that a TPU's error has.

Source: `_tpu_estimator_embedding.split_inputs` and `tpu_estimator._InputPipeline` of
tensorflow-estimator 2.15.0; `_PartitionedInfeedQueue` of tensorflow/python/tpu/tpu_feed.py,
2.15.1. `tests/backends/test_refusals.py` compares the errors with those of a described TPU.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import tensorflow as tf

from estimator_emb.compat.internals.graphs import data_nest
from estimator_emb.compat.internals.tpu import PartitionedInfeedQueue
from estimator_emb.compat.internals.tpu_estimator import InputPipeline, InternalTPUContext
from estimator_emb.spec import Table


def check_weights(tables: Sequence[Table]) -> None:
    """Refuses weights that two features share: a TPU takes them out of the batch for the first.

    Raises:
      ValueError: two features have one weight key.
    """
    owners: dict[str, str] = {}
    for table in tables:
        for feature in table.features:
            if feature.weight_key is None:
                continue
            owner = f"feature {feature.key!r} of table {table.name!r}"
            first = owners.setdefault(feature.weight_key, owner)
            if first != owner:
                raise ValueError(
                    f"Cannot find weights {feature.weight_key} for weighted_categorical_column of "
                    f"{owner}: {first} takes them, and weight-sharing among "
                    "weighted_categorical_column is not supported on TPU. Copy the weights in "
                    "input_fn, under a key for each feature; or run with use_tpu=False."
                )


def check_features(tables: Sequence[Table], features: Any) -> None:
    """Refuses ids that do not reach a TPU.

    Args:
      tables: those of a spec.
      features: what input_fn yields.

    Raises:
      ValueError: ids are strings; or are dense, one for each sample, and have weights.
    """
    if not isinstance(features, Mapping):
        return
    for table in tables:
        for feature in table.features:
            ids = features.get(feature.key)
            owner = f"Feature {feature.key!r} of table {table.name!r}"
            if getattr(ids, "dtype", None) == tf.string:
                elsewhere = (
                    "; or run with use_tpu=False, where the column's own vocabulary or hash looks "
                    "them up"
                )
                raise ValueError(
                    f"{owner}: SparseTensor with string as values are not supported on a TPU, and "
                    "neither are other strings. Turn them into ids in input_fn, for example with a "
                    "tf.lookup.StaticHashTable or tf.strings.to_hash_bucket_fast"
                    f"{elsewhere if feature.to_ids else ''}. feature_key = {feature.key}."
                )
            one_each = table.config.combiner is None and not feature.max_sequence_length
            if one_each and feature.weight_key and isinstance(ids, tf.Tensor):
                raise ValueError(
                    f"{owner}: Found weights {feature.weight_key} for "
                    "weighted_categorical_column, which is not compatible with sparse feature "
                    f"{feature.key} enqueued as dense tensor: its table has combiner None. Give "
                    "ids and weights as SparseTensors, or leave the weights out."
                )


def check_queues() -> None:
    """Warns of an input_fn with queues, or refuses it where its ops are to be in a loop.

    Raises:
      RuntimeError: it is refused.
    """
    InputPipeline._validate_input_pipeline(None)


def check_partition_dims(ctx: InternalTPUContext, features: Any, labels: Any) -> None:
    """Checks that `TPUConfig.input_partition_dims` fit the batch of a replica.

    Args:
      ctx: the emulated TPU, in a mode.
      features: what the infeed would be given, without ids.
      labels: the same; None without.

    Raises:
      ValueError: they do not.
    """
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
