"""Tests of `compat.tpu_embedding_gradient`, and of TensorFlow's own module on 2.15."""

import collections
import importlib
from types import SimpleNamespace

import harness
import numpy as np
import pytest
import tensorflow as tf

from estimator_emb.compat import tpu_embedding_gradient as ours

THEIRS = "tensorflow.python.tpu.tpu_embedding_gradient"
v1 = tf.compat.v1


def fake_embedding():
    """Two tables: `user` with features a (a sequence) and b, `item` with feature c."""
    feature = collections.namedtuple("feature", "table_id max_sequence_length")
    table = collections.namedtuple("table", "dimension")
    return SimpleNamespace(
        batch_size_per_core=4,
        table_to_config_dict=collections.OrderedDict(user=table(2), item=table(3)),
        table_to_features_dict=collections.OrderedDict(user=["a", "b"], item=["c"]),
        feature_to_config_dict=collections.OrderedDict(
            c=feature("item", 0), b=feature("user", 0), a=feature("user", 5)
        ),
    )


def activations():
    return collections.OrderedDict(b=tf.ones([4, 2]), c=tf.ones([4, 3]), a=tf.ones([4, 5, 2]))


def build(module, loss_fn):
    """Returns a model's graph, its hooked activations (arguments of `loss_fn`), and gradients."""
    embedding = fake_embedding()
    with tf.Graph().as_default() as graph:
        dummies, _ = module.create_dummy_table_variables(embedding)
        hooked = module.hook_dummy_table_variables_to_activations(embedding, activations(), dummies)
        v1.train.GradientDescentOptimizer(0.5).minimize(loss_fn(hooked))
        return graph, hooked, module.get_gradients_through_dummy_table_variables(embedding)


def test_unused_features_get_zeros(module):
    graph, _, gradients = build(module, lambda hooked: tf.reduce_sum(hooked["b"]))
    handles = [op for op in graph.get_operations() if op.type == "VarHandleOp"]  # One per table.
    assert [tf.TensorShape(op.get_attr("shape")) for op in handles] == [[1], [1]]
    assert list(gradients) == ["a", "b", "c"]
    assert gradients["b"].op.type == "Identity"  # A gradient, not zeros: only b is in the loss.
    for name, shape in {"a": [4, 5, 2], "c": [4, 3]}.items():
        # Not run in a session, because the graph has an op that only a TPU runs.
        zeros = tf.get_static_value(gradients[name])
        np.testing.assert_array_equal(zeros, np.zeros(shape, np.float32), strict=True)


def test_gradients_through_compute_gradients(module):
    with tf.Graph().as_default():
        inputs = activations()
        loss = tf.reduce_sum(inputs["b"] * 2.0) + tf.reduce_sum(inputs["c"] ** 3)
        optimizer = v1.train.GradientDescentOptimizer(0.5)
        gradients = module.get_gradients_through_compute_gradients(optimizer, loss, inputs)
        assert list(gradients) == ["b", "c", "a"]
        assert gradients["a"] is None
        with v1.Session() as session:
            b, c = session.run([gradients["b"], gradients["c"]])
    np.testing.assert_array_equal(b, np.full([4, 2], 2.0))
    np.testing.assert_array_equal(c, np.full([4, 3], 3.0))


def test_a_used_collection_is_refused():
    """Gradients that an earlier call left there would be taken for those of this model."""
    with tf.Graph().as_default():
        v1.add_to_collection("tpu_embedding_gradients_table_1", "something")
        with pytest.raises(RuntimeError, match="tpu_embedding_gradients_table_1 already has grad"):
            ours.create_dummy_table_variables(fake_embedding())


def test_warns_of_tables_without_gradients(monkeypatch, assert_recorded):
    """Of three models, all features, all but one of table user, and no features have a gradient."""
    said = []
    monkeypatch.setattr(ours.logging, "warning", lambda text, *args: said.append(text % args))
    for of_user, of_item in ((["x", "y"], ["z"]), (["x", None], ["z"]), ([None, None], [None])):
        with tf.Graph().as_default():
            for table, gradients in enumerate((of_user, of_item)):
                for gradient in gradients:
                    v1.add_to_collection(f"tpu_embedding_gradients_table_{table}", gradient)
            ours.get_gradients_through_dummy_table_variables(fake_embedding())
        assert_recorded("\n".join(said))  # All lines until now. After the first model, none.
    of_second, *of_third = [line.partition(" has ")[0] for line in said]
    assert of_second == "Table user (id 0)"
    assert of_third == ["Table user (id 0)", "Table item (id 1)", "No table"]


@pytest.mark.skipif(not harness.IS_2_15, reason="TensorFlow >= 2.16 has no original")
@pytest.mark.parametrize("used", ["abc", "b"])
def test_graph_and_collections_equal_the_original(used):
    def loss_fn(hooked):
        return sum(tf.reduce_sum(hooked[key] ** 2 * (3.0 + i)) for i, key in enumerate(used))

    def described(module):
        graph, hooked, gradients = build(module, loss_fn)
        names = [name for name in graph.collections if isinstance(name, str)]
        collections = {name: str(graph.get_collection(name)) for name in names}
        return graph.as_graph_def(), collections, [*hooked], [*gradients]

    own, original = map(described, (ours, importlib.import_module(THEIRS)))
    assert len(own[0].node) > 20  # Two empty graphs would be equal too.
    assert own == original
