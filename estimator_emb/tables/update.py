# SPDX-License-Identifier: Apache-2.0
"""The optimizer step on the rows of a table that a batch has touched."""

import tensorflow as tf

from estimator_emb.optimizers import TENSORFLOW, OptimizationParameters, step
from estimator_emb.tables.lookup import Occurrences, row_gradients
from estimator_emb.tables.storage import TableVariables


def apply(
    variables: TableVariables,
    parameters: OptimizationParameters,
    learning_rate: tf.Tensor,
    rows: tf.Tensor,
    features: list[Occurrences],
    gradients: list[tf.Tensor],
    clipping_limit: float | None,
    num_cores: int,
) -> tf.Operation:
    """Sums the gradients of each row and runs the optimizer on it.

    Args:
      variables: of the table; written.
      parameters: the table's optimizer.
      learning_rate: float32 scalar.
      rows: the distinct ids of the batch. Each of these rows is updated, also where its gradients
        sum to zero.
      features: the occurrences of each feature of the table.
      gradients: of each feature's activation, in the same order.
      clipping_limit: of the spec.
      num_cores: how many cores share the batch; matters only without gradient accumulation.
    """

    def update(rows: tf.Tensor, g: tf.Tensor) -> tf.Operation:
        if parameters.updates_untouched_rows:
            return _update_all(variables, parameters, learning_rate, rows, g, clipping_limit)
        return _update_rows(variables, parameters, learning_rate, rows, g, clipping_limit)

    dimension = variables.weights.shape[1]
    if parameters.use_gradient_accumulation or num_cores == 1:
        g = row_gradients(gradients, features, tf.size(rows), dimension)
        return update(rows, g)
    return _core_by_core(update, rows, features, gradients, dimension, num_cores)


def _update_rows(variables, parameters, learning_rate, rows, g, clipping_limit):
    everything = (variables.weights, *variables.slots)
    w, *slots = (variable.sparse_read(rows) for variable in everything)
    after = step(parameters, TENSORFLOW, learning_rate, g, w, tuple(slots), clipping_limit)
    return tf.group(
        *(
            tf.raw_ops.ResourceScatterUpdate(
                resource=variable.handle, indices=rows, updates=values
            )
            for variable, values in zip(everything, after, strict=True)
        )
    )


def _update_all(variables, parameters, learning_rate, rows, g, clipping_limit):
    everything = (variables.weights, *variables.slots)
    g = tf.scatter_nd(
        tf.expand_dims(rows, 1), g, tf.constant(variables.weights.shape.as_list(), rows.dtype)
    )
    w, *slots = (variable.read_value() for variable in everything)
    after = step(parameters, TENSORFLOW, learning_rate, g, w, tuple(slots), clipping_limit)
    with tf.control_dependencies(after):
        return tf.group(
            *(
                variable.assign(values, read_value=False)
                for variable, values in zip(everything, after, strict=True)
            )
        )


def _core_by_core(update, rows, features, gradients, dimension, num_cores):
    """One update for each core that holds a row's id, the core that owns the row first.

    Every core has an equal, consecutive slice of the batch. The core that owns row i is core
    i mod num_cores; the others follow in increasing order.

    Source: `tpu_estimator_gradients_test.py` of tensorflow-estimator, which pins this on hardware
    for two cores; the order beyond the second core is our choice.
    """
    done = tf.no_op()
    batch = features[0].ids.batch
    per_core = tf.maximum(batch // num_cores, 1)
    slice_of = [tf.minimum(one.ids.samples // per_core, num_cores - 1) for one in features]
    for turn in range(num_cores):
        # In its first turn a row meets its own core, then the others in order.
        owner = tf.cast(rows, tf.int64) % num_cores
        if turn == 0:
            core_of_row = owner
        else:
            core_of_row = tf.where(turn - 1 < owner, tf.constant(turn - 1, tf.int64), turn)
        parts, counts = [], []
        for one, gradient, core in zip(features, gradients, slice_of, strict=True):
            mine = tf.equal(core, tf.gather(core_of_row, one.positions))
            gains = tf.ones_like(one.positions, tf.float32) if one.gains is None else one.gains
            masked = Occurrences(one.ids, one.positions, tf.where(mine, gains, 0.0))
            parts.append(row_gradients([gradient], [masked], tf.size(rows), dimension))
            counts.append(
                tf.math.unsorted_segment_sum(
                    tf.cast(mine, tf.int32), one.positions, tf.size(rows)
                )
            )
        held = tf.add_n(counts) > 0
        with tf.control_dependencies([done]):
            done = update(
                tf.boolean_mask(rows, held), tf.boolean_mask(tf.add_n(parts), held)
            )
    return done
