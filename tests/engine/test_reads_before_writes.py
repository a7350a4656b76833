"""A step reads the values from before the step, however slow the read is.

Each case delays the read, or its user, until the write would long be done. The expected values are
those of a step that computes all outputs from its inputs, as a TPU's step does.
"""

import contextlib
import cProfile
import itertools
import pstats

import numpy as np
import pytest
import tensorflow as tf
from delays import control_flow, held_back, slowly

from estimator_emb.engine.ordering import accesses, reads_before_writes, variable_reads

v1 = tf.compat.v1


def in_function(variable):
    @tf.function
    def read():
        with held_back():
            return variable * 1.0

    return read()


def in_branch(variable):
    def late():
        with held_back():
            return tf.identity(variable) * 1.0

    # A write that waits for an op in the branch that is not taken would never run.
    never = lambda: tf.cond(tf.identity(True), lambda: variable * 1.0, lambda: tf.zeros([2]))  # noqa: E731
    return tf.cond(slowly(tf.constant(True)), late, never)


def in_loop(variable):
    """Sums two times a half of the variable, in a loop in a loop."""

    def inner(i, total):
        with held_back():
            return i + 1, total + tf.identity(variable) / 2.0

    outer = lambda i, total: tf.while_loop(lambda j, _: j <= i, inner, [i, total])  # noqa: E731
    return tf.while_loop(lambda i, _: i < 2, outer, [slowly(tf.constant(0)), tf.zeros([2])])[1]


READS = {
    "value": lambda variable: tf.identity(variable) * 1.0,
    "gather": lambda variable: tf.gather(variable, [0, 1]),
    "gather_nd": lambda variable: tf.gather_nd(variable, [[0], [1]]),
    "function": in_function,
    "branch": in_branch,
    "loop": in_loop,
}


def by_function(variable):
    @tf.function
    def write():
        variable.assign_add([1.0, 1.0])

    write()
    return [op for op in v1.get_default_graph().get_operations() if "Call" in op.type][-1]


def by_branch(variable):
    return tf.cond(
        v1.placeholder_with_default(True, []),
        lambda: tf.group(variable.assign_add([1.0, 1.0])),
        lambda: tf.group(tf.no_op()),
    )


def by_loop(variable):
    def body(i):
        with tf.control_dependencies([variable.assign_add([0.5, 0.5])]):
            return i + 1

    return tf.nest.flatten(tf.while_loop(lambda i: i < 2, body, [tf.constant(0)]))[0].op


def by_optimizer(gradient):
    optimizer = v1.train.GradientDescentOptimizer(1.0)
    return lambda variable: optimizer.apply_gradients([(gradient(), variable)])


WRITES = {
    "assign": lambda variable: variable.assign(variable + 1.0).op,
    "assign_add": lambda variable: variable.assign_add([1.0, 1.0]).op,
    "assign_sub": lambda variable: variable.assign_sub([-1.0, -1.0]).op,
    "scatter": lambda variable: v1.scatter_add(variable, [0, 1], [1.0, 1.0]).op,
    "optimizer": by_optimizer(lambda: tf.constant([-1.0, -1.0])),
    "sparse optimizer": by_optimizer(
        lambda: tf.IndexedSlices(tf.constant([-1.0, -1.0]), tf.constant([0, 1]), tf.constant([2]))
    ),
    "function": by_function,
    "branch": by_branch,
    "loop": by_loop,
}


def variable_of(resource, name="v", shape=(2,)):
    return v1.get_variable(name, shape, initializer=v1.zeros_initializer(), use_resource=resource)


def in_steps(write, *fetched, steps=3):
    """Returns the values of each of `fetched` in some steps that also run `write`."""
    with v1.Session() as session:
        session.run([v1.global_variables_initializer(), v1.local_variables_initializer()])
        seen = [session.run([*fetched, write])[:-1] for _ in range(steps)]
    return [[value.tolist() for value in of_one] for of_one in zip(*seen, strict=True)]


