"""Rejects a checkpoint that was trained with other vocabularies.

A training records them beside its checkpoints. A folder without this record is not checked.
"""

from typing import Any

import tensorflow as tf

from estimator_emb.checkpoints.restoring import vocabulary_record
from estimator_emb.guards.guard import Call, Guard


class SameVocabularies(Guard):
    """Compares a graph's columns with the vocabularies that the training's chief recorded."""

    @classmethod
    def applies(cls, call: Call) -> bool:
        return call.in_session and call.directory is not None

    def complete(self, spec: Any) -> Any:
        directory = self.call.directory
        # A replica has only a part of the graph. A worker leaves the folder to the chief.
        if directory is None or directory.start is None or tf.distribute.has_strategy():
            return spec
        found = vocabulary_record.vocabularies_of(tf.compat.v1.get_default_graph())
        (path,) = directory.start
        if found and path is not None:
            vocabulary_record.check_unchanged(path, found)
        if found and self.call.method == "train":
            vocabulary_record.write(self.call.model_dir, found, continues=path is not None)
        return spec
