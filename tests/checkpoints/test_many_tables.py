"""The work of commands on a checkpoint grows at most linearly with its number of tables."""

import cProfile
import pstats

import numpy as np
import pytest
import saved_values

from estimator_emb import checkpoint


def saved(folder, tables):
    names = [f"column_{number}_embedding/embedding_weights" for number in range(tables)]
    names += [f"{name}/Adagrad" for name in names]
    values = dict.fromkeys(names, np.zeros([3, 2], np.float32))
    return saved_values.write(folder / f"{tables}.ckpt", values)


def calls_of(function):
    with cProfile.Profile() as profile:
        function()
    return pstats.Stats(profile).total_calls


COMMANDS = {
    "export": lambda path, out, columns: checkpoint.export(path, f"{out}/tables", "npz"),
    "export of columns": lambda path, out, columns: checkpoint.export(
        path, f"{out}/columns", "npz", tables=columns
    ),
    "statistics": lambda path, out, columns: checkpoint.statistics(path),
    "convert": lambda path, out, columns: checkpoint.convert(
        path,
        f"{out}/converted/model.ckpt",
        [f"{one}_embedding/embedding_weights" for one in columns],
        source_order="mod",
        hosts=2,
        force=True,
    ),
    "inspect": lambda path, out, columns: checkpoint.inspect(path),
}


@pytest.mark.slow
@pytest.mark.any_version
@pytest.mark.parametrize("name", COMMANDS)
def test_work_of_commands_grows_linearly_with_tables(name, tmp_path):
    calls = []
    for tables in (10, 20, 80):  # The first run imports modules.
        path, columns = saved(tmp_path, tables), [f"column_{one}" for one in range(tables)]
        out = tmp_path / f"out_{tables}"
        out.mkdir()
        calls.append(calls_of(lambda: COMMANDS[name](path, out, columns)))  # noqa: B023
    assert calls[2] < 4.5 * calls[1], calls
