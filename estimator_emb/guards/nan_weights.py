"""Ends a training before it saves weights or slots that have become NaN or infinite.

The loss may stay finite: on a CPU, TensorFlow's fused ops turn NaN into a number in a ReLU. So each
variable is summed before each checkpoint and at the end of training. The sum copies no variable,
and only the sum leaves the variable's device. An emulated TPU also checks its dense variables after
each session call, as a TPU does.
"""

import contextlib
import functools
import threading
import time
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from estimator_emb.checkpoints.restoring import saver
from estimator_emb.engine.ordering import accesses, reads_before_writes
from estimator_emb.guards.checks import non_finite, run_ops
from estimator_emb.guards.guard import Call, GraphFacts, Guard
from estimator_emb.guards.nan_loss import NanInputError
from estimator_emb.reporting.console import logger

_SPARSE = ("ResourceScatter", "ResourceSparse")
"""Start of the op types after which a plain read of a variable copies the variable."""
_LATER_BATCHES = 1000
_LATER_SECONDS = 10
"""Seconds in which a failed training reads further batches, to find NaN in its input."""


class NanWeights(Guard):
    """Checks the variables that training steps write."""

    _sums: "_Sums"
    _error: NanInputError | None = None
    """The error that ended a session call."""
    _left_out: set[str] | None = None
    """Names of the variables that contain NaN or infinity when training begins."""
    _step_seen: int | None = None

    def __init__(self, graph: GraphFacts):
        super().__init__(graph)
        self._lock = threading.Lock()

    @classmethod
    def applies(cls, call: Call) -> bool:
        return call.in_session and call.method == "train"

    def complete(self, spec: Any) -> Any:
        self._train_op = spec.train_op
        self._inputs = non_finite.FloatInputs(self.graph)
        return self._with_look(spec) if self.call.on_cores else spec

    def hooks(self, spec: Any) -> Iterable[Any]:
        # Only the chief of a cluster saves. Each replica of a strategy builds the same graph.
        if tf.distribute.has_strategy() or not self.call.is_chief:
            return []
        return [
            _LookHook(self),
            saver.ChecksBeforeSaving(self._look, saver.savers_of_program(spec)),
        ]

    def explain(self, error: Exception) -> Exception | None:
        return self._error

    def _look(self, session: Any) -> None:
        """Raises an error if variables have become NaN or infinite since training began."""
        with self._lock:  # A saver may write in its own thread.
            step = int(session.run(self._sums.step))
            if step == self._step_seen:
                return
            self._step_seen = step
            if self.graph.lookup and self.graph.lookup.fetch:
                self.graph.lookup.fetch(session)
            found = self._sums.not_finite(session)
            if self._left_out is None:
                self._left_out = {one.name for one, _ in found}
                self._warn([one for one, is_nan in found if is_nan and one.trainable], session)
                return
            new = [one for one, _ in found if one.name not in self._left_out]
            lines = self._lines(new, session)
        if lines:
            raise self._made(step, lines, "a later batch", self._later_inputs(session))

    def _lines(self, variables: Iterable[tf.Variable], session: Any) -> list[str]:
        """Returns lines about those `variables` that are not finite and that a step writes."""
        variables = list(variables)
        if not variables:
            return []
        run = run_ops.leading_to(self._train_op)
        written = {
            one.name
            for one in accesses.variables_of(session.graph)
            if not run.keys().isdisjoint(one.writes)
        }
        variables = [one for one in variables if one.op.name in written]
        read = functools.partial(self._sums.read, session)
        return list(non_finite.lines_of_weights(self._tables(), variables, read))

    def _warn(self, variables: Iterable[tf.Variable], session: Any) -> None:
        lines = self._lines(variables, session)
        if lines:
            begin = "Training begins with weights that are NaN, which no step mends:"
            end = "Begin from an older checkpoint, or correct what gives them these values."
            logger.warning("%s", "\n  ".join([begin, *lines, end]))

    def _with_look(self, spec: Any) -> Any:
        """Returns a spec with a train_op that also checks the dense variables."""
        of_tables = {one.name for table in self._tables() for one in table.all_variables}
        variables = [
            variable
            for variable in tf.compat.v1.trainable_variables()
            if variable.name not in of_tables
            and variable.dtype.is_floating
            and hasattr(variable, "handle")
            and not _is_updated_sparsely(variable)  # A read would copy it in each call.
        ]
        if not variables:
            return spec

        def look(step: Any, *values: Any) -> np.bool_:
            value_of = dict(zip([one.name for one in variables], values, strict=False))
            read = lambda variable: value_of[variable.name]  # noqa: E731
            lines = list(non_finite.lines_of_weights((), variables, read))
            if lines:
                found = self._inputs.lines(values[len(variables) :], non_finite.not_finite)
                self._error = self._made(int(step), lines, "its last batch", found)
                raise ValueError(str(self._error))
            return np.bool_(True)

        with tf.name_scope("check_weights"), tf.control_dependencies([spec.train_op]):
            step = tf.identity(tf.compat.v1.train.get_global_step())
            values = [variable.read_value() for variable in variables]
            finite = [tf.math.is_finite(tf.reduce_sum(value)) for value in values]
            # NanLoss explains a NaN loss better.
            good = tf.reduce_all(finite) | tf.math.is_nan(tf.identity(spec.loss))
            given = [step, *values, *self._inputs.tensors]
            checked = tf.cond(
                good, lambda: tf.constant(True), lambda: tf.numpy_function(look, given, tf.bool)
            )
        return spec._replace(train_op=checked.op)

    def _tables(self) -> Sequence[Any]:
        return self.graph.lookup.tables if self.graph.lookup else ()

    def _later_inputs(self, session: Any) -> list[str]:
        """Returns lines about the next batch with NaN or infinity, or [] if not found soon."""
        end = time.monotonic() + _LATER_SECONDS
        options = tf.compat.v1.RunOptions(timeout_in_ms=_LATER_SECONDS * 1000)
        for _ in range(_LATER_BATCHES if self._inputs.names else 0):
            try:
                values = session.run(self._inputs.tensors, options=options)
            except (tf.errors.OpError, ValueError):  # The input has ended, or cannot be fetched.
                return []
            lines = self._inputs.lines(values, non_finite.not_finite)
            if lines or time.monotonic() > end:
                return lines
        return []

    def _made(
        self, step: int, lines: Sequence[str], where: str, inputs: Sequence[str]
    ) -> NanInputError:
        if inputs:
            end = [f"{where} has {inputs[0]}", *inputs[1:], non_finite.REMEDY]
        else:
            named = f" ({', '.join(self._inputs.names)})" if self._inputs.names else ""
            end = [
                f"Look for NaN in the input{named}, and for a learning rate that is too high. "
                "With save_checkpoints_steps=1, training ends at the first such step."
            ]
        path = self.call.directory.latest() if self.call.directory else None
        if path is not None:
            end.append(f"The newest checkpoint is {path}, from which training continues.")
        return NanInputError(
            [*lines, *end],
            f"NaN or infinity in the model after step {step}, which is not saved:",
        )


