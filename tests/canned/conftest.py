# SPDX-License-Identifier: Apache-2.0
"""Runs programs of this folder beside stock tensorflow-estimator."""

import os
import pathlib
import subprocess
import sys

import harness
import pytest
import tqdm

import estimator_emb

HERE = pathlib.Path(__file__).parent


@pytest.fixture
def stock_python():
    """The Python of TensorFlow 2.15.1 and tensorflow-estimator as it is."""
    found = os.environ.get("ESTIMATOR_EMB_STOCK_PYTHON") or (harness.IS_2_15 and sys.executable)
    return found or pytest.skip("ESTIMATOR_EMB_STOCK_PYTHON names no Python with TensorFlow 2.15.1")


@pytest.fixture
def run_program(tmp_path):
    """A function that runs a program of this folder, with estimator_emb to import or without."""
    # The stock Python need not have what estimator_emb imports beside TensorFlow.
    library = tmp_path / "library"
    library.mkdir()
    for package in (estimator_emb, tqdm):
        path = pathlib.Path(package.__file__).parent
        (library / path.name).symlink_to(path)

    def run(python, with_ours, *arguments):
        # What importing estimator_emb sets is not for the others.
        kept = {key: value for key, value in os.environ.items() if key != "TF_USE_LEGACY_KERAS"}
        done = subprocess.run(
            [python, *map(str, arguments)],
            env={**kept, "PYTHONPATH": str(library) if with_ours else ""},
            cwd=HERE,
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, done.stdout + done.stderr[-4000:]

    return run
