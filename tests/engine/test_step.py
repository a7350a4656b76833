"""What a step says of its features, and of settings and changes that reach no table."""

import harness
import pytest
import tensorflow as tf

import estimator_emb as ee
from estimator_emb.engine import tensor_core
from estimator_emb.engine.cores import Cores
from estimator_emb.engine.engine import TableStep
from estimator_emb.engine.tables import scopes
from estimator_emb.spec.resolved import tables_of

v1 = tf.compat.v1


def spec_of(keys="a", **kwargs):
    ids = [tf.feature_column.categorical_column_with_identity(key, 5) for key in keys]
    columns = [v1.tpu.experimental.embedding_column(one, 2, **kwargs) for one in ids]
    return ee.EmbeddingConfigSpec(columns, ee.StochasticGradientDescentParameters(0.5))


def test_features_must_be_a_dict():
    spec = spec_of()
    for features, got in ((tf.constant([1]), "a tensor"), ([1], "list")):
        step = TableStep(spec, tables_of(spec), training=False)
        assert harness.refusal(ValueError, step.enqueue, features).endswith(f"dict; got {got}.")


def test_ids_for_the_tensor_core_must_be_sparse_integers():
    spec = spec_of(embedding_lookup_device="tpu_tensor_core", tensor_core_shape=[None, 2])
    said = harness.refusal(KeyError, tensor_core.padded, spec, {"b": 1})
    assert "Feature a of column a_embedding is not among the features of the batch, ['b']." in said
    for ids in (tf.constant([[1]]), tf.sparse.from_dense([[1.0]])):
        said = harness.refusal(ValueError, tensor_core.padded, spec, {"a": ids})
        assert "ids must be a SparseTensor or RaggedTensor of integers; got " in said


def l2(variable):
    return v1.reduce_sum(variable * variable)


def test_each_change_that_reaches_no_table_is_named_once(caplog):
    spec = spec_of("ab")
    a, b = spec.feature_columns
    with tf.Graph().as_default(), Cores().running():
        features = dict.fromkeys("ab", tf.sparse.from_dense([[1], [3]]))
        scopes.record()
        pending = TableStep(spec, tables_of(spec), training=True).enqueue(features)
        with v1.variable_scope("s", regularizer=l2):
            seen = v1.feature_column.input_layer(pending.features, [a], trainable=False)
        seen += v1.keras.layers.DenseFeatures([b], trainable=False)(pending.features)
        penalty = v1.add_n([l2(one) for one in v1.trainable_variables()])
        step, optimizer = v1.train.get_global_step(), v1.train.GradientDescentOptimizer(1.0)
        train_op = optimizer.minimize(tf.reduce_sum(seen) + penalty, step)
        with tf.control_dependencies([train_op]):
            v1.train.ExponentialMovingAverage(0.5).apply(v1.trainable_variables())
        lookup = pending.create_tables()
        lookup.apply_gradients()
        assert [one.op.name for one in v1.global_variables()] == [
            "global_step",
            "s/input_layer/a_embedding/embedding_weights",
            "dense_features/b_embedding/embedding_weights",
        ]
    said = sorted(harness.said(caplog))
    assert [line.partition(", ")[0] for line in said] == [
        "Embedding tables have no moving averages",
        "The loss has a penalty on tpu_embedding_dummy_table_variable",
        "The regularizer of a variable scope has no effect on the tables of columns a",
        "trainable=False has no effect on the tables of columns a",
    ]
    assert said[-1].startswith("trainable=False has no effect on the tables of columns a, b, ")


def test_the_models_writes_wait_for_the_check_of_the_rates():
    spec = spec_of(learning_rate_fn=lambda step: tf.cast(step, tf.float32) - 5.0)
    with tf.Graph().as_default(), v1.Session() as session:
        features = {"a": tf.sparse.from_dense([[1], [3]])}
        pending = TableStep(spec, tables_of(spec), training=True).enqueue(features)
        bias = v1.get_variable("bias", initializer=2.0)
        train_op = bias.assign(7.0).op
        lookup = pending.create_tables()
        lookup.hold_writes(train_op)
        lookup.apply_gradients()
        session.run([v1.global_variables_initializer(), v1.local_variables_initializer()])
        with pytest.raises(tf.errors.InvalidArgumentError, match="not negative; got -5"):
            session.run(train_op)
        assert session.run(bias) == 2