def values_read(read, write, every_step=True):
    """Returns the values of `read` in some steps that also run `write`."""
    reads_before_writes.order([write, *([read] if every_step else [])], [read])
    return in_steps(write, read)[0]


BEFORE = [[0.0, 0.0], [1.0, 1.0], [2.0, 2.0]]
AFTER = [[1.0, 1.0], [2.0, 2.0], [3.0, 3.0]]


def pairs():
    """Pairs every read with `assign_add`, and three of the reads with every write."""
    for read, write in itertools.product(READS, WRITES):
        if read not in ("value", "branch", "loop") and write != "assign_add":
            continue
        has_flow = not {"branch", "loop"}.isdisjoint((read, write))
        for version in (1, 2) if has_flow else (2,):
            # In TensorFlow, a function cannot capture a reference variable.
            if "function" not in (read, write) and (version == 1 or not has_flow):
                yield False, version, read, write
            yield True, version, read, write


@pytest.mark.fast(5)
@pytest.mark.parametrize(("resource", "version", "read", "write"), pairs())
def test_a_variable_is_read_first(resource, version, read, write):
    with control_flow(version), tf.Graph().as_default():
        variable = variable_of(resource)
        with held_back():
            value = READS[read](variable)
        assert values_read(value, WRITES[write](variable)) == BEFORE


@pytest.mark.parametrize("resource", [True, False])
@pytest.mark.parametrize("every_step", [True, False])
def test_a_separately_fetched_value_is_read_first(resource, every_step):
    """Every step fetches the value beside the train_op, as a loss, or some do, as a summary."""
    with tf.Graph().as_default():
        variable = variable_of(resource)
        # A read that only some steps fetch can join every step if it waits for nothing else.
        with held_back() if every_step else contextlib.nullcontext():
            value = tf.identity(variable)
        late = slowly(tf.reshape(value, [2]))
        assert values_read(late, variable.assign_add([1.0, 1.0]).op, every_step) == BEFORE


def test_the_buffer_of_a_reference_variable_is_not_fetched():
    """Identity and Reshape share the variable's buffer, into which the step writes meanwhile."""
    with tf.Graph().as_default():
        variable = variable_of(False)
        value = tf.reshape(tf.identity(variable), [2])
        assert values_read(value, variable.assign_add([1.0, 1.0]).op) == BEFORE


def test_adam_powers_are_read_before_they_are_updated():
    """Holds also if the first variable is a reference variable: then Adam's powers are too."""
    with tf.Graph().as_default():
        variables = [
            v1.get_variable(name, [], initializer=v1.ones_initializer(), use_resource=resource)
            for name, resource in (("a", False), ("b", True))
        ]
        optimizer = v1.train.AdamOptimizer(0.1, beta1=0.9, beta2=0.99)
        train_op = optimizer.minimize(variables[0] * 3.0 + variables[1] * 5.0)
        assert reads_before_writes.order([train_op], []) > 0
        with v1.Session() as session:
            session.run(v1.global_variables_initializer())
            for step in range(1, 4):
                session.run(train_op)
                # With a constant gradient, each moves by the learning rate.
                np.testing.assert_allclose(session.run(variables), 1 - 0.1 * step, rtol=1e-5)


@pytest.mark.parametrize("rows", [4, 1 << 15])  # More than 64 KiB is large: see the next test.
def test_a_reader_of_a_reference_variable_may_wait_for_its_write(rows):
    """The read was before the write. So its late reader needs a copy, large or not."""
    with tf.Graph().as_default():
        variable = variable_of(False, shape=[rows])
        value = tf.reshape(tf.identity(variable), [rows, 1])
        write = variable.assign_add(tf.ones([rows])).op
        with tf.control_dependencies([write]):
            late = tf.reduce_max(value * 1.0) * tf.ones([2])
        assert values_read(late, write) == BEFORE


