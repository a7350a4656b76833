import legacy_checkpoint
import numpy as np
from legacy_checkpoint import HELPER

from estimator_emb.cli import main as main_lib


def test_converts_matching_tables_and_back(tmp_path, capsys, assert_recorded):
    """Moves rows from the order of 'mod' over 4 hosts to that of the ids, and back by --reverse."""
    old = legacy_checkpoint.write_legacy(tmp_path / "old")
    new = str(tmp_path / "new" / "model.ckpt-9")
    # With `few` come its slots of Adam. `few/mine` has no name of a slot, so it is asked for too.
    tables = ["--table=*words_?mbedding*", "--table=few", "--table=few/mine"]
    assert main_lib.main(["convert", old, new, "--from=mod", *tables]) == 0
    assert_recorded(capsys.readouterr().out)  # Lists moved and left out variables, and both orders.
    back = str(tmp_path / "back")
    assert main_lib.main(["convert", new, back, "--hosts=4", "--reverse", *tables]) == 0
    legacy, again = legacy_checkpoint.read(old), legacy_checkpoint.read(f"{back}/model.ckpt-9")
    # It leaves out helper variables of TPUs, and notes the order of the rows.
    assert set(again) == set(legacy) - {HELPER, f"{HELPER}/Adam"} | {"estimator_emb/row_order"}
    for name in set(again) & set(legacy):
        np.testing.assert_array_equal(again[name], legacy[name], err_msg=name)
