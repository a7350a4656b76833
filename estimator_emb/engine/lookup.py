"""Computes activations from ids, and the gradients of rows from the gradients of activations.

For each feature, with w_j the weight of occurrence j and n_b the normaliser of segment b,

    act_b = sum_j gain_j * E[id_j]              over the occurrences of b
    dL/dE[i] = sum_j gain_j * dL/dact_b(j)      over the occurrences of id i in the whole batch
    gain_j = w_j / n_b(j),   n_b = 1 (sum) | sum_j w_j (mean) | sqrt(sum_j w_j^2) (sqrtn)

and gain_j = 0 where n_b is 0. Both sums multiply a sparse matrix of gains by a dense matrix.
TensorFlow computes such a product without copying a row for every occurrence.

Source: `ConvertToCooTensorOp` of tensorflow/core/tpu/kernels/sparse_core_preprocess_ops.cc.
"""

import dataclasses
import functools

import tensorflow as tf

from estimator_emb.engine.inputs import Ids, Source


@dataclasses.dataclass(frozen=True)
class Occurrences:
    """The occurrences of a feature, each with its position among the table's distinct rows.

    Attributes:
      positions: int32 [n], the position of each id in the list of distinct rows.
      gains: float32 [n], the factor of each row in its activation. None means that all are 1.
    """

    ids: Ids
    positions: tf.Tensor
    gains: tf.Tensor | None

    @functools.cached_property
    def places(self) -> tf.Tensor:
        """The segment and the position of each occurrence, int64 [n, 2]."""
        segments = self.ids.samples if self.ids.segments is None else self.ids.segments
        return tf.stack([segments, tf.cast(self.positions, tf.int64)], axis=1)

    def at(self, chosen: tf.Tensor) -> "Occurrences":
        """Returns the occurrences with the indices `chosen`, int64 [m].

        Giving the others a gain of 0 instead would turn an infinite gradient into NaN.
        """
        ids = dataclasses.replace(
            self.ids,
            ids=tf.gather(self.ids.ids, chosen),
            segments=tf.gather(self.places[:, 0], chosen),
        )
        gains = None if self.gains is None else tf.gather(self.gains, chosen)
        return Occurrences(ids, tf.gather(self.positions, chosen), gains)


def distinct(inputs: list[Ids], combiner: str | None) -> tuple[tf.Tensor, list[Occurrences]]:
    """Returns the distinct ids of a table's features, and each feature's occurrences among them.

    The ids [distinct] are in order of first occurrence. Without a combiner, rows are summed.
    """
    everything = tf.concat([ids.ids for ids in inputs], axis=0)
    # Not tf.unique: Grappler would rewrite it, gather and segment sum into a read of the whole
    # table. That read copies the table if the step also updates it.
    rows, positions, _ = tf.unique_with_counts(everything)
    pieces = tf.split(positions, [tf.size(ids.ids) for ids in inputs])
    return rows, [
        Occurrences(ids, piece, gains(ids, combiner))
        for ids, piece in zip(inputs, pieces, strict=True)
    ]


def gains(ids: Ids, combiner: str | None) -> tf.Tensor | None:
    """Returns the gain of each occurrence, float32 [n]. None means that all are 1."""
    weights = ids.weights
    if ids.lengths is not None or (weights is None and ids.segments is None):
        return None  # All gains are 1: a segment has at most a single occurrence, of weight 1.
    if combiner in ("sum", None):
        return weights
    if weights is None:
        weights = tf.ones_like(ids.ids, tf.float32)
    segments = ids.samples
    if combiner == "mean":
        normalisers = tf.math.unsorted_segment_sum(weights, segments, ids.batch)
    else:
        squares = tf.math.unsorted_segment_sum(tf.square(weights), segments, ids.batch)
        normalisers = tf.sqrt(squares)
    return tf.math.divide_no_nan(weights, tf.gather(normalisers, segments))


def combine(rows: tf.Tensor, occurrences: Occurrences) -> tf.Tensor:
    """Returns the activation of a feature from the distinct `rows` [distinct, dimension].

    Shape: float32 [batch, dimension] or, for a sequence, [batch, max_sequence_length, dimension].
    """
    ids = occurrences.ids
    if ids.segments is None and occurrences.gains is None:
        # tf.gather would take 1.5 times as long.
        activation = tf.gather_nd(rows, tf.expand_dims(occurrences.positions, 1))
    else:
        activation = _product(occurrences, tf.shape(rows)[0], rows)
    return tf.reshape(activation, activation_shape(ids, tf.compat.dimension_value(rows.shape[1])))


def activation_shape(ids: Ids | Source, dimension: int) -> list[int]:
    """Returns the activation's shape, with -1 for a batch size that the graph does not fix."""
    batch = -1 if ids.static_batch is None else ids.static_batch
    if ids.feature.max_sequence_length:
        return [batch, ids.feature.max_sequence_length, dimension]
    return [batch, dimension]


def row_gradients(
    gradients: list[tf.Tensor], features: list[Occurrences], count: tf.Tensor, dimension: int
) -> tf.Tensor:
    """Returns the summed gradient of each distinct row of a table, float32 [distinct, dimension].

    `gradients` are the gradients of the activations of `features`, in the same shapes. `count` is
    the number of distinct rows.
    """
    # If each occurrence is a segment of gain 1, unsorted_segment_sum would give the same. It takes
    # twice as long on TensorFlow 2.21, and equally long on 2.15.
    parts = [
        _product(occurrences, count, tf.reshape(gradient, [-1, dimension]), adjoint=True)
        for gradient, occurrences in zip(gradients, features, strict=True)
    ]
    return tf.add_n(parts)


def _product(
    occurrences: Occurrences, count: tf.Tensor, dense: tf.Tensor, adjoint: bool = False
) -> tf.Tensor:
    """Returns `dense` multiplied by the matrix of gains, [segments, distinct], or its transpose.

    Gains at the same position of the matrix add up.
    """
    ids, gains = occurrences.ids, occurrences.gains
    if gains is None:
        gains = tf.ones_like(occurrences.positions, tf.float32)
    shape = tf.stack([ids.batch * ids.segments_per_sample, tf.cast(count, tf.int64)])
    matrix = tf.SparseTensor(occurrences.places, gains, shape)
    return tf.sparse.sparse_dense_matmul(matrix, dense, adjoint_a=adjoint)
