"""Libraries for aarch64: built by the wheel script with a cross compiler, run in an emulator."""

import pathlib
import platform
import shutil
import subprocess
import sys

import harness
import numpy as np
import processes
import pytest
import tensorflow as tf

from estimator_emb.native import build, ops, rules
from estimator_emb.optimizers import NUMPY, step

SCRIPT = processes.ROOT / ".ci" / "build_wheel.py"
BUILDER = processes.module_of(SCRIPT)
CROSS, EMULATOR = "aarch64-linux-gnu-g++", "qemu-aarch64"
AARCH64 = 183  # EM_AARCH64 of the ELF format.
ROWS, BATCH, WIDTH = 50, 40, 3

on_x86 = pytest.mark.skipif(platform.machine() != "x86_64", reason="The cross compiler is of x86.")


@on_x86
def test_a_wheel_for_aarch64_needs_the_cross_compiler(tmp_path):
    command = [sys.executable, str(SCRIPT), str(tmp_path / "dist"), "--machine=aarch64"]
    done = subprocess.run(command, env={"PATH": ""}, capture_output=True, text=True)
    assert done.returncode == 2  # As argparse ends for wrong arguments.
    assert done.stderr.splitlines()[-1] == (
        "build_wheel.py: error: a wheel for aarch64 made on x86_64 needs the cross compiler "
        "aarch64-linux-gnu-g++, which is not on PATH; in Debian and Ubuntu, install "
        "g++-aarch64-linux-gnu"
    )
    assert not (tmp_path / "dist").exists()


def test_another_machine_needs_a_cross_compiler_and_its_package_is_named(monkeypatch):
    monkeypatch.setenv("PATH", "")
    assert BUILDER.cross_compiler(platform.machine()) is None
    monkeypatch.setattr(platform, "machine", lambda: "riscv64")
    with pytest.raises(FileNotFoundError, match=r"install g\+\+-x86-64-linux-gnu$"):
        BUILDER.cross_compiler("x86_64")


SYMBOLS = """
#include <functional>
#include <memory>
extern "C" __attribute__((visibility("default")))
int copied(const std::shared_ptr<int>& one, int n) {
  std::shared_ptr<int> other = one;
  if (n < 0) std::__throw_bad_array_new_length();
  return *other;
}
"""
"""g++ 11 and later links this with GLIBC_2.32 and GLIBCXX_3.4.29. OWN_SYMBOLS replaces both."""


@pytest.mark.any_version
@pytest.mark.slow
@pytest.mark.skipif(not shutil.which("g++"), reason="There is no g++.")
def test_wheel_libraries_need_only_old_symbols(tmp_path):
    symbols = build.Unit(SYMBOLS, ("-O1",))  # As the ops. Without it, g++ 15 adds assertions.
    build.compile_to(tmp_path / "a.so", [symbols, build.Unit(BUILDER.OWN_SYMBOLS)])
    assert BUILDER.platform_of(tmp_path, "x86_64") == "manylinux_2_28_x86_64"
    build.compile_to(tmp_path / "b.so", [symbols])  # Without OWN_SYMBOLS: one of both is named.
    assert harness.refusal(ValueError, BUILDER.platform_of, tmp_path, "x86_64") in (
        "b.so needs GLIBCXX_3.4.29, and manylinux_2_28 has GLIBCXX_3.4.25 at most",
        "b.so needs GLIBC_2.32, and manylinux_2_28 has GLIBC_2.28 at most",
    )


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """Returns a folder of aarch64 libraries: arithmetic, and ops for this TensorFlow's release."""
    if not shutil.which(CROSS):
        pytest.skip(f"{CROSS} is not installed")
    minor = tf.version.VERSION.rsplit(".", 1)[0]
    (release,) = (one for one in BUILDER.RELEASES if one.rsplit(".", 1)[0] == minor)
    folder = tmp_path_factory.mktemp("aarch64") / "prebuilt"
    BUILDER.compile_all(folder, [release], "aarch64")
    return folder


