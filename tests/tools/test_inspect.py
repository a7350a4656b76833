# SPDX-License-Identifier: Apache-2.0
import test_checkpoint

from estimator_emb.tools import inspect


def test_lists_variables_with_their_slots(tmp_path, capsys):
    test_checkpoint.write_legacy(tmp_path)
    assert inspect.main([str(tmp_path)]) == 0
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    table = "dense_features/words_embedding/embedding_weights"
    assert lines[0] == ["variable", "shape", "type", "MB", "with", "slots", "optimizer"]
    assert [table, "13", "x", "2", "float32", "0.000", "Adagrad"] in lines
    assert lines[lines.index(["few", "2", "x", "3", "float32", "0.000", "Adam"]) + 1 :][:2] == [
        ["/Adam/m"],
        ["/Adam/v"],
    ]
    assert ["global_step", "scalar", "int64", "0.000"] in lines
    assert lines[-1] == ["9", "variables,", "0.000", "MB", "with", "slots"]


def test_no_checkpoint(tmp_path, capsys):
    assert inspect.main([str(tmp_path / "x")]) == 2
    assert capsys.readouterr().err == (
        f"estimator-emb inspect: There is no checkpoint '{tmp_path}/x'.\n"
    )
