"""Checks what the steps of a training run: updates, gradients, and the global step."""

import contextlib
import logging
import numbers
import re
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from typing import Any

import tensorflow as tf

from estimator_emb.compat.internals.estimators import ModeKeys, step_of_latest_checkpoint
from estimator_emb.compat.internals.graphs import get_gradient_function
from estimator_emb.engine.ordering import accesses, structure
from estimator_emb.engine.ordering.reads_before_writes import ReadsFirstHook
from estimator_emb.engine.tables.helper_variable import HELPER_VARIABLE
from estimator_emb.guards.call import Call, Runs
from estimator_emb.guards.checks import tpu_ops
from estimator_emb.guards.events import Event, Facts, on, with_hooks
from estimator_emb.reporting import console, frames
from estimator_emb.reporting.console import logger
from estimator_emb.reporting.text_columns import some_of

_keys = tf.compat.v1.GraphKeys

_GIVEN = frozenset(("Placeholder", "PlaceholderWithDefault", "RestoreV2", "Restore"))
"""Ops that provide values from a feed or a saver. Their assignments run outside of steps."""

_STOPS = frozenset(("PreventGradient", "StopGradient"))
"""Ops by which a program stops gradients on purpose."""
_ENDS = _STOPS.union("OnesLike Rank Shape ShapeN Size VariableShape ZerosLike".split())
"""These ops, and ops with outputs that do not depend on the values of their inputs."""

_UNWRITTEN = re.compile(r"(?:.*/)?write_summary(?:_\d+)?/Const(?:_\d+)?")
"""Matches the op that a TensorFlow 2 summary leaves in a graph if no writer is set."""
_GUARDS = ("If", "StatelessIf")
"""Types of the op around an assertion."""
_ASSERTS = ("ops/check_ops.py", "ops/control_flow_assert.py")

_WITHOUT_GRADIENTS = re.compile(r'(?s)No gradients provided for any variable.*Tensor\("([^":]+)')
_ADDS = ("AssignAdd", "AssignAddVariableOp")
_READS = {"Identity", "IsVariableInitialized", "ReadVariableOp", "VarIsInitializedOp"}
_WITHOUT_COUNTERS = ("estimator_emb", "tensorflow", "tensorflow_estimator")
_HOW = (
    "Pass tf.compat.v1.train.get_global_step() as global_step to minimize or apply_gradients; give "
    "it to a Keras optimizer as its iterations."
)


def reads_first(facts: Facts, spec: Any) -> Any:
    """Returns an evaluation's spec with the hook that puts reads of variables before writes."""
    call = facts.call
    if not call.ours or call.exporting or call.mode != ModeKeys.EVAL:
        return spec
    return with_hooks(spec, [ReadsFirstHook(spec, spec.evaluation_hooks)], call.mode)


def reads_first_in_training(
    facts: Facts, spec: Any, worker_hooks: Sequence[Any], hooks: Sequence[Any]
) -> Any:
    """Returns a training's spec with this hook, which comes after all other hooks."""
    if not facts.call.ours:
        return spec
    of_program = [*spec.training_hooks, *spec.training_chief_hooks]
    hook = ReadsFirstHook(spec, [*worker_hooks, *hooks, *of_program])
    return with_hooks(spec, [hook], facts.call.mode)


@on(Event.CALL, when=lambda call: isinstance(call.max_steps, numbers.Real))
@contextlib.contextmanager
def reached_steps(call: Call) -> Iterator[None]:
    """Warns if a training has nothing to do because the model is already at `max_steps`."""
    step = int(step_of_latest_checkpoint(call.model_dir))
    if 0 < call.max_steps <= step:
        logger.warning(
            "train: the model in %s is at step %d, so max_steps=%d is reached: nothing was "
            "trained. max_steps counts the steps of all trainings in a model_dir. Give a "
            "larger max_steps, or steps=... for that many more steps, or another model_dir.",
            call.model_dir,
            step,
            call.max_steps,
        )
    yield


