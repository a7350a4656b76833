"""The reads and writes of the variables that a function captures."""

import tensorflow as tf

from estimator_emb.engine.ordering import accesses

v1 = tf.compat.v1


def test_the_accesses_of_a_captured_variable_are_found():
    """The inner of two functions captures the variable through the outer function."""
    graphs = []
    with tf.Graph().as_default():
        variable = v1.get_variable("v", [2], use_resource=True)

        @tf.function
        def outer():
            graphs.append(v1.get_default_graph())
            handle = tf.identity(graphs[0].capture(variable.handle))
            tf.function(lambda: inner(handle))()

        def inner(handle):
            graphs.append(v1.get_default_graph())
            value = tf.raw_ops.ReadVariableOp(resource=handle, dtype=tf.float32)
            tf.raw_ops.AssignAddVariableOp(resource=handle, value=value)

        outer.get_concrete_function()
    found = [list(accesses.variables_of(graph)) for graph in graphs]
    assert [[one.name for one in of_graph] for of_graph in found] == [["v"], ["v"]]
    types = [[[op.type for op in ops] for ops in (one.reads, one.writes)] for (one,) in found]
    of_inner = [["ReadVariableOp"], ["AssignAddVariableOp"]]
    assert types == [[[], ["StatefulPartitionedCall"]], of_inner]
