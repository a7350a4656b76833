"""Reports NaN and infinity in the loss, in the inputs of a step, and in variables before a save.

A check runs in a session call of the training. It reads only tensors that this call computes
anyway, and no op of the program waits for it. So it never changes when an input ends, and which
variables a step writes before that.
"""

import contextlib
import threading
from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from estimator_emb.checkpoints.restoring import saver
from estimator_emb.engine.ordering import reads_before_writes, structure, variable_reads
from estimator_emb.engine.tables.storage import StoredTable, saved_name
from estimator_emb.guards.call import Call
from estimator_emb.guards.events import Event, Facts, facts_of, on
from estimator_emb.reporting import frames
from estimator_emb.reporting.console import logger

_REMEDY = (
    "Correct the data, or fill in what is missing before the model computes with it: a tf.where "
    "around a result keeps NaN out of the loss, but not out of the gradients."
)
_SHOWN = 5
"""The number of inputs, variables or rows that a message names."""
_KINDS = {"NaN": np.isnan, "infinity": np.isinf}
_ROWS_AT_A_TIME = 1 << 14

_MAKES_NAN = frozenset(
    ("Acos", "Acosh", "Asin", "Atanh", "Div", "Log", "Log1p", "Pow", "RealDiv", "Reciprocal")
    + ("Rsqrt", "Sqrt")
)
"""Ops that make NaN or infinity of some finite numbers."""

_NOTE = "numbers"
EACH_STEP = ("checks of inputs",)
"""Collection of what a backend must fetch with each step that it runs in a session call of its own.

Its key is not a string, so it is never exported.
"""


class NanLossError(tf.compat.v1.train.NanLossDuringTrainingError, tf.errors.InvalidArgumentError):
    """A training's loss is NaN, or a variable is NaN or infinite before a save.

    This is tensorflow-estimator's error, and also the error that a TPU raises for such a variable.
    """

    def __init__(self, message: str):
        tf.errors.InvalidArgumentError.__init__(self, None, None, message)

    def __reduce__(self) -> Any:
        return type(self), (self.message,)

    def __str__(self) -> str:
        return str(self.message)


def _watched(call: Call) -> bool:
    return call.in_session and call.method in ("train", "evaluate")


@on(Event.CALL, when=lambda call: _watched(call) and call.method == "train")
def numbers_of_training(call: Call) -> contextlib.AbstractContextManager[Any]:
    """Runs the checks before tensorflow-estimator's hook, which only says that NaN is there."""
    return contextlib.nullcontext([_Hook()])


@on(Event.EVALUATION, when=_watched)
def numbers_of_evaluation(call: Call) -> list[Any]:
    """Warns about NaN and infinity in the inputs of an evaluation."""
    return [_Hook()]


@on(Event.GRAPH_COMPLETED, when=_watched)
def numbers_of_graph(facts: Facts, spec: Any) -> Iterable[Any]:
    """Explains a NaN loss, and ends a training before it saves NaN or infinity.

    Only what the optimizer trains, its slots and their moving averages can end a training.
    """
    if tf.distribute.has_strategy():
        return []  # Each replica has its own batch and its own variables.
    looks = facts.notes[_NOTE] = _Looks(facts, spec)
    if looks.variables is None or not facts.call.is_chief:
        return []
    return [saver.ChecksBeforeSaving(looks.before_save, saver.savers_of_program(spec))]


