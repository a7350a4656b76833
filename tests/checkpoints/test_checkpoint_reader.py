"""Values of a checkpoint are verified with the checksums that TensorFlow saved."""

import pathlib

import harness
import numpy as np
import pytest
import saved_values
import tensorflow as tf

from estimator_emb.checkpoints.files import checkpoint_reader
from estimator_emb.checkpoints.files.checkpoint_files import DamagedCheckpoint


@pytest.mark.parametrize("piece", [8, 40, 1 << 20])
def test_check_names_the_file_of_a_damaged_table(piece, tmp_path, monkeypatch):
    monkeypatch.setattr(checkpoint_reader, "PIECE_BYTES", piece)
    table = np.arange(50, dtype=np.float32).reshape(10, 5)
    path = saved_values.write(tmp_path / "model.ckpt-1", {"table": table, "w": np.float32([1])})
    with checkpoint_reader.CheckpointReader(path) as whole:
        whole.check("table")
    file = pathlib.Path(f"{path}.data-00000-of-00001")
    contents = bytearray(file.read_bytes())
    contents[contents.index(np.float32(49).tobytes())] ^= 1
    file.write_bytes(contents)
    with checkpoint_reader.CheckpointReader(path) as damaged:
        damaged.check("w")
        message = harness.refusal(DamagedCheckpoint, damaged.check, "table")
        assert f"is damaged: '{file}' does not hold what was saved of table" in message


def test_reader_names_an_index_whose_names_are_no_text(tmp_path):
    path = f"{tmp_path}/model.ckpt-1"
    tf.raw_ops.SaveV2(prefix=path, tensor_names=[b"\xff"], shape_and_slices=[""], tensors=[[1.0]])
    message = harness.refusal(DamagedCheckpoint, checkpoint_reader.CheckpointReader, path)
    assert f"is damaged: '{path}.index' cannot be read ('utf-8' codec" in message
