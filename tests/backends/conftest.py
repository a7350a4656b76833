# SPDX-License-Identifier: Apache-2.0
"""Tests of what tables compute run on TensorFlow's own ops and on the native kernels."""

import pytest

ON_BOTH = ("test_config_dicts", "test_every_optimizer", "test_host", "test_servers")


def pytest_generate_tests(metafunc):
    if metafunc.module.__name__ in ON_BOTH:
        metafunc.parametrize("kernels", ["tensorflow", "native"], indirect=True)


@pytest.fixture(autouse=True)
def kernels(request, monkeypatch):
    """Turns the native kernels on or off; returns "native" or "tensorflow"."""
    asked = getattr(request, "param", "tensorflow")
    if asked == "native":
        request.getfixturevalue("native")
    else:
        monkeypatch.setenv("ESTIMATOR_EMB_NATIVE", "0")
    return asked
