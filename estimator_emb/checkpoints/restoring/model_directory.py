"""Chooses the checkpoint that a call of an estimator reads or continues from."""

import contextlib
import os
import re
import time
from collections.abc import Iterator, Sequence
from typing import Any

import tensorflow as tf

from estimator_emb.checkpoints.files import checkpoint_files
from estimator_emb.checkpoints.restoring import compare_graph, saver, training_lock, warm_starts
from estimator_emb.reporting import error_notes
from estimator_emb.reporting.console import logger
from estimator_emb.spec.resolved import Table

OLD_SECONDS = 3600
"""Age at which the folder of a save counts as abandoned, if no lock tells."""


class ModelDirectory:
    """The folder of an estimator's checkpoints. Its path must not be a pattern to TensorFlow."""

    def __init__(self, path: str):
        checkpoint_files.check_folder(path)
        self._path = path
        self.start: tuple[str | None] | None = None
        """Inside `restoring`, a tuple of the checkpoint that the current call restores, or None."""
        self._has_trained = False

    def latest(self) -> str | None:
        return checkpoint_files.latest(self._path)

    def to_read(self, call: str, checkpoint_path: Any, warm_start: Any) -> str | None:
        """Returns the checkpoint that a call reads, if any, or raises MissingCheckpoint."""
        if checkpoint_path:
            return checkpoint_files.given(checkpoint_path)
        path = self.latest()
        if path is None and warm_starts.is_of_keras(warm_start, self._path):
            logger.info(
                "%s: the weights are those of the Keras model that model_to_estimator was given.",
                call,
            )
        elif path is None:
            _say_untrained(call, self._path, warm_start)
        return path

    @contextlib.contextmanager
    def continuing(self, config: Any, is_chief: bool, warm_start: Any) -> Iterator[list[Any]]:
        """Prepares and locks the folder for a training that saves. Yields the hooks that it needs.

        Explains errors about the checkpoint in this context.
        """
        # Under a coordinator, it is unknown here which process saves.
        if not is_chief or getattr(config, "_distribute_coordinator_mode", None):
            yield []
            return
        checkpoint_files.make_folder(self._path)
        with training_lock.held(self._path) as check:
            path = self.latest()
            if not self._has_trained and path is not None and warm_start is not None:
                _say_unused(path, warm_start, self._path)
            self._has_trained = True
            remove_unfinished_saves(self._path, alone=check is not None)
            with self.restoring(path):
                yield [] if check is None else [saver.ChecksBeforeSaving(lambda session: check())]

    @contextlib.contextmanager
    def restoring(self, path: str | None) -> Iterator[None]:
        """Checks that the checkpoint at `path` is whole, and has `check` compare graphs with it."""
        outer, self.start = self.start, (path,)
        try:
            with error_notes.explained(checkpoint_files.explain, path, chained=False):
                if path is not None:
                    checkpoint_files.check_whole(path)
                yield
        finally:
            self.start = outer

    def check(
        self, scaffold: Any, warm_start: Any, tables: Sequence[Table], *, trains: bool
    ) -> None:
        """Raises an error if the default graph does not fit the checkpoint that it begins from.

        Every pattern of a warm start must find variables, such as slots, if the graph `trains`.
        """
        if self.start is None or tf.distribute.has_strategy():
            return  # A replica has only a part of the graph.
        (path,) = self.start
        if path is not None:
            compare_graph.check_restored(path, scaffold, tables)
        elif warm_start:
            if trains:
                warm_starts.check_patterns(warm_start)
            found = compare_graph.check_warm_start(warm_start, tables)
            if trains and found is not None:
                warm_starts.say(warm_start.ckpt_to_initialize_from, found)


def remove_unfinished_saves(model_dir: str, alone: bool) -> None:
    """Removes the folders that killed saves have left, but only old folders unless `alone`.

    A checkpoint is written into a folder `model.ckpt-<step>_temp`, and moved to its place at the
    end. A folder that is left behind may be as large as the checkpoint.
    """
    names = tf.io.gfile.listdir(model_dir) if tf.io.gfile.isdir(model_dir) else []
    for name in sorted(name.rstrip("/") for name in names):
        folder = os.path.join(model_dir, name)
        is_save = re.fullmatch(r"model\.ckpt-\d+_temp(_[0-9a-f]+)?", name)
        if not is_save or not tf.io.gfile.isdir(folder):
            continue
        if alone or _is_old(folder):
            logger.info("Removing %s, which a killed save has left.", folder)
            with contextlib.suppress(tf.errors.OpError):
                tf.io.gfile.rmtree(folder)
        else:
            logger.info("Another process may be writing %s: it stays.", folder)


def _is_old(folder: str) -> bool:
    try:
        names = [folder, *(f"{folder}/{name}" for name in tf.io.gfile.listdir(folder))]
        newest = max(tf.io.gfile.stat(name).mtime_nsec for name in names) / 1e9
    except tf.errors.OpError:
        return False
    return time.time() - newest > OLD_SECONDS


def _say_unused(path: str, warm_start: Any, model_dir: str) -> None:
    if not warm_starts.is_of_keras(warm_start, model_dir):
        logger.info(
            "train: warm_start_from=%r is not used, because training goes on from checkpoint %s. "
            "For a warm start, give another model_dir.",
            warm_start.ckpt_to_initialize_from,
            path,
        )


def _say_untrained(call: str, model_dir: str, warm_start: Any) -> None:
    """Warns that the `call`, 'evaluate' or 'predict', has no checkpoint."""
    begin = f"{call}: Could not find trained model in model_dir: {model_dir}."
    if warm_start:
        logger.warning(
            "%s Only the weights that warm_start_from names come from %s; the others have their "
            "initial values, mostly random.",
            begin,
            warm_start.ckpt_to_initialize_from,
        )
        return
    logger.warning(
        "%s Weights that the program does not load itself have initial values, mostly random. "
        "Train first, or give the model_dir of a training, a checkpoint_path or warm_start_from.",
        begin,
    )
