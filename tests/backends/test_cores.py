"""Emulated cores in one graph: the copies of a step, the ops between cores, and their context."""

import contextlib
import threading

import harness
import numpy as np
import processes
import pytest
import tensorflow as tf
from tensorflow.python.distribute import tpu_util
from tensorflow.python.ops import control_flow_util, gen_tpu_ops
from tensorflow.python.tpu import tpu_function
from tensorflow.python.tpu.ops import tpu_ops
from tensorflow_estimator.python.estimator.tpu import tpu_context

from estimator_emb.backends.local import HostContext, with_context
from estimator_emb.engine.cores import Cores

v1 = tf.compat.v1

VALUES = [np.array([[1.0, 2.0], [3.0, 4.0]]) * scale for scale in (1, 10, 100, 1000)]


def on_cores(build):
    """Returns the results of `build(x)` on each of 4 cores. On core c, x is VALUES[c]."""
    with tf.Graph().as_default(), v1.Session() as session:
        cores = Cores(4)
        x = cores.per_core([tf.constant(value, tf.float32) for value in VALUES])
        with cores.running():
            built = build(x)
        replicated = cores.replicate(tf.nest.flatten(built))
        session.run(v1.global_variables_initializer())
        return session.run(replicated)


def test_ops_without_per_core_inputs_are_shared():
    with tf.Graph().as_default() as graph:
        cores = Cores(3)
        x = cores.per_core([tf.constant(float(core)) for core in range(3)])
        square = tf.square(v1.get_variable("w", initializer=2.0, use_resource=True).read_value())
        y = x * square
        before = set(graph.get_operations())
        of_y, of_square = cores.replicate([y, square])
        # Core 0 keeps y, and the two other cores multiply their x by the same square.
        assert [op.type for op in graph.get_operations() if op not in before] == ["Mul", "Mul"]
        assert of_square == [square] * 3
        assert of_y[0] is y


def test_cross_replica_sum_of_all_cores_and_of_groups():
    everything, groups = on_cores(
        lambda x: [tpu_ops.cross_replica_sum(x), tpu_ops.cross_replica_sum(x, [[0, 3], [1, 2]])]
    )
    np.testing.assert_array_equal(everything, [sum(VALUES)] * 4)
    outer, inner = VALUES[0] + VALUES[3], VALUES[1] + VALUES[2]
    np.testing.assert_array_equal(groups, [outer, inner, inner, outer])


def test_gradient_of_cross_replica_sum_and_a_sum_of_sums():
    def build(x):
        gradient = tf.gradients(tf.reduce_sum(tpu_ops.cross_replica_sum(x * x) * x), x)[0]
        first = tpu_ops.cross_replica_sum(tf.reduce_sum(x))
        return [gradient, tpu_ops.cross_replica_sum(first * tf.reduce_max(x))]

    gradient, of_sums = on_cores(build)
    # d/dx_c of sum_k (sum_j x_j^2) x_k = sum_j x_j^2 + 2 x_c sum_k x_k
    squares, total = sum(v * v for v in VALUES), sum(VALUES)
    np.testing.assert_allclose(gradient, [squares + 2 * v * total for v in VALUES], rtol=1e-6)
    largest = sum(v.max() for v in VALUES)
    np.testing.assert_allclose(of_sums, [total.sum() * largest] * 4, rtol=1e-6)


GROUPS = [[0, 2], [3, 1]]


def test_all_to_all_and_its_gradient():
    def build(x):
        dimensions = {"concat_dimension": 1, "split_dimension": 0, "split_count": 2}
        moved = tpu_ops.all_to_all(x, group_assignment=GROUPS, **dimensions)
        assert moved.shape == [1, 4]
        weights = tf.constant([[1.0, 2.0, 3.0, 4.0]])
        return [moved, tf.gradients(tf.reduce_sum(moved * weights * x[0, 0]), x)[0]]

    moved, gradient = on_cores(build)
    by_row = [[v[:1], v[1:]] for v in VALUES]
    expected = {}
    for a, b in GROUPS:
        expected[a] = np.concatenate([by_row[a][0], by_row[b][0]], axis=1)
        expected[b] = np.concatenate([by_row[a][1], by_row[b][1]], axis=1)
    np.testing.assert_array_equal(moved, [expected[core] for core in range(4)])
    # Row r of core c is multiplied by its receiving core's scale, x[0, 0].
    scale = [v[0, 0] for v in VALUES]
    for a, b in GROUPS:
        for core, weights in ((a, [1.0, 2.0]), (b, [3.0, 4.0])):
            sent = np.array([weights, weights]) * [[scale[a]], [scale[b]]]
            own = (expected[core] * [[1.0, 2.0, 3.0, 4.0]]).sum()
            sent[0, 0] += own
            np.testing.assert_allclose(gradient[core], sent, rtol=1e-6)


