# SPDX-License-Identifier: Apache-2.0
"""Names that only `tf.compat.v1` has: a program that finds them in `tf` means TensorFlow 1."""

import re

_NAMES = {
    "": (
        "*Feature *Options *Queue *Reader AUTO_REUSE AttrValue COMPILER_VERSION CXX11_ABI_FLAG "
        "CXX_VERSION ConditionalAccumulator ConditionalAccumulatorBase ConfigProto Dimension "
        "Event GIT_VERSION GRAPH_DEF_VERSION* GraphDef GraphKeys HistogramProto "
        "InteractiveSession LogMessage MONOLITHIC_BUILD MetaGraphDef NameAttrList NoGradient "
        "NodeDef NotDifferentiable OpError Print QUANTIZED_DTYPES QueueBase ReaderBase "
        "RunMetadata Session SessionLog SparseConditionalAccumulator SparseTensorValue Summary "
        "SummaryMetadata TensorInfo VERSION VariableScope accumulate_n add_check_numerics_ops "
        "add_to_collection add_to_collections all_variables angle app arg_max arg_min "
        "assert_greater_equal assert_integer assert_less_equal assert_near assert_negative "
        "assert_non_negative assert_non_positive assert_none_equal assert_positive "
        "assert_proper_iterable assert_rank_at_least assert_rank_in assert_same_float_dtype "
        "assert_scalar assert_type assert_variables_initialized assign assign_add assign_sub "
        "batch_gather batch_scatter_update batch_to_space_nd betainc bincount ceil check_numerics "
        "cholesky cholesky_solve clip_by_average_norm colocate_with confusion_matrix conj "
        "container control_flow_v2_enabled convert_to_tensor_or_indexed_slices "
        "convert_to_tensor_or_sparse_tensor count_nonzero count_up_to "
        "create_partitioned_variables cross cumprod decode_* delete_session_tensor depth_to_space "
        "dequantize deserialize_many_sparse diag diag_part digamma dimension_at_index "
        "dimension_value disable_* distributions div div_no_nan enable_* encode_base64 erf erfc "
        "executing_eagerly_outside_functions expm1 extract_image_patches fake_quant_* fft fft2d "
        "fft3d fixed_size_partitioner flags floor_div floordiv floormod get_collection "
        "get_collection_ref get_default_graph get_default_session get_local_variable get_seed "
        "get_session_handle get_session_tensor get_variable get_variable_scope gfile global_norm "
        "global_variables global_variables_initializer glorot_normal_initializer "
        "glorot_uniform_initializer ifft ifft2d ifft3d igamma igammac imag initialize_* "
        "invert_permutation is_finite is_inf is_nan is_non_decreasing is_numeric_tensor "
        "is_strictly_increasing is_variable_initialized layers lbeta lgamma lin_space "
        "load_file_system_library local_variables local_variables_initializer log log1p "
        "log_sigmoid logging logical_xor make_template manip matching_files matrix_band_part "
        "matrix_determinant matrix_diag matrix_diag_part matrix_inverse matrix_set_diag "
        "matrix_solve matrix_solve_ls matrix_transpose matrix_triangular_solve "
        "min_max_variable_partitioner mixed_precision mod model_variables "
        "moving_average_variables multinomial no_regularizer op_scope orthogonal_initializer "
        "parse_* placeholder placeholder_with_default polygamma py_func python_io qr quantize "
        "quantize_v2 quantized_concat random_crop random_gamma random_normal random_poisson "
        "random_shuffle random_uniform read_file real reciprocal reduce_join regex_replace "
        "report_uninitialized_variables reset_default_graph resource_loader "
        "resource_variables_enabled reverse_v2 rint rsqrt scatter_add scatter_div scatter_max "
        "scatter_min scatter_mul scatter_nd_add scatter_nd_sub scatter_nd_update scatter_sub "
        "scatter_update segment_* self_adjoint_eig self_adjoint_eigvals serialize_* "
        "set_random_seed setdiff1d space_to_depth sparse_* spectral squared_difference string_* "
        "substr svd tables_initializer tensor_scatter_add tensor_scatter_sub "
        "tensor_scatter_update to_* trace trainable_variables truncated_normal "
        "truncated_normal_initializer uniform_unit_scaling_initializer unsorted_segment_* "
        "user_ops variable_axis_size_partitioner variable_op_scope variable_scope "
        "variables_initializer variance_scaling_initializer verify_tensor_all_finite where_v2 "
        "wrap_function write_file zeta"
    ),
    "train.": (
        "*Hook *Optimizer CheckpointSaverListener ChiefSessionCreator LooperThread "
        "MonitoredSession MonitoredTrainingSession NanLossDuringTrainingError NewCheckpointReader "
        "QueueRunner Saver SaverDef Scaffold SecondOrStepTimer Server SessionCreator "
        "SessionManager SessionRunArgs SessionRunContext SessionRunValues "
        "SingularMonitoredSession Supervisor VocabInfo WorkerSessionCreator add_queue_runner "
        "assert_global_step basic_train_loop batch batch_join checkpoint_exists cosine_decay "
        "cosine_decay_restarts create_global_step do_quantize_training_on_graphdef "
        "exponential_decay export_meta_graph generate_checkpoint_state_proto "
        "get_checkpoint_mtimes get_global_step get_or_create_global_step global_step "
        "import_meta_graph init_from_checkpoint input_producer inverse_time_decay limit_epochs "
        "linear_cosine_decay match_filenames_once maybe_* natural_exp_decay "
        "noisy_linear_cosine_decay piecewise_constant piecewise_constant_decay polynomial_decay "
        "queue_runner range_input_producer remove_checkpoint replica_device_setter sdca_* "
        "shuffle_batch shuffle_batch_join slice_input_producer start_queue_runners "
        "string_input_producer summary_iterator update_checkpoint_state warm_start write_graph"
    ),
    "losses.": (
        "absolute_difference add_loss compute_weighted_loss cosine_distance get_losses "
        "get_regularization_loss get_regularization_losses get_total_loss hinge_loss huber_loss "
        "log_loss mean_pairwise_squared_error sigmoid_cross_entropy softmax_cross_entropy "
        "sparse_softmax_cross_entropy"
    ),
    "metrics.": (
        "accuracy auc average_precision_at_k false_negatives false_negatives_at_thresholds "
        "false_positives false_positives_at_thresholds mean mean_cosine_distance mean_iou "
        "mean_per_class_accuracy mean_relative_error mean_tensor percentage_below precision "
        "precision_at_k precision_at_thresholds precision_at_top_k recall recall_at_k "
        "recall_at_thresholds recall_at_top_k root_mean_squared_error sensitivity_at_specificity "
        "sparse_average_precision_at_k sparse_precision_at_k specificity_at_sensitivity "
        "true_negatives true_negatives_at_thresholds true_positives true_positives_at_thresholds"
    ),
    "summary.": (
        "Event FileWriter FileWriterCache SessionLog Summary SummaryDescription TaggedRunMetadata "
        "all_v2_summary_ops get_summary_description initialize merge merge_all tensor_summary"
    ),
    "nn.": (
        "avg_pool_v2 bidirectional_dynamic_rnn conv2d_backprop_filter conv2d_backprop_input "
        "conv3d_backprop_filter conv3d_backprop_filter_v2 ctc_beam_search_decoder_v2 ctc_loss_v2 "
        "depthwise_conv2d_native depthwise_conv2d_native_backprop_filter "
        "depthwise_conv2d_native_backprop_input dynamic_rnn fused_batch_norm "
        "log_uniform_candidate_sampler max_pool_v2 quantized_avg_pool quantized_conv2d "
        "quantized_max_pool quantized_relu_x raw_rnn relu_layer rnn_cell "
        "softmax_cross_entropy_with_logits_v2 static_bidirectional_rnn static_rnn "
        "static_state_saving_rnn uniform_candidate_sampler xw_plus_b"
    ),
    "data.": (
        "get_output_classes get_output_shapes get_output_types make_initializable_iterator "
        "make_one_shot_iterator"
    ),
    "tpu.": (
        "CrossShardOptimizer PaddingSpec batch_parallel bfloat16_scope core cross_replica_sum "
        "initialize_system outside_compilation replicate rewrite shard shutdown_system"
    ),
    "image.": (
        "extract_image_patches resize_area resize_bicubic resize_bilinear "
        "resize_image_with_crop_or_pad resize_image_with_pad resize_images "
        "resize_nearest_neighbor transpose_image"
    ),
}
"""Module, with a dot at its end -> its names; * stands for any letters, where all such are."""

_PATTERN = re.compile(
    "|".join(
        (module + name).replace(".", r"\.").replace("*", r"\w*")
        for module, names in _NAMES.items()
        for name in names.split()
    )
)
"""The names below `tf.`; those of TensorFlow 2.15 and 2.21 are the same."""


def part_of(path: str) -> str | None:
    """Returns the part of `tf.<path>` that only TensorFlow 1 has; None where there is none."""
    parts = path.split(".")
    for count in (1, 2):
        name = ".".join(parts[:count])
        if name == "contrib" or _PATTERN.fullmatch(name):
            return name
    return None
