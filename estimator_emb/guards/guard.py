"""The base class of all guards, and the facts that guards know about a call."""

import contextlib
import dataclasses
import enum
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Protocol

from estimator_emb.checkpoints.restoring.model_directory import ModelDirectory
from estimator_emb.compat.internals.estimators import ModeKeys
from estimator_emb.engine.cores import Cores
from estimator_emb.engine.engine import LiveTables
from estimator_emb.engine.pipelining import LookaheadBuffer
from estimator_emb.spec.resolved import Table

GUARDS_OF_GRAPH = "_estimator_emb_guards"
"""The graph's attribute that holds its guards. The guards live as long as the graph."""

_HOOKS_OF = {
    ModeKeys.TRAIN: "training_hooks",
    ModeKeys.EVAL: "evaluation_hooks",
    ModeKeys.PREDICT: "prediction_hooks",
}


class Runs(enum.Enum):
    """Where the model of a call runs."""

    PLAIN = "an Estimator without a TPU"
    LOCAL = "use_tpu=False"
    EMULATED = "an emulated TPU"
    PJRT = "PJRT devices"
    TPU = "a TPU"
    DESCRIBED = "`check`"


@dataclasses.dataclass(frozen=True)
class Call:
    """Describes one call of an estimator, as the module `calls` builds it.

    Attributes:
      method: 'train', 'evaluate', 'predict' or 'export'.
      mode: the mode of the graph being built. An export may build a graph for each mode.
      runs: where the estimator's models run.
      estimator: the class name of a plain Estimator. Empty for a `TPUEstimator`.
      model_fn: the program's model_fn.
      has_spec: whether the program passed an EmbeddingConfigSpec.
      tables: the tables of that spec.
      batch_sizes: mode -> the program's batch size over all cores, if it passed a size.
      steps, max_steps, hooks, saving_listeners: arguments of the program's call.
      predict_keys: the predictions that are split into single examples. None for all.
      model_dir: the folder of checkpoints.
      config: the estimator's `RunConfig`.
      directory: the checkpoints of `model_dir`.
      restores: whether the model restores its weights from `model_dir`.
      checkpoint: the path of the checkpoint that is read, if any.
      warm_start: the program's `WarmStartSettings`, if any.
      host, hosts: the number of this process among the hosts that train together, and their count.
    """

    runs: Runs
    method: str = ""
    mode: str = ""
    estimator: str = ""
    model_fn: Callable[..., Any] | None = None
    has_spec: bool = False
    tables: Sequence[Table] = ()
    batch_sizes: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    steps: Any = None
    max_steps: Any = None
    hooks: Any = None
    saving_listeners: Any = None
    predict_keys: Any = ()
    model_dir: str = ""
    config: Any = None
    directory: ModelDirectory | None = None
    restores: bool = True
    checkpoint: str | None = None
    warm_start: Any = None
    host: int = 0
    hosts: int = 1

    @property
    def is_chief(self) -> bool:
        """Whether this process saves the model."""
        return self.host == 0 and bool(self.config.is_chief)

    @property
    def batch_size(self) -> Any:
        return self.batch_sizes.get(self.mode)

    @property
    def counts_steps(self) -> bool:
        """Whether the program passed the number of steps to train."""
        return self.steps is not None or self.max_steps is not None

    @property
    def exporting(self) -> bool:
        return self.method == "export"

    @property
    def training(self) -> bool:
        return self.mode == ModeKeys.TRAIN

    @property
    def on_cores(self) -> bool:
        """Whether an emulated TPU or PJRT devices replace the program's TPU."""
        return self.runs in (Runs.EMULATED, Runs.PJRT)

    @property
    def in_session(self) -> bool:
        """Whether the model runs in a session of this process or its cluster."""
        return self.runs not in (Runs.TPU, Runs.DESCRIBED)

    @property
    def in_graph(self) -> bool:
        """Whether the session's graph contains the model's ops, not a lowered step."""
        return self.in_session and self.runs is not Runs.PJRT

    @property
    def ours(self) -> bool:
        """Whether the estimator is a `TPUEstimator` and its model runs in a session."""
        return self.in_session and self.runs is not Runs.PLAIN


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


