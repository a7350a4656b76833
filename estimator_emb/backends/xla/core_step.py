"""Takes the step of one core out of a session's graph, so that XLA can compile it.

model_fn was called once, for core 0. The step begins at the variables and at the core's own inputs
and activations. It ends at the results that a session fetches. A sum over cores becomes a custom
call. `devices.py` replaces it by XLA's all-reduce.
"""

import contextlib
import dataclasses
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

import tensorflow as tf

from estimator_emb.backends.xla import lower
from estimator_emb.compat.internals.graphs import eager_mode
from estimator_emb.engine.cores import Collective, Cores
from estimator_emb.engine.ordering import accesses, structure
from estimator_emb.reporting import frames
from estimator_emb.spec.options import CannotLower

CROSS_REPLICA_SUM = "estimator_emb.cross_replica_sum"
"""Custom call that stands for a sum over cores. `devices.py` replaces it by an all-reduce."""
_DROPPED = (
    "_class",
    "_output_shapes",
    "_pivot_for_cluster",
    "_tpu_input_identity",
    "_tpu_replicate",
)
_STATEFUL_INSIDE = ("VarHandleOp", "ReadVariableOp")
_IGNORED = frozenset(("Assert", "CheckNumerics", "CheckNumericsV2"))
"""Check ops that XLA ignores."""


@contextlib.contextmanager
def control_flow_v2() -> Iterator[None]:
    """Builds loops and branches in this context as functions, which XLA can compile."""
    enabled = tf.compat.v1.control_flow_v2_enabled()
    tf.compat.v1.enable_control_flow_v2()
    try:
        yield
    finally:
        if not enabled:
            tf.compat.v1.disable_control_flow_v2()


@dataclasses.dataclass(frozen=True)
class CoreStep:
    """The part of a graph that core 0 runs, with its arguments, variables and results."""

    graph: tf.compat.v1.GraphDef
    arguments: list[tf.Tensor]
    variables: list[tf.Operation]
    results: list[tf.Tensor]
    train_op: tf.Operation | None

    def interface(self) -> dict[str, Any]:
        """Returns the interface that `lower.lowered` takes."""
        return {
            "arguments": [_described(one.name, one.dtype, one.shape) for one in self.arguments],
            "variables": [
                _described(op.outputs[0].name, op.get_attr("dtype"), op.get_attr("shape"))
                for op in self.variables
            ],
            "results": [one.name for one in self.results],
            "train_op": None if self.train_op is None else self.train_op.name,
        }

    def lowered(self) -> bytes:
        """Returns XLA's serialized module. Raises CannotLower with TensorFlow's message."""
        try:
            with eager_mode():
                # Always for CPU: parts of TensorFlow's lowering for GPUs run on GPUs only.
                return lower.lowered(self.graph, self.interface(), platform_name="CPU")
        except lower.Refused as error:
            raise CannotLower(explained(str(error))) from None


def explained(words: str) -> str:
    """Returns XLA's error message, with the program's lines that caused it and advice."""
    graph = tf.compat.v1.get_default_graph()
    nodes = dict.fromkeys(re.findall(r"\{\{node ([^}]+)\}\}", words))
    known = {op.name: op for op in graph.get_operations()}
    made = [frames.made_by(known[node]) for node in nodes if node in known]
    reason = re.split(r"\n\s*(?:Stack trace|The op is created|tf2xla conversion)", words)[0]
    reason = re.sub(r"\)(\{\{[^}]*\}\})+$", ")", reason)  # TensorFlow appends the node again.
    reason = re.sub(r"\{\{(?:function_node [^}]*|node ([^}]*))\}\}", r"\1", reason)
    reason = reason.removeprefix("Failed getting HLO text: '").strip(" \n'.")
    return _cannot_run(reason, made)


def _cannot_run(reason: str, made: Sequence[str]) -> str:
    todo = "What only the host can do belongs into input_fn, or into host_call and eval_metrics."
    if "tensor list" in reason:
        todo = "Give each loop a constant maximum_iterations, a recurrent layer a static length."
    first = f"model_fn's step cannot run on PJRT devices: {reason}."
    return "\n".join([first, *filter(None, made), todo])


