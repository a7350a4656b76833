"""Explains errors of a model whose features and labels have different numbers of samples.

Different numbers alone are no error: an input may not hold samples, or the model may flatten it.
They are reported only if building or running a step fails.
"""

import contextlib
import copy
import re
from collections.abc import Iterator
from typing import Any

import numpy as np
import tensorflow as tf

from estimator_emb.checks import notes
from estimator_emb.messages import console, errors
from estimator_emb.messages.console import logger
from estimator_emb.ordering import structure
from estimator_emb.private.graphs import data_nest

REMEDY = (
    "All features and labels of a batch need the same number of samples: batch the dataset as a "
    "whole, with drop_remainder=True."
)
_OF_SHAPES = re.compile(r"\b(shapes?|dimensions?|dims?|sizes?|rank|broadcast\w*)\b", re.IGNORECASE)
"""In an error: it is about the shapes of tensors."""


@contextlib.contextmanager
def compared(features: Any, labels: Any, samples: int | None) -> Iterator[None]:
    """Adds to a ValueError from inside the context which tensors do not have `samples` samples.

    Only an error about shapes gets the names. Tensors of unknown shape are skipped, and all are if
    `samples` is None. A tensor whose first dimension is a multiple of `samples` is skipped too: the
    model may flatten the batch, or have it in another dimension. Without an error, warns of labels
    of one sample, because most losses silently broadcast them over the batch.
    """
    with errors.explained(_explain, features, labels, samples):
        yield
    for name, size in _of_another_size({"labels": labels}, samples):
        if size == 1:
            _warn_of_one(name, samples)


def _explain(error: Exception, features: Any, labels: Any, samples: int | None) -> Any:
    if not isinstance(error, ValueError):
        return None
    if "returned by input_fn must have static shape" in str(error):
        return ValueError(f"{error}{_of_unknown_shape(features, labels)}")
    if type(error) is not ValueError or not _OF_SHAPES.search(str(error)):
        return None
    structure = {"features": features, "labels": labels}
    found = [one for one in _of_another_size(structure, samples) if _lacks_samples(one[1], samples)]
    lines = "".join(_line(name, size, samples) for name, size in found)
    return ValueError(f"{error}{lines} {REMEDY}") if found else None


class _Sizes(tf.compat.v1.train.SessionRunHook):
    """The tensors of a graph whose batch sizes are known only when a step runs.

    It is a hook that clears `found` before each step, so that an error reports only its own.

    Attributes:
      watched: name of a graph tensor -> the name of the input in messages.
      found: name of an input whose size was wrong in this step -> (its size, the expected size).
    """

    def __init__(self) -> None:
        self.watched: dict[str, str] = {}
        self.found: dict[str, tuple[int, int]] = {}
        self._warned: set[str] = set()

    def before_run(self, run_context: Any) -> None:
        self.found = {}

    def note(self, names: list[str], sizes: np.ndarray, samples: np.ndarray) -> np.bool_:
        """Remembers which sizes are not `samples`, for the error that they may cause."""
        differing = {
            name: (int(size), int(samples))
            for name, size in zip(names, sizes, strict=True)
            if size != samples
        }
        self.found = differing
        for name, (size, _) in differing.items():
            if size == 1 and name.startswith("labels") and name not in self._warned:
                self._warned.add(name)
                _warn_of_one(name, int(samples))
        return np.bool_(True)


def watched(features: Any, labels: Any, samples: Any) -> tuple[Any, Any]:
    """Returns features and labels with ops that compare sizes which the graph does not know.

    A batch with different sizes trains all the same. `samples` is the expected size, an int or an
    integer scalar; None compares nothing.
    """
    structure = {"features": features, "labels": labels}
    chosen = {id(value): (name, value) for name, value in named(structure) if _may_differ(value)}
    if not chosen or samples is None:
        return features, labels
    names = [name for name, _ in chosen.values()]
    values = [value for _, value in chosen.values()]
    noted = notes.of(_Sizes)
    with tf.name_scope("batch_sizes"), tf.device("/cpu:0"):
        sizes = _first_dimensions(values, samples)
        samples = tf.cast(samples, tf.int32)
        given = [sizes, samples]

        def note() -> tf.Tensor:
            return tf.numpy_function(lambda *found: noted.note(names, *found), given, tf.bool)

        alike = tf.reduce_all(tf.equal(sizes, samples))
        compared = tf.cond(alike, lambda: tf.constant(True), note)
        with tf.control_dependencies([compared]):
            # One op for all is cheaper than one for each.
            after = tf.raw_ops.IdentityN(input=values)
    replaced = dict(zip(chosen, after, strict=True))
    for name, tensor in zip(names, after, strict=True):
        noted.watched[tensor.name] = name
    return _with(features, replaced), _with(labels, replaced)


class _SmallBatches(tf.compat.v1.train.SessionRunHook):
    def __init__(self, declared: int, samples: tf.Tensor):
        self._declared, self._samples = declared, samples

    def before_run(self, run_context: Any) -> Any:
        return tf.compat.v1.train.SessionRunArgs(self._samples)

    def after_run(self, run_context: Any, run_values: Any) -> None:
        if _tell_if_small(self._declared, run_values.results):
            self._declared = 0


