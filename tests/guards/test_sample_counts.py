"""Labels or a feature with another number of samples than the ids."""

import harness
import numpy as np
import pytest
import tensorflow as tf

import estimator_emb as ee

SPEC = harness.table_spec(6, 2, ee.StochasticGradientDescentParameters(0.5))
REMEDY = "All features and labels of a batch need the same number of samples, and on a TPU that is"
LABELS = "labels['y'] has 3 samples, 4 expected."
DENSE = "features['d'] has 3 samples, 4 expected."


def model_fn(features, labels, mode, params):
    logits = tf.compat.v1.layers.dense(tf.concat([features["x"], features["d"]], 1), 1)
    loss = tf.reduce_mean(tf.square(logits - labels["y"]))
    return harness.minimized(mode, loss, 0.1)


def train(tmp_path, cores, dense, labels, model_fn=model_fn):
    estimator = harness.estimator(model_fn, SPEC, tmp_path, num_shards=cores)
    features = {"x": np.array([0, 1, 2, 3]), "d": np.ones([dense, 1], np.float32)}
    batches = [(features, {"y": np.ones([labels, 1], np.float32)})]
    estimator.train(harness.input_fn_of(batches), steps=1)


@pytest.mark.parametrize("cores", [None, 1, 2])
@pytest.mark.parametrize("dense, labels, said", [(4, 3, LABELS), (3, 4, DENSE)])
def test_a_wrong_number_of_samples_is_named(cores, dense, labels, said, tmp_path, same_message):
    with pytest.raises(ValueError) as error:
        train(tmp_path, cores, dense, labels)
    first, *rest = str(error.value).splitlines()
    assert first.startswith("Dimension")  # TensorFlow's text.
    assert rest[-1].startswith(f"{said} {REMEDY}")
    if cores == 2:
        same_message(rest[-1])


def raises(features, labels, params):
    raise ValueError("depth must be even, got 3")


def transposes_wrongly(features, labels, params):
    return features["x"] + tf.transpose(features["d"])


def reshapes_wrongly(features, labels, params):
    return tf.reshape(labels["y"], [5, 1])


@pytest.mark.parametrize("cores", [None, 1])
@pytest.mark.parametrize(
    "dense, labels, wrong, named",
    [
        (3, 4, raises, []),
        (4, 3, reshapes_wrongly, [LABELS]),
        (3, 3, transposes_wrongly, [DENSE, LABELS]),
        # The batch is the last dimension, or is flattened.
        (4, 8, reshapes_wrongly, []),
        (768, 3, transposes_wrongly, [LABELS]),
        (768, 4, transposes_wrongly, []),
    ],
)
def test_only_shape_errors_name_wrong_numbers_of_samples(
    cores, dense, labels, wrong, named, tmp_path
):
    def failing(features, labels, mode, params):
        wrong(features, labels, params)

    with pytest.raises(ValueError) as error:
        train(tmp_path, cores, dense, labels, failing)
    lines = [line for line in str(error.value).splitlines() if " expected." in line]
    assert [line.partition("expected.")[0] + "expected." for line in lines] == named
    assert (REMEDY in str(error.value)) == bool(named)


ONE_LABEL = "labels['y'] has 1 sample, 4 expected: a loss may spread it over all of them."


@pytest.mark.fast(3)
@pytest.mark.parametrize(
    "cores, labels, warns",
    [(None, 1, True), (1, 1, True), (None, 4, False), (1, 4, False), (2, 4, False)],
)
def test_labels_of_one_sample_train_with_a_warning(cores, labels, warns, tmp_path, caplog):
    train(tmp_path, cores, 4, labels)
    said = [line for line in harness.said(caplog) if "expected" in line]
    assert [line.startswith(ONE_LABEL) for line in said] == [True] * warns


def unknown_shapes(sizes):
    """Returns an input_fn of batches with unknown shapes, of these numbers of samples."""

    def input_fn(params):
        def generate():
            for x, d, y in sizes:
                features = {"x": np.arange(x) % 4, "d": np.ones([d, 1], np.float32)}
                yield features, {"y": np.ones([y, 1], np.float32)}

        of_one = tf.TensorSpec([None, 1], tf.float32)
        features = {"x": tf.TensorSpec([None], tf.int64), "d": of_one}
        signature = (features, {"y": of_one})
        return tf.data.Dataset.from_generator(generate, output_signature=signature)

    return input_fn


def test_unknown_shapes_are_named_on_an_emulated_tpu(tmp_path):
    estimator = harness.estimator(model_fn, SPEC, tmp_path, num_shards=1)
    with pytest.raises(ValueError) as error:
        estimator.train(unknown_shapes([(4, 4, 4)]), steps=1)
    first, *lines = str(error.value).splitlines()
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
        x = tf.sparse.from_dense(x[:, None] + 1) if sparse else x
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
