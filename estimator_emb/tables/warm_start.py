# SPDX-License-Identifier: Apache-2.0
"""Makes the slots of a table move with its rows in a warm start."""

import re
from collections.abc import Callable, Iterable
from typing import Any

import tensorflow as tf

from estimator_emb.optimizers import OptimizationParameters
from estimator_emb.spec.config import TableConfig
from estimator_emb.tables.storage import Shards, constant, saved_name


class InitialRows:
    """The `backup_initializer` of a `VocabInfo` that gives new words the table's own rows.

    TensorFlow asks a backup_initializer for values, not for rows. Called as one, this gives values
    of the table's initializer, shaped as rows; `with_slots` replaces it by `of` a table, whose
    values are those that the table has at the ids of the new words.
    """

    def __init__(self, table: TableConfig):
        self._table = table

    def __call__(self, shape: Any, dtype: tf.DType = tf.float32) -> tf.Tensor:
        dimension = self._table.dimension
        rows = self._table.initializer([shape[0] // dimension, dimension], dtype=dtype)
        return tf.reshape(rows, shape)

    def of(self, shards: Shards, info: Any) -> Callable[..., tf.Tensor]:
        """Returns the initializer of a table, which is called once a shard, in their order."""
        start, remaining = 0, iter(shards)

        def initializer(shape: Any, dtype: tf.DType = tf.float32) -> tf.Tensor:
            nonlocal start
            weights = next(remaining).weights
            old_ids, _ = tf.raw_ops.GenerateVocabRemapping(
                new_vocab_file=info.new_vocab,
                old_vocab_file=info.old_vocab,
                new_vocab_offset=start,
                num_new_vocab=weights.shape[0],
            )
            start += weights.shape[0]
            new = tf.where(old_ids < 0)[:, 0]
            return tf.reshape(tf.gather(tf.cast(weights.initial_value, dtype), new), shape)

        return initializer


def with_slots(settings: Any, tables: Iterable[tuple[Shards, OptimizationParameters]]) -> Any:
    """Returns `WarmStartSettings` that give slots the `VocabInfo` and old name of their table.

    tensorflow-estimator warm-starts slots that match a list of patterns as `vars_to_warm_start`; a
    string matches only tables and other trainable variables. Slots without a VocabInfo of their own
    move as the rows of the table do; the row of a new word gets the slot's initial value.
    `InitialRows` become those of their table.
    """
    patterns = getattr(settings, "vars_to_warm_start", None)
    if not isinstance(patterns, list) or not all(isinstance(pattern, str) for pattern in patterns):
        return settings
    infos = dict(settings.var_name_to_vocab_info or {})
    old_names = dict(settings.var_name_to_prev_var_name or {})
    for shards, parameters in tables:
        table = saved_name(shards[0].weights)
        initial = infos[table].backup_initializer if table in infos else None
        if isinstance(initial, InitialRows):
            infos[table] = infos[table]._replace(
                backup_initializer=initial.of(shards, infos[table])
            )
        for slot, variable in zip(parameters.slots, shards[0].slots, strict=True):
            name = saved_name(variable)
            if not any(re.match(pattern, variable.name) for pattern in patterns):
                continue
            if table in infos and name not in infos:
                infos[name] = infos[table]._replace(
                    backup_initializer=constant(parameters.initial_value(slot))
                )
            if table in old_names and name == table + slot.suffix:
                old_names.setdefault(name, old_names[table] + slot.suffix)
    return settings._replace(var_name_to_vocab_info=infos, var_name_to_prev_var_name=old_names)
