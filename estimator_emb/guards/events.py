"""The events of an estimator's calls, and what is known of a graph when they occur.

A check is a function that `on` registers for an event. `watching` runs the checks.
"""

import dataclasses
import enum
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import tensorflow as tf

from estimator_emb.checkpoints.restoring import warm_starts
from estimator_emb.compat.internals.estimators import ModeKeys
from estimator_emb.engine.cores import Cores
from estimator_emb.engine.engine import LiveTables
from estimator_emb.guards.call import Call, Runs
from estimator_emb.guards.checks import batch_names
from estimator_emb.guards.graph_ops import GraphOps

FACTS = "_estimator_emb_facts"
"""The graph's attribute that holds its `Facts`. The facts live as long as the graph."""

_HOOKS_OF = {
    ModeKeys.TRAIN: "training_hooks",
    ModeKeys.EVAL: "evaluation_hooks",
    ModeKeys.PREDICT: "prediction_hooks",
}


class Event(enum.Enum):
    """An event, with the arguments and the result of its checks.

    Of two contexts, the first registered is the outer one. Of two explanations, the first
    registered comes first.
    """

    CALL = "(call) -> a context for the whole call. It yields hooks for the call's session."
    EVALUATION = "(call) -> hooks for an evaluation's session."
    INPUT_RETURNED = "(call, input_fn's name, its value) -> None."
    GRAPH_BEGINS = "(call) -> None. model_fn builds the graph later."
    GRAPH_FAILED = "(call, error) -> an error to raise instead, or None."
    MODEL_RUNS = "(facts) -> a context in which model_fn runs."
    MODEL_FAILED = "(facts, error) -> an error to raise instead, or None."
    MODEL_RETURNED = "(facts, model_fn's value) -> another value, or None."
    GRAPH_COMPLETED = "(facts, the `EstimatorSpec`) -> hooks for the graph's session, or None."


@dataclasses.dataclass(frozen=True)
class Check:
    """A function that runs when an event occurs in a call for which `applies` returns True."""

    event: Event
    applies: Callable[[Call], bool]
    run: Callable[..., Any]


REGISTERED: dict[str, list[Check]] = {}
"""Name of a module -> its checks, from top to bottom."""


def on(event: Event, when: Callable[[Call], bool]) -> Callable[[Callable[..., Any]], Any]:
    """Returns a decorator that registers a check for calls for which `when` returns True."""

    def register(run: Callable[..., Any]) -> Callable[..., Any]:
        REGISTERED.setdefault(run.__module__, []).append(Check(event, when, run))
        return run

    return register


@dataclasses.dataclass(frozen=True)
class ModelBatch:
    """The batch that model_fn receives.

    Attributes:
      features, labels: the input's, without the ids and weights that the tables look up.
      activations: key -> the activation that model_fn receives instead of those ids.
      looked_up: the features with the ids and weights that the tables look up, of all cores.
      samples: the number of samples that each feature should have, if the graph fixes it.
    """

    features: Any
    labels: Any
    activations: dict[str, Any] = dataclasses.field(default_factory=dict)
    looked_up: Any = None
    samples: int | None = None

    @property
    def seen(self) -> Any:
        """The features that model_fn receives, activations included."""
        return {**self.features, **self.activations} if self.activations else self.features


class Facts:
    """What is known of a graph that a call builds.

    Attributes:
      call: the call, with the mode of the graph.
      ops: the ops of the graph. They are searched once for all checks.
      batch: the batch that model_fn receives, once it is known.
      cores: the cores that share the batch. Without a TPU this is a single core.
      lookup: the tables in the graph, once they have been created.
      model_loss: the loss that model_fn returned. A PJRT device computes it outside of the graph.
      notes: what a check notes for a later event, by the name of the check.
    """

    model_loss: tf.Tensor

    def __init__(self, call: Call):
        self.call = call
        self.ops = GraphOps(call)
        self.batch: ModelBatch | None = None
        self.cores = Cores()
        self.lookup: LiveTables | None = None
        self.notes: dict[str, Any] = {}
        self._losses: Sequence[tf.Tensor] = ()

    def knows(self, losses: Sequence[tf.Tensor], lookup: LiveTables | None) -> None:
        """Notes each core's loss, if the cores are replicas, and the tables of the step."""
        self._losses, self.lookup = losses, lookup

    def inputs(self) -> list[tuple[str, Any]]:
        """Returns the name and value of each feature and label that model_fn receives."""
        if self.batch is None:
            return []
        if self.call.runs is Runs.PLAIN and tf.distribute.has_strategy():
            return []  # Each replica has its own batch.
        parts = {"features": self.batch.features, "labels": self.batch.labels}
        return list(batch_names.named(parts))

    def losses_of(self, spec: Any) -> Sequence[tf.Tensor]:
        """Returns each core's loss, or `spec.loss` if unknown. Without inputs, returns []."""
        if spec.loss is None or not self.inputs():
            return []
        return list(self._losses) or [spec.loss]

    def warm_start(self) -> Any:
        """Returns the warm-start settings of the graph's variables, if any."""
        if self.call.training and self.lookup is not None:
            return self.lookup.warm_start(self.call.warm_start)
        return warm_starts.with_all_weights(self.call.warm_start, self.call.model_dir)


def facts_of(graph: Any) -> Any:
    """Returns the `Facts` of a graph, if any."""
    return getattr(graph, FACTS, None)


def with_hooks(spec: Any, hooks: Iterable[Any], mode: str) -> Any:
    """Returns the `EstimatorSpec` with `hooks` added for `mode`, whatever mode the spec has."""
    name, hooks = _HOOKS_OF.get(mode, "prediction_hooks"), list(hooks)  # Exports have other modes.
    return spec._replace(**{name: (*(getattr(spec, name) or ()), *hooks)}) if hooks else spec
