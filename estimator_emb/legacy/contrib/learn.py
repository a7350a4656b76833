"""The names of `tf.contrib.learn` that programs for `tf.estimator` still use.

Source: tensorflow/contrib/learn/python/learn/estimators, TensorFlow 1.15.
"""

from typing import Any

import tensorflow as tf

from estimator_emb.compat.internals.estimators import LocalRunConfig


class ModeKeys:
    """The modes of a model_fn. `INFER` is `tf.estimator.ModeKeys.PREDICT`."""

    TRAIN = "train"
    EVAL = "eval"
    INFER = "infer"


class LearnRunConfig(LocalRunConfig):
    """`tf.estimator.RunConfig` with the arguments and defaults of `tf.contrib.learn.RunConfig`.

    `num_cores`, `log_device_placement` and `gpu_memory_fraction` make the default `session_config`.
    TF_CONFIG names the cluster, so `master` or `evaluation_master` raises ValueError.
    """

    def __init__(
        self,
        master: str | None = None,
        num_cores: int = 0,
        log_device_placement: bool = False,
        gpu_memory_fraction: float = 1,
        tf_random_seed: int | None = None,
        save_summary_steps: int = 100,
        save_checkpoints_secs: Any = 600,
        save_checkpoints_steps: int | None = None,
        keep_checkpoint_max: int = 5,
        keep_checkpoint_every_n_hours: float = 10000,
        log_step_count_steps: int = 100,
        protocol: str | None = None,
        evaluation_master: str = "",
        model_dir: str | None = None,
        session_config: Any = None,
        session_creation_timeout_secs: int = 7200,
    ):
        if master or evaluation_master:
            raise ValueError(
                "learn.RunConfig: TF_CONFIG names the cluster; leave master and evaluation_master "
                f"out; got {master!r} and {evaluation_master!r}."
            )
        self.tf_config = tf.compat.v1.ConfigProto(
            log_device_placement=log_device_placement,
            inter_op_parallelism_threads=num_cores,
            intra_op_parallelism_threads=num_cores,
        )
        self.tf_config.gpu_options.per_process_gpu_memory_fraction = gpu_memory_fraction
        every = {"save_checkpoints_secs": save_checkpoints_secs}
        if save_checkpoints_steps is not None:
            every = {"save_checkpoints_steps": save_checkpoints_steps}
        super().__init__(
            model_dir=model_dir,
            tf_random_seed=tf_random_seed,
            save_summary_steps=save_summary_steps,
            session_config=session_config or self.tf_config,
            keep_checkpoint_max=keep_checkpoint_max,
            keep_checkpoint_every_n_hours=keep_checkpoint_every_n_hours,
            log_step_count_steps=log_step_count_steps,
            protocol=protocol,
            session_creation_timeout_secs=session_creation_timeout_secs,
            **every,
        )
