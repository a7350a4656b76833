"""Logs once if a batch of a training has fewer samples than `train_batch_size`."""

from typing import Any

import tensorflow as tf

from estimator_emb.guards.checks import batch_names, program_checks
from estimator_emb.guards.guard import Call, Guard, ModelBatch
from estimator_emb.reporting import console


class SmallBatches(Guard):
    """Checks trainings without a TPU, because a TPU accepts only full batches."""

    _given: Any = None

    @classmethod
    def applies(cls, call: Call) -> bool:
        declares = program_checks.is_batch_size(call.batch_size)
        return call.ours and call.method == "train" and declares

    def before(self, batch: ModelBatch) -> ModelBatch:
        self._given = batch.given
        return batch

    def built(self, spec: Any) -> Any:
        if self._given is None or not hasattr(spec, "training_hooks"):
            return spec
        features, labels = self._given
        sizes = (_samples(value) for _, value in batch_names.named([labels, features]))
        samples = next((size for size in sizes if size is not None), None)
        declared = self.call.batch_size
        if tf.is_tensor(samples):
            hooks = *spec.training_hooks, _SmallBatches(declared, samples)
            return spec._replace(training_hooks=hooks)
        if samples is not None:
            _tell_if_small(declared, samples)
        return spec


class _SmallBatches(tf.compat.v1.train.SessionRunHook):
    def __init__(self, declared: int, samples: tf.Tensor):
        self._declared, self._samples = declared, samples

    def before_run(self, run_context: Any) -> Any:
        return tf.compat.v1.train.SessionRunArgs(self._samples)

    def after_run(self, run_context: Any, run_values: Any) -> None:
        if _tell_if_small(self._declared, run_values.results):
            self._declared = 0


def _samples(value: Any) -> Any:
    if isinstance(value, tf.SparseTensor):
        return value.dense_shape[0]
    if isinstance(value, tf.RaggedTensor):
        return value.nrows()
    if not isinstance(value, tf.Tensor) or not value.shape.rank:
        return None
    return value.shape[0] if value.shape[0] is not None else tf.shape(value)[0]


def _tell_if_small(declared: int, samples: int) -> bool:
    if samples < declared:
        console.say_once(
            f"train_batch_size is {declared}, and input_fn gave a batch of {samples}. It trains, "
            "and the examples per second that are shown count whole batches. A TPU takes no other: "
            "batch the dataset by params['batch_size'], with drop_remainder=True."
        )
    return samples < declared
