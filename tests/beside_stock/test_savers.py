"""With tables and use_tpu=False, savers made by model_fn save and restore like stock's."""

import json
import pathlib

import numpy as np
import processes
import pytest

PROGRAM = pathlib.Path(__file__).with_name("savers_program.py")


def run(side):
    done = processes.run_side(side, PROGRAM, side, status=0, timeout=900)
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.slow
def test_savers_of_model_fn_save_and_restore_like_stock():
    stock, ours = run("stock"), run("ours")
    assert stock.keys() == ours.keys() and len(stock) == 7
    for way, want in stock.items():
        got = ours[way]
        assert got["checkpoint"].keys() == want["checkpoint"].keys(), way
        for name, value in want["checkpoint"].items():
            np.testing.assert_allclose(got["checkpoint"][name], value, 1e-5, 1e-6, err_msg=way)
        for result in ("loss", "predicted", "served"):
            np.testing.assert_allclose(got[result], want[result], 1e-5, 1e-6, err_msg=way)
    # Averages differ from the values of the last step.
    assert stock["averages"]["loss"] != stock["all"]["loss"]
