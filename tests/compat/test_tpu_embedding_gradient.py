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
    return collections.OrderedDict(
        [("b", tf.ones([4, 2])), ("c", tf.ones([4, 3])), ("a", tf.ones([4, 5, 2]))]
    )


def build(module, loss_fn):
    """Returns a model's graph, its hooked activations (arguments of `loss_fn`), and gradients."""
    embedding = fake_embedding()
    with tf.Graph().as_default() as graph:
        dummies, _ = module.create_dummy_table_variables(embedding)
        hooked = module.hook_dummy_table_variables_to_activations(embedding, activations(), dummies)
        loss = loss_fn(hooked)
        v1.train.GradientDescentOptimizer(0.5).minimize(loss)
        gradients = module.get_gradients_through_dummy_table_variables(embedding)
    return graph, hooked, gradients


def all_used(hooked):
    return sum(tf.reduce_sum(x * x * (3.0 + i)) for i, x in enumerate(hooked.values()))


def test_creates_variables_and_collections(module):
    with tf.Graph().as_default():
        dummies, init_op = module.create_dummy_table_variables(fake_embedding())
        assert list(dummies) == ["user", "item"]
        assert [v.op.name for v in dummies.values()] == [
            "tpu_embedding_dummy_table_variable_user",
            "tpu_embedding_dummy_table_variable_item",
        ]
        assert [(v.shape.as_list(), v.dtype) for v in dummies.values()] == [([1], tf.float32)] * 2
        assert init_op.name == "tpu_embedding_dummy_table_variables_init"
        names = [v.name for v in dummies.values()]
        for collection in ("tpu_embedding_dummy_table_variables", "trainable_variables"):
            assert [v.name for v in v1.get_collection(collection)] == names
        assert v1.global_variables() == []
        assert v1.get_collection("tpu_embedding_gradients_table_0") == [None, None]
        assert v1.get_collection("tpu_embedding_gradients_table_1") == [None]


def test_used_collection_is_refused():
    with tf.Graph().as_default():
        v1.add_to_collection("tpu_embedding_gradients_table_1", "something")
        make = ours.create_dummy_table_variables
        assert harness.refusal(RuntimeError, make, fake_embedding()) == (
            "The graph collection tpu_embedding_gradients_table_1 already has gradients."
        )


def test_hooked_activations_and_their_gradients(module):
    _, hooked, gradients = build(module, all_used)
    assert list(hooked) == ["b", "c", "a"]
    attributes = {
        name: (x.op.type, x.op.get_attr("table_id"), x.op.get_attr("lookup_id"), x.shape.as_list())
        for name, x in hooked.items()
    }
    assert attributes == {
        "b": ("TPUEmbeddingActivations", 0, 1, [4, 2]),
        "c": ("TPUEmbeddingActivations", 1, 0, [4, 3]),
        "a": ("TPUEmbeddingActivations", 0, 0, [4, 5, 2]),
    }
    assert [(name, g.op.type, g.shape.as_list()) for name, g in gradients.items()] == [
        ("a", "Identity", [4, 5, 2]),
        ("b", "Identity", [4, 2]),
        ("c", "Identity", [4, 3]),
    ]


def test_unused_features_get_zeros(module):
    _, _, gradients = build(module, lambda hooked: tf.reduce_sum(hooked["b"]))
    assert list(gradients) == ["a", "b", "c"]
    assert gradients["b"].op.type == "Identity"
    for name, shape in {"a": [4, 5, 2], "c": [4, 3]}.items():
        # Not run in a session, because the graph has an op that only a TPU runs.
        zeros = tf.get_static_value(gradients[name])
        np.testing.assert_array_equal(zeros, np.zeros(shape, np.float32), strict=True)


def warnings_of(monkeypatch, gradients_of_tables):
    seen = []
    monkeypatch.setattr(ours.logging, "warning", lambda text, *args: seen.append(text % args))
    with tf.Graph().as_default() as graph:
        for table_id, gradients in enumerate(gradients_of_tables):
            ref = graph.get_collection_ref(f"tpu_embedding_gradients_table_{table_id}")
            ref.extend(gradients)
        ours.get_gradients_through_dummy_table_variables(fake_embedding())
    return seen


TABLE_WARNING = (
    "Table %s (id %d) has features without a gradient: their activations are not used in the loss, "
    "or tf.stop_gradient() hides them. TPUEmbedding will get zeros, which some optimizers (not "
    "SGD, AdaGrad, FTRL) tell from no gradient."
)
ALL_WARNING = (
    "No table has a gradient: the activations of TPUEmbedding are not used in the loss. If "
    "tf.stop_gradient() is applied to all of them, its INFERENCE mode may fit better."
)


def test_warns_of_tables_without_gradients(monkeypatch):
    assert warnings_of(monkeypatch, [["x", "y"], ["z"]]) == []
    assert warnings_of(monkeypatch, [["x", None], ["z"]]) == [TABLE_WARNING % ("user", 0)]
    assert warnings_of(monkeypatch, [[None, None], [None]]) == [
        TABLE_WARNING % ("user", 0),
        TABLE_WARNING % ("item", 1),
        ALL_WARNING,
    ]


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


@pytest.mark.skipif(not harness.IS_2_15, reason="TensorFlow >= 2.16 has no original")
@pytest.mark.parametrize("loss_fn", [all_used, lambda hooked: tf.reduce_sum(hooked["b"])])
def test_graph_equals_the_original(loss_fn):
    modules = ours, importlib.import_module(THEIRS)
    own, original = (build(module, loss_fn)[0].as_graph_def() for module in modules)
    assert len(own.node) > 20
    assert own == original
