"""Reads variables in a session without copying them."""

from collections.abc import Iterable, Mapping
from typing import Any

import tensorflow as tf

from estimator_emb.engine.ordering import reads_before_writes

_HOLD, _READ = "_VarHandlesOp", "_ReadVariablesOp"
"""Types of ops that hold or read many variables, of any types. Only a CPU holds variables so."""
_SPARSE = ("ResourceScatter", "ResourceSparse")
"""Start of the op types after which a plain read of a variable copies the variable."""


def in_place(variables: Iterable[tf.Variable], session_config: Any) -> dict[str, tf.Tensor]:
    """Returns the value of each variable by its name, read in place, without a copy.

    A session with a single device reads all its resource variables by the same two ops. It prepares
    these much sooner than two ops for each variable. Variables of other tasks are read alone.
    """
    cpus = session_config and session_config.device_count.get("CPU")
    kinds = {one.device_type for one in tf.config.list_physical_devices()}
    single = cpus in (None, 1) and kinds == {"CPU"}
    together, reads = {}, {}
    for one in variables:
        handle = getattr(one, "handle", None)
        if single and handle is not None and _is_held_here(handle.op):
            together[one.name] = one
        else:
            reads[one.name] = _read(one)
    return reads | _read_together(together) if together else reads


def _is_held_here(op: tf.Operation) -> bool:
    # A handle without a shared name has the name of its op.
    here = op.type == "VarHandleOp" and "/job:" not in op.device
    return here and bool(op.get_attr("shared_name"))


def _read_together(variables: Mapping[str, tf.Variable]) -> dict[str, tf.Tensor]:
    def listed(**values: Any) -> Any:
        return tf.compat.v1.AttrValue(list=tf.compat.v1.AttrValue.ListValue(**values))

    graph, handles = tf.compat.v1.get_default_graph(), [one.handle for one in variables.values()]
    count, dtypes = len(handles), [one.dtype.base_dtype for one in variables.values()]
    types = listed(type=[one.as_datatype_enum for one in dtypes])
    given = {"N": tf.compat.v1.AttrValue(i=count), "dtypes": types}
    named = {
        "containers": listed(s=[one.op.get_attr("container") for one in handles]),
        "shared_names": listed(s=[one.op.get_attr("shared_name") for one in handles]),
        "shapes": listed(shape=[tf.TensorShape(None).as_proto()] * count),
    }
    resources = [tf.resource] * count
    held = graph.create_op(_HOLD, [], resources, attrs=given | named, name="held").outputs
    sparse = [copy for copy, one in zip(held, handles, strict=True) if _is_sparse(one)]
    with tf.control_dependencies([tf.raw_ops.DisableCopyOnRead(resource=one) for one in sparse]):
        read = graph.create_op(_READ, held, dtypes, attrs=given, name="read")
    return dict(zip(variables, read.outputs, strict=True))


def _is_sparse(handle: tf.Tensor) -> bool:
    """Returns whether ops of the graph update single rows of a resource variable."""
    return any(op.type.startswith(_SPARSE) for op in handle.consumers())


def _read(variable: tf.Variable) -> tf.Tensor:
    if not hasattr(variable, "handle") or not _is_sparse(variable.handle):
        return variable.graph.as_graph_element(variable)
    with tf.device(None), tf.device(variable.device):
        keeps = tf.raw_ops.DisableCopyOnRead(resource=variable.handle)
        read: tf.Tensor = tf.raw_ops.ReadVariableOp(resource=variable.handle, dtype=variable.dtype)
        read.op._add_control_input(keeps)
    reads_before_writes.keep_between_steps(read.op)
    return read
