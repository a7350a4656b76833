"""Every benchmark runs, started as a user starts it, with sizes too small to measure.

`sampled(0)`: only `.ci/run --all` runs them, at night.
"""

import importlib.util
import json
import re
import shlex

import processes
import pytest

pytestmark = pytest.mark.any_version

HAS_JAX = importlib.util.find_spec("jax") is not None


def run(command, **environment):
    program, *arguments = shlex.split(command)
    environment |= {"CUDA_VISIBLE_DEVICES": ""}
    return processes.run_python(processes.ROOT / "benchmarks" / program, *arguments, **environment)


TABLE = json.loads((processes.ROOT / "tests" / "data" / "benchmarks.json").read_text())
"""Command of each benchmark -> the beginnings of lines that it prints. Those of `jax` need jax."""


def assert_prints(command, lines, **environment):
    """Runs a benchmark, which must print lines that begin with the regular expressions `lines`."""
    done = run(command, **environment)
    assert done.returncode == 0, done.stderr
    for line in lines:
        assert re.search(f"^{line}", done.stdout, re.MULTILINE), f"{line}\n{done.stdout}"


@pytest.mark.slow
@pytest.mark.sampled(0)
@pytest.mark.parametrize("command", TABLE["tensorflow"], ids=lambda command: command.split(".")[0])
def test_every_benchmark_runs(command):
    assert_prints(command, TABLE["tensorflow"][command])


@pytest.mark.slow
@pytest.mark.sampled(0)
@pytest.mark.skipif(not HAS_JAX, reason="jax is not installed")
@pytest.mark.parametrize("command", TABLE["jax"], ids=lambda command: command.split(".")[0])
def test_benchmarks_run_on_pjrt_devices(command):
    two = "--xla_force_host_platform_device_count=2"
    assert_prints(command, TABLE["jax"][command], XLA_FLAGS=two, ESTIMATOR_EMB_PJRT_PLATFORM="cpu")


@pytest.mark.slow
@pytest.mark.skipif(not HAS_JAX, reason="jax is not installed")
def test_step_files_run_without_tensorflow(tmp_path):
    """The step that is run gives the results that CPUs gave when the files were written."""
    two = {"XLA_FLAGS": "--xla_force_host_platform_device_count=2"}
    program = processes.ROOT / "examples" / "legacy_tpu_binary.py"
    files = tmp_path / "step"
    write = f"step_files.py write {files} {program} --model_dir={tmp_path / 'model'}"
    assert_prints(write, [rf"{files}: a step of [\d,]+ bytes, 32 arrays$"], **two)
    (tmp_path / "tensorflow.py").write_text("raise AssertionError('imported')")
    done = run(f"step_files.py run {files} --rounds=2", PYTHONPATH=str(tmp_path), **two)
    assert done.returncode == 0, done.stderr
    found = re.search(r"\(cpu\)\nfurthest from CPUs: (.*)\na step: [\d.]+ ms", done.stdout)
    assert float(found[1]) < 1e-6


@pytest.mark.skipif(HAS_JAX, reason="jax is installed")
def test_benchmarks_say_that_jax_is_missing():
    sweep = "devices, tables on them"
    assert_prints(f"growth.py --sweeps '{sweep}'", [f"{sweep}: left out, as jax is not installed$"])
