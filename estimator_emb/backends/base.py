"""The base class of backends, and the request that a backend receives."""

import abc
import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

from estimator_emb.engine.alone import ALONE
from estimator_emb.guards.call import Runs
from estimator_emb.guards.watching import WatchedGraph
from estimator_emb.spec.config import EmbeddingConfigSpec
from estimator_emb.spec.resolved import Table

Function = Callable[..., Any]


@dataclasses.dataclass(frozen=True)
class EstimatorRequest:
    """The constructor arguments of a program's `TPUEstimator`, documented there.

    `spec` has been checked. It is None without embedding tables. `config` may have the wrong type:
    tensorflow-estimator's constructor rejects anything but a `RunConfig`.
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
    """A place where a model runs and its tables live.

    The constructor raises ValueError for a request that the backend cannot run. Copies of an
    estimator share a backend, so methods that need the estimator receive it as an argument.

    Attributes:
      runs: where the model runs.
      host: the host that this process is.
    """

    runs: Runs
    host = ALONE

    def __init__(self, request: EstimatorRequest):
        self.request = request

    def __deepcopy__(self, memo: dict[int, Any]) -> "Backend":
        return self  # A backend is immutable.

    def constructor_arguments(self) -> dict[str, Any]:
        """Returns the arguments to change for tensorflow-estimator's constructor."""
        return {}

    def attach(self, estimator: Any) -> None:  # noqa: B027
        """Completes an estimator after tensorflow-estimator's constructor has run."""

    def check_prediction(self) -> None:  # noqa: B027
        """Raises NotImplementedError if a model cannot predict here."""

    def input_fn(self, input_fn: Function, graph: WatchedGraph, context: Any) -> Function:
        """Returns input_fn adapted to this backend. `context` is the TPU's, or a stand-in."""
        return input_fn

    @abc.abstractmethod
    def model_fn(self, estimator: Any, augment: Function) -> Function:
        """Returns the model_fn for an `Estimator`: the program's model_fn inside `driver.drive`.

        The estimator's constructor may still be running. `augment` is its `_augment_model_fn`.
        """
