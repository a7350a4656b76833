# SPDX-License-Identifier: Apache-2.0
"""Where the names of TensorFlow 1's `tf.contrib` that TPU programs use are today."""

from __future__ import annotations

_OURS = "estimator_emb.compat.contrib"


def _same(prefix: str, names: str) -> dict[str, str]:
    return {name: f"{prefix}.{name}" for name in names.split()}


_SUMMARY = "tensorflow.python.ops.summary_ops_v2"

MEMBERS: dict[str, dict[str, str]] = {
    "cluster_resolver": {
        **_same(
            "tf.distribute.cluster_resolver",
            "ClusterResolver GCEClusterResolver KubernetesClusterResolver SimpleClusterResolver "
            "SlurmClusterResolver TFConfigClusterResolver TPUClusterResolver",
        ),
        "GceClusterResolver": "tf.distribute.cluster_resolver.GCEClusterResolver",
        "UnionClusterResolver": "tf.distribute.cluster_resolver.UnionResolver",
    },
    "data": {
        **_same(
            "tf.data.experimental",
            "AUTOTUNE CheckpointInputPipelineHook Counter Optional RaggedTensorStructure "
            "bucket_by_sequence_length choose_from_datasets copy_to_device dense_to_ragged_batch "
            "dense_to_sparse_batch enumerate_dataset get_next_as_optional get_single_element "
            "group_by_reducer group_by_window ignore_errors make_batched_features_dataset "
            "make_csv_dataset make_saveable_from_iterator map_and_batch parallel_interleave "
            "prefetch_to_device rejection_resample sample_from_datasets scan shuffle_and_repeat "
            "take_while unbatch unique",
        ),
        "batch_and_drop_remainder": f"{_OURS}.batch_and_drop_remainder",
    },
    "framework": {
        "get_or_create_global_step": "tf.train.get_or_create_global_step",
        "nest": "tf.nest",
    },
    "layers": {
        "flatten": "tf.layers.flatten",
        "l1_regularizer": f"{_OURS}.l1_regularizer",
        "l2_regularizer": f"{_OURS}.l2_regularizer",
        "layer_norm": f"{_OURS}.layer_norm",
        "variance_scaling_initializer": f"{_OURS}.variance_scaling_initializer",
        "xavier_initializer": f"{_OURS}.xavier_initializer",
        "xavier_initializer_conv2d": f"{_OURS}.xavier_initializer",
    },
    "summary": {
        **_same(
            _SUMMARY,
            "always_record_summaries audio create_file_writer create_summary_file_writer eval_dir "
            "flush generic graph histogram image import_event initialize never_record_summaries "
            "record_summaries_every_n_global_steps scalar should_record_summaries "
            "summary_writer_initializer_op",
        ),
        "all_summary_ops": f"{_SUMMARY}.all_v2_summary_ops",
    },
    "tpu": {
        **_same(
            "tf.estimator.tpu",
            "InputPipelineConfig RunConfig TPUConfig TPUEstimator TPUEstimatorSpec",
        ),
        **_same(
            "tf.tpu",
            "CrossShardOptimizer batch_parallel bfloat16_scope core cross_replica_sum "
            "initialize_system outside_compilation replicate rewrite shard shutdown_system",
        ),
        **_same("tensorflow.python.tpu.training_loop", "repeat while_loop"),
        "AsyncCheckpointSaverHook": "tensorflow.python.tpu.async_checkpoint."
        "AsyncCheckpointSaverHook",
        "DeviceAssignment": "tf.tpu.experimental.DeviceAssignment",
        "device_assignment": "tensorflow.python.tpu.device_assignment.device_assignment",
        "Topology": "tensorflow.python.tpu.topology.Topology",
        "TPUContext": "tensorflow_estimator.python.estimator.tpu.tpu_context.TPUContext",
    },
    "training": {"checkpoints_iterator": "tf.train.checkpoints_iterator"},
    "training.python.training.evaluation": {
        "checkpoints_iterator": "tf.train.checkpoints_iterator"
    },
}
"""Module of tf.contrib -> its names -> where they are (below `tf.compat.v1` for tf)."""

MODULES = {
    "cluster_resolver.python.training.tpu_cluster_resolver": "tensorflow.python.distribute."
    "cluster_resolver.tpu.tpu_cluster_resolver",
    "tpu.python.ops.tpu_ops": "tensorflow.python.tpu.ops.tpu_ops",
    **{
        f"tpu.python.tpu.{name}": f"tensorflow.python.tpu.{name}"
        for name in (
            "async_checkpoint bfloat16 device_assignment error_handling feature_column functional "
            "session_support topology tpu tpu_config tpu_context tpu_embedding tpu_estimator "
            "tpu_feed tpu_function tpu_optimizer tpu_sharding training_loop util"
        ).split()
    },
}
"""Module of tf.contrib -> the module that takes its place."""

ELSEWHERE = {
    "crf": "the package tensorflow-addons had it (tfa.text.crf_*)",
    "distribute": "tf.distribute",
    "eager": "tf (tf.function, tf.GradientTape, tf.train.Checkpoint)",
    "estimator": "tf.estimator",
    "feature_column": "tf.feature_column",
    "framework.arg_scope": "the package tf_slim (tf_slim.arg_scope)",
    "image": "tf.image; the package tensorflow-addons had the rest",
    "layers.batch_norm": "tf.layers.batch_normalization",
    "layers.conv2d": "tf.layers.conv2d",
    "layers.dropout": "tf.layers.dropout",
    "layers.embedding_column": "tf.feature_column.embedding_column",
    "layers.fully_connected": "tf.layers.dense",
    "layers.max_pool2d": "tf.layers.max_pooling2d",
    "layers.optimize_loss": "an optimizer's minimize(), with tf.clip_by_global_norm",
    "learn": "tf.estimator",
    "lookup": "tf.lookup",
    "metrics": "tf.metrics, or the package tf_slim (tf_slim.metrics)",
    "opt": "the package tensorflow-addons had it (tfa.optimizers)",
    "quantize": "the package tensorflow-model-optimization",
    "rnn": "tf.nn.rnn_cell",
    "saved_model": "tf.saved_model",
    "seq2seq": "the package tensorflow-addons had it (tfa.seq2seq)",
    "slim": "the package tf_slim",
    "tpu.keras_to_tpu_model": "tf.distribute.TPUStrategy",
    "training.HParams": "a class of the program's own; types.SimpleNamespace has its attributes",
}
"""Names of tf.contrib that have no successor of the same meaning -> what to use in their place."""


def advice(path: str) -> str:
    """Returns what to use in place of `tf.contrib.<path>`, which is in none of these tables."""
    known = path
    while known and known not in ELSEWHERE:
        known = known.rpartition(".")[0]
    if known:
        return f"tf.contrib.{path} left TensorFlow with version 2. Today: {ELSEWHERE[known]}."
    return (
        f"tf.contrib.{path} left TensorFlow with version 2, and estimator_emb does not have it. "
        "The package tf_slim has much of tf.contrib."
    )
