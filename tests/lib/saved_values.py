"""Writes checkpoints of given values."""

import pathlib

import numpy as np
import tensorflow as tf

MOD = str(pathlib.Path(__file__).parents[1] / "data" / "tpu_checkpoints" / "mod")
"""A folder with a 'mod' checkpoint of a legacy TPU with four hosts."""
WORDS = "dense_features/words_embedding/embedding_weights"


def write(path, variables, slices=None, hosts=None):
    """Writes a checkpoint with SaveV2.

    Args:
      path: of the checkpoint.
      variables: their values by name.
      slices: number of rows per saved slice of a matrix.
      hosts: {name: number of TPU hosts that save its rows, divided by 'mod'}.
    """
    names, places, tensors = [], [], []
    for name, value in variables.items():
        value, count = np.asarray(value), (hosts or {}).get(name)
        if count:
            pieces = [value[host::count] for host in range(count)]
        elif slices and value.ndim == 2:
            pieces = [value[start : start + slices] for start in range(0, len(value), slices)]
        else:
            names, places, tensors = [*names, name], [*places, ""], [*tensors, value]
            continue
        start = 0
        for piece in pieces:
            names.append(name)
            places.append(f"{len(value)} {value.shape[1]} {start},{len(piece)}:-")
            tensors.append(piece)
            start += len(piece)
    tf.raw_ops.SaveV2(
        prefix=str(path), tensor_names=names, shape_and_slices=places, tensors=tensors
    )
    return str(path)


def save(path, variables):
    """Saves variables with a Saver, and returns the checkpoint's path."""
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        for name, value in variables.items():
            tf.compat.v1.get_variable(name, initializer=value)
        session.run(tf.compat.v1.global_variables_initializer())
        tf.io.gfile.makedirs(path.rpartition("/")[0])
        return tf.compat.v1.train.Saver().save(session, path)
