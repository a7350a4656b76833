"""Emulates the cores of a TPU in a graph on the host.

A program's step is built once, for core 0. `Cores.replicate` then copies a part of the graph for
every other core. This part depends on values that differ between cores: inputs, results of ops
between cores, and random numbers. The cores share constants and variables, and only core 0 writes
variables. On a TPU, too, the cores write the same value, or core 0's value is kept.

The ops between cores (`cross_replica_sum`, `all_to_all`, `collective_permute`) have no kernel off a
TPU, and every session call fails if the graph contains such an op. So they are replaced while the
step is built, and computed from the values of all cores after the copy. `xla.replica_id` would end
the process off a TPU. It becomes the number of the core, and `tpu_replicated_input` becomes the
core's input. Functions that tell whether a model is on a TPU answer the program as on a TPU.
TensorFlow's own calls of these functions are left alone, so that it builds the ops of a CPU.
"""

import contextlib
import contextvars
import dataclasses
import functools
import inspect
import os
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import tensorflow as tf

from estimator_emb.compat.internals.graphs import control_flow_util
from estimator_emb.compat.internals.patches import Changes
from estimator_emb.compat.internals.tpu import (
    TPUReplicateContext,
    device_context,
    gen_tpu_ops,
    tpu_ops,
    tpu_shard_context,
    tpu_util,
    xla,
)
from estimator_emb.engine.ordering import accesses, structure
from estimator_emb.reporting import frames

_BETWEEN_CORES = ("cross_replica_sum", "all_to_all", "collective_permute")
_NUMBER = {"replica_id": (xla,), "xla_replica_id": (xla.gen_xla_ops,)}
"""The op that returns a core's number: each of its names -> the modules with that name."""
_INPUT = "tpu_replicated_input"
_OF_PROGRAMS = {
    _INPUT: (gen_tpu_ops, tpu_ops),
    "enclosing_tpu_context": (tpu_util, device_context),
    "GetContainingXLAContext": (control_flow_util,),
    "InXlaContext": (control_flow_util,),
    "IsInXLAContext": (control_flow_util,),
}
"""Functions that are replaced for the program's calls only, not for TensorFlow's own calls."""
_MODULES = {**dict.fromkeys(_BETWEEN_CORES, (gen_tpu_ops,)), **_NUMBER, **_OF_PROGRAMS}
"""Name of each replaced function -> the modules that have it."""

Ops = dict[str, Callable[..., Any]]

_ops: contextvars.ContextVar[Ops] = contextvars.ContextVar("ops", default={})  # noqa: B039
"""Name of a function -> the replacement that this thread calls."""
_lock = threading.Lock()
_changes = Changes()
_running = 0
"""The number of open `_replaced` contexts in all threads."""

_FRAME = "frame_name"
_AUTOGRAPH = os.path.join("tensorflow", "python", "autograph", "")

_PER_LOOP = ("StackV2", "TensorArrayV3")
"""Ops that create the storage of a loop and its gradient. Each core needs its own storage."""


@dataclasses.dataclass
class Collective:
    """An op between cores. `combine` computes all cores' outputs from all cores' values.

    `groups` are the groups of cores that exchange values, or (source, target) of a permutation.
    """

    kind: str
    groups: list[list[int]]
    value: tf.Tensor
    output: tf.Tensor
    combine: Callable[[list[tf.Tensor]], list[tf.Tensor]]


