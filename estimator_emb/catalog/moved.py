"""New places of TensorFlow's private modules and names that have moved.

The tables list the moves from TensorFlow 1.15 or 2.9 to TensorFlow 2.15 or 2.21. Modules that lost
their public names, such as the layers of `tensorflow.python.keras`, are left out.
"""

MODULES = {
    "distribute.distribution_strategy_context": "distribute.distribute_lib",
    "ops.linalg.registrations_util": "ops.linalg.property_hint_util",
    "ops.rnn_cell_wrapper_impl": "keras.layers.legacy_rnn.rnn_cell_wrapper_impl",
    "training.distribute": "distribute.distribute_lib",
    "training.distribution_strategy_context": "distribute.distribute_lib",
    "training.gen_training_ops": "ops.gen_training_ops",
    "training.saving.checkpoint_options": "checkpoint.checkpoint_options",
    "training.saving.functional_saver": "checkpoint.functional_saver",
    "training.tracking": "trackable",
    "training.tracking.graph_view": "checkpoint.graph_view",
    "training.tracking.tracking": "trackable.resource",
    "training.tracking.util": "checkpoint.checkpoint",
    "training.training_ops": "ops.gen_training_ops",
    "util.compat_internal": "util.compat",
}
"""Module below tensorflow.python that has moved -> its new path. Submodules move with it."""

NAMES = {
    "checkpoint.graph_view": {"checkpoint.save_util_v1": "get_checkpoint_factories_and_keys"},
    "distribute.distribute_lib": {"distribute.distribute_utils": "get_loss_reduction"},
    "eager.def_function": {
        "eager.polymorphic_function.eager_function_run": "RUN_FUNCTIONS_EAGERLY "
        "experimental_functions_run_eagerly experimental_run_functions_eagerly",
        "eager.polymorphic_function.polymorphic_function": "JIT_COMPILE_FUNCTIONS "
        "OptionalXlaContext UnliftedInitializerVariable",
    },
    "eager.tape": {
        "eager.record": "VariableWatcher could_possibly_record record_operation "
        "record_operation_backprop_only record_operation_forwardprop_only should_record_backprop "
        "stop_recording"
    },
    "estimator.canned.dnn": {"estimator.canned.dnn": "_dnn_logit_fn_builder=dnn_logit_fn_builder"},
    "estimator.canned.linear": {
        "estimator.canned.linear": "_linear_logit_fn_builder=linear_logit_fn_builder"
    },
    "feature_column.feature_column_v2": {"feature_column.feature_column_v2_types": "FeatureColumn"},
    "framework.graph_util": {"framework.convert_to_constants": "convert_variables_to_constants"},
    "framework.graph_util_impl": {
        "framework.convert_to_constants": "convert_variables_to_constants"
    },
    "framework.ops": {
        "framework.indexed_slices": "IndexedSlices IndexedSlicesValue "
        "convert_n_to_tensor_or_indexed_slices convert_to_tensor_or_indexed_slices "
        "internal_convert_n_to_tensor_or_indexed_slices "
        "internal_convert_to_tensor_or_indexed_slices",
        "framework.stack": "default_session",
        "framework.tensor": "Tensor disable_tensor_equality enable_tensor_equality",
        "framework.tensor_conversion": "convert_to_tensor_v1 convert_to_tensor_v1_with_dispatch "
        "convert_to_tensor_v2 convert_to_tensor_v2_with_dispatch",
        "framework.tensor_conversion_registry": "register_tensor_conversion_function",
    },
    "framework.tensor_util": {"ops.shape_util": "maybe_set_static_shape shape_tensor"},
    "framework.type_spec": {"framework.type_spec_registry": "get_name lookup register"},
    "ops.array_ops": {"ops.array_ops_stack": "stack unstack"},
    "ops.control_flow_ops": {
        "ops.cond": "cond cond_for_tf_v2",
        "ops.control_flow_assert": "Assert",
        "ops.control_flow_case": "case case_v2",
        "ops.control_flow_switch_case": "execute_fn_for_device switch_case",
        "ops.while_loop": "while_loop while_loop_v2",
    },
    "ops.math_ops": {"framework.override_binary_operator": "maybe_promote_tensors"},
    "ops.nn": {
        "ops.rnn": "bidirectional_dynamic_rnn dynamic_rnn raw_rnn static_rnn "
        "static_state_saving_rnn"
    },
    "ops.nn_impl": {"ops.nn_impl_distribute": "compute_average_loss scale_regularization_loss"},
    "ops.random_ops": {"ops.random_crop_ops": "random_crop stateless_random_crop"},
    "ops.stateless_random_ops": {"ops.random_ops_util": "Algorithm convert_alg_to_int"},
    "ops.variable_scope": {
        "ops.ref_variable": "default_variable_creator",
        "ops.resource_variable_ops": "default_variable_creator_v2",
        "ops.resource_variables_toggle": "disable_resource_variables enable_resource_variables "
        "resource_variables_enabled",
        "ops.variable_v1": "variable=VariableV1",
    },
    "ops.variables": {
        "ops.ref_variable": "RefVariable default_variable_creator",
        "ops.variable_v1": "VariableV1 is_variable_initialized",
    },
    "saved_model.utils_impl": {
        "framework.byte_swap_tensor": "byte_swap_tensor_content byte_swappable",
        "saved_model.path_helpers": "get_assets_dir get_debug_dir get_or_create_assets_dir "
        "get_or_create_debug_dir get_or_create_variables_dir get_saved_model_pb_path "
        "get_saved_model_pbtxt_path get_variables_dir get_variables_path",
    },
    "tpu.tpu": {
        "tpu.tpu_replication": "OutsideCompilationV2Context TPUReplicateContext is_tpu_strategy "
        "outside_compilation"
    },
    "tpu.tpu_embedding_v2": {"tpu.tpu_embedding_v2_utils": "get_list_of_hosts"},
    "tpu.tpu_strategy_util": {
        "distribute.cluster_resolver.tpu.tpu_cluster_resolver": "initialize_tpu_system "
        "shutdown_tpu_system"
    },
    "trackable": {
        "checkpoint": "graph_view util=checkpoint",
        "trackable": "tracking=resource",
    },
    "trackable.base": {"checkpoint.restore": "CheckpointPosition"},
    "trackable.resource": {"trackable.asset": "Asset", "trackable.autotrackable": "AutoTrackable"},
    "util.nest": {"util.nest": "is_sequence=is_nested"},
}
"""Module below tensorflow.python -> new module -> names that moved there, old=new if renamed.

If the first module has moved too, the key is its new path.
"""
