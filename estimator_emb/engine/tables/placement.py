"""Places tables in the memory of the CPU, even if the machine has a GPU.

TensorFlow would place a table on the GPU if it has a kernel for every op that uses it, which
depends on the form of the ids and the optimizer, and copy rows to and fro otherwise. The memory of
the CPU is larger, as on a TPU's host, and the native kernels work there.
"""

import contextlib
from collections.abc import Iterator

import tensorflow as tf

_CPU = "/device:CPU:0"


def beside_gpu() -> bool:
    """Returns whether this process sees a GPU, which the model may use and tables do not."""
    return bool(tf.config.list_physical_devices("GPU"))


@contextlib.contextmanager
def on_cpu() -> Iterator[None]:
    """Enters a context whose variables and ops are on the CPU.

    Without a GPU it changes nothing. It does not choose the process of a cluster. A device function
    of the program, such as `RunConfig.device_fn`, may decide otherwise.
    """
    if not beside_gpu():
        yield
        return
    graph = tf.compat.v1.get_default_graph()
    before = len(graph.get_operations())
    with tf.device(_CPU):
        yield
    for op in graph.get_operations()[before:]:
        # Variables leave the place of their initial values open, or have them follow.
        if not op.device and "_class" not in op.node_def.attr:
            op._set_device(_CPU)
