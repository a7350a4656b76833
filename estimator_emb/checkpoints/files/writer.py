"""Writes a checkpoint of any size in pieces."""

import json
import uuid
from collections.abc import Iterable
from typing import Any

import numpy as np
import tensorflow as tf

CHUNK_BYTES = 64 << 20


class Writer:
    """Writes a checkpoint beside its destination, moves it at the end, and cleans up on errors."""

    def __init__(self, destination: str):
        self._destination = destination
        self._parent = destination.rpartition("/")[0] or "."
        self._folder = f"{destination}.{uuid.uuid4().hex}.tmp"
        self._made: list[str] = []
        self._prefixes: list[str] = []
        self._waiting: list[tuple[str, tf.DType, np.ndarray, str]] = []
        self._bytes = 0
        self._incomplete: dict[str, tuple[np.ndarray, int]] = {}
        """Name of a float16 variable -> its rows, and the number of rows still to be added."""
        self._merged = ""

    def __enter__(self) -> "Writer":
        folder = self._parent
        while folder and not tf.io.gfile.exists(folder):
            self._made.append(folder)
            folder = folder.rpartition("/")[0]
        tf.io.gfile.makedirs(self._folder)
        return self

    def add(
        self,
        name: str,
        dtype: tf.DType,
        value: Any,
        shape: tuple[int, ...] = (),
        start: int | None = None,
    ) -> None:
        """Adds a variable, or its rows from `start` on. `shape` is then the variable's shape."""
        if start is not None and dtype == tf.float16:
            # TensorFlow cannot restore a float16 variable that was saved in parts.
            if name not in self._incomplete:
                self._incomplete[name] = np.empty(shape, np.float16), shape[0]
            whole, left = self._incomplete.pop(name)
            whole[start : start + len(value)] = value
            if left > len(value):
                self._incomplete[name] = whole, left - len(value)
                return
            value, start = whole, None
        place = ""
        if start is not None:
            rest = "".join(":-" for _ in shape[1:])
            place = f"{' '.join(map(str, shape))} {start},{len(value)}{rest}"
        if self._bytes and self._bytes + value.nbytes > CHUNK_BYTES:
            self._flush()
        self._waiting.append((name, dtype, value, place))
        self._bytes += value.nbytes

    def add_rows(
        self, name: str, dtype: tf.DType, shape: tuple[int, ...], pieces: Iterable[np.ndarray]
    ) -> None:
        start = 0
        for piece in pieces:
            self.add(name, dtype, piece, shape, None if piece.shape == shape else start)
            start += len(np.atleast_1d(piece))

    def merge(self) -> str:
        """Writes the remaining variables, and returns the checkpoint's prefix before it moves."""
        self._flush()
        merged = f"{self._folder}/merged"
        with tf.Graph().as_default(), tf.compat.v1.Session() as session:
            session.run(
                tf.raw_ops.MergeV2Checkpoints(
                    checkpoint_prefixes=self._prefixes,
                    destination_prefix=merged,
                    delete_old_dirs=False,
                )
            )
        self._merged = merged
        return merged

    def _flush(self) -> None:
        prefix = f"{self._folder}/{len(self._prefixes)}"
        names, dtypes, values, places = map(list, zip(*self._waiting, strict=True))
        with tf.Graph().as_default(), tf.compat.v1.Session() as session:
            tensors = [tf.compat.v1.placeholder(dtype) for dtype in dtypes]
            save = tf.raw_ops.SaveV2(
                prefix=prefix, tensor_names=names, shape_and_slices=places, tensors=tensors
            )
            session.run(save, dict(zip(tensors, values, strict=True)))
        self._prefixes.append(prefix)
        self._waiting, self._bytes = [], 0

    def finish(self) -> None:
        """Writes the remaining variables, moves the checkpoint, and adds a `checkpoint` file."""
        merged = self._merged or self.merge()
        names = [name for name in tf.io.gfile.listdir(self._folder) if name.startswith("merged.")]
        moved: list[str] = []
        try:
            # The index comes last: without it, the checkpoint does not exist.
            for name in sorted(names, key=lambda name: name.endswith(".index")):
                target = self._destination + name.removeprefix("merged")
                tf.io.gfile.rename(merged + name.removeprefix("merged"), target)
                moved.append(target)
            if not tf.io.gfile.exists(f"{self._parent}/checkpoint"):
                last = self._destination.rpartition("/")[2]
                with tf.io.gfile.GFile(f"{self._parent}/checkpoint", "w") as file:
                    file.write(f"model_checkpoint_path: {json.dumps(last, ensure_ascii=False)}\n")
        except BaseException:
            for target in reversed(moved):
                tf.io.gfile.remove(target)
            raise

    def __exit__(self, error: Any, *_: Any) -> None:
        if tf.io.gfile.exists(self._folder):
            tf.io.gfile.rmtree(self._folder)
        if error is None:
            return
        for folder in self._made:
            if tf.io.gfile.exists(folder) and not tf.io.gfile.listdir(folder):
                tf.io.gfile.rmtree(folder)