def lower_core(
    cores: Cores,
    results: Sequence[tf.Tensor],
    train_op: tf.Operation | None,
    is_in_step: Callable[[tf.Operation], bool],
    of_host: Iterable[tf.Tensor] = (),
) -> CoreStep:
    """Returns core 0's step. It computes `results` and runs `train_op`.

    `is_in_step` returns whether model_fn made an op. Other ops are in the step if they depend on
    values that differ between cores. The host computes the tensors `of_host`, and the step takes
    them as arguments. Raises CannotLower if an argument has a dynamic shape, or if cores exchange
    anything but sums.
    """
    sums = {one.output.op.name: one for one in cores.collectives}
    sources = {*cores.inputs, *(tensor.name for tensor in of_host)}
    needed = _needed([*results, *([] if train_op is None else [train_op])], sources, sums)
    inside = _inside(needed, sources, sums, is_in_step)
    step = taken_out(needed, inside, results, train_op, sources, sums)
    for node in step.graph.node:
        if node.name in sums:
            _exchange(node, sums[node.name])
    return step


def needs_host(tensors: Iterable[tf.Tensor], is_in_step: Callable[[tf.Operation], bool]) -> bool:
    """Returns whether only the host can compute `tensors` with all their checks and side effects.

    XLA ignores check ops, and cannot run ops with side effects, such as calls of Python. Ops of
    model_fn itself do not count.
    """

    def before(op: tf.Operation) -> list[tf.Operation]:
        ops = structure.before_of(op)
        return [one for one in ops if not (is_in_step(one) or _is_of_schedule(one))]

    ops = structure.reached([one.op for one in tensors], before)
    if any(op.op_def.is_stateful and op.type not in _STATEFUL_INSIDE for op in ops):
        return True
    part = tf.compat.v1.GraphDef(node=[op.node_def for op in ops])
    add_functions(part, tf.compat.v1.get_default_graph())
    inner = [node for function in part.library.function for node in function.node_def]
    return any(node.op in _IGNORED for node in (*part.node, *inner))


def _is_of_schedule(op: tf.Operation) -> bool:
    """Returns whether `op` is the assert in TensorFlow's piecewise_constant. It always holds."""
    return op.type in ("Assert", "If") and any(
        frame.filename.endswith("learning_rate_schedule.py") for frame in frames.traceback_of(op)
    )


def taken_out(
    needed: Sequence[tf.Operation],
    inside: Collection[str],
    results: Sequence[tf.Tensor],
    train_op: tf.Operation | None,
    sources: Collection[str] = (),
    sums: Mapping[str, Collective] | None = None,
) -> CoreStep:
    """Returns a step of the default graph's ops that are in `needed` and have a name in `inside`.

    The step's arguments are tensors from other ops, and the tensors named `sources`. Raises
    CannotLower if an argument has a dynamic shape, or is a queue, a table or another resource.
    """
    graph = tf.compat.v1.get_default_graph()
    step = tf.compat.v1.GraphDef()
    step.versions.CopyFrom(graph.graph_def_versions)
    read: list[tf.Tensor] = []
    variables = [op for op in needed if op.type == "VarHandleOp"]
    computed = {*inside} - {op.name for op in variables}
    for op in needed:
        if op.name in computed:
            given = _given(op, sums or {})
            read += given
            controls = [f"^{one.name}" for one in op.control_inputs if one.name in computed]
            node = step.node.add()
            node.CopyFrom(op.node_def)
            node.input[:] = [*(tensor.name for tensor in given), *controls]
            clean(node)
    arguments = {
        one.name: one
        for one in (*read, *results)
        if one.name in sources or one.op.name not in inside
    }
    for tensor in arguments.values():
        if tensor.dtype == tf.resource:  # TensorFlow's lowering would crash.
            reason = f"{tensor.op.type} {tensor.op.name!r} is on the host, and is no variable"
            raise CannotLower(_cannot_run(reason, [frames.made_by(tensor.op)]))
        if not tensor.shape.is_fully_defined():
            raise CannotLower(
                f"{tensor.name} reaches the step with the dynamic shape {tensor.shape}: give it a "
                "static one, by batch(..., drop_remainder=True), padded_batch or set_shape."
            )
    add_functions(step, graph)
    return CoreStep(step, list(arguments.values()), variables, list(results), train_op)