def told_of_small(spec: Any, declared: int, labels: Any, features: Any) -> Any:
    """Returns an `EstimatorSpec` of a training that says once if a batch is not whole.

    It then has fewer than `declared` samples, which is train_batch_size.
    """
    sizes = (_samples(value) for _, value in named([labels, features]))
    samples = next((size for size in sizes if size is not None), None)
    if tf.is_tensor(samples):
        hooks = *spec.training_hooks, _SmallBatches(declared, samples)
        return spec._replace(training_hooks=hooks)
    if samples is not None:
        _tell_if_small(declared, samples)
    return spec


def _samples(value: Any) -> Any:
    if isinstance(value, tf.SparseTensor):
        return value.dense_shape[0]
    if isinstance(value, tf.RaggedTensor):
        return value.nrows()
    if not isinstance(value, tf.Tensor) or not value.shape.rank:
        return None
    return value.shape[0] if value.shape[0] is not None else tf.shape(value)[0]


def _tell_if_small(declared: int, samples: int) -> bool:
    if samples < declared:
        console.say_once(
            f"train_batch_size is {declared}, and input_fn gave a batch of {samples}. It trains, "
            "and the examples per second that are shown count whole batches. A TPU takes no other: "
            "batch the dataset by params['batch_size'], with drop_remainder=True."
        )
    return samples < declared


def hooks() -> list[tf.compat.v1.train.SessionRunHook]:
    """Returns the hooks that a session of the default graph needs for these checks."""
    noted = notes.of(_Sizes)
    return [noted] if noted.watched else []


def of_failed_step(error: tf.errors.OpError, graph: tf.Graph) -> str:
    """Returns lines about the batch of a failed step; '' if its sizes did not cause the error."""
    noted = notes.of(_Sizes, graph)
    found = {name: sizes for name, sizes in noted.found.items() if _lacks_samples(*sizes)}
    if not isinstance(error, tf.errors.InvalidArgumentError):
        return ""
    if not found or not _OF_SHAPES.search(error.message):
        return ""
    if error.op is not None and error.op.graph is graph:
        ops = structure.reached([error.op], lambda op: [tensor.op for tensor in op.inputs])
        read = {noted.watched.get(tensor.name) for op in ops for tensor in op.inputs}
        if read.isdisjoint(found):
            return ""
    lines = (_line(name, size, samples) for name, (size, samples) in found.items())
    return f"{''.join(lines)} {REMEDY}"


def _may_differ(value: Any) -> bool:
    if not isinstance(value, tf.Tensor) or value.dtype in (tf.resource, tf.variant):
        return False
    rank = value.shape.rank
    return rank is None or (rank > 0 and tf.compat.dimension_value(value.shape[0]) is None)


def _first_dimensions(values: list[tf.Tensor], samples: Any) -> tf.Tensor:
    """Returns the first dimension of each tensor, int32 [n]; `samples` for a scalar."""
    shapes = tf.shape_n(values)
    places, start = [], 0
    for number, value in enumerate(values):
        places.append(start)
        if value.shape.rank is None:
            first = tf.concat([shapes[number], [tf.cast(samples, tf.int32)]], axis=0)
            shapes[number] = first[:1]
            start += 1
        else:
            start += value.shape.rank
    return tf.gather(tf.concat(shapes, axis=0), places) if start > 1 else shapes[0]


def _with(structure: Any, replaced: dict[int, tf.Tensor]) -> Any:
    if isinstance(structure, dict):
        copied = copy.copy(structure)  # Its keys may be of types that `tf.nest` cannot sort.
        copied.update({key: _with(value, replaced) for key, value in structure.items()})
        return copied
    if isinstance(structure, (list, tuple)) and not hasattr(structure, "_fields"):
        return type(structure)(_with(value, replaced) for value in structure)
    return tf.nest.map_structure(lambda value: replaced.get(id(value), value), structure)


def _warn_of_one(name: str, samples: int | None) -> None:
    logger.warning(
        "%s has 1 sample, %d expected: a loss may spread it over all of them. %s",
        name,
        samples,
        REMEDY,
    )


def _of_unknown_shape(features: Any, labels: Any) -> str:
    return "".join(
        f"\n{name} has shape {value.shape}: batch the dataset with drop_remainder=True, and give "
        "its other dimensions sizes."
        for name, value in named({"features": features, "labels": labels})
        if isinstance(value, tf.Tensor) and not value.shape.is_fully_defined()
    )


def _line(name: str, size: int, samples: int | None) -> str:
    return f"\n{name} has {size} samples, {samples} expected."


def _lacks_samples(size: int, samples: int | None) -> bool:
    """Returns whether a first dimension of `size` cannot hold `samples` samples."""
    return not (size and samples and size % samples == 0)


def _of_another_size(structure: Any, samples: int | None) -> Iterator[tuple[str, int]]:
    if samples is None:
        return
    for name, value in named(structure):
        if isinstance(value, tf.Tensor) and value.shape.rank and value.shape[0] is not None:
            size = value.shape[0]
            if size != samples:
                yield name, size


def named(structure: Any, name: str = "") -> Iterator[tuple[str, Any]]:
    """Yields the path of each leaf of a structure, such as `features['x'][0]`, and the leaf."""
    if isinstance(structure, dict):
        for key, value in structure.items():
            yield from named(value, f"{name}[{key!r}]" if name else key)
    elif isinstance(structure, (list, tuple)) and not hasattr(structure, "_fields"):
        for index, value in enumerate(structure):
            yield from named(value, f"{name}[{index}]")
    elif structure is not None:
        for value in data_nest.flatten(structure):
            yield name, value
