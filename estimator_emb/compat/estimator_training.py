"""Replaces `tensorflow.python.distribute.estimator_training`, which TensorFlow 2.16 removed.

tensorflow-estimator imports it in `run_config.py` (`init_run_config`), `training.py`
(`should_run_distribute_coordinator`, `train_and_evaluate`) and `estimator.py` (`estimator_train`,
`estimator_evaluate`).

It connects a `RunConfig` that has a distribution strategy to TensorFlow's distribute coordinator
(`tensorflow.python.distribute.distribute_coordinator`). `init_run_config` picks one of two modes,
and keeps it in `config._distribute_coordinator_mode`:

* `None`: the coordinator is not used. This mode is for a strategy without a cluster, a cluster
  without a training strategy (parameter servers by TF_CONFIG), or a cluster with a `master` job.
* `"independent_worker"`: TF_CONFIG names a cluster, `train_distribute` is set, and each task of the
  cluster runs this same program.

A client that drives the servers of `experimental_distribute.remote_cluster` is refused.
"""

import copy
from collections.abc import Callable
from typing import Any

import tensorflow as tf

from estimator_emb.compat.internals.graphs import (
    CoordinatorMode,
    current_worker_context,
    run_distribute_coordinator,
)

logging = tf.compat.v1.logging

CHIEF = "chief"
EVALUATOR = "evaluator"
PS = "ps"
WORKER = "worker"

_INDEPENDENT = CoordinatorMode.INDEPENDENT_WORKER


def init_run_config(config, tf_config: dict[str, Any]) -> None:
    """Fills, in place, the distributed settings of a `RunConfig` under construction.

    `tf_config` is the parsed TF_CONFIG, or `{}` if it is not set. Raises ValueError if a strategy
    is given in two places, or for a remote cluster.
    """
    experimental = config._experimental_distribute
    for option in ("train_distribute", "eval_distribute"):
        strategy = getattr(experimental, option) if experimental else None
        if not strategy:
            continue
        if getattr(config, f"_{option}"):
            raise ValueError(
                f"Set either `{option}` or `experimental_distribute.{option}`, not both."
            )
        setattr(config, f"_{option}", strategy)

    cluster = tf.train.ClusterSpec(tf_config.get("cluster", {}))
    if config._train_distribute and experimental and experimental.remote_cluster:
        raise ValueError(
            "`experimental_distribute.remote_cluster` is not supported: run the program in each "
            "task of the cluster, with a TF_CONFIG."
        )
    if config._train_distribute and cluster and "master" not in cluster.jobs:
        # The coordinator's worker context sets the task's own settings later. Until then the
        # config describes a local run that knows the cluster.
        config._init_distributed_setting_from_environment_var({})
        config._cluster_spec = cluster
        config._distribute_coordinator_mode = _INDEPENDENT
        logging.info("RunConfig is set up for Distribute Coordinator.")
    else:
        config._distribute_coordinator_mode = None
        config._init_distributed_setting_from_environment_var(tf_config)
        config._maybe_overwrite_session_config_for_distributed_training()
        logging.info("Not using Distribute Coordinator.")


def should_run_distribute_coordinator(config) -> bool:
    """Returns whether `train_and_evaluate` must use the distribute coordinator."""
    mode = getattr(config, "_distribute_coordinator_mode", None)
    if mode is None:
        logging.info("Not using Distribute Coordinator.")
        return False
    if mode != _INDEPENDENT:
        logging.warning("Ignoring the unknown distribute coordinator mode %r.", mode)
        return False
    if not config.cluster_spec:
        logging.warning("No cluster: running locally, without Distribute Coordinator.")
        return False
    return True


def _apply_worker_context(config, context) -> None:
    cluster, task_type = context.cluster_spec, context.task_type
    config._cluster_spec = cluster
    config._task_type = task_type
    config._task_id = context.task_id
    config._master = config._evaluation_master = context.master_target
    config._is_chief = context.is_chief

    replicas: tuple[int, int, int | None]
    if not cluster:
        replicas = (0, 1, 0)
    elif task_type == EVALUATOR:
        # An evaluator works alone. It must not see the training cluster, and has no id there.
        config._cluster_spec = tf.train.ClusterSpec({})
        replicas = (0, 0, None)
    else:
        jobs = cluster.as_dict()
        replicas = (
            len(jobs.get(PS, ())),
            len(jobs.get(WORKER, ())) + len(jobs.get(CHIEF, ())),
            _global_id(cluster, task_type, context.task_id),
        )
    config._num_ps_replicas, config._num_worker_replicas, config._global_id_in_cluster = replicas


def _global_id(cluster, task_type: str, task_id: int) -> int:
    """Returns the rank of a task: the chief, then other jobs by name, then parameter servers."""
    if task_type not in cluster.jobs:
        raise RuntimeError(f"The cluster {sorted(cluster.jobs)} has no job {task_type!r}.")

    def place(job: str) -> tuple[bool, bool, str]:
        return (job == PS, job != CHIEF, job)

    before = [job for job in cluster.jobs if place(job) < place(task_type)]
    return sum(len(cluster.job_tasks(job)) for job in before) + task_id


def _estimator_of_task(estimator, phase: str, strategy):
    """Returns a copy of the estimator for the current task."""
    context = current_worker_context()
    local = copy.deepcopy(estimator)
    setattr(local._config, f"_{phase}_distribute", strategy)
    setattr(local, f"_{phase}_distribution", strategy)
    _apply_worker_context(local._config, context)
    logging.info("RunConfig of this task: %s", vars(local._config))
    return local


def train_and_evaluate(estimator, train_spec, eval_spec, executor_cls) -> None:
    """Runs `tf.estimator.train_and_evaluate` through the distribute coordinator.

    `executor_cls` runs the continuous evaluation of an evaluator task.
    """
    config = estimator.config
    mode = config._distribute_coordinator_mode
    if not mode:
        raise ValueError("The `RunConfig` has no distribute coordinator mode.")

    def train(strategy) -> None:
        local = _estimator_of_task(estimator, "train", strategy)
        # With a mode, the copy would call the coordinator again.
        local._config._distribute_coordinator_mode = None
        local.train(
            input_fn=train_spec.input_fn,
            max_steps=train_spec.max_steps,
            hooks=list(train_spec.hooks),
        )

    def evaluate(strategy) -> None:
        local = _estimator_of_task(estimator, "eval", strategy)
        local._config._distribute_coordinator_mode = None
        executor_cls(local, train_spec, eval_spec)._start_continuous_evaluation()

    run_distribute_coordinator(
        train,
        config.train_distribute,
        evaluate,
        config.eval_distribute,
        mode=mode,
        cluster_spec=None,  # Each task reads the cluster and its own place from TF_CONFIG.
        session_config=config.session_config,
    )


def estimator_train(estimator, train_distributed_fn: Callable, hooks) -> None:
    """Refuses `Estimator.train`: each task of a cluster runs `train_and_evaluate`."""
    _refuse("train")


def estimator_evaluate(estimator, evaluate_distributed_fn: Callable, hooks) -> None:
    """Refuses `Estimator.evaluate`: each task of a cluster runs `train_and_evaluate`."""
    _refuse("evaluate")


def _refuse(method: str) -> None:
    raise ValueError(
        f"`Estimator.{method}` does not run with train_distribute in a cluster: use "
        "`tf.estimator.train_and_evaluate`."
    )
