"""Private names of TensorFlow: graphs, variables, savers, input, and how a cluster is run."""

from tensorflow.python.autograph.impl import api as _autograph
from tensorflow.python.data.experimental.ops import iterator_ops as _experimental_iterator_ops
from tensorflow.python.data.ops import iterator_ops as _iterator_ops
from tensorflow.python.data.util import nest as _data_nest
from tensorflow.python.distribute import distribute_coordinator as _coordinator
from tensorflow.python.distribute import distribute_coordinator_context as _coordinator_context
from tensorflow.python.eager import context as _context
from tensorflow.python.eager import record as _record
from tensorflow.python.framework import function_def_to_graph as _function_def_to_graph
from tensorflow.python.framework import ops as _ops
from tensorflow.python.ops import cond_v2 as _cond_v2
from tensorflow.python.ops import control_flow_util as _control_flow_util
from tensorflow.python.ops import control_flow_v2_func_graphs as _control_flow_v2_func_graphs
from tensorflow.python.ops import custom_gradient as _custom_gradient
from tensorflow.python.ops import gen_random_ops as _gen_random_ops
from tensorflow.python.ops import lookup_ops as _lookup_ops
from tensorflow.python.ops import summary_ops_v2 as _summary_ops
from tensorflow.python.ops import variable_scope as _variable_scope
from tensorflow.python.ops import while_v2 as _while_v2
from tensorflow.python.summary.writer import writer_cache as _writer_cache
from tensorflow.python.training import saver as _saver
from tensorflow.python.training import training_util as _training_util
from tensorflow.python.training import warm_starting_util as _warm_starting_util
from tensorflow.python.training.saving import saveable_object as _saveable_object
from tensorflow.python.util import function_utils as _function_utils
from tensorflow.python.util import tf_export as _tf_export

# ---- Graphs and functions ---------------------------------------------------------------------

colocate_with = _ops.colocate_with
"""Colocates ops with a tensor or variable. `tf.compat.v1.colocate_with` warns at every call."""

FileWriterCache = _writer_cache.FileWriterCache
"""Its `_cache` has the writer of each folder. A writer stays after its folder was removed."""

get_gradient_function = _ops.get_gradient_function
"""Returns None for an op without a gradient. Variables behind such an op get none."""

gradient_registry = _ops.gradient_registry
"""Holds each `tf.custom_gradient`'s function, and thereby its graph, until it is unregistered."""

custom_gradient = _custom_gradient
"""Its `get_variable_by_name` finds the variables of functions that `tf.recompute_grad` repeats."""

eager_mode = _context.eager_mode
"""Executes eagerly inside, also in TF1 programs. A function's XLA module is available there."""

could_possibly_record = _record.could_possibly_record
"""Whether a GradientTape is open. It must record how activations depend on the helper variable."""

control_flow_util = _control_flow_util
"""With `GraphOrParentsInXlaContext`, says whether loops and branches are created in XLA's form."""

gen_random_ops = _gen_random_ops
"""Creates stateful random ops. On PJRT devices stateless ops replace them."""

index_table_from_tensor = _lookup_ops.index_table_from_tensor
"""Makes `tf.contrib.lookup.index_table_from_tensor`, whose argument has another name."""

index_to_string_table_from_tensor = _lookup_ops.index_to_string_table_from_tensor
"""Makes `tf.contrib.lookup.index_to_string_table_from_tensor`, likewise."""

LoopGraph = _control_flow_v2_func_graphs.WhileBodyFuncGraph
"""The graph of a loop's body. Its first argument is the iteration number."""

output_context = _control_flow_util.GetOutputContext
"""Returns the v1 loop or branch where an op's outputs can be read, or None if outside of both."""

BranchGradientGraph = _cond_v2._CondGradFuncGraph
"""The graph of a branch's gradient. It refers to the branch's graph."""

LoopGradientGraph = _while_v2._WhileBodyGradFuncGraph
"""The graph of the gradient of a loop's body. It refers to the body's graph."""

function_def_to_graph = _function_def_to_graph.function_def_to_graph
"""Builds the graph of a TensorFlow 1 function, which stores none. `preflight` inspects it."""

fn_args = _function_utils.fn_args
"""Returns the arguments of a function, partial or method of a program, as Estimators do."""

not_converted = _autograph.autograph_artifact
"""Keeps AutoGraph, in a `tf.function`, from rewriting a function and everything that it calls.

`tf.autograph.experimental.do_not_convert` would add a frame to tracebacks. It would also keep
AutoGraph from rewriting functions that the program passes to `Dataset.map`.
"""

summary_writer_initializers = _summary_ops.summary_writer_initializer_op
"""Returns the ops that create summary writers. tensorflow-estimator's hooks run them first."""

tf_export = _tf_export
"""The registry of API names. `tensorflow-estimator` needs a name that TensorFlow 2.16 removed."""

# ---- Variables --------------------------------------------------------------------------------

default_variable_store = _variable_scope._get_default_variable_store
"""The variables that `get_variable` has created in a graph. Tables must not reuse their names."""

PartitionInfo = _variable_scope._PartitionInfo
"""Passed to initializers with the argument `partition_info`: the part of a table to initialize."""

# ---- Savers -----------------------------------------------------------------------------------

BulkSaverBuilder = _saver.BulkSaverBuilder
"""Writes and reads files for savers. Our subclass divides large tables over several files."""

warm_starting_util = _warm_starting_util
"""Its `_get_var_info` passes a variable to a warm start. On several hosts, it passes a part."""

object_graph_key_mapping = _saver.object_graph_key_mapping
"""Returns the variable names in a `tf.train.Checkpoint` file, as a saver matches them."""

SaveableObject = _saveable_object.SaveableObject
"""A value other than a variable that a saver saves: batches kept for the next session call."""

SaveSpec = _saveable_object.SaveSpec
"""One tensor of a `SaveableObject`."""

# ---- Input ------------------------------------------------------------------------------------

data_nest = _data_nest
"""tf.data's nest. It treats a list as a tensor, and `tf.nest` flattens lists."""

GLOBAL_ITERATORS = _iterator_ops.GLOBAL_ITERATORS
"""The graph collection of tf.data iterators. Input checkpoints save their positions."""

IteratorSaveable = _iterator_ops._IteratorSaveable
"""Saves and restores the position of a graph's iterator."""

external_state_policy_to_enum = _experimental_iterator_ops._convert_external_state_policy_to_enum
"""Converts a `CheckpointInputPipelineHook`'s policy to the form that `IteratorSaveable` takes."""

global_step_read = _training_util._get_or_create_global_step_read
"""Returns the op with which all hooks of a session read the global step."""

StockCheckpointInputPipelineHook = getattr(
    _experimental_iterator_ops, "CheckpointInputPipelineHook", None
)
"""Until TensorFlow 2.15: the hook that our hook replaces if a program has created it."""

# ---- Clusters ---------------------------------------------------------------------------------

CoordinatorMode = _coordinator.CoordinatorMode
"""The modes of TensorFlow's distribute coordinator."""

run_distribute_coordinator = _coordinator.run_distribute_coordinator
"""Runs a function in each task of a cluster. `RunConfig(train_distribute=...)` leads to it."""

current_worker_context = _coordinator_context.get_current_worker_context
"""Returns the cluster's task in which such a function runs."""
