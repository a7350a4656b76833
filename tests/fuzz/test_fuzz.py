"""Random trainings beside NumPy, step by step, and beside an emulated TPU; faults they must find.

A training that fails is named by its seed, with which it runs alone:

    PYTHONPATH=tests/lib python tests/fuzz/trained.py native 17
"""

import json
import os
import sys

import faults
import on_devices
import processes
import pytest
import sampling

TRAININGS = 10
"""Of each process."""


@pytest.mark.slow
@pytest.mark.sampled(2)
@pytest.mark.parametrize("part", range(6))
def test_random_trainings(part, request):
    """With each set of kernels, and one thread, two, and five."""
    kernels = ("tensorflow", "native")[part % 2]
    if kernels == "native":
        request.getfixturevalue("native_library")
    seeds = sampling.drawn(range(part * TRAININGS, (part + 1) * TRAININGS), 5)
    threads = str((1, 2, 5)[part // 2])
    processes.run("import trained; trained.main()", kernels, *seeds, TF_NUM_INTRAOP_THREADS=threads)


@pytest.mark.slow
def test_planted_faults_are_found(native_library, tmp_path):
    """In a copy of the package: of its rules in Python, and of its kernels in C++."""
    faults.plant(tmp_path)
    done = processes.run(
        "import faults; faults.main()",
        cwd=tmp_path,
        PYTHONPATH=os.pathsep.join([str(tmp_path), *filter(None, sys.path)]),
        TF_NUM_INTRAOP_THREADS="3",
        ESTIMATOR_EMB_CACHE=str(tmp_path / "cache"),
    )
    found = json.loads(done.stdout.splitlines()[-1])
    assert found["package"].startswith(str(tmp_path))
    assert found["without"] == [None, None]
    assert len(found["with"]) == sampling.of(len(faults.FAULTS), some=faults.SOME)
    assert None not in found["with"].values(), found["with"]


@pytest.mark.slow
@pytest.mark.sampled(3)
@pytest.mark.parametrize("seed", range(2000, 2030))
def test_random_trainings_with_tables_on_devices(seed, eight_devices, tmp_path):
    """Beside an emulated TPU, after 20 steps."""
    on_devices.check(seed, (1, 3, 8)[seed % 3], tmp_path)
