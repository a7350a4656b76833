"""Today's places of the names in TensorFlow 1.15's `tf.contrib`.

`--tf-v1`, `estimator-emb migrate` and the errors about other names read `MODULES`.
docs/legacy_names.md lists it. It is plain text, so that it can be read without TensorFlow.
"""


def _by_name(names: dict[str, str] | None, ending: str = "") -> dict[str, str]:
    return {
        old: (text + ending).replace("{name}", new or old)
        for text, all_names in (names or {}).items()
        for old, _, new in (name.partition("=") for name in all_names.split())
    }


class Module:
    """A module of tf.contrib.

    The arguments `places`, `shared` and `advice` map a place or a text to the names that share it.
    In the place or text, {name} stands for the name. A renamed name is written old=new.

    Attributes:
      members: name -> its dotted name today. There `tf` means `tf.compat.v1`.
      inner: dotted names of modules inside it, through which programs also reach its members.
      modules: name of a module inside it -> the module that replaces it.
      package: modules of a package that, if installed, provides names missing in `members`.
      elsewhere: name -> advice on what to use instead.
      rest: advice for all other names, if any.
      is_original: TensorFlow 1.15's wheel has the module's other names.
    """

    def __init__(
        self,
        places: dict[str, str] | None = None,
        inner: str = "",
        modules: dict[str, str] | None = None,
        package: str = "",
        advice: dict[str, str] | None = None,
        rest: str | None = None,
        is_original: bool = True,
    ):
        self.members = _by_name(places, ".{name}")
        self.inner = inner.split()
        self.modules = modules or {}
        self.package = package.split()
        self.elsewhere = _by_name(advice)
        self.rest = rest
        self.is_original = is_original


def _below(path: str, place: str, names: str) -> dict[str, str]:
    return {f"{path}.{name}": f"{place}.{name}" for name in names.split()}


_OURS = "estimator_emb.legacy.contrib"
_SLIM_HAS = "the package tf_slim, which --tf-v1 finds, has it unchanged"
_SUMMARY = "tensorflow.python.ops.summary_ops_v2"
_LOOKUP = "tensorflow.python.ops.lookup_ops"
_TPU_OPS = "tensorflow.python.tpu.ops.tpu_ops"
_PROBABILITY = "the package tensorflow-probability"
_DATA = "tf.data (dataset.bucket_by_sequence_length, tf.data.experimental.rejection_resample)"

_WITHOUT_NAMES = {
    "": "autograph bayesflow bigtable cloud cmake copy_graph cudnn_rnn deprecated ffmpeg "
    "fused_conv graph_editor grid_rnn hadoop ignite input_pipeline integrate kafka "
    "kernel_methods kinesis labeled_tensor legacy_seq2seq libsvm memory_stats "
    "meta_graph_transform mixed_precision nearest_neighbor optimizer_v2 periodic_resample "
    "quantization receptive_field recurrent "
    "reduce_slice_ops remote_fused_graph resampler rpc saved_model seq2seq session_bundle solvers "
    "sparsemax specs stat_summarizer tensorrt testing",
    "tf.distribute": "all_reduce",
    "tf.estimator.experimental.KMeans": "factorization",
    "tf.estimator.experimental.LinearSDCA": "linear_optimizer",
    "tf.keras": "keras",
    "tf.profiler": "tfprof",
    "the package tensorflow-constrained-optimization": "constrained_optimization",
    "the package tensorflow-decision-forests": "boosted_trees decision_trees tensor_forest",
    "the package tensorflow-model-optimization": "model_pruning quantize",
    "the package tensorflow-text": "text",
    f"{_PROBABILITY} (tfp.distributions)": "distributions",
    f"{_PROBABILITY} (tfp.sts)": "timeseries",
}
"""Replacement, if any -> the modules of tf.contrib that it replaces as a whole."""

