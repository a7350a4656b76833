"""Rejects clusters and strategies that cannot train tables, and adds device filters to others."""

from typing import Any

import tensorflow as tf

from estimator_emb.compat.internals.tpu_estimator import StockRunConfig
from estimator_emb.spec import tf_config
from estimator_emb.spec.options import CannotEmulate

_SYNCHRONOUS = "sync_token_q"
"""Name of the queue that `SyncReplicasOptimizer` adds to a graph."""


def checked(config: Any, tables: bool) -> Any:
    """Returns a `RunConfig` with device filters. Raises ValueError if its cluster cannot train."""
    if not tables or not isinstance(config, StockRunConfig):
        return config
    trainers = config.num_worker_replicas
    if trainers > 1 and not config.num_ps_replicas:
        raise ValueError(
            f"TF_CONFIG names {trainers} processes that train, and no parameter server (job 'ps') "
            "that holds the tables of the EmbeddingConfigSpec for all of them. Add one, or train "
            "in one process."
        )
    return _with_device_filters(config)


def check_no_strategy(config: Any, tables: bool, emulated: bool) -> None:
    """Raises ValueError for a distribution strategy together with tables or an emulated TPU."""
    for option in ("train_distribute", "eval_distribute"):
        strategy = getattr(config, option, None)
        if strategy is not None and (tables or emulated):
            what = "an EmbeddingConfigSpec" if tables else "an emulated TPU"
            raise (ValueError if tables else CannotEmulate)(
                f"RunConfig: {option} must be None with {what}; got a {type(strategy).__name__}. "
                "Several replicas on this machine: TPUConfig(device='emulate', num_shards=N) and "
                "use_tpu=True emulate N cores. Several machines: parameter servers, by TF_CONFIG "
                "alone."
            )


def check_alone() -> None:
    """Raises ValueError if TF_CONFIG has a cluster: an emulated TPU needs a single process."""
    config = tf_config.content()
    jobs = {job: len(tasks) for job, tasks in config.get("cluster", {}).items()}
    training = {job: count for job, count in jobs.items() if job != "evaluator"}
    if sum(training.values()) <= 1:
        return
    task = config.get("task", {})
    named = ", ".join(f"{count} {job}" for job, count in training.items())
    raise ValueError(
        f"TF_CONFIG names a cluster ({named}), and this process is its {task.get('type')} "
        f"{task.get('index')}, but device='emulate' and device='pjrt' train in one process. Train "
        "on the cluster with use_tpu=False, or unset TF_CONFIG and take more cores with "
        "TPUConfig(num_shards=N)."
    )


def check_asynchronous() -> None:
    """Raises ValueError if the default graph has a `SyncReplicasOptimizer`."""
    operations = tf.compat.v1.get_default_graph().get_operations()
    if any(op.type.startswith("FIFOQueue") and _SYNCHRONOUS in op.name for op in operations):
        raise ValueError(
            "SyncReplicasOptimizer makes workers take their steps together, but the tables of the "
            "EmbeddingConfigSpec are updated by each worker for itself. With parameter servers, "
            "tables train asynchronously only: leave SyncReplicasOptimizer out. For steps of a "
            "larger batch, use_tpu=True with TPUConfig(device='emulate', num_shards=N) trains N "
            "cores in one process, synchronously."
        )


def _with_device_filters(config: Any) -> Any:
    """Returns `config` with device filters for this process and the parameter servers.

    Without device filters, a session waits for every process of the cluster, even for a worker that
    never starts. Filters of the program are kept.
    """
    job = config.task_type
    if not config.num_ps_replicas or job not in ("chief", "master", "worker"):
        return config
    session = tf.compat.v1.ConfigProto(allow_soft_placement=True)
    if config.session_config is not None:
        if config.session_config.device_filters or config.session_config.HasField("cluster_def"):
            return config
        session.CopyFrom(config.session_config)
    else:
        rewrite = session.graph_options.rewrite_options
        rewrite.meta_optimizer_iterations = type(rewrite).ONE  # As without a cluster.
    mine = f"/job:{job}/task:{config.task_id}" if job == "worker" else f"/job:{job}"
    session.device_filters.extend(["/job:ps", mine])
    return config.replace(session_config=session)
