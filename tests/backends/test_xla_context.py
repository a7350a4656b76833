"""Programs that ask whether XLA compiles their model, compared with TensorFlow's context."""

import harness
import pytest
import tensorflow as tf
from tensorflow.python.distribute import tpu_util
from tensorflow.python.ops import control_flow_util

from estimator_emb.engine.cores import Cores

v1 = tf.compat.v1


def asked(op=None):
    """Returns a program's questions about its XLA context, with the answers."""
    graph = v1.get_default_graph()
    context = graph._get_control_flow_context()
    op = tf.no_op() if op is None else op
    return {
        "GetContainingXLAContext": control_flow_util.GetContainingXLAContext(context) is not None,
        "InXlaContext": control_flow_util.InXlaContext(graph),
        "IsInXLAContext": control_flow_util.IsInXLAContext(op),
        "tpu_util.enclosing_tpu_context": tpu_util.enclosing_tpu_context() is not None,
    }


def everywhere(outside):
    """Returns the answers at each place of a model. `outside` is an op made before the model."""
    found = {"body": asked(), "of an op before it": asked(outside)}

    def at(place, returned=0.0):
        found[place] = asked()
        return tf.constant(returned)

    with tf.init_scope():
        at("init_scope")
    with tf.control_dependencies(None):
        at("control_dependencies(None)")
    with tf.name_scope("scope"), tf.control_dependencies([tf.no_op()]):
        at("control_dependencies")
    tf.cond(tf.constant(True) & True, lambda: at("true branch"), lambda: at("false branch"))
    tf.while_loop(lambda i: at("condition") + i < 1.0, lambda i: at("loop") + i + 1.0, [0.0])
    tf.function(lambda: at("function"))()
    tf.function(lambda: at("function without AutoGraph"), autograph=False)()
    return found


def on_a_tpu():
    with tf.Graph().as_default():
        outside, found = tf.no_op(), {}

        def model(x):
            found.update(everywhere(outside))
            return x

        v1.tpu.replicate(model, [[tf.constant(1.0)]])
        return found


def emulated(count):
    with tf.Graph().as_default():
        outside = tf.no_op()
        with Cores(count).running(numbered=True):
            return everywhere(outside)


@pytest.mark.parametrize("count", [1, 2])
def test_programs_see_the_xla_context_of_a_tpu(count, control_flow):
    want = on_a_tpu()
    assert want["body"] == dict.fromkeys(want["body"], True)
    assert emulated(count) == want
    with tf.Graph().as_default():
        assert asked() == dict.fromkeys(want["body"], False)


def test_tensorflow_itself_sees_no_tpu_context():
    """In an XLA context, TensorFlow would make ops that do not run on a CPU."""
    with tf.Graph().as_default() as graph, v1.Session() as session:
        with Cores(2).running(numbered=True):
            images = tf.nn.avg_pool2d(tf.ones([1, 4, 4, 1]), 2, 1, "SAME")
            slopes = tf.gradients(tf.nn.dropout(tf.nn.bias_add(images, [1.0]), rate=0.5), images)
        assert session.run(slopes)[0].shape == (1, 4, 4, 1)
    kinds = {op.type for op in graph.get_operations()}
    assert {"AvgPool", "BiasAdd", "RandomUniform"} <= kinds


def test_a_model_writes_summaries_only_if_it_is_not_compiled(tmp_path):
    """As text-to-text programs do. On a TPU, such a summary would fail the step."""
    asked_in = []

    def model_fn(features, labels, mode, params):
        context = v1.get_default_graph()._get_control_flow_context()
        asked_in.append(control_flow_util.GetContainingXLAContext(context) is not None)
        loss = tf.reduce_mean(features) * v1.get_variable("w", initializer=1.0)
        if not asked_in[-1]:
            v1.summary.scalar("of_model", loss)

        def metrics(loss):
            asked_in.append(asked()["GetContainingXLAContext"])
            return {"mean": v1.metrics.mean(loss)}

        return harness.minimized(mode, loss, eval_metrics=(metrics, [loss[None]]))

    def input_fn(params):
        asked_in.append(asked()["InXlaContext"])
        return tf.data.Dataset.from_tensors(tf.ones([params["batch_size"], 1])).repeat()

    for cores, answers in ((2, [False, True]), (None, [False, False])):
        asked_in.clear()
        made = harness.estimator(model_fn, None, tmp_path / str(cores), num_shards=cores)
        made.train(input_fn, steps=1)
        assert asked_in[:2] == answers
        asked_in.clear()
        made.evaluate(input_fn, steps=1)
        # tensorflow-estimator calls host functions in its own XLA context.
        assert asked_in == [*answers, cores is not None][: len(asked_in)]
        assert len(asked_in) >= 2
