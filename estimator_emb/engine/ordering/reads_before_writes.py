"""Makes a step read its variables before it writes them, as the cores of a TPU do.

TensorFlow runs ops in any order that their inputs allow. If a read and a write of a variable do not
wait for each other, either may run first. A TPU has no such race: a step reads the value from
before the step, unless the program itself makes the read wait for a write. `order` adds control
edges to the same effect. It moves no op, and adds an op only in these cases:

* A reader of a reference variable gets the variable's buffer. If it must or may run after the
  write, it gets a copy instead.
* A read for a summary, for example, is not needed by the step itself. In every step, it would copy
  a variable that is updated sparsely. An added op lets it share the buffer.
* A function reads a variable. Writes wait for the function's results.
"""

import contextlib
import functools
import graphlib
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from typing import Any

import tensorflow as tf

from estimator_emb.compat.internals.estimators import EstimatorSpec
from estimator_emb.compat.internals.tpu_estimator import OutfeedHostCallHook
from estimator_emb.engine.ordering import accesses, structure
from estimator_emb.engine.ordering.accesses import Variable
from estimator_emb.reporting.console import logger

_LARGE = 1 << 16
"""A size in bytes. No step copies a larger reference variable for an occasional fetch."""

_ANY_TIME = accesses.VARIABLES | {"Const", "DisableCopyOnRead", "VarHandleOp"}
"""Ops that can run at any time, because they do not depend on a step's results."""

_SAVES = frozenset(("Save", "SaveSlices", "SaveV2"))

_SHARING = frozenset(
    ("AddN", "BatchToSpace", "Bitcast", "BroadcastTo", "Cast", "CheckNumerics", "CheckNumericsV2")
    + ("Concat", "ConcatV2", "EnsureShape", "Enter", "Exit", "ExpandDims", "Identity", "IdentityN")
    + ("If", "Max", "Mean", "Merge", "Min", "NextIteration", "Pack", "PartitionedCall")
    + ("PlaceholderWithDefault", "PreventGradient", "Prod", "PyFunc", "PyFuncStateless", "Reshape")
    + ("Slice", "Snapshot", "SpaceToBatch", "Split", "SplitV", "Squeeze")
    + ("StatefulPartitionedCall", "StatelessIf", "StatelessWhile", "StopGradient", "StridedSlice")
    + ("Sum", "Switch", "Tile", "Transpose", "Unpack", "While", "EagerPyFunc")
)
"""Ops whose outputs may share the buffer of an input."""

_BETWEEN_STEPS = ("reads between steps",)
"""Graph collection of reads, and of readers, that no step runs.

Its key is not a string, so it is never exported.
"""

Fetched = Any
"""A `tf.Operation` or `tf.Tensor`."""


def keep_between_steps(read: tf.Operation) -> None:
    """Keeps a read, or a reader of reads, out of `order`. Only separate session calls run it."""
    tf.compat.v1.add_to_collection(_BETWEEN_STEPS, read)


def order(every_step: Iterable[Fetched], sometimes: Iterable[Fetched] = ()) -> int:
    """Adds control edges to the default graph, from reads of variables to their writes.

    Returns the number of edges added. A read that depends on a write of its variable stays, because
    the program has ordered it. A read outside of the step joins the step if it needs only the
    variable and results of the step. All steps fetch `every_step`, and only some fetch `sometimes`.
    """
    return _Ordering(list(every_step), list(sometimes)).apply()


class ReadsFirstHook(tf.compat.v1.train.SessionRunHook):
    """Orders the reads of a step's variables before their writes, just before a session begins.

    It must be the last hook, because the other `hooks` may add ops to the step until then.
    """

    def __init__(self, spec: EstimatorSpec, hooks: Iterable[Any]):
        self._spec = spec
        self._hooks = list(hooks)

    def begin(self) -> None:
        calls = [hook._tensors for hook in self._hooks if isinstance(hook, OutfeedHostCallHook)]
        sometimes = [
            *tf.compat.v1.get_collection(tf.compat.v1.GraphKeys.SUMMARIES),
            *tf.compat.v1.get_collection(tf.compat.v1.GraphKeys.SUMMARY_OP),
            tf.compat.v1.train.get_global_step(),
            *(
                fetched
                for hook in self._hooks
                for fetched in _fetched(list(vars(hook).values()))
                if tf.is_tensor(fetched)  # An op may initialize or reset variables.
            ),
        ]
        every_step = [
            self._spec.train_op,
            self._spec.loss,
            [update for _, update in (self._spec.eval_metric_ops or {}).values()],
            calls,
        ]
        order(_fetched(every_step), _fetched(sometimes))