class Cores:
    """The `count` cores that share a step.

    `taken_out` means that the step is taken out of the graph instead of being copied. Then the
    inputs of a single core are recorded too. This process feeds the cores `own`, by default all
    cores. The first of them takes the place of core 0.
    """

    def __init__(self, count: int = 1, taken_out: bool = False, own: range | None = None):
        self.count = count
        self.own = range(count) if own is None else own
        self._notes = count > 1 or taken_out
        self._per_core: dict[str, list[tf.Tensor]] = {}
        self.collectives: list[Collective] = []
        self._number: tf.Tensor | None = None

    @contextlib.contextmanager
    def running(self, shard_context: bool = True, numbered: bool = False) -> Iterator[None]:
        """Enters a context in which a model_fn runs as on a core of a TPU.

        Args:
          shard_context: True makes TPU embedding columns read activations from the features, and
            `CrossShardOptimizer` count the cores. False makes the columns look up raw ids
            themselves, as without an EmbeddingConfigSpec.
          numbered: True makes `xla.replica_id` the number of the core. With `shard_context`, it
            also tells the program that it is in the XLA context of a TPU.
        """
        ops = {
            name: _unchanged if self.count == 1 else getattr(self, f"_{name}")
            for name in _BETWEEN_CORES
        }
        ops[_INPUT] = self._replicated_input
        with contextlib.ExitStack() as stack:
            if numbered:
                ops.update(dict.fromkeys(_NUMBER, self._replica_id))
                ops.update(stack.enter_context(_in_xla(self.count)) if shard_context else {})
            stack.enter_context(_replaced(ops))
            if shard_context:
                stack.enter_context(tpu_shard_context(self.count))
            yield

    def per_core(self, values: Sequence[tf.Tensor]) -> tf.Tensor:
        """Returns core 0's tensor of a value that may differ between the cores `own`.

        `values` has a tensor for each of these cores. The tensors are recorded if the step is
        copied or taken out of the graph.
        """
        if not self._notes:
            return values[0]
        mine = tf.identity(values[0])
        self._per_core[mine.name] = [mine, *values[1:]]
        return mine

    def stand_ins(self, dtype: tf.DType, shape: Any) -> list[tf.Tensor]:
        """Creates a tensor for each of the cores `own`. `wire` connects it to its value later."""
        made = [tf.identity(tf.compat.v1.placeholder(dtype, shape)) for _ in self.own]
        if self._notes:
            self._per_core[made[0].name] = made
        return made

    def on_each_core(self, mine: tf.Tensor) -> list[tf.Tensor]:
        return self._per_core.get(mine.name, [mine] * len(self.own))

    @property
    def inputs(self) -> dict[str, tf.Tensor]:
        """The per-core tensors of core 0 by name, without outputs of ops between cores."""
        exchanged = {one.output.name for one in self.collectives}
        return {name: mine for name, (mine, *_) in self._per_core.items() if name not in exchanged}

    def replicate(self, targets: Sequence[tf.Tensor]) -> list[list[tf.Tensor]]:
        """Copies the step of core 0 for the other cores, once per graph.

        Returns the tensors of all cores for each of `targets`.
        """
        if self.count == 1:
            return [[target] for target in targets]
        wanted = [*targets, *(collective.value for collective in self.collectives)]
        per_core = [wanted]
        copied = _part_per_core(wanted, set(self._per_core))
        for core in range(1, self.count):
            sources = {name: values[core] for name, values in self._per_core.items()}
            per_core.append(_copy(copied, sources, wanted, core))
        for index, collective in enumerate(self.collectives, start=len(targets)):
            outputs = collective.combine([values[index] for values in per_core])
            for place, output in zip(self._per_core[collective.output.name], outputs, strict=True):
                wire(place, output)
        return [list(values) for values in zip(*per_core, strict=True)][: len(targets)]

    def _replica_id(self, name: str | None = None) -> tf.Tensor:
        if self._number is None:
            with tf.init_scope():  # Loops, branches and functions of the program capture it.
                self._number = self.per_core([tf.constant(core) for core in self.own])
        return tf.identity(self._number, name)

    def _replicated_input(
        self,
        inputs: Sequence[Any],
        is_mirrored_variable: bool = False,
        index: int = -1,
        is_packed: bool = False,
        name: str | None = None,
    ) -> tf.Tensor:
        if len(inputs) != self.count or is_packed:
            got = "a packed input" if is_packed else f"{len(inputs)}"
            raise ValueError(
                f"tpu_replicated_input: inputs must have one tensor for each of {self.count} cores "
                f"(replicas); got {got}."
            )
        graph = tf.compat.v1.get_default_graph()
        inner = graph.building_function or graph._get_control_flow_context() is not None
        if inner and any(map(tf.is_tensor, inputs)):
            raise _not_in_body(_INPUT, self.count)
        with tf.init_scope():
            values = [tf.convert_to_tensor(inputs[core]) for core in self.own]
            if self.count > 1 and values[0].dtype == tf.resource:
                raise NotImplementedError(
                    f"tpu_replicated_input of variables cannot be emulated on {self.count} cores, "
                    "because they share each variable. Read the variable itself, or pass its value."
                )
            mine = self.per_core(values)
        return tf.identity(mine, name)

    def _exchanged(
        self,
        kind: str,
        groups: list[list[int]],
        given: tf.Tensor,
        combine: Callable[[list[tf.Tensor]], list[tf.Tensor]],
        gradient: Callable[[tf.Tensor], tf.Tensor],
        shape: Any = None,
    ) -> tf.Tensor:
        """Returns core 0's output of an op between cores. `shape` defaults to the input's shape."""

        @tf.custom_gradient
        def exchanged(value: tf.Tensor) -> Any:
            graph = tf.compat.v1.get_default_graph()
            if graph.building_function or graph._get_control_flow_context() is not None:
                raise _not_in_body(kind, self.count)
            output = self.stand_ins(value.dtype, value.shape if shape is None else shape)[0]
            self.collectives.append(Collective(kind, groups, value, output, combine))
            return output, gradient

        return exchanged(given)

    def _cross_replica_sum(
        self, input: Any, group_assignment: Any, name: str | None = None
    ) -> tf.Tensor:
        groups = _constant("cross_replica_sum: group_assignment", group_assignment)

        def combine(values: list[tf.Tensor]) -> list[tf.Tensor]:
            outputs = list(values)
            for group in groups:
                total = tf.add_n([values[core] for core in group])
                for core in group:
                    outputs[core] = total
            return outputs

        def gradient(upstream: tf.Tensor) -> tf.Tensor:
            return self._cross_replica_sum(upstream, groups)

        given = tf.convert_to_tensor(input)
        return self._exchanged("cross_replica_sum", groups, given, combine, gradient)

    def _all_to_all(
        self,
        input: Any,
        group_assignment: Any,
        concat_dimension: int,
        split_dimension: int,
        split_count: int,
        name: str | None = None,
    ) -> tf.Tensor:
        groups = _constant("all_to_all: group_assignment", group_assignment)
        given = tf.convert_to_tensor(input)
        shape = given.shape.as_list()
        if shape[split_dimension] is not None:
            shape[split_dimension] //= split_count
        if shape[concat_dimension] is not None:
            shape[concat_dimension] *= split_count

        def combine(values: list[tf.Tensor]) -> list[tf.Tensor]:
            outputs = list(values)
            for group in groups:
                pieces = [tf.split(values[c], split_count, split_dimension) for c in group]
                for place, core in enumerate(group):
                    received = [of_core[place] for of_core in pieces]
                    outputs[core] = tf.concat(received, concat_dimension)
            return outputs

        def gradient(upstream: tf.Tensor) -> tf.Tensor:
            return self._all_to_all(
                upstream, groups, split_dimension, concat_dimension, split_count
            )

        return self._exchanged("all_to_all", groups, given, combine, gradient, shape)

    def _collective_permute(
        self, input: Any, source_target_pairs: Any, name: str | None = None
    ) -> tf.Tensor:
        pairs = _constant("collective_permute: source_target_pairs", source_target_pairs)

        def combine(values: list[tf.Tensor]) -> list[tf.Tensor]:
            outputs = [tf.zeros_like(value) for value in values]
            for source, target in pairs:
                outputs[target] = values[source]
            return outputs

        def gradient(upstream: tf.Tensor) -> tf.Tensor:
            return self._collective_permute(upstream, [pair[::-1] for pair in pairs])

        given = tf.convert_to_tensor(input)
        return self._exchanged("collective_permute", pairs, given, combine, gradient)


