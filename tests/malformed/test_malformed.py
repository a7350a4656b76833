# SPDX-License-Identifier: Apache-2.0
"""Whatever a batch holds: the right numbers, or an error with its feature before any update."""

import json
import pathlib
import subprocess
import sys
import time

import processes
import pytest
import tensorflow as tf
import worker

WORKER = pathlib.Path(__file__).with_name("worker.py")
CONFIGURATIONS = list(worker.CONFIGURATIONS)
A_CASE = 120
"""Seconds after which a case hangs; the first has the graph to build."""


def lines(path):
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def run(configuration, seeds, folder):
    """What went wrong: lines of the worker, its deaths and its hangs."""
    wrong, begin = [], seeds.start
    environment = processes.environment(TF_CPP_MIN_LOG_LEVEL="3")
    while begin < seeds.stop:
        progress = folder / f"{configuration}-{begin}.json"
        errors = progress.with_suffix(".stderr")
        command = [sys.executable, str(WORKER), "--configuration", configuration]
        command += ["--seeds", str(begin), str(seeds.stop), "--progress", str(progress)]
        with open(errors, "w") as stderr:
            process = subprocess.Popen(command, stdout=stderr, stderr=stderr, env=environment)
        said = time.monotonic(), 0
        while process.poll() is None:
            time.sleep(0.2)
            size = progress.stat().st_size if progress.exists() else 0
            if size > said[1]:
                said = time.monotonic(), size
            elif time.monotonic() - said[0] > A_CASE:
                process.kill()
        found = lines(progress)
        wrong += [one for one in found if "wrong" in one]
        cases = [one for one in found if "seed" in one]
        if found and "done" in found[-1]:
            break
        last = cases[-1] if cases else {"seed": begin}
        end = f"ended with {process.returncode}: {errors.read_text()[-2000:]}"
        wrong.append({**last, "wrong": end})
        if not cases:
            break  # It is not a batch that ends it.
        begin = last["seed"] + 1
    return [{"configuration": configuration, **one} for one in wrong]


def test_some_in_this_process(native_library, monkeypatch):
    """Without the import of TensorFlow, which takes as long as a hundred cases."""
    monkeypatch.setenv("ESTIMATOR_EMB_NATIVE", "1")
    assert list(worker.cases("two cores", range(20))) == [(seed, None) for seed in range(20)]


@pytest.mark.slow
@pytest.mark.parametrize("configuration", ["two cores", "host, TensorFlow's ops"])
def test_some(configuration, native_library, tmp_path):
    assert run(configuration, range(40), tmp_path) == []
    cases = [one for path in tmp_path.glob("*.json") for one in lines(path)]
    assert sum("seed" in one for one in cases) == 40


def seeds_of(configuration, version):
    """Half of a configuration's seeds are for TensorFlow 2.15, half for others."""
    first = 1000 * CONFIGURATIONS.index(configuration) + (0 if version.startswith("2.15.") else 500)
    return range(first, first + 500)


def test_there_are_ten_thousand():
    of_all = [seeds_of(one, version) for one in CONFIGURATIONS for version in ("2.15.1", "2.21.0")]
    assert len(set().union(*of_all)) == 10_000


@pytest.mark.slow
@pytest.mark.sampled(3)
@pytest.mark.parametrize("configuration", CONFIGURATIONS)
def test_ten_thousand(configuration, native_library, tmp_path):
    """A failure shows its seed."""
    assert run(configuration, seeds_of(configuration, tf.__version__), tmp_path) == []
    cases = [one for path in tmp_path.glob("*.json") for one in lines(path)]
    assert sum("seed" in one for one in cases) == 500
