# SPDX-License-Identifier: Apache-2.0
"""Writes the tables and features into the configuration of the TPU embedding hardware.

Source: tpu_embedding_configuration.proto and optimization_parameters.proto, and what `TPUEmbedding`
of tensorflow/python/tpu/tpu_embedding.py, TF 2.15.1, writes into them.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import tensorflow as tf

from estimator_emb.optimizers import OptimizationParameters, gradient_limits
from estimator_emb.private.protos import TPUEmbeddingConfiguration, optimization_pb2
from estimator_emb.spec.config import FeatureConfig, TableConfig
from estimator_emb.step.rates import function_of
from estimator_emb.tables import functions

_SHARDING = {
    "div": TPUEmbeddingConfiguration.DIV_DEFAULT,
    "mod": TPUEmbeddingConfiguration.MOD,
}


class DynamicRates:
    """The learning rates that are functions, and the number ("tag") of each.

    Tags count up from 0 in the order in which the tables, sorted by name, first use a function;
    tables that share a function share its tag.
    """

    def __init__(
        self,
        tables: Mapping[str, TableConfig],
        parameters: Mapping[str, OptimizationParameters],
    ):
        # No dict: a callable object may have no hash.
        self._functions: list[tuple[Callable[..., Any], bool]] = []
        self._owners: list[str] = []
        self._tags: dict[str, int] = {}
        for name, table in tables.items():
            found = function_of(name, table, parameters[name])
            if found is not None:
                owner, function = found[0], found[1:]
                if function not in self._functions:
                    self._functions.append(function)
                    self._owners.append(owner)
                self._tags[name] = self._functions.index(function)

    def tag(self, table: str) -> int | None:
        return self._tags.get(table)

    def values(self, step: Any) -> list[tf.Tensor]:
        """Returns the rates of this step by tag, float32 scalars.

        `step` is the global step before this step increments it. Raises ValueError if it is None
        and a function needs it, and what `functions.rate` raises.
        """
        if step is None and any(takes_step for _, takes_step in self._functions):
            raise ValueError(
                "step must be given, because tables have a learning_rate_fn, which takes it; got "
                "None."
            )
        return [
            functions.rate(owner, function, *([step] if takes_step else []))
            for owner, (function, takes_step) in zip(self._owners, self._functions, strict=True)
        ]


def configuration(
    tables: Mapping[str, TableConfig],
    features: Mapping[str, FeatureConfig],
    features_of_table: Mapping[str, Sequence[str]],
    parameters: Mapping[str, OptimizationParameters],
    rates: DynamicRates,
    *,
    mode: int,
    batch_size_per_core: int,
    num_hosts: int,
    num_cores: int,
    partition_strategy: str,
    pipeline_execution_with_tensor_core: bool,
    profile_data_directory: str | None,
    clipping_limit: float | None = None,
) -> TPUEmbeddingConfiguration:
    """Returns the configuration of the hardware, for `tf.compat.v1.tpu.initialize_system`.

    The order of `tables` gives tables their numbers, and that of `features_of_table` is the order
    of activations; `parameters` has each table's optimizer. Arguments from `partition_strategy` on
    are as in `EmbeddingConfigSpec`. Raises ValueError if `clipping_limit` is given for an optimizer
    that does not accumulate gradients.
    """
    result = TPUEmbeddingConfiguration(
        mode=mode,
        num_hosts=num_hosts,
        num_tensor_cores=num_cores,
        sharding_strategy=_SHARDING[partition_strategy],
        pipeline_execution_with_tensor_core=pipeline_execution_with_tensor_core,
        profile_data_directory=profile_data_directory or "",
    )
    for number, (name, table) in enumerate(tables.items()):
        descriptor = result.table_descriptor.add(
            name=name,
            # A table of fewer rows than hosts gets a row of padding on each of the others.
            vocabulary_size=max(table.vocabulary_size, num_hosts),
            dimension=table.dimension,
        )
        message = descriptor.optimization_parameters
        tag = rates.tag(name)
        if tag is not None:
            message.learning_rate.dynamic.tag = tag
        elif table.learning_rate is not None:
            message.learning_rate.constant = table.learning_rate
        else:
            message.learning_rate.constant = parameters[name].learning_rate  # type: ignore
        if table.hot_id_replication:
            message.hot_id_replication_configuration.status = (
                optimization_pb2.HotIdReplicationConfiguration.ENABLED
            )
        _write_optimizer(name, parameters[name], message)
        _write_limits(name, parameters[name], clipping_limit, message)
        for feature in features_of_table[name]:
            length = features[feature].max_sequence_length
            result.feature_descriptor.add(
                table_id=number,
                input_shape=[batch_size_per_core, length] if length else [batch_size_per_core],
            )
    return result


def _write_optimizer(table: str, parameters: OptimizationParameters, message: Any) -> None:
    hardware = parameters.hardware
    member = getattr(message, hardware.message)
    member.SetInParent()  # An optimizer without hyper-parameters is an empty member.
    for field in member.DESCRIPTOR.fields:
        attribute = hardware.renamed.get(field.name, field.name)
        if hasattr(parameters, attribute):  # A later TensorFlow may add fields.
            setattr(member, field.name, getattr(parameters, attribute))
    status = optimization_pb2.GradientAccumulationStatus
    message.gradient_accumulation_status = (
        status.ENABLED if parameters.use_gradient_accumulation else status.DISABLED
    )
    if parameters.weight_decay_factor:
        message.weight_decay_factor = parameters.weight_decay_factor
        message.multiply_weight_decay_factor_by_learning_rate = bool(
            parameters.multiply_weight_decay_factor_by_learning_rate
        )
    if getattr(parameters, "low_dimensional_packing_status", False):
        message.low_dimensional_packing_status = (
            optimization_pb2.LowDimensionalPackingStatus.Status.ENABLED
        )


def _write_limits(
    table: str, parameters: OptimizationParameters, clipping_limit: float | None, message: Any
) -> None:
    low, high = parameters.clip_gradient_min, parameters.clip_gradient_max
    if clipping_limit is not None:
        if not parameters.use_gradient_accumulation:
            raise ValueError(
                f"Table {table!r}: the EmbeddingConfigSpec has clipping_limit={clipping_limit}, "
                "which on a TPU needs use_gradient_accumulation=True; its "
                f"{type(parameters).__name__} has use_gradient_accumulation=False."
            )
        low, high = gradient_limits(parameters, clipping_limit)
    for limits, lower, upper in (
        (message.gradient_clipping_limits, low, high),
        (message.clipping_limits, parameters.clip_weight_min, parameters.clip_weight_max),
    ):
        if lower is not None:
            limits.lower.value = lower
        if upper is not None:
            limits.upper.value = upper
