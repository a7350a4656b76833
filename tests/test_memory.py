"""Graphs are freed after each call, so programs that train many times do not grow."""

import ctypes
import gc
import resource
import weakref

import harness
import numpy as np
import processes
import pytest
import sampling
import tensorflow as tf
from tensorflow.python.framework import ops as tf_ops

import estimator_emb as ee
import feature_columns as fc
from estimator_emb import preflight

PROGRAMS = {
    "host": {},
    "native kernels": {},
    "own custom gradient": {"own": True},
    "pipelined": {"pipelined": True},
    "one core": {"cores": 1},
    "eight cores": {"cores": 8},
    "eight cores, pipelined": {"cores": 8, "pipelined": True},
    "host, no tables": {"tables": False},
    "eight cores, no tables": {"cores": 8, "tables": False},
}
"""Name -> arguments of `estimator`."""


@pytest.fixture
def graphs_must_be_freed(monkeypatch):
    """Returns a list that gets each graph. At the end, all graphs and gradients must be gone."""
    tf.keras.backend.clear_session()  # Creates the graph that Keras keeps.
    gc.freeze()  # Collections do not visit the objects of earlier tests.
    monkeypatch.setattr(tf.Graph, "__init__", tf.Graph.__init__)
    before, made = len(tf_ops.gradient_registry.list()), made_from_here()
    yield made
    assert len(made) > 0 and number_alive(made) == 0
    # An earlier test's gradients may be gone by now.
    assert len(tf_ops.gradient_registry.list()) <= before


def made_from_here():
    """Returns a list that gets a weak reference to each graph created from now on."""
    made = []
    original = tf.Graph.__init__

    def init(self, *args, **kwargs):
        original(self, *args, **kwargs)
        made.append(weakref.ref(self))

    tf.Graph.__init__ = init
    return made


def number_alive(graphs):
    for _ in range(3):  # Finalizers and suspended generators delay objects by a collection.
        gc.collect()
    return sum(graph() is not None for graph in graphs)


@tf.custom_gradient
def doubled(x):
    return 2 * x, lambda upstream: 2 * upstream


def estimator(model_dir, cores=None, tables=True, pipelined=False, own=False):
    categorical = tf.feature_column.categorical_column_with_identity("x", 50)
    column = (fc if tables else tf.feature_column).embedding_column(categorical, 4)
    spec = None
    if tables:
        way = {"pipeline_execution_with_tensor_core": pipelined}
        spec = ee.EmbeddingConfigSpec([column], ee.AdagradParameters(0.1), **way)

    def model_fn(features, labels, mode, params):
        found = tf.compat.v1.feature_column.input_layer(features, [column])
        output = tf.compat.v1.layers.dense(doubled(found) if own else found, 1)
        if mode == ee.ModeKeys.PREDICT:
            return ee.TPUEstimatorSpec(mode, predictions={"output": output})
        loss = tf.reduce_mean((output - labels) ** 2)
        return harness.minimized(mode, loss, optimizer=tf.compat.v1.train.AdagradOptimizer(0.1))

    run = {"tf_random_seed": 1}
    return harness.estimator(model_fn, spec, model_dir, 8, num_shards=cores, run=run)


def input_fn_of(first_id=0):
    def input_fn(params):
        size = params["batch_size"]
        ids = np.arange(first_id, first_id + size, dtype=np.int64)[:, None]
        batch = {"x": ids}, np.ones([size, 1], np.float32)
        return tf.data.Dataset.from_tensors(batch).repeat(10)

    return input_fn


def make_every_call(one, input_fn, receiver, folder):
    one.train(input_fn, steps=2)
    one.train(input_fn, steps=1)
    one.evaluate(input_fn, steps=1)
    next(one.predict(input_fn))
    one.export_saved_model(str(folder / "export"), receiver)


@pytest.mark.slow
@pytest.mark.sampled(4)
@pytest.mark.parametrize("program", PROGRAMS)
def test_graphs_are_freed_after_each_call(program, graphs_must_be_freed, tmp_path, request):
    if program == "native kernels":
        request.getfixturevalue("native")
    receiver = harness.receiver_of(x=(tf.int64, [None, 1]))
    make_every_call(estimator(tmp_path, **PROGRAMS[program]), input_fn_of(), receiver, tmp_path)
    assert len(graphs_must_be_freed) >= 5  # At least one for each call.


@pytest.mark.slow
def test_canned_estimators_free_their_graphs(graphs_must_be_freed, tmp_path, installed):
    """Stock leaks each graph, because the model has a custom gradient."""
    columns = [tf.feature_column.numeric_column("x")]
    one = tf.estimator.DNNClassifier([3], columns, model_dir=str(tmp_path))

    def input_fn():
        x = np.ones([4, 1], np.float32)
        return tf.data.Dataset.from_tensors(({"x": x}, np.ones([4, 1], np.int64))).repeat(10)

    make_every_call(one, input_fn, harness.receiver_of(x=(tf.float32, [None, 1])), tmp_path)


