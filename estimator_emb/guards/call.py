"""Describes a call of an estimator: where it runs, and its arguments."""

import dataclasses
import enum
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from estimator_emb.checkpoints.restoring.model_directory import ModelDirectory
from estimator_emb.compat.internals.estimators import ModeKeys
from estimator_emb.spec.resolved import Table

METHODS = {ModeKeys.TRAIN: "train", ModeKeys.EVAL: "evaluate", ModeKeys.PREDICT: "predict"}
"""Mode -> the method of an estimator that builds graphs of this mode."""

_MODES = {method: mode for mode, method in METHODS.items()}


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
    """Describes one call of an estimator.

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
    def trains_in_graph(self) -> bool:
        """Whether the call trains, and its session's graph contains the model's ops."""
        return self.in_graph and self.method == "train"

    @property
    def ours(self) -> bool:
        """Whether the estimator is a `TPUEstimator` and its model runs in a session."""
        return self.in_session and self.runs is not Runs.PLAIN


def made(base: Call, method: str, *, checkpoint_path: Any = None, **given: Any) -> Call:
    """Returns the `Call` of an estimator's method.

    `base` holds what all calls of the estimator share, and `given` the arguments of this call.
    """
    path = checkpoint_path
    if base.restores and method in ("evaluate", "predict"):
        assert base.directory is not None
        path = base.directory.to_read(method, path, base.warm_start)
    mode = _MODES.get(method, "")
    return dataclasses.replace(base, method=method, mode=mode, checkpoint=path, **given)
