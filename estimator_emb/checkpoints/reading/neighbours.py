"""Implements `checkpoint.nearest`: finds the nearest rows to a row of a table."""

from collections.abc import Callable
from typing import Any

import numpy as np

from estimator_emb.checkpoints.files.checkpoint_reader import CheckpointReader, counter
from estimator_emb.checkpoints.reading import saved_variables
from estimator_emb.checkpoints.reading.saved_tables import SavedTable
from estimator_emb.checkpoints.reading.vocabulary import Vocabulary
from estimator_emb.reporting.suggestions import check_argument


def nearest(
    path: str,
    table: str,
    like: int | str,
    vocabulary: str | None = None,
    count: int = 10,
    order: str | None = None,
    allow_unlabelled: bool = False,
    progress: Callable[[int, int], Any] | None = None,
) -> list[tuple[int, str | None, float]]:
    """Returns the rows of a table that are nearest to a given row, the nearest first.

    Nearness is the cosine of the angle between two rows. Rows that are zero, or have NaN or
    infinite numbers, are left out. The table is read in pieces.

    Args:
      path: prefix of a checkpoint, or a model directory for its latest checkpoint.
      table: its name, as in `checkpoint.table`.
      like: id of the row, or its label, a string. A label needs a vocabulary.
      vocabulary: file of the labels, as in `export`. None by default.
      count: the most rows to return, without the row itself. 10 by default.
      order: as in `checkpoint.table`.
      allow_unlabelled: as in `export`.
      progress: as in `export`.

    Returns:
      A list of (id, its label or None, the cosine).

    Raises:
      ValueError: there is no such checkpoint, table, id or label; the vocabulary does not fit;
        the row has no direction; `count` is less than 1; or the checkpoint is damaged.
    """
    check_argument("nearest", count >= 1, "count", "at least 1", count)
    if allow_unlabelled and vocabulary is None:
        raise ValueError(
            "nearest: allow_unlabelled needs a vocabulary: it is for rows beyond its end."
        )
    with CheckpointReader(saved_variables.prefix(path)) as values:
        weights = SavedTable(values, table, order)
        rows = weights.rows
        labels = None
        if vocabulary is not None:
            labels = Vocabulary(vocabulary, weights.name, rows, allow_unlabelled)
        if isinstance(like, str):
            if labels is None:
                raise ValueError(f"nearest: label {like!r} needs the vocabulary of the table.")
            found = next((id for id, label in enumerate(labels) if label == like), None)
            if found is None:
                raise ValueError(f"nearest: label {like!r} is not in vocabulary {vocabulary!r}.")
            like = found
        check_argument("nearest", 0 <= like < rows, "id", f"from 0 to {rows - 1}", like)
        advance = counter(progress, 2 * values.size(weights.name))
        values.check(weights.name, advance)
        row = weights.read(weights.name, like, like + 1)[0].astype(np.float64)
        if not np.isfinite(row).all() or not row.any():
            raise ValueError(f"nearest: row {like} is zero or not finite, so it has no direction.")
        best_ids, best = np.zeros(0, np.int64), np.zeros(0)
        for start, end in values.spans(weights.name):
            ids = np.arange(start, end)
            part = weights.read(weights.name, start, end).astype(np.float64)
            with np.errstate(all="ignore"):
                norms = np.linalg.norm(part, axis=1) * np.linalg.norm(row)
                cosines = part @ row / norms
            good = np.isfinite(cosines) & (ids != like)
            best_ids = np.concatenate([best_ids, ids[good]])
            best = np.concatenate([best, cosines[good]])
            first = np.lexsort([best_ids, -best])[:count]
            best_ids, best = best_ids[first], best[first]
            advance(values.row_bytes(weights.name) * len(ids))
        named: dict[int, str] = {}
        if labels:
            wanted = set(best_ids.tolist())
            named = {id: label for id, label in enumerate(labels) if id in wanted}
    return [
        (int(id), named.get(int(id)), float(cosine))
        for id, cosine in zip(best_ids, best, strict=True)
    ]
