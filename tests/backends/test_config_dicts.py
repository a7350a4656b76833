"""A spec of config dicts with every field, in training, evaluation, prediction and export."""

import harness
import numpy as np
import pytest
import tensorflow as tf
from host_engine import on_both_kernels

import estimator_emb as ee

ROWS = {"words": 6, "user": 5}


def make(model_dir, has_context):
    start = {name: np.arange(2.0 * rows).reshape(rows, 2) / 10 for name, rows in ROWS.items()}
    words, user = (
        ee.TableConfig(rows, 2, harness.initializer(start[name]), "sum")
        for name, rows in ROWS.items()
    )
    adagrad = ee.AdagradParameters(0.25, initial_accumulator=1.0)
    spec = ee.EmbeddingConfigSpec(
        feature_to_config_dict={
            "title": ee.FeatureConfig("words", weight_key="title_weights"),
            "author": ee.FeatureConfig("words", weight_key="author_weight"),
            "history": ee.FeatureConfig("words", max_sequence_length=2),
            "user": ee.FeatureConfig("user"),
        },
        table_to_config_dict={
            "words": words._replace(hot_id_replication=True, learning_rate=0.5),
            "user": user._replace(combiner=None, optimization_parameters=adagrad),
        },
        # The rate 9 trains no table: "words" has its own rate, "user" its own optimizer.
        optimization_parameters=ee.StochasticGradientDescentParameters(9.0),
    )

    def model_fn(features, labels, mode, params):
        has_context.append("context" in params)
        lengths = tf.cast(features["history_seq_length_"] + 1, tf.float32)
        output = tf.reduce_sum(features["title"] + features["author"], 1)
        output += tf.reduce_sum(features["history"], [1, 2])
        output += tf.reduce_sum(features["user"], 1) * lengths
        if mode == ee.ModeKeys.PREDICT:
            return harness.served(mode, output=output)
        loss = tf.reduce_sum(output * labels)
        return harness.minimized(mode, loss)

    return start, harness.estimator(model_fn, spec, model_dir, batch_size=2)


MATRICES = {
    "title": np.array([[1, 2], [1, -1]]),
    "title_weights": np.array([[0.5, 2.0], [3.0, 0.0]], np.float32),
    "author": np.array([2, 0]),
    "author_weight": np.array([0.5, 4.0], np.float32),
    "history": np.array([[-1, -1, -1], [4, 1, 5]]),
    "user": np.array([0, 3]),
}
FEATURES = {
    **MATRICES,
    "title": harness.sparse([[1, 2], [1]]),
    "title_weights": harness.sparse([[0.5, 2.0], [3.0]], np.float32),
    "history": harness.sparse([[], [4, 1, 5]]),
}
"""The same ids without -1 as padding."""
LABELS = np.array([1.0, -2.0], np.float32)


def output_by_numpy(words, user):
    title_and_author = [0.5 * words[1] + (2 + 0.5) * words[2], 3 * words[1] + 4 * words[0]]
    history = [np.zeros(2), words[4] + words[1]]
    lengths = np.array([1, 3])  # 1 + the lengths of the histories, 0 and 2.
    of_user = np.sum(user[[0, 3]], 1) * lengths
    return np.sum(title_and_author, 1) + np.sum(history, 1) + of_user


@on_both_kernels
def test_config_dicts_with_all_fields_work_in_all_modes(tmp_path):
    start, estimator = make(tmp_path / "model", has_context := [])
    input_fn = harness.input_fn_of([(FEATURES, LABELS)])
    estimator.train(input_fn, steps=1)
    got = harness.saved(tmp_path / "model", 1)
    words, user = start["words"].copy(), start["user"].copy()
    # Each id: the rate 0.5 times its weight times its sample's gradient, the label 1 or -2.
    words[0] -= 0.5 * 4 * -2
    words[1] -= 0.5 * (0.5 * 1 + 3 * -2 + 1 * -2)  # Of title, title and history (no weight: 1).
    words[2] -= 0.5 * (2 + 0.5) * 1
    words[4] -= 0.5 * -2
    for row, g in ((0, 1.0 * 1), (3, -2.0 * 3)):  # Label times the length of the history plus 1.
        user[row] -= 0.25 * g / np.sqrt(1 + g * g)  # Adagrad at rate 0.25, from accumulator 1.
    assert set(got) == {"global_step", "words", "user", "user/Adagrad"}
    np.testing.assert_allclose(got["words"], words, atol=1e-6)
    np.testing.assert_allclose(got["user"], user, atol=1e-6)
    want = output_by_numpy(words, user)
    metrics = estimator.evaluate(input_fn, steps=1)
    np.testing.assert_allclose(metrics["loss"], np.sum(want * LABELS), rtol=1e-5)
    predicted = [one["output"] for one in estimator.predict(input_fn)]
    np.testing.assert_allclose(predicted, want, rtol=1e-5)
    shapes = {key: [None, *value.shape[1:]] for key, value in MATRICES.items()}
    receive = harness.receiver_of(**{key: (MATRICES[key].dtype, shapes[key]) for key in shapes})
    serve = harness.exported(estimator, tmp_path / "export", receive)
    served = serve(**{key: tf.constant(value) for key, value in MATRICES.items()})["output"]
    np.testing.assert_allclose(served, want, rtol=1e-5)
    # Training, evaluation and prediction tell model_fn their TPUContext. An export runs on no host.
    assert has_context == [True, True, True, False]


@on_both_kernels
@pytest.mark.parametrize(
    ("shape", "cores", "weighted"),
    [
        ([4, 1], 2, True),
        harness.slow([None, None], None, False),
        harness.slow([None, 1], None, True),
        harness.slow([4, 1], None, False),
    ],
    ids=str,
)
def test_minus_one_in_a_matrix_of_one_column_means_no_id(shape, cores, weighted, tmp_path):
    """`shape` is all that the graph knows of the ids: maybe not that they have one column."""
    table = np.arange(10.0).reshape(5, 2) / 10
    sgd = ee.StochasticGradientDescentParameters(0.5)
    weight_key = {"weight_key": "w" if weighted else None}
    spec = harness.table_spec(5, 2, sgd, table, feature=weight_key)
    ids, labels = np.array([[3], [-1], [0], [3]]), np.arange(1.0, 9.0, dtype="f").reshape(4, 2)
    # The weight 8 of -1 must not count.
    weights = np.array([[0.5], [8.0], [2.0], [1.0]] if weighted else np.ones([4, 1]), np.float32)

    def input_fn(params):
        def shaped(features, labels):
            hidden = tf.compat.v1.placeholder_with_default
            return {key: hidden(features[key], shape) for key in features}, labels

        return harness.dataset([({"x": ids, "w": weights}, {"x": labels})] * 2).map(shaped)

    model_fn = harness.gradient_model_fn(["x"])
    estimator = harness.estimator(model_fn, spec, tmp_path, num_shards=cores)
    estimator.train(input_fn, steps=1)
    want = table.copy()  # SGD at rate 0.5. The gradient of a sample is its label.
    want[3] -= 0.5 * (weights[0] * labels[0] + weights[3] * labels[3])
    want[0] -= 0.5 * weights[2] * labels[2]
    np.testing.assert_allclose(harness.saved(tmp_path, 1)["t"], want, rtol=1e-6)
    activations = want[ids[:, 0]] * weights * [[1], [0], [1], [1]]
    predicted = list(estimator.predict(input_fn, yield_single_examples=False))
    np.testing.assert_allclose(predicted[0]["x"], activations, rtol=1e-6)
