"""Names the variables of tables, and checks that tables share no variable."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import tensorflow as tf

from estimator_emb.compat.internals.graphs import default_variable_store
from estimator_emb.engine.tables.storage import saved_name
from estimator_emb.spec.resolved import Table


def variable_names(tables: Sequence[Table], used: Mapping[str, str]) -> dict[str, str]:
    """Returns table -> the name of its weights. Slots append their suffix to it.

    `used` is scope key -> variable name, as `scopes.taken` returns it. Raises ValueError if two
    tables have the same name, or a variable of that name is in the graph.
    """
    wanted = {table.name: _wanted(table, used) for table in tables}
    names = {table: [name] for table, name in wanted.items()}
    _check_unshared(
        names,
        ", because model_fn uses the columns of both in one scope. Use each column in its own "
        "scope. To share one table, create the columns with shared_embedding_columns.",
    )
    check_free(names)
    return _as_columns_are_called(wanted, {t.name for t in tables if t.scope_key in used})


def check_free(variables: Mapping[str, Sequence[str]]) -> None:
    """Raises ValueError if a name for weights or slots is already in use."""
    _check_unshared(
        variables,
        ": both use this name for their weights or a slot. Rename one of the tables.",
    )
    existing = _existing()
    for table, names in variables.items():
        for name in names:
            if name in existing:
                raise ValueError(
                    f"Table {table!r} would share the variable {name!r} with model_fn, which "
                    "created a variable with this name. Rename that variable, or use the table's "
                    "column in another scope."
                )


def check_distinct(variables: Mapping[str, Sequence[tf.Variable]]) -> None:
    """Raises ValueError if tables share a variable, e.g. from `slot_variable_creation_fn`."""
    _check_unshared(
        {table: [one.ref() for one in created] for table, created in variables.items()},
        ": slot_variable_creation_fn returned it for both. The function must create separate "
        "variables for each table, named after the table that it gets.",
        lambda reference: saved_name(reference.deref()),
    )


def _check_unshared(
    variables: Mapping[str, Sequence[Any]], why: str, name_of: Callable[[Any], str] = str
) -> None:
    owners: dict[Any, str] = {}
    for table, of_table in variables.items():
        for one in of_table:
            first = owners.setdefault(one, table)
            if first != table:
                raise ValueError(
                    f"Tables {first!r} and {table!r} would share the variable {name_of(one)!r}{why}"
                )


def _wanted(table: Table, used: Mapping[str, str]) -> str:
    if table.scope_key is None:
        return table.name
    if table.scope_key in used:
        return used[table.scope_key]
    # The model reads features[key] instead of using the column.
    return f"{table.features[0].column_name}/embedding_weights"


def _as_columns_are_called(wanted: Mapping[str, str], by_column: set[str]) -> dict[str, str]:
    """Returns `wanted` with a number after each name that equals an earlier one, ignoring case."""
    unique_names: dict[str, str] = {}
    in_use: set[str] = set()
    for table, name in wanted.items():
        unique, count = name, 0
        while table in by_column and unique.lower() in in_use:
            count += 1
            unique = f"{name}_{count}"
        in_use.add(unique.lower())
        unique_names[table] = unique
    return unique_names


def _existing() -> set[str]:
    graph = tf.compat.v1.get_default_graph()
    keys = tf.compat.v1.GraphKeys
    names = set(default_variable_store()._vars)
    for key in (keys.GLOBAL_VARIABLES, keys.LOCAL_VARIABLES, keys.TRAINABLE_VARIABLES):
        for variable in graph.get_collection(key):
            names.add(variable.op.name)
            names.add(saved_name(variable))
    return names
