"""TensorFlow's errors about common mistakes say what to do."""

import contextlib
from functools import partial

import harness
import numpy as np
import pytest
import tensorflow as tf
from small_programs import SLOW, X, build_graph, input_fn, linear, make

v1 = tf.compat.v1
pytestmark = pytest.mark.usefixtures("installed")
OWN_GRAPH = "Each call of an estimator has a graph of its own: make Datasets, tensors, variables"


def lookup_table():
    keys, values = tf.constant([1, 2], tf.int64), tf.constant([1.0, 2.0])
    return v1.lookup.StaticHashTable(tf.lookup.KeyValueTensorInitializer(keys, values), 0.0)


def looked_up(table, x):
    return table.lookup(tf.cast(x, tf.int64))


def mapped(function):
    return input_fn().map(lambda batch, labels: ({"x": function(batch["x"])}, labels))


tensor, once = partial(tf.constant, X), v1.data.make_one_shot_iterator
OUTSIDE = {
    "Dataset": (input_fn, lambda made: made, None),
    "iterator": (lambda: once(input_fn()), lambda made: made.get_next(), None),
    "tensor of input_fn": (tensor, lambda made: mapped(lambda x: x + made), None),
    "variable": (lambda: tf.Variable(X[:1]), lambda made: mapped(lambda x: x + made), None),
    "table of input_fn": (lookup_table, lambda made: mapped(partial(looked_up, made)), None),
    "tensor of model_fn": (tensor, None, lambda made, x: x + made),
    "table of model_fn": (lookup_table, None, looked_up),
}
"""What is made outside -> (how to make it, how input_fn uses it, how model_fn uses it)."""


@pytest.mark.fast(7)
@pytest.mark.parametrize("graph", [False, True], ids=["eager", "graph"])
@pytest.mark.parametrize("what", OUTSIDE)
@pytest.mark.parametrize("kind", ["plain", *SLOW])
def test_errors_about_objects_made_outside_say_what_to_do(kind, what, graph, tmp_path):
    make_outside, read, compute = OUTSIDE[what]
    with tf.Graph().as_default() if graph else contextlib.nullcontext():
        made = make_outside()

    def build(x, labels):
        return linear(compute(made, x) if compute else x, labels)

    def given(params=None):
        return read(made) if read else input_fn()

    with pytest.raises((ValueError, RuntimeError)) as raised:
        make(kind, tmp_path, build).train(given, max_steps=1)
    assert str(raised.value).splitlines()[-1].startswith(OWN_GRAPH)  # After TensorFlow's text.


@pytest.mark.parametrize("kind", ["plain", *SLOW])
def test_datasets_in_the_wrong_place_are_refused(kind, tmp_path):
    train = make(kind, tmp_path, linear).train
    said = harness.refusal(TypeError, train, input_fn(), max_steps=1)
    assert said.startswith("input_fn must be a function that returns a Dataset")
    iterated = lambda params=None: next(iter(input_fn()))  # noqa: E731
    said = harness.refusal(RuntimeError, train, iterated, max_steps=1)
    assert "\nIn an estimator, input_fn returns the Dataset itself." in said


def test_a_loss_per_sample_of_a_batch_of_unknown_size_gets_advice(tmp_path):
    def build(x, labels):
        return (x @ v1.get_variable("w", [3, 1]) - labels) ** 2

    with pytest.raises(tf.errors.InvalidArgumentError) as raised:
        make("plain", tmp_path, build).train(lambda: input_fn().unbatch().batch(4), max_steps=1)
    assert "give the EstimatorSpec one number: tf.reduce_mean(loss)." in str(raised.value)


def with_tape(loss, variables):
    with tf.GradientTape() as tape:
        pass  # The tape has no gradients, because the loss exists already.
    return tf.keras.optimizers.legacy.SGD(0.1).minimize(loss, variables, tape=tape)


OPTIMIZERS = {
    "minimize": lambda *given: tf.keras.optimizers.Adam(0.1).minimize(*given),
    "legacy": lambda *given: tf.keras.optimizers.legacy.Adam(0.1).minimize(*given),
    "tape": with_tape,
}


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_a_keras_optimizer_of_a_plain_estimator_says_what_trains(name, tmp_path):
    """Keras optimizers minimize eager losses, or those of a tape. A model_fn builds a graph."""

    def build(x, labels):
        loss = linear(x, labels)
        return loss, OPTIMIZERS[name](loss, v1.trainable_variables())

    with pytest.raises(ValueError, match="use an optimizer of tf.compat.v1.train"):
        make("plain", tmp_path, build).train(input_fn, max_steps=1)


