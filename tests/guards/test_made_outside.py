"""Errors about objects made outside of input_fn and model_fn say what to do."""

import re

import harness
import numpy as np
import pytest
import tensorflow as tf

v1 = tf.compat.v1
pytestmark = pytest.mark.usefixtures("installed")
SLOW = [pytest.param(kind, marks=pytest.mark.slow) for kind in ("local", "emulated")]
X = np.ones([4, 3], np.float32)
OWN_GRAPH = (
    "Each call of an estimator has a graph of its own: make Datasets, tensors, variables and "
    "lookup tables inside of the input_fn or model_fn that uses them, or use NumPy arrays."
)


def batches():
    return tf.data.Dataset.from_tensors(({"x": X}, X[:, :1])).repeat()


def looked_up():
    keys = tf.constant([1, 2], tf.int64)
    values = tf.constant([1.0, 2.0])
    initializer = tf.lookup.KeyValueTensorInitializer(keys, values)
    return v1.lookup.StaticHashTable(initializer, 0.0)


def of_x(function):
    """Returns a function that applies `function` to x in a dataset's batches."""
    return lambda dataset: dataset.map(lambda batch, labels: ({"x": function(batch["x"])}, labels))


MADE = {
    "Dataset": batches,
    "tensor": lambda: tf.constant(X),
    "variable": lambda: tf.Variable(X[:1]),
    "table": looked_up,
    "iterator": lambda: v1.data.make_one_shot_iterator(batches()),
}
"""Makers of objects outside of input_fn and model_fn."""
USES = {
    "Dataset returned": ("Dataset", lambda one: one, None),
    "Dataset mapped": ("Dataset", lambda one: one.map(lambda *batch: batch), None),
    "iterator": ("iterator", lambda one: one.get_next(), None),
    "tensor in a Dataset": (
        "tensor",
        lambda one: tf.data.Dataset.from_tensors(({"x": one}, X[:, :1])),
        None,
    ),
    "tensor in map": ("tensor", lambda one: of_x(lambda x: x + one)(batches()), None),
    "tensor in model_fn": ("tensor", None, lambda one, x: x + one),
    "variable in map": ("variable", lambda one: of_x(lambda x: x + one)(batches()), None),
    "variable in model_fn": ("variable", None, lambda one, x: x + one),
    "table in map": (
        "table",
        lambda one: of_x(lambda x: one.lookup(tf.cast(x, tf.int64)))(batches()),
        None,
    ),
    "table in model_fn": ("table", None, lambda one, x: one.lookup(tf.cast(x, tf.int64))),
}


def train(kind, model_dir, input_fn, of_features=lambda x: x):
    def model(features, labels, mode, spec):
        w = v1.get_variable("w", [3, 1])
        loss = tf.reduce_mean(tf.square(of_features(features["x"]) @ w - labels))
        optimizer = v1.train.GradientDescentOptimizer(0.1)
        train_op = optimizer.minimize(loss, v1.train.get_global_step())
        return spec(mode, loss=loss, train_op=train_op)

    estimator = harness.of_kind(kind, model, model_dir)
    estimator.train(lambda params=None: input_fn(), max_steps=1)


@pytest.mark.fast(9)
@pytest.mark.parametrize("graph", [False, True], ids=["eager", "graph"])
@pytest.mark.parametrize("use", USES)
@pytest.mark.parametrize("kind", ["plain", *SLOW])
def test_errors_about_objects_made_outside_say_what_to_do(kind, use, graph, tmp_path):
    what, read, compute = USES[use]
    if graph:
        with tf.Graph().as_default():
            made = MADE[what]()
    else:
        made = MADE[what]()
    input_fn = (lambda: read(made)) if read else batches
    of_features = (lambda x: compute(made, x)) if compute else (lambda x: x)
    with pytest.raises((ValueError, RuntimeError)) as raised:
        train(kind, tmp_path, input_fn, of_features)
    assert str(raised.value).splitlines()[-1] == OWN_GRAPH


@pytest.mark.parametrize("kind", ["plain", *SLOW])
def test_datasets_and_iterators_in_the_wrong_place_are_refused(kind, tmp_path):
    text = (
        "input_fn must be a function that returns a Dataset, or features and labels; got a "
        "Dataset. Give the function itself, and make the Dataset inside of it."
    )
    estimator = harness.of_kind(kind, lambda features, labels, mode, spec: None, tmp_path)
    assert harness.refusal(TypeError, estimator.train, batches(), max_steps=1) == text
    given = batches().__iter__()
    said = harness.refusal(TypeError, train, kind, tmp_path, lambda: given)
    said = re.sub(r"^input_fn \(.*?\) must", "input_fn must", said)
    assert said == (
        "input_fn must return a Dataset, or features and labels; it returned an iterator, "
        "OwnedIterator. Return the Dataset, or what get_next() returns."
    )


@pytest.mark.parametrize("kind", ["plain", *SLOW])
def test_iterating_a_dataset_in_a_graph_gets_advice(kind, tmp_path):
    said = harness.refusal(RuntimeError, train, kind, tmp_path, lambda: next(iter(batches())))
    assert said.splitlines()[1:] == [
        "In an estimator, input_fn returns the Dataset itself. What else reads one there uses "
        "tf.compat.v1.data.make_one_shot_iterator(dataset).get_next()."
    ]
