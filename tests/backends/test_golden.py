# SPDX-License-Identifier: Apache-2.0
"""The golden vectors, through a whole TPUEstimator on the host."""

import golden_training
import harness
import numpy as np
import pytest
from golden_training import GOLDEN

CASES = {case["name"]: case for case in GOLDEN["cases"]}


def shards_of(case):
    return case["hyper"].get("num_shards", 1)


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A function that returns where a case was trained, and as which table.

    The cases of as many shards are tables of one training.
    """
    made = {}

    def train(case, kernels):
        shards = shards_of(case)
        together = [other for other in CASES.values() if shards_of(other) == shards]
        if (shards, kernels) not in made:
            model_dir = made[shards, kernels] = tmp_path_factory.mktemp("trained")
            spec = golden_training.spec_of(*together)
            dimensions = [table.dimension for table in spec.table_to_config_dict.values()]
            estimator = harness.estimator(
                harness.gradient_model_fn(list(spec.feature_to_config_dict)),
                spec,
                model_dir,
                device="host",
                num_shards=shards,
            )
            batches = golden_training.batches(*dimensions)
            estimator.train(harness.input_fn_of(batches), steps=3)
        return made[shards, kernels], f"t{together.index(case)}"

    return train


# One training of 43 tables by TensorFlow's ops is slow; `test_every_optimizer` has such tables too.
@pytest.mark.parametrize(
    ("kernels", "name"),
    [
        pytest.param(
            kernels,
            name,
            marks=pytest.mark.slow if kernels == "tensorflow" and shards_of(case) == 1 else [],
        )
        for kernels in ("tensorflow", "native")
        for name, case in CASES.items()
    ],
    indirect=["kernels"],
)
def test_golden_case(name, trained, kernels):
    model_dir, table = trained(CASES[name], kernels)
    golden_training.check_steps(CASES[name], model_dir, table=table)


@pytest.mark.parametrize("kernels", ["tensorflow", "native"], indirect=True)
@pytest.mark.parametrize("combiner", ["sum", "mean", "sqrtn"])
def test_activations(combiner, kernels, tmp_path):
    table = golden_training.table_of(np.array(GOLDEN["table"], np.float32), combiner)
    spec = golden_training.spec_of_tables({"t0": table})
    data = golden_training.batches(2, gradients=False)
    estimator = harness.estimator(harness.gradient_model_fn(["x0"]), spec, tmp_path)
    estimator.train(harness.input_fn_of(data), steps=1)
    got = [one["x0"] for one in estimator.predict(harness.input_fn_of(data))]
    expected = GOLDEN["pipeline"][combiner]["activations_initial_table"]
    np.testing.assert_allclose(np.reshape(got, [3, 4, 2]), expected, rtol=1e-6)
