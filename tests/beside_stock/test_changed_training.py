"""The statements of docs/differences.md about gradients and variables hold, for stock and ours."""

import functools
import json

import changed_training
import harness
import numpy as np
import processes
import pytest

import estimator_emb as ee

FROZEN = "trainable=False has no effect on the tables of columns a"
REGULARIZER = "The regularizer of a variable scope has no effect on the tables of columns a"
PENALTY = "The loss has a penalty on tpu_embedding_dummy_table_variable"
AVERAGES = "Embedding tables have no moving averages, as on a TPU"
CHANGED = "model_fn changes gradients before its optimizer applies them (op %s)"
UNREACHED = "No gradient reaches features ['a'] of table tbl_a: zeros are used"
WARNINGS = {
    "layer trainable=False": FROZEN,
    "keras 1 trainable=False": FROZEN,
    "keras 2 trainable=False": FROZEN,
    "scope regularizer": REGULARIZER,
    "keras 1 scope regularizer": REGULARIZER,
    "penalty": PENALTY,
    "moving average": AVERAGES,
    "clip_by_global_norm": CHANGED % "global_norm/L2Loss",
    "clip_by_norm": CHANGED % "clip_by_norm/mul",
    "factor": CHANGED % "mul_1",
    "scaled loss": CHANGED % "mul_1",
    "stop_gradient": UNREACHED,
    "var_list": UNREACHED,
}
AS_STOCK = (
    "as it is",
    "tf.gradients",
    "tape",
    "stop_gradient",
    "var_list",
    "partitioner",
    "constraint",
)


@pytest.mark.fast(2)
@pytest.mark.parametrize("name", WARNINGS)
def test_warns_of_changes_that_do_not_reach_tables(name, caplog):
    changed_training.run(ee, **changed_training.CASES[name])
    (said,) = harness.said(caplog)
    assert said.startswith(WARNINGS[name])


@functools.cache
def of_stock():
    done = processes.run_side("stock", changed_training.__file__, status=0)
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.slow
@pytest.mark.parametrize("name", changed_training.CASES)
def test_stock_differs_only_in_the_documented_cases(name, caplog):
    ours, stock = changed_training.run(ee, **changed_training.CASES[name]), of_stock()[name]
    same = np.allclose(ours["table"], stock["table"]) and np.allclose(ours["w"], stock["w"])
    assert (same and ours["names"] == stock["names"]) == (name in AS_STOCK)
    assert bool(harness.said(caplog)) == (name in WARNINGS)


@pytest.mark.slow
@pytest.mark.parametrize("name", changed_training.INSTEAD)
def test_documented_replacements_train_like_stock(name):
    case, instead = changed_training.INSTEAD[name]
    ours, stock = changed_training.run(ee, **instead)["table"], of_stock()[case]["table"]
    updated = [0, 1, 3] if name == "weight_decay_factor" else [0, 1, 2, 3, 4]
    np.testing.assert_allclose(np.take(ours, updated), np.take(stock, updated), rtol=1e-5)


@pytest.mark.slow
def test_weight_decay_factor_does_not_change_untouched_rows():
    assert changed_training.run(ee, **changed_training.INSTEAD["weight_decay_factor"][1])["table"][
        2::2
    ] == [1.0, 1.0]
    np.testing.assert_allclose(of_stock()["scope regularizer"]["table"][2::2], 0.81, rtol=1e-5)
