# SPDX-License-Identifier: Apache-2.0
"""Where the names of TensorFlow 1.15's `tf.contrib` are today.

`MODULES` is read by `--tf-v1`, by `estimator-emb migrate`, by the errors about other names and by
the table in docs/legacy_names.md. It is text, so that reading it needs no TensorFlow.
"""

from __future__ import annotations

import dataclasses

NOTHING = "nothing takes its place"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Module:
    """A module of tf.contrib.

    Attributes:
      members: name -> where it is: its dotted name, below `tf.compat.v1` for tf.
      inner: modules inside it, by dotted names, in which programs also find its members.
      modules: name of a module inside it -> the module that takes its place.
      package: modules of a package that, if installed, have names that `members` lacks.
      shared: name of a member -> the function that takes its place where a package is installed,
        as the package's other functions need it; `elsewhere` has the name too.
      elsewhere: name -> what to use in its place.
      rest: what to use in place of the other names; None where there are none.
    """

    members: dict[str, str] = dataclasses.field(default_factory=dict)
    inner: tuple[str, ...] = ()
    modules: dict[str, str] = dataclasses.field(default_factory=dict)
    package: tuple[str, ...] = ()
    shared: dict[str, str] = dataclasses.field(default_factory=dict)
    elsewhere: dict[str, str] = dataclasses.field(default_factory=dict)
    rest: str | None = None


def _same(prefix: str, names: str) -> dict[str, str]:
    return {name: f"{prefix}.{name}" for name in names.split()}


_OURS = "estimator_emb.legacy.contrib"
_ADDONS = "the package tensorflow-addons, which ended with TensorFlow 2.16, had it"
_IO = "the package tensorflow-io"
_SUMMARY = "tensorflow.python.ops.summary_ops_v2"
_LOOKUP = "tensorflow.python.ops.lookup_ops"
_TPU_OPS = "tensorflow.python.tpu.ops.tpu_ops"
_PROBABILITY = "the package tensorflow-probability"
_FUNCTION = "tf.function and Keras layers"

_SCOPES = (
    "add_arg_scope arg_scope arg_scope_func_key arg_scoped_arguments current_arg_scope "
    "has_arg_scope"
)
_FRAMEWORK_OF_SLIM = (
    "add_model_variable assign_from_checkpoint assign_from_checkpoint_fn assign_from_values "
    "assign_from_values_fn filter_variables get_local_variables get_model_variables "
    "get_trainable_variables get_unique_variable get_variable_full_name get_variables "
    "get_variables_by_name get_variables_by_suffix get_variables_to_restore global_variable "
    "local_variable model_variable variable VariableDeviceChooser"
)

