# SPDX-License-Identifier: Apache-2.0
"""What a program asks of a `TPUEstimator`, and what each way of running answers.

A `Backend` stands between `TPUEstimator` and one place where a model runs and its tables live. The
hooks of tensorflow-estimator ask it, each in a line or two; `choose` makes it, once. It knows what
was asked, and nothing of the estimator that asks: estimators that are copied share it, and a method
that needs the estimator is given it. What a backend leaves out has nothing to do where it runs.
"""

import abc
import dataclasses
from collections.abc import Callable, Sequence
from typing import Any, ClassVar

from estimator_emb.checks import strategies
from estimator_emb.checks.program_checks import takes
from estimator_emb.private.graphs import fn_args
from estimator_emb.spec.config import EmbeddingConfigSpec
from estimator_emb.spec.resolved import Table
from estimator_emb.tables import scopes

Function = Callable[..., Any]


@dataclasses.dataclass(frozen=True)
class Request:
    """What a program asked for when it constructed its estimator.

    Attributes:
      model_fn: the program's.
      spec: checked; None without embedding tables.
      tables: those of the spec.
      config: what should be a `RunConfig`; tensorflow-estimator refuses what is none.
      use_tpu: whether the program means to run on a TPU, be it an emulated one.
      train_batch_size: samples of a step over all cores; None where the program gave none.
      eval_batch_size: likewise.
      predict_batch_size: likewise.
      batch_axis: for each input the axis that holds samples; None for axis 0.
      eval_on_tpu: whether an evaluation runs where training does.
      export_to_tpu: whether SavedModels get a graph for TPUs.
      export_to_cpu: whether SavedModels get a graph for CPU and GPU.
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
    """What an estimator is doing, which its hooks are not told by tensorflow-estimator.

    Attributes:
      counts_steps: whether the program said how many steps to train.
      predict_keys: names of the predictions that are handed out by example; None for all.
      exporting: whether graphs are for a SavedModel.
      hooks: classes of the hooks that the program gives to `train`.
    """

    counts_steps: bool = False
    predict_keys: Any = ()
    exporting: bool = False
    hooks: Sequence[type] = ()


class Backend(abc.ABC):
    """A place where a model runs and where its tables live.

    Args:
      request: what the program asked for.

    Attributes:
      emulates_tpu: whether the program is shown a TPU that is not there.
      reads_ahead: whether input is read before the step that trains with it begins.

    Raises:
      ValueError: the place does not go with what was asked for.
    """

    emulates_tpu: ClassVar[bool] = False
    reads_ahead: ClassVar[bool] = False

    def __init__(self, request: Request):
        strategies.check(request.config, request.spec is not None, self.emulates_tpu)
        self.request = request

    def __deepcopy__(self, memo: dict[int, Any]) -> "Backend":
        return self  # It never changes.

    def constructor_arguments(self) -> dict[str, Any]:
        """Returns what tensorflow-estimator's constructor is given in place of the program's."""
        return {"eval_on_tpu": self.request.eval_on_tpu and self.request.use_tpu}

    def attach(self, estimator: Any) -> None:  # noqa: B027
        """Completes an estimator whose constructor of tensorflow-estimator has run."""

    def check_prediction(self) -> None:  # noqa: B027
        """Refuses predictions where they cannot be had.

        Raises:
          NotImplementedError: they cannot.
        """

    def log_export(self) -> None:  # noqa: B027
        """Says in the log what of the wanted SavedModel is not written."""

    def input_fn(self, input_fn: Function, mode: str, context: Any) -> Function:
        """Returns the program's input_fn as this place calls it.

        Args:
          input_fn: the program's.
          mode: a `ModeKeys`.
          context: the estimator's, of the TPU or what stands for it.
        """
        return input_fn

    @abc.abstractmethod
    def model_fn(self, estimator: Any, augment: Function) -> Function:
        """Returns the program's model_fn as an `Estimator` calls it.

        Args:
          estimator: whose hook asks; its constructor has not run to its end.
          augment: tensorflow-estimator's `_augment_model_fn`, of the estimator.
        """

    def before_model_fn(self, mode: str, call: Call) -> None:  # noqa: B027
        """Checks a call, before model_fn builds the graph of a mode."""

    def after_model_fn(self, spec: Any, call: Call) -> Any:
        """Returns the `EstimatorSpec` of a graph that was built, checked and completed."""
        return spec

    def before_training(
        self, spec: Any, worker_hooks: Sequence[Any], hooks: Sequence[Any], config: Any
    ) -> tuple[Any, Sequence[Any]]:
        """Returns spec and hooks of a training, just before its session.

        Args:
          spec: the `EstimatorSpec`.
          worker_hooks: those of tensorflow-estimator.
          hooks: those of the program, and ours.
          config: the estimator's `RunConfig`.
        """
        return spec, hooks

    def _recorded_model_fn(self) -> Function:
        """Returns the program's model_fn, with note taken of the scopes it uses its columns in."""
        model_fn = self.request.model_fn
        if self.request.spec is None:
            return model_fn
        return takes(scopes.recording(model_fn), fn_args(model_fn))
