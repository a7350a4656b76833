"""Finds the ops of a graph that read or write each variable."""

import collections
import dataclasses
import functools
from collections.abc import Callable, Container, Iterator
from typing import Any

import tensorflow as tf

_NEITHER = frozenset(
    ("DestroyResourceOp", "DisableCopyOnRead", "IsVariableInitialized", "VarIsInitializedOp")
    + ("VariableShape", "NoOp")
)
READS = frozenset(
    ("ReadVariableOp", "ResourceGather", "ResourceGatherNd", "HostTablesLookup")
    + ("HostShardsLookup", "ReadVariableXlaSplitND", "_ReadVariablesOp")
)
"""Ops that read a resource variable. An op of unknown type counts as a write."""
PLAIN = frozenset(("Assign", "AssignVariableOp"))
"""Ops that can write a variable before it has a value."""

_DENSE = ("Assign", "ResourceApply", "ResourceCountUpTo")

_PASSING = frozenset(
    ("Enter", "Exit", "Identity", "IdentityN", "Merge", "NextIteration", "Switch")
    + ("RefEnter", "RefExit", "RefIdentity", "RefMerge", "RefNextIteration", "RefSelect")
    + ("RefSwitch",)
)
"""Ops that pass a variable from an input to an output."""
VARIABLES = frozenset(("Variable", "VariableV2", "TemporaryVariable"))

FUNCTIONS = {
    **dict.fromkeys(("PartitionedCall", "StatefulPartitionedCall", "While", "StatelessWhile"), 0),
    **dict.fromkeys(("If", "StatelessIf", "Case", "StatelessCase"), 1),
}
"""Type of an op that calls functions -> index of the first input that they get."""

_NO_DIRECT_WRITES = _NEITHER | READS | _PASSING | FUNCTIONS.keys()
"""Ops that write no resource variable, unless a function that they call does."""


@dataclasses.dataclass(frozen=True)
class Variable:
    """A variable's readers and writers, in creation order. `writes` has ops that do both."""

    name: str
    reference: bool
    reads: list[tf.Operation]
    writes: list[tf.Operation]

    @property
    def sparse(self) -> bool:
        """Whether an op may write single rows, so that every later read copies the variable."""
        return not all(op.type.startswith(_DENSE) for op in self.writes)


def variables_of(graph: tf.Graph, unwritten_by: Container[tf.Operation] = ()) -> Iterator[Variable]:
    """Yields the variables of a graph in graph order, with the ops that access them.

    It leaves out variables that an op of `unwritten_by` writes.
    """
    users: dict[Any, list[tf.Operation]] = collections.defaultdict(list)
    names: dict[tf.Operation, str] = {}
    for op in graph.get_operations():
        if op.type in VARIABLES:
            users[op.name.encode()].append(op)
        elif op.type == "VarHandleOp":
            users[op.get_attr("shared_name") or op.name.encode()].append(op)
    for outer, inner in getattr(graph, "captures", ()):
        if inner.dtype == tf.resource and (op := _captured(outer)):
            users[op.get_attr("shared_name") or op.name.encode()].append(inner.op)
            names[inner.op] = op.name
    # Cached, because an op may access all variables, and would be analyzed again for each.
    uses = functools.cache(_Uses)
    effects = functools.cache(functools.partial(_effects, uses, graph))
    for ops in users.values():
        direct = (user for op in ops for user in op.outputs[0].consumers())
        if ops[0].type not in VARIABLES and any(
            user in unwritten_by and user.type not in _NO_DIRECT_WRITES for user in direct
        ):
            continue  # Most variables of a step are left out here, without a search.
        reads: set[tf.Operation] = set()
        writes: set[tf.Operation] = set()
        for op in ops:
            for access, kind in _accesses(op.outputs[0], uses, effects):
                (writes if "w" in kind else reads).add(access)
        if any(op in unwritten_by for op in writes):
            continue
        yield Variable(
            names.get(ops[0], ops[0].name),
            ops[0].type in VARIABLES,
            sorted(reads - writes, key=lambda op: op._id),
            sorted(writes, key=lambda op: op._id),
        )


def initial_writes() -> set[tf.Operation]:
    """Returns the ops of the default graph that give variables their values before any step.

    A session runs these initializers when it begins, even if a step also runs them to reset
    variables. If they waited for a part of a step, that part would then run without input.
    """
    keys = tf.compat.v1.GraphKeys
    return {
        getattr(variable.initializer, "op", variable.initializer)  # A VocabInfo makes a tensor.
        for key in (keys.GLOBAL_VARIABLES, keys.LOCAL_VARIABLES, keys.METRIC_VARIABLES)
        for variable in tf.compat.v1.get_collection(key)
        if isinstance(variable, tf.Variable)
    }


