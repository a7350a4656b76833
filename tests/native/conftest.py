# SPDX-License-Identifier: Apache-2.0
"""What the tests of the native kernels share."""

import pytest

from estimator_emb import console


@pytest.fixture(autouse=True)
def nothing_logged(monkeypatch):
    """Has each test see what a process says once."""
    monkeypatch.setattr(console, "_logged", set())
