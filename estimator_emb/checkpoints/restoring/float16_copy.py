"""Copies a checkpoint for an export with float16 tables."""

import tempfile
from collections.abc import Collection

import tensorflow as tf

from estimator_emb.checkpoints.files.checkpoint_reader import CheckpointReader, rounded
from estimator_emb.checkpoints.files.writer import Writer
from estimator_emb.engine.tables.storage import saved_name

_OWNER = "TPUConfig: serving_tables='float16'"


class Float16Copy(tempfile.TemporaryDirectory):
    """A temporary copy of a checkpoint with float16 tables. `write` makes it, exit removes it."""

    def __init__(self, checkpoint_path: str):
        super().__init__(prefix="estimator_emb_")
        self._source = checkpoint_path
        self.path = f"{self.name}/model"

    def __enter__(self) -> "Float16Copy":
        return self

    def write(self, tables: Collection[str]) -> None:
        """Copies the checkpoint for the default graph, rounds `tables`, and leaves out their slots.

        Raises DamagedCheckpoint, or a ValueError for a number that float16 cannot hold.
        """
        needed = set(map(saved_name, tf.compat.v1.global_variables()))
        with CheckpointReader(self._source) as values, Writer(self.path) as out:
            of_tables = {name: values.shapes[name] for name in tables if name in values.shapes}
            for name, dtype in values.dtypes.items():
                shape = values.shapes[name]
                owners = [one for one in of_tables if name.startswith(f"{one}/")]
                if name not in needed and any(of_tables[one] == shape for one in owners):
                    continue
                values.check(name)
                if name in of_tables:
                    pieces = (
                        rounded(_OWNER, name, values.rows(name, start, end), start)
                        for start, end in values.spans(name)
                    )
                    out.add_rows(name, tf.float16, shape, pieces)
                else:
                    out.add_rows(name, dtype, shape, values.pieces(name))
            out.finish()