def test_collective_permute_and_its_gradient():
    pairs = [[0, 1], [1, 2], [3, 0]]

    def build(x):
        moved = tpu_ops.collective_permute(x, pairs)
        loss = tf.reduce_sum(moved * tf.stop_gradient(x[1, 1]))
        return [moved, tf.gradients(loss, x)[0]]

    moved, gradient = on_cores(build)
    np.testing.assert_array_equal(moved, [VALUES[3], VALUES[0], VALUES[1], VALUES[0] * 0])
    scale = [VALUES[1][1, 1], VALUES[2][1, 1], 0, VALUES[0][1, 1]]  # Scale of the receiving core.
    np.testing.assert_array_equal(gradient, [np.full([2, 2], one) for one in scale])


def test_loops_and_branches_with_gradients(control_flow):
    """Loop lengths and branches differ between cores."""

    def build(x):
        w = v1.get_variable("w", initializer=2.0, use_resource=True)
        y = tf.while_loop(
            lambda y: tf.reduce_max(y) < 500.0, lambda y: [y * w], [x], maximum_iterations=20
        )[0]
        z = tf.cond(tf.reduce_sum(y) > 1500.0, lambda: y * w, lambda: tf.stop_gradient(y) - w)
        loss = tf.reduce_sum(z)
        return [loss, tf.gradients(loss, w, gate_gradients=True)[0]]

    losses, gradients = on_cores(build)
    for value, loss, gradient in zip(VALUES, losses, gradients, strict=True):
        times = 0
        while (value * 2.0**times).max() < 500:
            times += 1
        y = value.sum() * 2.0**times
        if y > 1500:
            assert (loss, gradient) == (y * 2, (times + 1) * y)
        else:
            assert (loss, gradient) == (y - 8, -4)  # z has 4 values, each smaller by w = 2.


def test_a_sum_inside_a_loop_is_refused(control_flow, assert_recorded):
    """The sum would need tensors inside the loops of the other cores, which no op can read."""

    def build(x):
        return tf.while_loop(
            lambda i: i < 3, lambda i: [i + tpu_ops.cross_replica_sum(i)], [tf.reduce_sum(x)]
        )

    refused = harness.refusal(NotImplementedError, on_cores, build)
    assert_recorded(refused)  # "... inside a loop ... cannot be emulated on 4 cores".


def test_cross_replica_sum_refuses_groups_computed_at_run_time():
    def build(x):
        return tpu_ops.cross_replica_sum(x, tf.cast(x[:1] * 0, tf.int32))

    said = "group_assignment must be known when the graph is built; got <tf.Tensor"
    assert harness.refusal(ValueError, on_cores, build).startswith(f"cross_replica_sum: {said}")


def test_every_core_draws_its_own_random_numbers(control_flow):
    def build(x):
        kept = tf.nn.dropout(tf.ones([100]), rate=0.5, seed=1)
        scalar = tf.constant([], tf.int32)
        drawn = lambda: tf.raw_ops.RandomUniform(shape=scalar, dtype=tf.float32, seed=1)  # noqa: E731
        add = lambda sum_: [sum_ + tf.cond(sum_ < 99, drawn, lambda: 0.0)]  # noqa: E731
        return kept, tf.while_loop(lambda sum_: sum_ < 20, add, [0.0])[0]

    kept, sums = on_cores(build)
    assert len({tuple(one) for one in kept}) == len(set(sums)) == 4  # The cores draw differently.
    assert all(20 <= one < 21 for one in sums)  # The last of the numbers below 1 goes beyond 20.