def _captured(tensor: tf.Tensor) -> tf.Operation | None:
    """Returns the op that creates a variable captured by the graph of a function, or None."""
    while True:
        graph: Any = tensor.graph
        op = tensor.op
        while op.inputs:
            op = op.inputs[0].op
        if op.type == "VarHandleOp":
            return op
        outer = [outer for outer, inner in getattr(graph, "captures", ()) if inner.op is op]
        if not outer:
            return None
        (tensor,) = outer


class _Uses:
    """An op's input indices by input tensor, outputs that are variables, and called functions."""

    def __init__(self, op: tf.Operation):
        self.inputs: dict[tuple[tf.Operation, int], list[int]] = collections.defaultdict(list)
        for index, given in enumerate(op.inputs):
            self.inputs[given.op, given.value_index].append(index)
        passing = op.type in _PASSING
        self.variables = [
            output
            for output in op.outputs
            if is_reference(output) or (passing and output.dtype == tf.resource)
        ]
        calls = called(op.node_def) if op.type in FUNCTIONS else []
        self.functions = [function.name for function in calls]


def _accesses(
    variable: tf.Tensor, uses: Callable[[tf.Operation], _Uses], effects: Callable[[str], list[str]]
) -> Iterator[tuple[tf.Operation, str]]:
    """Yields (op with the variable as an input, 'r' for each read and 'w' for each write)."""
    waiting, seen = [variable], {(variable.op, variable.value_index)}
    while waiting:
        tensor = waiting.pop()
        for op in tensor.consumers():
            kind, used = "", uses(op)
            for index in used.inputs[tensor.op, tensor.value_index]:
                if tensor.dtype._is_ref_dtype:
                    kind += _kind_by_reference(op, index)
                elif tensor.dtype == tf.resource:
                    kind += _kind(op, index, used, effects)
                else:
                    kind += "r"
            if kind:
                yield op, kind
            for output in used.variables:
                place = op, output.value_index
                if place not in seen:
                    seen.add(place)
                    waiting.append(output)


def is_reference(tensor: tf.Tensor) -> bool:
    """Returns whether a tensor is a reference variable, or the read op that all readers share."""
    if tensor.dtype._is_ref_dtype:
        return True
    op = tensor.op
    return (
        op.type == "Identity"
        and op.inputs[0].op.type in VARIABLES
        and op.name == f"{op.inputs[0].op.name}/read"
    )


def _kind(op: tf.Operation, index: int, used: _Uses, effects: Callable[[str], list[str]]) -> str:
    """Returns an op's accesses to the resource variable at input `index`, as 'r's and 'w's."""
    if op.type in _NEITHER or op.type in _PASSING:
        return ""
    if op.type in READS:
        return "r"
    if op.type not in FUNCTIONS:
        return "w"
    kind, place = "", index - FUNCTIONS[op.type]
    for function in used.functions:
        effects_on_arguments = effects(function)
        kind += effects_on_arguments[place] if 0 <= place < len(effects_on_arguments) else "w"
    return kind


def _kind_by_reference(op: tf.Operation, index: int) -> str:
    arguments = op.op_def.input_arg
    if op.type == "Identity" and is_reference(op.outputs[0]):
        return ""
    # Of all ops with a list of references, the list is the last argument.
    if not arguments[min(index, len(arguments) - 1)].is_ref:
        return "r"
    return "" if op.type in _NEITHER or op.type in _PASSING else "w"


def _effects(
    uses: Callable[[tf.Operation], _Uses], graph: Any, name: str, calling: tuple[str, ...] = ()
) -> list[str]:
    """Returns a function's access to each argument, or [] if it is unknown or recursive."""
    body = getattr(function_of(name, graph), "graph", None)
    if body is None or name in calling:
        return []
    within = functools.cache(
        lambda called: _effects(uses, body, called, (*calling, name))  # type: ignore[misc]
    )
    return [
        "".join(kind for _, kind in _accesses(argument, uses, within))
        if argument.dtype == tf.resource
        else ""
        for argument in body.inputs
    ]


def function_of(name: str, graph: Any) -> Any:
    """Returns the function called `name` in a graph or the graphs around it, or None."""
    while graph is not None:
        if graph._is_function(name):
            return graph._get_function(name)
        graph = getattr(graph, "outer_graph", None)
    return None


def called(node: Any) -> list[Any]:
    """Returns the parts of a NodeDef's attributes that name functions."""
    values = node.attr.values()
    return [one for value in values for one in (value.func, *value.list.func) if one.name]
