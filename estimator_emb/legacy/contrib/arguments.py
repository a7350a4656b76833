"""Functions of `tf.contrib` that take other arguments where TensorFlow has them today."""

from collections.abc import Callable
from typing import Any

import tensorflow as tf

from estimator_emb.compat.internals import graphs

_train = tf.compat.v1.train


def load_checkpoint(filepattern: str) -> Any:
    """Returns a reader of a checkpoint, given by its prefix or folder."""
    return _train.load_checkpoint(filepattern)


def load_variable(checkpoint_dir: str, name: str) -> Any:
    """Returns a variable's value, an array, from a checkpoint's prefix or folder."""
    return _train.load_variable(checkpoint_dir, name)


def list_variables(checkpoint_dir: str) -> list[tuple[str, list[int]]]:
    """Returns names and shapes of the variables in a checkpoint, given by its prefix or folder."""
    variables: list[tuple[str, list[int]]] = _train.list_variables(checkpoint_dir)
    return variables


def init_from_checkpoint(checkpoint_dir: str, assignment_map: Any) -> None:
    """Makes variables start with the values of a checkpoint, as in `tf.train`."""
    _train.init_from_checkpoint(checkpoint_dir, assignment_map)


def batch_and_drop_remainder(batch_size: Any) -> Callable[[Any], Any]:
    """Returns a `dataset.apply` function that makes batches and drops a smaller last batch."""
    return lambda dataset: dataset.batch(batch_size, drop_remainder=True)


def padded_batch_and_drop_remainder(
    batch_size: Any, padded_shapes: Any, padding_values: Any = None
) -> Callable[[Any], Any]:
    """Returns a `dataset.apply` function that makes padded batches and drops a smaller last batch.

    `padded_shapes` has a shape for each component. There, None or -1 means the longest in a batch.
    Components are padded with `padding_values`, by default 0 or ''.
    """
    return lambda dataset: dataset.padded_batch(
        batch_size, padded_shapes, padding_values, drop_remainder=True
    )


def sloppy_interleave(
    map_func: Callable[..., Any], cycle_length: int, block_length: int = 1
) -> Callable[[Any], Any]:
    """Returns a `dataset.apply` function that interleaves datasets in a nondeterministic order."""
    interleave = tf.compat.v1.data.experimental.parallel_interleave
    applied: Callable[[Any], Any] = interleave(map_func, cycle_length, block_length, sloppy=True)
    return applied


def index_table_from_tensor(mapping: Any, *args: Any, **kwargs: Any) -> Any:
    """Returns a lookup table from the strings or integers in `mapping` to their indices."""
    return graphs.index_table_from_tensor(mapping, *args, **kwargs)


def index_to_string_table_from_tensor(mapping: Any, *args: Any, **kwargs: Any) -> Any:
    """Returns a lookup table from indices to the strings in `mapping`."""
    return graphs.index_to_string_table_from_tensor(mapping, *args, **kwargs)


def flatten(inputs: Any, outputs_collections: Any = None, scope: str | None = None) -> tf.Tensor:
    """Returns `inputs` as [batch, k]."""
    with tf.compat.v1.name_scope(scope, "Flatten", [inputs]):
        outputs = tf.compat.v1.layers.flatten(tf.convert_to_tensor(inputs))
    tf.compat.v1.add_to_collections(outputs_collections, outputs)
    return outputs


def get_name_scope() -> str:
    """Returns the current name scope of the default graph."""
    scope: str = tf.compat.v1.get_default_graph().get_name_scope()
    return scope


def list_devices() -> list[str]:
    """Returns the names of the devices that TensorFlow can use here."""
    return [
        f"/job:localhost/replica:0/task:0/device:{device.name.removeprefix('/device:')}"
        for device in tf.config.list_logical_devices()
    ]