class _Looks:
    """Looks at the numbers of a graph while its session runs.

    Attributes:
      fetched: what each session call fetches: the check of the inputs, in a training also the loss.
      variables: the op that checks the variables, if any.
    """

    fetched: tuple[Any, ...] = ()
    _inputs: tuple[bool, list[str]] | None = None
    """Whether the loss of a step was NaN, and lines about the step's inputs."""
    _warned = False
    variables: tf.Tensor | None = None
    _found: dict[str, str]
    """Name of a variable -> 'NaN' or 'infinity', as the last check has found them."""
    _lines: list[str]
    """Lines about these variables."""
    _at_start: frozenset[str] = frozenset()
    """Names of the variables that were not finite when training began."""
    _checked_step: int | None = None

    def __init__(self, facts: Facts, spec: Any):
        self._facts, self.call = facts, facts.call
        self._lock = threading.Lock()
        self._losses = facts.losses_of(spec) or [spec.loss]
        with tf.device("/cpu:0"), tf.name_scope("check_numbers"):
            self._look_at_inputs(spec)
            # Variables of parameter servers would have to come here.
            if self.call.training and not self.call.config.master:
                self._look_at_variables()
        if self.call.training:
            self.fetched = (spec.loss, *self.fetched)

    def _look_at_inputs(self, spec: Any) -> None:
        losses = self._losses
        updates = [update for _, update in (spec.eval_metric_ops or {}).values()]
        step = self._facts.ops.run_for(spec.train_op, updates, spec.loss)
        inputs = _FloatInputs(self._facts, step)
        if not inputs.names or not losses[0].dtype.is_floating:
            return

        def look(*values: Any) -> np.bool_:
            is_nan = bool(np.isnan(np.array(values[: len(losses)], np.float64)).any())
            # NaN among the inputs does not make a loss infinite.
            bad = (lambda value: ~np.isfinite(value)) if is_nan else np.isinf
            lines = inputs.lines(values[len(losses) :], bad)
            if lines and not (self._inputs and self._inputs[0]):
                self._inputs = is_nan, lines
            return np.bool_(True)

        each = [tf.math.is_finite(loss) for loss in losses]
        # Without needless ops, for the time that a call takes to begin.
        finite = tf.reduce_all(each) if len(each) > 1 or each[0].shape.rank != 0 else each[0]
        # tf.cond would do the same, and takes ten times as long to build.
        given = [tf.raw_ops.Switch(data=one, pred=finite) for one in [*losses, *inputs.tensors]]
        looks = tf.numpy_function(look, [one.output_false for one in given], tf.bool)
        skips = tf.raw_ops.Switch(data=tf.constant(True), pred=finite).output_true
        looked = tf.raw_ops.Merge(inputs=[looks, skips]).output
        tf.compat.v1.add_to_collection(EACH_STEP, looked)
        self.fetched = (looked,)

    def _look_at_variables(self) -> None:
        """Adds one op that reads all variables in place, without a copy."""
        variables = _trained(self._tables())
        if not variables:
            return

        def look(*values: Any) -> np.bool_:
            value_of = dict(zip(reads, values, strict=True))
            with np.errstate(all="ignore"):
                # A sum of finite numbers may overflow.
                bad = {
                    name: "NaN" if np.isnan(value).any() else "infinity"
                    for name, value in value_of.items()
                    if not np.isfinite(value.sum()) and not np.isfinite(value).all()
                }
            new = [one for one in variables if one.name in bad.keys() - self._at_start]
            read = lambda variable: value_of[variable.name]  # noqa: E731
            self._lines = list(lines_of_weights(self._tables(), new, read))
            self._found = bad
            return np.bool_(True)

        reads = variable_reads.in_place(variables, self.call.config.session_config)
        self.variables = tf.numpy_function(look, list(reads.values()), tf.bool)
        reads_before_writes.keep_between_steps(self.variables.op)

    def begin(self, session: Any) -> None:
        """Notes which variables are not finite when training begins."""
        if self._lines_of_variables(session):
            self._at_start = frozenset(self._found)
            if "NaN" in self._found.values():
                begin = "Training begins with weights that are NaN, which no step mends:"
                end = "Begin from an older checkpoint, or correct what gives them these values."
                logger.warning("%s", "\n  ".join([begin, *_some(self._lines), end]))
        if self.variables is not None:
            self._checked_step = _step(session)

    def after_run(self, session: Any, loss: Any) -> None:
        """Raises an error about a training's NaN loss. Warns once about bad inputs otherwise."""
        found, self._inputs = self._inputs, None
        training, on_cores = self.call.training, self.call.on_cores
        is_nan = loss is not None and bool(np.isnan(loss).any())
        if is_nan and not found:
            lines = self._lines_of_variables(session)
            if lines:
                lines = ["After this step, these hold NaN or infinity:", *_some(lines)]
            raise NanLossError("\n  ".join(["NaN loss during training.", *self._origin(), *lines]))
        if not found:
            return
        step = _step(session)
        where = f" loss in an evaluation after step {step}: a batch has"
        if training and on_cores:
            where = f" loss during training. A batch up to step {step} has"
        elif training:
            where = f" loss during training. The batch of step {step} has"
        begin = ("NaN" if found[0] else "Infinite") + where
        message = "\n  ".join([begin, *_some(found[1]), _REMEDY])
        # A TPU, too, ends by NaN in an earlier step of its loop, or on another core.
        if is_nan or (training and on_cores and found[0]):
            raise NanLossError(message)
        if not self._warned:
            self._warned = True
            logger.warning("%s", message)

    def _origin(self) -> Iterator[str]:
        """Yields lines about the ops that may have made a NaN loss.

        The values of these ops are gone, and the step has changed the variables that they read.
        """
        loss = self._facts.model_loss.op
        yield (
            "No feature and no label of this step holds NaN or infinity: the model made it. "
            f"{frames.made_by(loss)}"
        ).rstrip()
        may = [one for one in structure.leading_to([loss], {}) if _may_make_nan(one)]
        if made := next(filter(None, map(frames.made_by, may)), ""):
            yield f"The first op before the loss that can make NaN of finite numbers: {made}"
        yield (
            "train_op = tf.group(train_op, tf.compat.v1.add_check_numerics_ops()) in model_fn ends "
            "the training at the first op that makes NaN, and names it."
        )

    def before_save(self, session: Any) -> None:
        with self._lock:  # A saver may write in its own thread.
            step = _step(session)
            if step == self._checked_step:
                return
            self._checked_step = step
            lookup = self._facts.lookup
            if lookup and lookup.fetch:
                lookup.fetch(session)
            lines = self._lines_of_variables(session)
        if not lines:
            return
        begin = f"NaN or infinity in the model after step {step}, which is not saved:"
        end = [
            "Look for NaN in the input, and for a learning rate that is too high. With "
            "save_checkpoints_steps=1, training ends at the first such step."
        ]
        if self._inputs:  # This save comes before `after_run`.
            end = ["The batch of a step since the last save has", *_some(self._inputs[1]), _REMEDY]
        path = self.call.directory.latest() if self.call.directory else None
        if path is not None:
            end.append(f"The newest checkpoint is {path}, from which training continues.")
        raise NanLossError("\n  ".join([begin, *_some(lines), *end]))

    def _lines_of_variables(self, session: Any) -> list[str]:
        """Returns a line for each table, slot and variable that has become NaN or infinite."""
        if self.variables is None:
            return []
        try:
            session.run(self.variables)
        except tf.errors.FailedPreconditionError:  # The program initializes a variable later.
            return []
        return self._lines

    def _tables(self) -> Sequence[StoredTable]:
        return self._facts.lookup.tables if self._facts.lookup else ()