def test_core_0_writes_and_others_wait_for_it():
    """Batch normalization: each core has its statistics, and core 0 writes the moving average."""
    with tf.Graph().as_default(), v1.Session() as session:
        cores = Cores(2)
        x = cores.per_core([tf.constant(value, tf.float32) for value in VALUES[:2]])
        with cores.running():
            normal = v1.layers.batch_normalization(x, momentum=0.5, training=True, epsilon=0.0)
            check = tf.raw_ops.Assert(condition=x[0, 0] < 99, data=[x], name="check")
            with tf.control_dependencies([*v1.get_collection(v1.GraphKeys.UPDATE_OPS), check]):
                output = tf.identity(normal)
        (outputs,) = cores.replicate([output])
        assert output.graph.get_operation_by_name("core_1/check")  # Each core runs its own.
        session.run(v1.global_variables_initializer())
        session.run(outputs[1])
        moving = v1.global_variables()[2]
        assert moving.op.name == "batch_normalization/moving_mean"
        np.testing.assert_allclose(session.run(moving), [1.0, 1.5])  # Half of core 0's mean.
        for got in session.run(outputs):
            np.testing.assert_allclose(got, [[-1, -1], [1, 1]], rtol=1e-5)


def test_ref_variables_are_written_once():
    with tf.Graph().as_default(), v1.Session() as session:
        cores = Cores(3)
        x = cores.per_core([tf.constant(value, tf.float32) for value in VALUES[:3]])
        variable = v1.get_variable("w", initializer=0.0, use_resource=False)
        y = x * v1.assign_add(variable, tf.reduce_sum(x))
        (got,) = cores.replicate([y])
        session.run(variable.initializer)
        np.testing.assert_array_equal(session.run(got), [value * 10 for value in VALUES[:3]])
        assert session.run(variable) == 10  # The sum of core 0's values.


@pytest.mark.parametrize("of_input", [True, False])
def test_host_context_describes_one_core(of_input):
    """params["context"] of an input_fn (`of_input`) or a model_fn, in a program with one core."""
    input_fn = with_context(lambda params: params["context"])
    context = input_fn(params={}) if of_input else HostContext(call_from_input_fn=False)
    assert isinstance(context, tpu_context.TPUContext)
    assert (context.num_replicas, context.num_hosts, context.num_of_replicas_per_host) == (1, 1, 1)
    assert context.device_for_replica(0) == ("/device:CPU:0", 0)
    assert context.tpu_host_placement_function(host_id=0) == "/device:CPU:0"
    of_input_fn = [lambda: context.current_host, context.current_input_fn_deployment]
    of_model_fn = [lambda: context.device_assignment]
    here, elsewhere = (of_input_fn, of_model_fn) if of_input else (of_model_fn, of_input_fn)
    assert [get() for get in here] == ([0, ("/device:CPU:0", 0, 1, 1)] if of_input else [None])
    place = "input_fn" if of_input else "model_fn"
    for get in elsewhere:
        message = f"This TPUContext instance must not be called from {place}."
        assert harness.refusal(RuntimeError, get) == message


@pytest.mark.parametrize(
    "op",
    [
        lambda x, name: v1.tpu.cross_replica_sum(x, [[0]], name),
        lambda x, name: tpu_ops.collective_permute(x, [[0, 0]], name),
        lambda x, name: tpu_ops.all_to_all(x, 1, 0, 1, [[0]], name),
    ],
)
def test_collectives_are_identities_on_one_core(op):
    with tf.Graph().as_default(), v1.Session() as session:
        x = tf.constant(VALUES[0], tf.float32)
        with Cores().running():
            result = op(x, name="result")
            (slope,) = tf.gradients(result * result, x)
        assert result.op.name == "result"
        np.testing.assert_array_equal(session.run(result), VALUES[0])
        np.testing.assert_array_equal(session.run(slope), 2 * VALUES[0])


def shards():
    """Returns the cores that TensorFlow's shard context tells CrossShardOptimizer, or None."""
    return tpu_function.get_tpu_context().number_of_shards


def test_ops_are_restored_after_an_exception():
    original = gen_tpu_ops.cross_replica_sum
    with pytest.raises(KeyError):
        with Cores().running():
            assert gen_tpu_ops.cross_replica_sum is not original and shards() == 1
            raise KeyError("in model_fn")
    assert gen_tpu_ops.cross_replica_sum is original and shards() is None