def test_a_keras_optimizer_of_a_second_call_says_where_to_make_it(tmp_path):
    optimizer = tf.keras.optimizers.legacy.SGD(0.1)  # It keeps the first call's global step.

    def build(x, labels):
        loss = linear(x, labels)
        optimizer.iterations = v1.train.get_or_create_global_step()
        return loss, optimizer.get_updates(loss, v1.trainable_variables())[0]

    estimator = make("plain", tmp_path, build)
    estimator.train(input_fn, steps=1)
    assert OWN_GRAPH in harness.refusal(RuntimeError, estimator.train, input_fn, steps=1)


def classifier(folder, name="x", **arguments):
    column = tf.feature_column.numeric_column(name, [3])
    return tf.estimator.LinearClassifier([column], model_dir=str(folder), **arguments)


def labelled(labels, name="x"):
    return lambda: tf.data.Dataset.from_tensors(({name: X}, labels))


TEXTS = np.array([["a"], ["b"], ["a"], ["b"]])
ZEROS = np.zeros([4, 1], np.int64)


@pytest.mark.fast(1)
@pytest.mark.parametrize("classes", [2, 3])
def test_string_labels_name_label_vocabulary(classes, tmp_path):
    with pytest.raises(Exception, match="label_vocabulary"):
        classifier(tmp_path, n_classes=classes).train(labelled(TEXTS))
    vocabulary = ["a", "b", "c"][:classes]
    given = classifier(tmp_path / "given", n_classes=classes, label_vocabulary=vocabulary)
    build_graph("train", given, labelled(TEXTS))


@pytest.mark.fast(1)
@pytest.mark.parametrize("action", ["train", "evaluate", "predict"])
def test_a_misspelt_feature_is_suggested(action, tmp_path):
    estimator = classifier(tmp_path, "price")
    with pytest.raises(ValueError, match=r"given are \['Price'\]. Did you mean 'Price'\?"):
        next(getattr(estimator, action)(labelled(ZEROS, "Price")))


@pytest.mark.parametrize(
    "read, key",
    [
        (lambda params: params["rate"], "rate"),  # The line names params.
        (lambda own: own["x"], "x"),  # The batch has this feature.
    ],
    ids=["params", "own"],
)
def test_a_missing_key_of_another_dict_is_not_told_the_features(read, key, tmp_path):
    """The program's params lack the key. The names of the batch's features would mislead."""

    def model_fn(features, labels, mode, params):
        given = params  # The line that fails does not have the name params.
        return read(given)

    estimator = tf.estimator.Estimator(model_fn, str(tmp_path), params={})
    assert harness.refusal(KeyError, estimator.train, input_fn) == repr(key)


def test_kmeans_without_a_seed_is_not_told_that_labels_are_missing(tmp_path):
    """TensorFlow's error is of a None, as for missing labels, but this model_fn takes no labels."""
    estimator = v1.estimator.experimental.KMeans(2, str(tmp_path), "kmeans_plus_plus")
    with pytest.raises(ValueError, match="'seed'") as error:
        estimator.train(lambda: tf.data.Dataset.from_tensors({"x": X}))
    assert "labels" not in str(error.value)


def test_decode_csv_says_that_it_counts_within_a_line(tmp_path):
    def short_line():
        lines = tf.data.Dataset.from_tensors("1,2").repeat()
        parsed = lines.map(lambda line: tf.stack(tf.io.decode_csv(line, [[0.0]] * 3)))
        return parsed.map(lambda x: ({"x": x}, tf.zeros([1]))).batch(2)

    with pytest.raises(tf.errors.InvalidArgumentError, match="in record 0\n.*Records are counted"):
        make("plain", tmp_path, linear).train(short_line)


def test_an_array_over_2_gb_says_how_to_read_it(tmp_path):
    big = np.broadcast_to(np.float32(0), [2**21, 2**9])  # 4 GiB.
    with pytest.raises(ValueError, match="numpy_input_fn"):
        classifier(tmp_path).train(lambda: ({"x": tf.constant(big)}, ZEROS))


def test_a_name_of_tensorflow_1_says_how_to_get_it(tmp_path):
    estimator = harness.of_kind("plain", lambda *_: tf.layers.dense, tmp_path)
    assert "install(tf_v1=True)" in harness.refusal(AttributeError, estimator.train, input_fn)
