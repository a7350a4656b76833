# SPDX-License-Identifier: Apache-2.0
"""Makes the slots of a table move with its rows in a warm start."""

import re
from collections.abc import Iterable
from typing import Any

from estimator_emb.optimizers import OptimizationParameters
from estimator_emb.tables.storage import Shards, constant, saved_name


def with_slots(settings: Any, tables: Iterable[tuple[Shards, OptimizationParameters]]) -> Any:
    """Returns `WarmStartSettings` that give slots the `VocabInfo` and old name of their table.

    tensorflow-estimator warm-starts slots that match a list of patterns as `vars_to_warm_start`; a
    string matches only tables and other trainable variables. Slots without a VocabInfo of their own
    move as the rows of the table do; the row of a new word gets the slot's initial value.
    """
    patterns = getattr(settings, "vars_to_warm_start", None)
    if not isinstance(patterns, list) or not all(isinstance(pattern, str) for pattern in patterns):
        return settings
    infos = dict(settings.var_name_to_vocab_info or {})
    old_names = dict(settings.var_name_to_prev_var_name or {})
    for shards, parameters in tables:
        table = saved_name(shards[0].weights)
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
