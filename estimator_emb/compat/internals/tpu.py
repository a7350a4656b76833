"""Private names of TensorFlow: cores, embedding ops and TPU systems."""

from tensorflow.compiler.tf2xla.python import xla as _xla
from tensorflow.python.distribute import tpu_util as _tpu_util
from tensorflow.python.framework import kernels as _kernels
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
"""The ops between cores, which an emulated TPU replaces: they have a kernel on a TPU only."""

xla = _xla
"""The number of a core, which an emulated TPU replaces: off a TPU its kernel ends the process."""

tpu_util = _tpu_util
"""Tells a program the context of its TPU, which an emulated one answers as a TPU does."""

device_context = _device_context
"""The same by another name."""

TPUReplicateContext = _tpu_replication.TPUReplicateContext
"""The context that a program is told."""

registered_kernels = _kernels.get_registered_kernels_for_op
"""The kernels of an op: one without any for a CPU fails every session call."""

tpu_shard_context = _tpu_function.tpu_shard_context
"""Tells `CrossShardOptimizer` and TPU columns of how many cores the model is one."""

get_tpu_context = _tpu_function.get_tpu_context
"""The number of cores that `tpu_shard_context` has told."""

split_compile_and_replicate = _tpu.split_compile_and_replicate
"""Builds a step as a TPU gets it, for `preflight`, from inputs that need not be in an infeed."""

# ---- Ops of the hosts -------------------------------------------------------------------------

tpu_ops = _tpu_ops
"""Ops that run on the hosts of a TPU, and the gradient that goes with one of them."""

SUPPORTED_INFEED_DTYPES = _tpu_ops._SUPPORTED_INFEED_DTYPES
"""The types of features and labels that reach a TPU, and so one that is emulated."""

PartitionedInfeedQueue = _tpu_feed._PartitionedInfeedQueue
"""Checks how a tensor is to be divided over the cores of a replica, where a TPU is emulated."""

# ---- Systems ----------------------------------------------------------------------------------

tpu_system_metadata = _tpu_system_metadata
"""Asks a TPU how many hosts and cores it has."""

tpu_strategy_util = _tpu_strategy_util
"""Starts and stops TPU systems, which an emulated TPU need not do."""