@pytest.mark.parametrize("shard_context", [True, False])
def test_nested_cores_leave_the_outer_core_active(shard_context):
    """TensorFlow itself refuses nested shard contexts. Without them, nesting changes nothing."""
    with Cores().running():
        inside = gen_tpu_ops.cross_replica_sum
        refused = pytest.raises(NotImplementedError, match="^tpu_shard_context cannot be nested")
        with refused if shard_context else contextlib.nullcontext():
            with Cores().running(shard_context):
                assert gen_tpu_ops.cross_replica_sum is inside and shards() == 1
        assert gen_tpu_ops.cross_replica_sum is inside and shards() == 1


@pytest.mark.parametrize("shard_context", [True, False])
def test_cores_are_isolated_between_threads(shard_context):
    """Two estimators run model_fn in two threads, each with its own cores."""
    both, done = threading.Barrier(2, timeout=processes.HANGS), threading.Event()
    found = {}

    def summed(count):
        with tf.Graph().as_default() as graph:
            cores = Cores(count)
            with cores.running(shard_context):
                both.wait()
                v1.tpu.cross_replica_sum(tf.constant([1.0]), [list(range(count))])
                both.wait()
                found[count] = shards(), bool(cores.collectives)  # One core has nothing to sum.
                done.wait(processes.HANGS)
            assert "CrossReplicaSum" not in {op.type for op in graph.get_operations()}

    threads = [threading.Thread(target=summed, args=[count]) for count in (1, 2)]
    for thread in threads:
        thread.start()
    while len(found) < 2 and all(thread.is_alive() for thread in threads):
        threads[0].join(0.01)
    with tf.Graph().as_default():  # A third thread, outside any model_fn.
        total = v1.tpu.cross_replica_sum(tf.constant([1.0]), [[0]])
        assert total.op.type == "CrossReplicaSum"
    done.set()
    for thread in threads:
        thread.join()
    assert found == {count: (count if shard_context else None, count > 1) for count in (1, 2)}


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


@pytest.mark.parametrize("count", [1, 2])
def test_programs_see_the_xla_context_of_a_tpu(count, control_flow):
    want = on_a_tpu()
    assert want["body"] == dict.fromkeys(want["body"], True)
    with tf.Graph().as_default():
        assert asked() == dict.fromkeys(want["body"], False)
        outside = tf.no_op()
        with Cores(count).running(numbered=True):
            assert everywhere(outside) == want


def test_tensorflow_itself_sees_no_tpu_context():
    """In an XLA context, TensorFlow would make ops that do not run on a CPU."""
    with tf.Graph().as_default() as graph, v1.Session() as session:
        with Cores(2).running(numbered=True):
            images = tf.nn.avg_pool2d(tf.ones([1, 4, 4, 1]), 2, 1, "SAME")
            slopes = tf.gradients(tf.nn.dropout(tf.nn.bias_add(images, [1.0]), rate=0.5), images)
        assert session.run(slopes)[0].shape == (1, 4, 4, 1)
    kinds = {op.type for op in graph.get_operations()}
    assert {"AvgPool", "BiasAdd", "RandomUniform"} <= kinds


@pytest.mark.parametrize("cores", [2, None])
def test_a_model_can_ask_whether_it_is_compiled(cores, tmp_path):
    """Text-to-text programs ask, because a summary fails a step on a TPU. None: not emulated."""
    seen = {}

    def model_fn(features, labels, mode, params):
        seen["model_fn"] = asked()["GetContainingXLAContext"]
        loss = tf.reduce_mean(features) * v1.get_variable("w", initializer=1.0)
        if not seen["model_fn"]:
            v1.summary.scalar("of_model", loss)

        def metrics(loss):
            seen["metrics"] = asked()["GetContainingXLAContext"]
            return {"mean": v1.metrics.mean(loss)}

        return harness.minimized(mode, loss, eval_metrics=(metrics, [loss[None]]))

    def input_fn(params):
        seen["input_fn"] = asked()["InXlaContext"]
        return tf.data.Dataset.from_tensors(tf.ones([params["batch_size"], 1])).repeat()

    made = harness.estimator(model_fn, None, tmp_path, num_shards=cores)
    made.evaluate(input_fn, steps=1)
    compiled = cores is not None
    # tensorflow-estimator calls the function of eval_metrics in its own XLA context.
    assert seen == {"input_fn": False, "model_fn": compiled, "metrics": compiled}
