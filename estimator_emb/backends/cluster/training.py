"""`train_and_evaluate` for clusters that end when the chief has finished.

In tensorflow-estimator, parameter servers and late workers run forever. Here, each of these
processes waits for the chief's message on a queue of its own TensorFlow server (`ending`). While it
waits, it logs the missing tasks (`waiting`). An evaluator has no server, so the chief leaves it a
file.
"""

import os
import sys
import time
from typing import Any

import tensorflow as tf

from estimator_emb.backends.cluster import best_exports, ending, tasks, waiting
from estimator_emb.compat.internals.estimators import (
    EvalSpec,
    TrainingExecutor,
    step_of_latest_checkpoint,
    stock_train_and_evaluate,
)
from estimator_emb.compat.internals.graphs import not_converted
from estimator_emb.reporting.console import logger
from estimator_emb.reporting.program_calls import called_by_program

_OVER = ".estimator_emb.over"
"""A file in model_dir. The chief writes another text into it each time that a training is over."""


@not_converted
@called_by_program
def train_and_evaluate(estimator: Any, train_spec: Any, eval_spec: Any) -> Any:
    """Trains an estimator, and evaluates it at each checkpoint.

    If the environment variable TF_CONFIG names a cluster, this process performs its task in the
    cluster. The chief and the workers train, and the parameter servers wait. When the chief has
    finished, `train_and_evaluate` returns in workers and evaluator, and parameter servers exit. If
    the chief fails or is killed, you can start it again: the other processes wait for it.

    A waiting process logs which tasks it waits for, and how long. ESTIMATOR_EMB_WAIT_LIMIT, an
    environment variable, limits the wait in seconds. At the limit, the process exits with status 1.

    Args:
      estimator: the `TPUEstimator` or `Estimator`.
      train_spec: a `TrainSpec` that says how to train.
      eval_spec: an `EvalSpec` that says how to evaluate.

    Returns:
      Without a cluster, (metrics of the last evaluation, results of its exporters). Otherwise None.

    Raises:
      ValueError: ESTIMATOR_EMB_WAIT_LIMIT is invalid.
      TypeError: an argument has the wrong type.
      SystemExit: this process is a parameter server, and training is over.
    """
    config: Any = getattr(estimator, "config", None)
    if isinstance(eval_spec, EvalSpec):  # Stock refuses None, and the executor accepts it.
        best_exports.begin(estimator, eval_spec)
        is_evaluator = getattr(config, "task_type", None) == "evaluator"
        in_cluster = is_evaluator or getattr(config, "cluster_spec", None)
        if in_cluster and getattr(config, "_distribute_coordinator_mode", None) is None:
            return _Executor(estimator, train_spec, eval_spec).run()
    return stock_train_and_evaluate(estimator, train_spec, eval_spec)


class _Executor(TrainingExecutor):
    def __init__(self, *args: Any):
        super().__init__(*args)
        config = self._estimator.config
        self._member = ending.Member(config.task_type, config.task_id)
        self._watch = waiting.AbsenceWatch(config.cluster_spec, config.task_type, self._is_over)
        self._server: Any = None  # Stays None in a cluster with a single process.
        self._earlier_end = self._end_of_training()

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
        sys.exit(0)  # The program's next lines are not for a server: stock never returns.

    def _execute_evaluator_once(self, evaluator: Any, *args: Any) -> Any:
        is_over = self._end_of_training() != self._earlier_end
        checkpoint = self._estimator.latest_checkpoint()
        try:
            with best_exports.undone_by_errors(self._eval_spec):
                if not is_over:
                    return super()._execute_evaluator_once(evaluator, *args)
                evaluator.evaluate_and_export()
        except Exception:
            if checkpoint is None or tf.io.gfile.exists(f"{checkpoint}.index"):
                raise
            logger.warning(
                "The checkpoint %s was deleted before its evaluation and exports were complete. "
                "This evaluator goes on with the newest. RunConfig(keep_checkpoint_max=%s) keeps "
                "more checkpoints if it is larger.",
                checkpoint,
                self._estimator.config.keep_checkpoint_max,
            )
            return None, False
        step, last = (
            step_of_latest_checkpoint(self._estimator.model_dir),
            self._train_spec.max_steps,
        )
        early = f" at step {step:,}, before max_steps={last:,}" if last and step < last else ""
        logger.info("Training ended%s: this evaluator ends.", early)
        return None, True

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
        with tf.io.gfile.GFile(self._path_of_end(), "w") as file:
            file.write(str(time.time_ns()))
        if self._server is not None:
            ending.end_all(self._server.target, self._estimator.config.cluster_spec)

    def _path_of_end(self) -> str:
        return os.path.join(self._estimator.model_dir, _OVER)

    def _end_of_training(self) -> str:
        """Returns the text that the chief wrote last, or '' if no training has ended."""
        try:
            with tf.io.gfile.GFile(self._path_of_end()) as file:
                return str(file.read())
        except tf.errors.OpError:
            return ""

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
