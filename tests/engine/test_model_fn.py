"""What a model_fn tells by its layers and gradients, and warnings if this differs for tables."""

import harness
import pytest
import tensorflow as tf

import feature_columns as fc
from estimator_emb.engine.cores import Cores
from estimator_emb.engine.gradient_capture import GradientCapture
from estimator_emb.engine.tables import creation, scopes
from estimator_emb.engine.tables.column_reads import ColumnReads
from estimator_emb.spec.resolved import tables_of_columns

v1 = tf.compat.v1
FROZEN, REGULARIZED = "trainable=False", "The regularizer of a variable scope"


def function(columns, **kwargs):
    return lambda features: v1.feature_column.input_layer(features, columns, **kwargs)


@pytest.mark.parametrize(
    "make, name, ignored",
    [
        (function, "s/input_layer", [REGULARIZED, FROZEN]),
        (v1.keras.layers.DenseFeatures, "s/dense_features", [REGULARIZED, FROZEN]),
        (tf.keras.layers.DenseFeatures, "s/dense_features", [FROZEN]),
    ],
)
def test_layers_record_their_columns_in_every_graph(make, name, ignored, caplog):
    a = fc.embedding_column(fc.categorical_column_with_identity("a", 5), 2)
    layer, activations = None, {"a": [[1.0, 2.0]]}
    for _ in range(2):
        scope = v1.variable_scope("s", regularizer=tf.square)
        with tf.Graph().as_default(), Cores().running(), scope:
            scopes.record()
            layer = layer or make([a], trainable=False)
            layer(activations)
            assert scopes.recorded() == {"a": f"{name}/a_embedding/embedding_weights"}
            assert scopes.dimensions() == {"a": 2}
            with v1.variable_scope("other"):
                said = harness.refusal(ValueError, make([a]), activations)
            assert said.startswith("For embedding var name a, the variable scope name is different")
            creation.create([], training=True, name_as_part=False, servers=1)
    no_effect = " has no effect on the tables of columns a, "
    assert sorted(one.partition(no_effect)[0] for one in harness.said(caplog)) == ignored


def test_columns_of_one_input_have_their_own_features():
    ids = fc.categorical_column_with_identity("a", 5)
    starts = tf.zeros_initializer(), tf.ones_initializer(), tf.random_normal_initializer()
    first, second, again = (fc.embedding_column(ids, 2, initializer=one) for one in starts)
    reads = ColumnReads(tables_of_columns([first, second], off_tpu=True), {}, {}, again=None)
    found = [reads.feature_of(column)[1].column for column in (first, second, again)]
    assert found == [first, second, first]  # `again` has a new initializer in each call.
    assert reads.feature_of(fc.embedding_column(ids, 3)) is None


class Halving(v1.train.GradientDescentOptimizer):
    """Changes gradients itself, as optimizers of Keras do."""

    def apply_gradients(self, pairs):
        return super().apply_gradients([(gradient / 2.0, variable) for gradient, variable in pairs])


PENALTY = "The loss has a penalty on tpu_embedding_dummy_table_variable, which stands for"
CHANGED = "model_fn changes gradients before its optimizer applies them"
same = lambda of_tables, of_w: (of_tables, of_w)  # noqa: E731
halved = lambda of_tables, of_w: (tf.debugging.check_numerics(of_tables, "") / 2.0, of_w)  # noqa: E731
by_norm = lambda of_tables, of_w: (of_tables, of_w / tf.norm(of_tables))  # noqa: E731


@pytest.mark.parametrize(
    "change, options, warnings",
    [
        (same, {}, []),
        (same, {"penalty": 0.1}, [PENALTY]),
        (same, {"optimizer": Halving}, []),
        (halved, {}, [CHANGED]),
        (halved, {"to_cores": True}, [CHANGED]),
        (by_norm, {}, []),
        (by_norm, {"to_cores": True}, []),
    ],
)
def test_changes_of_gradients_that_reach_no_table_are_named(change, options, warnings, caplog):
    with tf.Graph().as_default():
        capture = GradientCapture()
        x, y = (capture.through(key, tf.ones([2, 1])) for key in "xy")
        variables = [v1.local_variables()[0], v1.get_variable("w", [1, 1])]
        loss = tf.reduce_sum((x + y) @ variables[1])
        if "penalty" in options:
            loss += options["penalty"] * tf.reduce_sum(variables[0] ** 2)
        gradients = change(*tf.gradients(loss, variables))
        sent = gradients if "to_cores" in options else ()
        if not sent:
            optimizer = options.get("optimizer", v1.train.GradientDescentOptimizer)
            optimizer(0.5).apply_gradients(zip(gradients, variables, strict=True))
        capture.applied(sent_to_cores=sent)
    said = zip(harness.said(caplog), warnings, strict=True)
    assert all(one.startswith(warning) for one, warning in said)
