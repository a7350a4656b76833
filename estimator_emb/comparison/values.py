# SPDX-License-Identifier: Apache-2.0
"""Reads variables of checkpoints, large ones in pieces."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator
from typing import Any

import numpy as np
import tensorflow as tf

from estimator_emb.checkpoints.files import bundle_index

PIECE_BYTES = 32 << 20
"""How many bytes of a variable are in memory at a time."""


class Values:
    """The variables of a checkpoint.

    Args:
      prefix: of the checkpoint.
    """

    def __init__(self, prefix: str):
        self._prefix = prefix
        self._reader = tf.train.load_checkpoint(prefix)
        self.shapes: dict[str, tuple[int, ...]] = {
            name: tuple(shape) for name, shape in self._reader.get_variable_to_shape_map().items()
        }
        self.dtypes: dict[str, tf.DType] = self._reader.get_variable_to_dtype_map()
        self._places = bundle_index.places(prefix)

    def rows_in_piece(self, name: str) -> int | None:
        """Returns how many rows of a variable are read at a time; None for all."""
        shape, size = self.shapes[name], self.dtypes[name].size
        if not shape or not size or math.prod(shape) * size <= PIECE_BYTES:
            return None
        return max(1, PIECE_BYTES // max(1, math.prod(shape[1:]) * size))

    def pieces(self, name: str, rows: int | None) -> Iterator[np.ndarray]:
        """Yields a variable, `rows` rows at a time; as a whole for None."""
        if rows is None:
            yield np.asarray(self._reader.get_tensor(name))
            return
        place = self._places.get(name)
        shape, dtype = self.shapes[name], self.dtypes[name]
        if place is not None and os.path.exists(place[0]):
            file, offset = place
            kind = np.dtype(dtype.as_numpy_dtype).newbyteorder("<")
            mapped: Any = np.memmap(file, kind, "r", offset, shape)
            for start in range(0, shape[0], rows):
                yield np.asarray(mapped[start : start + rows])
            return
        # A variable in several parts, of which only those are read that hold the rows.
        for start in range(0, shape[0], rows):
            length = min(rows, shape[0] - start)
            rest = "".join(":-" for _ in shape[1:])
            spec = f"{' '.join(map(str, shape))} {start},{length}{rest}"
            with tf.Graph().as_default(), tf.compat.v1.Session() as session:
                (tensor,) = tf.raw_ops.RestoreV2(
                    prefix=self._prefix,
                    tensor_names=[name],
                    shape_and_slices=[spec],
                    dtypes=[dtype],
                )
                yield session.run(tensor)
