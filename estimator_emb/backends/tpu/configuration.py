"""Writes the optimizers of tables into the configuration of the TPU embedding hardware.

Source: tpu_embedding_configuration.proto, optimization_parameters.proto, and the fields that
`TPUEmbedding` of tensorflow/python/tpu/tpu_embedding.py, TF 2.15.1, writes into these messages.
"""

from typing import Any

from estimator_emb.catalog.limits import refuse
from estimator_emb.compat.internals.protos import optimization_pb2
from estimator_emb.optimizers import gradient_limits
from estimator_emb.spec.resolved import Table


def write_optimizer(table: Table, tag: int | None, message: Any) -> None:
    """Writes a table's optimizer into the table's message.

    `tag` is the tag of a dynamic learning rate, or None for a constant rate. Raises ValueError if
    `clipping_limit` is set and the optimizer does not accumulate gradients.
    """
    config, parameters = table.config, table.trained_by
    if tag is not None:
        message.learning_rate.dynamic.tag = tag
    elif config.learning_rate is not None:
        message.learning_rate.constant = config.learning_rate
    else:
        message.learning_rate.constant = parameters.learning_rate
    if config.hot_id_replication:
        message.hot_id_replication_configuration.status = (
            optimization_pb2.HotIdReplicationConfiguration.ENABLED
        )
    hardware = parameters.hardware
    member = getattr(message, hardware.message)
    member.SetInParent()  # Selects an optimizer without hyper-parameters too.
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
    _write_limits(table, message)


def _write_limits(table: Table, message: Any) -> None:
    parameters, clipping_limit = table.trained_by, table.clipping_limit
    low, high = parameters.clip_gradient_min, parameters.clip_gradient_max
    if clipping_limit is not None:
        if not parameters.use_gradient_accumulation:
            kind = type(parameters).__name__
            refuse("clipping_limit", table=table.name, limit=clipping_limit, kind=kind)
        low, high = gradient_limits(parameters, clipping_limit)
    for limits, lower, upper in (
        (message.gradient_clipping_limits, low, high),
        (message.clipping_limits, parameters.clip_weight_min, parameters.clip_weight_max),
    ):
        if lower is not None:
            limits.lower.value = lower
        if upper is not None:
            limits.upper.value = upper