@on(Event.MODEL_RETURNED, when=lambda call: call.on_cores and call.training)
def gradient_sums(facts: Facts, spec: Any) -> None:
    """Warns about gradients that are not summed over the cores of an emulated TPU."""
    cores = facts.cores
    if cores.count > 1 and (names := _unsummed(facts, spec.train_op)):
        logger.warning(
            "%d cores share the batch, and the gradients of %s are not summed over them: what "
            "every core but core 0 has learned is lost. Use %s; with an optimizer that is not of "
            "tf.compat.v1.train, sum each gradient by tf.compat.v1.tpu.cross_replica_sum.",
            cores.count,
            some_of(names),
            tpu_ops.SUMS_GRADIENTS,
        )


def _unsummed(facts: Facts, train_op: tf.Operation | tf.Tensor) -> list[str]:
    """Returns the trainable variables that core 0 updates from only its own part of the batch."""
    ops, before = facts.ops.leading_to(train_op), facts.ops.before
    sums = {one.output.op for one in facts.cores.collectives}
    given = {tensor.op for tensor in facts.cores.inputs.values()}
    from_input: set[tf.Operation] = set()
    from_sum: set[tf.Operation] = set()
    for op in ops:
        if op in sums or op.type in tpu_ops.SUMS or any(one in from_sum for one in before[op]):
            from_sum.add(op)
        elif op in given or any(one in from_input for one in before[op]):
            from_input.add(op)
    trained = {
        variable.op.name
        for variable in tf.compat.v1.trainable_variables()
        if isinstance(variable, tf.Variable) and HELPER_VARIABLE not in variable.name
    }
    return [
        variable.name
        for variable in accesses.variables_of(train_op.graph)
        if variable.name in trained and any(op in from_input for op in variable.writes)
    ]


@contextlib.contextmanager
def noting_default_variables(facts: Facts) -> Iterator[None]:
    """Notes whether an optimizer gets no var_list: it then reads a collection of all variables."""
    graph: Any = tf.compat.v1.get_default_graph()
    read = graph.get_collection

    def noting(name: Any, scope: Any = None) -> Any:
        if name == _keys.TRAINABLE_RESOURCE_VARIABLES:
            facts.notes["unrun_updates"] = True
        return read(name, scope)

    graph.get_collection = noting
    try:
        yield
    finally:
        with contextlib.suppress(AttributeError):  # Another call in this graph has ended.
            del graph.get_collection


@on(Event.MODEL_RETURNED, when=lambda call: call.trains_in_graph)
def unrun_updates(facts: Facts, spec: Any) -> None:
    """Warns about what a training leaves out: updates, regularization losses, and gradients.

    It warns only if no update of a variable can run, such as batch normalization updates, if no
    regularization loss is used, and if all ways from a variable to the loss have an op without a
    gradient. With a hook of the program it cannot tell what a step runs.
    """
    if getattr(spec, "train_op", None) is None or tf.distribute.has_strategy():
        return
    _say_penalties(facts.call)
    run = facts.ops.run_in_sessions(spec)
    if run is None:
        return
    unwritten = {one.name: one for one in facts.ops.unwritten_by(run)}
    scaffold = getattr(spec, "scaffold", None)
    sets_first = bool(getattr(spec, "scaffold_fn", None) or (scaffold and scaffold.init_fn))
    trains_all = facts.notes.get("unrun_updates") and not (sets_first or facts.call.warm_start)
    if trains_all and isinstance(spec.loss, tf.Tensor):
        _say_blocked(facts, unwritten, spec.loss.op)
    by_remedy: dict[str, list[tuple[str, tf.Operation]]] = {}
    for name, writes in _unrun(unwritten, sets_first):
        by_remedy.setdefault(_remedy(writes[0]), []).append((name, writes[0]))
    for remedy, found in by_remedy.items():
        names = some_of([name for name, _ in found])
        _say_of(
            found[0][1],
            f"No step of this training updates {names}: nothing runs the ops that do, and "
            f"evaluate, predict and export use first values. {remedy}",
            facts.call,
        )


