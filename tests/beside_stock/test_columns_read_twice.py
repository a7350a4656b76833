"""Programs in which several columns read the same feature, in stock and in ours.

Both train all variables with Adagrad. Tables use the spec's optimizer in ours, and the program's in
stock.
"""

import itertools

import comparison
import numpy as np
import pytest
import sampling

PROGRAM = """
import tensorflow as tf

import side

fc = tf.feature_column
tpu = tf.compat.v1.tpu.experimental
input_layer = tf.compat.v1.feature_column.input_layer
linear_model = tf.compat.v1.feature_column.linear_model
WORDS = {words}
a, b = (
    fc.categorical_column_with_vocabulary_list(key, ["ant", "bee", "cat"], num_oov_buckets=2)
    if WORDS else fc.categorical_column_with_identity(key, 5) for key in "ab"
)
weighted = fc.weighted_categorical_column(a, "w")
deep = tpu.embedding_column(a, 3, initializer=side.rows(0.3))
{columns}

A = [[1, 2], [3], [1], [0, 4, 4], [4], [2, 2], [0], [1, 0]]

def input_fn(params):
    def ids(rows):
        words = ["ant", "bee", "cat", "dog", "eel"]
        values = [[words[i] for i in row] for row in rows] if WORDS else rows
        return side.sparse(values, tf.string if WORDS else tf.int64)

    features = dict(a=ids(A), b=ids(A[::-1]), n=tf.range(8.0)[:, None])
    features["w"] = side.sparse([[0.5 + i for i in row] for row in A], tf.float32)
    labels = tf.constant([[1.0], [0.0], [2.0], [1.0], [0.5], [0.0], [3.0], [1.0]])
    return tf.data.Dataset.from_tensor_slices((features, labels)).batch(4, drop_remainder=True)

def scoped(name, columns):
    with tf.compat.v1.variable_scope(name):
        return tf.reduce_sum(input_layer(features_of_model, columns) ** 2, 1, keepdims=True)

def model_fn(features, labels, mode, params):
    global features_of_model
    features_of_model = features
    logits = {output}
    adagrad = tf.compat.v1.train.AdagradOptimizer(0.1)
    return side.spec_of(
        mode,
        labels,
        lambda: tf.reduce_mean((logits - labels) ** 2),
        lambda loss: adagrad.minimize(loss, tf.compat.v1.train.get_global_step()),
        logits=logits,
    )

parameters = side.parameters("AdagradParameters", 0.1)
estimator = side.new_estimator(model_fn, 4, {listed}, parameters, side.off_tpu())
estimator.train(input_fn, steps=2)
side.record_checkpoint("checkpoint")
side.record("evaluate", estimator.evaluate(input_fn, steps=2))
side.record("predict", [one["logits"] for one in estimator.predict(input_fn)])
"""
OTHER = "other = tpu.embedding_column({}, 2, initializer=side.rows(0.9))"
SHARED = "shared = tpu.shared_embedding_columns([a, b], 2, initializer=side.rows(0.9))"
CASES = {
    "linear_model": ("", "linear_model(features, [a]) + scoped('d', [deep])", "[deep]"),
    "crossed": (
        "",
        "linear_model(features, [fc.crossed_column([a, 'b'], 7)]) + scoped('d', [deep])",
        "[deep]",
    ),
    "indicator": ("", "scoped('d', [deep, fc.indicator_column(a)])", "[deep]"),
    "ordinary embedding": (
        "own = fc.embedding_column(a, 2, initializer=side.rows(0.7))",
        "scoped('d', [deep]) + scoped('o', [own, fc.numeric_column('n')])",
        "[own, deep, fc.numeric_column('n')]",
    ),
    "ordinary embedding alone": (
        "own = fc.embedding_column(a, 2, initializer=side.rows(0.7))",
        "scoped('o', [own])",
        "[own]",
    ),
    "two tables": (
        OTHER.format("a"),
        "scoped('d', [deep]) + scoped('o', [other])",
        "[deep, other]",
    ),
    "two initializers": (
        "other = tpu.embedding_column(a, 3, initializer=side.rows(0.9))",
        "scoped('d', [deep]) + scoped('o', [other])",
        "[deep, other]",
    ),
    "weighted and not": (
        OTHER.format("weighted"),
        "scoped('d', [deep]) + scoped('o', [other]) + linear_model(features, [weighted])",
        "[deep, other]",
    ),
    "some features only": (
        OTHER.format("a"),
        "linear_model(dict(a=features['a']), [a]) + scoped('o', [other])"
        " + tf.reduce_sum(input_layer(dict(a=features['a']), [deep]), 1, keepdims=True)",
        "[other, deep]",
    ),
    "two shared tables": (
        SHARED + "\nsecond = tpu.shared_embedding_columns([b, a], 3, initializer=side.rows(0.4), "
        "shared_embedding_collection_name='q')",
        "tf.reduce_sum(tf.compat.v1.keras.layers.DenseFeatures(shared)(features) ** 2, 1)[:, None]"
        " + tf.reduce_sum(tf.compat.v1.keras.layers.DenseFeatures(second)(features), 1)[:, None]",
        "[*shared, *second]",
    ),
}


@pytest.mark.slow
def test_columns_that_share_a_feature_train_like_stock(tmp_path):
    paths = []
    for name, words in sampling.drawn(itertools.product(CASES, (False, True)), 9):
        columns, output, listed = CASES[name]
        paths.append(tmp_path / f"{name}, of {'words' if words else 'integers'}")
        text = PROGRAM.format(words=words, columns=columns, output=output, listed=listed)
        paths[-1].write_text(text)
    found = {side: comparison.results_of(side, paths, tmp_path) for side in ("stock", "ours")}
    for name in paths:
        for results, log in found.values():
            assert name in results, log
            one = results[name]
            assert "error" not in one, (name, one["error"], one["traceback"])
        stock, ours = (results[name] for results, _ in found.values())
        assert set(ours["recorded"]) == set(stock["recorded"]), name
        for key, value in stock["recorded"].items():
            got = ours["recorded"][key]["value"]
            np.testing.assert_allclose(got, value["value"], 2e-5, 1e-6, err_msg=f"{name}: {key}")
