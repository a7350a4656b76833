# SPDX-License-Identifier: Apache-2.0
"""What an `EmbeddingConfigSpec` says, whichever of its two forms it has: tables and optimizers."""

import logging

from estimator_emb.config import EmbeddingConfigSpec, Table, tables_of_dicts
from estimator_emb.optimizers import OptimizationParameters
from feature_columns.tables import tables_of_columns

logger = logging.getLogger("estimator_emb")


def tables_of(spec: EmbeddingConfigSpec) -> list[Table]:
    """Returns the tables of a spec, sorted by name."""
    if spec.table_to_config_dict:
        return tables_of_dicts(spec)
    return tables_of_columns(spec.feature_columns or ())


def given_optimizer(table: Table, spec: EmbeddingConfigSpec) -> OptimizationParameters | None:
    """Returns a table's own optimizer, else the spec's; None where there is neither."""
    return table.config.optimization_parameters or spec.optimization_parameters


def optimizer_of(table: Table, spec: EmbeddingConfigSpec) -> OptimizationParameters:
    """Returns what `given_optimizer` does.

    Raises:
      ValueError: there is none.
    """
    parameters = given_optimizer(table, spec)
    if parameters is None:
        raise ValueError(
            f"Table {table.name!r} has no optimizer: give it optimization_parameters in its "
            "TableConfig, or in the EmbeddingConfigSpec."
        )
    return parameters


def check_for_host(spec: EmbeddingConfigSpec) -> None:
    """Refuses what the host cannot do, before anything is built.

    Raises:
      ValueError: an optimizer whose rule was never published.
    """
    for table in tables_of(spec):
        parameters = given_optimizer(table, spec)
        if parameters is not None and parameters.only_on_hardware:
            raise ValueError(
                f"Table {table.name!r}: the update rule of {type(parameters).__name__} was never "
                "published, so only TPU hardware can train with it; on the host, choose another "
                "optimizer."
            )
    if spec.profile_data_directory:
        logger.warning(
            "profile_data_directory: lookup statistics are the hardware's own; none are written on "
            "the host."
        )