class _Hook(tf.compat.v1.train.SessionRunHook):
    """Runs the checks of its session's graph."""

    _looks: _Looks | None = None

    def begin(self) -> None:
        facts = facts_of(tf.compat.v1.get_default_graph())
        self._looks = facts and facts.notes.get(_NOTE)

    def after_create_session(self, session: Any, coord: Any) -> None:
        if self._looks:
            self._looks.begin(session)

    def before_run(self, run_context: Any) -> Any:
        fetched = self._looks.fetched if self._looks else ()
        return tf.compat.v1.train.SessionRunArgs(list(fetched)) if fetched else None

    def after_run(self, run_context: Any, run_values: Any) -> None:
        if self._looks and run_values.results:
            loss = run_values.results[0] if self._looks.call.training else None
            self._looks.after_run(run_context.session, loss)


def _may_make_nan(op: tf.Operation) -> bool:
    if op.type not in _MAKES_NAN:
        return False
    second = tf.get_static_value(op.inputs[1]) if len(op.inputs) == 2 else None
    if second is None:
        return True
    number = np.asarray(second, np.complex128)  # Of any type that an op takes.
    whole = (number.real >= 0) & (number == np.rint(number.real))
    return not np.all(whole if op.type == "Pow" else number != 0)


def _step(session: Any) -> int:
    return int(session.run(tf.compat.v1.train.get_global_step(session.graph)))


def _some(lines: Sequence[str]) -> list[str]:
    more = [f"and {len(lines) - _SHOWN} more"] if len(lines) > _SHOWN else []
    return [*lines[:_SHOWN], *more]


def _trained(tables: Iterable[StoredTable]) -> list[tf.Variable]:
    """Returns the tables, the trainable variables, and the slots and moving averages of both.

    A slot or an average has the shape of its variable, and a name that contains the variable's.
    """
    shapes = {one.op.name: one.shape for one in tf.compat.v1.trainable_variables()}
    of_tables = {one.name for table in tables for one in table.all_variables}

    def follows(variable: tf.Variable) -> bool:
        parts = variable.op.name.split("/")
        return any(
            str(shapes.get("/".join(parts[start:end]))) == str(variable.shape)
            for start in range(len(parts))
            for end in range(start + 1, len(parts) + 1)
        )

    return [
        one
        for one in tf.compat.v1.global_variables()
        if one.dtype.base_dtype.is_floating and (one.name in of_tables or follows(one))
    ]