MODULES: dict[str, Module] = {
    "all_reduce": Module(rest="tf.distribute"),
    "autograph": Module(rest="tf.autograph"),
    "batching": Module(
        members={"batch_function": "tf.nondifferentiable_batch_function"},
    ),
    "bayesflow": Module(rest=_PROBABILITY),
    "bigtable": Module(rest=_IO),
    "boosted_trees": Module(rest="the package tensorflow-decision-forests"),
    "checkpoint": Module(
        members={
            "CheckpointManager": "tf.train.CheckpointManager",
        },
        rest="tf.train.Checkpoint and tf.train.CheckpointManager; attributes are tracked by "
        "tf.Module",
    ),
    "cloud": Module(rest=_IO),
    "cluster_resolver": Module(
        members={
            **_same(
                "tf.distribute.cluster_resolver",
                "ClusterResolver GCEClusterResolver KubernetesClusterResolver "
                "SimpleClusterResolver SlurmClusterResolver TFConfigClusterResolver "
                "TPUClusterResolver",
            ),
            "GceClusterResolver": "tf.distribute.cluster_resolver.GCEClusterResolver",
            "UnionClusterResolver": "tf.distribute.cluster_resolver.UnionResolver",
        },
        inner=("python.training", "python.training.cluster_resolver"),
        modules={
            "python.training.tpu_cluster_resolver": "tensorflow.python.distribute."
            "cluster_resolver.tpu.tpu_cluster_resolver"
        },
    ),
    "cmake": Module(rest=NOTHING),
    "compiler": Module(
        rest="tf.xla.experimental (compile, jit_scope) and tf.function(jit_compile=True)",
    ),
    "constrained_optimization": Module(rest="the package tensorflow-constrained-optimization"),
    "copy_graph": Module(rest="tf.import_graph_def"),
    "crf": Module(rest=f"{_ADDONS} (tfa.text)"),
    "cudnn_rnn": Module(rest="tf.keras.layers.LSTM and GRU, which take cuDNN by themselves"),
    "data": Module(
        members={
            **_same(
                "tf.data.experimental",
                "AUTOTUNE CheckpointInputPipelineHook Counter CsvDataset Optional RandomDataset "
                "RaggedTensorStructure Reducer SqlDataset TFRecordWriter "
                "bucket_by_sequence_length choose_from_datasets copy_to_device "
                "dense_to_ragged_batch dense_to_sparse_batch enumerate_dataset "
                "get_next_as_optional get_single_element group_by_reducer group_by_window "
                "ignore_errors make_batched_features_dataset make_csv_dataset "
                "make_saveable_from_iterator map_and_batch parallel_interleave "
                "parse_example_dataset prefetch_to_device rejection_resample "
                "sample_from_datasets scan shuffle_and_repeat take_while unbatch unique",
            ),
            **_same(f"{_OURS}.data", "batch_and_drop_remainder padded_batch_and_drop_remainder"),
        },
        inner=(
            "python.ops.batching",
            "python.ops.grouping",
            "python.ops.interleave_ops",
            "python.ops.readers",
            "python.ops.resampling",
            "python.ops.shuffle_ops",
        ),
        elsewhere={
            "LMDBDataset": _IO,
            "assert_element_shape": "dataset.map with tf.ensure_shape",
            "read_batch_features": "tf.data.experimental.make_batched_features_dataset",
            "reduce_dataset": "dataset.reduce",
            "sliding_window_batch": "dataset.window",
            "sloppy_interleave": "tf.data.experimental.parallel_interleave(..., sloppy=True)",
        },
        rest="tf.data.experimental",
    ),
    "decision_trees": Module(rest="the package tensorflow-decision-forests"),
    "deprecated": Module(rest="tf.summary (scalar, histogram, image, audio, merge, merge_all)"),
    "distribute": Module(
        members=_same(
            "tf.distribute",
            "CrossDeviceOps MirroredStrategy OneDeviceStrategy ReplicaContext "
            "get_loss_reduction get_replica_context get_strategy has_strategy "
            "in_cross_replica_context",
        ),
        elsewhere={
            "CollectiveAllReduceStrategy": "tf.distribute.MultiWorkerMirroredStrategy",
            "DistributeConfig": "RunConfig(train_distribute=..., eval_distribute=...)",
            "DistributionStrategy": "tf.distribute.Strategy",
            "ParameterServerStrategy": "tf.distribute.experimental.ParameterServerStrategy; "
            "estimator_emb needs none for parameter servers",
            "TPUStrategy": "TPUEstimator, or tf.distribute.TPUStrategy",
        },
        rest="tf.distribute",
    ),
    "distributions": Module(rest=f"{_PROBABILITY} (tfp.distributions)"),
    "eager": Module(rest="tf (tf.function, tf.GradientTape, tf.train.Checkpoint)"),
    "estimator": Module(
        members={
            **_same(
                "tf.estimator",
                "DNNEstimator DNNLinearCombinedEstimator LinearEstimator add_metrics",
            ),
            **_same(
                "tf.estimator.experimental",
                "InMemoryEvaluatorHook build_raw_supervised_input_receiver_fn call_logit_fn "
                "dnn_logit_fn_builder linear_logit_fn_builder make_early_stopping_hook "
                "make_stop_at_checkpoint_step_hook stop_if_higher_hook stop_if_lower_hook "
                "stop_if_no_decrease_hook stop_if_no_increase_hook",
            ),
        },
        elsewhere={
            **{
                name: f"tf.compat.v2.estimator.{today}, whose loss_reduction may have another "
                "default"
                for name, today in (
                    ("binary_classification_head", "BinaryClassHead"),
                    ("logistic_regression_head", "LogisticRegressionHead"),
                    ("multi_class_head", "MultiClassHead"),
                    ("multi_label_head", "MultiLabelHead"),
                    ("poisson_regression_head", "PoissonRegressionHead"),
                    ("regression_head", "RegressionHead"),
                )
            },
            **{
                name: f"tf.compat.v2.estimator.experimental.{name}, which takes other arguments"
                for name in ("RNNClassifier", "RNNEstimator")
            },
            **dict.fromkeys(
                (
                    "boosted_trees_classifier_train_in_memory",
                    "boosted_trees_regressor_train_in_memory",
                ),
                "the package tensorflow-decision-forests",
            ),
            "multi_head": "tf.compat.v2.estimator.MultiHead",
            "clip_gradients_by_norm": "tf.clip_by_norm between compute_gradients and "
            "apply_gradients",
            "replicate_model_fn": "RunConfig(train_distribute=tf.distribute.MirroredStrategy())",
            "TowerOptimizer": "RunConfig(train_distribute=tf.distribute.MirroredStrategy())",
        },
        rest="tf.estimator and tf.estimator.experimental",
    ),
    "factorization": Module(rest=f"tf.estimator.experimental.KMeans; for the others, {NOTHING}"),
    "feature_column": Module(
        members={
            **_same(
                "tf.feature_column",
                "sequence_categorical_column_with_hash_bucket "
                "sequence_categorical_column_with_identity "
                "sequence_categorical_column_with_vocabulary_file "
                "sequence_categorical_column_with_vocabulary_list sequence_numeric_column",
            ),
            "sequence_input_layer": "feature_columns.sequence_input_layer",
        },
    ),
    "ffmpeg": Module(rest=_IO),
    "framework": Module(
        members={
            **_same(f"{_OURS}.arg_scope", _SCOPES),
            **_same(
                "tf.train",
                "create_global_step get_global_step get_or_create_global_step assert_global_step",
            ),
            **_same(
                f"{_OURS}.checkpoints",
                "init_from_checkpoint list_variables load_checkpoint load_variable",
            ),
            **_same("tf", "TensorSpec argsort is_tensor py_func sort"),
            "assert_same_float_dtype": "tf.debugging.assert_same_float_dtype",
            "assert_scalar": "tf.debugging.assert_scalar",
            "convert_to_tensor_or_sparse_tensor": "tf.convert_to_tensor_or_sparse_tensor",
            "deprecated": "tensorflow.python.util.deprecation.deprecated",
            "nest": "tensorflow.python.util.nest",
        },
        inner=(
            "python.framework",
            "python.framework.checkpoint_utils",
            "python.ops",
            "python.ops.arg_scope",
            "python.ops.variables",
        ),
        package=("tf_slim.ops.variables",),
        shared=_same("tf_slim.ops.arg_scope", _SCOPES),
        elsewhere={
            **{
                name: f"tf_slim.ops.arg_scope.{name} for layers of the package tf_slim, "
                f"{_OURS}.arg_scope.{name} for functions of the program's own"
                for name in _SCOPES.split()
            },
            "smart_cond": "tf.cond, or an if where the condition is a Python bool",
            "zero_initializer": "tf.zeros_initializer",
            **dict.fromkeys(
                _FRAMEWORK_OF_SLIM.split(),
                "the package tf_slim has it: pip install tf_slim, and --tf-v1 finds it",
            ),
        },
        rest="tf, tf.train and tf.debugging for most",
    ),
    "fused_conv": Module(rest="XLA, which fuses such ops (tf.function(jit_compile=True))"),
    "gan": Module(rest="the package tensorflow-gan"),
    "graph_editor": Module(rest="tf.graph_util and tf.import_graph_def(input_map=...)"),
    "grid_rnn": Module(rest=NOTHING),
    "hadoop": Module(rest=_IO),
    "hooks": Module(members={"ProfilerHook": "tf.train.ProfilerHook"}),
    "ignite": Module(rest=_IO),
    "image": Module(rest=f"tf.image; for rotate, translate and transform, {_ADDONS} (tfa.image)"),
    "input_pipeline": Module(rest="tf.data"),
    "integrate": Module(rest=f"{_PROBABILITY} (tfp.math.ode)"),
    "kafka": Module(rest=_IO),
    "keras": Module(rest="tf.keras"),
    "kernel_methods": Module(rest="tf.keras.layers.experimental.RandomFourierFeatures"),
    "kinesis": Module(rest=_IO),
    "labeled_tensor": Module(rest="the package xarray, outside of graphs"),
    "layers": Module(
        members={
            **_same(
                f"{_OURS}.layers",
                "l1_regularizer l2_regularizer layer_norm variance_scaling_initializer "
                "xavier_initializer",
            ),
            "flatten": "tf.layers.flatten",
            "xavier_initializer_conv2d": f"{_OURS}.layers.xavier_initializer",
        },
        inner=(
            "python.layers",
            "python.layers.initializers",
            "python.layers.layers",
            "python.layers.regularizers",
        ),
        package=(
            "tf_slim.layers",
            "tf_slim.layers.layers",
            "tf_slim.layers.normalization",
            "tf_slim.layers.optimizers",
            "tf_slim.layers.regularizers",
            "tf_slim.layers.rev_block_lib",
            "tf_slim.layers.summaries",
        ),
        elsewhere={
            "batch_norm": "tf.layers.batch_normalization",
            "bucketized_column": "tf.feature_column.bucketized_column",
            "conv2d": "tf.layers.conv2d",
            "crossed_column": "tf.feature_column.crossed_column",
            "dropout": "tf.layers.dropout",
            "embedding_column": "tf.feature_column.embedding_column",
            "fully_connected": "tf.layers.dense",
            "max_pool2d": "tf.layers.max_pooling2d",
            "one_hot_column": "tf.feature_column.indicator_column",
            "optimize_loss": "an optimizer's minimize(), with tf.clip_by_global_norm",
            "real_valued_column": "tf.feature_column.numeric_column",
            "safe_embedding_lookup_sparse": "tf.nn.safe_embedding_lookup_sparse",
            "shared_embedding_columns": "tf.feature_column.shared_embedding_columns",
            "sparse_column_with_hash_bucket": "tf.feature_column."
            "categorical_column_with_hash_bucket",
            "sparse_column_with_integerized_feature": "tf.feature_column."
            "categorical_column_with_identity",
            "sparse_column_with_keys": "tf.feature_column.categorical_column_with_vocabulary_list",
            "sparse_column_with_vocabulary_file": "tf.feature_column."
            "categorical_column_with_vocabulary_file",
            "weighted_sparse_column": "tf.feature_column.weighted_categorical_column",
        },
        rest="tf.layers; the package tf_slim has most of its layers: pip install tf_slim, and "
        "--tf-v1 finds them",
    ),
    "learn": Module(
        elsewhere={
            "Experiment": "tf.estimator.train_and_evaluate",
            "learn_runner": "tf.estimator.train_and_evaluate",
            "ModeKeys": "tf.estimator.ModeKeys",
            "RunConfig": "tf.estimator.RunConfig",
        },
        rest="tf.estimator",
    ),
    "legacy_seq2seq": Module(rest=NOTHING),
    "libsvm": Module(rest=_IO),
    "linear_optimizer": Module(rest="tf.estimator.experimental.LinearSDCA"),
    "lite": Module(rest="tf.lite"),
    "lookup": Module(
        members=_same(
            _LOOKUP,
            "FastHashSpec HashTable HasherSpec IdTableWithHashBuckets "
            "InitializableLookupTableBase KeyValueTensorInitializer LookupInterface "
            "MutableHashTable StrongHashSpec TableInitializerBase TextFileIdTableInitializer "
            "TextFileIndex TextFileInitializer TextFileStringTableInitializer "
            "index_table_from_file index_table_from_tensor index_to_string_table_from_file "
            "index_to_string_table_from_tensor MutableDenseHashTable",
        ),
        inner=("lookup_ops",),
        elsewhere={
            "index_to_string": f"{_LOOKUP}.index_to_string_table_from_tensor",
            "string_to_index": f"{_LOOKUP}.index_table_from_tensor",
            "string_to_index_table_from_file": f"{_LOOKUP}.index_table_from_file",
            "string_to_index_table_from_tensor": f"{_LOOKUP}.index_table_from_tensor",
        },
    ),
    "losses": Module(
        package=("tf_slim.losses",),
        rest="tf.losses, whose labels come first; the package tf_slim has these: pip install "
        "tf_slim, and --tf-v1 finds them",
    ),
    "memory_stats": Module(rest="tf.config.experimental.get_memory_info"),
    "meta_graph_transform": Module(rest="tf.graph_util"),
    "metrics": Module(
        members={
            **_same(
                f"{_OURS}.metrics",
                "accuracy aggregate_metric_map aggregate_metrics streaming_accuracy streaming_auc "
                "streaming_false_negatives streaming_false_positives streaming_mean "
                "streaming_mean_absolute_error streaming_mean_cosine_distance streaming_mean_iou "
                "streaming_mean_relative_error streaming_mean_squared_error streaming_mean_tensor "
                "streaming_percentage_less streaming_precision streaming_precision_at_thresholds "
                "streaming_recall streaming_recall_at_k streaming_recall_at_thresholds "
                "streaming_root_mean_squared_error streaming_sensitivity_at_specificity "
                "streaming_sparse_average_precision_at_k streaming_sparse_precision_at_k "
                "streaming_sparse_recall_at_k streaming_specificity_at_sensitivity "
                "streaming_true_negatives streaming_true_positives",
            ),
            "confusion_matrix": "tf.math.confusion_matrix",
            "set_difference": "tf.sets.difference",
            "set_intersection": "tf.sets.intersection",
            "set_size": "tf.sets.size",
            "set_union": "tf.sets.union",
        },
        inner=("python.ops", "python.ops.metric_ops"),
        package=("tf_slim.metrics", "tf_slim.metrics.metric_ops"),
        rest="tf.metrics; the package tf_slim has all of them: pip install tf_slim, and --tf-v1 "
        "finds them",
    ),
    "mixed_precision": Module(
        rest="tf.train.experimental.enable_mixed_precision_graph_rewrite, or on a TPU "
        "tf.tpu.bfloat16_scope"
    ),
    "model_pruning": Module(rest="the package tensorflow-model-optimization"),
    "nccl": Module(rest="tf.distribute.NcclAllReduce"),
    "nearest_neighbor": Module(rest="the package scann"),
    "nn": Module(
        members={"conv1d_transpose": "tf.nn.conv1d_transpose"},
        elsewhere={
            "alpha_dropout": "tf.keras.layers.AlphaDropout",
            "nth_element": "tf.sort or tf.math.top_k",
        },
        rest="tf.nn (sampled_softmax_loss, sigmoid_cross_entropy_with_logits and others)",
    ),
    "opt": Module(
        members=_same(
            f"{_OURS}.opt",
            "AdamWOptimizer DecoupledWeightDecayExtension LARSOptimizer LazyAdamOptimizer "
            "MomentumWOptimizer clip_gradients_by_global_norm extend_with_decoupled_weight_decay",
        ),
        inner=(
            "python.training",
            "python.training.lars_optimizer",
            "python.training.lazy_adam_optimizer",
            "python.training.weight_decay_optimizers",
        ),
        elsewhere={
            "AdaMaxOptimizer": "tf.keras.optimizers.Adamax",
            "ExternalOptimizerInterface": f"{_PROBABILITY} (tfp.optimizer)",
            "MovingAverageOptimizer": "tf.train.ExponentialMovingAverage",
            "NadamOptimizer": "tf.keras.optimizers.Nadam",
            "ScipyOptimizerInterface": f"{_PROBABILITY} (tfp.optimizer)",
        },
        rest=NOTHING,
    ),
    "optimizer_v2": Module(rest="tf.train, or tf.keras.optimizers"),
    "periodic_resample": Module(rest=NOTHING),
    "predictor": Module(
        members=_same(f"{_OURS}.predictor", "Predictor from_saved_model"),
        inner=("predictor_factories", "predictor", "saved_model_predictor"),
        elsewhere={
            "from_contrib_estimator": "export_saved_model, then "
            f"{_OURS}.predictor.from_saved_model",
            "from_estimator": "the estimator's export_saved_model, then "
            f"{_OURS}.predictor.from_saved_model",
        },
    ),
    "proto": Module(members=_same("tf.io", "decode_proto encode_proto")),
    "quantization": Module(rest="tf.quantization"),
    "quantize": Module(rest="the package tensorflow-model-optimization"),
    "receptive_field": Module(rest="the package receptive_field of google-research"),
    "recurrent": Module(rest="tf.nn.dynamic_rnn"),
    "reduce_slice_ops": Module(rest="tf.math.segment_sum and its like"),
    "remote_fused_graph": Module(rest=NOTHING),
    "resampler": Module(rest=f"{_ADDONS} (tfa.image.resampler)"),
    "rnn": Module(
        members={
            **_same(
                "tf.nn.rnn_cell",
                "BasicLSTMCell BasicRNNCell DeviceWrapper DropoutWrapper GRUCell LSTMCell "
                "LSTMStateTuple MultiRNNCell RNNCell ResidualWrapper",
            ),
            "static_bidirectional_rnn": "tf.nn.static_bidirectional_rnn",
            "static_rnn": "tf.nn.static_rnn",
            "static_state_saving_rnn": "tf.nn.static_state_saving_rnn",
        },
        inner=("python.ops.core_rnn_cell", "python.ops.rnn", "python.ops.rnn_cell"),
        elsewhere={
            "GRUBlockCell": "tf.nn.rnn_cell.GRUCell",
            "GRUBlockCellV2": "tf.nn.rnn_cell.GRUCell",
            "LSTMBlockCell": "tf.nn.rnn_cell.LSTMCell",
            "LSTMBlockFusedCell": "tf.nn.dynamic_rnn with tf.nn.rnn_cell.LSTMCell",
            "LayerNormBasicLSTMCell": f"{_ADDONS} (tfa.rnn.LayerNormLSTMCell)",
            "stack_bidirectional_dynamic_rnn": "tf.nn.bidirectional_dynamic_rnn, layer by layer",
        },
        rest="tf.nn.rnn_cell",
    ),
    "rpc": Module(rest="the package grpcio, in tf.py_func"),
    "saved_model": Module(rest="tf.saved_model, and model.save of tf.keras for save_keras_model"),
    "seq2seq": Module(rest=f"{_ADDONS} (tfa.seq2seq)"),
    "session_bundle": Module(rest="tf.saved_model"),
    "signal": Module(
        members=_same(
            "tf.signal",
            "frame hamming_window hann_window inverse_stft inverse_stft_window_fn "
            "linear_to_mel_weight_matrix mfccs_from_log_mel_spectrograms overlap_and_add stft",
        )
    ),
    "slim": Module(
        rest="the package tf_slim: pip install tf_slim, and --tf-v1 finds it",
        package=("tf_slim",),
    ),
    "solvers": Module(rest="tf.linalg.experimental.conjugate_gradient"),
    "sparsemax": Module(rest=f"{_ADDONS} (tfa.activations.sparsemax)"),
    "specs": Module(rest=NOTHING),
    "staging": Module(
        members={"StagingArea": "tensorflow.python.ops.data_flow_ops.StagingArea"},
    ),
    "stat_summarizer": Module(rest="tf.profiler"),
    "stateless": Module(
        members={
            "stateless_multinomial": "tf.random.stateless_multinomial",
            "stateless_random_normal": "tf.random.stateless_normal",
            "stateless_random_uniform": "tf.random.stateless_uniform",
            "stateless_truncated_normal": "tf.random.stateless_truncated_normal",
        }
    ),
    "summary": Module(
        members={
            **_same(
                _SUMMARY,
                "always_record_summaries audio create_file_writer create_summary_file_writer "
                "eval_dir flush generic graph histogram image import_event initialize "
                "never_record_summaries record_summaries_every_n_global_steps scalar "
                "should_record_summaries summary_writer_initializer_op",
            ),
            "all_summary_ops": f"{_SUMMARY}.all_v2_summary_ops",
        },
        inner=("summary",),
        elsewhere={"create_db_writer": f"{_SUMMARY}.create_file_writer"},
    ),
    "tensor_forest": Module(rest="the package tensorflow-decision-forests"),
    "tensorboard": Module(
        modules={"plugins.projector": "tensorboard.plugins.projector"},
        rest="the package tensorboard",
    ),
    "tensorrt": Module(rest="tf.experimental.tensorrt of TensorFlow 2"),
    "testing": Module(rest="tf.test"),
    "text": Module(rest="the package tensorflow-text"),
    "tfprof": Module(rest="tf.profiler"),
    "timeseries": Module(rest=f"{_PROBABILITY} (tfp.sts)"),
    "tpu": Module(
        members={
            **_same(
                "tf.estimator.tpu",
                "InputPipelineConfig RunConfig TPUConfig TPUEstimator TPUEstimatorSpec",
            ),
            **_same(
                "tf.tpu",
                "CrossShardOptimizer batch_parallel bfloat16_scope core cross_replica_sum "
                "initialize_system outside_compilation replicate rewrite shard shutdown_system",
            ),
            **_same(
                _TPU_OPS,
                "infeed_dequeue infeed_dequeue_tuple infeed_enqueue "
                "infeed_enqueue_tuple outfeed_dequeue outfeed_dequeue_tuple outfeed_enqueue "
                "outfeed_enqueue_tuple",
            ),
            **_same("tensorflow.python.tpu.training_loop", "repeat while_loop"),
            "AsyncCheckpointSaverHook": "tensorflow.python.tpu.async_checkpoint."
            "AsyncCheckpointSaverHook",
            "DeviceAssignment": "tf.tpu.experimental.DeviceAssignment",
            "InfeedQueue": "tensorflow.python.tpu.tpu_feed.InfeedQueue",
            "device_assignment": "tensorflow.python.tpu.device_assignment.device_assignment",
            "export_estimator_savedmodel": "tensorflow_estimator.python.estimator.tpu."
            "tpu_estimator.export_estimator_savedmodel",
            "Topology": "tensorflow.python.tpu.topology.Topology",
            "TPUContext": "tensorflow_estimator.python.estimator.tpu.tpu_context.TPUContext",
        },
        modules={
            "python.ops.tpu_ops": _TPU_OPS,
            **{
                f"python.tpu.{name}": f"tensorflow.python.tpu.{name}"
                for name in (
                    "async_checkpoint bfloat16 device_assignment error_handling feature_column "
                    "functional session_support tensor_tracer topology tpu tpu_config "
                    "tpu_context tpu_embedding tpu_embedding_gradient tpu_estimator tpu_feed "
                    "tpu_function tpu_optimizer tpu_sharding tpu_system_metadata training_loop "
                    "util"
                ).split()
            },
            **{
                f"proto.{name}_pb2": f"tensorflow.core.protobuf.tpu.{name}_pb2"
                for name in (
                    "compilation_result dynamic_padding optimization_parameters topology "
                    "tpu_embedding_configuration"
                ).split()
            },
        },
        elsewhere={
            "TPUDistributionStrategy": "TPUEstimator, or tf.distribute.TPUStrategy",
            "keras_to_tpu_model": "TPUEstimator, or tf.distribute.TPUStrategy",
            "profiler": "the package cloud-tpu-profiler; tf.train.ProfilerHook profiles a host",
            "proto": "tensorflow.core.protobuf.tpu",
            "python.tpu._tpu_estimator_embedding": "estimator_emb (EmbeddingConfigSpec)",
            "python.tpu.datasets": "tf.data, read by input_fn on the host",
            "python.tpu.keras_support": "TPUEstimator, or tf.distribute.TPUStrategy",
            "tensor_tracer": "tensorflow.python.tpu.tensor_tracer",
        },
        rest="tf.tpu and tf.estimator.tpu",
    ),
    "training": Module(
        members={
            **_same(f"{_OURS}.hparam", "HParams parse_values"),
            "checkpoints_iterator": "tf.train.checkpoints_iterator",
            "StopAfterNEvalsHook": "tensorflow.python.training.evaluation._StopAfterNEvalsHook",
            "get_or_create_eval_step": "tensorflow.python.training.evaluation."
            "_get_or_create_eval_step",
        },
        inner=(
            "python.training",
            "python.training.evaluation",
            "python.training.hparam",
            "python.training.training",
        ),
        package=("tf_slim.training.training", "tf_slim.training.evaluation"),
        elsewhere=dict.fromkeys(
            (
                "batch_sequences_with_states bucket bucket_by_sequence_length rejection_sample "
                "resample_at_rate stratified_sample weighted_resample"
            ).split(),
            "tf.data (dataset.bucket_by_sequence_length, tf.data.experimental.rejection_resample)",
        ),
        rest="the package tf_slim has its functions of training and evaluation: pip install "
        "tf_slim, and --tf-v1 finds them",
    ),
    "util": Module(
        members={
            "constant_value": "tf.get_static_value",
            "make_ndarray": "tf.make_ndarray",
            "make_tensor_proto": "tf.make_tensor_proto",
        },
        elsewhere={"loader": "tf.load_op_library"},
        rest="tf.graph_util",
    ),
}
"""Modules of tf.contrib, with gan, lite and nccl, which left before TF 1.15."""


