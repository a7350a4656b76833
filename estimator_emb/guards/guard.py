"""The base of all guards, and what they know of a call."""

import contextlib
import dataclasses
import enum
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Protocol

from estimator_emb.checkpoints.restoring.float16_copy import Float16Copy
from estimator_emb.checkpoints.restoring.model_directory import ModelDirectory
from estimator_emb.compat.internals.estimators import ModeKeys
from estimator_emb.engine.cores import Cores
from estimator_emb.engine.engine import LiveTables
from estimator_emb.engine.pipelining import LookaheadBuffer
from estimator_emb.spec.resolved import Table

GUARDS_OF_GRAPH = "_estimator_emb_guards"
"""The attribute of a graph that holds its guards, which live as long as it."""

_HOOKS_OF = {
    ModeKeys.TRAIN: "training_hooks",
    ModeKeys.EVAL: "evaluation_hooks",
    ModeKeys.PREDICT: "prediction_hooks",
}


class Runs(enum.Enum):
    """Who runs the model of a call."""

    PLAIN = "an Estimator without a TPU"
    LOCAL = "use_tpu=False"
    EMULATED = "an emulated TPU"
    PJRT = "PJRT devices"
    TPU = "a TPU"
    DESCRIBED = "`check`"


@dataclasses.dataclass(frozen=True)
class Call:
    """One call of an estimator; `calls` makes all of them.

    Attributes:
      method: 'train', 'evaluate', 'predict' or 'export'.
      mode: the mode of the graph that is built; an export may build one for each mode.
      runs: who runs the estimator's models.
      estimator: the name of its class, if it is no `TPUEstimator`.
      model_fn: the program's.
      has_spec: whether the program gave an EmbeddingConfigSpec.
      tables: the tables of that spec.
      batch_sizes: mode -> samples of the whole batch as the program gave them, or None.
      steps, max_steps: those of the program's `train`.
      hooks: those that the program gives to `train`.
      saving_listeners: likewise.
      predict_keys: names of the predictions that are returned by example; None for all.
      model_dir: the folder of checkpoints.
      config: the estimator's `RunConfig`.
      directory: the checkpoints of that folder.
      restores: whether the model reads its weights from that folder.
      checkpoint: the path of the checkpoint that is read, or None.
      warm_start: the program's `WarmStartSettings`, or None.
      float16: the checkpoint that an export with float16 tables restores; None for float32 tables.
      host, hosts: the number of this process among those that train together on PJRT devices.
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
    float16: Float16Copy | None = None
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
        """Whether the program gave the number of steps to train."""
        return self.steps is not None or self.max_steps is not None

    @property
    def exporting(self) -> bool:
        return self.method == "export"

    @property
    def training(self) -> bool:
        return self.mode == ModeKeys.TRAIN

    @property
    def on_cores(self) -> bool:
        """Whether the program sees a TPU that is not there."""
        return self.runs in (Runs.EMULATED, Runs.PJRT)

    @property
    def in_session(self) -> bool:
        """Whether a session of this process, or of its cluster, runs the model's ops."""
        return self.runs not in (Runs.TPU, Runs.DESCRIBED)

    @property
    def in_graph(self) -> bool:
        """Whether the graph of that session has the model's ops, rather than a lowered step."""
        return self.in_session and self.runs is not Runs.PJRT

    @property
    def ours(self) -> bool:
        """Whether the estimator is a `TPUEstimator`, whose model runs in a session."""
        return self.in_session and self.runs is not Runs.PLAIN


@dataclasses.dataclass(frozen=True)
class ModelBatch:
    """What model_fn gets.

    Attributes:
      features, labels: those of the input, without what the tables look up.
      activations: by key, what the tables give to the model in place of that.
      samples: how many samples each feature should have: an int, a scalar tensor or None.
      static_samples: the same as the graph knows it while it is built, or None.
      given: the (features, labels) of input_fn; None where each core has its own.
    """

    features: Any
    labels: Any
    activations: dict[str, Any] = dataclasses.field(default_factory=dict)
    samples: Any = None
    static_samples: int | None = None
    given: tuple[Any, Any] | None = None

    @property
    def seen(self) -> Any:
        """The features of model_fn."""
        return {**self.features, **self.activations} if self.activations else self.features


