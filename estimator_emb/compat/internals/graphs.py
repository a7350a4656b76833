"""Private names of TensorFlow: graphs, variables, savers, input, and how a cluster is run."""

from tensorflow.python.autograph.impl import api as _autograph
from tensorflow.python.data.experimental.ops import iterator_ops as _experimental_iterator_ops
from tensorflow.python.data.ops import iterator_ops as _iterator_ops
from tensorflow.python.data.util import nest as _data_nest
from tensorflow.python.distribute import distribute_coordinator as _coordinator
from tensorflow.python.distribute import distribute_coordinator_context as _coordinator_context
from tensorflow.python.distribute import multi_worker_util as _multi_worker_util
from tensorflow.python.eager import context as _context
from tensorflow.python.eager import record as _record
from tensorflow.python.framework import function_def_to_graph as _function_def_to_graph
from tensorflow.python.framework import none_tensor as _none_tensor
from tensorflow.python.framework import ops as _ops
from tensorflow.python.ops import cond_v2 as _cond_v2
from tensorflow.python.ops import control_flow_util as _control_flow_util
from tensorflow.python.ops import control_flow_v2_func_graphs as _control_flow_v2_func_graphs
from tensorflow.python.ops import custom_gradient as _custom_gradient
from tensorflow.python.ops import gen_random_ops as _gen_random_ops
from tensorflow.python.ops import summary_ops_v2 as _summary_ops
from tensorflow.python.ops import variable_scope as _variable_scope
from tensorflow.python.ops import while_v2 as _while_v2
from tensorflow.python.training import saver as _saver
from tensorflow.python.training import training_util as _training_util
from tensorflow.python.training.saving import saveable_object as _saveable_object
from tensorflow.python.util import function_utils as _function_utils
from tensorflow.python.util import tf_export as _tf_export

# ---- Graphs and functions ---------------------------------------------------------------------

colocate_with = _ops.colocate_with
"""Puts ops beside a tensor or variable; `tf.compat.v1.colocate_with` warns at every call."""

gradient_registry = _ops.gradient_registry
"""Holds the function of each `tf.custom_gradient`, and with it its graph, until it is taken out."""

custom_gradient = _custom_gradient
"""Finds by `get_variable_by_name` the variables of what `tf.recompute_grad` computes again."""

eager_mode = _context.eager_mode
"""Executes eagerly inside, where XLA's module of a function can be had, also in TF1 programs."""

could_possibly_record = _record.could_possibly_record
"""Whether a GradientTape is open: it must see how an activation depends on the helper variable."""

control_flow_util = _control_flow_util
"""Says by `GraphOrParentsInXlaContext` whether loops and branches are made in XLA's form."""

gen_random_ops = _gen_random_ops
"""Makes the stateful random ops, in whose place PJRT devices get stateless ones."""

LoopGraph = _control_flow_v2_func_graphs.WhileBodyFuncGraph
"""The graph of a loop's body, whose first argument is the number of the turn."""

output_context = _control_flow_util.GetOutputContext
"""The loop or branch of the v1 kind that the tensors of an op can be read in; None for outside."""

BranchGradientGraph = _cond_v2._CondGradFuncGraph
"""The graph of the gradient of a branch, which keeps that of the branch."""

LoopGradientGraph = _while_v2._WhileBodyGradFuncGraph
"""The graph of the gradient of a loop's body, which keeps that of the body."""

function_def_to_graph = _function_def_to_graph.function_def_to_graph
"""The graph of a function of TensorFlow 1's kind, which keeps none; `preflight` looks into it."""

fn_args = _function_utils.fn_args
"""The arguments of a program's function, through partials and methods, as Estimators tell them."""

has_kwargs = _function_utils.has_kwargs
"""Whether a program's function takes any argument, as Estimators tell it."""

not_converted = _autograph.autograph_artifact
"""Keeps AutoGraph, in a `tf.function`, from rewriting a function and all that it calls.

`tf.autograph.experimental.do_not_convert` would add a frame to tracebacks, and keep AutoGraph from
what the program gives to `Dataset.map` too."""

summary_writer_initializers = _summary_ops.summary_writer_initializer_op
"""The ops that create a graph's summary writers, which tensorflow-estimator's hooks run first."""

tf_export = _tf_export
"""The registry of API names: `tensorflow-estimator` needs the one that TensorFlow 2.16 dropped."""

# ---- Variables --------------------------------------------------------------------------------

default_variable_store = _variable_scope._get_default_variable_store
"""What `get_variable` has made in a graph: names that tables must not take again."""

PartitionInfo = _variable_scope._PartitionInfo
"""What an initializer with the argument `partition_info` is told of its part of a table."""

# ---- Savers -----------------------------------------------------------------------------------

BulkSaverBuilder = _saver.BulkSaverBuilder
"""What savers write and read files with; ours divides large tables over several files."""

object_graph_key_mapping = _saver.object_graph_key_mapping
"""The names of the variables in a checkpoint of `tf.train.Checkpoint`, as a saver matches them."""

SaveableObject = _saveable_object.SaveableObject
"""What else than variables a saver saves: batches that one session call leaves for the next."""

SaveSpec = _saveable_object.SaveSpec
"""One tensor of a `SaveableObject`."""

# ---- Input ------------------------------------------------------------------------------------

data_nest = _data_nest
"""Structures as tf.data sees them, in which a list is a tensor; `tf.nest` takes lists apart."""

GLOBAL_ITERATORS = _iterator_ops.GLOBAL_ITERATORS
"""The graph collection of tf.data iterators, whose positions are saved."""

IteratorSaveable = _iterator_ops._IteratorSaveable
"""Saves and restores the position of an iterator of a graph."""

NoneTensorSpec = _none_tensor.NoneTensorSpec
"""What a dataset says of a None in its elements: labels that are not there, for `preflight`."""

external_state_policy_to_enum = _experimental_iterator_ops._convert_external_state_policy_to_enum
"""The policy of a `CheckpointInputPipelineHook` as `IteratorSaveable` takes it."""

global_step_read = _training_util._get_or_create_global_step_read
"""The global step as the hooks of a session read it: one op for all of them."""

StockCheckpointInputPipelineHook = getattr(
    _experimental_iterator_ops, "CheckpointInputPipelineHook", None
)
"""Until TensorFlow 2.15: the hook that ours takes the place of, where a program has made one."""

# ---- Clusters ---------------------------------------------------------------------------------

CoordinatorMode = _coordinator.CoordinatorMode
"""The ways in which TensorFlow's distribute coordinator runs."""

run_distribute_coordinator = _coordinator.run_distribute_coordinator
"""Runs a function in each task of a cluster; what `RunConfig(train_distribute=...)` leads to."""

current_worker_context = _coordinator_context.get_current_worker_context
"""The task of the cluster in which such a function runs."""

normalize_cluster_spec = _multi_worker_util.normalize_cluster_spec
"""A cluster in whatever form it is given, as a `ClusterSpec`."""
