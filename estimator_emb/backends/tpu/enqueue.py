"""Sends the ids of a core's batch to the TPU embedding hardware.

Source: `EnqueueData`, `RaggedEnqueueData` and `generate_enqueue_ops` of
tensorflow/python/tpu/tpu_embedding.py, TF 2.15.1.
"""

import collections
from collections.abc import Mapping, Sequence
from typing import Any

import tensorflow as tf

from estimator_emb.compat.internals.graphs import colocate_with
from estimator_emb.reporting.console import logger


class EnqueueData(
    collections.namedtuple(
        "EnqueueData",
        ["embedding_indices", "sample_indices", "aggregation_weights"],
        defaults=(None, None),
    )
):
    """The ids of a feature in the layout of a SparseTensor.

    Args:
      embedding_indices: int32 or int64 [n], the ids.
      sample_indices: int32 or int64 [n, 2], (sample, position) of each id. None means a single
        id per sample.
      aggregation_weights: float32 or float64 [n]. None means weight 1.
    """

    @staticmethod
    def from_sparse_tensor(sp_tensor: Any, weights: Any = None) -> "EnqueueData":
        """Converts SparseTensors [samples, positions] of ids and, optionally, of weights."""
        return EnqueueData(
            sp_tensor.values,
            sp_tensor.indices,
            aggregation_weights=None if weights is None else weights.values,
        )


class RaggedEnqueueData(
    collections.namedtuple(
        "RaggedEnqueueData",
        ["embedding_indices", "row_splits", "aggregation_weights"],
        defaults=(None, None),
    )
):
    """The ids of a feature in the layout of a RaggedTensor.

    Args:
      embedding_indices: int32 or int64 [n], the ids.
      row_splits: int32 or int64 [samples + 1]. Sample i has the ids from row_splits[i] to
        row_splits[i + 1]. None means a single id per sample.
      aggregation_weights: float32 or float64 [n]. None means weight 1.
    """

    @staticmethod
    def from_ragged_tensor(rg_tensor: Any, weights: Any = None) -> "RaggedEnqueueData":
        """Converts RaggedTensors [samples, (ids)] of ids and, optionally, of weights."""
        return RaggedEnqueueData(
            rg_tensor.values,
            rg_tensor.row_splits,
            aggregation_weights=None if weights is None else weights.values,
        )


def get_enqueue_datas_list_from_sparse_tensors_list(
    sp_tensors_list: Sequence[Mapping[str, Any]],
) -> list[collections.OrderedDict]:
    """Converts each core's {feature: SparseTensor} to {feature: EnqueueData}."""
    return _per_core(EnqueueData.from_sparse_tensor, sp_tensors_list)


def get_enqueue_datas_list_from_ragged_tensors_list(
    rg_tensors_list: Sequence[Mapping[str, Any]],
) -> list[collections.OrderedDict]:
    """Converts each core's {feature: RaggedTensor} to {feature: RaggedEnqueueData}."""
    return _per_core(RaggedEnqueueData.from_ragged_tensor, rg_tensors_list)


def _per_core(make: Any, of_cores: Sequence[Mapping[str, Any]]) -> list[collections.OrderedDict]:
    return [
        collections.OrderedDict((feature, make(ids)) for feature, ids in of_core.items())
        for of_core in of_cores
    ]


def check_data(
    of_cores: Sequence[Mapping[str, Any]],
    combiners: Mapping[str, str | None],
    cores_per_host: int,
    ragged: bool,
) -> None:
    """Raises ValueError for invalid data, before any op is created.

    `of_cores` is the data of all cores, ordered host by host.
    """
    layout = "row_splits" if ragged else "sample_indices"
    expected = "RaggedEnqueueData" if ragged else "EnqueueData"
    device_of_host = None
    for core, data in enumerate(of_cores):
        owner = f"enqueue_datas_list[{core}]"
        missing, unknown = sorted(set(combiners) - set(data)), sorted(set(data) - set(combiners))
        if missing or unknown:
            raise ValueError(
                f"{owner} must have the features {sorted(combiners)}; it lacks {missing} and has "
                f"{unknown} besides."
            )
        devices: dict[str, str] = {}
        for feature, enqueued in data.items():
            # Checks fields, because tensorflow-estimator creates TensorFlow 2.15's own class.
            if not hasattr(enqueued, layout):
                raise ValueError(
                    f"{owner}: with ragged={ragged}, feature {feature!r} must be {expected}; got "
                    f"{enqueued!r}."
                )
            if getattr(enqueued, layout) is None and combiners[feature]:
                logger.warning(
                    "%s: feature %r has no %s, so each id is a sample of its own, although its "
                    "table has the combiner %r.",
                    owner,
                    feature,
                    layout,
                    combiners[feature],
                )
            for field, tensor in enqueued._asdict().items():
                if tensor is not None:
                    devices[f"{field} of feature {feature!r}"] = tensor.device
        if len(set(devices.values())) > 1:
            raise ValueError(
                f"{owner}: all tensors of a core must be on one device; got "
                + ", ".join(f"{what} on {device!r}" for what, device in devices.items())
                + "."
            )
        device = next(iter(devices.values()), None)
        if core % cores_per_host == 0:
            device_of_host = device
        elif device != device_of_host:
            raise ValueError(
                f"{owner} is on device {device!r}, but the data of the first of the "
                f"{cores_per_host} cores of its host is on {device_of_host!r}."
            )


def enqueue_op(
    data: Mapping[str, Any],
    features: Mapping[str, tuple[str, int]],
    device_ordinal: int,
    mode_override: str | None,
    ragged: bool,
) -> tf.Operation:
    """Returns the op that sends the ids of one core to the hardware.

    `features` maps each feature to (combiner, `max_sequence_length`), in the hardware's order.
    `device_ordinal` is the core's number on its host. `mode_override` and `ragged` are described in
    `TPUEmbedding.generate_enqueue_ops`.
    """
    first = next(iter(data.values())).embedding_indices
    with colocate_with(first):
        no_ids, no_weights = tf.zeros([0], tf.int64), tf.zeros([0], tf.float32)
        layouts, weights = [], []
        for feature, (_, max_sequence_length) in features.items():
            enqueued = data[feature]
            layout = enqueued.row_splits if ragged else enqueued.sample_indices
            if not ragged and layout is not None:
                columns = layout.shape[1]
                if columns == 1:
                    layout = None  # Each sample has a single id.
                elif columns == 2 and max_sequence_length:
                    # Each (sample, position) is a separate lookup, with its id at position 0.
                    layout = tf.pad(layout, [[0, 0], [0, 1]])
            layouts.append(no_ids if layout is None else layout)
            given = enqueued.aggregation_weights
            weights.append(no_weights if given is None else given)
        return tf.raw_ops.EnqueueTPUEmbeddingArbitraryTensorBatch(
            sample_indices_or_row_splits=_with_one_dtype(layouts),
            embedding_indices=_with_one_dtype(
                [data[feature].embedding_indices for feature in features]
            ),
            aggregation_weights=_with_one_dtype(weights),
            mode_override=mode_override or "unspecified",
            device_ordinal=device_ordinal,
            combiners=[combiner for combiner, _ in features.values()],
        )


def _with_one_dtype(tensors: list[Any]) -> list[Any]:
    # The op requires the same dtype for all tensors of a list.
    widest = max((tensor.dtype for tensor in tensors), key=lambda dtype: dtype.size)
    return [tf.cast(tensor, widest) for tensor in tensors]
