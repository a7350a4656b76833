"""Prebuilt libraries of a wheel: their rules and flags, and when they are used."""

import platform

import harness
import processes
import pytest
import tensorflow as tf
from descriptors import OPTIMIZERS, SURROUNDED

import estimator_emb as ee
from estimator_emb.native import ops, rules

BUILDER = processes.module_of(processes.ROOT / ".ci" / "build_wheel.py")
RELEASE = ".".join(tf.version.VERSION.split(".")[:2])


def test_prebuilt_rules_cover_every_optimizer():
    """A rule is found by name. Rates, limits and `clipping_limit` do not change the name."""
    there = {rules.trace(kind, None).name for kind in BUILDER.every_kind()}
    for optimizer in (*OPTIMIZERS, *SURROUNDED):  # SURROUNDED: with clipping or weight decay.
        for clipping_limit in (None, 0.5):
            assert rules.trace(optimizer.parameters, clipping_limit).name in there, optimizer.name


def test_a_rule_cannot_branch_on_rows():
    """`update` is traced once, into C++ for all rows, so an `if` of Python has no row to ask."""

    class Branching(ee.StochasticGradientDescentParameters):
        def update(self, math, lr, g, w, *slots):
            return (w if g > 0 else -w,)

    assert harness.refusal(TypeError, rules.trace, Branching(0.1), None) == (
        "A rule cannot branch on the rows it updates: use where()."
    )


def test_prebuilt_libraries_use_tensorflows_flags():
    """A wheel is built by these constants, without the TensorFlow that will load its libraries."""
    include, *flags = tf.sysconfig.get_compile_flags()
    assert include.startswith("-I")
    assert tuple(flags) == BUILDER.TENSORFLOW_FLAGS
    folder, *link = tf.sysconfig.get_link_flags()
    assert folder.startswith("-L")
    assert tuple(link) == BUILDER.TENSORFLOW_LINK


@pytest.fixture
def folder(monkeypatch, tmp_path):
    monkeypatch.setattr(ops, "PREBUILT", tmp_path)
    for name in ("arithmetic.so", f"ops-{RELEASE}.so"):
        (tmp_path / name).write_bytes(b"")
    (tmp_path / "made_from").write_text(ops.made_from(platform.machine()))
    return tmp_path


def test_complete_prebuilt_libraries_are_used(folder):
    assert ops.prebuilt_libraries() == (f"{folder}/arithmetic.so", f"{folder}/ops-{RELEASE}.so")


CHANGES = {
    "no arithmetic": lambda folder, patch: (folder / "arithmetic.so").unlink(),
    "no ops": lambda folder, patch: (folder / f"ops-{RELEASE}.so").unlink(),
    "not said of what": lambda folder, patch: (folder / "made_from").unlink(),
    "of another TensorFlow": lambda folder, patch: patch.setattr(tf.version, "VERSION", "2.14.1"),
    "of other sources": lambda folder, patch: (folder / "made_from").write_text(
        f"0123456789abcdef01234567 {platform.machine()}\n"
    ),
    "of another machine": lambda folder, patch: patch.setattr(platform, "machine", lambda: "riscv"),
    "without sanitizers": lambda folder, patch: patch.setenv("ESTIMATOR_EMB_NATIVE_SANITIZE", "1"),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_prebuilt_libraries_that_do_not_fit_are_not_used(change, folder, monkeypatch):
    change(folder, monkeypatch)
    assert ops.prebuilt_libraries() is None