@pytest.mark.parametrize("rows, copies", [(1 << 14, 1), ((1 << 14) + 1, 0)])  # 64 KiB.
def test_no_step_copies_a_large_reference_variable_for_a_fetch(rows, copies):
    with tf.Graph().as_default() as graph:
        variable = v1.get_variable("v", initializer=tf.zeros([rows]), use_resource=False)
        reads_before_writes.order([variable.assign(variable + 1.0).op], [variable * 2.0])
    assert [op.type for op in graph.get_operations()].count("DeepCopy") == copies


@pytest.mark.parametrize("resource", [True, False])
def test_explicit_control_dependencies_are_kept(resource):
    with tf.Graph().as_default():
        variable = variable_of(resource)
        average = variable_of(True, "average")
        write = variable.assign_add([1.0, 1.0])
        with tf.control_dependencies([write]), held_back():
            after = tf.identity(variable) * 1.0
            moved = v1.assign_add(average, tf.identity(variable))
        with held_back():
            before = tf.identity(average) * 1.0
        step = tf.group(write, moved)
        reads_before_writes.order([step, after, before])
        sums = [[0.0, 0.0], [1.0, 1.0], [1.0 + 2.0, 1.0 + 2.0]]  # Of AFTER, in earlier steps.
        assert in_steps(step, after, before) == [AFTER, sums]


# A function cannot capture a reference variable.
@pytest.mark.parametrize("resource, version", [(True, 1), (True, 2), (False, 1)])
@pytest.mark.parametrize("nested", [False, True])
def test_a_read_after_a_loop_stays_after_it(resource, version, nested):
    with tf.Graph().as_default(), control_flow(version):
        variable = variable_of(resource)

        def inner(i, total):
            with held_back():
                within = tf.identity(variable) * 1.0
            # A loop of version 2 is a function, in which the program orders its ops.
            with tf.control_dependencies([within] if version == 2 else []):
                added = variable.assign_add([0.5, 0.5])
            with tf.control_dependencies([added]):
                return i + 1, total + within

        def outer(i, total):
            return tf.while_loop(lambda j, _: j < i + 2, inner, [i, total])

        # Nested or not, the loops add 0.5 twice. Each time, they read the variable before.
        done = tf.while_loop(lambda i, _: i < 2, outer if nested else inner, [0, tf.zeros([2])])
        with tf.control_dependencies(done):
            after = variable.read_value() * 1.0
        with held_back():
            before = tf.identity(variable) * 1.0
        write = tf.group(done)
        reads_before_writes.order([write, after, before])
        totals = [[0.0 + 0.5] * 2, [1.0 + 1.5] * 2, [2.0 + 2.5] * 2]
        assert in_steps(write, after, before, done[1]) == [AFTER, BEFORE, totals]


@pytest.mark.parametrize("resource", [True, False])
def test_a_cycle_is_left_open_at_its_last_edge(resource):
    # The program reads each variable after writing the other.
    with tf.Graph().as_default():
        first, second = (variable_of(resource, name, shape=[]) for name in "ab")
        add_first, add_second = first.assign_add(1.0).op, second.assign_add(1.0).op
        with tf.control_dependencies([add_second]), held_back():
            read_first = first.read_value()
        with tf.control_dependencies([add_first]), held_back():
            read_second = second.read_value()
        edges = reads_before_writes.order([add_first, add_second, read_first, read_second])
        seen = in_steps([add_first, add_second], read_first, read_second)
    if resource:  # Only the first is read before its write.
        assert (edges, seen) == (1, [[0.0, 1.0, 2.0], [1.0, 2.0, 3.0]])
    else:  # Both are copied before their writes, so there is no cycle.
        assert (edges, seen) == (2, [[0.0, 1.0, 2.0]] * 2)


def nodes(graph):
    return {node.name: list(node.input) for node in graph.as_graph_def().node}


