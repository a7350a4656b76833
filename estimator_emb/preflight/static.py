"""Looks up every op of a step in a table of the kernels of a TPU's compiler.

This needs only TensorFlow. The table does not show everything: an op with a kernel may still refuse
its input, for example a shape that depends on values. Only the compiler finds that.
"""

import collections
import dataclasses
import functools
import importlib.resources
import json
import re
from collections.abc import Collection, Iterable, Iterator
from typing import Any

import tensorflow as tf

from estimator_emb.backends.xla import core_step
from estimator_emb.compat.internals.estimators import ModeKeys
from estimator_emb.compat.internals.graphs import function_def_to_graph
from estimator_emb.compat.internals.protos import types_pb2
from estimator_emb.engine.ordering import accesses, structure
from estimator_emb.guards.checks import tpu_ops
from estimator_emb.preflight import program_lines
from estimator_emb.preflight.described_step import CLUSTER, Step
from estimator_emb.preflight.report import Finding

OUTSIDE = "_xla_outside_compilation"
_SOFTLY = b"auto"

_CONTROL_FLOW = "ControlTrigger Enter Exit LoopCond Merge NextIteration Switch".split()
"""Ops of v1 control flow. TensorFlow converts them to While and If before it compiles for a TPU."""

_SUMMARIES = (
    "AudioSummary AudioSummaryV2 HistogramSummary ImageSummary MergeSummary ScalarSummary "
    "TensorSummary TensorSummaryV2"
).split()


@dataclasses.dataclass(frozen=True)
class StepOp:
    """An op of the step, in the step's graph or in a function that the step calls."""

    type: str
    name: str
    attributes: Any
    where: str | None

    @property
    def outside(self) -> bool:
        return OUTSIDE in self.attributes

    @property
    def softly(self) -> bool:
        """Returns whether TensorFlow itself put the op outside compilation."""
        return self.outside and self.attributes[OUTSIDE].s == _SOFTLY


def ops_of(step: Step) -> list[StepOp]:
    """Returns the ops that the step's results need, including ops outside compilation."""
    ops: list[StepOp] = []
    waiting: list[tuple[str, Any, StepOp]] = []
    soft = any(
        op.get_attr("allow_soft_placement")
        for op in step.graph.get_operations()
        if op.type == "TPUReplicateMetadata"
    )

    def add(op: tf.Operation, graph: Any, prefix: str = "", where: str | None = None) -> None:
        if soft:
            _place_softly(op, graph)
        where = program_lines.line_of(op) or where
        found = StepOp(op.type, prefix + op.name, op.node_def.attr, where)
        calls = accesses.function_of(op.type, graph) is not None
        if not calls:
            ops.append(found)
        if not found.outside and (calls or op.type in kernels()):
            waiting.extend((*one, found) for one in called(op.node_def, graph))

    for op in reachable(step):
        if CLUSTER in op.node_def.attr and op.type != "TPUReplicateMetadata":
            add(op, step.graph)
    seen = set()
    while waiting:
        name, graph, caller = waiting.pop()
        if name in seen:
            continue
        seen.add(name)
        shown = re.sub(r"(_\d+)+$", "", name).removeprefix("__inference_")
        for op in _needed(
            graph, [*(output.op for output in graph.outputs), *graph.control_outputs]
        ):
            if op.type != "Placeholder":  # An argument of the function.
                add(op, graph, f"{shown}/", caller.where)
    return ops


def _place_softly(op: tf.Operation, graph: Any) -> None:
    """Moves an op that no TPU runs outside compilation, as TensorFlow's soft placement does.

    Source: `tf.config.set_soft_device_placement`; the pass `tf-mark-ops-for-outside-compilation`.
    """
    known = op.type in (*_CONTROL_FLOW, *_SUMMARIES, "Placeholder")
    if known or accesses.function_of(op.type, graph) is not None or OUTSIDE in op.node_def.attr:
        return
    if op.type not in kernels() or _refused_type(op.type, op.node_def.attr) == "string":
        op._set_attr(OUTSIDE, tf.compat.v1.AttrValue(s=_SOFTLY))


def reachable(step: Step) -> list[tf.Operation]:
    """Returns the ops that a session would run for the step, in graph order."""
    roots = [tensor.op for _, tensor in step.results]
    if step.train_op is not None:
        roots.append(step.train_op)
    return _needed(step.graph, roots, {tensor.op for tensor in step.arguments})


def _needed(
    graph: tf.Graph, roots: list[tf.Operation], ends: Collection[tf.Operation] = ()
) -> list[tf.Operation]:
    def before(op: tf.Operation) -> list[tf.Operation]:
        return [] if op in ends else [*(one.op for one in op.inputs), *op.control_inputs]

    found = structure.reached(roots, before)
    return [op for op in graph.get_operations() if op in found]


