"""Labels or a feature with another number of samples than the ids, and labels that broadcast."""

import re

import harness
import numpy as np
import pytest
import tensorflow as tf
from small_programs import build_graph

import estimator_emb as ee

SPEC = harness.table_spec(6, 2, ee.StochasticGradientDescentParameters(0.5))
REMEDY = "All features and labels of a batch need the same number of samples, and on a TPU that is"
LABELS = "labels['y'] has 3 samples, 4 expected."
DENSE = "features['d'] has 3 samples, 4 expected."


def model_fn(features, labels, mode, params):
    logits = tf.compat.v1.layers.dense(tf.concat([features["x"], features["d"]], 1), 1)
    return harness.minimized(mode, tf.reduce_mean(tf.square(logits - labels["y"])), 0.1)


def build(tmp_path, cores, dense, labels, model_fn=model_fn):
    """Builds a training with 4 samples of feature 'x', `dense` of 'd' and `labels` of label 'y'."""
    estimator = harness.estimator(model_fn, SPEC, tmp_path, num_shards=cores)
    features = {"x": np.array([0, 1, 2, 3]), "d": np.ones([dense, 1], np.float32)}
    batches = [(features, {"y": np.ones([labels, 1], np.float32)})]
    build_graph("train", estimator, harness.input_fn_of(batches), steps=1)


def raises(features, labels, mode, params):
    raise ValueError("depth must be even, got 3")


def transposes_wrongly(features, labels, mode, params):
    return features["x"] + tf.transpose(features["d"])


def reshapes_wrongly(features, labels, mode, params):
    return tf.reshape(labels["y"], [5, 1])


@pytest.mark.parametrize("cores", [None, 1, 2])
@pytest.mark.parametrize(
    "dense, labels, model, named",  # named: what the error says of the samples of 'd' and 'y'.
    [
        (4, 3, model_fn, [LABELS]),
        (3, 4, model_fn, [DENSE]),
        (6, 4, raises, []),  # The model's own error is not of shapes.
        (4, 3, reshapes_wrongly, [LABELS]),
        (3, 3, transposes_wrongly, [DENSE, LABELS]),
        # With a multiple of 4 samples, the batch may be flattened or be another dimension.
        (4, 8, reshapes_wrongly, []),
        (768, 3, transposes_wrongly, [LABELS]),
        (768, 4, transposes_wrongly, []),
    ],
)
def test_only_shape_errors_name_wrong_numbers_of_samples(
    cores, dense, labels, model, named, tmp_path, assert_recorded
):
    message = harness.refusal(ValueError, build, tmp_path, cores, dense, labels, model)
    _, *said = message.splitlines()  # The first line is TensorFlow's.
    lines = [line for line in said if " expected." in line]
    assert [line.partition("expected.")[0] + "expected." for line in lines] == named
    assert all(REMEDY in line for line in lines[-1:])  # At the end of the message.
    if cores == 2 and model is model_fn:
        assert_recorded(lines[-1])


@pytest.mark.fast(3)
@pytest.mark.parametrize(
    "cores, labels, warns",
    [(None, 1, True), (1, 1, True), (None, 4, False), (1, 4, False), (2, 4, False)],
)
def test_labels_of_one_sample_train_with_a_warning(cores, labels, warns, tmp_path, caplog):
    build(tmp_path, cores, 4, labels)
    said = [line for line in harness.said(caplog) if "expected" in line]
    begin = "labels['y'] has 1 sample, 4 expected: a loss may spread it over all of them."
    assert [line.startswith(begin) for line in said] == [True] * warns


def unknown_shapes(sizes):
    """Returns an input_fn of batches with unknown shapes, of these numbers of samples."""

    def input_fn(params):
        def generate():
            for x, d, y in sizes:
                features = {"x": np.arange(x) % 4, "d": np.ones([d, 1], np.float32)}
                yield features, {"y": np.ones([y, 1], np.float32)}

        of_one = tf.TensorSpec([None, 1], tf.float32)
        signature = ({"x": tf.TensorSpec([None], tf.int64), "d": of_one}, {"y": of_one})
        return tf.data.Dataset.from_generator(generate, output_signature=signature)

    return input_fn


def test_unknown_shapes_are_named_on_an_emulated_tpu(tmp_path):
    train = harness.estimator(model_fn, SPEC, tmp_path, num_shards=1).train
    message = harness.refusal(ValueError, train, unknown_shapes([(4, 4, 4)]), steps=1)
    first, *lines = message.splitlines()
    assert first.startswith(
        "The features to the model returned by input_fn must have static shape."
    )
    begins = [line.partition(":")[0] for line in lines]
    assert begins == [f"{name} has shape (None, 1)" for name in ("features['d']", "labels['y']")]