def test_unneeded_ops_do_not_join_the_step():
    """Of these reads, the gathered row's needs only an initialized variable, so it joins."""
    with tf.Graph().as_default() as graph:
        variable = variable_of(True)
        unset = v1.Variable([1.0], collections=[], use_resource=True, name="unset")
        with tf.control_dependencies([v1.placeholder(tf.float32, [])]):
            waiting = variable.read_value()  # Would fail in a step without the feed.
        other = v1.get_variable("other", initializer=lambda: variable.read_value())
        write = tf.group(variable.assign_add([1.0, 1.0]), unset.assign([2.0]))
        # An op that some steps fetch waits too, unless it may initialize the variable.
        rare = [variable.assign_sub([1.0, 1.0]).op, variable.assign([1.0, 1.0]).op]
        not_fetched = tf.gather(variable, [0]) + unset.read_value()  # The second would fail.
        v1.train.Saver([variable, other]).build()  # Reads both, but only to save them.
        (row,) = (op.name for op in graph.get_operations() if op.type == "ResourceGather")
        waiting += 1.0
        before = nodes(graph)
        reads_before_writes.order([write], [waiting, not_fetched, *rare])
        after = nodes(graph)
        with v1.Session() as session:
            session.run(variable.initializer)
            session.run(other.initializer)
            for _ in range(3):
                session.run(write)
            assert session.run(variable).tolist() == [3.0, 3.0]
    changed = {name: [one for one in after[name] if one not in before[name]] for name in before}
    assert {name: added for name, added in changed.items() if added} == {
        "AssignAddVariableOp": [f"^{row}"],
        "AssignSubVariableOp": [f"^{row}"],
    }
    assert set(after) == set(before)


def test_a_summary_of_a_table_does_not_copy_it_in_every_step():
    with tf.Graph().as_default():
        table = v1.get_variable("t", [1 << 20, 4], initializer=v1.ones_initializer())
        gradient = tf.IndexedSlices(tf.ones([1, 4]), tf.constant([7]), tf.constant([1 << 20, 4]))
        write = v1.train.GradientDescentOptimizer(1.0).apply_gradients([(gradient, table)])
        row = tf.identity(table)[7] * 1.0
        reads_before_writes.order([write], [row])
        config = v1.ConfigProto()
        config.graph_options.rewrite_options.disable_meta_optimizer = True  # It may drop the read.
        with v1.Session(config=config) as session:
            session.run(v1.global_variables_initializer())
            session.run(write)
            options = v1.RunOptions(trace_level=v1.RunOptions.FULL_TRACE)
            metadata = v1.RunMetadata()
            session.run(write, options=options, run_metadata=metadata)
            assert session.run([row, write])[0].tolist() == [1.0 - 2] * 4  # After 2 steps.
    nodes = [node for device in metadata.step_stats.dev_stats for node in device.node_stats]
    allocated = [memory.total_bytes for node in nodes for memory in node.memory]
    assert max(allocated, default=0) < 1 << 18  # The table has 1 << 24.