def _given(op: tf.Operation, sums: Mapping[str, Collective]) -> Sequence[tf.Tensor]:
    return [sums[op.name].value] if op.name in sums else list(op.inputs)


def _needed(
    roots: Sequence[Any], sources: set[str], sums: Mapping[str, Collective]
) -> list[tf.Operation]:
    """Returns the ops that `roots` depend on, in the order of their creation."""
    of_sources = {name.partition(":")[0] for name in sources}

    def before(op: tf.Operation) -> list[tf.Operation]:
        given = [one.op for one in _given(op, sums) if one.name not in sources]
        return given + [one for one in op.control_inputs if one.name not in of_sources]

    ops = [getattr(root, "op", root) for root in roots if root.name not in sources]
    return sorted(structure.reached(ops, before), key=lambda op: op._id)


def _inside(
    needed: list[tf.Operation],
    sources: set[str],
    sums: Mapping[str, Collective],
    is_in_step: Callable[[tf.Operation], bool],
) -> set[str]:
    """Returns the names of the ops that the core runs. Other ops provide its arguments."""
    inside: set[str] = set()
    of_core = set(sources)
    for op in needed:
        given = _given(op, sums)
        depends = any(tensor.name in of_core for tensor in given)
        if depends:
            of_core.update(tensor.name for tensor in op.outputs)
        # Constants, and the stores that a loop's gradient creates outside of the loop.
        computed = not (op.op_def.is_stateful or op.type == "Placeholder") and all(
            tensor.op.name in inside for tensor in given
        )
        if depends or computed or op.type in _STATEFUL_INSIDE or is_in_step(op):
            inside.add(op.name)
    return inside


def _described(name: str, dtype: Any, shape: Any) -> dict[str, Any]:
    return {
        "name": name,
        "dtype": tf.as_dtype(dtype).name,
        "shape": tf.TensorShape(shape).as_list(),
    }


def clean(node: tf.compat.v1.NodeDef) -> None:
    """Removes a node's device and the attributes that only the session's graph uses."""
    node.device = ""
    for name in _DROPPED:
        node.attr.pop(name, None)


def _exchange(node: tf.compat.v1.NodeDef, collective: Collective) -> None:
    if collective.kind != "cross_replica_sum":
        raise CannotLower(
            f"model_fn calls {collective.kind}, and PJRT devices exchange sums only, by "
            "cross_replica_sum and CrossShardOptimizer. TPUConfig(device='emulate') has the "
            "others.\n"
            f"It is called by {frames.line_of_program(collective.output.op) or node.name}"
        )
    sum_over_cores(node, collective.value.shape, collective.groups)


def sum_over_cores(
    node: tf.compat.v1.NodeDef, shape: tf.TensorShape, groups: Iterable[Iterable[int]]
) -> None:
    """Turns a node into the custom call that sums its first input over groups of cores."""
    if not shape.is_fully_defined():
        raise CannotLower(f"{node.name} sums a tensor of the dynamic shape {shape}.")
    text = ",".join("{" + ",".join(map(str, group)) + "}" for group in groups)
    dtype = node.attr["T"].type
    node.op = "XlaCustomCall"
    node.attr.clear()
    node.attr["T"].list.type.append(dtype)
    node.attr["dtype"].type = dtype
    node.attr["shape"].shape.CopyFrom(shape.as_proto())
    node.attr["target_name"].s = CROSS_REPLICA_SUM.encode()
    node.attr["backend_config"].s = f"{{{text}}}".encode()


def add_functions(step: tf.compat.v1.GraphDef, graph: tf.Graph) -> None:
    """Adds to `step` the functions that it calls directly or indirectly."""
    library = graph.as_graph_def().library
    known = {function.signature.name: function for function in library.function}
    called: dict[str, Any] = {}
    waiting = list(step.node)
    while waiting:
        for name in functions_of(waiting.pop()):
            if name in known and name not in called:
                called[name] = known[name]
                waiting += known[name].node_def
    step.library.function.extend(called.values())
    step.library.gradient.extend(one for one in library.gradient if one.function_name in called)


def functions_of(node: tf.compat.v1.NodeDef) -> Iterator[str]:
    """Yields a node's type, and the function names in its attributes."""
    yield node.op
    yield from (function.name for function in accesses.called(node))
