"""Writes tables for TensorBoard's projector."""

from collections.abc import Sequence

import numpy as np
import tensorflow as tf

from estimator_emb.checkpoints.formats.exporting import TableFormat, write_labels
from estimator_emb.checkpoints.reading.saved_tables import SavedTable


class _Projector(TableFormat):
    """Writes a text file of rows and a text file of labels for each table."""

    lines_of = "a projector's file"

    def write(self, folder: str, tables: Sequence[SavedTable]) -> None:
        from google.protobuf import text_format
        from tensorboard.plugins import projector

        config = projector.ProjectorConfig()
        for table in tables:
            described = config.embeddings.add()
            described.tensor_name = table.name
            described.tensor_path = f"{table.safe_name}.tsv"
            described.tensor_shape.extend([table.rows, table.dimension])
            with tf.io.gfile.GFile(f"{folder}/{described.tensor_path}", "wb") as file:
                for piece in table.pieces(table.name):
                    # Nine digits identify a float32 exactly.
                    np.savetxt(file, piece, fmt="%.9g", delimiter="\t")
            if table.vocabulary:
                described.metadata_path = f"{table.safe_name}.labels.tsv"
                write_labels(f"{folder}/{described.metadata_path}", table, "({})")
        with tf.io.gfile.GFile(f"{folder}/projector_config.pbtxt", "w") as file:
            file.write(text_format.MessageToString(config))


FORMAT = _Projector()
