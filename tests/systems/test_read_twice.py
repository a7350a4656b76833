"""Features that several columns read: trained as stock trains them off a TPU, refused on a TPU.

Stock is tensorflow-estimator's own class. The loss is linear in the variables, so that gradients do
not depend on whether lookups are a step ahead.
"""

import harness
import numpy as np
import pytest
import tensorflow as tf
from tensorflow_estimator.python.estimator.tpu.tpu_estimator import TPUEstimator as Stock

import estimator_emb as ee
import feature_columns as fc

v1 = tf.compat.v1
IDS = [[[1, 2], [3], [1], [0, 4, 4]], [[4], [2, 2], [0], [1, 0]]]
WORDS = ["ant", "bee", "cat", "dog", "eel"]
LABELS = np.array([[[1.0], [0.5], [-2.0], [3.0]], [[0.25], [-1.0], [2.0], [1.5]]], np.float32)
RATE = 0.5


def key_column(key, words=False):
    """Returns a categorical column of 5 rows. The last two words are unknown."""
    if words:
        return fc.categorical_column_with_vocabulary_list(key, WORDS[:3], num_oov_buckets=2)
    return fc.categorical_column_with_identity(key, 5)


def start(shape, dtype=tf.float32, partition_info=None):
    return tf.constant(np.cos(np.arange(5.0 * shape[1])).reshape(5, shape[1]), dtype)


def table(categorical, size=3, initializer=start, **kwargs):
    return fc.embedding_column(categorical, size, initializer=initializer, **kwargs)


input_layer = v1.feature_column.input_layer


def layer_of(layers):
    return lambda features, columns: layers.DenseFeatures(columns)(features)


keras_layer, v1_keras_layer = layer_of(tf.keras.layers), layer_of(v1.keras.layers)


def sequence_features(features, columns):
    return tf.keras.experimental.SequenceFeatures(columns)(features)[0]


def sequence_input_layer(features, columns):
    return fc.sequence_input_layer(features, columns)[0]


def summed(tensor):
    """Returns sums [batch, 1] of activations, with another factor for each component."""
    flat = tf.reduce_sum(tf.reshape(tensor, [4, -1, tensor.shape[-1]]), 1)
    return tf.linalg.matvec(flat, tf.range(1.0, flat.shape[1] + 1.0))[:, None]


def cases(words):
    """Returns {name: (columns of the spec, function of the features that returns the output)}.

    The output is the sum of layers. A layer calls a function, such as `input_layer`, with columns.
    """
    a, b = key_column("a", words), key_column("b", words)
    weighted = fc.weighted_categorical_column(a, "w")
    deep, other, of_ones = table(a), table(a, 2), table(a, 3, v1.ones_initializer())
    of_weighted = table(weighted, 2)
    own = tf.feature_column.embedding_column(a, 2, initializer=start)
    number, indicator = fc.numeric_column("n"), fc.indicator_column(a)
    linear_model = v1.feature_column.linear_model
    both = [fc.shared_embedding_columns([a, b], 2, initializer=start)]
    both += [fc.shared_embedding_columns([b, a], 3, "sum", start, "q")]

    def sum_of(*layers):
        """Returns a function that sums layers, each given as (function, columns)."""
        return lambda features: sum(summed(layer(features, of)) for layer, of in layers)

    def columns_made_again(features):
        return sum_of((keras_layer, [table(a, 2)]), (keras_layer, [table(a)]))(features)

    def only_a(features):
        read = sum_of((linear_model, [a]), (input_layer, [deep]))({"a": features["a"]})
        return read + summed(input_layer(features, [other]))

    found = {
        "linear_model": ([deep], sum_of((linear_model, [a]), (input_layer, [deep]))),
        "crossed": (
            [deep],
            sum_of((linear_model, [fc.crossed_column([a, "b"], 7)]), (input_layer, [deep])),
        ),
        "an indicator, input_layer": ([deep], sum_of((input_layer, [deep, indicator]))),
        "an indicator, DenseFeatures": ([deep], sum_of((keras_layer, [deep, indicator]))),
        "an ordinary embedding": (
            [own, deep, number],
            sum_of((input_layer, [deep]), (keras_layer, [own, number])),
        ),
        "an ordinary embedding alone": ([own], sum_of((input_layer, [own]))),
        "two tables": ([deep, other], sum_of((v1_keras_layer, [other]), (v1_keras_layer, [deep]))),
        "two tables, columns made again by model_fn": ([deep, other], columns_made_again),
        "two initializers": (
            [deep, of_ones],
            sum_of((input_layer, [of_ones]), (keras_layer, [deep])),
        ),
        "weighted and not": (
            [deep, of_weighted],
            sum_of(
                (linear_model, [weighted]),
                (input_layer, [fc.indicator_column(weighted)]),
                (input_layer, [deep]),
                (input_layer, [of_weighted]),
            ),
        ),
        "some features only": ([other, deep], only_a),
        "two shared tables": (sum(both, []), sum_of(*((v1_keras_layer, of) for of in both))),
    }
    if not words:
        of_sequence = fc.sequence_categorical_column_with_identity("a", 5)
        long, short = (table(of_sequence, size, max_sequence_length=3) for size in (3, 2))
        ordinary = fc.indicator_column(of_sequence)
        output = sum_of(
            (sequence_features, [long]),
            (sequence_input_layer, [short]),
            (sequence_features, [ordinary]),
        )
        found["two sequences and an indicator"] = ([long, short], output)
    return found


