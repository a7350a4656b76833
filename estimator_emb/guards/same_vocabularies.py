"""Refuses a checkpoint whose columns had other vocabularies when it was trained.

A training records them beside its checkpoints; a folder without the record is taken as it is.
"""

from typing import Any

import tensorflow as tf

from estimator_emb.checkpoints.restoring import vocabulary_record
from estimator_emb.guards.guard import Call, Guard


class SameVocabularies(Guard):
    """Compares the columns of a graph with the record, which the chief of a training writes."""

    @classmethod
    def applies(cls, call: Call) -> bool:
        return call.in_session and call.directory is not None

    def complete(self, spec: Any) -> Any:
        directory = self.call.directory
        # A replica has only a part of the graph, and a worker leaves the folder to the chief.
        if directory is None or directory.start is None or tf.distribute.has_strategy():
            return spec
        found = vocabulary_record.vocabularies_of(tf.compat.v1.get_default_graph())
        (path,) = directory.start
        if found and path is not None:
            vocabulary_record.check_unchanged(path, found)
        if found and self.call.method == "train":
            vocabulary_record.write(self.call.model_dir, found, continues=path is not None)
        return spec
