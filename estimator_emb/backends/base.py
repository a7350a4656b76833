"""Base of the backends; `completed` has what every graph gets, wherever it runs."""

import abc
import dataclasses
from collections.abc import Callable, Sequence
from typing import Any, ClassVar

from estimator_emb.checkpoints.restoring.float16_copy import Float16Copy
from estimator_emb.checks import clusters
from estimator_emb.checks.program_checks import takes
from estimator_emb.private.graphs import fn_args
from estimator_emb.spec.config import EmbeddingConfigSpec
from estimator_emb.spec.resolved import Table
from estimator_emb.step.engine import Lookup
from estimator_emb.tables import scopes

Function = Callable[..., Any]


@dataclasses.dataclass(frozen=True)
class EstimatorRequest:
    """The arguments with which a program constructed its `TPUEstimator`, whose docstring has them.

    `spec` was checked, and is None without embedding tables. `config` may be anything that is not a
    `RunConfig`, which tensorflow-estimator refuses.
    """

    model_fn: Function
    spec: EmbeddingConfigSpec | None
    tables: Sequence[Table]
    config: Any
    use_tpu: bool
    train_batch_size: int | None
    eval_batch_size: int | None
    predict_batch_size: int | None
    batch_axis: Sequence[int] | None
    eval_on_tpu: bool
    export_to_tpu: bool
    export_to_cpu: bool


@dataclasses.dataclass
class Call:
    """The current call of an estimator, which tensorflow-estimator does not tell its hooks.

    Attributes:
      counts_steps: whether the program gave the number of steps to train.
      predict_keys: names of the predictions that are returned by example; None for all.
      exporting: whether graphs are for a SavedModel.
      hooks: classes of the hooks that the program gives to `train`.
      float16: the checkpoint that an export with float16 tables restores; None for float32 tables.
      lookup: the tables in the graph that is being built, once its backend has made them.
    """

    counts_steps: bool = False
    predict_keys: Any = ()
    exporting: bool = False
    hooks: Sequence[type] = ()
    float16: Float16Copy | None = None
    lookup: Lookup | None = None


class Backend(abc.ABC):
    """A place where a model runs and its tables live; raises ValueError for what it cannot run.

    The hooks of tensorflow-estimator call it. It holds no estimator, because copies of an estimator
    share it; a method that needs the estimator receives it.

    Attributes:
      emulates_tpu: whether the program sees a TPU that is not there.
      in_session: whether a session of this process, or of its cluster, runs the model's ops.
    """

    emulates_tpu: ClassVar[bool] = False
    in_session: ClassVar[bool] = False

    def __init__(self, request: EstimatorRequest):
        clusters.check_no_strategy(request.config, request.spec is not None, self.emulates_tpu)
        self.request = request

    def __deepcopy__(self, memo: dict[int, Any]) -> "Backend":
        return self  # It never changes.

    def constructor_arguments(self) -> dict[str, Any]:
        """Returns the changed arguments for tensorflow-estimator's constructor."""
        return {"eval_on_tpu": self.request.eval_on_tpu and self.request.use_tpu}

    def attach(self, estimator: Any) -> None:  # noqa: B027
        """Completes an estimator after tensorflow-estimator's constructor."""

    def check_prediction(self) -> None:  # noqa: B027
        """Raises NotImplementedError if a model cannot predict here."""

    def log_export(self) -> None:  # noqa: B027
        """Logs which of the wanted SavedModels is not written."""

    def input_fn(self, input_fn: Function, mode: str, context: Any) -> Function:
        """Returns input_fn as this place calls it; `context` is of the TPU, or its stand-in."""
        return input_fn

    @abc.abstractmethod
    def model_fn(self, estimator: Any, augment: Function) -> Function:
        """Returns the program's model_fn as an `Estimator` calls it.

        If it builds tables, it sets `lookup` of the estimator's current call. The estimator's
        constructor may still be running; `augment` is its `_augment_model_fn`.
        """

    def finish_graph(self) -> None:  # noqa: B027
        """Completes a graph with what only this backend needs."""

    def _recorded_model_fn(self) -> Function:
        model_fn = self.request.model_fn
        if self.request.spec is None:
            return model_fn
        return takes(scopes.recording(model_fn), fn_args(model_fn))
