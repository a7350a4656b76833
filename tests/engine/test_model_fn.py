"""The uses of columns and gradients that a model_fn makes, and warnings if tables differ."""

import harness
import pytest
import tensorflow as tf

import feature_columns as fc
from estimator_emb.engine.cores import Cores
from estimator_emb.engine.gradient_capture import GradientCapture
from estimator_emb.engine.tables import scopes

v1 = tf.compat.v1
LAYERS = {
    "function": lambda columns, **kwargs: (
        lambda features: v1.feature_column.input_layer(features, columns, **kwargs)
    ),
    "keras 1": v1.keras.layers.DenseFeatures,
    "keras 2": tf.keras.layers.DenseFeatures,
}


@pytest.mark.parametrize("make", LAYERS.values(), ids=LAYERS)
def test_a_layer_records_its_columns_in_every_graph(make, caplog):
    a = fc.embedding_column(fc.categorical_column_with_identity("a", 5), 2)
    layer, names, activations = None, [], {"a": [[1.0, 2.0]]}
    for _ in range(2):
        with tf.Graph().as_default(), Cores().running(), v1.variable_scope("s"):
            scopes.record()
            layer = layer or make([a], trainable=False)
            layer(activations)
            names += scopes.recorded().values()
            assert scopes.dimensions() == {"a": 2}
            scopes.warn_of_ignored()
            with v1.variable_scope("other"):
                said = harness.refusal(ValueError, make([a]), activations)
            assert said.startswith("For embedding var name a, the variable scope name is different")
    assert names[0] == names[1] and names[0].endswith("/a_embedding/embedding_weights")
    (said,) = harness.said(caplog)
    assert said.startswith("trainable=False has no effect on the tables of columns a, ")


SGD = v1.train.GradientDescentOptimizer(0.5)


class Halving(v1.train.GradientDescentOptimizer):
    """Changes gradients itself, as optimizers of Keras do."""

    def apply_gradients(self, grads_and_vars):
        return super().apply_gradients([(g / 2.0, v) for g, v in grads_and_vars])


def trained(loss, change=lambda pairs: pairs, optimizer=SGD):
    optimizer.apply_gradients(change(SGD.compute_gradients(loss)))
    return []


def penalized(loss):
    return trained(loss + tf.add_n([tf.reduce_sum(v * v) for v in v1.trainable_variables()]))


def halved(pairs):
    return [(tf.debugging.check_numerics(g, "g") / 2.0, v) for g, v in pairs]


def clipped_for_w(pairs):
    norm = tf.linalg.global_norm([g for g, _ in pairs])
    return [(g / norm if v.op.name == "w" else g, v) for g, v in pairs]


def sent(change):
    """Returns a function that returns what it sends to the cores: gradients or their norms."""
    return lambda loss: change(tf.identity(SGD.compute_gradients(loss)[0][0]))


PENALTY, CHANGE = "The loss has a penalty on ", "model_fn changes gradients before its optimizer "


@pytest.mark.parametrize(
    "train, warnings",
    [
        (trained, []),
        (penalized, [PENALTY]),
        (lambda loss: trained(loss, halved), [CHANGE]),
        (lambda loss: trained(loss, clipped_for_w), []),
        (lambda loss: trained(loss, optimizer=Halving(0.5)), []),
        (sent(lambda gradient: [gradient / 2.0]), [CHANGE]),
        (sent(lambda gradient: [gradient, tf.norm(gradient)]), []),
    ],
)
def test_changes_of_gradients_that_reach_no_table_are_named(train, warnings, caplog):
    with tf.Graph().as_default():
        capture = GradientCapture()
        x, y = (capture.through(key, tf.ones([2, 1])) for key in "xy")
        loss = tf.reduce_sum((x + y) @ v1.get_variable("w", [1, 1]))
        capture.applied(train(loss))
    said = harness.said(caplog)
    assert len(said) == len(warnings)
    assert all(map(str.startswith, said, warnings))
