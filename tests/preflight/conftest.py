"""Fixtures of the tests of the check."""

import pytest

from estimator_emb.preflight.described import Described


@pytest.fixture
def of_the_step_alone(monkeypatch):
    """Leaves out what `use_tpu=True` builds, which takes longer; `test_agreement.py` has that."""
    monkeypatch.setattr(Described, "build", lambda self, input_fn: self.findings)
