"""Laws of trainings: NumPy, an emulated TPU, devices and hosts agree, and faults are found."""

import json
import os
import sys

import by_numpy
import faults
import on_devices
import on_hosts
import processes
import pytest
import sampling
import trainings

TRAININGS = 10
"""Number of trainings per process."""
SEEDS = (1559, 5268, 6665, 3040)
"""Seeds of `trainings.training` that together draw every optimizer, form of ids and option."""


@pytest.mark.parametrize(
    ("seed", "kernels"), [(5268, "tensorflow"), *((seed, "native") for seed in SEEDS)]
)
def test_a_random_training_equals_numpy_after_each_step(seed, kernels, request):
    if kernels == "native":
        request.getfixturevalue("native_library")
    by_numpy.assert_each_step_equals_numpy(trainings.training(seed, kernels == "native"))


def test_the_seeds_draw_every_optimizer_and_form_and_run_the_lines_of_every_fault():
    """A fault's `shows` returns whether a training runs the lines that the fault changes."""
    drawn = [trainings.training(seed, native=True) for seed in SEEDS]
    assert all(any(map(fault.shows, drawn)) for fault in faults.FAULTS)
    tables = [table for training in drawn for table in training.tables.values()]
    assert {table.optimizer.name for table in tables} == set(trainings.CLASSES)
    assert {feature.form for table in tables for feature in table.features} == {*trainings.FORMS}


@pytest.mark.slow
@pytest.mark.sampled(2)
@pytest.mark.parametrize("part", range(6))
def test_random_trainings_equal_numpy(part, request):
    """Compares with NumPy after each step, with both kinds of kernels and 1, 2 and 5 threads."""
    kernels = ("tensorflow", "native")[part % 2]
    if kernels == "native":
        request.getfixturevalue("native_library")
    seeds = sampling.drawn(range(part * TRAININGS, (part + 1) * TRAININGS), 5)
    threads = str((1, 2, 5)[part // 2])
    processes.run(
        "import by_numpy; by_numpy.main()", kernels, *seeds, TF_NUM_INTRAOP_THREADS=threads
    )


@pytest.mark.slow
def test_planted_faults_are_found(native_library, tmp_path):
    """Plants faults in the Python rules and the C++ kernels of a copy of the package.

    Each makes a training differ from NumPy. Trainings equal NumPy if all faults are turned off.
    """
    faults.plant(tmp_path)
    path = os.pathsep.join([str(tmp_path), *filter(None, sys.path)])
    given = {"ESTIMATOR_EMB_CACHE": str(tmp_path / "cache"), "TF_NUM_INTRAOP_THREADS": "3"}
    done = processes.run("import faults; faults.main()", cwd=tmp_path, PYTHONPATH=path, **given)
    found = json.loads(done.stdout.splitlines()[-1])
    assert found["package"].startswith(str(tmp_path))
    assert found["without"] == [None, None]  # No seed differs, in C++ or in Python.
    assert len(found["with"]) == sampling.of(len(faults.FAULTS), some=faults.SOME)
    assert None not in found["with"].values(), found["with"]  # A seed finds each fault.


@pytest.mark.slow
@pytest.mark.sampled(3)
@pytest.mark.parametrize("seed", range(2000, 2030))
def test_random_trainings_with_tables_on_devices(seed, eight_devices, tmp_path):
    cores = (1, 3, 8)[seed % 3]
    on_devices.assert_jax_devices_equal_an_emulated_tpu(seed, cores, tmp_path)


@pytest.mark.slow
@pytest.mark.sampled(3)
@pytest.mark.parametrize("kernels", ["tensorflow", "native"])
@pytest.mark.parametrize("seed", range(3000, 3020))
def test_random_trainings_on_servers(seed, kernels, native_library, tmp_path, monkeypatch):
    monkeypatch.setenv("ESTIMATOR_EMB_NATIVE", str(int(kernels == "native")))
    on_devices.assert_servers_equal_one_process(seed, kernels == "native", tmp_path)


@pytest.mark.slow
@pytest.mark.any_version
@pytest.mark.sampled(1)
@pytest.mark.parametrize("part", range(12))
@pytest.mark.parametrize(("hosts", "devices"), [(2, 4), (3, 2)])
def test_random_programs_on_several_hosts(part, hosts, devices, eight_devices, tmp_path):
    """All checkpoints, host_call, an evaluation and predictions equal those of an emulated TPU."""
    names = on_hosts.names(part, 2)
    flags = "--device=pjrt", "--tables=device", f"--hosts={hosts}", f"--devices={devices}"
    program = on_hosts.__file__, tmp_path, hosts * devices, *names
    path = os.pathsep.join([str(processes.ROOT), *filter(None, sys.path)])
    given = {"PYTHONPATH": path, "ESTIMATOR_EMB_NATIVE": "0", "XLA_FLAGS": None}
    processes.run_command("cluster", *flags, *program, status=0, **given)
    for name in names:
        on_hosts.assert_hosts_equal_an_emulated_tpu(name, tmp_path, hosts * devices)
