"""Every benchmark runs, started as a user starts it, with sizes too small to measure.

`sampled(0)`: only `.ci/run --all` runs them, at night.
"""

import importlib.util
import re
import shlex

import processes
import pytest

pytestmark = pytest.mark.any_version

FOLDER = processes.ROOT / "benchmarks"
HAS_JAX = importlib.util.find_spec("jax") is not None


def run(command, **environment):
    program, *arguments = shlex.split(command)
    environment |= {"CUDA_VISIBLE_DEVICES": ""}
    return processes.run_python(FOLDER / program, *arguments, **environment)


COMMANDS = {
    "embedding_step.py --workloads '1 table' --peers 'plain gather' tf-keras --rounds=1 "
    "--memory_gb=1": ["ours", "plain gather", "tf-keras"],
    "whole_step.py --batches 64 --starts=1 --rounds=1 --samples=64": [
        *("ours", "legacy", "no tables"),
        *(("PJRT, host", "PJRT, device") if HAS_JAX else ("Left out, as jax is not installed:",)),
    ],
    "profile_step.py --batch=64 --steps=1": ["lookup", "dense", "backward", "update"],
    "large_tables.py --gigabytes=0.01 --forms dense": ["dense", "checkpoints", "save", "restore"],
    "growth.py --sweeps vocabulary cores --vocabulary=100000": [r" +[\d,]+ +1 +(4096|8192)"],
    "cluster.py --workers=2 --tables=2 --vocabulary=100 --batch=8 --steps=200 --rounds=1 "
    "--peers ours transport": ["ours", "transport"],
    "options.py --options 'every row' 'table summaries, each step' 'eight cores, not accumulated' "
    "--steps=2 --rounds=1 --tables=2 --vocabulary=99 --batch=8": ["every row", "table summaries"],
    "from_files.py --models wdl --formats tfrecord --batches 64 --rows=256 --rounds=1 --samples=64 "
    "--stock_python=": [
        *("ours", "memory", "dense", "parsing", "reading", "hooks"),
        *("  strings to ids", "  conversion", "  embedding"),
    ],
    "startup.py --tables 2 4 --rounds=1": [r"dense +restart", "strings +train", "emulated +eval"],
    "large_checkpoints.py --gigabytes=0.001 --tasks saved-model convert": [
        "saved-model",
        "convert",
    ],
}
"""Command of each benchmark -> the beginnings of lines that it prints."""
OF_JAX = {
    "growth.py --sweeps 'vocabulary, tables on a device' 'devices, tables on the host' "
    "--vocabulary=10000": [r" +[\d,]+ +1 +4096"],
    "hosts.py --hosts 2 --batch=64 --steps=3": [" +2 "],
    "devices.py --platform=cpu --check": ["  scatter-add", "  narrow weights", "all right"],
    "devices.py --platform=cpu --tables=2 --vocabulary=1000 --batch=64 --rounds=1 --ids 1 3": [
        *(r"jax [\d.]+, 2 x cpu", " +1  plain", " +3  packed", "ids per sample: 1"),
        "  '(host|device)' is faster",
    ],
}
"""The same, for benchmarks that need jax."""


def check(command, lines, **environment):
    done = run(command, **environment)
    assert done.returncode == 0, done.stderr
    for line in lines:
        assert re.search(f"^{line}", done.stdout, re.MULTILINE), f"{line}\n{done.stdout}"


@pytest.mark.slow
@pytest.mark.sampled(0)
@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command.partition(".")[0])
def test_every_benchmark_runs(command):
    check(command, COMMANDS[command])


@pytest.mark.slow
@pytest.mark.sampled(0)
@pytest.mark.skipif(not HAS_JAX, reason="jax is not installed")
@pytest.mark.parametrize("command", OF_JAX, ids=lambda command: command.partition(".")[0])
def test_benchmarks_run_on_pjrt_devices(command):
    two = "--xla_force_host_platform_device_count=2"
    check(command, OF_JAX[command], XLA_FLAGS=two, ESTIMATOR_EMB_PJRT_PLATFORM="cpu")


@pytest.mark.slow
@pytest.mark.skipif(not HAS_JAX, reason="jax is not installed")
def test_step_files_run_without_tensorflow(tmp_path):
    two = {"XLA_FLAGS": "--xla_force_host_platform_device_count=2"}
    program = processes.ROOT / "examples" / "legacy_tpu_binary.py"
    files = tmp_path / "step"
    check(
        f"step_files.py write {files} {program} --model_dir={tmp_path / 'model'}",
        [rf"{files}: a step of [\d,]+ bytes, 32 arrays$"],
        **two,
    )
    (tmp_path / "tensorflow.py").write_text("raise AssertionError('imported')")
    done = run(f"step_files.py run {files} --rounds=2", PYTHONPATH=str(tmp_path), **two)
    assert done.returncode == 0, done.stderr
    found = re.search(r"\(cpu\)\nfurthest from CPUs: (.*)\na step: [\d.]+ ms", done.stdout)
    assert float(found[1]) < 1e-6


@pytest.mark.skipif(HAS_JAX, reason="jax is installed")
def test_benchmarks_say_that_jax_is_missing():
    sweep = "devices, tables on them"
    check(f"growth.py --sweeps '{sweep}'", [f"{sweep}: left out, as jax is not installed$"])
