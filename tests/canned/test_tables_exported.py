"""Plain TensorFlow of another version serves exports with tables."""

import json
import pathlib
import sys

import google_crc32c
import numpy as np
import processes
import pytest
import tables_exported
import tqdm

import estimator_emb


@pytest.mark.slow
@pytest.mark.sampled(2)
@pytest.mark.parametrize("device", ["host", "none"])
@pytest.mark.parametrize("newer_exports", [True, False], ids=["to 2.15", "from 2.15"])
def test_exports_give_the_results_of_predict(newer_exports, device, tmp_path):
    pythons = [processes.stock_python(), sys.executable]
    exporting, serving = reversed(pythons) if newer_exports else pythons
    # The stock Python may not have the packages that estimator_emb imports beside TensorFlow.
    for package in (estimator_emb, google_crc32c, tqdm):
        path = pathlib.Path(package.__file__).parent
        (tmp_path / path.name).symlink_to(path)

    def run(python, path, *arguments):
        given = {"PYTHONPATH": str(path), "ESTIMATOR_EMB_NATIVE": "0", "timeout": None, "status": 0}
        processes.run_python(tables_exported.__file__, *arguments, python=python, **given)

    run(exporting, tmp_path, "export", tmp_path, device)
    run(serving, "", "serve", tmp_path)
    expected = json.loads((tmp_path / "expected.json").read_text())
    served = json.loads((tmp_path / "served.json").read_text())
    y = np.array(expected["y"])
    scores = 1 / (1 + np.exp(-np.concatenate([-y, y], axis=1)))
    for name in (*tables_exported.EXPORTERS, "all"):
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
