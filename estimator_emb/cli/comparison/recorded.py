"""Reads the losses, checkpoints, metrics and predictions that a side has recorded."""

import dataclasses
import glob
import os
import re
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import tensorflow as tf

from estimator_emb.checkpoints.files import checkpoint_reader
from estimator_emb.cli.comparison import CannotCompare


@dataclasses.dataclass
class Training:
    """A side's training of a model directory. `saved` and `losses` are keyed by global step."""

    start: str | None = None
    losses: dict[int, float] = dataclasses.field(default_factory=dict)
    saved: dict[int, str] = dataclasses.field(default_factory=dict)
    random: list[str] = dataclasses.field(default_factory=list)
    unsaved: list[str] = dataclasses.field(default_factory=list)


@dataclasses.dataclass
class Outputs:
    """The values that evaluate or predict returned. `counts` must be equal on both sides."""

    name: str
    values: dict[str, np.ndarray]
    counts: dict[str, Any] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass
class Run:
    """The run of a side. `ended_after` counts the steps if the comparison ended the run."""

    versions: str = ""
    trainings: list[Training] = dataclasses.field(default_factory=list)
    evaluations: list[Outputs] = dataclasses.field(default_factory=list)
    predictions: list[Outputs] = dataclasses.field(default_factory=list)
    ended_after: int | None = None


def run_of_events(events: Iterable[Mapping[str, Any]]) -> Run:
    """Returns the run that `cli/bin/compare_worker.py` recorded as `events`."""
    run = Run()
    for event in events:
        kind = event["event"]
        if kind == "environment":
            package = f", estimator_emb {event['package']}" if event["package"] else ", stock"
            run.versions = f"TensorFlow {event['tensorflow']}{package}, Python {event['python']}"
        elif kind == "done":
            run.ended_after = event["steps"]
        elif kind in ("training", "start", "step", "saved"):
            while len(run.trainings) <= event["number"]:
                run.trainings.append(Training())
            training = run.trainings[event["number"]]
            if kind == "training":
                training.random = training.random or event["random"]
            elif kind == "start":
                training.start, training.unsaved = event["saved"], event["unsaved"]
            elif event["saved"] is not None:
                training.saved[event["step"]] = event["saved"]
            if kind == "step":
                training.losses[event["step"]] = event["loss"]
        elif kind == "evaluation":
            name = f"evaluation {len(run.evaluations) + 1}"
            if event["name"]:
                name += f" ({event['name']})"
            values = {key: _metric(one) for key, one in event["metrics"].items()}
            run.evaluations.append(Outputs(name, values, {"the step": event["step"]}))
        elif kind == "predictions":
            with np.load(event["path"]) as arrays:
                values = {key: arrays[f"a{index}"] for index, key in enumerate(event["keys"])}
            counts = {"the number of predictions": event["count"]}
            run.predictions.append(Outputs(f"predict {event['number'] + 1}", values, counts))
    return run


def _metric(one: Mapping[str, Any]) -> np.ndarray:
    kind = one["type"]
    return np.asarray(one["value"], kind if re.fullmatch(r"(u?int|float)\d+|bool", kind) else None)


def run_of_model_dir(path: str) -> Run:
    """Returns the finished run in a model directory. Raises CannotCompare without a checkpoint."""
    state = tf.train.get_checkpoint_state(path)
    prefixes = [] if state is None else list(state.all_model_checkpoint_paths)
    prefixes = [one for one in prefixes if tf.io.gfile.exists(f"{one}.index")]
    if not prefixes:
        raise CannotCompare(f"Folder {path!r} holds no checkpoint.")
    training = Training()
    for prefix in prefixes:
        reader = checkpoint_reader.load(prefix)
        if not reader.has_tensor("global_step"):
            raise CannotCompare(f"Checkpoint {prefix!r} has no global_step.")
        training.saved[int(reader.get_tensor("global_step"))] = prefix
    for step, tag, value in _scalars(path):
        if tag in ("loss", "loss_1"):
            training.losses[step] = float(value)
    run = Run(path, [training])
    for folder in sorted(glob.glob(os.path.join(glob.escape(path), "eval*"))):
        found: dict[int, dict[str, np.ndarray]] = {}
        for step, tag, value in _scalars(folder):
            found.setdefault(step, {})[tag] = value
        name = os.path.basename(folder)
        run.evaluations += [
            Outputs(f"{name} at step {step}", found[step]) for step in sorted(found)
        ]
    return run


def _scalars(folder: str) -> Iterable[tuple[int, str, Any]]:
    for file in sorted(glob.glob(os.path.join(glob.escape(folder), "events.out.tfevents.*"))):
        try:
            for event in tf.compat.v1.train.summary_iterator(file):
                for value in event.summary.value:
                    if value.HasField("simple_value"):
                        yield event.step, value.tag, np.float32(value.simple_value)
        except tf.errors.DataLossError as error:
            raise CannotCompare(f"{file!r} is damaged: {error.message}") from error
