"""Private attributes of TensorFlow and Python that we read, set, call or override.

Only `tests/compat/internals/test_private.py` imports this table, to check that they exist.
The table includes overrides, because an override that is no longer called raises no error. For
modules used as a whole, the table lists the attributes in use. It omits tensorflow-estimator, which
has only one version. The reason for an attribute that only some versions have begins as in
`estimator_emb.compat.internals`.
"""

import argparse

import tensorflow as tf

from estimator_emb.compat.internals import column_classes, graphs, tpu

_v1 = tf.compat.v1

with tf.Graph().as_default():
    _variable = _v1.get_variable("any", [1], use_resource=True)
    _variable_store = graphs.default_variable_store()

ATTRIBUTES = {
    tf.Operation: {
        "_add_control_input": "a read of a step is ordered before the writes",
        "_add_control_inputs": "what was built before waits for checks and lookups",
        "_get_control_flow_context": "a loop of the v1 kind is copied for a core as a whole",
        "_id": "ops are copied and compared in the order of their creation",
        "_original_op": "preflight names the line of the op that a gradient is of",
        "_remove_all_control_inputs": "a summary writer is created before any step",
        "_set_attr": "preflight puts on the host what TensorFlow would",
        "_set_device": "an emulated core's ops leave the device of a TPU",
        "_update_input": "a stand-in gets its value after model_fn",
    },
    argparse.ArgumentParser: {"_option_string_actions": "an option may be spelled with _"},
    graphs.FileWriterCache: {"_cache": "a writer of a removed folder is dropped"},
    tf.Graph: {
        "_add_control_dependencies": "tells a tf.function from a graph without order",
        "_control_dependencies_stack": "tells whether a program is outside of its TPU's ops",
        "_functions": "an op that a CPU cannot run is found within functions too",
        "_get_control_flow_context": "see that of an operation",
        "_get_function": "ops are searched within functions too",
        "_is_function": "the same",
    },
    graphs.BranchGradientGraph: {
        "_forward_graph": "preflight names the line of the op that a gradient in a branch is of"
    },
    graphs.LoopGradientGraph: {"_forward_graph": "the same of a loop"},
    tf.DType: {"_is_ref_dtype": "reads and writes of reference variables are edges"},
    graphs.data_nest: {
        "flatten": "the tensors of a batch",
        "map_structure": "a batch, tensor by tensor",
        "pack_sequence_as": "a batch of other tensors",
    },
    graphs.custom_gradient: {
        "get_variable_by_name": "what is computed again may read the helper variable"
    },
    graphs.gradient_registry: {"_registry": "a graph's custom gradients are taken out of it"},
    _variable_store: {"_vars": "the names that get_variable has given"},
    tf.errors.OpError: {"_message": "an error is made readable where it is raised again"},
    type(_variable): {
        "_as_graph_element": "what a session fetches of a variable",
        "_get_save_slice_info": "the name and shape of the whole of which a variable is a part",
        "_graph_element": "savers read a table in place of a copy",
        "_set_save_slice_info": "a shard is saved under the name of its table",
    },
    _v1.train.Saver: {
        "_builder": "a program's saver with a way of its own is not judged",
        "_is_built": "a saver that model_fn made before the tables is built again with them",
        "_reshape": "a saver that reshapes fits any shape of as many elements",
        "_var_list": "what a saver will restore is compared with the checkpoint",
    },
    graphs.BulkSaverBuilder: {
        "_AddRestoreOps": "overridden, it is a way of a saver's own",
        "_AddShardedRestoreOps": "the same",
        "_AddShardedSaveOpsForV2": "overridden: other hosts write parts of a checkpoint",
        "_GroupByDevices": "overridden: large tables are divided over several files",
    },
    _v1.saved_model.Builder: {"_export_dir": "the folder that a failed export leaves"},
    _v1.train.CheckpointSaverHook: {
        "_get_saver": "replaced: the saver hooks of a training write one after the other",
        "_global_step_tensor": "the step at which AsyncCheckpointSaverHook ends",
        "_listeners": "positions of the input are saved with the model",
        "_save": "overridden: AsyncCheckpointSaverHook saves in a thread",
        "_saver": "a saver that model_fn made before the tables gets them",
        "_save_path": "tells whether a hook saves the model of this model_dir",
        "_set_steps_per_run": "an emulated loop makes many steps in a session call",
    },
    graphs.StockCheckpointInputPipelineHook: {
        "_external_state_policy": "Until TensorFlow 2.15: the policy of ours in its place"
    },
    column_classes.tpu_feature_column: {
        "_is_running_on_cpu": "tells whether a column creates its variable itself",
        "_record_variable_scope_and_name": "replaced: columns record names of variables",
    },
    column_classes.tpu_feature_column_v2: {
        "_record_variable_scope_and_name": "replaced, where the newer columns look it up"
    },
    column_classes.TPUEmbeddingColumn: {
        "_bypass_scope_validation": "such a column may be used in several scopes",
        "_get_dense_tensor": "wrapped: input_layer says by it whether a table trains",
    },
    column_classes.tpu_feature_column_v2._TPUDeviceSpecificEmbeddingColumnV2: {
        "_embedding_lookup_device": "who looks the table up: the hardware or the model",
        "_tensor_core_shape": "the shape to which the ids of such a column are padded",
    },
    column_classes.EmbeddingColumn: {
        "_get_sequence_dense_tensor": "sequence_input_layer: the values of a column",
        "_var_scope_name": "sequence_input_layer: the scope of its variable",
        "_variable_shape": "sequence_input_layer: its width",
    },
    column_classes.StateManagerImpl: {
        "_trainable": "whether a layer trains the variables of its columns"
    },
    tf.feature_column.categorical_column_with_hash_bucket("any", 2): {
        "_transform_input_tensor": "strings and integers become ids as the column does it"
    },
    tpu.PartitionedInfeedQueue: {
        "_check_input_partition_dims": "the checks of a TPU's infeed, where one is emulated"
    },
    tpu.gen_tpu_ops: {
        "all_to_all": "replaced while a model_fn runs on emulated cores",
        "collective_permute": "the same",
        "cross_replica_sum": "the same",
    },
    tpu.xla: {
        "gen_xla_ops": "holds the same op",
        "replica_id": "replaced while a model_fn runs on emulated cores",
    },
    tpu.xla.gen_xla_ops: {"xla_replica_id": "the same"},
    tpu.tpu_ops: {
        "tpu_embedding_activations": "its gradient collects those of activations on a TPU",
    },
    tpu.tpu_system_metadata: {
        "_query_tpu_system_metadata": "the hosts and cores behind an address",
        "master_job": "the job of those hosts",
    },
    tpu.tpu_strategy_util: {
        "initialize_tpu_system_impl": "replaced: an emulated TPU needs no start",
        "shutdown_tpu_system_impl": "the same, at the end",
    },
    graphs.tf_export: {
        "API_ATTRS": "gets an entry for tensorflow-estimator where it has none",
        "API_ATTRS_V1": "the same, for names of TensorFlow 1",
        "ESTIMATOR_API_NAME": "added where it is missing, from TensorFlow 2.16 on",
        "KERAS_API_NAME": "its entry is the pattern of the new ones",
    },
    tf.keras.optimizers.experimental.Adagrad: {
        "_build_learning_rate": "overridden: a schedule is read in a graph of TensorFlow 1",
        "_current_learning_rate": "set as Keras does",
        "_index_dict": "finds the moving average of a variable",
        "_internal_apply_gradients": "overridden: a condition that such a graph can have",
        "_model_variables_moving_average": "started where a variable is warm-started",
        "_overwrite_model_variables_with_average_value": "called under that condition",
        "_serialize_hyperparameter": "overridden: there is no value to ask for in such a graph",
        "_var_key": "as `_index_dict`",
    },
    _v1.train.MomentumOptimizer: {
        "_learning_rate": "a row of `compat.legacy_optimizers` has it as a number",
    },
}
"""Owner (a class that has or sets it, a module, or an object) -> {name: reason}."""
