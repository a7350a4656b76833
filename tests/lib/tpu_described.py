"""Builds the graphs that TPUEstimators would run on a TPU, without a TPU.

Querying the TPU's metadata returns our description of a TPU. The call that would open a session is
replaced: it keeps its arguments and stops.
"""

import contextlib
import dataclasses
from typing import Any
from unittest import mock

import harness
import tensorflow as tf
from tensorflow.python.client import session as session_lib
from tensorflow.python.tpu import tpu_system_metadata
from tensorflow.python.training import evaluation, training

import estimator_emb as ee
import feature_columns as fc

NO_ESTIMATOR = (
    "no TPUEstimator runs by TensorFlow on TPUs v5e, v5p and v6e: their only runtime is PJRT, and "
    "TPUEstimator stands on the infeed and outfeed of TensorFlow's older one, without which "
    "TensorFlow says 'No TPU platform registered'. Ways round: run the model there by jax and "
    "train the tables on the host, with TPUConfig(device='pjrt'), which nobody has tried on a TPU; "
    "or train on the host, without the TPU, with TPUConfig(device='emulate'); or rewrite the "
    "program for TensorFlow 2, where TPUEmbeddingV2 of tf.tpu.experimental.embedding drives "
    "SparseCore: estimator_emb.embedding.to_tensorflow translates tables and features."
)
CORES_PER_HOST = 2
MASTER = "grpc://described"
POSITION = 4


def sparse(batch, dtype=tf.int64):
    places, shape = tf.constant([[0, 0], [0, 1], [2, 0]], tf.int64), [batch, POSITION]
    return tf.SparseTensor(places, tf.cast([3, 0, 5], dtype), tf.constant(shape, tf.int64))


def sparse_of(values, dtype=tf.int64):
    """Returns a function of the batch size that gives the same values to every sample."""

    def of(batch):
        places = [[sample, place] for sample in range(batch) for place in range(len(values))]
        ids = tf.constant(list(values) * batch, dtype)
        return tf.SparseTensor(places, ids, [batch, len(values)])

    return of


def model_fn_of(tpu_columns, keys=()):
    """Returns a linear model of columns, or of features given by key."""

    def model_fn(features, labels, mode, params):
        assert params["use_tpu"] is True
        if tpu_columns:
            flat = fc.DenseFeatures([*tpu_columns[:2], fc.numeric_column("age")])(features)
            sequence, lengths = fc.SequenceFeatures(tpu_columns[2:])(features)
            inputs = [flat, tf.reduce_sum(sequence, 1), tf.cast(lengths, tf.float32)[:, None]]
        else:
            inputs = [tf.reshape(features[key], [labels.shape[0], -1]) for key in keys]
        kernel = tf.compat.v1.get_variable("kernel", [tf.concat(inputs, 1).shape[1], 1])
        output = tf.matmul(tf.concat(inputs, 1), kernel)[:, 0]
        loss = tf.reduce_mean(tf.square(output - labels))
        metrics = (lambda output: {"mean": tf.compat.v1.metrics.mean(output)}, [output])
        optimizer = tf.compat.v1.train.AdagradOptimizer(0.1)
        return harness.minimized(mode, loss, optimizer=optimizer, eval_metrics=metrics)

    return model_fn


@dataclasses.dataclass
class Program:
    """A small program, parts of which a test case replaces.

    Attributes:
      spec: its EmbeddingConfigSpec, or None.
      features: {key: function of the batch size}, in addition to 'x'.
      loss: function of the loss and of features.
      fields: function of the loss; returns fields of the TPUEstimatorSpec.
      returns: function of the TPUEstimatorSpec.
      tpu: arguments of its TPUConfig.
      arguments: of its TPUEstimator.
      replicas: number of cores, or None for a program that runs off a TPU.
      static: whether batches have a static size.
      as_tensors: whether input_fn gives tensors instead of a dataset.
      given: (features, labels) -> the result of input_fn.
    """

    spec: ee.EmbeddingConfigSpec | None = None
    features: dict[str, Any] = dataclasses.field(default_factory=dict)
    loss: Any = lambda loss, features: loss
    fields: Any = lambda loss: {}
    returns: Any = lambda made: made
    tpu: dict[str, Any] = dataclasses.field(default_factory=dict)
    arguments: dict[str, Any] = dataclasses.field(default_factory=dict)
    replicas: int | None = CORES_PER_HOST
    static: bool = True
    as_tensors: bool = False
    given: Any = lambda features, labels: (features, labels)

    def batch(self, size):
        """Returns the features and labels of a batch."""
        features = {"x": tf.ones([size, 3]), **{key: of(size) for key, of in self.features.items()}}
        if not self.static:
            features["x"] = tf.compat.v1.placeholder_with_default(features["x"], [None, 3])
        return self.given(features, tf.ones([size, 1]))

    def input_fn(self, params):
        dataset = tf.data.Dataset.range(100).map(lambda _: self.batch(params["batch_size"]))
        if self.as_tensors:
            return tf.compat.v1.data.make_one_shot_iterator(dataset).get_next()
        return dataset

    def emulated(self, model_dir):
        """Returns its estimator on an emulated TPU, or off a TPU."""
        program = self.model_fn, self.spec, model_dir, 4 * CORES_PER_HOST
        tpu = {"iterations_per_loop": 2, **self.tpu}
        return harness.estimator(
            *program, num_shards=self.replicas, run=harness.SILENT, tpu=tpu, **self.arguments
        )

    def described(self, model_dir):
        """Returns its estimator on the described TPU."""
        topology = None
        if self.tpu.get("num_cores_per_replica"):
            topology = tf.tpu.experimental.Topology(
                mesh_shape=[1, 1, 1, 2], device_coordinates=[[[0, 0, 0, 0], [0, 0, 0, 1]]]
            )
        given = {"topology": topology, "tpu_config": ee.TPUConfig(2, **self.tpu), **self.arguments}
        made = estimator(self.model_fn, self.spec, model_dir, **given)
        made._directory.to_read = lambda *_: None
        return made

    def model_fn(self, features, labels, mode, params):
        read = [features["x"]]
        if self.spec and self.spec.feature_columns:
            read.append(fc.DenseFeatures(self.spec.feature_columns)(features))
        elif self.spec:
            read += [features[key] for key in sorted(self.spec.feature_to_config_dict)]
        w = tf.compat.v1.get_variable("w", initializer=1.0)
        loss = self.loss(tf.add_n([tf.reduce_sum(part) for part in read]) * w, features)
        fields = {"loss": loss, "predictions": {"x": features["x"] * w}, **self.fields(loss)}
        return self.returns(harness.minimized(mode, rate=0.1, **fields))


