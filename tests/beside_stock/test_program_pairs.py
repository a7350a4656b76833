"""Programs of tensorflow-estimator's API alone compute with `install` what they compute with stock.

Keras layers called without `training`, inputs of one batch, and savers made by a model_fn with
tables.
"""

import json
import pathlib

import numpy as np
import processes
import pytest


def numbers(values, name=""):
    """Returns {path: array} of the numbers in nested dicts."""
    if not isinstance(values, dict):
        return {name: np.array(values, np.float64)}
    return {
        path: one for key in values for path, one in numbers(values[key], f"{name}/{key}").items()
    }


def run(side, program):
    path = pathlib.Path(__file__).with_name(f"{program}.py")
    done = processes.run_side(side, path, side, status=0, timeout=900)
    return numbers(json.loads(done.stdout.splitlines()[-1]))


@pytest.mark.slow
@pytest.mark.parametrize("program", ["keras_calls_program", "one_batch", "savers_program"])
def test_programs_give_the_results_of_stock(program):
    stock, ours = run("stock", program), run("ours", program)
    assert stock.keys() == ours.keys() and len(stock) > 30
    for name, value in stock.items():
        # TensorFlow 2.21 rounds an LSTM otherwise than 2.15.1, which runs stock.
        atol = 5e-5 if "timeseries" in name else 1e-6
        np.testing.assert_allclose(ours[name], value, 1e-5, atol, err_msg=name)
