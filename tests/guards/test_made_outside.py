"""Objects made outside of input_fn and model_fn are named in errors, with their lines."""

import re

import harness
import numpy as np
import pytest
import tensorflow as tf

v1 = tf.compat.v1
pytestmark = pytest.mark.usefixtures("installed")
SLOW = [pytest.param(kind, marks=pytest.mark.slow) for kind in ("local", "emulated")]
X = np.ones([4, 3], np.float32)
TABLE = "a lookup table or a random generator"
OWN_GRAPH = (
    "was made outside of input_fn and model_fn, and each call of an estimator has a graph of"
)
DATASET = f"A Dataset {OWN_GRAPH} its own: make it inside of input_fn."
RESOURCE = (
    f"A variable, an iterator, {TABLE} {OWN_GRAPH} its own: make it inside of the function that "
    "uses it."
)
TENSOR = (
    f"A tensor of shape (4, 3) and dtype float32 {OWN_GRAPH} its own: make it inside of the "
    "function that uses it, or use a NumPy array."
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
    "Dataset returned": ("Dataset", lambda one: one, None, DATASET),
    "Dataset mapped": ("Dataset", lambda one: one.map(lambda *batch: batch), None, DATASET),
    "Dataset zipped": (
        "Dataset",
        lambda one: tf.data.Dataset.zip((one, batches())).map(lambda mine, _: mine),
        None,
        DATASET,
    ),
    "iterator": ("iterator", lambda one: one.get_next(), None, RESOURCE),
    "tensor in a Dataset": (
        "tensor",
        lambda one: tf.data.Dataset.from_tensors(({"x": one}, X[:, :1])),
        None,
        TENSOR,
    ),
    "tensor in map": ("tensor", lambda one: of_x(lambda x: x + one)(batches()), None, TENSOR),
    "tensor in model_fn": ("tensor", None, lambda one, x: x + one, TENSOR),
    "variable in map": ("variable", lambda one: of_x(lambda x: x + one)(batches()), None, RESOURCE),
    "variable in model_fn": ("variable", None, lambda one, x: x + one, RESOURCE),
    "table in map": (
        "table",
        lambda one: of_x(lambda x: one.lookup(tf.cast(x, tf.int64)))(batches()),
        None,
        RESOURCE,
    ),
    "table in model_fn": (
        "table",
        None,
        lambda one, x: one.lookup(tf.cast(x, tf.int64)),
        RESOURCE,
    ),
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
def test_objects_made_outside_are_named(kind, use, graph, tmp_path):
    what, read, compute, expected = USES[use]
    if graph:
        with tf.Graph().as_default():
            made = MADE[what]()
    else:
        made = MADE[what]()
    input_fn = (lambda: read(made)) if read else batches
    of_features = (lambda x: compute(made, x)) if compute else (lambda x: x)
    with pytest.raises((ValueError, RuntimeError)) as raised:
        train(kind, tmp_path, input_fn, of_features)
    lines = str(raised.value).splitlines()
    at = next(i for i, line in enumerate(lines) if OWN_GRAPH in line)
    told, places = lines[at], lines[at + 1 :]
    if graph and expected == RESOURCE and told.startswith("A tensor"):
        expected = TENSOR  # The message is about a tensor read in that graph.
        told = re.sub(r"shape \(\d, 3\)", "shape (4, 3)", told)
    assert told == expected
    by = [re.sub(f" {re.escape(__file__)}, line \\d+, in ", " ", line) for line in places]
    # The estimator itself makes the iterator of a returned Dataset.
    is_used = use not in ("Dataset returned", *["Dataset mapped"] * graph)
    expected_places = ["  made"] * graph + ["  used"] * is_used
    assert [line.partition(" by ")[0] for line in by] == expected_places
    assert not [line for line in by if __file__ in line]


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


def test_errors_about_other_graphs_are_unchanged(tmp_path):
    """If model_fn itself mixes two graphs, TensorFlow's error is unchanged."""

    def of_features(x):
        with tf.Graph().as_default():
            other = tf.ones([4, 3])
        return x + other

    said = harness.refusal(ValueError, train, "plain", tmp_path, batches, of_features)
    assert OWN_GRAPH not in said and "must be from the same graph as" in said
