# SPDX-License-Identifier: Apache-2.0
"""Random trainings beside NumPy, step by step, and the faults that they must find.

A training that fails is named by its seed, with which it runs alone:

    PYTHONPATH=tests python tests/fuzz/trained.py native 17
"""

import json
import os
import pathlib
import subprocess
import sys

import faults
import processes
import pytest

HERE = pathlib.Path(__file__).parent
TRAININGS = 14
"""Of each process."""


def run(program, *arguments, package=None, **environment):
    """Returns what a program of this folder prints; it may import another copy of the package."""
    paths = [*([package] if package else []), HERE.parent]
    path = os.pathsep.join([*map(str, paths), os.environ.get("PYTHONPATH", "")])
    done = subprocess.run(
        [sys.executable, str(HERE / program), *map(str, arguments)],
        env=processes.environment(**{"PYTHONPATH": path, **environment}),
        capture_output=True,
        text=True,
        timeout=550,
    )
    assert done.returncode == 0, done.stdout + done.stderr[-4000:]
    return done.stdout


@pytest.mark.slow
@pytest.mark.sampled(2)
@pytest.mark.parametrize("part", range(6))
def test_random_trainings(part, request):
    """With each set of kernels, and one thread, two, and five."""
    kernels = ("tensorflow", "native")[part % 2]
    if kernels == "native":
        request.getfixturevalue("native_library")
    seeds = range(part * TRAININGS, (part + 1) * TRAININGS)
    run("trained.py", kernels, *seeds, TF_NUM_INTRAOP_THREADS=str((1, 2, 5)[part // 2]))


@pytest.mark.slow
def test_planted_faults_are_found(native_library, tmp_path):
    """In a copy of the package: of its rules in Python, and of its kernels in C++."""
    faults.plant(tmp_path)
    printed = run(
        "faults.py",
        package=tmp_path,
        TF_NUM_INTRAOP_THREADS="3",
        ESTIMATOR_EMB_CACHE=str(tmp_path / "cache"),
    )
    found = json.loads(printed.splitlines()[-1])
    assert found["package"].startswith(str(tmp_path))
    assert found["without"] == [None, None]
    assert len(found["with"]) == len(faults.FAULTS) >= 10
    assert None not in found["with"].values(), found["with"]
