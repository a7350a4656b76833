"""N cores in one graph: the copies of a step, and the ops between cores."""

import harness
import numpy as np
import pytest
import tensorflow as tf
from tensorflow.python.tpu.ops import tpu_ops

from estimator_emb.engine.cores import Cores

v1 = tf.compat.v1

VALUES = [np.array([[1.0, 2.0], [3.0, 4.0]]) * scale for scale in (1, 10, 100, 1000)]


def on_cores(build):
    """Returns the results of `build(x)` on each core, with variables initialized."""
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
        moved = tpu_ops.all_to_all(
            x, concat_dimension=1, split_dimension=0, split_count=2, group_assignment=GROUPS
        )
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
            assert (loss, gradient) == (y - 8, -4)


def test_a_sum_inside_a_loop_is_refused(control_flow, same_message):
    def build(x):
        return tf.while_loop(
            lambda i: i < 3, lambda i: [i + tpu_ops.cross_replica_sum(i)], [tf.reduce_sum(x)]
        )

    same_message(harness.refusal(NotImplementedError, on_cores, build))


def test_cross_replica_sum_refuses_groups_computed_at_run_time():
    def build(x):
        return tpu_ops.cross_replica_sum(x, tf.cast(x[:1] * 0, tf.int32))

    assert harness.refusal(ValueError, on_cores, build).startswith(
        "cross_replica_sum: group_assignment must be known when the graph is built; got <tf.Tensor"
    )


@pytest.mark.parametrize("control_flow", ["v1"], indirect=True)
def test_every_core_draws_its_own_random_numbers(control_flow):
    def build(x):
        kept = tf.nn.dropout(tf.ones([100]), rate=0.5, seed=1)
        draw = lambda sum_: [sum_ + tf.random.uniform([], seed=1)]  # noqa: E731
        return kept, tf.while_loop(lambda sum_: sum_ < 20, draw, [0.0])[0]

    kept, sums = on_cores(build)
    assert len({tuple(one) for one in kept}) == len(set(sums)) == 4
    assert all(20 <= one < 21 for one in sums)


def test_core_0_writes_and_others_wait_for_it():
    """Batch normalization: each core has its statistics, and core 0 writes the moving average."""
    with tf.Graph().as_default(), v1.Session() as session:
        cores = Cores(2)
        x = cores.per_core([tf.constant(value, tf.float32) for value in VALUES[:2]])
        with cores.running():
            normal = v1.layers.batch_normalization(x, momentum=0.5, training=True, epsilon=0.0)
            with tf.control_dependencies(v1.get_collection(v1.GraphKeys.UPDATE_OPS)):
                output = tf.identity(normal)
        (outputs,) = cores.replicate([output])
        session.run(v1.global_variables_initializer())
        session.run(outputs[1])
        moving = v1.global_variables()[2]
        assert moving.op.name == "batch_normalization/moving_mean"
        np.testing.assert_allclose(session.run(moving), [1.0, 1.5])
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
        assert session.run(variable) == 10
