# SPDX-License-Identifier: Apache-2.0
"""Runs generated programs under stock tensorflow-estimator and under ours, each in a process."""

import os
import pathlib
import subprocess
import sys

import pytest
import tensorflow as tf

HERE = pathlib.Path(__file__).parent


def stock_python():
    """The interpreter of the stock side; skips the test where there is none."""
    given = os.environ.get("ESTIMATOR_EMB_STOCK_PYTHON")
    if not given and not tf.__version__.startswith("2.15."):
        pytest.skip("ESTIMATOR_EMB_STOCK_PYTHON names no Python with TensorFlow 2.15.1")
    return given or sys.executable


def run_programs(side, results, paths, directory, python):
    environment = {**os.environ, "CUDA_VISIBLE_DEVICES": "", "TF_CPP_MIN_LOG_LEVEL": "2"}
    environment.pop("PYTHONPATH", None)
    if side == "ours":
        environment["PYTHONPATH"] = str(HERE.parents[1])
    else:
        # What importing us sets: the Keras of TensorFlow 2.15 is Keras 2 by itself.
        environment.pop("TF_USE_LEGACY_KERAS", None)
    done = subprocess.run(
        [python, HERE / "run_programs.py", side, results, *paths],
        env=environment,
        cwd=directory,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    return f"{side}: exit {done.returncode}\n{done.stdout}"
