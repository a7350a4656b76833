# SPDX-License-Identifier: Apache-2.0
"""Makes `import reference` and `import harness` work in every test, and keeps TensorFlow quiet."""

import logging
import os
import sys

import pytest

sys.path.insert(0, os.path.dirname(__file__))
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
# TensorFlow's own ops, unless a test asks for the native kernels.
os.environ.setdefault("ESTIMATOR_EMB_NATIVE", "0")

# Chosen, as by a program: else the lines that are shown by default were in every test's log.
logging.getLogger().setLevel(logging.WARNING)

import estimator_emb.backends.host  # noqa: E402  (binds Keras 2 before TensorFlow is imported)
from estimator_emb.native import build, ops  # noqa: E402
from estimator_emb.step.engine import TableStep  # noqa: E402


@pytest.fixture
def in_shards(monkeypatch):
    """A function that makes engines divide tables into shards, as parameter servers do."""

    def into(count):
        class Divided(TableStep):
            def __init__(self, *args, shards, **kwargs):
                assert shards == 1
                super().__init__(*args, shards=count, **kwargs)

        monkeypatch.setattr(estimator_emb.backends.host, "TableStep", Divided)

    return into


@pytest.fixture(scope="session")
def native_library(request):
    """The native kernels, built once and kept between runs of the suite."""
    directory = str(request.config.cache.mkdir("native"))
    os.environ.setdefault("ESTIMATOR_EMB_CACHE", directory)
    try:
        return ops.load()
    except build.BuildError as reason:
        if build.sanitizes():  # Asked for: tests that skip would look as if they had passed.
            raise
        pytest.skip(f"native kernels cannot be built here: {reason}")


@pytest.fixture
def native(native_library, monkeypatch):
    """Turns the native kernels on."""
    monkeypatch.setenv("ESTIMATOR_EMB_NATIVE", "1")
    return native_library
