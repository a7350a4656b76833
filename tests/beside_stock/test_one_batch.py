"""After `install`, an input of one batch ends where it ends with stock tensorflow-estimator."""

import json
import pathlib

import numpy as np
import processes
import pytest

PROGRAM = pathlib.Path(__file__).with_name("one_batch.py")


@pytest.mark.slow
def test_no_check_takes_a_batch():
    """KMeans, time series, and initializers that read the input train as with stock."""
    stock, ours = (
        json.loads(processes.run_side(side, PROGRAM, side, status=0).stdout.splitlines()[-1])
        for side in ("stock", "ours")
    )
    assert stock.keys() == ours.keys() and len(stock) > 10
    for program, want in stock.items():
        assert not isinstance(want, str), (program, want)
        assert ours[program].keys() == want.keys(), program
        # TensorFlow 2.21 rounds an LSTM otherwise than 2.15.1, which runs stock.
        atol = 1e-5 if program == "timeseries" else 1e-6
        for name, value in want.items():
            np.testing.assert_allclose(
                ours[program][name], value, 1e-5, atol, err_msg=f"{program}: {name}"
            )
