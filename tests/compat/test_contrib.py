# SPDX-License-Identifier: Apache-2.0
"""tf.contrib's layers against NumPy, and what is said about names that are gone."""

import re
import sys

import numpy as np
import pytest
import tensorflow as tf

import estimator_emb as ee
from estimator_emb.compat import changes, contrib, legacy_names

tf1 = tf.compat.v1


def evaluated(build):
    """The value of what `build` returns, with every variable set to 1.5 times its initial value."""
    with tf.Graph().as_default(), tf1.Session() as session:
        result = build()
        session.run(tf1.global_variables_initializer())
        for variable in tf1.global_variables():
            session.run(tf1.assign(variable, 1.5 * variable + 0.25))
        names = {v.op.name: v.shape.as_list() for v in tf1.trainable_variables()}
        return session.run(result), names


INPUTS = np.random.default_rng(0).normal(3, 2, [2, 3, 4, 5]).astype(np.float32)


@pytest.mark.parametrize(
    "norm, params, axes, shape",
    [(-1, -1, (3,), [5]), (1, -1, (1, 2, 3), [5]), (2, 1, (2, 3), [3, 4, 5])],
)
def test_layer_norm(norm, params, axes, shape):
    actual, names = evaluated(
        lambda: contrib.layer_norm(
            INPUTS, begin_norm_axis=norm, begin_params_axis=params, activation_fn=tf.nn.relu
        )
    )
    mean = INPUTS.mean(axes, keepdims=True)
    deviation = np.sqrt(INPUTS.var(axes, keepdims=True))
    expected = np.maximum(0, (INPUTS - mean) / deviation * 1.75 + 0.25)  # gamma and beta
    np.testing.assert_allclose(actual, expected, rtol=1e-4, atol=1e-5)
    assert names == {"LayerNorm/beta": shape, "LayerNorm/gamma": shape}


def test_layer_norm_without_variables_in_a_scope_and_reused():
    plain, names = evaluated(
        lambda: contrib.layer_norm(INPUTS, center=False, scale=False, begin_norm_axis=-1)
    )
    assert names == {}
    np.testing.assert_allclose(plain.mean(-1), 0, atol=1e-5)

    def twice():
        first = contrib.layer_norm(
            INPUTS, scope="norm", trainable=False, variables_collections=["mine"]
        )
        second = contrib.layer_norm(INPUTS, scope="norm", reuse=True, outputs_collections="outputs")
        assert [v.op.name for v in tf1.get_collection("mine")] == ["norm/beta", "norm/gamma"]
        assert [v.op.name for v in tf1.model_variables()] == ["norm/beta", "norm/gamma"]
        assert tf1.get_collection("outputs") == [second]
        return first, second

    (first, second), names = evaluated(twice)
    np.testing.assert_array_equal(first, second)
    assert names == {}


def test_layer_norm_refuses():
    with tf.Graph().as_default():
        unknown = tf1.placeholder(tf.float32)
        with pytest.raises(ValueError, match="inputs must have a known rank; got Tensor"):
            contrib.layer_norm(unknown)
        with pytest.raises(ValueError) as error:
            contrib.layer_norm(INPUTS, begin_norm_axis=4)
        assert str(error.value) == (
            "layer_norm: begin_norm_axis must be an axis of inputs, which have 4; got 4."
        )
        unknown = tf1.placeholder(tf.float32, [2, None])
        with pytest.raises(ValueError) as error:
            contrib.layer_norm(unknown)
        assert str(error.value) == (
            "layer_norm: the shape of inputs must be known from begin_params_axis on; got "
            "(2, None)."
        )


def test_initializers():
    def drawn(initializer):
        with tf.Graph().as_default(), tf1.Session() as session:
            return session.run(initializer([300, 500]))

    limit = np.sqrt(3 / 400)
    values = drawn(contrib.xavier_initializer(seed=1))
    assert 0.99 * limit < abs(values).max() <= limit
    np.testing.assert_allclose(values.var(), 1 / 400, rtol=0.02)
    # A normal distribution of variance 1.3 f / n, of which cutting at 2 leaves 0.7737.
    for values, n in (
        (drawn(contrib.xavier_initializer(uniform=False, seed=1)), 400),
        (drawn(contrib.variance_scaling_initializer(2.0, "FAN_IN", seed=1)), 150),
        (drawn(contrib.variance_scaling_initializer(2.0, "FAN_OUT", seed=1)), 250),
    ):
        np.testing.assert_allclose(abs(values).max(), 2 * np.sqrt(1.3 / n), rtol=1e-3)
        np.testing.assert_allclose(values.var(), 1.3 * 0.7737 / n, rtol=0.02)
    with pytest.raises(ValueError) as error:
        contrib.variance_scaling_initializer(mode="fan_in")
    assert str(error.value) == (
        "variance_scaling_initializer: mode must be FAN_IN, FAN_OUT or FAN_AVG; got 'fan_in'."
    )


