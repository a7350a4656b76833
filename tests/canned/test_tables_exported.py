"""Plain TensorFlow of another version serves and trains exported graphs with tables."""

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
@pytest.mark.parametrize("newer_exports", [True, False], ids=["to 2.15", "from 2.15"])
def test_exports_give_the_results_of_their_estimator(newer_exports, tmp_path):
    """`tables_exported.py export` writes an export and its estimator's results, `serve` its own."""
    pythons = [processes.stock_python(), sys.executable]
    exporting, serving = reversed(pythons) if newer_exports else pythons
    # The stock Python may not have the packages that estimator_emb imports beside TensorFlow.
    for package in (estimator_emb, google_crc32c, tqdm):
        path = pathlib.Path(package.__file__).parent
        (tmp_path / path.name).symlink_to(path)

    def run(python, path, job):
        given = {"PYTHONPATH": str(path), "ESTIMATOR_EMB_NATIVE": "0", "timeout": None, "status": 0}
        processes.run_python(tables_exported.__file__, job, tmp_path, python=python, **given)

    run(exporting, tmp_path, "export")
    run(serving, "", "serve")
    expected, served = (
        json.loads((tmp_path / f"{name}.json").read_text()) for name in ("expected", "served")
    )
    for found, want in (
        (served["serving_default"]["y"], expected["y"]),
        (served["serving_default"]["activation"], expected["activation"]),
        (served["regressed"]["outputs"], expected["y"]),
        (served["classified"]["scores"], 1 / (1 + np.exp(-np.array(expected["y"])))),
        (served["eval"]["loss"], expected["loss"]),
        (served["eval"]["error"], expected["error"]),
        (served["train"]["loss"], expected["loss"]),
        (served["train"]["trained"]["t"], expected["trained"]["t"]),
        (served["train"]["trained"]["bias"], expected["trained"]["bias"]),
    ):
        np.testing.assert_allclose(found, want, rtol=1e-5)