def _say_penalties(call: Call) -> None:
    """Warns about regularization losses if none is used. A program may use only some of them."""
    collected = tf.compat.v1.get_collection(_keys.REGULARIZATION_LOSSES)
    penalties = [one for one in collected if hasattr(one, "op") and not _is_zero(one.op)]
    if penalties and not any(map(_is_used, penalties)):
        first = penalties[0].op
        _say_of(
            first,
            f"The regularization losses, such as {first.name!r}, are part of no loss, so the "
            "regularizers have no effect. Add tf.compat.v1.losses.get_regularization_loss() to "
            "the loss.",
            call,
        )


def _is_zero(penalty: tf.Operation) -> bool:
    """Returns whether a penalty is a product with 0: a regularizer that is switched off."""
    return any(tf.get_static_value(one) == 0 for one in penalty.inputs if one.shape.rank == 0)


def _is_used(penalty: Any) -> bool:
    """Returns whether other ops than summaries read a penalty."""
    if isinstance(penalty, tf.Tensor):
        return any("Summary" not in op.type for op in penalty.consumers())
    # The penalty of a variable is a function that makes its ops anew, in the same scope.
    scope, last = f"{penalty.op.name.rpartition('/')[0]}/", penalty.op._id
    ops = penalty.op.graph.get_operations()
    return any(op._id > last and op.name.startswith(scope) for op in ops)


def _is_restored(variable: Any) -> bool:
    """Returns whether the program gives the variable a value of a checkpoint."""
    before = structure.reached([variable.initializer], structure.before_of)
    return any(op.type in ("Restore", "RestoreV2") for op in before)


def _say_blocked(facts: Facts, unwritten: Container[str], loss: tf.Operation) -> None:
    """Warns about variables that lead to the loss only by ops without a gradient."""
    untrained = [
        one
        for one in tf.compat.v1.trainable_variables()
        if one.op.name in unwritten
        and not one.dtype.is_integer  # No gradient reaches it in any program.
        and HELPER_VARIABLE not in one.name
        and not _is_restored(one)
    ]
    blocking: structure.Ops = {}

    def with_gradient(op: tf.Operation) -> Iterator[tf.Operation]:
        if op.type in _STOPS:
            return
        if not _passes(op):
            blocking[op] = None
            return
        for given in op.inputs:
            if given.dtype.is_integer or given.dtype.is_bool or given.dtype == tf.string:
                blocking[given.op] = None
            else:
                yield given.op

    trained = structure.reached([loss] if untrained else [], with_gradient)
    for op in blocking:
        behind = structure.reached(
            [op], lambda one: [] if one.type in _ENDS else [given.op for given in one.inputs]
        )
        found = [one.op.name for one in untrained if one.op in behind and one.op not in trained]
        if found:
            _say_of(
                op,
                f"No gradient reaches {some_of(found)}, although the loss depends on it: the op "
                f"{op.type} has no gradient. If that is intended, give trainable=False.",
                facts.call,
            )
            return


@on(Event.MODEL_FAILED, when=lambda call: call.trains_in_graph)
def no_gradients(facts: Facts, error: Exception) -> None:
    """Names the op without a gradient if TensorFlow finds no gradient of any variable."""
    if loss := _WITHOUT_GRADIENTS.match(str(error)):
        with contextlib.suppress(KeyError):
            op = tf.compat.v1.get_default_graph().get_operation_by_name(loss[1])
            _say_blocked(facts, {one.op.name for one in tf.compat.v1.trainable_variables()}, op)


def _passes(op: tf.Operation) -> bool:
    with contextlib.suppress(LookupError):  # An optimizer raises TensorFlow's error about it.
        return not op.inputs or get_gradient_function(op) is not None
    return True


def _unrun(
    unwritten: Mapping[str, accesses.Variable], sets_first: bool
) -> Sequence[tuple[str, Sequence[tf.Operation]]]:
    """Returns the variables that no step writes, each with its write ops.

    With `sets_first`, plain assignments do not count: they may run before the first step.
    """
    step = tf.compat.v1.train.get_global_step()
    watched = {
        variable.op.name
        for variable in tf.compat.v1.get_collection(_keys.GLOBAL_VARIABLES)
        if variable is not step
    }
    initial = accesses.initial_writes()
    found = []
    for name, variable in unwritten.items():
        writes = [
            op
            for op in variable.writes
            if op not in initial
            and op.name != f"{name}/Assign"
            and not (sets_first and op.type in accesses.PLAIN)
        ]
        if name in watched and writes:
            found.append((name, writes))
    if not found:
        return []
    given = _given(tf.compat.v1.get_default_graph())
    left = ((name, [op for op in writes if op not in given]) for name, writes in found)
    return [(name, writes) for name, writes in left if writes]


