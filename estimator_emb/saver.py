# SPDX-License-Identifier: Apache-2.0
"""The saver of `TPUEstimator`: TensorFlow's, which writes large checkpoints as several files."""

import os
from typing import Any

import tensorflow as tf
from tensorflow.python.training import saver as saver_lib

FILE_BYTES = 64 << 20
"""A device's part of a checkpoint has another file only if each has this much in it."""
MOST_FILES = 8


def saver(config: Any) -> tf.compat.v1.train.Saver:
    """The saver that tensorflow-estimator would make, which writes on all cores.

    TensorFlow writes each data file of a checkpoint on one core, which the checksums alone keep
    busy for as long as the writing does, or longer. Names, shapes and values in the checkpoint are
    the same, and every reader of checkpoints takes any number of files.

    Args:
      config: the `RunConfig`.
    """
    return tf.compat.v1.train.Saver(
        sharded=True,
        max_to_keep=config.keep_checkpoint_max,
        keep_checkpoint_every_n_hours=config.keep_checkpoint_every_n_hours,
        builder=_Builder(),
        defer_build=True,
        save_relative_paths=True,
    )


class _Builder(saver_lib.BulkSaverBuilder):
    """Divides what one device saves by size, over as many files as there are cores."""

    def _GroupByDevices(self, saveables: list[Any]) -> list[tuple[str, list[Any]]]:
        return [
            (device, group)
            for device, of_device in super()._GroupByDevices(saveables)
            for group in _groups(of_device)
        ]


def _groups(saveables: list[Any]) -> list[list[Any]]:
    sizes = [sum(_bytes(spec) for spec in one.specs) for one in saveables]
    count = max(1, min(os.cpu_count() or 1, MOST_FILES, sum(sizes) // FILE_BYTES))
    groups: list[list[Any]] = [[] for _ in range(count)]
    filled = [0] * count
    for index in sorted(range(len(saveables)), key=lambda index: -sizes[index]):
        smallest = filled.index(min(filled))
        groups[smallest].append(saveables[index])
        filled[smallest] += sizes[index]
    return [group for group in groups if group]


def _bytes(spec: Any) -> int:
    return (spec.tensor.shape.num_elements() or 0) * spec.dtype.size