def features_of(rows, form, words):
    """Returns features a, b, w (weights of a) and n of a batch. `form` is "sparse" or "dense"."""
    weights = [[0.5 + i for i in row] for row in rows]
    if words:
        rows = [[WORDS[i] for i in row] for row in rows]
    dtype, padding = (object, "") if words else (np.int64, -1)
    if form == "sparse":
        found = {key: harness.sparse(of, dtype) for key, of in (("a", rows), ("b", rows[::-1]))}
        found["w"] = harness.sparse(weights, np.float32)
    else:
        ids = harness.matrix(rows, 3, dtype, padding)
        found = {"a": ids, "b": ids[::-1], "w": harness.matrix(weights, 3, np.float32, 0)}
    return {**found, "n": np.arange(4, dtype=np.float32)[:, None]}


def input_fn_of(form, words=False):
    batches = zip(IDS, LABELS, strict=True)
    return harness.input_fn_of(
        [(features_of(rows, form, words), labels) for rows, labels in batches]
    )


def results(estimator, input_fn, words, folder):
    """Trains two steps, evaluates, predicts and serves. Returns all values by name."""
    estimator.train(input_fn, steps=2)
    found = harness.saved(estimator.model_dir, 2)
    found |= estimator.evaluate(input_fn, steps=1)
    found["predicted"] = [one["out"] for one in estimator.predict(input_fn)]
    dense = features_of(IDS[0], "dense", words).items()
    given = {key: tf.constant(value) for key, value in dense}
    receive = harness.receiver_of(**{key: (one.dtype, one.shape) for key, one in given.items()})
    found |= harness.exported(estimator, folder, receive)(**given)
    return found


PIPELINED = (
    "an indicator, DenseFeatures",
    "two tables, columns made again by model_fn",
    "two shared tables",
)
"""Cases in which lookups are a step ahead. Their ids are dense."""


@pytest.mark.slow
@pytest.mark.sampled(6)
@pytest.mark.parametrize(
    "case, words", [(case, words) for words in (False, True) for case in cases(words)]
)
def test_columns_that_share_a_feature_train_like_stock(case, words, tmp_path):
    """Variables after two steps, metrics, predictions and served outputs equal those of stock."""
    ahead = case in PIPELINED
    input_fn = input_fn_of("dense" if ahead else "sparse", words)

    def trained(of_class):
        columns, output = cases(words)[case]

        def model_fn(features, labels, mode, params):
            out = output(features)
            if mode == ee.ModeKeys.PREDICT:
                return harness.served(mode, out=out)
            loss, train_op = tf.reduce_sum(out * labels), None
            if mode == ee.ModeKeys.TRAIN:
                optimizer = v1.train.GradientDescentOptimizer(RATE)
                train_op = optimizer.minimize(loss, v1.train.get_global_step())
            return ee.TPUEstimatorSpec(mode, loss=loss, train_op=train_op)

        spec = None
        if of_class is ee.TPUEstimator:
            sgd = ee.StochasticGradientDescentParameters(RATE)
            spec = ee.EmbeddingConfigSpec(columns, sgd, pipeline_execution_with_tensor_core=ahead)
        folder = tmp_path / str(of_class is Stock)
        options = {"of_class": of_class, "export_to_tpu": False}
        estimator = harness.estimator(model_fn, spec, folder, **options)
        return results(estimator, input_fn, words, folder / "export")

    harness.assert_same(trained(ee.TPUEstimator), trained(Stock))


