"""`train_and_evaluate` for clusters that end when the chief has finished.

In tensorflow-estimator, parameter servers and late workers run forever. Here, each of these
processes waits for the chief's message on a queue of its own TensorFlow server (`ending`). While it
waits, it logs the missing tasks (`waiting`).
"""

from typing import Any

from estimator_emb.backends.cluster import best_exports, ending, tasks, waiting
from estimator_emb.compat.internals.estimators import (
    EvalSpec,
    TrainingExecutor,
    TrainSpec,
    step_of_latest_checkpoint,
    stock_train_and_evaluate,
)
from estimator_emb.compat.internals.graphs import not_converted
from estimator_emb.guards.checks import call_arguments
from estimator_emb.reporting.program_calls import called_by_program
from estimator_emb.spec import tf_config


@not_converted
@called_by_program
def train_and_evaluate(estimator: Any, train_spec: Any, eval_spec: Any) -> Any:
    """Trains an estimator, and evaluates it at each checkpoint.

    If the environment variable TF_CONFIG names a cluster, this process performs its task in the
    cluster. The chief and the workers train, and the parameter servers wait. When the chief has
    finished, `train_and_evaluate` returns in all processes. If the chief fails or is killed, you
    can start it again: the other processes wait for it.

    A waiting process logs which tasks it waits for, and how long. ESTIMATOR_EMB_WAIT_LIMIT, an
    environment variable, limits the wait in seconds. At the limit, the process exits with status 1.

    Args:
      estimator: the `TPUEstimator` or `Estimator`.
      train_spec: a `TrainSpec` that says how to train.
      eval_spec: an `EvalSpec` that says how to evaluate.

    Returns:
      Without a cluster, (metrics of the last evaluation, results of its exporters). Otherwise None.

    Raises:
      ValueError: TF_CONFIG or ESTIMATOR_EMB_WAIT_LIMIT is invalid.
      TypeError: an argument has the wrong type.
    """
    tf_config.read_tf_config()
    call_arguments.check_specs(train_spec, eval_spec)
    config: Any = getattr(estimator, "config", None)
    if isinstance(eval_spec, EvalSpec):
        best_exports.begin(estimator, eval_spec)
    if (
        getattr(config, "cluster_spec", None)
        and config.task_type in (*tasks.CHIEFS, "worker", "ps")
        and getattr(config, "_distribute_coordinator_mode", None) is None
        and isinstance(train_spec, TrainSpec)
        and isinstance(eval_spec, EvalSpec)
    ):
        return _Executor(estimator, train_spec, eval_spec).run()
    return stock_train_and_evaluate(estimator, train_spec, eval_spec)


class _Executor(TrainingExecutor):
    def __init__(self, *args: Any):
        super().__init__(*args)
        config = self._estimator.config
        self._member = ending.Member(config.task_type, config.task_id)
        self._watch = waiting.AbsenceWatch(config.cluster_spec, config.task_type, self._is_over)
        self._server: Any = None  # Stays None in a cluster with a single process.

    def run_chief(self) -> None:
        super().run_chief()
        self._end_all()

    def run_master(self) -> None:
        super().run_master()
        self._end_all()

    def run_worker(self) -> None:
        hooks: Any = self._train_hooks  # type: ignore[has-type]
        self._train_hooks = [*hooks, self._member]
        super().run_worker()
        self._member.leave()
        self._watch.stop()

    def run_ps(self) -> None:
        self._start_std_server(self._estimator.config)
        self._member.wait()
        self._watch.stop()

    def _start_std_server(self, config: Any) -> Any:
        server = super()._start_std_server(config)
        if server is not None:
            if config.task_type not in tasks.CHIEFS:
                self._member.listen(server.target)
            self._watch.start()
        self._server = server
        return server

    def _end_all(self) -> None:
        self._watch.stop()
        if self._server is not None:
            ending.end_all(self._server.target, self._estimator.config.cluster_spec)

    def _is_over(self) -> bool:
        """Returns True, and ends this process, if a checkpoint of the last step exists.

        This ends a process that started after the chief had ended. A chief that has yet to start
        would find the same checkpoint.
        """
        last = self._train_spec.max_steps
        directory = self._estimator.model_dir
        if last is None or step_of_latest_checkpoint(directory) < last:
            return False
        self._member.end_late(f"{directory} holds a checkpoint of its last step, {last:,}")
        return True
