# SPDX-License-Identifier: Apache-2.0
"""Where the kernels cannot be had or do not apply, TensorFlow's ops train; a line says why."""

import ctypes
import logging
import os
import pathlib
import stat
import subprocess
import sys

import host_engine
import numpy as np
import pytest
from test_engine import one_table

import estimator_emb as ee
from estimator_emb.native import build, ops

BATCHES = [({"x": np.array([1, 3, 1])}, {"x": np.ones([3, 2], np.float32)})]
QUICK = [
    build.Unit('extern "C" __attribute__((visibility("default"))) int answer() { return 42; }')
]
BROKEN = "#!/bin/sh\necho 'x.cc:1: error: it is broken' >&2\nexit 3\n"


def reasons(caplog, parameters=None, num_cores=1, asked=True, **kwargs):
    """Trains with native kernels asked for; returns why they were not used."""
    caplog.set_level(logging.INFO, "estimator_emb")
    spec = one_table(parameters or ee.AdagradParameters(0.1), 5, 2, **kwargs)
    host_engine.train(spec, BATCHES, native=False, num_cores=num_cores, asked=asked)
    before = "Tables use TensorFlow's ops, without native kernels: "
    lines = [record.getMessage() for record in caplog.records if "native" in record.getMessage()]
    assert [line[: len(before)] for line in lines] == [before]
    return lines[0][len(before) :]


@pytest.fixture
def empty_cache(monkeypatch, tmp_path):
    monkeypatch.setenv("ESTIMATOR_EMB_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def compiler(native_library):
    """Skips where there is none."""


def broken_compiler(monkeypatch, tmp_path):
    program = tmp_path / "bin" / "g++"
    program.parent.mkdir()
    program.write_text(BROKEN)
    program.chmod(stat.S_IRWXU)
    monkeypatch.setenv("PATH", f"{program.parent}{os.pathsep}{os.environ['PATH']}")


def test_no_compiler(caplog, monkeypatch, empty_cache):
    monkeypatch.setenv("PATH", "")
    assert reasons(caplog) == (
        "there is no C++ compiler (g++, c++, clang++) on PATH."
    )


def test_a_compiler_that_fails(caplog, monkeypatch, empty_cache, tmp_path):
    broken_compiler(monkeypatch, tmp_path)
    monkeypatch.setattr(build.logger, "info", _without_building(build.logger.info))
    assert reasons(caplog) == (
        "the compiler failed with code 3: x.cc:1: error: it is broken."
    )
    assert sorted(one.name for one in empty_cache.iterdir()) == ["lock"]


def _without_building(info):
    return lambda text, *args: None if text.startswith("Building") else info(text, *args)


def test_a_cache_that_cannot_be_written(caplog, monkeypatch, tmp_path, compiler):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("ESTIMATOR_EMB_CACHE", str(tmp_path / "file" / "cache"))
    assert reasons(caplog) == (
        f"the cache {tmp_path}/file/cache cannot be written (Not a directory)."
    )


def test_turned_off(caplog):
    assert reasons(caplog, asked=False) == "ESTIMATOR_EMB_NATIVE is 0."


def test_engines_that_the_kernels_cannot_serve(caplog, compiler):
    adam = ee.AdamParameters(0.1, lazy_adam=False)
    assert reasons(caplog, adam) == "the optimizer of table t updates every row."
    caplog.clear()
    single = ee.AdagradParameters(0.1, use_gradient_accumulation=False)
    assert reasons(caplog, single, num_cores=3) == (
        "gradients are not accumulated over the cores."
    )
    caplog.clear()
    assert reasons(caplog, pipeline_execution_with_tensor_core=True) == (
        "pipeline_execution_with_tensor_core is on."
    )


def test_the_cache_is_where_the_environment_says(monkeypatch, tmp_path):
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("ESTIMATOR_EMB_CACHE", raising=False)
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    assert build.cache_directory() == tmp_path / ".cache" / "estimator_emb"
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert build.cache_directory() == tmp_path / "xdg" / "estimator_emb"
    monkeypatch.setenv("ESTIMATOR_EMB_CACHE", str(tmp_path / "own"))
    assert build.cache_directory() == tmp_path / "own"


def test_a_library_is_built_once_and_again_for_other_sources(compiler, empty_cache):
    path = build.library("quick", QUICK)
    made = os.stat(path).st_mtime_ns
    assert ctypes.CDLL(path).answer() == 42
    assert build.library("quick", QUICK) == path
    assert os.stat(path).st_mtime_ns == made
    other = build.library("quick", [build.Unit(QUICK[0].source.replace("42", "43"))])
    assert other != path and ctypes.CDLL(other).answer() == 43


@pytest.mark.slow
def test_processes_build_together(compiler, empty_cache, tmp_path):
    """A slow compiler, three processes: one runs it, and all get the library."""
    real = build._compiler()
    program = tmp_path / "bin" / "g++"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\necho run >> {tmp_path}/runs\nsleep 0.5\nexec {real} "$@"\n')
    program.chmod(stat.S_IRWXU)
    code = (
        "from estimator_emb.native import build\n"
        f"print(build.library('quick', [build.Unit({QUICK[0].source!r})]))"
    )
    root = pathlib.Path(build.HERE).parents[1]
    environment = {
        **os.environ,
        "PATH": f"{program.parent}{os.pathsep}{os.environ['PATH']}",
        "PYTHONPATH": str(root),
        "TF_CPP_MIN_LOG_LEVEL": "3",
    }
    command = [sys.executable, "-c", code]
    running_ = [
        subprocess.Popen(
            command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )
        for _ in range(3)
    ]
    paths = {one.communicate()[0].strip().splitlines()[-1] for one in running_}
    assert len(paths) == 1
    assert ctypes.CDLL(paths.pop()).answer() == 42
    assert (tmp_path / "runs").read_text().split() == ["run"] * 2  # Once to compile, once to link.
    assert len(list(empty_cache.iterdir())) == 2  # The library and the lock.


def test_optimizers_that_differ_in_numbers_share_a_rule(native):
    first = native.rule(ee.AdamParameters(0.1), None)
    second = native.rule(ee.AdamParameters(0.2, beta1=0.5, epsilon=0.1), None)
    assert first.name == second.name and first.constants != second.constants
    assert native.rule(ee.AdamParameters(0.1), 1.0).name != first.name
    assert ops.load() is native
