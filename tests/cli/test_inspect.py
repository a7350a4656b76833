import harness
import legacy_checkpoint
import numpy as np
import processes
import pytest
import saved_values

from estimator_emb.cli import main as main_lib


def test_lists_variables_with_their_slots(tmp_path, capsys, assert_recorded):
    """Reads a checkpoint whose tables have a part per TPU host, and no graph tells their order."""
    path = legacy_checkpoint.write_legacy(tmp_path)  # It also has tables of Adagrad and Adam.
    assert main_lib.main(["inspect", str(tmp_path)]) == 0
    printed = capsys.readouterr().out
    assert printed.startswith(f"{path}, the order of the rows, 'div' or 'mod', is not known\n")
    assert "\n  /Adam/m\n  /Adam/v\n" in printed
    assert_recorded(printed)


IDS = "rows in the order of the ids"
UNKNOWN = "the order of the rows, 'div' or 'mod', is not known"


@pytest.mark.parametrize(
    "folder, order",
    [
        ("checkpoints/stock-2.15.1", IDS),  # Written on a CPU: each table is in a single part.
        ("checkpoints/host-2.15.1", IDS),
        ("tpu_checkpoints/div", IDS),  # The first of 4 hosts has the first rows, and so on.
        # The first host has rows 0, 4, 8 and so on.
        ("tpu_checkpoints/mod", "rows in the order of 'mod' over 4 hosts"),
    ],
)
def test_names_the_order_of_the_rows(folder, order, capsys):
    assert main_lib.main(["inspect", f"{processes.ROOT}/tests/data/{folder}"]) == 0
    assert capsys.readouterr().out.splitlines()[0].endswith(f", {order}")


@pytest.mark.parametrize("slices, order", [(None, IDS), (3, UNKNOWN)])
def test_names_the_order_of_the_rows_by_the_slices(slices, order, tmp_path, capsys):
    """If a table is saved in slices, each may be from a host of a TPU, in the order of its rows."""
    variables = {
        saved_values.WORDS + suffix: harness.normal(0, 6, 2) for suffix in ("", "/Adagrad")
    }
    path = saved_values.write(tmp_path / "a.ckpt", variables, slices)  # `slices` rows in each.
    assert main_lib.main(["inspect", path]) == 0
    assert capsys.readouterr().out.splitlines()[0] == f"{path}, {order}"


def test_reports_a_checkpoint_without_tables(tmp_path, capsys):
    path = saved_values.write(tmp_path / "a.ckpt", {"dense/kernel": [[1.0]]})
    assert main_lib.main(["inspect", path, "--values"]) == 0
    printed = capsys.readouterr().out
    assert printed.startswith(f"{path}, no variable is known to be an embedding table\n")
    assert printed.endswith("\n\nno variable could be a table, so no values are read\n")


def test_shows_values(tmp_path, capsys, assert_recorded):
    weights = np.float32([[3, 4], [0, 0], [np.nan, 1], [6, 8]])  # Norms without NaN: 5, 0 and 10.
    # Accumulators of Adagrad only grow, so rows at the smallest value, 0.1, were never trained.
    slot = np.float32([[1, 1], [0.1, 0.1], [1, 2], [0.1, 0.1]])
    variables = {"words": weights, "words/Adagrad": slot, "items": weights}
    path = saved_values.write(tmp_path / "1.ckpt", variables)
    assert main_lib.main(["inspect", path, "--values"]) == 0
    printed = capsys.readouterr().out
    # Rows, columns, NaN, infinite, never trained, mean norm (5 + 0 + 10) / 3, largest norm.
    assert "words 4 2 1 0 2 5 10".split() in map(str.split, printed.splitlines())
    assert "\nrows of items that were never trained: not known, as it has no slots\n" in printed
    assert_recorded(printed)
