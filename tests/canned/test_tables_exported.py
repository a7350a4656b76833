# SPDX-License-Identifier: Apache-2.0
"""Exports with tables are served by the plain TensorFlow of another version."""

import json
import sys

import numpy as np
import processes
import pytest

from tables_exported import EXPORTERS  # isort: skip


@pytest.mark.slow
@pytest.mark.sampled(2)
@pytest.mark.parametrize("device", ["host", "none"])
@pytest.mark.parametrize("newer_exports", [True, False], ids=["to 2.15", "from 2.15"])
def test_exports_serve_what_predict_gives(newer_exports, device, run_program, tmp_path):
    exporting, serving = processes.stock_python(), sys.executable
    if newer_exports:
        exporting, serving = serving, exporting
    run_program(exporting, True, "tables_exported.py", "export", tmp_path, device)
    run_program(serving, False, "tables_exported.py", "serve", tmp_path)
    expected = json.loads((tmp_path / "expected.json").read_text())
    served = json.loads((tmp_path / "served.json").read_text())
    y = np.array(expected["y"])
    scores = 1 / (1 + np.exp(-np.concatenate([-y, y], axis=1)))
    for name in (*EXPORTERS, "all"):
        default = served[name]["serving_default"]
        np.testing.assert_allclose(default["y"], y, rtol=1e-5, err_msg=name)
        np.testing.assert_allclose(default["activation"], expected["activation"], rtol=1e-5)
        np.testing.assert_allclose(served[name]["regressed"]["outputs"], y, rtol=1e-5)
        np.testing.assert_allclose(served[name]["classified"]["scores"], scores, rtol=1e-5)
        assert served[name]["classified"]["classes"] == [["no", "yes"]] * len(y)
    for key in ("loss", "error"):
        np.testing.assert_allclose(served["eval"][key], expected[key], rtol=1e-5)
    np.testing.assert_allclose(served["train"]["loss"], expected["loss"], rtol=1e-5)
    assert expected["trained"].keys() == served["train"]["trained"].keys()
    for name, value in expected["trained"].items():
        np.testing.assert_allclose(served["train"]["trained"][name], value, rtol=1e-5)