@contextlib.contextmanager
def _in_xla(count: int) -> Iterator[Ops]:
    """Yields functions that tell a program that XLA compiles its model for `count` cores of a TPU.

    As on a TPU, `tf.init_scope` and `tf.control_dependencies(None)` leave this context.
    """
    graph = tf.compat.v1.get_default_graph()
    # This context adds no dependency, and contains the ops that a TPU's context would contain.
    inside = graph.control_dependencies([])
    tpu = TPUReplicateContext("cluster", count, None)

    def enclosing() -> Any:
        return tpu if inside in graph._control_dependencies_stack else None

    def own(ctxt: Any) -> Any:
        while ctxt is not None and not ctxt.IsXLAContext():
            ctxt = ctxt.outer_context
        return ctxt

    def containing(ctxt: Any) -> Any:
        # As on a TPU, the graph of a function has no such context.
        here = graph is tf.compat.v1.get_default_graph()
        return own(ctxt) or (enclosing() if here else None)

    with inside:
        yield {
            "enclosing_tpu_context": enclosing,
            "GetContainingXLAContext": containing,
            "InXlaContext": lambda graph: containing(graph._get_control_flow_context()) is not None,
            "IsInXLAContext": lambda op: (
                inside.op_in_group(op) or own(op._get_control_flow_context()) is not None
            ),
        }


