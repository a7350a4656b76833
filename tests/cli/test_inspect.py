import pathlib

import harness
import legacy_checkpoint
import numpy as np
import pytest
import saved_values

from estimator_emb.cli import main as main_lib

DATA = pathlib.Path(__file__).parents[1] / "data"
WORDS = saved_values.WORDS


def test_lists_variables_with_their_slots(tmp_path, capsys, same_message):
    path = legacy_checkpoint.write_legacy(tmp_path)
    assert main_lib.main(["inspect", str(tmp_path)]) == 0
    printed = capsys.readouterr().out
    assert printed.startswith(f"{path}, the order of the rows, 'div' or 'mod', is not known\n")
    same_message(printed)


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
    """If a table is saved in slices, each may be from a host of a TPU, in the order of its rows."""
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


def test_shows_values(tmp_path, capsys, same_message):
    weights = np.float32([[3, 4], [0, 0], [np.nan, 1], [6, 8]])  # Norms without NaN: 5, 0 and 10.
    slot = np.float32([[1, 1], [0.1, 0.1], [1, 2], [0.1, 0.1]])  # 2 rows were never trained.
    variables = {"words": weights, "words/Adagrad": slot, "items": weights}
    path = saved_values.write(tmp_path / "1.ckpt", variables)
    assert main_lib.main(["inspect", path, "--values"]) == 0
    printed = capsys.readouterr().out
    assert "\nrows of items that were never trained: not known, as it has no slots\n" in printed
    same_message(printed)
