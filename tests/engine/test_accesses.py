"""The reads and writes of variables that share a name, or that a function captures."""

import tensorflow as tf

from estimator_emb.engine.ordering import accesses

v1 = tf.compat.v1


def test_handles_with_one_shared_name_are_one_variable():
    with tf.Graph().as_default() as graph:
        for name in ("shared", "shared", "", ""):
            handle = tf.raw_ops.VarHandleOp(dtype=tf.float32, shape=[2], shared_name=name)
            tf.raw_ops.AssignVariableOp(resource=handle, value=[1.0, 2.0])
    assert [len(one.writes) for one in accesses.variables_of(graph)] == [2, 1, 1]


def test_the_accesses_of_a_captured_variable_are_found():
    """The inner of two functions captures the variable through the outer function."""
    graphs = []
    with tf.Graph().as_default():
        variable = v1.get_variable("v", [2], use_resource=True)
        factor = v1.get_variable("factor", [], use_resource=True).read_value()

        @tf.function
        def inner(handle):
            graphs.append(v1.get_default_graph())
            value = tf.raw_ops.ReadVariableOp(resource=handle(), dtype=tf.float32)
            tf.raw_ops.AssignAddVariableOp(resource=handle(), value=value * factor)

        @tf.function
        def outer():
            graphs.append(v1.get_default_graph())
            handle = tf.identity(graphs[0].capture(variable.handle))
            inner(lambda: handle)

        outer.get_concrete_function()
    found = [list(accesses.variables_of(graph)) for graph in graphs]
    assert [[one.name for one in of_graph] for of_graph in found] == [["v"], ["v"]]
    assert [[op.type for op in one.writes] for (one,) in found] == [
        ["StatefulPartitionedCall"],
        ["AssignAddVariableOp"],
    ]
    assert [[op.type for op in one.reads] for (one,) in found] == [[], ["ReadVariableOp"]]
