"""A lookup sorts ids to read the table's rows in order, and its update uses the same order."""

import os

import harness
import host_engine
import numpy as np
import pytest
import tensorflow as tf

import estimator_emb as ee

pytestmark = pytest.mark.usefixtures("native")  # Turns the native kernels on.

TABLES = max(2, os.cpu_count() or 1)
"""At least the number of threads. A single thread reads all of a table."""
BATCH = 90
DENSE, PLACES = 1, 2
"""Forms of a feature in the native ops: a matrix of ids, or ids with their places in a matrix."""


def lists(rng, rows, width=9):
    """Returns lists of ids with many repeats, including an empty list and a long list."""
    ids = [list((rng.zipf(1.3, width) * 7919) % rows) for _ in range(BATCH)]
    ids[3], ids[4] = [], ids[4] * 4
    return ids


def features_of(rng, rows):
    """Returns the features of a table: sparse in any order, sparse with weights, and a matrix."""
    plain, weighted = (harness.sparse(lists(rng, rows)) for _ in range(2))
    order = rng.permutation(len(plain.values))
    plain = plain._replace(indices=plain.indices[order], values=plain.values[order])
    weights = weighted._replace(values=rng.integers(-2, 4, len(weighted.values)).astype(np.float32))
    matrix = rng.integers(-1, rows, [BATCH, 8]).astype(np.int32)
    matrix[5] = -1
    return {"plain": plain, "weighted": weighted, "weights": weights, "matrix": matrix}


@pytest.mark.slow
@pytest.mark.parametrize(
    "rows, dimension, combiner, cores",
    [
        (20_000, 8, "mean", 1),
        (9_000, 16, "sqrtn", 1),
        (30_000, 5, "sum", 1),
        (9_000, 32, "mean", 4),
    ],
)
def test_a_step_in_order_equals_tensorflows_ops(rows, dimension, combiner, cores):
    """Trains tables with a feature of each form. With several cores, each has a dense batch."""
    rng = np.random.default_rng(rows)
    accumulated = cores == 1  # With 4 cores, the table is updated core by core.
    size = BATCH // cores * cores  # 90, or 88 on 4 cores.
    batch, of_feature = {}, {}
    for table in range(TABLES):
        of_features = features_of(rng, rows)
        if not accumulated:  # Each core gets its part of a dense batch.
            of_features = {"matrix": np.repeat(of_features["matrix"], 2, 0)[:size]}
        for name, value in of_features.items():
            batch[f"{name}{table}"] = value
            if name != "weights":
                of_feature[f"{name}{table}"] = ee.FeatureConfig(
                    f"t{table}", weight_key=f"weights{table}" if name == "weighted" else None
                )
    start = harness.initializer(harness.normal(rng, rows, dimension))
    table = ee.TableConfig(rows, dimension, start, combiner)
    adagrad = ee.AdagradParameters(0.1, use_gradient_accumulation=accumulated)
    spec = harness.tables_spec({f"t{number}": table for number in range(TABLES)}, adagrad)
    spec = spec._replace(feature_to_config_dict=of_feature)
    batches = [(batch, harness.random_gradients(rng, spec, size))] * 2
    host_engine.assert_same_on_both_kernels(spec, batches, atol=5e-6, num_cores=cores)


def order_of_checked_step(native, rows, dimension, ids, limit=0, sparse=False):
    """Returns the order that a lookup wrote for the first table's ids, empty if it wrote none.

    Checks the activations, and that the update subtracts 1 for each occurrence of an id. `limit` is
    the length of the feature's sequences, or 0 for sums.
    """
    start = harness.normal(1, rows, dimension)
    fed, form = ids, {"form": DENSE, "limit": limit}
    if sparse:
        places, shape = np.argwhere(ids >= 0).astype(np.int64), np.array(ids.shape, np.int64)
        fed, form = ids.reshape(-1), {"form": PLACES, "places": [places], "shapes": [shape]}
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        tables = [
            tf.compat.v1.get_variable(f"t{table}", initializer=start, use_resource=True)
            for table in range(TABLES)
        ]
        features = host_engine.fields_of_features(TABLES, tf.constant(fed), **form)
        activations, orders, update = host_engine.looked_up_and_descended(
            native, tables, features, orders=TABLES
        )
        session.run(tf.compat.v1.global_variables_initializer())
        order, activation, _ = session.run([orders[0], activations[0], update])
        trained = session.run(tables[0])
    want = start[ids] if limit else start[ids].astype(np.float64).sum(1)
    np.testing.assert_allclose(activation, want, rtol=1e-5, atol=1e-5)
    counts = np.bincount(ids.reshape(-1), minlength=rows)
    np.testing.assert_allclose(trained, start - counts[:, None], rtol=1e-5, atol=1e-5)
    return order


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("dtype", [np.int32, np.int64])
def test_the_order_of_ids_is_written_and_followed(native, sparse, dtype):
    ids = np.random.default_rng(2).zipf(1.3, [BATCH, 14]) * 7919 % 20_000
    order = order_of_checked_step(native, 20_000, 8, ids.astype(dtype), sparse=sparse)
    # The number of ids, then a key for each id, with the id in its upper half.
    number, keys = order[:8].view(np.int64)[0], order[8 : 8 + 8 * ids.size].view(np.uint64)
    assert number == ids.size
    np.testing.assert_array_equal(keys >> 32, np.sort(ids.reshape(-1)))


@pytest.mark.parametrize(
    "why, rows, shape, limit",
    [
        ("one id in each sample", 20_000, [5_000, 1], 0),
        ("90 * 20 ids are less than 1/16 of the rows", 30_000, [90, 20], 0),
        ("the table, 2,000 * 8 floats, is in the cache", 2_000, [90, 20], 0),
        ("the sums, 40,000 * 8 floats, exceed the cache", 20_000, [40_000, 4], 0),
        ("sequences are not summed", 20_000, [90, 20], 20),
    ],
)
def test_no_order_is_made_if_it_would_take_longer(native, why, rows, shape, limit):
    ids = np.random.default_rng(3).integers(0, rows, shape)
    assert order_of_checked_step(native, rows, 8, ids, limit).size == 0, why