NAMESPACES = {
    path: owner
    for owner, module in MODULES.items()
    for path in (owner, *(f"{owner}.{inner}" for inner in module.inner))
}
"""Module below tf.contrib in which programs find the members of a module -> that module."""

MOVED = {
    f"{owner}.{path}": place
    for owner, module in MODULES.items()
    for path, place in module.modules.items()
}
"""Module below tf.contrib -> the module that takes its place."""


def advice_about(path: str) -> str:
    """Returns what to use in place of `tf.contrib.<path>`, which is not a member."""
    owner, _, rest = path.partition(".")
    module = MODULES.get(owner)
    if module is None:
        return f"tf.contrib.{path}: TensorFlow 1.15's tf.contrib has no module {owner!r}."
    for inner in sorted(module.inner, reverse=True):
        if rest.startswith(inner + "."):
            rest = rest.removeprefix(inner + ".")
    where = module.rest
    known = rest
    while known:
        if known in module.elsewhere:
            where = module.elsewhere[known]
            break
        known = known.rpartition(".")[0]
    left = f"tf.contrib.{path} left TensorFlow with version 2"
    if where is None or where == NOTHING:
        return f"{left}, and {NOTHING}."
    return f"{left}. Today: {where}."


def markdown() -> str:
    """Returns the table of docs/legacy_names.md."""
    lines = ["| module of `tf.contrib` | is here | for the rest |", "|---|---|---|"]
    for name, module in sorted(MODULES.items()):
        here = "`, `".join(sorted({*module.members, *module.modules}))
        here = f"`{here}`" if here else "no"
        if module.package:
            package = module.package[0].partition(".")[0]
            here = "" if here == "no" else f"{here}; "
            here += f"with the package {package} what it has"
        rest = module.rest or "—"
        lines.append(f"| `{name}` | {here} | {rest} |")
    return "\n".join(lines) + "\n"
