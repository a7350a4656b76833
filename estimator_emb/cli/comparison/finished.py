"""Reads the checkpoints, losses, metrics and exports of a finished run."""

import dataclasses
import os
from collections.abc import Iterable
from typing import Any

import numpy as np
import tensorflow as tf

from estimator_emb.checkpoints.files import checkpoint_reader
from estimator_emb.cli.comparison import CannotCompare


@dataclasses.dataclass
class Run:
    """A finished run.

    Attributes:
      path: its model directory.
      saved: global step -> prefix of the checkpoint.
      losses: global step -> loss.
      evaluations: folder of the evaluation -> global step -> metric -> value.
      exports: folder of the exporter -> prefix of the variables of its newest SavedModel.
    """

    path: str = ""
    saved: dict[int, str] = dataclasses.field(default_factory=dict)
    losses: dict[int, float] = dataclasses.field(default_factory=dict)
    evaluations: dict[str, dict[int, dict[str, Any]]] = dataclasses.field(default_factory=dict)
    exports: dict[str, str] = dataclasses.field(default_factory=dict)


def run_of(path: str) -> Run:
    """Returns the finished run in a model directory. Raises CannotCompare without a checkpoint."""
    run = Run(path)
    state = tf.train.get_checkpoint_state(path)
    prefixes = [] if state is None else list(state.all_model_checkpoint_paths)
    for prefix in prefixes:
        if tf.io.gfile.exists(f"{prefix}.index"):
            reader = checkpoint_reader.load(prefix)
            if not reader.has_tensor("global_step"):
                raise CannotCompare(f"Checkpoint {prefix!r} has no global_step.")
            run.saved[int(reader.get_tensor("global_step"))] = prefix
    if not run.saved:
        raise CannotCompare(f"Folder {path!r} holds no checkpoint.")
    for step, tag, value in _scalars(path):
        if tag in ("loss", "loss_1"):
            run.losses[step] = float(value)
    for name in sorted(tf.io.gfile.listdir(path)):
        name = name.rstrip("/")
        if name.startswith("eval"):
            for step, tag, value in _scalars(os.path.join(path, name)):
                run.evaluations.setdefault(name, {}).setdefault(step, {})[tag] = value
    for model in sorted(tf.io.gfile.glob(os.path.join(path, "export", "*", "*", "saved_model.pb"))):
        folder = os.path.dirname(model)
        variables = os.path.join(folder, "variables", "variables")
        if os.path.basename(folder).isdigit() and tf.io.gfile.exists(f"{variables}.index"):
            run.exports[os.path.basename(os.path.dirname(folder))] = variables
    return run


def _scalars(folder: str) -> Iterable[tuple[int, str, Any]]:
    for file in sorted(tf.io.gfile.glob(os.path.join(folder, "events.out.tfevents.*"))):
        try:
            for event in tf.compat.v1.train.summary_iterator(file):
                for value in event.summary.value:
                    if value.HasField("simple_value"):
                        yield event.step, value.tag, np.float32(value.simple_value)
        except tf.errors.DataLossError as error:
            raise CannotCompare(f"{file!r} is damaged: {error.message}") from error