def called(node: tf.compat.v1.NodeDef, graph: tf.Graph) -> Iterator[tuple[str, Any]]:
    """Yields (name, graph) of each function that an op calls, through an attribute or its type."""
    for name in core_step.functions_of(node):
        function = accesses.function_of(name, graph)
        if function is not None:
            # Functions of TensorFlow 1's Defun and of one-shot iterators store no graph.
            has_graph = hasattr(function, "graph")
            yield name, function.graph if has_graph else function_def_to_graph(function.definition)


def graphs_of_functions(step: Step) -> dict[str, Any]:
    """Returns {name: graph} of the functions that the step calls, directly or indirectly."""
    graphs: dict[str, Any] = {}
    waiting = [found for op in reachable(step) for found in called(op.node_def, step.graph)]
    while waiting:
        name, graph = waiting.pop()
        if name not in graphs:
            graphs[name] = graph
            for op in graph.get_operations():
                waiting.extend(called(op.node_def, graph))
    return graphs


def findings(step: Step, ops: Iterable[StepOp]) -> list[Finding]:
    """Returns the findings about ops. `Step.findings` has the findings about inputs and outputs."""
    grouped: dict[Any, list[StepOp]] = collections.defaultdict(list)
    inside = [op for op in ops if not op.outside]
    for op in [*inside, *_unreached_summaries(step, inside)]:
        if op.type in _CONTROL_FLOW:
            continue
        if op.type not in kernels():
            grouped["no TPU kernel has this op", op.type, None, op.where].append(op)
        elif refused := _refused_type(op.type, op.attributes):
            problem = "its TPU kernel does not take this type"
            grouped[problem, op.type, refused, op.where].append(op)
    listed = [
        Finding(
            problem,
            _TYPES.get(dtype, "float32, bfloat16 or int32") if dtype else _instead_of_op(op_type),
            op_type,
            same[0].name,
            dtype or _type_of(same[0]),
            where,
            len(same) - 1,
        )
        for (problem, op_type, dtype, where), same in grouped.items()
    ]
    listed += _reference_variables(step)
    listed += _host_findings(step)
    if step.mode == ModeKeys.TRAIN and step.replicas > 1 and step.train_op is not None:
        listed += _unsummed(inside)
    return listed


def _unreached_summaries(step: Step, reached: list[StepOp]) -> list[StepOp]:
    """Returns summary ops that no result needs, but that the session's summary hook fetches."""
    names = {op.name for op in reached}
    return [
        StepOp(op.type, op.name, op.node_def.attr, program_lines.line_of(op))
        for op in step.graph.get_operations()
        if op.type in _SUMMARIES
        and op.name not in names
        and CLUSTER in op.node_def.attr
        and OUTSIDE not in op.node_def.attr
    ]


def _reference_variables(step: Step) -> list[Finding]:
    ops = reachable(step) if step.complete else step.graph.get_operations()
    return [
        Finding(
            "a reference variable cannot be part of a TPU's step",
            _instead_of_op(op.type),
            op.type,
            op.name,
            op.outputs[0].dtype.base_dtype.name,
            program_lines.line_of(op),
        )
        for op in ops
        if op.type in ("Variable", "VariableV2") and CLUSTER not in op.node_def.attr
    ]


def _host_findings(step: Step) -> Iterator[Finding]:
    """Yields findings about ops that host_call and eval_metrics run beside the TPU's steps."""
    own, names = set(step.of_host), {op.name for op in step.of_host}
    for op in step.of_host:
        if op.type == tpu_ops.NUMBER:
            yield Finding(
                "host_call asks for the number of a core, and its host has none",
                "xla.replica_id() in model_fn, which gives it to host_call as a tensor",
                op.type,
                op.name,
                where=program_lines.line_of(op),
            )
    for variable in accesses.variables_of(step.graph):
        for op in own.intersection(variable.writes) if variable.name not in names else ():
            # Other ops, of datasets, count as writes because their functions are unknown.
            if op.type.startswith(("Assign", "Resource")) or op.type in accesses.FUNCTIONS:
                yield Finding(
                    f"host_call assigns the variable {variable.name!r} on the host, beside the "
                    "TPU's steps and in no order with them",
                    "assign it in model_fn, with the train_op",
                    op.type,
                    op.name,
                    where=program_lines.line_of(op),
                )


