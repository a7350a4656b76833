# SPDX-License-Identifier: Apache-2.0
"""Runs programs of this folder beside stock tensorflow-estimator."""

import pathlib

import processes
import pytest
import tqdm

import estimator_emb

HERE = pathlib.Path(__file__).parent


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
        done = processes.run_python(
            *arguments,
            python=python,
            cwd=HERE,
            timeout=None,
            PYTHONPATH=str(library) if with_ours else "",
            ESTIMATOR_EMB_NATIVE="0",
        )
        assert done.returncode == 0, done.stdout + done.stderr[-4000:]

    return run
