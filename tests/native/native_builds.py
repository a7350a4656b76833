"""Builds of native kernels that fail, and the reasons that a training gives."""

import logging

import harness
import host_engine
import numpy as np
import pytest

import estimator_emb as ee
from estimator_emb.native import build

BATCHES = [({"x": np.array([1, 3, 1])}, {"x": np.ones([3, 2], np.float32)})]
QUICK = [
    build.Unit('extern "C" __attribute__((visibility("default"))) int answer() { return 42; }')
]


def logged_reason(caplog, parameters=None, num_cores=1, asked=True, shards=1, **kwargs):
    """Begins a training without native kernels. Returns the reason that its only line gives."""
    caplog.set_level(logging.INFO, "estimator_emb")
    spec = host_engine.one_table(parameters or ee.AdagradParameters(0.1), 5, 2, **kwargs)
    wanted = {"num_cores": num_cores, "asked": asked, "shards": shards}
    next(host_engine.steps(spec, BATCHES, native=False, **wanted))
    before = "Tables use TensorFlow's ops, without native kernels: "
    lines = [line for line in harness.said(caplog) if "native" in line]
    lines = [line for line in lines if not line.startswith("Building native kernels ")]
    assert [line[: len(before)] for line in lines] == [before]
    return lines[0][len(before) :]


def build_error():
    """Builds a small library, which must fail. Returns the message of the error."""
    with pytest.raises(build.BuildError) as error:
        build.library("quick", QUICK)
    return str(error.value)
