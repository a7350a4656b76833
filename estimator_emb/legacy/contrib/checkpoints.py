# SPDX-License-Identifier: Apache-2.0
"""Functions of `tf.contrib.framework` whose arguments have other names in `tf.train`."""

from typing import Any

import tensorflow as tf

_train = tf.compat.v1.train


def load_checkpoint(filepattern: str) -> Any:
    """Returns `tf.train.load_checkpoint` of a checkpoint's prefix or folder."""
    return _train.load_checkpoint(filepattern)


def load_variable(checkpoint_dir: str, name: str) -> Any:
    """Returns a variable's value in a checkpoint, given by its prefix or folder, as an array."""
    return _train.load_variable(checkpoint_dir, name)


def list_variables(checkpoint_dir: str) -> list[tuple[str, list[int]]]:
    """Returns names and shapes of the variables in a checkpoint, given by its prefix or folder."""
    variables: list[tuple[str, list[int]]] = _train.list_variables(checkpoint_dir)
    return variables


def init_from_checkpoint(checkpoint_dir: str, assignment_map: Any) -> None:
    """Makes variables start with values of a checkpoint; see `tf.train.init_from_checkpoint`."""
    _train.init_from_checkpoint(checkpoint_dir, assignment_map)