class GraphFacts(Protocol):
    """What guards know of their graph; `watching.GraphGuards` is the class.

    Attributes:
      call: the call that builds the graph.
      cores: those that share the batch; one without a TPU.
      lookup: the tables in the graph, once they have been created.
    """

    call: Call
    cores: Cores
    lookup: LiveTables | None

    @property
    def seen(self) -> Any:
        """The features that model_fn gets."""

    @property
    def ahead(self) -> LookaheadBuffer | None:
        """What a step keeps for the next one, if lookups are a step ahead."""

    def inputs(self) -> list[tuple[str, Any]]:
        """Returns the parts of features and labels that model_fn gets, each with its name."""

    def losses_of(self, spec: Any) -> Sequence[Any]:
        """Returns the loss of each core; that of `spec` if they are unknown; [] without inputs."""

    def warm_start(self) -> Any:
        """Returns the settings from which the variables of the graph start, or None."""


class Guard:
    """Watches a call of an estimator, or a graph of it; each method is optional.

    The call and each of its graphs have their own instances, which may keep what they find.
    """

    def __init__(self, graph: GraphFacts):
        self.graph = graph
        self.call = graph.call

    @classmethod
    def applies(cls, call: Call) -> bool:
        """Returns whether a call gets this guard."""
        return True

    def surround(self) -> contextlib.AbstractContextManager[Any]:
        """Makes a context for the whole call, which yields hooks for its session."""
        return contextlib.nullcontext([])

    def building(self) -> contextlib.AbstractContextManager[Any]:
        """Makes a context for the part of the call in which it builds its graph."""
        return contextlib.nullcontext()

    def evaluating(self) -> contextlib.AbstractContextManager[Any]:
        """Makes a context for the session of an evaluation, which yields hooks for it."""
        return contextlib.nullcontext([])

    def evaluated(self, metrics: Any, output_dir: str) -> None:
        """Takes the metrics of an evaluation, whose summaries are in `output_dir`."""

    def calling(self) -> None:
        """Checks the call, before model_fn builds its graph."""

    def returned(self, owner: str, value: Any) -> Any:
        """Returns what input_fn, the `owner`, has returned, checked."""
        return value

    def reads(self, dataset: Any) -> None:
        """Notes a dataset of which an iterator is made."""

    def fed(self, features: Any, labels: Any, core: str) -> None:
        """Notes a batch of a dataset's iterator; `core` is '' or, e.g., ' of core 1'."""

    def before(self, batch: ModelBatch) -> ModelBatch:
        """Returns the batch for model_fn."""
        return batch

    def around(self, batch: ModelBatch) -> contextlib.AbstractContextManager[Any]:
        """Makes a context in which model_fn runs."""
        return contextlib.nullcontext()

    def after(self, spec: Any) -> Any:
        """Returns what model_fn has returned, checked."""
        return spec

    def built(self, spec: Any) -> Any:
        """Returns that value, once the tables are in the graph too."""
        return spec

    def complete(self, spec: Any) -> Any:
        """Returns the `EstimatorSpec` of the whole graph, checked."""
        return spec

    def hooks(self, spec: Any) -> Iterable[Any]:
        """Returns the session hooks that the graph needs."""
        return ()

    def training(
        self, spec: Any, worker_hooks: Sequence[Any], hooks: Sequence[Any]
    ) -> tuple[Any, Sequence[Any]]:
        """Returns the spec and the program's hooks of a training, just before its session."""
        return spec, hooks

    def explain(self, error: Exception) -> Exception | None:
        """Returns the error to raise in place of a session's error; None leaves it as it is."""
        return None


def with_hooks(spec: Any, hooks: Iterable[Any]) -> Any:
    """Returns an `EstimatorSpec` with more hooks for its mode."""
    name, hooks = _HOOKS_OF[spec.mode], list(hooks)
    return spec._replace(**{name: (*(getattr(spec, name) or ()), *hooks)}) if hooks else spec


def graph_guards(graph: Any) -> Any:
    """Returns the `GraphGuards` of a graph, or None."""
    return getattr(graph, GUARDS_OF_GRAPH, None)
