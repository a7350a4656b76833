# SPDX-License-Identifier: Apache-2.0
"""The golden vectors, through a whole TPUEstimator on the host."""

import golden_training
import harness
import numpy as np
import pytest
from golden_training import GOLDEN

import estimator_emb as ee


@pytest.mark.parametrize("case", GOLDEN["cases"], ids=lambda case: case["name"])
def test_golden_case(case, tmp_path):
    spec = golden_training.spec_of(case)
    estimator = harness.estimator(
        harness.gradient_model_fn(["x"]),
        spec,
        tmp_path,
        device="host",
        num_shards=case["hyper"].get("num_shards", 1),
    )
    dimension = spec.table_to_config_dict["t"].dimension
    estimator.train(harness.input_fn_of(golden_training.batches(dimension)), steps=3)
    golden_training.check_steps(case, tmp_path)


@pytest.mark.parametrize("combiner", ["sum", "mean", "sqrtn"])
def test_activations(combiner, tmp_path):
    table = np.array(GOLDEN["table"], np.float32)
    spec = golden_training.spec_of_table(
        table, combiner, ee.StochasticGradientDescentParameters(0.0)
    )
    data = golden_training.batches(2, gradients=False)
    estimator = harness.estimator(harness.gradient_model_fn(["x"]), spec, tmp_path)
    estimator.train(harness.input_fn_of(data), steps=1)
    got = [one["x"] for one in estimator.predict(harness.input_fn_of(data))]
    expected = GOLDEN["pipeline"][combiner]["activations_initial_table"]
    np.testing.assert_allclose(np.reshape(got, [3, 4, 2]), expected, rtol=1e-6)