@contextlib.contextmanager
def _replaced(ops: Ops) -> Iterator[None]:
    """Replaces TensorFlow's functions by `ops` in this thread only."""
    global _running
    with _lock:
        if not _running:
            for name, modules in _MODULES.items():
                for module in modules:
                    _changes.wrap(module, name, functools.partial(_replaceable, name))
        _running += 1
    before = _ops.set(ops)
    try:
        yield
    finally:
        _ops.reset(before)
        with _lock:
            _running -= 1
            if not _running:
                _changes.close()


def _replaceable(op: str, original: Callable[..., Any]) -> Callable[..., Any]:
    def replaceable(*args: Any, **kwargs: Any) -> Any:
        own = _ops.get().get(op, original)
        if op in _OF_PROGRAMS and own is not original and _is_of_tensorflow(inspect.currentframe()):
            own = original
        return own(*args, **kwargs)

    return replaceable


def _is_of_tensorflow(frame: Any) -> bool:
    """Returns whether TensorFlow or Keras called `frame`, skipping frames of AutoGraph."""
    frame = frame.f_back
    while _AUTOGRAPH in frame.f_code.co_filename:
        frame = frame.f_back
    return frames.is_in(frame.f_code.co_filename, ("keras", "tensorflow", "tf_keras"))


def _not_in_body(kind: str, count: int) -> NotImplementedError:
    return NotImplementedError(
        f"{kind} inside a loop, a branch or a tf.function cannot be emulated on {count} cores; "
        "call it in the body of model_fn, or emulate one core."
    )


def wire(stand_in: tf.Tensor, value: tf.Tensor) -> None:
    """Connects a stand-in to its value."""
    stand_in.op._update_input(0, value)


def _unchanged(input: Any, *args: Any, name: str | None = None, **kwargs: Any) -> tf.Tensor:
    # With one core, every op between cores returns its input.
    return tf.identity(input, name)


def _constant(owner: str, value: Any) -> list[list[int]]:
    known = tf.get_static_value(tf.convert_to_tensor(value, tf.int32))
    if known is None:
        raise ValueError(f"{owner} must be known when the graph is built; got {value!r}.")
    return known.tolist()


def parts_of(value: tf.Tensor, cores: int, axis: int = 0) -> list[tf.Tensor]:
    """Divides a batch among cores."""
    # TensorFlow's graph optimizer makes tf.stack([x, x]) repeat the first output of x's op. Each
    # part gets an op of its own, which leaves wrong sizes to checks that name the feature.
    any_size = None if value.shape.rank is None else [None] * value.shape.rank
    return [tf.ensure_shape(part, any_size) for part in tf.split(value, cores, axis)]


def _part_per_core(wanted: Sequence[tf.Tensor], sources: set[str]) -> list[tf.Operation]:
    """Returns the ops between `sources` and `wanted`, in the order of their creation.

    They include all ops that draw random numbers. A TensorFlow 1 loop is taken as a whole.
    """
    needed = structure.reached(
        [tensor.op for tensor in wanted if tensor.name not in sources],
        lambda op: [*(one.op for one in op.inputs if one.name not in sources), *_before(op)],
    )
    readers: dict[str, list[tf.Operation]] = {}
    loops: dict[str, list[tf.Operation]] = {}
    for op in needed:
        for tensor in op.inputs:
            readers.setdefault(tensor.name, []).append(op)
        for before in _before(op):
            readers.setdefault(before.name, []).append(op)
        for loop in _loops(op):
            loops.setdefault(loop, []).append(op)
    per_core: dict[str, tf.Operation] = {}
    waiting = [op for name in sources for op in readers.get(name, [])]
    waiting += [op for op in needed if _draws(op) or op.type in _PER_LOOP]
    while waiting:
        op = waiting.pop()
        if op.name in per_core or _writes(op):
            continue
        per_core[op.name] = op
        for loop in _loops(op):
            waiting += loops.pop(loop, [])
        for name in (op.name, *(tensor.name for tensor in op.outputs)):
            waiting += readers.get(name, [])
    return sorted(per_core.values(), key=lambda op: op._id)


