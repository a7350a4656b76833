"""Rejects TPU embedding columns in model_fn that are missing from the EmbeddingConfigSpec.

A column with another dimension than in the spec is rejected, too.
"""

import contextlib
from typing import Any

from estimator_emb.engine.tables import scopes
from estimator_emb.guards.guard import Call, Guard, ModelBatch
from estimator_emb.reporting import error_notes


class UnknownColumns(Guard):
    """Compares the columns that model_fn used with the tables of the EmbeddingConfigSpec."""

    @classmethod
    def applies(cls, call: Call) -> bool:
        return call.ours

    def around(self, batch: ModelBatch) -> contextlib.AbstractContextManager[Any]:
        return error_notes.explained(self._explain)

    def after(self, spec: Any) -> Any:
        self._check()
        return spec

    def _explain(self, error: Exception) -> None:
        if isinstance(error, (TypeError, ValueError)):
            self._check()

    def _check(self) -> None:
        unknown = sorted(set(scopes.recorded()) - {table.scope_key for table in self.call.tables})
        if unknown:
            missing = (
                "which are not in the EmbeddingConfigSpec: add them to its feature_columns. It has "
                f"the tables {sorted(table.name for table in self.call.tables)}."
                if self.call.has_spec
                else "but TPUEstimator was given no embedding_config_spec: give it one with these "
                "columns."
            )
            raise ValueError(
                f"model_fn uses the TPU embedding columns of tables {unknown}, {missing}"
            )
        used = scopes.dimensions()
        for table in self.call.tables:
            dimension = used.get(table.scope_key or "", table.config.dimension)
            if dimension != table.config.dimension:
                raise ValueError(
                    f"model_fn uses a column of table {table.name!r} with dimension {dimension}, "
                    "and the EmbeddingConfigSpec has it with dimension "
                    f"{table.config.dimension}. Use the spec's own columns in model_fn."
                )
