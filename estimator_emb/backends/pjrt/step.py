# SPDX-License-Identifier: Apache-2.0
"""The graph of one mode of a program whose model runs on PJRT devices."""

import contextlib
import json
import os
import pathlib
import subprocess
import sys
import tempfile
from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf

from estimator_emb.backends.emulated.step import EmulatedStep
from estimator_emb.backends.pjrt import graph
from estimator_emb.private.estimator import ModeKeys

_LOWER = pathlib.Path(__file__).parents[2] / "preflight" / "processes" / "lower.py"


class PjrtStep(EmulatedStep):
    """The graph of one mode, in which one op runs the step of all cores on PJRT devices."""

    def _make_cores(self, count: int) -> graph.RecordingCores:
        return graph.RecordingCores(count)

    def _call_model_fn(self) -> Any:
        enabled = tf.compat.v1.control_flow_v2_enabled()
        tf.compat.v1.enable_control_flow_v2()
        try:
            return super()._call_model_fn()
        finally:
            if not enabled:
                tf.compat.v1.disable_control_flow_v2()

    def _on_cores(self, wanted: dict[str, Any], spec: Any) -> tuple[dict[str, Any], Any]:
        training = self._ctx.mode == ModeKeys.TRAIN
        flat = tf.nest.flatten(wanted)
        loss = [spec.loss] if getattr(spec, "loss", None) is not None else []
        train_op = getattr(spec.train_op, "op", spec.train_op) if training else None
        count = self._cores.count
        step = graph.of_core(self._cores, [*flat, *loss], train_op, self._computation.has_op)
        from estimator_emb.backends.pjrt import devices

        program = devices.DeviceProgram(_lowered(step), count, len(step.arguments))
        self._program = program
        variables = [_variable_of(op) for op in step.variables]
        self._variables = variables
        of_cores = [self._cores.of_each(one) for one in step.arguments]
        dtypes = [one.dtype for one in step.results]
        global_step = tf.compat.v1.train.get_global_step()
        self._written = program.written
        names = [variable.name for variable in variables]
        position = (
            names.index(global_step.name)
            if global_step is not None and global_step.name in names
            else None
        )
        counted = training and position in self._written

        def run(*arrays: Any) -> list[Any]:
            each = [arrays[i * count : (i + 1) * count] for i in range(len(of_cores))]
            results = program.run(each)
            out = [value for of_result in results for value in of_result]
            if counted:
                out += program.fetch([position])
            return out

        types = [dtype for dtype in dtypes for _ in range(count)]
        if counted:
            types.append(global_step.dtype)
        with tf.name_scope("pjrt"), tf.control_dependencies(None):
            self._load = tf.numpy_function(
                lambda *values: program.load(*values) or np.int32(0),
                [variable.read_value() for variable in variables],
                tf.int32,
                name="load",
            ).op
            outputs = tf.numpy_function(
                run, [one for values in of_cores for one in values], types, name="step"
            )
            outputs = outputs if isinstance(outputs, list) else [outputs]
            self._ran = outputs[0].op
            self._global_step = (global_step, outputs[-1]) if counted else None
            results = []
            for index, tensor in enumerate(step.results):
                of_result = outputs[index * count : (index + 1) * count]
                for one in of_result:
                    one.set_shape(tensor.shape)
                results.append(of_result)
        if loss:
            spec = spec._replace(loss=results[len(flat)][0])
        if training:
            spec = spec._replace(train_op=self._ran)
        leaves = iter(results)
        return tf.nest.map_structure(lambda _: next(leaves), wanted), spec

    def _whole_step(self, train_op: Any, updates: list[tf.Operation]) -> tf.Operation:
        with tf.control_dependencies([train_op, *updates]):
            if self._global_step is None:
                return tf.no_op()
            variable, value = self._global_step
            return variable.assign(value, read_value=False)

    def _last_step(self, step: tf.Operation, dense: list[Any], loss: tf.Tensor) -> tf.Operation:
        with tf.control_dependencies([step]):
            flushed = self.flush()
        with tf.control_dependencies([flushed]):
            return tf.group(flushed, *self._checks(dense, loss))

    def _session_hooks(self) -> list[Any]:
        return [_Loads(self._load)]

    def flush(self) -> tf.Operation:
        written = [self._variables[index] for index in self._written]
        values = tf.numpy_function(
            lambda: self._program.fetch(self._written), [], [one.dtype for one in written], name="fetch"
        )
        return tf.group(
            *(one.assign(value, read_value=False) for one, value in zip(written, values, strict=True))
        )


def _variable_of(op: tf.Operation) -> tf.Variable:
    for variable in tf.compat.v1.global_variables() + tf.compat.v1.local_variables():
        if getattr(variable, "handle", None) is not None and variable.handle.op is op:
            return variable
    raise ValueError(f"no variable {op.name}")


def _lowered(step: graph.CoreStep) -> bytes:
    with tempfile.TemporaryDirectory(prefix="pjrt-") as folder:
        work = pathlib.Path(folder)
        step.write(work)
        done = subprocess.run([sys.executable, str(_LOWER), folder], capture_output=True, text=True)
        if done.returncode:
            raise RuntimeError(done.stderr[-3000:])
        result = json.loads((work / "lowered.json").read_text())
        if not result["ok"]:
            raise ValueError(result["error"])
        return (work / "step.hlo").read_bytes()


class _Loads(tf.compat.v1.train.SessionRunHook):
    def __init__(self, load: tf.Operation):
        self._load = load

    def after_create_session(self, session: Any, coord: Any) -> None:
        session.run(self._load)
