"""TensorFlow's errors about common mistakes say what to do."""

import contextlib

import harness
import numpy as np
import pytest
import tensorflow as tf

v1 = tf.compat.v1
pytestmark = pytest.mark.usefixtures("installed")
SLOW = [pytest.param(kind, marks=pytest.mark.slow) for kind in ("local", "emulated")]
X = np.ones([4, 3], np.float32)
OWN_GRAPH = "Each call of an estimator has a graph of its own: make Datasets, tensors, variables"


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
READ = {
    "Dataset": lambda made: made,
    "iterator": lambda made: made.get_next(),
    "tensor": lambda made: tf.data.Dataset.from_tensors(({"x": made}, X[:, :1])),
    "variable": lambda made: of_x(lambda x: x + made)(batches()),
    "table": lambda made: of_x(lambda x: made.lookup(tf.cast(x, tf.int64)))(batches()),
}
"""What -> the input_fn's use of it."""
COMPUTE = {
    "tensor": lambda made, x: x + made,
    "table": lambda made, x: made.lookup(tf.cast(x, tf.int64)),
}
"""What -> the model_fn's use of it."""
USES = [*((what, "input_fn") for what in READ), *((what, "model_fn") for what in COMPUTE)]


def train(kind, model_dir, input_fn, of_features=lambda x: x):
    def model(features, labels, mode, spec):
        w = v1.get_variable("w", [3, 1])
        loss = tf.reduce_mean(tf.square(of_features(features["x"]) @ w - labels))
        optimizer = v1.train.GradientDescentOptimizer(0.1)
        train_op = optimizer.minimize(loss, v1.train.get_global_step())
        return spec(mode, loss=loss, train_op=train_op)

    estimator = harness.of_kind(kind, model, model_dir)
    estimator.train(lambda params=None: input_fn(), max_steps=1)


@pytest.mark.fast(7)
@pytest.mark.parametrize("graph", [False, True], ids=["eager", "graph"])
@pytest.mark.parametrize("what, where", USES)
@pytest.mark.parametrize("kind", ["plain", *SLOW])
def test_errors_about_objects_made_outside_say_what_to_do(kind, what, where, graph, tmp_path):
    with tf.Graph().as_default() if graph else contextlib.nullcontext():
        made = MADE[what]()
    given = {"input_fn": batches}
    if where == "input_fn":
        given["input_fn"] = lambda: READ[what](made)
    else:
        given["of_features"] = lambda x: COMPUTE[what](made, x)
    with pytest.raises((ValueError, RuntimeError)) as raised:
        train(kind, tmp_path, **given)
    assert str(raised.value).splitlines()[-1].startswith(OWN_GRAPH)


@pytest.mark.parametrize("kind", ["plain", *SLOW])
def test_datasets_and_iterators_in_the_wrong_place_are_refused(kind, tmp_path):
    estimator = harness.of_kind(kind, lambda features, labels, mode, spec: None, tmp_path)
    said = harness.refusal(TypeError, estimator.train, batches(), max_steps=1)
    assert said.startswith("input_fn must be a function that returns a Dataset")
    given = batches().__iter__()
    said = harness.refusal(TypeError, train, kind, tmp_path, lambda: given)
    assert "it returned an iterator, OwnedIterator. Return the Dataset" in said


@pytest.mark.parametrize("kind", ["plain", *SLOW])
def test_iterating_a_dataset_in_a_graph_gets_advice(kind, tmp_path):
    said = harness.refusal(RuntimeError, train, kind, tmp_path, lambda: next(iter(batches())))
    (advice,) = said.splitlines()[1:]
    assert advice.startswith("In an estimator, input_fn returns the Dataset itself.")


def test_a_loss_per_sample_of_a_batch_of_unknown_size_gets_advice(tmp_path):
    def model(features, labels, mode, spec):
        loss = (features["x"] @ v1.get_variable("w", [3, 1]) - labels) ** 2
        optimizer = v1.train.GradientDescentOptimizer(0.1)
        return spec(mode, loss=loss, train_op=optimizer.minimize(loss, v1.train.get_global_step()))

    estimator = harness.of_kind("plain", model, tmp_path)
    with pytest.raises(tf.errors.InvalidArgumentError) as raised:
        estimator.train(lambda: batches().unbatch().batch(4), max_steps=1)
    assert "give the EstimatorSpec one number: tf.reduce_mean(loss)." in str(raised.value)


def mean(values):
    """Returns the mean over samples of a variable's products with x, and the variable."""
    w = v1.get_variable("w", [3, 1])
    return tf.reduce_mean(values["x"] @ w), w


def with_tape(loss, w):
    with tf.GradientTape() as tape:
        pass
    return tf.keras.optimizers.legacy.SGD(0.1).minimize(loss, [w], tape=tape)