@on_x86
@pytest.mark.any_version
@pytest.mark.slow
def test_libraries_are_for_aarch64(built):
    assert (built / "made_from").read_text() == ops.made_from("aarch64")
    arithmetic, of_ops = built / "arithmetic.so", ops.prebuilt_ops(built, tf.version.VERSION)
    assert set(built.iterdir()) == {arithmetic, of_ops, built / "made_from"}
    for library in (arithmetic, of_ops):
        header = library.read_bytes()[:20]
        assert header[:4] == b"\x7fELF"
        assert int.from_bytes(header[18:20], "little") == AARCH64
    needed = subprocess.check_output(["readelf", "--dynamic", of_ops], text=True)
    assert "[libtensorflow_framework.so.2]" in needed
    assert BUILDER.platform_of(built, "aarch64") == "manylinux_2_28_aarch64"
    names = subprocess.check_output(["readelf", "--dyn-syms", "--wide", arithmetic], text=True)
    assert "kernels_any" in names and "avx2" not in names  # AVX2 is of x86.


def _emulated(built, tmp_path, name, arrays, sizes):
    """Runs arithmetic_driver.cc in an emulator, and returns its output as float32."""
    program = tmp_path / "driver"
    if not program.exists():
        source = pathlib.Path(__file__).with_name("arithmetic_driver.cc")
        flags = ["-std=c++17", "-O1", f"-I{build.HERE}", "-ldl", "-o", program]
        subprocess.run([CROSS, source, *flags], check=True)
    # Debian's cross compiler links with the C library in this folder.
    command = [EMULATOR, "-L", "/usr/aarch64-linux-gnu", program, built / "arithmetic.so", name]
    given = b"".join(one.tobytes() for one in arrays)
    done = subprocess.run([*command, *map(str, sizes)], input=given, capture_output=True)
    assert done.returncode == 0, done.stderr.decode()
    return np.frombuffer(done.stdout, np.float32)


@on_x86
@pytest.mark.any_version
@pytest.mark.slow
@pytest.mark.skipif(not shutil.which(EMULATOR), reason=f"{EMULATOR} is not installed")
@pytest.mark.parametrize("dimension", [3, 16])
def test_aarch64_arithmetic_equals_numpy(built, tmp_path, dimension):
    """Compares a lookup of means and an update by each rule with the same steps in NumPy."""
    rng = np.random.default_rng(dimension)
    rate = np.float32(0.1)
    for parameters in BUILDER.every_kind():
        rule = rules.trace(parameters, None)
        constants = np.zeros(32, np.float32)
        constants[: len(rule.constants)] = rule.constants
        ids = rng.integers(-1, ROWS, [BATCH, WIDTH], dtype=np.int32)
        before = rng.normal(size=[1 + rule.slots, ROWS, dimension]).astype(np.float32)
        # Possible moments: a rule may take the root of the second minus the square of the first.
        before[1:] = np.float32(0.5) + np.float32(0.05) * np.abs(before[1:])
        gradients = rng.normal(size=[BATCH, dimension]).astype(np.float32)
        arrays = [ids, constants, rate, before, gradients]
        sizes = [ROWS, dimension, rule.slots, BATCH, WIDTH]
        found = _emulated(built, tmp_path, f"{rule.name}_any", arrays, sizes)

        counts = np.sum(ids >= 0, 1, dtype=np.float32)[:, None]
        rows = np.where(ids[:, :, None] >= 0, before[0][ids], np.float32(0))
        shares = np.float32(1) / np.maximum(counts, 1)
        samples, places = np.nonzero(ids >= 0)
        sums = np.zeros([ROWS, dimension], np.float32)
        np.add.at(sums, ids[samples, places], (gradients * shares)[samples])
        with np.errstate(divide="ignore", invalid="ignore"):
            after = step(parameters, NUMPY, rate, sums, before[0], tuple(before[1:]))
        touched = np.isin(np.arange(ROWS), ids)[:, None]
        # The program's output: the activations, then the table and its slots.
        wanted = [rows.sum(1) * shares, np.where(touched, np.stack(after), before)]
        wanted = np.concatenate([one.reshape(-1) for one in wanted])
        assert np.all(np.isfinite(wanted)), parameters
        # Not 1e-7, because FTRL divides the difference of two powers by the learning rate.
        np.testing.assert_allclose(found, wanted, 2e-6, 5e-6, err_msg=str(parameters))
