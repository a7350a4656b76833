"""Reads checkpoints without a program, and puts the rows of legacy 'mod' tables in order.

This package saves a table as a single tensor [vocabulary_size, dimension], in the order of its ids.
The legacy TPUEstimator did so only under `partition_strategy='div'`. Under 'mod', host i of H held
the rows of the ids i, i + H, i + 2H, ... The hosts' parts were saved after each other, so row r of
the saved tensor is not id r. `convert` rewrites such a checkpoint in the order of the ids.
"""

from typing import TYPE_CHECKING, Any

from estimator_emb.catalog import extras
from estimator_emb.checkpoints.reading.saved_tables import table, table_pieces, tables
from estimator_emb.checkpoints.reading.saved_variables import HELPER_PREFIX, SavedVariable, inspect
from estimator_emb.checkpoints.reading.statistics import TableStatistics, statistics

if TYPE_CHECKING:
    from estimator_emb.checkpoints.formats.conversion import Conversion, convert
    from estimator_emb.checkpoints.formats.exporting import export

__all__ = [
    "HELPER_PREFIX",
    "Conversion",
    "SavedVariable",
    "TableStatistics",
    "convert",
    "export",
    "inspect",
    "statistics",
    "table",
    "table_pieces",
    "tables",
]
_OF_FORMATS = {"Conversion": "conversion", "convert": "conversion", "export": "exporting"}
"""Public name -> its module in the extra 'formats'."""


def __getattr__(name: str) -> Any:
    if name not in _OF_FORMATS:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(extras.load("formats", f"checkpoints.formats.{_OF_FORMATS[name]}"), name)
