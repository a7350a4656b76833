"""Builds of native kernels that fail, and the reasons that a training gives."""

import logging

import harness
import host_engine
import numpy as np
import pytest

import estimator_emb as ee
from estimator_emb.native import build

BATCHES = [({"x": np.array([1, 3, 1])}, {"x": np.ones([3, 2], np.float32)})]
ANSWERS_42 = [
    build.Unit('extern "C" __attribute__((visibility("default"))) int answer() { return 42; }')
]


def reason_logged_by_training(caplog, parameters=None, num_cores=1, enabled=True, shards=1):
    """Trains without native kernels, and returns the logged reason. `enabled`: by the variable."""
    caplog.set_level(logging.INFO, "estimator_emb")
    spec = host_engine.one_table(parameters or ee.AdagradParameters(0.1), 5, 2)
    wanted = {"num_cores": num_cores, "asked": enabled, "shards": shards}
    next(host_engine.steps(spec, BATCHES, native=False, **wanted))
    before = "Tables use TensorFlow's ops, without native kernels: "
    lines = [line for line in harness.said(caplog) if "native" in line]
    lines = [line for line in lines if not line.startswith("Building native kernels ")]
    assert [line[: len(before)] for line in lines] == [before]
    return lines[0][len(before) :]


def message_of_failed_build():
    """Asserts that building ANSWERS_42 raises BuildError, and returns the message."""
    with pytest.raises(build.BuildError) as error:
        build.library("quick", ANSWERS_42)
    return str(error.value)
