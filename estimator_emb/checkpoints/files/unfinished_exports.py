"""Removes the folder `temp-<time>` that a failed export leaves."""

import contextlib
from collections.abc import Iterator
from typing import Any

import tensorflow as tf

_FOLDER = "_estimator_emb_export"
"""The estimator's attribute that holds the folder of its last export. A finished one is renamed."""


def note(estimator: Any, builder: Any) -> None:
    """Records the folder into which a SavedModel builder exports an estimator."""
    setattr(estimator, _FOLDER, builder._export_dir)


@contextlib.contextmanager
def removed_after_error(estimator: Any) -> Iterator[None]:
    """Removes the recorded folder if the export in this context fails."""
    try:
        yield
    except BaseException:
        if folder := vars(estimator).get(_FOLDER):
            with contextlib.suppress(tf.errors.OpError):
                tf.io.gfile.rmtree(folder)
        raise
