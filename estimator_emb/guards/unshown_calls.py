"""Warns about calls without effect in a model_fn: TensorFlow 2 summaries, tf.print, assertions."""

import logging
import re
from typing import Any

import tensorflow as tf

from estimator_emb.guards.checks import run_ops
from estimator_emb.guards.guard import Call, Guard
from estimator_emb.reporting import console, frames

_UNWRITTEN = re.compile(r"(?:.*/)?write_summary(?:_\d+)?/Const(?:_\d+)?")
"""Matches the op that a TensorFlow 2 summary leaves in a graph if no writer is set."""


_CALLS = {
    "tf.print prints nothing": "tf.print(...)",
    "An assertion checks nothing": "tf.debugging.assert_...(...)",
}
_CHECKS = ("ops/check_ops.py", "ops/control_flow_assert.py")


class UnshownCalls(Guard):
    """Finds the ops of summaries, prints and assertions that have no effect in a model_fn."""

    @classmethod
    def applies(cls, call: Call) -> bool:
        return call.in_graph and not call.exporting

    def after(self, spec: Any) -> Any:
        ops = tf.compat.v1.get_default_graph().get_operations()
        summaries = [op for op in ops if op.type == "Const" and _UNWRITTEN.fullmatch(op.name)]
        if summaries:
            self._say(
                "A tf.summary of TensorFlow 2 writes nothing in a model_fn, which has no writer: "
                "use the function of tf.compat.v1.summary of the same name.",
                summaries[0],
            )
        found = {
            "tf.print prints nothing": [op for op in ops if op.type == "PrintV2"],
            "An assertion checks nothing": [op for op in ops if _asserts(op)],
        }
        if any(found.values()) and self.call.training and spec.train_op is not None:
            run = run_ops.training_ops(spec, self.call)
            for what, of_kind in found.items():
                unrun = [op for op in of_kind if run is not None and op not in run]
                if unrun:
                    self._say(
                        f"{what} in a model_fn unless a step runs the op that it returns: put it "
                        "into tf.control_dependencies around the train_op, or write "
                        f"train_op = tf.group(train_op, {_CALLS[what]}).",
                        unrun[0],
                    )
        return spec

    def _say(self, text: str, op: tf.Operation) -> None:
        made = frames.made_by(op)
        if made:
            console.say_once(f"{text} {made}", self.call.model_dir, logging.WARNING)


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
    return outer.endswith(_CHECKS)