def _before(op: tf.Operation) -> list[tf.Operation]:
    """Returns the control inputs of `op` that write nothing. They may skip an untaken branch."""
    return [before for before in op.control_inputs if not _writes(before)]


def _writes(op: tf.Operation) -> bool:
    """Returns whether an op changes a variable or writes a summary, so that only core 0 runs it."""
    if any(tensor.dtype._is_ref_dtype for tensor in op.outputs):
        return True
    return not op.outputs and any(tensor.dtype == tf.resource for tensor in op.inputs)


def _loops(op: tf.Operation) -> list[str]:
    loops = []
    if op.type in ("Enter", "RefEnter"):
        loops.append(op.get_attr(_FRAME).decode())
    context = op._get_control_flow_context()
    while context is not None:
        if context.IsWhileContext():
            loops.append(context.name)
        context = context.outer_context
    return loops


def _draws(op: tf.Operation) -> bool:
    """Returns whether an op draws random numbers, or calls a function that does."""
    if op.type not in accesses.FUNCTIONS:
        return op.op_def.is_stateful and any(attr.name == "seed2" for attr in op.op_def.attr)
    called = [accesses.function_of(one.name, op.graph) for one in accesses.called(op.node_def)]
    bodies = [function.graph for function in called if hasattr(function, "graph")]
    return any(_draws(inner) for body in bodies for inner in body.get_operations())


def _seed(node: Any, core: int, graph: Any, library: Any) -> None:
    """Gives a node a core's seeds, and functions of its own, which also get these seeds."""
    if "seed2" in node.attr and (node.attr["seed"].i or node.attr["seed2"].i):
        node.attr["seed2"].i += core
    for called in accesses.called(node):
        function = accesses.function_of(called.name, graph)
        called.name += f"_core_{core}"
        if all(one.signature.name != called.name for one in library.function):
            copy = library.function.add()
            copy.CopyFrom(function.definition)
            copy.signature.name = called.name
            for inner in copy.node_def:
                _seed(inner, core, getattr(function, "graph", graph), library)


def _copy(
    ops: list[tf.Operation], sources: dict[str, tf.Tensor], wanted: Sequence[tf.Tensor], core: int
) -> list[tf.Tensor]:
    """Copies `ops` for another core. `sources` maps core 0's tensor names to its tensors."""
    names = {op.name for op in ops}
    graph_def = tf.compat.v1.GraphDef()
    graph_def.versions.CopyFrom(tf.compat.v1.get_default_graph().graph_def_versions)
    outside: dict[str, tf.Tensor] = {}
    waits: dict[str, list[tf.Operation]] = {}
    for op in ops:
        node = graph_def.node.add()
        node.CopyFrom(op.node_def)
        del node.input[:]
        for tensor in op.inputs:
            node.input.append(tensor.name)
            if tensor.op.name not in names or tensor.name in sources:
                outside[tensor.name] = sources.get(tensor.name, tensor)
        for before in op.control_inputs:
            if before.name in names:
                node.input.append(f"^{before.name}")
            else:
                waits.setdefault(op.name, []).append(before)
        node.attr.pop("_class", None)
        if _FRAME in node.attr:
            node.attr[_FRAME].s += b"/core_%d" % core
        if _draws(op):
            _seed(node, core, op.graph, graph_def.library)
    inside = [tensor for tensor in wanted if tensor.op.name in names and tensor.name not in sources]
    # Leaves any name scope or loop that happens to be open.
    with tf.name_scope(""), tf.control_dependencies(None):
        imported = tf.graph_util.import_graph_def(
            graph_def,
            input_map=outside,
            return_elements=[*(tensor.name for tensor in inside), *waits],
            name=f"core_{core}",
        )
    for copy, before in zip(imported[len(inside) :], waits.values(), strict=True):
        copy._add_control_inputs(before)
    values = {tensor.name: copy for tensor, copy in zip(inside, imported, strict=False)}
    return [values.get(tensor.name, sources.get(tensor.name, tensor)) for tensor in wanted]
