"""Saves the positions of a training's input in files, and restores them by step."""

import os
import re
from typing import Any

import tensorflow as tf

from estimator_emb.checkpoints.files import checkpoint_reader
from estimator_emb.engine import pipelining

_UNFINISHED = "unfinished_"


class Positions:
    """The positions of a task's input, `<name>.ckpt-<step>` in the model directory.

    A position appears only when it is complete, so a killed process leaves no damaged files. The
    file `checkpoint_<name>` names the last position, as with TensorFlow's hook. `name` is 'input',
    followed by the task if there are several.
    """

    def __init__(self, directory: str, name: str):
        self.directory = directory
        self._name = name
        self._file = re.compile(
            rf"(?:{_UNFINISHED})?{re.escape(name)}\.ckpt-(\d+)(\.index|\.data-\d+-of-\d+|\.meta|_temp.*)"
        )

    def path(self, step: int) -> str:
        return os.path.join(self.directory, f"{self._name}.ckpt-{step}")

    def are_beside(self, model: str) -> bool:
        return os.path.normpath(os.path.dirname(model)) == os.path.normpath(self.directory)

    def build(self, iterators: list[Any], kept: list[pipelining.KeptTensors]) -> None:
        """Adds ops to the graph that save and restore the iterators and the `kept` tensors."""
        self._iterators = tf.compat.v1.train.Saver(iterators, sharded=True, max_to_keep=None)
        self._kept = kept
        self._whole = self._iterators
        if kept:
            self._whole = tf.compat.v1.train.Saver(
                [*iterators, *kept], sharded=True, max_to_keep=None
            )

    def steps(self) -> list[int]:
        return sorted(
            int(match[1])
            for file in tf.io.gfile.listdir(self.directory)
            if (match := self._file.fullmatch(file))
            and match[2] == ".index"
            and not file.startswith(_UNFINISHED)
        )

    def save(self, session: Any, step: int) -> None:
        path = self.path(step)
        unfinished = os.path.join(self.directory, _UNFINISHED + os.path.basename(path))
        self._whole.save(session, unfinished, write_meta_graph=False, write_state=False)
        written = tf.io.gfile.glob(unfinished + ".*")
        # The index comes last: without it the position does not exist.
        for file in sorted(written, key=lambda file: file.endswith(".index")):
            tf.io.gfile.rename(file, path + file[len(unfinished) :], overwrite=True)
        tf.compat.v1.train.update_checkpoint_state(
            self.directory,
            os.path.basename(path),
            latest_filename=f"checkpoint_{self._name}",
        )

    def restore(self, session: Any, step: int) -> None:
        """Restores the position at `step`. Raises ValueError if another input wrote it."""
        path = self.path(step)
        saved = checkpoint_reader.load(path).get_variable_to_shape_map()
        wanted = _names(self._iterators)
        kept = {name for name in saved if name.startswith(pipelining.KEPT_PREFIX)}
        other = ""
        if not wanted <= set(saved):
            other = (
                f"the position of another input: it has {', '.join(sorted(saved))}, and the input "
                f"of this training is {', '.join(sorted(wanted))}. Train with the input_fn that "
                "wrote it"
            )
        elif kept and self._kept and kept != _names(self._whole) - wanted:
            other = (
                "a lookup ahead by other features or settings (bad_ids, table_summaries, parameter "
                "servers, ESTIMATOR_EMB_NATIVE). Train with those that wrote it"
            )
        if other:
            raise ValueError(
                f"CheckpointInputPipelineHook: {path} holds {other}, or remove {self._name}.ckpt-* "
                f"from {self.directory} to begin the input at its start."
            )
        if self._kept and not kept:
            # It was written without a lookup ahead, so the next batch is looked up now.
            self._iterators.restore(session, path)
            session.run([one.forget for one in self._kept])
            session.run([one.op for one in self._kept])
        else:
            self._whole.restore(session, path)

    def remove_those_without_model(self, step: int) -> None:
        """Removes all positions except at `step` and at the steps of the model's checkpoints."""
        keep = {step, *self._steps_of_models()}
        self._remove(lambda saved: saved not in keep)

    def remove_those_before_models(self) -> None:
        oldest = min(self._steps_of_models(), default=0)
        needed = max((saved for saved in self.steps() if saved <= oldest), default=0)
        self._remove(lambda saved: saved < needed)

    def _remove(self, outdated: Any) -> None:
        for file in tf.io.gfile.listdir(self.directory):
            file = file.rstrip("/")
            match = self._file.fullmatch(file)
            if match and (file.startswith(_UNFINISHED) or outdated(int(match[1]))):
                path = os.path.join(self.directory, file)
                if tf.io.gfile.isdir(path):
                    tf.io.gfile.rmtree(path)
                else:
                    tf.io.gfile.remove(path)

    def _steps_of_models(self) -> list[int]:
        matches = (
            re.fullmatch(r"(?!input[_.]|unfinished_).*-(\d+)\.index", file)
            for file in tf.io.gfile.listdir(self.directory)
        )
        return [int(match[1]) for match in matches if match]


def _names(saver: Any) -> set[str]:
    return {spec.name for saveable in saver._var_list for spec in saveable.specs}