MODULES: dict[str, Module] = {
    **{
        name: Module(rest=rest or None)
        for rest, names in _WITHOUT_NAMES.items()
        for name in names.split()
    },
    "lite": Module(rest="tf.lite", is_original=False),
    "rate": Module(is_original=False),
    "nccl": Module(rest="tf.distribute.NcclAllReduce", is_original=False),
    "batching": Module(places={"tf": "batch_function=nondifferentiable_batch_function"}),
    "checkpoint": Module(
        places={"tf.train": "CheckpointManager"},
        rest="tf.train.Checkpoint; attributes are tracked by tf.Module",
    ),
    "cluster_resolver": Module(
        places={
            "tf.distribute.cluster_resolver": "ClusterResolver GCEClusterResolver "
            "KubernetesClusterResolver SimpleClusterResolver SlurmClusterResolver "
            "TFConfigClusterResolver TPUClusterResolver GceClusterResolver=GCEClusterResolver "
            "UnionClusterResolver=UnionResolver",
        },
        inner="python.training python.training.cluster_resolver",
        modules=_below(
            "python.training",
            "tensorflow.python.distribute.cluster_resolver.tpu",
            "tpu_cluster_resolver",
        ),
    ),
    "compiler": Module(
        modules={"jit": "tensorflow.python.compiler.xla.jit"},
        rest="tf.xla.experimental and tf.function(jit_compile=True)",
    ),
    "crf": Module(),
    "data": Module(
        places={
            "tf.data": "Dataset FixedLengthRecordDataset Iterator TFRecordDataset TextLineDataset",
            "tf.data.experimental": "AUTOTUNE CheckpointInputPipelineHook Counter CsvDataset "
            "Optional RandomDataset RaggedTensorStructure Reducer SqlDataset TFRecordWriter "
            "bucket_by_sequence_length choose_from_datasets copy_to_device dense_to_ragged_batch "
            "dense_to_sparse_batch enumerate_dataset get_next_as_optional get_single_element "
            "group_by_reducer group_by_window ignore_errors make_batched_features_dataset "
            "make_csv_dataset make_saveable_from_iterator map_and_batch parallel_interleave "
            "parse_example_dataset prefetch_to_device rejection_resample sample_from_datasets "
            "scan shuffle_and_repeat take_while unbatch unique",
            f"{_OURS}.arguments": "batch_and_drop_remainder padded_batch_and_drop_remainder "
            "sloppy_interleave",
        },
        inner="python.ops.batching python.ops.grouping python.ops.interleave_ops "
        "python.ops.readers python.ops.resampling python.ops.shuffle_ops",
        advice={
            "dataset.map with tf.ensure_shape": "assert_element_shape",
            "tf.data.experimental.make_batched_features_dataset": "read_batch_features",
            "dataset.reduce": "reduce_dataset",
            "dataset.window": "sliding_window_batch",
        },
        rest="tf.data and tf.data.experimental",
    ),
    "distribute": Module(
        places={
            "tf.distribute": "CrossDeviceOps MirroredStrategy OneDeviceStrategy ReplicaContext "
            "get_loss_reduction get_replica_context get_strategy has_strategy "
            "in_cross_replica_context",
            "tensorflow.python.distribute.cross_device_ops": "AllReduceCrossDeviceOps",
        },
        advice={
            "tf.distribute.experimental.MultiWorkerMirroredStrategy": "CollectiveAllReduceStrategy",
            "RunConfig(train_distribute=..., eval_distribute=...)": "DistributeConfig",
            "tf.distribute.Strategy": "DistributionStrategy",
            "tf.distribute.experimental.ParameterServerStrategy; estimator_emb needs none for "
            "parameter servers": "ParameterServerStrategy",
            "TPUEstimator, or tf.distribute.experimental.TPUStrategy": "TPUStrategy",
        },
        rest="tf.distribute",
    ),
    "eager": Module(
        places={"tf": "enable_eager_execution", f"{_OURS}.arguments": "list_devices"},
        inner="python python.tfe",
        rest="tf (tf.function, tf.GradientTape, tf.train.Checkpoint)",
    ),
    "estimator": Module(
        places={
            "tf.estimator": "DNNEstimator DNNLinearCombinedEstimator LinearEstimator add_metrics",
            "tf.estimator.experimental": "InMemoryEvaluatorHook "
            "build_raw_supervised_input_receiver_fn call_logit_fn dnn_logit_fn_builder "
            "linear_logit_fn_builder make_early_stopping_hook make_stop_at_checkpoint_step_hook "
            "stop_if_higher_hook stop_if_lower_hook stop_if_no_decrease_hook "
            "stop_if_no_increase_hook",
        },
        advice={
            "tf.compat.v2.estimator.experimental.{name}, which takes other arguments": (
                "RNNClassifier RNNEstimator"
            ),
            "RunConfig(train_distribute=tf.distribute.MirroredStrategy())": "replicate_model_fn "
            "TowerOptimizer",
        },
        rest="tf.estimator and tf.estimator.experimental",
    ),
    "feature_column": Module(
        places={
            "tf.feature_column": "sequence_categorical_column_with_hash_bucket "
            "sequence_categorical_column_with_identity "
            "sequence_categorical_column_with_vocabulary_file "
            "sequence_categorical_column_with_vocabulary_list sequence_numeric_column",
            "feature_columns": "sequence_input_layer",
        },
    ),
    "framework": Module(
        places={
            "tf.train": "create_global_step get_global_step get_or_create_global_step "
            "assert_global_step",
            f"{_OURS}.arguments": "get_name_scope init_from_checkpoint list_variables "
            "load_checkpoint "
            "load_variable",
            "tf": "TensorSpec argsort is_tensor sort convert_to_tensor_or_sparse_tensor",
            "tf.debugging": "assert_same_float_dtype assert_scalar",
            "tensorflow.python.util.deprecation": "deprecated",
            "tensorflow.python.util": "nest",
        },
        inner="python.framework python.framework.checkpoint_utils python.ops "
        "python.ops.arg_scope python.ops.variables",
        package="tf_slim.ops.arg_scope tf_slim.ops.variables",
        advice={
            "tf.cond, or an if where the condition is a Python bool": "smart_cond",
            "tf.zeros_initializer": "zero_initializer",
            _SLIM_HAS: "add_arg_scope add_model_variable arg_scope arg_scope_func_key "
            "arg_scoped_arguments assign_from_checkpoint assign_from_checkpoint_fn "
            "assign_from_values assign_from_values_fn current_arg_scope filter_variables "
            "get_local_variables get_model_variables get_trainable_variables get_unique_variable "
            "get_variable_full_name get_variables get_variables_by_name get_variables_by_suffix "
            "get_variables_to_restore global_variable has_arg_scope local_variable model_variable "
            "variable VariableDeviceChooser",
        },
    ),
    "gan": Module(
        package="tensorflow_gan",
        rest="the package tensorflow-gan: pip install tensorflow-gan, and --tf-v1 finds it",
        is_original=False,
    ),
    "image": Module(rest="tf.image"),
    "hooks": Module(places={"tf.train": "ProfilerHook"}),
    "layers": Module(
        places={
            f"{_OURS}.layers": "l1_regularizer l2_regularizer layer_norm "
            "variance_scaling_initializer xavier_initializer "
            "xavier_initializer_conv2d=xavier_initializer",
            f"{_OURS}.arguments": "flatten",
        },
        inner="python.layers python.layers.initializers python.layers.layers "
        "python.layers.regularizers",
        package="tf_slim.layers tf_slim.layers.layers tf_slim.layers.normalization "
        "tf_slim.layers.optimizers tf_slim.layers.regularizers tf_slim.layers.rev_block_lib "
        "tf_slim.layers.summaries",
        advice={
            f"{_SLIM_HAS}. tf.layers.{{name}} differs: no activation by default, and variables "
            "kernel and bias in place of weights and biases": "fully_connected=dense",
            f"{_SLIM_HAS}. tf.layers.{{name}} differs: no activation and padding 'valid' by "
            "default, and variables kernel and bias in place of weights and biases": "conv2d",
            f"{_SLIM_HAS}. tf.layers.{{name}} differs: momentum 0.99 in place of decay 0.999, "
            "scale by default, and training=False unless it is given": (
                "batch_norm=batch_normalization"
            ),
            f"{_SLIM_HAS}. tf.layers.{{name}} differs: it takes the rate, 1 - keep_prob, and is "
            "off unless training=True is given": "dropout",
            f"{_SLIM_HAS}. tf.layers.{{name}} differs: it needs strides": (
                "max_pool2d=max_pooling2d"
            ),
            "tf.feature_column.{name}": "bucketized_column "
            "create_feature_spec_for_parsing=make_parse_example_spec crossed_column "
            "embedding_column input_from_feature_columns=input_layer "
            "one_hot_column=indicator_column real_valued_column=numeric_column "
            "shared_embedding_columns "
            "sparse_column_with_hash_bucket=categorical_column_with_hash_bucket "
            "sparse_column_with_integerized_feature=categorical_column_with_identity "
            "sparse_column_with_keys=categorical_column_with_vocabulary_list "
            "sparse_column_with_vocabulary_file=categorical_column_with_vocabulary_file "
            "weighted_sparse_column=weighted_categorical_column "
            "weighted_sum_from_feature_columns=linear_model",
            "feature_columns.sequence_input_layer": "sequence_input_from_feature_columns",
            "tf.io.parse_example, with tf.feature_column.make_parse_example_spec": (
                "parse_feature_columns_from_examples"
            ),
            "tf.nn.embedding_lookup of tf.get_variable('embeddings', [vocab_size, embed_dim]), in "
            "tf.variable_scope('EmbedSequence') or the scope argument's": "embed_sequence",
            "tf.nn.embedding_lookup of a variable, and tf.reduce_mean over axis 1": "bow_encoder",
            "tf.nn.embedding_lookup": "embedding_lookup_unique",
            f"{_SLIM_HAS}. It is an optimizer's minimize(), with tf.clip_by_global_norm": (
                "optimize_loss"
            ),
            "tf.nn.safe_embedding_lookup_sparse": "safe_embedding_lookup_sparse",
        },
        rest="the package tf_slim, which --tf-v1 finds, has most of its layers, with the same "
        "defaults and names of variables. tf.layers differs: no activation by default, and "
        "variables kernel and bias in place of weights and biases",
    ),
    "learn": Module(
        inner="monitors python.learn python.learn.estimators python.learn.estimators.model_fn "
        "python.learn.estimators.run_config python.learn.monitors",
        advice={
            "tf.estimator.{name}": "DNNClassifier DNNEstimator DNNLinearCombinedClassifier "
            "DNNLinearCombinedEstimator DNNLinearCombinedRegressor DNNRegressor Estimator "
            "Experiment=train_and_evaluate InputFnOps=export.ServingInputReceiver "
            "KMeansClustering=experimental.KMeans LinearClassifier LinearEstimator "
            "LinearRegressor LogisticRegressor=LinearClassifier ModelFnOps=EstimatorSpec "
            "build_parsing_serving_input_fn=export.build_parsing_serving_input_receiver_fn "
            "learn_runner=train_and_evaluate",
            "tf.estimator.LatestExporter, in exporters of the EvalSpec": (
                "ExportStrategy make_export_strategy"
            ),
            "tf.metrics, in eval_metric_ops of the EstimatorSpec or by tf.estimator.add_metrics": (
                "MetricSpec"
            ),
            "tf.estimator.train_and_evaluate; tf.estimator.experimental.stop_if_no_decrease_hook "
            "stops early": "ValidationMonitor",
            "tf.train.{name}": "BaseMonitor=SessionRunHook CheckpointSaver=CheckpointSaverHook "
            "EveryN=SessionRunHook NanLoss=NanTensorHook PrintTensor=LoggingTensorHook "
            "StepCounter=StepCounterHook StopAtStep=StopAtStepHook SummarySaver=SummarySaverHook",
            "tf.data.experimental.make_batched_features_dataset": "read_batch_features",
            "tf.feature_column.numeric_column for each feature": (
                "infer_real_valued_columns_from_input infer_real_valued_columns_from_input_fn"
            ),
        },
    ),
    "lookup": Module(
        places={
            _LOOKUP: "FastHashSpec HashTable HasherSpec IdTableWithHashBuckets "
            "InitializableLookupTableBase KeyValueTensorInitializer LookupInterface "
            "MutableHashTable StrongHashSpec TableInitializerBase TextFileIdTableInitializer "
            "TextFileIndex TextFileInitializer TextFileStringTableInitializer "
            "index_table_from_file index_to_string_table_from_file "
            "MutableDenseHashTable=DenseHashTable",
            f"{_OURS}.arguments": "index_table_from_tensor index_to_string_table_from_tensor",
        },
        inner="lookup_ops",
        advice={
            f"{_LOOKUP}.{{name}}": "index_to_string=index_to_string_table_from_tensor "
            "string_to_index=index_table_from_tensor "
            "string_to_index_table_from_file=index_table_from_file "
            "string_to_index_table_from_tensor=index_table_from_tensor",
        },
    ),
    "losses": Module(
        package="tf_slim.losses",
        rest=f"{_SLIM_HAS}. tf.losses differs: labels come first",
    ),
    "metrics": Module(
        places={
            "tf.math": "confusion_matrix",
            "tf.sets": "set_difference=difference set_intersection=intersection set_size=size "
            "set_union=union",
        },
        inner="python.ops python.ops.metric_ops",
        package="tf_slim.metrics tf_slim.metrics.metric_ops",
        rest=f"{_SLIM_HAS}. tf.metrics differs: names without streaming_, and labels come first",
    ),
    "nn": Module(
        places={"tf.nn": "conv1d_transpose"},
        advice={
            "tf.keras.layers.{name}": "alpha_dropout=AlphaDropout",
            "tf.sort or tf.math.top_k": "nth_element",
        },
        rest="tf.nn (sampled_softmax_loss, sigmoid_cross_entropy_with_logits and others)",
    ),
    "opt": Module(),
    "predictor": Module(),
    "proto": Module(places={"tf.io": "decode_proto encode_proto"}),
    "rnn": Module(
        places={
            "tf.nn.rnn_cell": "BasicLSTMCell BasicRNNCell DeviceWrapper DropoutWrapper GRUCell "
            "LSTMCell LSTMStateTuple MultiRNNCell RNNCell ResidualWrapper",
            "tf.nn": "static_bidirectional_rnn static_rnn static_state_saving_rnn",
        },
        inner="python.ops.core_rnn_cell python.ops.rnn python.ops.rnn_cell",
    ),
    "signal": Module(
        places={
            "tf.signal": "frame hamming_window hann_window inverse_stft inverse_stft_window_fn "
            "linear_to_mel_weight_matrix mfccs_from_log_mel_spectrograms overlap_and_add stft",
        },
    ),
    "slim": Module(
        package="tf_slim",
        rest="the package tf_slim, which --tf-v1 finds",
    ),
    "staging": Module(places={"tensorflow.python.ops.data_flow_ops": "StagingArea"}),
    "stateless": Module(
        places={
            "tf.random": "stateless_multinomial stateless_random_normal=stateless_normal "
            "stateless_random_uniform=stateless_uniform stateless_truncated_normal",
        },
    ),
    "summary": Module(
        places={
            _SUMMARY: "always_record_summaries audio create_file_writer "
            "create_summary_file_writer eval_dir flush generic graph histogram image "
            "import_event initialize never_record_summaries "
            "record_summaries_every_n_global_steps scalar should_record_summaries "
            "summary_writer_initializer_op all_summary_ops=all_v2_summary_ops",
        },
        inner="summary summary_ops",
        advice={f"{_SUMMARY}.create_file_writer": "create_db_writer"},
    ),
    "tensorboard": Module(
        modules={"plugins.projector": "tensorboard.plugins.projector"},
        rest="the package tensorboard",
    ),
    "tpu": Module(
        places={
            "tf.estimator.tpu": "InputPipelineConfig RunConfig TPUConfig TPUEstimator "
            "TPUEstimatorSpec",
            "tf.tpu": "CrossShardOptimizer batch_parallel bfloat16_scope core cross_replica_sum "
            "initialize_system outside_compilation replicate rewrite shard shutdown_system",
            _TPU_OPS: "infeed_dequeue infeed_dequeue_tuple infeed_enqueue infeed_enqueue_tuple "
            "outfeed_dequeue outfeed_dequeue_tuple outfeed_enqueue outfeed_enqueue_tuple",
            "tensorflow.python.tpu.training_loop": "repeat while_loop",
            "tensorflow.python.tpu.async_checkpoint": "AsyncCheckpointSaverHook",
            "tf.tpu.experimental": "DeviceAssignment",
            "tensorflow.python.tpu.tpu_feed": "InfeedQueue",
            "tensorflow.python.tpu.device_assignment": "device_assignment",
            "tensorflow_estimator.python.estimator.tpu.tpu_estimator": (
                "export_estimator_savedmodel"
            ),
            "tensorflow.python.tpu.topology": "Topology",
            "tensorflow_estimator.python.estimator.tpu.tpu_context": "TPUContext",
        },
        modules={
            "python.ops.tpu_ops": _TPU_OPS,
            **_below(
                "python.tpu",
                "tensorflow.python.tpu",
                "async_checkpoint bfloat16 device_assignment error_handling feature_column "
                "functional session_support tensor_tracer topology tpu tpu_config tpu_context "
                "tpu_embedding tpu_embedding_gradient tpu_estimator tpu_feed tpu_function "
                "tpu_optimizer tpu_sharding tpu_system_metadata training_loop util",
            ),
            **_below(
                "proto",
                "tensorflow.core.protobuf.tpu",
                "compilation_result_pb2 dynamic_padding_pb2 optimization_parameters_pb2 "
                "topology_pb2 tpu_embedding_configuration_pb2",
            ),
        },
        advice={
            "TPUEstimator, or tf.distribute.experimental.TPUStrategy": "TPUDistributionStrategy "
            "keras_to_tpu_model python.tpu.keras_support",
            "the package cloud-tpu-profiler; tf.train.ProfilerHook profiles a host": "profiler",
            "tensorflow.core.protobuf.tpu": "proto",
            "estimator_emb (EmbeddingConfigSpec)": "python.tpu._tpu_estimator_embedding",
            "tf.data, read by input_fn on the host": "python.tpu.datasets",
            "tensorflow.python.tpu.tensor_tracer": "tensor_tracer",
        },
        rest="tf.tpu and tf.estimator.tpu",
    ),
    "training": Module(
        places={
            f"{_OURS}.hparam": "HParams parse_values",
            "tf.train": "checkpoints_iterator",
            "tensorflow.python.training.evaluation": "StopAfterNEvalsHook=_StopAfterNEvalsHook "
            "get_or_create_eval_step=_get_or_create_eval_step",
        },
        inner="python.training python.training.evaluation python.training.hparam "
        "python.training.training",
        package="tf_slim.training.training tf_slim.training.evaluation",
        advice={
            _DATA: "batch_sequences_with_states bucket bucket_by_sequence_length "
            "rejection_sample resample_at_rate stratified_sample weighted_resample",
        },
        rest="the package tf_slim, which --tf-v1 finds, for functions of training and evaluation",
    ),
    "util": Module(
        places={"tf": "constant_value=get_static_value make_ndarray make_tensor_proto"},
        advice={"tf.load_op_library": "loader"},
        rest="tf.graph_util",
    ),
}
"""Modules of tf.contrib, including gan, lite, nccl and rate, which the wheel of TF 1.15 lacks."""