def calls_to_order(ops):
    """Counts the function calls that ordering a graph of `ops` ops takes."""
    with tf.Graph().as_default():
        tensor = tf.constant(1.0)
        variables = [
            v1.get_variable(f"v{i}", [], initializer=v1.ones_initializer())
            for i in range(ops // 50)
        ]
        for i in range(ops):
            tensor = tf.raw_ops.AddV2(x=tensor, y=tensor) if i % 50 else tensor * variables[i // 50]
        step = tf.group(*(one.assign_add(tensor) for one in variables))
        with cProfile.Profile() as profile:
            reads_before_writes.order([step])
    return pstats.Stats(profile).total_calls


def test_ordering_takes_linear_time():
    assert calls_to_order(400) < 4.1 * calls_to_order(100)


def test_a_variable_of_another_process_is_read_alone(monkeypatch):
    """One op reads all variables of this process. A server's variable needs its own op there."""
    devices = tf.config.list_physical_devices("CPU")  # As on a machine without a GPU.
    monkeypatch.setattr(tf.config, "list_physical_devices", lambda: devices)
    with tf.Graph().as_default():
        here = variable_of(True, "here")
        with tf.device("/job:ps/task:0"):
            there = variable_of(True, "there")
        update = v1.scatter_add(there, [0], [1.0]).op
        reads = variable_reads.in_place([here, there], v1.ConfigProto())
        # The reads run between steps, so the update need not wait for them.
        assert reads_before_writes.order([update], reads.values()) == 0
    types = {name: read.op.type for name, read in reads.items()}
    assert types == {"here:0": "_ReadVariablesOp", "there:0": "ReadVariableOp"}


def test_the_accesses_of_a_captured_variable_are_found():
    """The inner function captures the variable through the outer, which only calls the inner."""
    with tf.Graph().as_default() as graph:
        graphs, variable = [graph], v1.get_variable("v", [2], use_resource=True)
        twin = tf.raw_ops.VarHandleOp(dtype=tf.float32, shape=[2], shared_name="v")

        @tf.function
        def outer():
            graphs.append(v1.get_default_graph())
            handle = tf.identity(graphs[1].capture(variable.handle))
            tf.function(lambda: inner(handle))()

        def inner(handle):
            graphs.append(v1.get_default_graph())
            value = tf.raw_ops.ReadVariableOp(resource=handle, dtype=tf.float32)
            tf.raw_ops.AssignAddVariableOp(resource=twin, value=value)

        outer.get_concrete_function()
    found = [list(accesses.variables_of(graph)) for graph in graphs]
    assert [[one.name for one in of_graph] for of_graph in found] == [["v"]] * 3
    types = [[[op.type for op in ops] for ops in (one.reads, one.writes)] for (one,) in found]
    of_graph = [["ReadVariableOp"], ["AssignVariableOp"]]
    of_outer = [[], ["StatefulPartitionedCall"]]  # A call that reads and writes is a write.
    of_inner = [["ReadVariableOp"], ["AssignAddVariableOp"]]
    assert types == [of_graph, of_outer, of_inner]


def test_an_op_may_get_a_list_of_reference_variables():
    with tf.Graph().as_default() as graph:
        refs = [v1.get_variable(name, [], use_resource=False)._ref() for name in "ab"]
        tf.raw_ops.RefSelect(index=0, inputs=refs)  # Passes one on, and neither reads nor writes.
        tf.raw_ops.SdcaShrinkL1(weights=refs, l1=0.5, l2=0.5)
        reader = tf.raw_ops.AddN(inputs=refs).op  # Writes nothing, so it leaves no variable out.
        found = [(one.reads, one.writes) for one in accesses.variables_of(graph, {reader})]
    types = [[[op.type for op in ops] for ops in of_variable] for of_variable in found]
    assert types == [[["AddN"], ["Assign", "SdcaShrinkL1"]]] * 2  # Initializers assign.


def test_a_loop_of_v1_behind_a_trained_layer_trains_as_one_of_v2():
    """The loop's gradient leaves it through an Identity, as in `tf.compat.v1.nn.dynamic_rnn`."""
    trained = []
    for version in (1, 2):
        with control_flow(version), tf.Graph().as_default(), v1.Session() as session:
            start = v1.constant_initializer(0.5)
            first, second = (v1.get_variable(name, [3, 3], initializer=start) for name in "ab")
            body = lambda i, y: (i + 1, tf.tanh(y @ second))  # noqa: B023, E731
            y = tf.while_loop(
                lambda i, _: i < 3, body, [0, tf.constant([[1.0, 2.0, 3.0]]) @ first]
            )[1]
            step = v1.train.AdamOptimizer(0.1).minimize(tf.reduce_mean(tf.square(y - 1.0)))
            assert reads_before_writes.order([step]) > 0
            session.run(v1.global_variables_initializer())
            for _ in range(2):
                session.run(step)
            trained.append(session.run([first, second]))
    np.testing.assert_allclose(*trained, rtol=1e-6)