class _Sums:
    """Ops that sum a graph's variables. No hook has them as attributes, so no step runs them."""

    def __init__(self) -> None:
        self.step = tf.compat.v1.train.get_global_step()
        self._variables = [
            variable
            for variable in tf.compat.v1.global_variables()
            if variable.dtype.base_dtype.is_floating
        ]
        self._reads = {}
        self._sums = []
        # Shared constants, because a graph may have thousands of variables.
        axes = functools.cache(lambda rank: tf.constant([*range(rank)], tf.int32))
        for variable in self._variables:
            # Only the sum leaves a parameter server.
            device = contextlib.ExitStack()
            if variable.device:
                device.enter_context(tf.device(None))
                device.enter_context(tf.device(variable.device))
            with device, tf.name_scope("check_weights"):
                value = _read_in_place(variable)
                rank = value.shape.rank
                axis = tf.range(tf.rank(value)) if rank is None else axes(rank)
                total = tf.raw_ops.Sum(input=value, axis=axis)
            for op in (value.op, total.op):
                reads_before_writes.keep_between_steps(op)
            self._sums.append(total)
            self._reads[variable.name] = value

    def not_finite(self, session: Any) -> list[tuple[tf.Variable, bool]]:
        """Returns each variable that is not finite, and whether its sum is NaN."""
        sums = zip(self._variables, session.run(self._sums), strict=True)
        return [
            (one, bool(np.isnan(value)))
            for one, value in sums
            # A sum of finite numbers may be infinite, in float16 from 65,520 on.
            if not np.isfinite(value) and not np.isfinite(self.read(session, one)).all()
        ]

    def read(self, session: Any, variable: tf.Variable) -> Any:
        return session.run(self._reads[variable.name])


class _LookHook(tf.compat.v1.train.SessionRunHook):
    def __init__(self, guard: NanWeights):
        self._guard = guard

    def begin(self) -> None:
        self._guard._sums = _Sums()

    def after_create_session(self, session: Any, coord: Any) -> None:
        self._guard._look(session)

    def end(self, session: Any) -> None:
        self._guard._look(session)


def _is_updated_sparsely(variable: tf.Variable) -> bool:
    return any(op.type.startswith(_SPARSE) for op in variable.handle.consumers())


def _read_in_place(variable: tf.Variable) -> tf.Tensor:
    """Returns a read that does not copy the variable, even if it is updated sparsely."""
    if not hasattr(variable, "handle"):
        return variable.value()
    with tf.control_dependencies([tf.raw_ops.DisableCopyOnRead(resource=variable.handle)]):
        return tf.raw_ops.ReadVariableOp(resource=variable.handle, dtype=variable.dtype)
