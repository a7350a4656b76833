"""Keras layers that are called without `training` compute the same as with stock."""

import json
import pathlib

import numpy as np
import processes
import pytest

PROGRAM = pathlib.Path(__file__).with_name("keras_calls_program.py")


def numbers(values, name=""):
    if isinstance(values, dict):
        return {
            path: one
            for key in values
            for path, one in numbers(values[key], f"{name}/{key}").items()
        }
    return {name: np.asarray(values)}


def run(side, *ways):
    done = processes.run_side(side, PROGRAM, side, *ways, status=0)
    return numbers(json.loads(done.stdout.splitlines()[-1]))


@pytest.mark.slow
def test_layers_called_without_training_compute_as_in_stock():
    stock, ours = run("stock"), run("ours")
    assert stock.keys() == ours.keys() and len(stock) > 100
    for name, value in stock.items():
        np.testing.assert_allclose(ours[name], value, 1e-5, 1e-6, err_msg=name)
