"""Names that only `tf.compat.v1` has. A program that reads them from `tf` needs TensorFlow 1."""

import re

_NAMES = {
    "": (
        "*Accumulator* *Feature *Options *Queue *Reader* *_partitioner *variables_initializer "
        "AUTO_REUSE AttrValue COMPILER_VERSION CXX11_ABI_FLAG CXX_VERSION ConfigProto Dimension "
        "Event GIT_VERSION GRAPH_DEF_VERSION* GraphDef GraphKeys HistogramProto InteractiveSession "
        "LogMessage MONOLITHIC_BUILD MetaGraphDef NameAttrList NoGradient NodeDef "
        "NotDifferentiable OpError Print QUANTIZED_DTYPES QueueBase RunMetadata Session SessionLog "
        "SparseTensorValue Summary SummaryMetadata TensorInfo VERSION VariableScope accumulate_n "
        "add_check_numerics_ops add_to_collection add_to_collections all_variables angle app "
        "arg_max arg_min assert_greater_equal assert_integer assert_less_equal assert_near "
        "assert_negative assert_non_* assert_none_equal assert_positive assert_proper_iterable "
        "assert_rank_at_least assert_rank_in assert_same_float_dtype assert_scalar assert_type "
        "assert_variables_initialized assign assign_add assign_sub batch_gather "
        "batch_scatter_update batch_to_space_nd betainc bincount ceil check_numerics cholesky "
        "cholesky_solve clip_by_average_norm colocate_with confusion_matrix conj container "
        "control_flow_v2_enabled convert_to_tensor_or_* count_nonzero count_up_to "
        "create_partitioned_variables cross cumprod decode_* delete_session_tensor depth_to_space "
        "dequantize deserialize_many_sparse diag diag_part digamma dimension_at_index "
        "dimension_value disable_* distributions div div_no_nan enable_* encode_base64 erf erfc "
        "executing_eagerly_outside_functions expm1 extract_image_patches fake_quant_* fft fft2d "
        "fft3d flags floor_div floordiv floormod get_collection get_collection_ref "
        "get_default_graph get_default_session get_local_variable get_seed get_session_* "
        "get_variable get_variable_scope gfile global_* glorot_normal_initializer "
        "glorot_uniform_initializer ifft ifft2d ifft3d igamma igammac imag initialize_* "
        "invert_permutation is_finite is_inf is_nan is_non_decreasing is_numeric_tensor "
        "is_strictly_increasing is_variable_initialized layers lbeta lgamma lin_space "
        "load_file_system_library local_variables log log1p log_sigmoid logging logical_xor "
        "make_template manip matching_files matrix_band_part matrix_determinant matrix_diag "
        "matrix_diag_part matrix_inverse matrix_set_diag matrix_solve matrix_solve_ls "
        "matrix_transpose matrix_triangular_solve mixed_precision mod model_variables "
        "moving_average_variables multinomial no_regularizer op_scope orthogonal_initializer "
        "parse_* placeholder placeholder_with_default polygamma py_func python_io qr quantize "
        "quantize_v2 quantized_concat random_crop random_gamma random_normal random_poisson "
        "random_shuffle random_uniform read_file real reciprocal reduce_join regex_replace "
        "report_uninitialized_variables reset_default_graph resource_loader "
        "resource_variables_enabled reverse_v2 rint rsqrt scatter_add scatter_div scatter_max "
        "scatter_min scatter_mul scatter_nd_add scatter_nd_sub scatter_nd_update scatter_sub "
        "scatter_update segment_* self_adjoint_eig self_adjoint_eigvals serialize_* "
        "set_random_seed setdiff1d space_to_depth sparse_* spectral squared_difference string_* "
        "substr svd tables_initializer tensor_scatter_add tensor_scatter_sub tensor_scatter_update "
        "to_* trace trainable_variables truncated_normal truncated_normal_initializer "
        "uniform_unit_scaling_initializer unsorted_segment_* user_ops variable_op_scope "
        "variable_scope variance_scaling_initializer verify_tensor_all_finite where_v2 "
        "wrap_function write_file zeta"
    ),
    "train.": (
        "*Hook *Optimizer *Session *_decay *_producer *global_step *meta_graph *queue_runner* "
        "CheckpointSaverListener ChiefSessionCreator LooperThread NanLossDuringTrainingError "
        "NewCheckpointReader QueueRunner Saver SaverDef Scaffold SecondOrStepTimer Server Session* "
        "Supervisor VocabInfo WorkerSessionCreator basic_train_loop batch batch_join "
        "checkpoint_exists cosine_decay_restarts do_quantize_training_on_graphdef "
        "generate_checkpoint_state_proto get_checkpoint_mtimes init_from_checkpoint limit_epochs "
        "match_filenames_once maybe_* piecewise_constant remove_checkpoint replica_device_setter "
        "sdca_* shuffle_batch shuffle_batch_join summary_iterator update_checkpoint_state "
        "warm_start write_graph"
    ),
    "losses.": (
        "*_entropy *_loss *_losses absolute_difference cosine_distance mean_pairwise_squared_error"
    ),
    "metrics.": (
        "*_at_k *_at_thresholds *_at_top_k accuracy auc false_negatives false_positives mean "
        "mean_cosine_distance mean_iou mean_per_class_accuracy mean_relative_error mean_tensor "
        "percentage_below precision recall root_mean_squared_error sensitivity_at_specificity "
        "specificity_at_sensitivity true_negatives true_positives"
    ),
    "summary.": (
        "Event FileWriter* SessionLog Summary SummaryDescription TaggedRunMetadata "
        "all_v2_summary_ops get_summary_description initialize merge* tensor_summary"
    ),
    "nn.": (
        "*_rnn *_v2 conv2d_backprop_filter conv2d_backprop_input conv3d_backprop_filter "
        "depthwise_conv2d_native* fused_batch_norm log_uniform_candidate_sampler quantized_* "
        "relu_layer rnn_cell uniform_candidate_sampler xw_plus_b"
    ),
    "data.": ("get_output_* make_*_iterator"),
    "tpu.": (
        "CrossShardOptimizer PaddingSpec batch_parallel bfloat16_scope core cross_replica_sum "
        "initialize_system outside_compilation replicate rewrite shard shutdown_system"
    ),
    "image.": (
        "extract_image_patches resize_area resize_bicubic resize_bilinear resize_image* "
        "resize_nearest_neighbor transpose_image"
    ),
}
"""Module with a dot at its end -> its names. * matches any letters if all such names belong."""

_PATTERN = re.compile(
    "|".join(
        (module + name).replace(".", r"\.").replace("*", r"\w*")
        for module, names in _NAMES.items()
        for name in names.split()
    )
)
"""Matches the names below `tf.`. They are the same in TensorFlow 2.15 and 2.21."""


def part_of(path: str) -> str | None:
    """Returns the part of `tf.<path>` that only TensorFlow 1 has, if any."""
    parts = path.split(".")
    for count in (1, 2):
        name = ".".join(parts[:count])
        if name == "contrib" or _PATTERN.fullmatch(name):
            return name
    return None
