# SPDX-License-Identifier: Apache-2.0
"""The checkpoints of an estimator: which one a call reads or continues from."""

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any

from estimator_emb.checkpoints.files import checkpoint_files
from estimator_emb.checkpoints.restoring import training_lock, unfinished_saves
from estimator_emb.checkpoints.restoring.fitting import Restoring
from estimator_emb.checks import run_checks
from estimator_emb.spec.resolved import Table


class ModelDirectory:
    """The folder of one estimator's checkpoints.

    Args:
      path: path of the folder.

    Raises:
      ValueError: TensorFlow reads the path as a pattern.
    """

    def __init__(self, path: str):
        checkpoint_files.check_folder(path)
        self._path = path
        self._restored: Restoring | None = None

    def latest(self) -> str | None:
        """Returns the path of the latest checkpoint; None where there is none."""
        return checkpoint_files.latest(self._path)

    def to_read(self, call: str, checkpoint_path: Any, warm_start: Any) -> str | None:
        """Returns the checkpoint that an evaluation or a prediction reads; None if there is none.

        Args:
          call: 'evaluate' or 'predict'.
          checkpoint_path: the checkpoint that the program asks for; None for the latest.
          warm_start: `WarmStartSettings` for variables without a checkpoint; None for initial
            values.

        Raises:
          MissingCheckpoint: there is no checkpoint at `checkpoint_path`, or the `checkpoint` file
            does not say which one is the latest.
        """
        if checkpoint_path:
            return checkpoint_files.given(checkpoint_path)
        path = self.latest()
        run_checks.say_if_untrained(call, self._path, path, warm_start)
        return path

    @contextlib.contextmanager
    def continuing(self, config: Any) -> Iterator[None]:
        """Prepares the folder for a training, if this process saves, and explains errors inside.

        Args:
          config: the `RunConfig` of the training.

        Raises:
          RuntimeError: another training saves there.
        """
        # Under a coordinator, it is not known here which of its processes saves.
        if not config.is_chief or getattr(config, "_distribute_coordinator_mode", None):
            yield
            return
        with training_lock.held(self._path) as alone:
            path = self.latest()
            unfinished_saves.remove(self._path, alone)
            with self.restoring(path):
                yield

    @contextlib.contextmanager
    def restoring(self, path: str | None) -> Iterator[None]:
        """Makes `check` compare graphs with the checkpoint at `path`, if it is not None."""
        outer, self._restored = self._restored, Restoring(path)
        try:
            with checkpoint_files.explained(path):
                yield
        finally:
            self._restored = outer

    def check(self, scaffold: Any, warm_start: Any, tables: Sequence[Table]) -> None:
        """Compares the default graph with its first values; see `Restoring.check`."""
        if self._restored:
            self._restored.check(scaffold, warm_start, tables)