@pytest.mark.slow
def test_check_program_frees_its_graphs(graphs_must_be_freed, tmp_path):
    preflight.check_program(estimator(tmp_path, cores=8, own=True), input_fn_of())


@pytest.mark.slow
@pytest.mark.parametrize("fault", ["a bad id", "model_fn"])
def test_failed_trainings_free_their_graphs(fault, tmp_path, caplog, monkeypatch):
    caplog.set_level("CRITICAL", "tensorflow")  # Log records would keep errors alive.

    def model_fn(features, labels, mode, params):
        tf.gradients(doubled(features["x"]), [features["x"]])
        raise ArithmeticError("the program's own")

    monkeypatch.setattr(tf.Graph, "__init__", tf.Graph.__init__)
    made = made_from_here()
    spec = harness.table_spec(50, 4, ee.AdagradParameters(0.1), combiner="mean")
    for number in range(6):
        folder = tmp_path / str(number)
        one = estimator(folder)
        if fault == "model_fn":
            one = harness.estimator(model_fn, spec, folder, batch_size=8)
        with pytest.raises((tf.errors.InvalidArgumentError, ArithmeticError)):
            one.train(input_fn_of(first_id=45), steps=2)  # Ids 45 to 52 of 50 rows.
        del one
    # The last tracebacks keep their graphs alive, also in stock tensorflow-estimator: at most
    # those of 2 trainings. A leak would keep the graphs of all 6.
    assert number_alive(made) <= len(made) * 2 // 6


def test_a_custom_gradient_works_until_its_graph_ends(graphs_must_be_freed, tmp_path):
    """A hook or a scaffold may ask for gradients after model_fn, as in stock."""
    taken = []

    class AtEnd(tf.compat.v1.train.SessionRunHook):
        def begin(self):
            x = tf.compat.v1.get_default_graph().get_tensor_by_name("doubled_in:0")
            y = tf.compat.v1.get_default_graph().get_tensor_by_name("doubled_out:0")
            self.gradient = tf.gradients(y, x)[0]

        def end(self, session):
            taken.append(session.run(self.gradient).tolist())

    def model_fn(features, labels, mode, params):
        x = tf.constant([1.0, 3.0], name="doubled_in")
        tf.identity(doubled(x), name="doubled_out")
        loss = tf.reduce_sum(features["x"])
        train_op = tf.compat.v1.train.get_global_step().assign_add(1)
        return ee.TPUEstimatorSpec(mode, loss=tf.cast(loss, tf.float32), train_op=train_op)

    one = harness.estimator(model_fn, None, tmp_path, batch_size=8)
    one.train(input_fn_of(), steps=1, hooks=[AtEnd()])
    assert taken == [[2.0, 2.0]]  # The gradient of `doubled`.


def train_again_and_again(program, folder, trainings):
    """Trains repeatedly, prints memory (MB) after every five trainings, fails if a graph stays."""
    made = made_from_here()
    for number in range(int(trainings)):
        estimator(f"{folder}/{number}", **PROGRAMS[program]).train(input_fn_of(), steps=2)
        if number % 5 == 4:
            assert number_alive(made) == 0
            ctypes.CDLL(None).malloc_trim(0)  # Returns freed memory to the system.
            with open("/proc/self/statm") as file:
                print(int(file.read().split()[1]) * resource.getpagesize() / 2**20)


@pytest.mark.slow
@pytest.mark.sampled(1)
@pytest.mark.parametrize(
    "program, kernels, trainings",
    [
        ("host", "native", 100),
        ("host", "TensorFlow's ops", 60),
        ("eight cores", "native", 40),
        ("eight cores", "TensorFlow's ops", 40),
    ],
)
def test_memory_stays_flat_over_many_trainings(program, kernels, trainings, request, tmp_path):
    """Runs in its own process: after other tests, a process's memory varies by itself."""
    if kernels == "native":
        request.getfixturevalue("native")
    trainings = sampling.of(trainings, some=40)
    code = "import sys, test_memory; test_memory.train_again_and_again(*sys.argv[1:])"
    ran = processes.run(code, program, tmp_path, trainings)
    sizes = [float(line) for line in ran.stdout.split()]  # In MB, after every five trainings.
    assert len(sizes) == trainings // 5
    # The second half of the trainings needs no more memory than the second quarter. The first
    # trainings fill TensorFlow's caches. A leaked graph takes a megabyte or more.
    half = len(sizes) // 2
    assert max(sizes[half:]) - max(sizes[half // 2 : half]) < 10, sizes
