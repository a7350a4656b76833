import pathlib

import harness
import legacy_checkpoint
import numpy as np
import pytest
import saved_values

from estimator_emb.cli import main as main_lib

DATA = pathlib.Path(__file__).parents[1] / "data"
WORDS = saved_values.WORDS


def test_lists_variables_with_their_slots(tmp_path, capsys):
    path = legacy_checkpoint.write_legacy(tmp_path)
    assert main_lib.main(["inspect", str(tmp_path)]) == 0
    kind, *listed = capsys.readouterr().out.splitlines()
    assert kind == f"{path}, the order of the rows, 'div' or 'mod', is not known"
    lines = [line.split() for line in listed]
    table = "dense_features/words_embedding/embedding_weights"
    assert lines[0] == ["variable", "shape", "type", "MB", "with", "slots", "optimizer"]
    assert [table, "13", "x", "2", "float32", "0.000", "Adagrad"] in lines
    assert lines[lines.index(["few", "2", "x", "3", "float32", "0.000", "Adam"]) + 1 :][:2] == [
        ["/Adam/m"],
        ["/Adam/v"],
    ]
    assert ["global_step", "scalar", "int64", "0.000"] in lines
    assert lines[-1] == ["9", "variables,", "0.000", "MB", "with", "slots"]


IDS = "rows in the order of the ids"
UNKNOWN = "the order of the rows, 'div' or 'mod', is not known"


@pytest.mark.parametrize(
    "folder, order",
    [
        ("checkpoints/stock-2.15.1", IDS),
        ("checkpoints/host-2.15.1", IDS),
        ("tpu_checkpoints/div", IDS),
        ("tpu_checkpoints/mod", "rows in the order of 'mod' over 4 hosts"),
    ],
)
def test_names_the_order_of_the_rows(folder, order, capsys):
    assert main_lib.main(["inspect", str(DATA / folder)]) == 0
    assert capsys.readouterr().out.splitlines()[0].endswith(f", {order}")


@pytest.mark.parametrize("slices, order", [(None, IDS), (3, UNKNOWN)])
def test_names_the_order_of_the_rows_by_the_slices(slices, order, tmp_path, capsys):
    variables = {WORDS + suffix: harness.normal(0, 6, 2) for suffix in ("", "/Adagrad")}
    path = saved_values.write(tmp_path / "a.ckpt", variables, slices)
    assert main_lib.main(["inspect", path]) == 0
    assert capsys.readouterr().out.splitlines()[0] == f"{path}, {order}"


def test_reports_a_checkpoint_without_tables(tmp_path, capsys):
    path = saved_values.write(tmp_path / "a.ckpt", {"dense/kernel": [[1.0]]})
    assert main_lib.main(["inspect", path, "--values"]) == 0
    printed = capsys.readouterr().out
    assert printed.startswith(f"{path}, no variable is known to be an embedding table\n")
    assert printed.endswith("\n\nno variable could be a table, so no values are read\n")


def example(folder):
    weights = np.float32([[3, 4], [0, 0], [np.nan, 1], [6, 8]])
    slot = np.float32([[1, 1], [0.1, 0.1], [1, 2], [0.1, 0.1]])
    variables = {"words": weights, "words/Adagrad": slot, "items": weights}
    return saved_values.write(folder / "1.ckpt", variables)


def test_shows_values(tmp_path, capsys):
    assert main_lib.main(["inspect", example(tmp_path), "--values"]) == 0
    lines = capsys.readouterr().out.splitlines()
    start = lines.index("") + 1
    cells = [line.split("  ") for line in lines[start : start + 3]]
    assert [[cell.strip() for cell in row if cell] for row in cells] == [
        "table,rows,columns,NaN,infinite,never trained,mean norm,max".split(","),
        "items,4,2,1,0,not known,5,10".split(","),
        "words,4,2,1,0,2,5,10".split(","),
    ]
    assert lines[start + 3 :] == [
        "rows of items that were never trained: not known, as it has no slots",
    ]
