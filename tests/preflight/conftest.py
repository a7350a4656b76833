"""Fixtures for tests of the check."""

import pytest

from estimator_emb.preflight.described import Described


@pytest.fixture
def of_the_step_alone(monkeypatch):
    """Skips the slow build with `use_tpu=True`. `test_agreement.py` tests it."""
    monkeypatch.setattr(Described, "build", lambda self, input_fn: self.findings)
