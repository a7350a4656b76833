"""A checkpoint does not depend on the number of shards or on the partition strategy."""

import harness
import numpy as np
import pytest
import tensorflow as tf

import estimator_emb as ee
import feature_columns as fc
from estimator_emb.engine.tables import partition

ROWS = {"one": 1, "few": 2, "many": 11, "dealt": 1500}


def spec_of(strategy="div"):
    tables = {}
    for name, rows in ROWS.items():
        initial = tf.compat.v1.constant_initializer(harness.normal(rows, rows, 2))
        tables[name] = ee.TableConfig(rows, 2, initial)
    return harness.tables_spec(tables, ee.AdamParameters(0.1), partition_strategy=strategy)


def make(model_dir, strategy="div", device=None):
    model_fn = harness.gradient_model_fn(list(ROWS))
    return harness.estimator(model_fn, spec_of(strategy), model_dir, batch_size=6, device=device)


def batches(steps):
    def ids(rng, key, rows):
        return harness.sparse(rng.integers(rows, size=[6, 2]))

    return harness.random_batches(steps, spec_of(), 6, steps, ids)


@pytest.mark.slow
@pytest.mark.parametrize("device", [None, "host"])
def test_training_goes_on_under_another_shard_count_and_strategy(
    device, tmp_path, in_shards, monkeypatch
):
    """A training that changes them every two steps equals a training of tables in one piece.

    Tables of fewer than `few_rows` rows get shards of equal size, as all tables got from earlier
    versions. The largest table here has 1,500 rows.
    """
    data = batches(8)
    whole = make(tmp_path / "whole", device=device)
    whole.train(harness.input_fn_of(data), steps=8)
    moved = tmp_path / "moved"
    for step, shards, strategy, few_rows in (
        (2, 1, "div", 1000),
        (4, 3, "mod", 1000),
        (6, 2, "div", 10_000),
        (8, 4, "div", 1000),
    ):
        in_shards(shards)
        monkeypatch.setattr(partition, "FEW_ROWS", few_rows)
        estimator = make(moved, strategy, device)
        estimator.train(harness.input_fn_of(data[step - 2 : step]), steps=2)
        got = harness.saved(moved, step)
        slots = ("", "/Adam/m", "/Adam/v")
        assert {name: value.shape for name, value in got.items()} == {
            "global_step": (),
            **{f"{name}{slot}": (rows, 2) for name, rows in ROWS.items() for slot in slots},
        }
        harness.assert_same(got, harness.saved(tmp_path / "whole", step), 1e-6, 1e-6)
    in_shards(5)
    data = batches(1)
    predictions = list(make(moved, device=device).predict(harness.input_fn_of(data)))
    expected = list(whole.predict(harness.input_fn_of(data)))
    for got, want in zip(predictions, expected, strict=True):
        harness.assert_same(got, want, 1e-6, 1e-6)
    metrics = make(moved, device=device).evaluate(harness.input_fn_of(data), steps=1)
    expected = whole.evaluate(harness.input_fn_of(data), steps=1)
    np.testing.assert_allclose(metrics["loss"], expected["loss"], rtol=1e-5)


@pytest.mark.parametrize("shards", [harness.slow(1), 2])
def test_scope_partitioner_does_not_divide_tables(shards, tmp_path, in_shards):
    """A scope's partitioner divides the model's variables, and leaves the tables to `in_shards`."""
    initializer = tf.compat.v1.constant_initializer(np.arange(10.0).reshape(5, 2))
    ids = fc.categorical_column_with_identity("x", 5)
    column, names = fc.embedding_column(ids, 2, initializer=initializer), []

    def model_fn(features, labels, mode, params):
        partitioner = tf.compat.v1.fixed_size_partitioner(2)
        tf.compat.v1.get_variable_scope().set_partitioner(partitioner)
        with tf.compat.v1.variable_scope("m", partitioner=partitioner):
            hidden = fc.input_layer(features, [column])
            output = tf.compat.v1.layers.dense(hidden, 1)
        names.extend(one.op.name for one in tf.compat.v1.trainable_variables())
        return harness.minimized(mode, tf.reduce_sum(output), 0.1)

    in_shards(shards)
    spec = ee.EmbeddingConfigSpec([column], ee.AdagradParameters(0.1))
    estimator = harness.estimator(model_fn, spec, tmp_path, batch_size=2)
    batch = {"x": np.array([1, 4])}, np.zeros(2, np.float32)
    estimator.train(harness.input_fn_of([batch]), steps=1)
    assert {"m/dense/kernel/part_0", "m/dense/kernel/part_1"} <= set(names)
    # If the partitioner divided a table, the parts would refuse the table's initial values.
    before, after = harness.saved(tmp_path, 0), harness.saved(tmp_path, 1)
    table = "m/input_layer/x_embedding/embedding_weights"
    assert {table, f"{table}/Adagrad", "m/dense/kernel", "global_step"} <= set(after)
    # Adagrad's first step with rate 0.1 and accumulator 0.1. The loss sums rows @ kernel, so the
    # gradient of each of the two rows is the kernel.
    g = np.tile(before["m/dense/kernel"][:, 0], [2, 1])
    want = np.arange(10.0).reshape(5, 2)
    want[[1, 4]] -= 0.1 * g / np.sqrt(0.1 + g * g)
    np.testing.assert_allclose(after[table], want, rtol=1e-5)
