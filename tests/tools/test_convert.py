# SPDX-License-Identifier: Apache-2.0
import numpy as np
import pytest
import test_checkpoint

from estimator_emb.tools import convert

TABLE = "dense_features/words_embedding/embedding_weights"


@pytest.mark.parametrize("pattern", [TABLE, "*/embedding_weights", "*words_?mbedding*"])
def test_converts_what_matches_and_back(pattern, tmp_path, capsys):
    old = test_checkpoint.write_legacy(tmp_path / "old")
    new = str(tmp_path / "new" / "model.ckpt-9")
    assert convert.main([old, new, "--hosts=4", f"--table={pattern}", "--table=few"]) == 0
    helper = test_checkpoint.HELPER
    assert capsys.readouterr().out.splitlines() == [
        *(f"moved rows of {name}" for name in (TABLE, f"{TABLE}/Adagrad", "few")),
        *(f"moved rows of few/Adam/{slot}" for slot in "mv"),
        f"left out {helper}",
        f"left out {helper}/Adam",
        new,
    ]
    got = test_checkpoint.read(new)
    np.testing.assert_array_equal(got[TABLE], test_checkpoint.WORDS)
    np.testing.assert_array_equal(got[f"{TABLE}/Adagrad"], test_checkpoint.ACCUMULATORS)

    back = str(tmp_path / "back")
    arguments = [new, back, "--hosts=4", f"--table={pattern}", "--table=few", "--reverse"]
    assert convert.main(arguments) == 0
    legacy = test_checkpoint.read(old)
    for name, value in test_checkpoint.read(back).items():
        np.testing.assert_array_equal(value, legacy[name], err_msg=name)


@pytest.mark.parametrize(
    "table, problem",
    [
        (
            "w*",
            f"no matrix matches 'w*'; there are ['dense/kernel', '{TABLE}', 'empty', 'few', "
            "'few/mine'].",
        ),
        (
            "global_step",
            "convert: table 'global_step' must have shape [vocabulary_size, dimension]; it has [].",
        ),
    ],
)
def test_says_what_is_wrong(table, problem, tmp_path, capsys):
    old = test_checkpoint.write_legacy(tmp_path)
    assert convert.main([old, f"{tmp_path}/new", "--hosts=4", f"--table={table}"]) == 2
    assert capsys.readouterr().err == f"estimator-emb convert: {problem}\n"
    assert not (tmp_path / "new.index").exists()