def _fetched(value: Any, depth: int = 3) -> Iterator[Fetched]:
    if isinstance(value, (tf.Variable, tf.Tensor, tf.Operation)):
        graph = tf.compat.v1.get_default_graph()
        element = getattr(value, "_as_graph_element", lambda: value)()
        # A hook may keep eager tensors, which have no graph, and eager variables: None.
        if getattr(element, "graph", None) is graph:
            yield element
    elif depth and isinstance(value, (Mapping, list, tuple, set)):
        for part in value.values() if isinstance(value, Mapping) else value:
            yield from _fetched(part, depth - 1)


class _Ordering:
    def __init__(self, every_step: Sequence[Fetched], sometimes: Sequence[Fetched]):
        self._graph = tf.compat.v1.get_default_graph()
        self._before: dict[tf.Operation, Sequence[tf.Operation]] = {}
        self._roots = [getattr(one, "op", one) for one in (*every_step, *sometimes)]
        self._fetched = {
            _place(fetched) for fetched in (*every_step, *sometimes) if tf.is_tensor(fetched)
        }
        self._step = structure.leading_to(self._roots[: len(every_step)], self._before)
        self._all = structure.leading_to(self._roots, self._before)
        self._between = {*tf.compat.v1.get_collection(_BETWEEN_STEPS)}
        self._after: dict[tf.Operation, int] = {}
        self._later: dict[tf.Operation, list[tf.Operation]] = {}
        self._copies: dict[tuple[tf.Operation, int], tf.Tensor] = {}
        self._of_function: dict[tf.Operation, list[tf.Operation]] = {}
        self._edges: dict[tuple[tf.Operation, tf.Operation], None] = {}

    def apply(self) -> int:
        racing = list(self._racing())
        if not racing:
            return 0
        reads = [read for _, variable_reads, _ in racing for read in variable_reads]
        self._all = structure.leading_to([*self._roots, *reads], self._before)
        self._places = structure.OpPlaces(self._all, self._before)
        self._find_writes_before([writes for *_, writes in racing])
        at_any_time = functools.cache(_at_any_time)  # An op may read all variables.
        for number, (variable, reads, writes) in enumerate(racing):
            for read in reads:
                if self._depends(read, number):
                    continue
                # An op that is fetched only sometimes may run before the step has input, or may
                # initialize the variable.
                alone = variable.reference or at_any_time(read)
                later_writes = [
                    write
                    for write in writes
                    if write in self._step or (alone and write.type not in accesses.PLAIN)
                ]
                if not variable.reference:
                    self._share(variable, read)
                    self._precede(read, later_writes, number)
                elif self._must_copy(read, number):
                    self._precede(self._copy(read), later_writes, number)
                else:
                    for user, _ in _users(read):
                        if user in self._step:
                            self._precede(user, later_writes, number)
        return self._add()

    def _racing(self) -> Iterator[tuple[Variable, list[tf.Operation], list[tf.Operation]]]:
        """Yields (variable, reads that can be ordered, writes) for each variable with both."""
        kept, initial = _kept_variables(), accesses.initial_writes()
        at_any_time = functools.cache(functools.partial(_at_any_time, besides=self._step))
        for variable in accesses.variables_of(self._graph):
            writes = [op for op in variable.writes if op in self._all and op not in initial]
            if not writes:
                continue
            holds_value = variable.name in kept or any(
                op in self._step and op.type not in accesses.PLAIN
                for op in (*variable.reads, *variable.writes)
            )
            reads = [
                op
                for op in variable.reads
                if op not in self._between
                if op in self._step
                or (holds_value and self._may_be_read(op))
                and (variable.reference or at_any_time(op))
            ]
            if reads:
                yield variable, reads, writes

    def _may_be_read(self, read: tf.Operation) -> bool:
        return any(_place(output) in self._fetched for output in read.outputs) or any(
            self._uses(op) for output in read.outputs for op in output.consumers()
        )

    def _uses(self, reader: tf.Operation) -> bool:
        """Returns whether a reader uses the value for more than saving or initializing."""
        if reader.type in _SAVES or reader in self._between:
            return False
        if reader.type in accesses.PLAIN:
            return reader in self._all
        if reader.type == "Identity" and _place(reader.outputs[0]) not in self._fetched:
            return any(self._uses(user) for user in reader.outputs[0].consumers())
        return True

    def _find_writes_before(self, writes: list[list[tf.Operation]]) -> None:
        """Finds the variables that are written before each op, as bits of an int."""
        written: dict[tf.Operation, int] = {}
        for number, variable_writes in enumerate(writes):
            for op in variable_writes:
                written[op] = written.get(op, 0) | 1 << number
        for op in self._all:
            bits = 0
            for previous in self._before[op]:
                bits |= self._after[previous] | written.get(previous, 0)
            self._after[op] = bits

    def _depends(self, op: tf.Operation, number: int) -> bool:
        return bool(self._after.get(op, 0) >> number & 1)

    def _precede(self, read: tf.Operation, writes: Iterable[tf.Operation], number: int) -> None:
        for write in writes:
            for target in self._targets(read, write):
                place = self._places.input_place(target)
                if self._places.output_place(read).can_precede(place):
                    for op in self._results(read):
                        self._edges[op, target] = None
                    continue
                for op in self._leaving(read, place):
                    if not self._depends(op, number):
                        self._edges[op, target] = None

    def _results(self, read: tf.Operation) -> list[tf.Operation]:
        """Returns the ops that writes must wait for to run after a read.

        A function's results are among them. An op that waits only for the call would wait for the
        function's writes, but not for its reads.
        """
        if read.type not in accesses.FUNCTIONS:
            return [read]
        if read not in self._of_function:
            self._of_function[read] = [read]
            for output in read.outputs:
                if any(op in self._step for op in output.consumers()):
                    with self._beside(read):
                        result = tf.identity(output).op
                    self._before[result] = [read]
                    self._all[result] = None
                    self._of_function[read].append(result)
        return self._of_function[read]

    def _targets(self, read: tf.Operation, write: tf.Operation) -> list[tf.Operation]:
        loops, around = self._places.input_place(write).loops, self._places.output_place(read).loops
        shared = 0
        while shared < min(len(loops), len(around)) and loops[shared] == around[shared]:
            shared += 1
        return [write] if shared == len(loops) else self._places.enters[loops[: shared + 1]]

    def _leaving(self, read: tf.Operation, place: structure.Place) -> list[tf.Operation]:
        """Returns the first ops of the step after a read that an op at `place` can wait for."""
        if not self._later:
            for op in self._step:
                for previous in self._before[op]:
                    self._later.setdefault(previous, []).append(op)

        def precedes(op: tf.Operation) -> bool:
            return self._places.output_place(op).can_precede(place)

        def after(op: tf.Operation) -> list[tf.Operation]:
            return [] if precedes(op) else self._later.get(op, [])

        return [op for op in structure.reached([read], after) if precedes(op)]

    def _share(self, variable: Variable, read: tf.Operation) -> None:
        """Keeps a read that joins the step from copying a variable that is updated sparsely."""
        if read in self._step or read.type != "ReadVariableOp" or not variable.sparse:
            return
        if all(op.type != "DisableCopyOnRead" for op in read.control_inputs):
            with self._beside(read):
                read._add_control_input(tf.raw_ops.DisableCopyOnRead(resource=read.inputs[0]))

    def _must_copy(self, read: tf.Operation, number: int) -> bool:
        large = _is_large(read)
        for user, shares in _users(read):
            if user in self._step and self._depends(user, number):
                return True
            if user not in self._step and large:
                continue
            shown = any(_place(output) in self._fetched for output in user.outputs)
            if shares and shown:
                return True
            if user not in self._step and not shares and self._uses(user):
                return True
        return False

    def _copy(self, read: tf.Operation) -> tf.Operation:
        """Gives a reader of a reference variable a copy. Returns the op that writes wait for."""
        index = next(i for i, tensor in enumerate(read.inputs) if accesses.is_reference(tensor))
        reference = read.inputs[index]
        if _place(reference) not in self._copies:
            with self._beside(reference.op):
                self._copies[_place(reference)] = copy = tf.raw_ops.DeepCopy(x=reference)
            self._before[copy.op] = [reference.op]
            self._all[copy.op] = None
        copy = self._copies[_place(reference)]
        read._update_input(index, copy)
        self._before[read] = structure.before_of(read)
        return copy.op if self._places.input_place(read) == structure.TOP else read

    @contextlib.contextmanager
    def _beside(self, op: tf.Operation) -> Iterator[None]:
        with tf.control_dependencies(None), tf.device(op.device), tf.name_scope("reads_first"):
            yield

    def _add(self) -> int:
        wanted: dict[tf.Operation, list[tf.Operation]] = {}
        for read, write in self._edges:
            if read is not write and read not in self._before[write]:
                wanted.setdefault(write, []).append(read)
        circular = self._circular(wanted)
        added: dict[tf.Operation, list[tf.Operation]] = {write: [] for write in wanted}

        def before(op: tf.Operation) -> list[tf.Operation]:
            return [one for one in (*self._before[op], *added.get(op, ())) if one in circular]

        for write, reads in wanted.items():
            for read in reads:
                closes = {read, write} <= circular and write in structure.reached([read], before)
                if closes:
                    text = "%s may run before or after %s: an edge would close a cycle."
                    logger.debug(text, read.name, write.name)
                else:
                    added[write].append(read)
        for write, reads in added.items():
            write._add_control_inputs(reads)
        return sum(map(len, added.values()))

    def _circular(self, wanted: Mapping[tf.Operation, list[tf.Operation]]) -> set[tf.Operation]:
        sorter = graphlib.TopologicalSorter(
            {op: (*self._before[op], *wanted.get(op, ())) for op in self._all}
        )
        # After a CycleError, ops that neither are in a cycle nor wait for a cycle are still sorted.
        with contextlib.suppress(graphlib.CycleError):
            sorter.prepare()
        circular = set(self._all)
        while ready := sorter.get_ready():
            circular.difference_update(ready)
            sorter.done(*ready)
        return circular