def classifier(folder, name="x", **arguments):
    column = tf.feature_column.numeric_column(name, [3])
    return tf.estimator.LinearClassifier([column], model_dir=str(folder), **arguments)


def labelled(labels, name="x"):
    return lambda: tf.data.Dataset.from_tensors(({name: X}, labels))


TEXTS = np.array([["a"], ["b"], ["a"], ["b"]])
ZEROS = np.zeros([4, 1], np.int64)
OPTIMIZERS = {
    "minimize": lambda loss, w: tf.keras.optimizers.Adam(0.1).minimize(loss, [w]),
    "legacy": lambda loss, w: tf.keras.optimizers.legacy.Adam(0.1).minimize(loss, [w]),
    "tape": with_tape,
}


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_a_keras_optimizer_of_a_plain_estimator_says_what_trains(name, tmp_path):
    def model(features, labels, mode, spec):
        loss, w = mean(features)
        return spec(mode, loss=loss, train_op=OPTIMIZERS[name](loss, w))

    estimator = harness.of_kind("plain", model, tmp_path)
    with pytest.raises(ValueError, match="use an optimizer of tf.compat.v1.train"):
        estimator.train(batches, max_steps=1)


def test_a_keras_optimizer_of_a_second_call_says_where_to_make_it(tmp_path):
    optimizer = tf.keras.optimizers.legacy.SGD(0.1)

    def model(features, labels, mode, spec):
        loss, w = mean(features)
        optimizer.iterations = v1.train.get_or_create_global_step()
        return spec(mode, loss=loss, train_op=optimizer.get_updates(loss, [w])[0])

    estimator = harness.of_kind("plain", model, tmp_path)
    estimator.train(batches, steps=1)
    with pytest.raises(RuntimeError, match=OWN_GRAPH):
        estimator.train(batches, steps=1)


@pytest.mark.fast(1)
@pytest.mark.parametrize("classes", [2, 3])
def test_string_labels_name_label_vocabulary(classes, tmp_path):
    with pytest.raises(Exception, match="label_vocabulary"):
        classifier(tmp_path, n_classes=classes).train(labelled(TEXTS))
    given = classifier(
        tmp_path / "given", n_classes=classes, label_vocabulary=["a", "b", "c"][:classes]
    )
    given.train(labelled(TEXTS))


@pytest.mark.fast(1)
@pytest.mark.parametrize("action", ["train", "evaluate", "predict"])
def test_a_misspelt_feature_is_suggested(action, tmp_path):
    estimator = classifier(tmp_path, "price")
    with pytest.raises(ValueError, match=r"given are \['Price'\]. Did you mean 'Price'\?"):
        result = getattr(estimator, action)(labelled(ZEROS, "Price"))
        next(result)


@pytest.mark.parametrize(
    "read, key",
    [
        (lambda params: params["rate"], "rate"),
        (lambda own: own["x"], "x"),  # The batch has this feature.
    ],
    ids=["params", "own"],
)
def test_a_missing_key_of_another_dict_is_not_told_the_features(read, key, tmp_path):
    def model_fn(features, labels, mode, params):
        return read(params)

    estimator = tf.estimator.Estimator(model_fn, str(tmp_path), params={})
    with pytest.raises(KeyError) as error:
        estimator.train(batches)
    assert error.value.args == (key,)


def test_kmeans_without_a_seed_is_not_told_that_labels_are_missing(tmp_path):
    estimator = v1.estimator.experimental.KMeans(2, str(tmp_path), "kmeans_plus_plus")
    with pytest.raises(ValueError, match="'seed'") as error:
        estimator.train(lambda: tf.data.Dataset.from_tensors({"x": X}))
    assert "labels" not in str(error.value)


def test_decode_csv_says_that_it_counts_within_a_line(tmp_path):
    lines = tf.data.Dataset.from_tensor_slices
    parse = lambda line: {"x": tf.stack(tf.io.decode_csv(line, [[0.0]] * 3))}  # noqa: E731

    def input_fn():
        return lines(["1,2,3", "1,2"]).map(parse).batch(2).map(lambda x: (x, tf.zeros([2, 1])))

    with pytest.raises(tf.errors.InvalidArgumentError, match="in record 0\n.*Records are counted"):
        classifier(tmp_path).train(input_fn)


def test_an_array_over_2_gb_says_how_to_read_it(tmp_path, monkeypatch):
    big = np.broadcast_to(np.float32(0), [2**21, 2**9])

    def input_fn():
        return tf.data.Dataset.from_tensors(({"x": tf.constant(big)}, ZEROS))

    with pytest.raises(ValueError, match="numpy_input_fn"):
        classifier(tmp_path).train(input_fn)


def test_a_name_of_tensorflow_1_says_how_to_get_it(tmp_path):
    estimator = harness.of_kind("plain", lambda *_: tf.layers.dense, tmp_path)
    with pytest.raises(AttributeError, match=r"install\(tf_v1=True\)"):
        estimator.train(batches)
