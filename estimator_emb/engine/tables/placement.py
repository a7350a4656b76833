"""Places tables in the memory of the CPU, even if the machine has a GPU.

Otherwise TensorFlow would place a table on the GPU if the GPU has a kernel for every op that uses
the table, which depends on the optimizer and the form of the ids. Without these kernels, it would
copy rows back and forth. The CPU has more memory, as on a TPU's host. Native kernels run there.
"""

import contextlib
from collections.abc import Iterator

import tensorflow as tf

_CPU = "/device:CPU:0"


def beside_gpu() -> bool:
    """Returns whether this process sees a GPU. The model may use it, but tables do not."""
    return bool(tf.config.list_physical_devices("GPU"))


@contextlib.contextmanager
def on_cpu() -> Iterator[None]:
    """Enters a context that places variables and ops on the CPU.

    Without a GPU, it is a no-op. In a cluster, it does not choose the process. A device function of
    the program, such as `RunConfig.device_fn`, may decide otherwise.
    """
    if not beside_gpu():
        yield
        return
    graph = tf.compat.v1.get_default_graph()
    before = len(graph.get_operations())
    with tf.device(_CPU):
        yield
    for op in graph.get_operations()[before:]:
        # Ops of initial values have no device yet, or follow their variable (`_class`).
        if not op.device and "_class" not in op.node_def.attr:
            op._set_device(_CPU)
