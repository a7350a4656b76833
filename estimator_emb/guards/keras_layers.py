"""Checks the layers of a model_fn, which trains in a session that Keras does not know."""

import ast
import contextlib
import functools
import linecache
import logging
import re
from collections.abc import Iterator, Sequence
from typing import Any

import tensorflow as tf

from estimator_emb.engine.ordering import accesses
from estimator_emb.guards.events import Event, Facts, on
from estimator_emb.reporting import console, frames
from estimator_emb.reporting.text_columns import some_of

_PHASE = re.compile(r"(.*/)?keras_learning_phase(_\d+)?")
_INFERENCE = re.compile(r"(.*/)?(drop\w*/Identity|batchnorm/add_1|FusedBatchNormV3)(_\d+)?")
"""Matches ops that a layer of `tf.layers` may leave in a graph if it does not train."""
_LAYERS = ("layers.dropout", "layers.batch_normalization")


@on(Event.MODEL_RETURNED, when=lambda call: call.trains_in_graph)
def learning_phase(facts: Facts, spec: Any) -> None:
    """Warns about layers that a training calls without `training`.

    For `tf.layers`, the default is False, and the program's line tells that it is not given. In a
    graph Keras layers follow Keras's learning phase: inference, unless the program sets it. So
    Dropout does nothing, and BatchNormalization uses its moving averages. A model without trained
    variables before the layer is a feature extractor, whose layers should not train.
    """
    if getattr(spec, "train_op", None) is None or tf.distribute.has_strategy():
        return
    phases = [op for op in facts.ops.typed("PlaceholderWithDefault") if _PHASE.fullmatch(op.name)]
    layers = {
        op
        for op in facts.ops.typed("Identity", "AddV2", "FusedBatchNormV3")
        if _INFERENCE.fullmatch(op.name) and _omits_training(op)
    }
    if not phases and not layers:
        return
    found = next(_following(phases, layers, facts, facts.ops.leading_to(spec.train_op)), None)
    if found is not None:
        console.say_once(
            "A layer that is called without training= runs in inference mode, also in "
            "this training: Dropout does nothing, and BatchNormalization uses its moving "
            "averages. If the layer should train, pass it training=(mode == "
            f"tf.estimator.ModeKeys.TRAIN). {frames.made_by(found)}".rstrip(),
            facts.call.model_dir,
            logging.WARNING,
        )


def _omits_training(op: tf.Operation) -> bool:
    """Returns whether the program's line that made `op` calls a layer without `training`."""
    frame = frames.innermost(frames.traceback_of(op))
    return frame is not None and frame.lineno in _lines_without_training(frame.filename)


@functools.cache
def _lines_without_training(file: str) -> set[int]:
    """Returns the lines of all such calls in a file."""
    lines: set[int] = set()
    with contextlib.suppress(SyntaxError):
        for node in ast.walk(ast.parse("".join(linecache.getlines(file)))):
            if isinstance(node, ast.Call) and ast.unparse(node.func).endswith(_LAYERS):
                given = {keyword.arg for keyword in node.keywords}
                if len(node.args) < 5 and given.isdisjoint((None, "trainable", "training")):
                    lines.update(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    return lines


def _following(
    phases: Sequence[tf.Operation], layers: set[tf.Operation], facts: Facts, run: Any
) -> Iterator[tf.Operation]:
    """Yields ops of `run` that depend on a phase, and `layers` of `run`.

    Ops are left out if all variables before them are fixed.
    """
    unwritten = {variable.name for variable in facts.ops.unwritten_by(run)}
    of_phase = set(phases)
    before: dict[tf.Operation, set[bool]] = {}
    """Op -> whether the variables that it depends on are written, for each variable."""
    for op in run:
        inputs = [tensor.op for tensor in op.inputs]
        before[op] = set().union(*(before.get(one, ()) for one in inputs))
        if op.type in (*accesses.VARIABLES, "VarHandleOp"):
            before[op] = {op.name not in unwritten}
        elif op in layers and before[op] != {False}:
            yield op
        elif not of_phase.isdisjoint(inputs):
            if all(one in of_phase or one.type == "Const" for one in inputs):
                of_phase.add(op)
            elif before[op] != {False}:
                yield op


@on(Event.MODEL_RETURNED, when=lambda call: call.trains_in_graph)
def given_weights(facts: Facts, spec: Any) -> None:
    """Rejects weights that Keras sets in its own session, because a training never sees them."""
    fed = (op for one in facts.ops.typed("Placeholder") for op in one.outputs[0].consumers())
    given = [op for op in fed if op.type in accesses.PLAIN and _is_given(op)]
    if given:
        names = some_of(list(dict.fromkeys(op.inputs[0].op.name for op in given)))
        raise ValueError(
            f"model_fn gives values to {names} that no training gets: Keras sets them in a "
            "session of its own. weights=, set_weights, load_weights and "
            "tf.keras.backend.set_value do so. Give the layer an initializer, such as "
            "tf.keras.initializers.Constant(values), or begin from a checkpoint by "
            f"warm_start_from. {frames.made_by(given[0])}".rstrip()
        )


def _is_given(op: tf.Operation) -> bool:
    files = [one.filename for one in frames.traceback_of(op)]
    # tensorflow-estimator starts a converted Keras model from a checkpoint with its weights.
    converted = any(file.endswith("keras_lib.py") for file in files)
    return not converted and any(frames.is_in(file, frames.KERAS) for file in files)
