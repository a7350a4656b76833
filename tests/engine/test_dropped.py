"""Bad ids are dropped and counted if the program asks for it."""

import logging

import harness
import numpy as np
import pytest
import tensorflow as tf

import estimator_emb as ee
from estimator_emb.engine import bad_input, inputs, lookup
from estimator_emb.engine.dropped import DroppedIds
from estimator_emb.spec import options
from estimator_emb.spec.config import TableConfig
from estimator_emb.spec.resolved import Feature, Table

ROWS = np.arange(10, dtype=np.float32).reshape(5, 2) + 1


SPARSE = {
    "x": tf.SparseTensor(*harness.sparse([[1, 7, 2], [-1], [3]])),
    "w": tf.SparseTensor(*harness.sparse([[1.0, np.nan, 3.0], [5.0], [2.0]], np.float32)),
}


@pytest.mark.parametrize(
    "combiner, how, features, want",
    [
        (None, {}, {"x": [4, 5, -1]}, [ROWS[4], [0, 0], [0, 0]]),
        ("mean", {}, {"x": [[4], [2**40], [-3]]}, [ROWS[4], [0, 0], [0, 0]]),
        ("mean", {"weight_key": "w"}, SPARSE, [ROWS[1] / 4 + ROWS[2] * 0.75, [0, 0], ROWS[3]]),
        (
            "sum",
            {"max_sequence_length": 2},
            SPARSE,
            [[ROWS[1], [0, 0]], [[0, 0]] * 2, [ROWS[3], [0, 0]]],
        ),
    ],
)
def test_a_dropped_id_gives_zeros(combiner, how, features, want):
    feature = Feature("x", **how)
    table = Table("t", TableConfig(5, 2, combiner=combiner), (feature,))
    given = {
        key: tf.convert_to_tensor(one) if isinstance(one, list) else one
        for key, one in features.items()
    }
    source = inputs.source_of(table, feature, given, DroppedIds(count=False).drop)
    rows, (occurrences,) = lookup.distinct(bad_input.checked([source.ids])[0], combiner)
    assert not set(rows.numpy()) - set(range(5))
    got = lookup.combine(tf.gather(ROWS, rows), occurrences)
    np.testing.assert_allclose(got, want)


def make(model_dir, bad_ids):
    table = ee.TableConfig(5, 2, harness.initializer(ROWS), "sum")
    sgd = ee.StochasticGradientDescentParameters(0.5)
    spec = harness.tables_spec(dict.fromkeys("xy", table), sgd)
    model_fn = harness.gradient_model_fn(["x", "y"])
    run, tpu = {"save_summary_steps": 1}, {"bad_ids": bad_ids}
    return harness.estimator(model_fn, spec, model_dir, 2, run=run, tpu=tpu)


def batch(x, y):
    gradient = np.array([[1, 2], [4, 8]], np.float32)
    return {"x": np.array(x), "y": np.array(y)}, {"x": gradient, "y": gradient}


BATCHES = harness.input_fn_of([batch([1, 5], [0, 1]), batch([-7, 99], [3, 5])])


def test_all_calls_drop_and_count_bad_ids(tmp_path, caplog):
    caplog.set_level(logging.INFO, "estimator_emb")
    estimator = make(tmp_path, "drop")
    estimator.train(BATCHES, steps=2)
    want = {"x": ROWS.copy(), "y": ROWS.copy()}
    want["x"][1] -= [0.5, 1]
    want["y"][[0, 1, 3]] -= [[0.5, 1], [2, 4], [0.5, 1]]
    got = harness.saved(tmp_path, 2)
    harness.same(got, {"global_step": 2, **want}, 1e-7, 0.0)
    of_steps = harness.summaries(tmp_path)
    counted = [[of_steps[step][f"bad_ids/{name}"] for name in "xy"] for step in (1, 2)]
    assert counted == [[1, 0], [3, 1]]
    message = "Ids outside their vocabulary were left out: 3 of table x, 1 of table y."
    assert [line for line in harness.said(caplog) if "left out" in line] == [message]

    caplog.clear()
    x = np.array([want["x"][1], [0, 0], [0, 0], [0, 0]])
    y = np.array([*want["y"][[0, 1, 3]], [0, 0]])
    metrics = estimator.evaluate(BATCHES, steps=2)
    gradient = np.array([[1, 2], [4, 8]] * 2)
    np.testing.assert_allclose(metrics["loss"], np.sum((x + y) * gradient) / 2)
    predictions = list(estimator.predict(BATCHES))
    np.testing.assert_allclose([one["x"] for one in predictions], x)
    np.testing.assert_allclose([one["y"] for one in predictions], y)
    assert [line for line in harness.said(caplog) if "left out" in line] == [message] * 2


def test_an_exported_model_drops_bad_ids(tmp_path):
    estimator = make(tmp_path / "model", "drop")
    estimator.train(BATCHES, steps=1)

    receive = harness.receiver_of(x=(tf.int64, [None]), y=(tf.int64, [None]))
    serve = harness.exported(estimator, tmp_path / "export", receive)
    served = serve(x=tf.constant([2, 5], tf.int64), y=tf.constant([-1, 3], tf.int64))
    np.testing.assert_allclose(served["x"], [ROWS[2], [0, 0]])
    np.testing.assert_allclose(served["y"], [[0, 0], ROWS[3]])


def test_the_environment_turns_dropping_on(tmp_path, monkeypatch):
    monkeypatch.setenv("ESTIMATOR_EMB_BAD_IDS", "drop")
    make(tmp_path, None).train(BATCHES, steps=1)
    asked = [options.asked_bad_ids(make(tmp_path, given).config) for given in (None, "error")]
    assert asked == ["drop", "error"]
    monkeypatch.setenv("ESTIMATOR_EMB_BAD_IDS", "")
    assert options.asked_bad_ids(make(tmp_path, None).config) == "error"
