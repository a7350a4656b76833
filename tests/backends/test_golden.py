"""The golden vectors, through a whole TPUEstimator on the host."""

import golden_training
import harness
import numpy as np
import pytest
from golden_training import GOLDEN


# A training of 43 tables is slow, and `tests/laws` covers such tables too.
@pytest.mark.parametrize("kernels", ["tensorflow", "native"], indirect=True)
@pytest.mark.parametrize("shards", [pytest.param(1, marks=pytest.mark.slow), 2])
def test_golden_cases_train(shards, kernels, tmp_path):
    """All cases with the same number of shards are tables of one training."""
    cases = [case for case in GOLDEN["cases"] if case["hyper"].get("num_shards", 1) == shards]
    golden_training.check_training(cases, tmp_path, "host", shards)


@pytest.mark.parametrize("kernels", ["tensorflow", "native"], indirect=True)
def test_golden_activations_are_predicted(kernels, tmp_path):
    combiners = {f"x{index}": one for index, one in enumerate(["sum", "mean", "sqrtn"])}
    start = np.array(GOLDEN["table"], np.float32)
    tables = {f"t{key[1]}": golden_training.table_of(start, combiners[key]) for key in combiners}
    spec = golden_training.spec_of_tables(tables)
    data = golden_training.batches(2, 2, 2, gradients=False)
    estimator = harness.estimator(harness.gradient_model_fn(list(combiners)), spec, tmp_path)
    predicted = list(estimator.predict(harness.input_fn_of(data)))
    for key, combiner in combiners.items():
        got = np.reshape([one[key] for one in predicted], [3, 4, 2])
        expected = GOLDEN["pipeline"][combiner]["activations_initial_table"]
        np.testing.assert_allclose(got, expected, rtol=1e-6, err_msg=combiner)