class GraphFacts(Protocol):
    """The facts that guards can read about their graph. `watching.GraphGuards` provides them.

    Attributes:
      call: the call that builds the graph.
      cores: the cores that share the batch. Without a TPU this is a single core.
      lookup: the tables in the graph, once they have been created.
    """

    call: Call
    cores: Cores
    lookup: LiveTables | None

    @property
    def seen(self) -> Any:
        """The features that model_fn receives."""

    @property
    def ahead(self) -> LookaheadBuffer | None:
        """The tensors kept for the next step, if lookups run a step ahead."""

    def inputs(self) -> list[tuple[str, Any]]:
        """Returns the name and value of each feature and label that model_fn receives."""

    def losses_of(self, spec: Any) -> Sequence[Any]:
        """Returns each core's loss, or `spec.loss` if unknown. Without inputs, returns []."""

    def warm_start(self) -> Any:
        """Returns the warm-start settings of the graph's variables, if any."""


class Guard:
    """Watches a call of an estimator or one of its graphs. All methods are optional.

    Each call and each graph has its own instance, so a guard may keep state.
    """

    def __init__(self, graph: GraphFacts):
        self.graph = graph
        self.call = graph.call

    @classmethod
    def applies(cls, call: Call) -> bool:
        """Returns whether a call gets this guard."""
        return True

    def surround(self) -> contextlib.AbstractContextManager[Any]:
        """Returns a context for the whole call. It yields hooks for the call's session."""
        return contextlib.nullcontext([])

    def building(self) -> contextlib.AbstractContextManager[Any]:
        """Returns a context for the part of the call that builds its graph."""
        return contextlib.nullcontext()

    def evaluating(self) -> contextlib.AbstractContextManager[Any]:
        """Returns a context for an evaluation's session. It yields hooks for the session."""
        return contextlib.nullcontext([])

    def evaluated(self, metrics: Any, output_dir: str) -> None:
        """Receives an evaluation's metrics. Its summaries are in `output_dir`."""

    def calling(self) -> None:
        """Checks the call before model_fn builds its graph."""

    def returned(self, owner: str, value: Any) -> Any:
        """Returns input_fn's value, checked or replaced. `owner` names input_fn in messages."""
        return value

    def before(self, batch: ModelBatch) -> ModelBatch:
        """Returns the batch for model_fn, checked or replaced."""
        return batch

    def around(self, batch: ModelBatch) -> contextlib.AbstractContextManager[Any]:
        """Returns a context in which model_fn runs."""
        return contextlib.nullcontext()

    def after(self, spec: Any) -> Any:
        """Returns the value of model_fn, checked or replaced."""
        return spec

    def built(self, spec: Any) -> Any:
        """Returns `spec`, checked or replaced after the tables were added to the graph."""
        return spec

    def complete(self, spec: Any) -> Any:
        """Returns the `EstimatorSpec` of the complete graph, checked or replaced."""
        return spec

    def hooks(self, spec: Any) -> Iterable[Any]:
        """Returns the session hooks that the graph needs."""
        return ()

    def training(
        self, spec: Any, worker_hooks: Sequence[Any], hooks: Sequence[Any]
    ) -> tuple[Any, Sequence[Any]]:
        """Returns a training's spec and hooks, possibly changed, just before its session."""
        return spec, hooks

    def explain(self, error: Exception) -> Exception | None:
        """Returns an error to raise instead of a session's error, if the guard can explain it."""
        return None


def with_hooks(spec: Any, hooks: Iterable[Any], mode: str) -> Any:
    """Returns the `EstimatorSpec` with `hooks` added for its mode, or for `mode` if it is None."""
    name, hooks = _HOOKS_OF[spec.mode or mode], list(hooks)
    return spec._replace(**{name: (*(getattr(spec, name) or ()), *hooks)}) if hooks else spec


def graph_guards(graph: Any) -> Any:
    """Returns the `GraphGuards` of a graph, if any."""
    return getattr(graph, GUARDS_OF_GRAPH, None)
