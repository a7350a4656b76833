"""Creates the variables of all tables of a step, under unique names."""

import dataclasses
from collections.abc import Sequence

from estimator_emb.engine.alone import ALONE, Alone
from estimator_emb.engine.tables import partition, scopes, storage, variable_names
from estimator_emb.spec.resolved import Table


def create(
    tables: Sequence[Table], training: bool, name_as_part: bool, servers: int, host: Alone = ALONE
) -> list[storage.StoredTable]:
    """Creates the tables that the model looks up, with slots if `training`.

    The `servers` share each table's rows, and get the first rows of large tables in turn. `host` is
    the same as in `storage.create`.
    """
    if training:
        scopes.warn_of_ignored()
    name_of = variable_names.variable_names(tables, scopes.taken())
    tables = [
        dataclasses.replace(table, optimizer=table.trained_by if training else None)
        for table in tables
    ]
    variable_names.check_free(
        {table.name: storage.names_of(name_of[table.name], table.optimizer) for table in tables}
    )
    is_large = [table.config.vocabulary_size >= partition.FEW_ROWS for table in tables]
    rounds = partition.rounds_for(sum(is_large), servers)
    stored = [
        storage.StoredTable(
            **vars(table),
            variables=storage.create(
                table,
                name_of[table.name],
                name_as_part,
                servers,
                rounds,
                first_server=sum(is_large[:number]),
                host=host,
            ),
        )
        for number, table in enumerate(tables)
    ]
    variable_names.check_distinct({table.name: table.all_variables for table in stored})
    return stored
