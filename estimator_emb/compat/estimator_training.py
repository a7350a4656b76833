"""Replaces `tensorflow.python.distribute.estimator_training`, which TensorFlow 2.16 removed.

tensorflow-estimator imports it in `run_config.py` (`init_run_config`), `training.py`
(`should_run_distribute_coordinator`, `train_and_evaluate`) and `estimator.py` (`estimator_train`,
`estimator_evaluate`).

It connects a `RunConfig` that has a distribution strategy to TensorFlow's distribute coordinator
(`tensorflow.python.distribute.distribute_coordinator`). `init_run_config` picks one of three modes,
and keeps it in `config._distribute_coordinator_mode`:

* `None`: the coordinator is not used. This mode is for a strategy without a cluster, a cluster
  without a training strategy (parameter servers by TF_CONFIG), or a cluster with a `master` job.
* `"standalone_client"`: this process drives the servers of
  `experimental_distribute.remote_cluster`.
* `"independent_worker"`: TF_CONFIG names a cluster, `train_distribute` is set, and each task of the
  cluster runs this same program.
"""

import copy
from collections.abc import Callable
from typing import Any

import tensorflow as tf

from estimator_emb.compat.internals.graphs import (
    CoordinatorMode,
    current_worker_context,
    normalize_cluster_spec,
    run_distribute_coordinator,
)

logging = tf.compat.v1.logging

CHIEF = "chief"
EVALUATOR = "evaluator"
PS = "ps"
WORKER = "worker"

_STANDALONE = CoordinatorMode.STANDALONE_CLIENT
_INDEPENDENT = CoordinatorMode.INDEPENDENT_WORKER


def init_run_config(config, tf_config: dict[str, Any]) -> None:
    """Fills, in place, the distributed settings of a `RunConfig` under construction.

    `tf_config` is the parsed TF_CONFIG, or `{}` if it is not set. Raises ValueError if a strategy
    or the cluster is given in two places.
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
    remote_cluster = experimental.remote_cluster if experimental else None

    if config._train_distribute and remote_cluster:
        if cluster:
            raise ValueError(
                'Set either "cluster" in TF_CONFIG or `experimental_distribute.remote_cluster`, '
                "not both."
            )
        _use_coordinator(config, _STANDALONE, remote_cluster)
    elif config._train_distribute and cluster and "master" not in cluster.jobs:
        _use_coordinator(config, _INDEPENDENT, cluster)
    else:
        config._distribute_coordinator_mode = None
        config._init_distributed_setting_from_environment_var(tf_config)
        config._maybe_overwrite_session_config_for_distributed_training()
        logging.info("Not using Distribute Coordinator.")


def _use_coordinator(config, mode: str, cluster) -> None:
    # The coordinator's worker context sets the task's own settings later. Until then the config
    # describes a local run that knows the cluster.
    config._init_distributed_setting_from_environment_var({})
    config._cluster_spec = cluster
    config._distribute_coordinator_mode = mode
    logging.info("RunConfig is set up for Distribute Coordinator in mode %r.", mode)


def should_run_distribute_coordinator(config) -> bool:
    """Returns whether `train_and_evaluate` must use the distribute coordinator."""
    mode = getattr(config, "_distribute_coordinator_mode", None)
    if mode is None:
        logging.info("Not using Distribute Coordinator.")
        return False
    if mode not in (_STANDALONE, _INDEPENDENT):
        logging.warning("Ignoring the unknown distribute coordinator mode %r.", mode)
        return False
    if not config.cluster_spec:
        logging.warning("No cluster: running locally, without Distribute Coordinator.")
        return False
    return True


def _apply_worker_context(config, context) -> None:
    cluster, task_type = context.cluster_spec, context.task_type
    config._service = None
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


def _global_id(cluster, task_type: str | None, task_id: int | None) -> int:
    """Returns the rank of a task: the chief, then other jobs by name, then parameter servers."""
    if not task_type:
        return 0  # In-graph replication has a single client for the whole cluster.
    if task_type not in cluster.jobs:
        raise RuntimeError(f"The cluster {sorted(cluster.jobs)} has no job {task_type!r}.")

    def place(job: str) -> tuple[bool, bool, str]:
        return (job == PS, job != CHIEF, job)

    before = [job for job in cluster.jobs if place(job) < place(task_type)]
    return sum(len(cluster.job_tasks(job)) for job in before) + (task_id or 0)


def _estimator_of_task(estimator, phase: str, strategy):
    """Returns a copy of the estimator for the current task, and the task's worker context."""
    context = current_worker_context()
    local = copy.deepcopy(estimator)  # Tasks may run in threads.
    setattr(local._config, f"_{phase}_distribute", strategy)
    setattr(local, f"_{phase}_distribution", strategy)
    _apply_worker_context(local._config, context)
    logging.info("RunConfig of this task: %s", vars(local._config))
    return local, context