def metadata(hosts, topology=None):
    """Returns the system metadata of `hosts` TPU workers with two cores each."""
    devices = []
    for host in range(hosts):
        task = f"/job:tpu_worker/replica:0/task:{host}"
        devices.append((f"{task}/device:CPU:0", "CPU"))
        devices += [(f"{task}/device:TPU:{core}", "TPU") for core in range(CORES_PER_HOST)]
        devices.append((f"{task}/device:TPU_SYSTEM:0", "TPU_SYSTEM"))
    devices = tuple(session_lib._DeviceAttributes(name, kind, 0, 0) for name, kind in devices)
    counts = {"num_cores": hosts * CORES_PER_HOST, "num_of_cores_per_host": CORES_PER_HOST}
    described = {"num_hosts": hosts, "topology": topology, "devices": devices, **counts}
    return tf.tpu.experimental.TPUSystemMetadata(**described)


def per_core_input(**kwargs):
    """Returns a TPUConfig in which input_fn gives per-core batches on every host."""
    per_core = ee.InputPipelineConfig.PER_HOST_V2
    return ee.TPUConfig(iterations_per_loop=5, per_host_input_for_training=per_core, **kwargs)


def estimator(
    model_fn, spec, model_dir, hosts=1, topology=None, tpu_config=None, batch=None, **kwargs
):
    """Returns a TPUEstimator with `use_tpu=True` on a described TPU. Default batch: 4 per core."""
    batch = batch or 4 * CORES_PER_HOST * hosts
    saves = {"model_dir": str(model_dir), "save_checkpoints_steps": 10}
    config = ee.RunConfig(tpu_config or per_core_input(), master=MASTER, **saves)
    made = harness.configured(model_fn, spec, config, batch, use_tpu=True, **kwargs)
    made.described = metadata(hosts, topology)
    return made


@dataclasses.dataclass
class Reached:
    """Arguments of the session that was not opened."""

    graph: tf.Graph
    hooks: list[Any]
    chief_hooks: list[Any]
    fetches: Any
    scaffold: Any

    def ops(self, part):
        """Returns ops with `part` in their type, in the order of their creation."""
        return [op for op in self.graph.get_operations() if part in op.type]

    def hook(self, name):
        """Returns the only hook with this class name, among all hooks."""
        (found,) = [one for one in (*self.hooks, *self.chief_hooks) if type(one).__name__ == name]
        return found


class _Stop(Exception):
    pass


@contextlib.contextmanager
def _stopped_at(target, name, made, found):
    def stop(*args, **kwargs):
        found.update(kwargs, graph=tf.compat.v1.get_default_graph())
        raise _Stop

    query = "_query_tpu_system_metadata"
    described = mock.patch.object(tpu_system_metadata, query, lambda *_, **__: made.described)
    with mock.patch.object(target, name, stop), described, contextlib.suppress(_Stop):
        yield


def train(made, input_fn, **kwargs):
    """Trains until a session would open."""
    found = {}
    with _stopped_at(training, "MonitoredTrainingSession", made, found):
        made.train(input_fn, **{"max_steps": 20, **kwargs})
    (train_op,) = found["graph"].get_collection("_tpu_train_op")
    hooks, chief_hooks = list(found["hooks"]), list(found["chief_only_hooks"])
    return Reached(found["graph"], hooks, chief_hooks, train_op, found["scaffold"])


def evaluate(made, input_fn, **kwargs):
    """Evaluates until a session would open."""
    found = {}
    with _stopped_at(evaluation, "_evaluate_once", made, found):
        made.evaluate(input_fn, **{"steps": 2, **kwargs})
    return Reached(found["graph"], list(found["hooks"]), [], found["eval_ops"], found["scaffold"])
