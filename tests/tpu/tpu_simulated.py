# SPDX-License-Identifier: Apache-2.0
"""A TPU of one host, simulated in this process, for TPUEstimators that are not told of it.

Everything of tensorflow-estimator runs as on a TPU, in an ordinary session: its threads, its
infeed and outfeed, its loop of steps. What a TPU has and this process lacks is replaced: infeed and
outfeed are queues, one for each core, and the cores compute on the CPU.

One core runs the program's own loop. Of several, each session call runs one step: model_fn is built
once, as on a TPU, and `step.cores` copies the step, which it cannot do of a loop.
"""

import contextlib
from unittest import mock

import tensorflow as tf
from tensorflow.python.tpu import tpu_system_metadata
from tensorflow.python.tpu.ops import tpu_ops
from tensorflow_estimator.python.estimator.tpu import tpu_estimator

from estimator_emb.step.cores import Cores

DEPTH = 8
"""Elements that an infeed or outfeed holds: how far the host may run ahead of the TPU."""


def metadata(cores):
    devices = [("/job:localhost/replica:0/task:0/device:CPU:0", "CPU")]
    devices += [(f"/job:localhost/replica:0/task:0/device:TPU:{i}", "TPU") for i in range(cores)]
    return tf.tpu.experimental.TPUSystemMetadata(
        num_cores=cores,
        num_hosts=1,
        num_of_cores_per_host=cores,
        topology=None,
        devices=[tf.config.LogicalDevice(name, kind) for name, kind in devices],
    )


class _TPU:
    def __init__(self, count):
        self.count = count
        self._graph = None

    def _begin(self):
        """The queues of the graph that is being built."""
        with tf.init_scope():
            graph = tf.compat.v1.get_default_graph()
        if graph is not self._graph:
            self._graph = graph
            self.cores = Cores(self.count)
            self._infeeds, self._outfeeds, self._sent = {}, {}, None

    def _queue(self, queues, core, dtypes, shapes):
        with tf.init_scope(), tf.device("/cpu:0"):
            if core not in queues:
                queues[core] = tf.queue.FIFOQueue(DEPTH, dtypes, shapes)
        return queues[core]

    def infeed_enqueue_tuple(self, inputs, shapes, device_ordinal, name=None):
        self._begin()
        dtypes = [one.dtype for one in inputs]
        return self._queue(self._infeeds, device_ordinal, dtypes, shapes).enqueue(inputs)

    def infeed_dequeue_tuple(self, dtypes, shapes, name=None):
        received = []
        for core in range(self.count):
            with _on_cpu():
                values = self._infeeds[core].dequeue()
            received.append(values if isinstance(values, list) else [values])
        for values in received:
            for value, shape in zip(values, shapes, strict=True):
                value.set_shape(shape)
        return [self.cores.per_core(of_cores) for of_cores in zip(*received, strict=True)]

    def outfeed_enqueue_tuple(self, tensors, name=None):
        self._sent = tensors
        shapes = [one.shape for one in tensors]
        queue = self._queue(self._outfeeds, 0, [one.dtype for one in tensors], shapes)
        with _on_cpu():
            return queue.enqueue(tensors)

    def outfeed_dequeue_tuple(self, dtypes, shapes, device_ordinal, name=None):
        received = self._queue(self._outfeeds, device_ordinal, dtypes, shapes).dequeue()
        return received if isinstance(received, list) else [received]

    def split_compile_and_shard(self, computation, inputs, num_shards, **_):
        assert num_shards == self.count
        with contextlib.ExitStack() as stack:
            stack.enter_context(self.cores.running())
            if self.count > 1:
                loop = mock.patch.object(tpu_estimator.training_loop, "while_loop", _once)
                stack.enter_context(loop)
            scope = tf.compat.v1.get_variable_scope()
            before = scope.use_resource
            scope.set_use_resource(True)
            (result,) = computation(inputs[0][0])
            scope.set_use_resource(before)
        if self.count > 1:
            enqueues = []
            for core, *values in zip(
                range(self.count), *self.cores.replicate(self._sent), strict=True
            ):
                if core:
                    shapes = [one.shape for one in values]
                    dtypes = [one.dtype for one in values]
                    queue = self._queue(self._outfeeds, core, dtypes, shapes)
                    enqueues.append(queue.enqueue(values))
            with tf.control_dependencies(enqueues):
                result = tf.identity(result)
        return tf.no_op(), [result]


def _once(condition, body, inputs, **_):
    return body(*inputs)


@contextlib.contextmanager
def _on_cpu():
    with tf.device(None), tf.device("/cpu:0"):
        yield


@contextlib.contextmanager
def running(cores, monkeypatch):
    """What runs within finds a TPU of as many cores."""
    tpu = _TPU(cores)
    with monkeypatch.context() as patch:
        for name in (
            "infeed_enqueue_tuple",
            "infeed_dequeue_tuple",
            "outfeed_enqueue_tuple",
            "outfeed_dequeue_tuple",
        ):
            patch.setattr(tpu_ops, name, getattr(tpu, name))
        patch.setattr(tpu_estimator.tpu, "split_compile_and_shard", tpu.split_compile_and_shard)
        patch.setattr(
            tpu_system_metadata, "_query_tpu_system_metadata", lambda *_, **__: metadata(cores)
        )
        for name in ("initialize_system", "shutdown_system"):
            patch.setattr(tf.compat.v1.tpu, name, lambda **_: tf.no_op())
        patch.setenv("TF_TPU_GRACEFUL_SHUTDOWN_MODE", "")
        yield
