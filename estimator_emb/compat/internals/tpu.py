"""Private names of TensorFlow: cores, embedding ops and TPU systems."""

from tensorflow.compiler.tf2xla.python import xla as _xla
from tensorflow.python.distribute import tpu_util as _tpu_util
from tensorflow.python.ops import gen_tpu_ops as _gen_tpu_ops
from tensorflow.python.platform import device_context as _device_context
from tensorflow.python.tpu import tpu as _tpu
from tensorflow.python.tpu import tpu_feed as _tpu_feed
from tensorflow.python.tpu import tpu_function as _tpu_function
from tensorflow.python.tpu import tpu_replication as _tpu_replication
from tensorflow.python.tpu import tpu_strategy_util as _tpu_strategy_util
from tensorflow.python.tpu import tpu_system_metadata as _tpu_system_metadata
from tensorflow.python.tpu.ops import tpu_ops as _tpu_ops

# ---- Cores ------------------------------------------------------------------------------------

gen_tpu_ops = _gen_tpu_ops
"""Ops between cores. They only have a TPU kernel, so an emulated TPU replaces them."""

xla = _xla
"""Has the op for a core's number. An emulated TPU replaces it: its CPU kernel ends the process."""

tpu_util = _tpu_util
"""Has the function that returns a program's TPU context. An emulated TPU replaces it."""

device_context = _device_context
"""Has the same function as `tpu_util`. An emulated TPU replaces it too."""

TPUReplicateContext = _tpu_replication.TPUReplicateContext
"""The context that an emulated TPU tells a program."""

tpu_shard_context = _tpu_function.tpu_shard_context
"""Tells `CrossShardOptimizer` and TPU columns the number of cores that run the model."""

get_tpu_context = _tpu_function.get_tpu_context
"""Returns the number of cores that `tpu_shard_context` has set."""

split_compile_and_replicate = _tpu.split_compile_and_replicate
"""Builds a step as for a TPU, for `preflight`. Its inputs need not come from an infeed."""

# ---- Ops of the hosts -------------------------------------------------------------------------

tpu_ops = _tpu_ops
"""Ops that run on the hosts of a TPU, and the gradient of one of these ops."""

SUPPORTED_INFEED_DTYPES = _tpu_ops._SUPPORTED_INFEED_DTYPES
"""The types of features and labels that can reach a TPU or an emulated TPU."""

PartitionedInfeedQueue = _tpu_feed._PartitionedInfeedQueue
"""For an emulated TPU, checks how a tensor is divided over the cores of a replica."""

# ---- Systems ----------------------------------------------------------------------------------

tpu_system_metadata = _tpu_system_metadata
"""Asks a TPU for its numbers of hosts and cores."""

tpu_strategy_util = _tpu_strategy_util
"""Starts and stops TPU systems. An emulated TPU does not need this."""
