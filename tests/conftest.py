# SPDX-License-Identifier: Apache-2.0
"""Makes `import reference` and `import harness` work in every test, and keeps TensorFlow quiet."""

import os
import sys

sys.path.insert(0, os.path.dirname(__file__))
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import pytest  # noqa: E402

import estimator_emb.estimator  # noqa: E402  (binds Keras 2 before any test imports TensorFlow)
from estimator_emb.engines.host import HostEngine  # noqa: E402


@pytest.fixture
def in_shards(monkeypatch):
    """A function that makes engines divide tables into shards, as parameter servers do."""

    def into(count):
        class Divided(HostEngine):
            def __init__(self, *args, shards, **kwargs):
                assert shards == 1
                super().__init__(*args, shards=count, **kwargs)

        monkeypatch.setattr(estimator_emb.estimator, "HostEngine", Divided)

    return into
