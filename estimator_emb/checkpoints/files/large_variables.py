# SPDX-License-Identifier: Apache-2.0
"""Puts values of any size into a small checkpoint, such as that of a SavedModel."""

import dataclasses
from collections.abc import Iterable, Mapping

import numpy as np
import tensorflow as tf

from estimator_emb.checkpoints.files.values import Values
from estimator_emb.checkpoints.files.writer import Writer


@dataclasses.dataclass(frozen=True)
class Rows:
    """The value of a variable.

    Attributes:
      shape: its shape.
      pieces: its rows in their order, in pieces.
    """

    shape: tuple[int, ...]
    pieces: Iterable[np.ndarray]


def fill(path: str, variables: Mapping[str, Rows]) -> None:
    """Replaces the values of some variables of a checkpoint, whose files are written anew.

    Args:
      path: prefix of the checkpoint. Its other variables are small.
      variables: by name, what takes the place of a value.
    """
    with Writer(path) as out:
        with Values(path) as small:
            for name, dtype in small.dtypes.items():
                if name not in variables:
                    is_text = dtype == tf.string
                    out.add(name, dtype, np.array(small.whole(name), object if is_text else None))
            for name, rows in variables.items():
                start = 0
                for piece in rows.pieces:
                    is_all = len(piece) == rows.shape[0]
                    out.add(name, small.dtypes[name], piece, rows.shape, None if is_all else start)
                    start += len(piece)
        merged = out.merge()
        for old in tf.io.gfile.glob(f"{path}.data-*"):
            tf.io.gfile.remove(old)
        for new in tf.io.gfile.glob(f"{merged}.*"):
            tf.io.gfile.rename(new, path + new.removeprefix(merged), overwrite=True)
