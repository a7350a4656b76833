"""Logs how many samples drop_remainder=True left out of a prediction, if that is known."""

from collections.abc import Iterable
from typing import Any

import tensorflow as tf

from estimator_emb.guards.checks.program_checks import DATASETS
from estimator_emb.guards.guard import Call, GraphFacts, Guard
from estimator_emb.reporting.console import logger
from estimator_emb.reporting.text_columns import counted

_BATCH_SIZE_AT = {"BatchDatasetV2": -2, "ParallelBatchDataset": -3, "MapAndBatchDataset": -3}
"""Op that makes batches -> index of its input for the batch size. The last is drop_remainder."""

_ONE_FOR_ONE = (
    "CacheDataset",
    "CacheDatasetV2",
    "MapDataset",
    "OptionsDataset",
    "ParallelMapDataset",
    "ParallelMapDatasetV2",
    "PrefetchDataset",
)
"""Dataset ops with as many output elements as input elements."""


class DroppedSamples(Guard):
    """Counts the samples of a dataset before they are batched."""

    @classmethod
    def applies(cls, call: Call) -> bool:
        return call.method == "predict" and call.in_session

    def __init__(self, graph: GraphFacts):
        super().__init__(graph)
        self._inputs: list[tuple[tf.Tensor, int]] = []

    def returned(self, owner: str, value: Any) -> Any:
        op = getattr(getattr(value, "_variant_tensor", None), "op", None)
        if not isinstance(value, DATASETS) or op is None:
            return value
        while op.type in _ONE_FOR_ONE:
            op = op.inputs[0].op
        if op.type in _BATCH_SIZE_AT and tf.get_static_value(op.inputs[-1]):
            size = tf.get_static_value(op.inputs[_BATCH_SIZE_AT[op.type]])
            if size is not None:
                samples = tf.raw_ops.DatasetCardinality(input_dataset=op.inputs[0])
                self._inputs.append((samples, int(size)))
        return value

    def hooks(self, spec: Any) -> Iterable[Any]:
        return [_Count(*one) for one in self._inputs]


class _Count(tf.compat.v1.train.SessionRunHook):
    def __init__(self, samples: tf.Tensor, batch_size: int):
        self._samples = samples
        self._batch_size = batch_size

    def after_create_session(self, session: Any, coord: Any) -> None:
        self._count = int(session.run(self._samples))

    def end(self, session: Any) -> None:
        left_out = self._count % self._batch_size
        if self._count > 0 and left_out:  # A negative count is unknown or infinite.
            logger.info(
                "predict: no prediction for the last %s of %s: input_fn makes batches of %s with "
                "drop_remainder=True. Fill the last batch up, or leave drop_remainder out.",
                f"{left_out:,}",
                counted(self._count, "sample"),
                f"{self._batch_size:,}",
            )