@pytest.mark.fast(1)
@pytest.mark.parametrize("cores, sparse", [(1, False), (2, True)])
def test_predict_names_wrong_numbers_of_samples_on_an_emulated_tpu(cores, sparse, tmp_path):
    """The last batch is padded. A feature with too few samples would get empty samples."""

    def without_labels(features, labels):
        x = features["x"]
        x = tf.sparse.from_dense(x[:, None] + 1) if sparse else x  # It leaves out zeros.
        return {"d": features["d"], "x": x}

    def input_fn(params):
        return unknown_shapes([(4, 4, 4), (2, 3, 2)])(params).map(without_labels)

    def predicting(features, labels, mode, params):
        logits = tf.reduce_sum(features["x"], 1, keepdims=True) + features["d"]
        return ee.TPUEstimatorSpec(mode, predictions={"logits": logits})

    estimator = harness.estimator(predicting, SPEC, tmp_path, num_shards=cores)
    with pytest.raises(tf.errors.InvalidArgumentError) as error:
        list(estimator.predict(input_fn))
    assert f"[features['x'] has 2 samples, but features['d'] has 3. {REMEDY}" in error.value.message


# Labels [B] that broadcast against predictions [B, 1].

MISTAKES = {
    "Sub": lambda logits, labels: logits - labels,
    "SquaredDifference": lambda logits, labels: tf.math.squared_difference(labels, logits),
    "Mul": lambda logits, labels: labels * tf.math.log_sigmoid(logits),
}
MEANT = {
    "one shape": lambda logits, labels: logits - labels[:, None],
    "one dimension": lambda logits, labels: logits[:, 0] - labels,
    "a column of sums": lambda logits, labels: logits * tf.zeros([4]) + labels[:, None],
    "pairs of labels": lambda logits, labels: tf.reshape(labels, [-1, 1]) - labels,
    "pairs of predictions": lambda logits, labels: logits - logits[:, 0],
    "pairs, made in place": lambda logits, labels: logits[:, 0] - labels[:, None],
    "pairs with one weight": lambda logits, labels: (logits - logits[:, 0]) * labels,
    "a constant of four": lambda logits, labels: tf.reshape(labels, [-1, 1]) * [1.0, 2, 3, 4],
    "a number": lambda logits, labels: logits - tf.reduce_mean(labels),
    "a size": lambda logits, labels: logits * tf.ones(tf.shape(labels)),
    "Keras": lambda logits, labels: tf.keras.losses.MeanSquaredError()(labels, logits),
}


def warnings_about_pairs(losses, directory, cores, static, caplog):
    """Builds a training on the sum of the losses, and returns the warnings about pairs."""

    def model_fn(features, labels, mode, params):
        logits = tf.compat.v1.layers.dense(features["x"], 1)
        means = [tf.reduce_mean(loss(logits, labels)) for loss in losses.values()]
        return harness.minimized(mode, tf.add_n([tf.reduce_mean(logits), *means]))

    def input_fn(params):
        values = {"x": np.ones([8, 3], np.float32)}, np.ones([8], np.float32)
        data = tf.data.Dataset.from_tensor_slices(values)
        return data.batch(params["batch_size"], drop_remainder=static)

    estimator = harness.estimator(model_fn, None, directory, num_shards=cores)
    build_graph("train", estimator, input_fn, max_steps=2)
    return [one for one in harness.said(caplog) if "pairs" in one]


@pytest.mark.fast(2)
@pytest.mark.parametrize("cores, size", [(None, 4), (None, None), (2, 2)])  # None: unknown.
def test_labels_that_broadcast_cause_a_warning(cores, size, tmp_path, caplog):
    told = warnings_about_pairs(MISTAKES, tmp_path, cores, size is not None, caplog)
    line_in = re.compile(r"counts.py, line (\d+), in <lambda>: ")
    of_lines = {int(line_in.search(one)[1]): one for one in told}
    assert len(told) == len(MISTAKES)
    for kind, loss in MISTAKES.items():
        assert of_lines[loss.__code__.co_firstlineno].startswith(
            f"The loss of model_fn is of all pairs of samples: {kind} of ({size},), from labels, "
            f"and ({size}, 1) gives ({size}, {size})."
        )


@pytest.mark.fast(1)
@pytest.mark.parametrize("static", [False, True])  # Whether the batch's size is known.
def test_intended_pairs_cause_no_warning(static, tmp_path, caplog):
    assert warnings_about_pairs(MEANT, tmp_path, None, static, caplog) == []