def _unsummed(ops: list[StepOp]) -> list[Finding]:
    types = {op.type for op in ops}
    trains = any(op_type.startswith(("ResourceApply", "ResourceSparseApply")) for op_type in types)
    if not trains or types & tpu_ops.SUMS:
        return []
    return [
        Finding(
            "the step updates variables without summing gradients over the cores (no "
            "CrossReplicaSum), so every core would train a model of its own",
            tpu_ops.SUMS_GRADIENTS,
        )
    ]


@functools.cache
def kernels() -> dict[str, list[dict[str, frozenset[str]]]]:
    """Returns a TPU's kernels by op type. A kernel is {type attribute: accepted types}."""
    file = importlib.resources.files("estimator_emb.preflight") / "tpu_kernels.json"
    table = json.loads(file.read_text(encoding="utf-8"))
    sets = [frozenset(types.split()) for types in table["type_sets"]]
    return {
        op: [{name: sets[index] for name, index in kernel.items()} for kernel in op_kernels]
        for op, op_kernels in table["kernels"].items()
    }


def _refused_type(op_type: str, attributes: Any) -> str | None:
    first = None
    for kernel in kernels()[op_type]:
        refused = [
            value
            for name, allowed in kernel.items()
            for value in _types(attributes, name)
            if value not in allowed
        ]
        if not refused:
            return None
        first = first or tf.as_dtype(refused[0]).name
    return first


def _types(attributes: Any, name: str) -> list[str]:
    if name not in attributes:
        return []
    value = attributes[name]
    types = [value.type] if value.type else value.list.type
    return [types_pb2.DataType.Name(number).removeprefix("DT_").lower() for number in types]


def _type_of(op: StepOp) -> str | None:
    for name in ("T", "dtype", "Tin", "SrcT"):
        types = _types(op.attributes, name)
        if types:
            return tf.as_dtype(types[0]).name
    return None


_STRINGS = "keep strings on the host: turn them into numbers in input_fn"
_OPS = {
    ".*Dataset(V2)?|Iterator.*|OneShotIterator": (
        "an input of input_fn: the infeed feeds a TPU's step"
    ),
    ".*Summary(V2)?": "tf.summary in the function of host_call",
    "StringFormat": "format on the host: host_call, or tf.compat.v1.tpu.outside_compilation",
    "AsString|EncodeBase64|ReduceJoin|String.*|Substr|Unicode(De|En)code": _STRINGS,
    "(Static)?Regex(FullMatch|Replace)": _STRINGS,
    "BoostedTreesBucketize|Decode.*|FixedLength.*|MatrixLogarithm|ReadFile.*|WriteFile.*": (
        "do it in input_fn, or give its tensors to host_call"
    ),
    "EagerPyFunc|PyFunc|PyFuncStateless": (
        "what it computes, in input_fn or host_call; or TensorFlow's own ops"
    ),
    "FIFOQueueV2": "input_fn, which feeds the infeed",
    "(Mutable)?HashTable.*|LookupTable.*": (
        "look ids up in input_fn, or through the EmbeddingConfigSpec"
    ),
    "Placeholder": "an input of input_fn: nothing is fed to a TPU's step",
    "Print(V2)?": "print in host_call, or wrap it in tf.compat.v1.tpu.outside_compilation",
    "RandomGamma|RandomPoisson(V2)?": (
        "tf.random.stateless_* or the tf.random ops that have a kernel (uniform, normal)"
    ),
    "ResourceSparseApply.*": (
        "an optimizer that updates with dense gradients, or the EmbeddingConfigSpec"
    ),
    "SegmentMean": "tf.math.unsorted_segment_mean with a static number of segments",
    "SparseSegment.*": (
        "tf.gather and tf.math.unsorted_segment_sum (or _mean, _sqrt_n) over dense tensors"
    ),
    "Ragged.*|Sparse.*": (
        "dense tensors: tf.sparse.to_dense in input_fn, or the EmbeddingConfigSpec for lookups"
    ),
    "TemporaryVariable|Variable(V2)?": (
        "a resource variable: tf.compat.v1.get_variable without use_resource=False makes one"
    ),
    "UniqueWithCounts(V2)?": "tf.unique, or tf.math.bincount with a static size",
    ".*": "other ops; or move it to input_fn, host_call or tf.compat.v1.tpu.outside_compilation",
}
"""Pattern of op types -> what to use instead. The first matching pattern counts."""

_TYPES = {
    "complex128": "complex64",
    "float64": "float32",
    "string": _STRINGS,
    **dict.fromkeys(("uint16", "uint8", "int8", "int16"), "int32"),
    "resource": "tables and queues stay on the host; only variables can be in a TPU's step",
}
"""Type that kernels do not take -> what to use instead."""


def _instead_of_op(op_type: str) -> str:
    return next(advice for pattern, advice in _OPS.items() if re.fullmatch(pattern, op_type))