@pytest.mark.parametrize("cores", [None, harness.slow(1)])
def test_columns_read_the_feature_of_a_config_dict(cores, tmp_path):
    """Columns read the feature of a table that has no column itself, but a FeatureConfig.

    Numeric and bucketized columns read the feature's activation. Off a TPU, others read its ids.
    """
    ids, gradients = np.array([1, 3, 1, 4]), LABELS[0]

    def model_fn(features, labels, mode, params):
        columns = [tf.feature_column.numeric_column("a", [3])]
        if not cores:
            columns.append(tf.feature_column.indicator_column(key_column("a")))
            number = tf.feature_column.numeric_column("a", [3], normalizer_fn=tf.identity)
            columns.append(tf.feature_column.bucketized_column(number, [0.0]))
        read = input_layer(features, columns)
        loss = None if labels is None else tf.reduce_sum(read * labels)
        return harness.minimized(mode, loss, predictions={"read": read})

    rows = np.cos(np.arange(15.0)).reshape(5, 3)  # By `start`.
    sgd = ee.StochasticGradientDescentParameters(RATE)
    spec = harness.tables_spec({"a": ee.TableConfig(5, 3, start)}, sgd)
    estimator = harness.estimator(model_fn, spec, tmp_path, num_shards=cores, run=harness.SILENT)
    input_fn = harness.input_fn_of([({"a": ids}, gradients)])
    estimator.train(input_fn, steps=1)
    got = [one["read"] for one in estimator.predict(input_fn)]
    np.subtract.at(rows, ids, RATE * gradients)  # The step of gradient descent.
    # `input_layer` orders its columns by name: a, a_bucketized, a_indicator.
    signs = np.stack([rows[ids] < 0, rows[ids] >= 0], axis=-1).reshape(4, 6)
    expected = rows[ids] if cores else np.hstack([rows[ids], signs, np.eye(5)[ids]])
    np.testing.assert_allclose(got, expected, rtol=1e-6)


# On a TPU, model_fn gets activations only. Errors of columns and ops that need ids say so.

ACTIVATION = (
    " In model_fn, features ['a'] are activations of embedding tables, not the ids that input_fn "
    "yields. To read ids too, copy them under a second key in input_fn."
)


def evaluation_error(error, tmp_path, columns, output, **where):
    """Evaluates a model of `output(features)`, which must raise `error`. Returns the message."""

    def model_fn(features, labels, mode, params):
        return ee.TPUEstimatorSpec(mode, loss=tf.reduce_sum(output(features) * labels))

    spec = ee.EmbeddingConfigSpec(columns, ee.StochasticGradientDescentParameters(0.5))
    with pytest.raises(error) as caught:
        estimator = harness.estimator(model_fn, spec, tmp_path, **where)
        estimator.evaluate(input_fn_of("dense"), steps=1)
    return str(caught.value)


def test_on_a_tpu_an_ordinary_column_of_the_feature_is_refused(tmp_path):
    columns, output = cases(words=False)["an indicator, input_layer"]
    message = evaluation_error(ValueError, tmp_path, columns, output, device="host")
    assert message == "Invalid input, not integer. key: a dtype: <dtype: 'float32'>" + ACTIVATION


@pytest.mark.fast(2)
@pytest.mark.parametrize(
    "read",
    [
        lambda ids: tf.one_hot(ids, 5),
        lambda ids: tf.gather(tf.zeros([5, 1]), ids),
        lambda ids: ids.dense_shape,
        lambda ids: tf.sparse.to_dense(ids),
        lambda ids: tf.strings.to_hash_bucket_fast(ids, 5),
    ],
)
def test_errors_of_ops_that_use_an_activation_as_ids_name_the_feature(read, tmp_path):
    def output(features):
        return summed(read(features["a"]))

    errors, columns = (TypeError, AttributeError), [table(key_column("a"))]
    assert evaluation_error(errors, tmp_path, columns, output).endswith(ACTIVATION)


def test_unrelated_errors_do_not_mention_activations(tmp_path):
    def output(features):
        return tf.matmul(features["a"], tf.ones([3, 1], tf.int32))  # float32 by int32.

    columns = [table(key_column("a"))]
    assert "activation" not in evaluation_error(TypeError, tmp_path, columns, output)


@pytest.mark.fast(3)
@pytest.mark.parametrize(
    "op, read",
    [
        ("NotEqual", lambda x: tf.cast(tf.not_equal(x, 0.0), tf.float32)),
        ("Equal", lambda x: tf.cast(tf.equal(tf.reshape(x, [-1, 3]), 4.0), tf.float32)),
        ("Cast", lambda x: tf.one_hot(tf.cast(x, tf.int32)[:, 0], 3)),
        (None, lambda x: 2 * tf.squeeze(x[:, None])),  # Good, so without a warning.
    ],
)
def test_warns_of_ops_that_use_an_activation_as_ids(op, read, tmp_path, caplog):
    """TensorFlow raises no error if a program compares an activation, or casts it to integers."""
    columns = [table(key_column("a"))]

    def model_fn(features, labels, mode, params):
        out = input_layer(features, columns) * read(features["a"])
        return ee.TPUEstimatorSpec(mode, predictions={"out": out})

    spec = ee.EmbeddingConfigSpec(columns, ee.AdagradParameters(0.5))
    estimator = harness.estimator(model_fn, spec, tmp_path)
    list(estimator.predict(input_fn_of("sparse")))
    warning = (
        f"model_fn reads features['a'] as ids (op {op}), and in model_fn it is the activation of "
        "an embedding table. To read ids too, copy them under a second key in input_fn."
    )
    found = [line for line in harness.said(caplog) if "as ids" in line]
    assert found == ([warning] if op else [])
