"""Explains errors that occur when features and labels differ in their number of samples."""

import contextlib
from typing import Any

from estimator_emb.guards.checks import batch_names
from estimator_emb.guards.guard import Call, Guard, ModelBatch


class SampleCounts(Guard):
    """Compares the numbers of samples while model_fn builds a graph."""

    @classmethod
    def applies(cls, call: Call) -> bool:
        return call.ours

    def around(self, batch: ModelBatch) -> contextlib.AbstractContextManager[Any]:
        return batch_names.compared(batch.features, batch.labels, batch.samples)