def train_and_evaluate(estimator, train_spec, eval_spec, executor_cls) -> None:
    """Runs `tf.estimator.train_and_evaluate` through the distribute coordinator.

    `executor_cls` runs the continuous evaluation of an evaluator task.
    """
    config = estimator.config
    mode = config._distribute_coordinator_mode
    if not mode:
        raise ValueError("The `RunConfig` has no distribute coordinator mode.")
    if mode == _STANDALONE and not config.cluster_spec:
        raise ValueError("The `RunConfig` has no cluster to be the client of.")

    def train(strategy) -> None:
        local, context = _estimator_of_task(estimator, "train", strategy)
        # A hook may hold tensors of a single graph only. If the tasks are threads of a single
        # client, only the chief gets the user's hooks.
        takes_hooks = mode == _INDEPENDENT or context.is_chief
        # With a mode, the copy would call the coordinator again.
        local._config._distribute_coordinator_mode = None
        local.train(
            input_fn=train_spec.input_fn,
            max_steps=train_spec.max_steps,
            hooks=list(train_spec.hooks) if takes_hooks else [],
        )

    def evaluate(strategy) -> None:
        local, _ = _estimator_of_task(estimator, "eval", strategy)
        local._config._distribute_coordinator_mode = None
        executor_cls(local, train_spec, eval_spec)._start_continuous_evaluation()

    run_distribute_coordinator(
        train,
        config.train_distribute,
        evaluate,
        config.eval_distribute,
        mode=mode,
        # An independent worker reads the cluster and its own task from TF_CONFIG.
        cluster_spec=config.cluster_spec if mode == _STANDALONE else None,
        session_config=config.session_config,
    )


def estimator_train(estimator, train_distributed_fn: Callable, hooks):
    """Runs `Estimator.train` as a standalone client, and returns the trained copy."""

    def train(local, strategy, chief_hooks):
        train_distributed_fn(local, strategy, chief_hooks)
        return local

    return _run_one_phase(estimator, "train", "train", train, hooks)


def estimator_evaluate(estimator, evaluate_distributed_fn: Callable, hooks):
    """Runs `Estimator.evaluate` as a standalone client, and returns the metrics."""
    return _run_one_phase(estimator, "eval", "evaluate", evaluate_distributed_fn, hooks)


def _run_one_phase(estimator, phase: str, method: str, phase_fn: Callable, hooks):
    """Runs a phase in-graph: the graph of a single client spans the cluster's servers."""
    config = estimator._config
    mode = config._distribute_coordinator_mode
    strategy = getattr(config, f"_{phase}_distribute")
    call = f"`Estimator.{method}`"
    if not strategy:
        raise ValueError(f"{call} needs `{phase}_distribute` to use Distribute Coordinator.")
    if not config.cluster_spec:
        raise ValueError(f"{call} needs a cluster to use Distribute Coordinator.")
    cluster = normalize_cluster_spec(config.cluster_spec)
    problem = ""
    if EVALUATOR in cluster.jobs:
        problem = "does not support a cluster with an `evaluator` job"
    elif mode != _STANDALONE:
        problem = (
            "supports Distribute Coordinator only as a standalone client "
            f"(`experimental_distribute.remote_cluster`), but the mode is {mode!r}"
        )
    elif strategy.extended.experimental_between_graph:
        problem = (
            f"as a standalone client does not support {type(strategy).__name__}, which replicates "
            "between graphs"
        )
    if problem:
        raise ValueError(f"{call} {problem}: use `tf.estimator.train_and_evaluate`.")

    def task(configured_strategy):
        local, context = _estimator_of_task(estimator, phase, configured_strategy)
        return phase_fn(local, configured_strategy, hooks if context.is_chief else [])

    return run_distribute_coordinator(
        task,
        strategy,
        mode=mode,
        cluster_spec=cluster,
        session_config=config.session_config,
    )
