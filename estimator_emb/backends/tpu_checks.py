"""Finds the programs that break a limit of a TPU, for TPUs, emulated TPUs and `check`.

Other limits are tensorflow-estimator's own: it applies them to an emulated TPU and to `check` as to
a TPU. `check` also looks up the ops of the step in its own table of kernels.

Source: `_tpu_estimator_embedding.split_inputs` and `tpu_estimator._InputPipeline` of
tensorflow-estimator 2.15.0; tpu_feed.py, tpu_sharding.py, training_loop.py and ops/tpu_ops.py of
tensorflow/python/tpu, 2.15.1. `tests/backends/test_refusals.py` compares these errors with the
errors of a TPU that is only described.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import tensorflow as tf

from estimator_emb.catalog.limits import refuse
from estimator_emb.compat.internals.estimators import AnyTPUEstimatorSpec
from estimator_emb.compat.internals.graphs import data_nest
from estimator_emb.compat.internals.tpu import SUPPORTED_INFEED_DTYPES, PartitionedInfeedQueue
from estimator_emb.compat.internals.tpu_estimator import InputPipeline, InternalTPUContext
from estimator_emb.guards.checks.batch_names import named
from estimator_emb.spec import options
from estimator_emb.spec.resolved import Feature, Table


def check_config(config: Any) -> None:
    """Refuses options of a `RunConfig` that do not work with TPUEstimator on a TPU."""
    if options.asked_bad_ids(config) == "drop":
        refuse("bad_ids")
    if options.asked_table_summaries(config):
        refuse("table_summaries")


def check_features(tables: Sequence[Table], features: Any) -> None:
    """Refuses ids and weights that the embedding hardware cannot receive."""
    if not isinstance(features, Mapping):
        return
    owners: dict[str, str] = {}
    for table in tables:
        for feature in table.features:
            owner, weights = f"Feature {feature.key!r} of table {table.name!r}", feature.weight_key
            other = owner if weights is None else owners.setdefault(weights, owner)
            if other != owner:
                refuse("shared weights", weights=weights, owner=owner, other=other)
            else:
                _check_feature(table, feature, features, owner)


def _check_feature(table: Table, feature: Feature, features: Mapping[str, Any], owner: str) -> None:
    ids, weights = features.get(feature.key), features.get(feature.weight_key or "")
    names = {"owner": owner, "key": feature.key, "weights": feature.weight_key}
    one_each = table.config.combiner is None and not feature.max_sequence_length
    if getattr(ids, "dtype", None) == tf.string:
        own = "; or run with use_tpu=False, where the column's own vocabulary or hash looks them up"
        refuse("string ids", **names, elsewhere=own if feature.to_ids else "")
    elif feature.weight_key and weights is None and ids is not None:
        refuse("missing weights", **names, found=sorted(map(str, features)))
    elif one_each and feature.weight_key and isinstance(ids, tf.Tensor):
        refuse("weights of single ids", **names)
    elif isinstance(weights, tf.Tensor) and not isinstance(ids, tf.Tensor):
        refuse("dense weights", **names)


def check_infeed(batch: Mapping[str, Any], replicas: int) -> None:
    """Refuses features and labels that a TPU's infeed cannot carry."""
    for name, value in named(batch):
        if isinstance(value, (tf.RaggedTensor, tf.SparseTensor)):
            refuse("sparse infeed", owner=name, kind=type(value).__name__)
            continue
        value = tf.convert_to_tensor(value)
        if value.dtype not in SUPPORTED_INFEED_DTYPES:
            supported = ", ".join(sorted(dtype.name for dtype in SUPPORTED_INFEED_DTYPES))
            refuse("infeed dtype", owner=name, dtype=value.dtype, supported=supported)
        elif replicas > 1 and value.shape.rank == 0:
            refuse("scalar infeed", owner=name, replicas=replicas)


def check_static(batch: Mapping[str, Any], whole: bool) -> None:
    """Refuses dynamic shapes. If `whole`, the last batch is padded, and its size does not count.

    An emulated TPU leaves it to tensorflow-estimator, which checks after the batch is divided.
    """
    for name, value in named(batch):
        if isinstance(value, tf.Tensor) and value.dtype in SUPPORTED_INFEED_DTYPES:
            shape = value.shape
            if not (shape[1:] if whole and shape.rank else shape).is_fully_defined():
                text = "unknown" if shape.rank is None else tuple(shape.as_list())
                refuse("dynamic infeed", owner=name, dtype=value.dtype.name, shape=text)


def check_partition_dims(ctx: InternalTPUContext, features: Any, labels: Any) -> None:
    """Refuses a `TPUConfig.input_partition_dims` that does not fit a replica's input."""
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
            refuse("input_partition_dims", error=error, dims=dims, tensor=tensor)


def check_spec(returned: Any, mode: str) -> None:
    """Refuses a value of model_fn that cannot say what leaves the TPU."""
    if not isinstance(returned, AnyTPUEstimatorSpec):
        refuse("EstimatorSpec", mode=mode, kind=type(returned))


def check_loss(loss: tf.Tensor, training: bool) -> None:
    """Refuses a loss that is not float32: a TPU's loop carries it as float32."""
    if loss.dtype != tf.float32:
        mode = "a training" if training else "an evaluation"
        refuse(f"loss of {mode}", loss, dtype=loss.dtype)


def check_outfed(tensor: tf.Tensor, owner: str) -> None:
    """Refuses a scalar for the host, which joins the tensors of all cores along the batch."""
    if tensor.shape.rank == 0:
        refuse("scalar outfeed", tensor, tensor=tensor, owner=owner)


def check_ops(ops: Iterable[tf.Operation]) -> None:
    """Refuses ops of model_fn that cannot run in a TPU's loop."""
    for op in ops:
        if op.type.startswith(("InitializeTable", "LookupTableExport", "LookupTableImport")):
            refuse("lookup table", name=op.name)
        for tensor in op.inputs:
            if tensor.dtype._is_ref_dtype:
                refuse("reference variable", name=op.name, variable=tensor.op.name)