def test_regularizers():
    weights = np.array([[1.0, -2.0], [3.0, 0.5]], np.float32)
    l1, _ = evaluated(lambda: contrib.l1_regularizer(0.1)(tf.constant(weights)))
    l2, _ = evaluated(lambda: contrib.l2_regularizer(0.1)(tf.constant(weights)))
    np.testing.assert_allclose([l1, l2], [0.65, 0.7125], rtol=1e-6)
    assert contrib.l2_regularizer(0.0)(tf.constant(weights)) is None
    with pytest.raises(ValueError) as error:
        contrib.l1_regularizer(-1)
    assert str(error.value) == "l1_regularizer: scale must be a number >= 0; got -1."


@pytest.fixture(scope="module")
def tf_contrib():
    ee.install()
    made = changes.Changes()
    yield contrib.install(made)
    made.undo()
    ee.uninstall()


def test_every_name_of_contrib_is_where_the_table_says(tf_contrib):
    for path, members in contrib._MEMBERS.items():
        for name in members:
            assert contrib.has_path(tf_contrib, f"{path}.{name}") or name in (
                "RaggedTensorStructure",
            ), (path, name)
    assert tf_contrib.tpu.CrossShardOptimizer is tf1.tpu.CrossShardOptimizer
    assert tf_contrib.data.map_and_batch is tf1.data.experimental.map_and_batch
    batches = list(tf.data.Dataset.range(5).apply(tf_contrib.data.batch_and_drop_remainder(2)))
    assert [batch.numpy().tolist() for batch in batches] == [[0, 1], [2, 3]]


def test_contrib_modules_are_importable(tf_contrib):
    from tensorflow.contrib import cluster_resolver, layers, summary, tpu  # noqa: F401
    from tensorflow.contrib.tpu.python.tpu import (  # noqa: F401
        bfloat16,
        tpu_config,
        tpu_estimator,
        tpu_function,
        tpu_optimizer,
    )
    from tensorflow.contrib.training.python.training import evaluation

    assert tpu_config.TPUConfig and tpu_estimator.TPUEstimator
    assert tpu_optimizer.CrossShardOptimizer is tpu.CrossShardOptimizer
    assert evaluation.checkpoints_iterator is tf1.train.checkpoints_iterator
    with tf.Graph().as_default(), summary.always_record_summaries():
        assert summary.all_summary_ops() == []


def test_a_name_that_is_gone_says_where_it_is(tf_contrib):
    for path, message in (
        ("slim", "tf.contrib.slim left TensorFlow with version 2. Today: the package tf_slim."),
        (
            "layers.fully_connected",
            "tf.contrib.layers.fully_connected left TensorFlow with version 2. Today: "
            "tf.layers.dense.",
        ),
        (
            "ffmpeg",
            "tf.contrib.ffmpeg left TensorFlow with version 2, and estimator_emb does not have it. "
            "The package tf_slim has much of tf.contrib.",
        ),
    ):
        with pytest.raises(AttributeError, match="^" + re.escape(message) + "$"):
            contrib._follow(tf_contrib, path)
        parent, _, leaf = f"tensorflow.contrib.{path}".rpartition(".")
        with pytest.raises(ImportError, match="^" + re.escape(message) + "$"):
            exec(f"from {parent} import {leaf}")
    with pytest.raises(ImportError, match="tf.contrib.rnn left TensorFlow .*rnn_cell"):
        import tensorflow.contrib.rnn.python  # noqa: F401
    assert not hasattr(tf_contrib, "__wrapped__")


def advice_for(program):
    try:
        exec(program)
    except Exception as error:
        return legacy_names.advice(error)
    raise AssertionError("no error")


@pytest.mark.parametrize(
    "program, advice",
    [
        ("tf.contrib.tpu", "tf.contrib is a part of TensorFlow 1: try --tf-v1."),
        ("import tensorflow.contrib.slim", "tf.contrib is a part of TensorFlow 1: try --tf-v1."),
        (
            "tf.placeholder",
            "tf.placeholder is a name of TensorFlow 1: try --tf-v1. In TensorFlow 2 it is "
            "tf.compat.v1.placeholder.",
        ),
        (
            "tf.train.AdamOptimizer",
            "tf.train.AdamOptimizer is a name of TensorFlow 1: try --tf-v1. In TensorFlow 2 it is "
            "tf.compat.v1.train.AdamOptimizer.",
        ),
        ("tf.nonsense", None),
        ("tf.compat.v1.nonsense", None),
        ("import nonsense", None),
        ("{}['contrib']", None),
        ("contrib.nonsense", None),
    ],
)
def test_advice(program, advice, monkeypatch):
    if "import tensorflow.contrib" in program:
        finders = [f for f in sys.meta_path if not isinstance(f, contrib._Finder)]
        monkeypatch.setattr(sys, "meta_path", finders)
        monkeypatch.delitem(sys.modules, "tensorflow.contrib", raising=False)
    assert advice_for(program) == advice


def test_advice_about_the_estimator_of_tensorflow_1():
    ee.install()
    try:
        assert advice_for("tf.estimator.tpu.TPUEstimator") == (
            "tf.estimator.tpu is a name of TensorFlow 1: try --tf-v1. In TensorFlow 2 it is "
            "tf.compat.v1.estimator.tpu."
        )
    finally:
        ee.uninstall()