def _at_any_time(read: tf.Operation, besides: Container[tf.Operation] = ()) -> bool:
    """Returns whether a read needs only its variable and the results of `besides`."""
    return all(op in besides or op.type in _ANY_TIME for op in structure.before_of(read))


def _users(read: tf.Operation) -> Iterator[tuple[tf.Operation, bool]]:
    """Yields (reader of a reference variable's buffer, whether it may pass the buffer on)."""

    def after(op: tf.Operation) -> list[tf.Operation]:
        outputs = op.outputs if op.type in _SHARING else ()
        return [user for output in outputs for user in output.consumers()]

    for op in structure.reached([read], after):
        yield op, op.type in _SHARING


def _is_large(read: tf.Operation) -> bool:
    # An optimizer may read this variable to update another. Such an op has no output.
    tensors = read.outputs or [one for one in read.inputs if accesses.is_reference(one)]
    size = tensors[0].shape.num_elements()
    return size is None or size * tensors[0].dtype.size > _LARGE


def _kept_variables() -> set[str]:
    keys = tf.compat.v1.GraphKeys
    return {
        variable.op.name
        for key in (keys.GLOBAL_VARIABLES, keys.LOCAL_VARIABLES)
        for variable in tf.compat.v1.get_collection(key)
        if isinstance(variable, tf.Variable)
    }


def _place(tensor: tf.Tensor) -> tuple[tf.Operation, int]:
    return tensor.op, tensor.value_index