MAPPED = frozenset("cluster_resolver data distribute gan summary tpu".split())
"""Modules that TensorFlow 1.15's own `tf.contrib` does not replace."""

NAMESPACES = {
    path: owner
    for owner, module in MODULES.items()
    for path in (owner, *(f"{owner}.{inner}" for inner in module.inner))
}
"""Path below tf.contrib where programs find a module's members -> that module."""

MOVED = {
    f"{owner}.{path}": place
    for owner, module in MODULES.items()
    for path, place in module.modules.items()
}
"""Module below tf.contrib -> the module that replaces it."""


def advice_about(path: str) -> str:
    """Returns advice on what to use instead of `tf.contrib.<path>`, a name not in `members`."""
    owner, _, rest = path.partition(".")
    module = MODULES.get(owner)
    if module is None:
        return f"tf.contrib.{path}: TensorFlow 1.15's tf.contrib has no module {owner!r}."
    for inner in sorted(module.inner, reverse=True):
        rest = rest.removeprefix(inner + ".")
    known = rest
    while known and known not in module.elsewhere:
        known = known.rpartition(".")[0]
    advice = module.elsewhere.get(known, module.rest)
    said = f"tf.contrib.{path} left TensorFlow with version 2."
    said += f" Today: {advice}." if advice else ""
    return f"{said} TensorFlow 1.15's wheel has it." if module.is_original else said
