"""Checkpoints written by other TensorFlow versions, and by stock tensorflow-estimator.

`tests/data/make_checkpoints.py` writes them, and explains how.
"""

import pathlib
import shutil

import columns_program
import harness
import numpy as np
import pytest


@pytest.mark.parametrize("device", [None, harness.slow("host")])
@pytest.mark.parametrize(
    "name", ["stock-2.15.1", harness.slow("host-2.15.1"), harness.slow("host-2.21.0")]
)
def test_restores_predicts_and_continues_training(name, device, tmp_path):
    """Also tests accumulators: without them, the fourth step would give other values."""
    folder = pathlib.Path(__file__).parents[1] / "data" / "checkpoints" / name
    shutil.copytree(folder, tmp_path / "model")
    expected = np.load(folder / "expected.npz")
    data = columns_program.batches(4, seed=5, longest_history=2)
    estimator = columns_program.make(tmp_path / "model", device)
    predicted = [one["output"] for one in estimator.predict(harness.input_fn_of(data))]
    np.testing.assert_allclose(predicted, expected["output"], atol=1e-6)
    estimator.train(harness.input_fn_of(data[3:]), steps=1)
    got = harness.saved(tmp_path / "model", 4)
    want = {name.removeprefix("step4/"): expected[name] for name in {*expected} - {"output"}}
    harness.assert_same(got, want, 1e-7, 1e-6)
