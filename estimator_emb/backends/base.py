"""Base of the backends."""

import abc
import contextlib
import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

from estimator_emb.guards.guard import Runs
from estimator_emb.guards.watching import GraphGuards
from estimator_emb.spec.config import EmbeddingConfigSpec
from estimator_emb.spec.resolved import Table

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


class Backend(abc.ABC):
    """A place where a model runs and its tables live; raises ValueError for what it cannot run.

    The hooks of tensorflow-estimator call it. It holds no estimator, because copies of an estimator
    share it; a method that needs the estimator receives it.

    Attributes:
      runs: who runs the model.
      host, hosts: the number of this process among those that train together, and of all.
    """

    runs: Runs
    host = 0
    hosts = 1

    def __init__(self, request: EstimatorRequest):
        self.request = request

    def __deepcopy__(self, memo: dict[int, Any]) -> "Backend":
        return self  # It never changes.

    def constructor_arguments(self) -> dict[str, Any]:
        """Returns the changed arguments for tensorflow-estimator's constructor."""
        return {}

    def attach(self, estimator: Any) -> None:  # noqa: B027
        """Completes an estimator after tensorflow-estimator's constructor."""

    def check_prediction(self) -> None:  # noqa: B027
        """Raises NotImplementedError if a model cannot predict here."""

    def log_export(self) -> None:  # noqa: B027
        """Logs which of the wanted SavedModels is not written."""

    def training(self, model_dir: str) -> contextlib.AbstractContextManager[Any]:
        """Surrounds a training, which several hosts begin and end together."""
        return contextlib.nullcontext()

    def shared(self, call: Callable[[], Any]) -> Any:
        """Returns what a call of the chief returns, on all hosts; outside of a training."""
        return call()

    def input_fn(self, input_fn: Function, guards: GraphGuards, context: Any) -> Function:
        """Returns input_fn as this place calls it; `context` is of the TPU, or its stand-in."""
        return input_fn

    @abc.abstractmethod
    def model_fn(self, estimator: Any, augment: Function) -> Function:
        """Returns the program's model_fn, driven by `driver.drive`, as an `Estimator` calls it.

        The estimator's constructor may still be running; `augment` is its `_augment_model_fn`.
        """