def lines_of_weights(
    tables: Iterable[StoredTable],
    variables: Iterable[tf.Variable],
    read: Callable[[tf.Variable], Any],
) -> Iterator[str]:
    """Yields a line for each table, slot or variable that holds NaN or infinity.

    A table or slot is checked if any of its shards is in `variables`. `read` returns its value.
    """
    wanted = {variable.name: variable for variable in variables}
    for table in tables:
        of_shards = [(shard.weights, *shard.slots) for shard in table.variables]
        for shards in zip(*of_shards, strict=True):
            if [shard for shard in shards if wanted.pop(shard.name, None) is not None]:
                part = shards[0]._get_save_slice_info()  # Another host may have the first rows.
                found = _rows_of(map(read, shards), part.var_offset[0] if part else 0)
                if found and shards[0] is of_shards[0][0]:
                    features = ", ".join(repr(feature.key) for feature in table.features)
                    yield f"table {table.name!r} (features {features}): {found}"
                elif found:
                    yield f"slot {saved_name(shards[0])} of table {table.name!r}: {found}"
    for name, variable in wanted.items():
        if variable.dtype.is_floating:
            value = np.asarray(read(variable))
            counts = {kind: (int(holds(value).sum()), "") for kind, holds in _KINDS.items()}
            if found := _listed(counts, f"{value.size:,} numbers"):
                gradient = f" (Gradient for {name} is NaN)" if variable.trainable else ""
                yield f"variable {name}: {found}{gradient}"


def _rows_of(shards: Iterable[np.ndarray], start: int) -> str:
    rows: dict[str, list[int]] = {kind: [] for kind in _KINDS}
    for values in shards:
        for kind, holds in _KINDS.items():
            rows[kind] += [start + row for row in _rows_that_hold(holds, values)]
        start += len(values)
    return _listed({kind: (len(ids), _ids(ids)) for kind, ids in rows.items()}, f"{start:,} rows")


def _listed(counts: dict[str, tuple[int, str]], among: str) -> str:
    found = ((kind, *one) for kind, one in counts.items() if one[0])
    return "; ".join(f"{kind} in {count:,} of {among}{where}" for kind, count, where in found)


def _rows_that_hold(holds: Callable[..., Any], values: np.ndarray) -> list[int]:
    return [
        start + int(row)
        for start in range(0, len(values), _ROWS_AT_A_TIME)
        for row in np.flatnonzero(holds(values[start : start + _ROWS_AT_A_TIME]).any(axis=1))
    ]


def _ids(rows: list[int]) -> str:
    shown = ", ".join(map(str, rows[:_SHOWN]))
    return f", ids {shown}, ..." if len(rows) > _SHOWN else f", ids {shown}"


class _FloatInputs:
    """The floating-point features and labels that a step reads, and where bad numbers are.

    Attributes:
      names: name of each input. If cores share the batch, each core's input has a name.
      tensors: the tensors of all inputs.
    """

    def __init__(self, facts: Facts, step: Container[tf.Operation]):
        self._parts: dict[str, list[tf.Tensor]] = {}
        for name, value in facts.inputs():
            if isinstance(value, tf.SparseTensor):
                parts = [[value.values, value.indices]]
            elif isinstance(value, tf.RaggedTensor):
                parts = [[value.flat_values, *value.nested_row_splits]]
            else:
                of_cores = facts.cores.on_each_core(value) if tf.is_tensor(value) else []
                parts = [[one] for one in of_cores]
            for core, of_core in enumerate(parts, start=facts.cores.own.start):
                # Reading another input could take a batch that the step leaves.
                if of_core[0].dtype.is_floating and all(part.op in step for part in of_core):
                    of_name = f"{name} of core {core}" if len(parts) > 1 else name
                    self._parts[of_name] = of_core
        self.names = list(self._parts)
        self.tensors = [part for parts in self._parts.values() for part in parts]

    def lines(self, values: Iterable[Any], bad: Callable[[Any], Any]) -> list[str]:
        """Returns a line per input with bad numbers. `values` are the values of `tensors`."""
        rest = iter(values)
        named = [(name, [next(rest) for _ in parts]) for name, parts in self._parts.items()]
        return [line for name, of_input in named for line in _lines(name, bad, *of_input)]


def _lines(name: str, bad: Callable[[Any], Any], values: Any, *places: Any) -> list[str]:
    found = np.argwhere(bad(values))
    if not len(found):
        return []
    place = [int(index) for index in found[0]]
    value = values[tuple(place)]
    for of_rows in reversed(places):
        if of_rows.ndim == 2:  # The indices of a SparseTensor.
            place = of_rows[place[0]].tolist()
        else:  # The row splits of a RaggedTensor.
            row = int(np.searchsorted(of_rows, place[0], side="right")) - 1
            place = [row, place[0] - int(of_rows[row]), *place[1:]]
    where = f" in sample {place[0]}, at {place}" if place else ""
    return [f"{name}: {value}{where}, and {len(found)} such of {values.size:,} numbers"]
