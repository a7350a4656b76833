# SPDX-License-Identifier: Apache-2.0
"""Every test of the engine runs on TensorFlow's own ops and on the native kernels."""

import pytest


@pytest.fixture(autouse=True, params=["tensorflow", "native"])
def kernels(request, monkeypatch):
    if request.param == "native":
        request.getfixturevalue("native")
    else:
        monkeypatch.setenv("ESTIMATOR_EMB_NATIVE", "0")