def _given(graph: tf.Graph) -> set[tf.Operation]:
    """Returns the ops that depend on a value from a saver or a feed of the program."""
    given: set[tf.Operation] = set()
    for op in graph.get_operations():
        if op.type == "Placeholder" and frames.is_ours(op):
            continue  # It stands for the activation of a table.
        if op.type in _GIVEN or any(tensor.op in given for tensor in op.inputs):
            given.add(op)
    return given


def _remedy(update: tf.Operation) -> str:
    if update in tf.compat.v1.get_collection(_keys.UPDATE_OPS):
        updates = "tf.compat.v1.get_collection(tf.compat.v1.GraphKeys.UPDATE_OPS)"
        return f"Write train_op = tf.group(train_op, {updates})."
    if any(frames.is_in(one.filename, frames.KERAS) for one in frames.traceback_of(update)):
        return (
            "Write train_op = tf.group(train_op, model.get_updates_for(x)), with the x that the "
            "model was called with. A layer outside of a model has get_updates_for too."
        )
    return "Put them into train_op: tf.group(train_op, ...)."


@on(Event.MODEL_RETURNED, when=lambda call: call.in_graph and not call.exporting)
def unshown_calls(facts: Facts, spec: Any) -> None:
    """Warns about calls without effect: TensorFlow 2 summaries, tf.print, assertions."""
    written = [value.op for value in tf.compat.v1.summary.all_v2_summary_ops()]
    summaries = [op for op in facts.ops.typed("Const") if _UNWRITTEN.fullmatch(op.name)]
    summaries = [op for op in summaries if op not in written]
    if summaries and frames.made_by(summaries[0]):
        _say_of(
            summaries[0],
            "A tf.summary of TensorFlow 2 writes nothing in a model_fn, which has no writer: "
            "use the function of tf.compat.v1.summary of the same name.",
            facts.call,
        )
    prints = facts.ops.typed("PrintV2")
    asserts = [op for op in facts.ops.typed("Assert", *_GUARDS) if _asserts(op)]
    if not (prints or asserts) or not facts.call.training or spec.train_op is None:
        return
    run = facts.ops.run_in_sessions(spec)
    if run is None:
        return
    for what, call, of_kind in (
        ("tf.print prints nothing", "tf.print(...)", prints),
        ("An assertion checks nothing", "tf.debugging.assert_...(...)", asserts),
    ):
        unrun = [op for op in of_kind if op not in run]
        if unrun and frames.made_by(unrun[0]):
            _say_of(
                unrun[0],
                f"{what} in a model_fn unless a step runs the op that it returns: put it "
                "into tf.control_dependencies around the train_op, or write "
                f"train_op = tf.group(train_op, {call}).",
                facts.call,
            )


def _say_of(op: tf.Operation, text: str, call: Call) -> None:
    console.say_once(f"{text} {frames.made_by(op)}".rstrip(), call.model_dir, logging.WARNING)


def _asserts(op: tf.Operation) -> bool:
    """Returns whether `op` is an assertion of the program itself, not of a library."""
    if op.type != "Assert" and not op.name.endswith("/AssertGuard"):
        return False
    files = []
    for frame in reversed(frames.traceback_of(op)):
        if frames.is_of_program(frame.filename):
            break
        files.append(frame.filename)
    outer = next((file for file in reversed(files) if "/python/util/" not in file), "")
    return outer.endswith(_ASSERTS)


