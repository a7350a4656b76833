"""Updates the rows of a table that a batch has looked up."""

import dataclasses
import functools

import tensorflow as tf

from estimator_emb.engine.lookup import Occurrences, row_gradients
from estimator_emb.engine.tables.storage import Shards, StoredTable, by_shard, read_rows
from estimator_emb.optimizers import TENSORFLOW, step
from estimator_emb.spec.resolved import Table


@dataclasses.dataclass(frozen=True)
class RowUpdate:
    """The input of one pass of the optimizer over a table.

    Attributes:
      rows: distinct ids, int32 or int64. All of these rows are updated, even by a gradient of zero.
      gradients: float32 [rows, dimension], the summed gradient of each row.
      weights: float32 [rows, dimension], the present weights. None makes the update read them.
    """

    rows: tf.Tensor
    gradients: tf.Tensor
    weights: tf.Tensor | None = None


def row_updates(
    table: Table,
    rows: tf.Tensor,
    features: list[Occurrences],
    gradients: list[tf.Tensor],
    num_cores: int,
    weights: tf.Tensor | None = None,
) -> list[RowUpdate]:
    """Returns the updates that a batch makes to a table, in order: one, if gradients accumulate.

    `rows` are the distinct ids of the batch. `weights` are their weights as the lookup read them,
    unless the weights may have changed since. `gradients` are the gradients of the activations of
    `features`. `num_cores`, the cores that share the batch, matters only without accumulation.
    """
    dimension = table.config.dimension
    if table.trained_by.use_gradient_accumulation or num_cores == 1:
        summed = row_gradients(gradients, features, tf.size(rows), dimension)
        return [RowUpdate(rows, summed, weights)]
    return _core_by_core(rows, features, gradients, dimension, num_cores)


def _core_by_core(
    rows: tf.Tensor,
    features: list[Occurrences],
    gradients: list[tf.Tensor],
    dimension: int,
    num_cores: int,
) -> list[RowUpdate]:
    """Returns `num_cores` updates. In each, a row takes the gradient of another core.

    Every core has an equal, consecutive slice of the batch. Row i takes the gradient of its owner,
    core i mod num_cores, before the others in increasing order. It skips cores without this row.

    Source: `tpu_estimator_gradients_test.py` of tensorflow-estimator, which pins this on hardware
    for two cores; the order beyond the second core is our choice.
    """
    per_core = tf.maximum(features[0].ids.batch // num_cores, 1)
    core_of = [
        tf.minimum(occurrences.ids.samples // per_core, num_cores - 1) for occurrences in features
    ]
    owner = tf.cast(rows, tf.int64) % num_cores
    updates = []
    for turn in range(num_cores):
        # In turn 0, a row takes the gradient of its owner. The other cores follow in order.
        other = tf.where(turn - 1 < owner, tf.constant(turn - 1, tf.int64), turn)
        core_of_row = owner if turn == 0 else other
        parts, counts = [], []
        for occurrences, gradient, core in zip(features, gradients, core_of, strict=True):
            mine = tf.where(tf.equal(core, tf.gather(core_of_row, occurrences.positions)))[:, 0]
            chosen = occurrences.at(mine)
            parts.append(row_gradients([gradient], [chosen], tf.size(rows), dimension))
            ones = tf.ones_like(chosen.positions)
            counts.append(tf.math.unsorted_segment_sum(ones, chosen.positions, tf.size(rows)))
        touched = tf.where(tf.add_n(counts) > 0)[:, 0]
        updates.append(RowUpdate(tf.gather(rows, touched), tf.gather(tf.add_n(parts), touched)))
    return updates


def apply(table: StoredTable, learning_rate: tf.Tensor, updates: list[RowUpdate]) -> tf.Operation:
    """Applies `updates` to the shards of a table, in order.

    Each shard is updated on its own device, by one trainer at a time.
    """
    parameters, shards = table.trained_by, table.variables
    run = _update_all if parameters.updates_untouched_rows else _update_rows
    rule = functools.partial(step, parameters, TENSORFLOW, clipping_limit=table.clipping_limit)
    done = tf.no_op()
    for update in updates:
        with tf.control_dependencies([done]):
            parts = []
            for shard, part in zip(shards, _shard_updates(update, shards), strict=True):
                of_shard = functools.partial(run, rule, shard, part.weights)
                parts.append(shard.run(of_shard, [learning_rate, part.rows, part.gradients]))
            done = tf.group(*parts)
    return done


def _shard_updates(update: RowUpdate, shards: Shards) -> list[RowUpdate]:
    if len(shards) == 1:
        return [update]
    return [
        RowUpdate(rows, tf.gather(update.gradients, positions))
        for positions, rows in by_shard(shards, update.rows)
    ]


def _update_rows(rule, variables, w, inputs):
    learning_rate, rows, g = inputs
    everything = (variables.weights, *variables.slots)
    slots = [read_rows(slot, rows) for slot in variables.slots]
    if w is None:
        w = read_rows(variables.weights, rows)
    after = rule(learning_rate, g, w, tuple(slots))
    return tf.group(
        *(
            tf.raw_ops.ResourceScatterUpdate(resource=variable.handle, indices=rows, updates=values)
            for variable, values in zip(everything, after, strict=True)
        )
    )


def _update_all(rule, variables, _, inputs):
    learning_rate, rows, gradients = inputs
    everything = (variables.weights, *variables.slots)
    shape = tf.constant(variables.weights.shape.as_list(), rows.dtype)
    g = tf.scatter_nd(tf.expand_dims(rows, 1), gradients, shape)
    w, *slots = (variable.read_value() for variable in everything)
    after = rule(learning_rate, g, w, tuple(slots))
    with tf.control_dependencies(after):
        return tf.group(
            *(
                variable.assign(values, read_value=False)
                for variable, values in zip(everything, after, strict=True)
            )
        )
