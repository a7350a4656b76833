"""A step that fails on a bad batch writes nothing, whatever model_fn writes."""

import itertools

import delays
import harness
import numpy as np
import pytest
import tensorflow as tf

import estimator_emb as ee
from estimator_emb.engine.cores import Cores
from estimator_emb.engine.engine import TableStep
from estimator_emb.engine.ordering import after_checks
from estimator_emb.engine.tables.helper_variable import HELPER_VARIABLE
from estimator_emb.spec.resolved import tables_of

v1 = tf.compat.v1
GOOD = {"x": np.array([0, 1, 2, 3], np.int32), "y": harness.sparse([[1], [], [2, 2], [0]])}
IDS = GOOD["y"]
BAD = [  # Sparse ids, and the message of the check that they fail.
    (IDS._replace(values=np.array([1, 2, 2])), "its ids have 3 values, but indices of shape [4 2]"),
    (IDS._replace(dense_shape=[-4, 2]), "the dense shape [-4 2] of its ids is negative."),
]


class Model:
    """A training step with every kind of write that needs no lookup. Batches are fed."""

    def __init__(self, build, *arguments):
        self.fed = {
            "x": v1.placeholder(tf.int32, [None]),
            "y": v1.sparse_placeholder(tf.int64, [None, None]),
        }
        tables = dict.fromkeys("xy", ee.TableConfig(4, 2))
        spec = harness.tables_spec(tables, ee.AdagradParameters(0.5, 0.1))
        with Cores().running():
            pending = TableStep(spec, tables_of(spec), training=True).enqueue(self.fed)
            seen = pending.features
            step = v1.train.get_or_create_global_step()
            train_op = build(*arguments, tf.reduce_sum(seen["x"]) + tf.reduce_sum(seen["y"]), step)
            lookup = pending.create_tables()
            lookup.hold_writes(train_op)
            self.step = tf.group(train_op, lookup.apply_gradients())
        assert not v1.get_collection(v1.GraphKeys.SUMMARIES)  # Only if they are asked for.
        self.variables = {one.name: one for one in v1.global_variables()}

    def run(self, session, y=IDS):
        batch = {**GOOD, "y": y}
        session.run(self.step, {self.fed[key]: value for key, value in batch.items()})


def variable(name, resource):
    return v1.get_variable(name, [3], initializer=v1.ones_initializer(), use_resource=resource)


def minimized(optimizer, resource, loss, step):
    loss += tf.reduce_sum(variable("bias", resource))
    rows = tf.gather(v1.get_variable("rows", [5, 2], use_resource=resource), [1, 3])
    return optimizer(0.1).minimize(loss + tf.reduce_sum(rows), step)


def assigned(resource, loss, step):
    train = v1.train.GradientDescentOptimizer(0.1).minimize(loss, step)
    first, second = variable("first", resource), variable("second", resource)
    many = v1.get_variable("many", [5, 2], use_resource=resource)
    return tf.group(
        train,
        v1.assign_add(first, [1, 2, 3]),
        v1.assign(second, tf.zeros([3])),
        v1.scatter_update(many, [2], [[7.0, 7.0]]),
    )


def small():
    return v1.train.get_global_step() < 100


def increased(within, loss, step):
    """Increases a variable in a function that `within` runs: as a tf.function, branch or loop."""
    train = v1.train.GradientDescentOptimizer(0.1).minimize(loss, step)
    bias = variable("bias", True)

    def increase(number=0):
        with tf.control_dependencies([bias.assign_add([1.0, 2.0, 3.0])]):
            return number + tf.constant(1)

    return tf.group(train, within(increase))


BUILDS = {
    "sgd": (minimized, v1.train.GradientDescentOptimizer, True),
    "adam": (minimized, v1.train.AdamOptimizer, True),
    "assigned": (assigned, True),
    "ref variables assigned": (assigned, False),
    "function": (increased, lambda increase: tf.function(increase)()),
    "branch": (increased, lambda increase: tf.cond(small(), increase, lambda: tf.constant(0))),
    "loop": (increased, lambda increase: tf.while_loop(lambda i: i < 3, increase, [0])),
}


@pytest.mark.fast(4)
@pytest.mark.parametrize(
    "kind, use_native, version",  # The version of TensorFlow's control flow.
    [*itertools.product(BUILDS, "01", [2]), ("loop", "1", 1), ("branch", "1", 1)],
)
def test_a_failed_check_stops_every_write(kind, use_native, version, native, monkeypatch):
    monkeypatch.setenv("ESTIMATOR_EMB_NATIVE", use_native)
    with delays.control_flow(version), tf.Graph().as_default(), v1.Session() as session:
        model = Model(*BUILDS[kind])
        session.run([v1.global_variables_initializer(), v1.local_variables_initializer()])
        for bad, message in BAD:
            before = session.run(model.variables)
            with pytest.raises(tf.errors.InvalidArgumentError) as error:
                model.run(session, y=bad)
            assert f"assertion failed: [Feature y of table y: {message}" in error.value.message
            np.testing.assert_equal(session.run(model.variables), before)
        model.run(session)
        for name, value in session.run(model.variables).items():
            if HELPER_VARIABLE not in name:  # It only lets optimizers compute gradients.
                assert np.any(value != before[name]), name
    if kind == "loop" and version == 1:  # Its ops are in the graph itself.
        assert any(op.type == "Enter" for op in model.step.graph.get_operations())


def test_a_write_that_the_check_needs_does_not_wait():
    with tf.Graph().as_default(), v1.Session() as session:
        counter = v1.get_variable("counter", initializer=0, use_resource=True)
        with tf.control_dependencies([counter.assign_add(1, read_value=False)]):
            checked = tf.identity(True)
        after_checks.wait([tf.group(counter.assign_add(10, read_value=False), checked.op)], checked)
        session.run(v1.global_variables_initializer())
        session.run(checked)
        assert session.run(counter) == 1  # The check ran: its own write does not wait for it.