@on(Event.GRAPH_COMPLETED, when=lambda call: call.in_session and call.method == "train")
def global_step(facts: Facts, spec: Any) -> Iterable[Any]:
    """Warns about a global step that train_op never raises, or raises by more than 1.

    If each step adds more than 1, a hook ends the training once its last step is reached.
    """
    if tf.distribute.has_strategy():  # Each replica has its own variable.
        added = facts.ops.typed("AssignAddVariableOp")
        if any(op.inputs[0].op.name.startswith("global_step") for op in added):
            console.counts_steps(tf.compat.v1.get_default_graph())
        return []
    call, raised = facts.call, 0
    counters = _counters()
    hooks = (*(call.hooks or ()), *spec.training_hooks, *spec.training_chief_hooks)
    if counters and call.runs in (Runs.PLAIN, Runs.LOCAL):
        run = facts.ops.leading_to(spec.train_op)
        of_step = [op for op in counters if op in run]
        raised = _sum(of_step)
        if raised > 1:
            _say(raised, of_step, call.model_dir)
        if not of_step and (run_too := facts.ops.run_in_sessions(spec)) is not None:
            counters = [op for op in counters if op in run_too]
    if not counters:
        _warn_of_no_step(map(type, hooks))
    if not counters or any(op.type.startswith("Assign") for op in counters):  # Not in a branch.
        console.counts_steps(tf.compat.v1.get_default_graph())
    return (
        [_StopsWhenReached(call.steps, call.max_steps)] if raised > 1 and call.counts_steps else []
    )


class _StopsWhenReached(tf.compat.v1.train.SessionRunHook):
    """Ends a training once its last step is reached.

    TensorFlow's hook assumes that a step adds 1 to the global step, so it may stop too late.
    """

    def __init__(self, steps: int | None, max_steps: int | None):
        self._steps = steps
        self._last = max_steps

    def begin(self) -> None:
        self._global_step = tf.compat.v1.train.get_global_step()

    def after_create_session(self, session: Any, coord: Any) -> None:
        if self._last is None:
            self._last = session.run(self._global_step) + self._steps

    def after_run(self, run_context: Any, run_values: Any) -> None:
        if run_context.session.run(self._global_step) >= self._last:
            run_context.request_stop()


def _warn_of_no_step(hooks: Iterable[type]) -> None:
    """Warns that no op of the training changes the global step. A program's hook may change it."""
    others = [
        hook.__name__ for hook in hooks if hook.__module__.split(".")[0] not in _WITHOUT_COUNTERS
    ]
    unless = f", unless one of the hooks does ({', '.join(others)})" if others else ""
    logger.warning(
        "The train_op of model_fn does not increase the global step%s. Without that, steps and "
        "max_steps never end a training, and no checkpoint is saved by steps or at the end, so "
        "that the last trained weights are lost. %s",
        unless,
        _HOW,
    )


def _say(raised: int, counters: Sequence[Any], model_dir: str) -> None:
    lines = dict.fromkeys(frames.line_of_program(op) or op.name for op in counters)
    console.say_once(
        f"Each step of the training raises the global step by {raised}, so that steps, max_steps "
        f"and what else counts by it come {raised} times as soon. It is raised in "
        f"{'; '.join(lines)}. Pass global_step to one minimize or apply_gradients only.",
        model_dir,
        logging.WARNING,
    )


def _counters() -> list[Any]:
    """Returns the ops of the default graph that may change the global step."""
    step = tf.compat.v1.train.get_global_step()
    tensor = step.handle if hasattr(step, "handle") else step.op.outputs[0]
    initial = step.initializer
    return [op for op in tensor.consumers() if op is not initial and _may_assign(op)]


def _sum(counters: Sequence[Any]) -> int:
    added = [tf.get_static_value(op.inputs[1]) for op in counters if op.type in _ADDS]
    return sum(int(value) for value in added if value is not None)


def _may_assign(op: Any) -> bool:
    functions = [
        name for name in (attribute.func.name for attribute in op.node_def.attr.values()) if name
    ]
    if not functions:
        return op.type not in _READS
    for name in functions:
        definition = op.graph._get_function(name)
        nodes = getattr(getattr(definition, "definition", None), "node_def", None)
        # Functions that this function calls may assign too. They are not searched.
        if nodes is None or any(
            "Assign" in node.op or any(attribute.func.name for attribute in node.attr.values())
            for node in nodes
        ):
            return True
    return False
