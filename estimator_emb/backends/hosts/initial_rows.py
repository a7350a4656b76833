"""Takes rows out of a table's initial value without computing the other rows, where possible.

On a CPU, TensorFlow's random ops draw by Philox, which numbers its draws by a counter. So a
stateless op that begins at a later counter draws the later values. Ops that work element by element
compute rows from the rows of their inputs.
"""

import math
from typing import Any

import tensorflow as tf

from estimator_emb.compat.internals.graphs import warm_starting_util
from estimator_emb.compat.internals.patches import Changes

_RANDOM = {
    "RandomUniform": "StatelessRandomUniformV2",
    "RandomStandardNormal": "StatelessRandomNormalV2",
    "TruncatedNormal": "StatelessTruncatedNormalV2",
}
"""Stateful op -> the stateless op that draws the same values from the same key and counter."""
_GROUP = 4
"""Values that an op draws from a counter. Truncated ones leave out 256 counters for rejections."""
_BY_ELEMENT = frozenset(
    ("Add", "AddV2", "Cast", "Identity", "Maximum", "Minimum", "Mul", "Neg", "RealDiv", "Sub")
)


def warm_start_parts() -> Changes:
    """Returns a context in which a warm start reads this host's part of a table.

    TensorFlow reads parts of a list of variables only, and makes a list of one part a variable.
    """

    def make(var_info: Any) -> Any:
        def with_parts(variable: Any, *names: Any) -> Any:
            name, variable = var_info(variable, *names)
            part = None if isinstance(variable, list) else variable._get_save_slice_info()
            return name, [variable] if part and part.full_shape != part.var_shape else variable

        return with_parts

    changes = Changes()
    changes.wrap(warm_starting_util, "_get_var_info", make)
    return changes


def rows_of(whole: tf.Tensor, start: int, end: int) -> tf.Tensor:
    """Returns rows of a matrix, `whole[start:end]`. Without a seed, they may have other values."""
    made: dict[str, tf.Tensor] = {}

    def rows(tensor: tf.Tensor) -> tf.Tensor:
        if tensor.shape != whole.shape:
            return tensor
        if tensor.name not in made:
            made[tensor.name] = computed(tensor)
        return made[tensor.name]

    def computed(tensor: tf.Tensor) -> tf.Tensor:
        op = tensor.op
        if op.type in (*_RANDOM, *_RANDOM.values()) and tensor.dtype == tf.float32:
            return _drawn(op, shape, start * shape[1])
        if op.type == "Fill":
            return tf.fill(shape, op.inputs[1])
        fits = [one.shape == whole.shape or one.shape.rank in (0, 1) for one in op.inputs]
        if op.type in _BY_ELEMENT and all(fits):
            inputs, attributes = [rows(one) for one in op.inputs], dict(op.node_def.attr)
            again = whole.graph.create_op(op.type, inputs, [tensor.dtype], attrs=attributes)
            return again.outputs[0]
        return tensor[start:end]

    shape = [end - start, whole.shape[1]]
    return rows(whole)


def _drawn(op: tf.Operation, shape: list[int], skipped: int) -> tf.Tensor:
    """Returns the values of a random op after the first `skipped`, as float32 of a shape."""
    seeds = (op.get_attr("seed"), op.get_attr("seed2")) if op.type in _RANDOM else None
    if seeds == (0, 0):  # Each run of the op draws other values.
        return getattr(tf.raw_ops, op.type)(shape=shape, dtype=tf.float32)
    if seeds:
        key, high = (tf.constant([seed % 2**64], tf.uint64) for seed in seeds)
        counter, algorithm = tf.concat([[0], high], 0), 1
    else:
        _, key, counter, algorithm = op.inputs
    group, before = divmod(skipped, _GROUP)
    counter += tf.constant([group * (256 if "Truncated" in op.type else 1), 0], tf.uint64)
    draw = getattr(tf.raw_ops, _RANDOM.get(op.type, op.type))
    values = draw(shape=[before + math.prod(shape)], key=key, counter=counter, alg=algorithm)
    return tf.reshape(values[before:], shape)
