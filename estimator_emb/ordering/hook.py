# SPDX-License-Identifier: Apache-2.0
"""Orders the step of an estimator when its graph is complete."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import tensorflow as tf

from estimator_emb.ordering import reads_first
from estimator_emb.private.estimator import EstimatorSpec
from estimator_emb.private.tpu_estimator import OutfeedHostCallHook


class ReadsFirstHook(tf.compat.v1.train.SessionRunHook):
    """Orders the reads of a step's variables before their writes, just before a session begins.

    It must be the last hook, because `hooks`, the others, may add ops to the step until then.
    """

    def __init__(self, spec: EstimatorSpec, hooks: Iterable[Any]):
        self._spec = spec
        self._hooks = list(hooks)

    def begin(self) -> None:
        calls = [hook for hook in self._hooks if isinstance(hook, OutfeedHostCallHook)]
        sometimes = [
            *tf.compat.v1.get_collection(tf.compat.v1.GraphKeys.SUMMARIES),
            *tf.compat.v1.get_collection(tf.compat.v1.GraphKeys.SUMMARY_OP),
            tf.compat.v1.train.get_global_step(),
            *(
                fetched
                for hook in self._hooks
                for fetched in _fetched(list(vars(hook).values()))
                if tf.is_tensor(fetched)  # An op may initialize or reset something.
            ),
        ]
        every_step = [
            self._spec.train_op,
            self._spec.loss,
            [update for _, update in (self._spec.eval_metric_ops or {}).values()],
            [call._tensors for call in calls],
        ]
        reads_first.order(list(_fetched(every_step)), list(_fetched(sometimes)))


def added_to_evaluation(spec: EstimatorSpec) -> EstimatorSpec:
    """Returns the spec of an evaluation with a `ReadsFirstHook`."""
    hooks = list(spec.evaluation_hooks)
    return spec._replace(evaluation_hooks=[*hooks, ReadsFirstHook(spec, hooks)])


def added_to_training(spec: EstimatorSpec, hooks: Iterable[Any]) -> EstimatorSpec:
    """Returns the spec with a `ReadsFirstHook`; `hooks` are the session's that it lacks."""
    hooks = [*hooks, *spec.training_hooks, *spec.training_chief_hooks]
    return spec._replace(training_hooks=[*spec.training_hooks, ReadsFirstHook(spec, hooks)])


def _fetched(value: Any, depth: int = 3) -> Iterator[tf.Operation | tf.Tensor]:
    if isinstance(value, (tf.Variable, tf.Tensor, tf.Operation)):
        graph = tf.compat.v1.get_default_graph()
        element = getattr(value, "_as_graph_element", lambda: value)()
        if isinstance(element, (tf.Tensor, tf.Operation)) and element.graph is graph:
            yield element
    elif depth and isinstance(value, Mapping):
        for part in value.values():
            yield from _fetched(part, depth - 1)
    elif depth and isinstance(value, (list, tuple, set)):
        for part in value:
            yield from _fetched(part, depth - 1)
