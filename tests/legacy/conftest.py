# SPDX-License-Identifier: Apache-2.0
"""What tests of the legacy names share."""

import pytest

import estimator_emb as ee


@pytest.fixture
def installed():
    ee.install()
    yield
    ee.uninstall()
