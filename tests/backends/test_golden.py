"""Recorded tables and slots after each step of every optimizer (golden.json), in an estimator."""

import golden_training
import pytest
from host_engine import on_both_kernels


# A training of 43 tables is slow, and `tests/laws` covers such tables too.
@on_both_kernels
@pytest.mark.parametrize("shards", [pytest.param(1, marks=pytest.mark.slow), 2])
def test_golden_cases_train(shards, kernels, tmp_path):
    """All cases with the same number of shards are tables of one training."""
    golden_training.assert_trains_like_golden(tmp_path, "host", shards)
