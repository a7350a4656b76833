# SPDX-License-Identifier: Apache-2.0
"""Tables that are served as float16: NumPy rounds those of the checkpoint for comparison."""

import json
import os
import pathlib
import subprocess
import sys

import harness
import numpy as np
import pytest
import tensorflow as tf

import estimator_emb as ee
import feature_columns as fc
from estimator_emb import checkpoint
from estimator_emb.checkpoints.files import values
from estimator_emb.cli import main as main_lib

ROWS, DIMENSION = 1000, 64
IDS = [[5, 997, 0], [3, 3, -1]]
WEIGHTS = [[1.0, 2.0, 0.5], [4.0, 0.25, 0.0]]
WAYS = {"host": {}, "emulated": {"device": "host", "num_shards": 2}}
MOD = str(pathlib.Path(__file__).parents[1] / "data" / "tpu_checkpoints" / "mod")


def initial(seed):
    # Of every magnitude, subnormal numbers of float16 among them.
    random = np.random.default_rng(seed)
    sizes = 10.0 ** random.uniform(-9, 3, [ROWS, DIMENSION])
    return np.float32(sizes * random.choice([-1, 1], [ROWS, DIMENSION]))


def by_config():
    return harness.table_spec(
        ROWS,
        DIMENSION,
        ee.AdagradParameters(0.1),
        initial(1),
        "sqrtn",
        {"weight_key": "x_weights"},
    )


def by_columns(combiner):
    category = fc.categorical_column_with_identity("x", ROWS)
    column = fc.embedding_column(
        category, DIMENSION, combiner=combiner, initializer=harness.initializer(initial(1))
    )
    return ee.EmbeddingConfigSpec(
        feature_columns=[column], optimization_parameters=ee.AdagradParameters(0.1)
    )


def make(folder, spec, serving="float16", device=None, num_shards=None, batch_size=2):
    columns = spec.feature_columns

    def model_fn(features, labels, mode, params):
        looked_up = fc.DenseFeatures(columns)(features) if columns else features["x"]
        scale = tf.compat.v1.get_variable(
            "scale", [1], initializer=tf.compat.v1.constant_initializer(1.00001)
        )
        looked_up = tf.reshape(looked_up, [-1, DIMENSION])
        output = looked_up * scale
        if mode == ee.ModeKeys.PREDICT:
            return harness.served(mode, looked_up=looked_up, output=output)
        return harness.minimized(mode, tf.reduce_mean(output), 0.0)

    config = ee.RunConfig(
        model_dir=str(folder / "model"),
        save_summary_steps=None,
        tpu_config=ee.TPUConfig(1, device=device, num_shards=num_shards, serving_tables=serving),
    )
    return harness.configured(model_fn, spec, config, batch_size, use_tpu=device is not None)


def features():
    return {
        "x": tf.sparse.from_dense(tf.constant(IDS, tf.int64) + 1),
        "x_weights": tf.sparse.from_dense(tf.constant(WEIGHTS)),
    }


def input_fn(params):
    found = features()
    found["x"] = tf.sparse.map_values(lambda ids: ids - 1, found["x"])
    return tf.data.Dataset.from_tensors((found, tf.zeros([2]))).repeat()


def receiver():
    ids = tf.compat.v1.placeholder(tf.int64, [None, None])
    weights = tf.compat.v1.placeholder(tf.float32, [None, None])
    where = tf.where(ids >= 0)
    shape = tf.shape(ids, out_type=tf.int64)
    sparse = [tf.sparse.SparseTensor(where, tf.gather_nd(a, where), shape) for a in (ids, weights)]
    return ee.export.ServingInputReceiver(
        dict(zip(["x", "x_weights"], sparse)), {"ids": ids, "weights": weights}
    )


def exported(estimator, folder):
    path = estimator.export_saved_model(str(folder), receiver).decode()
    return path, tf.saved_model.load(path).signatures["serving_default"]


def size(path):
    return sum(file.stat().st_size for file in pathlib.Path(path, "variables").iterdir())


def combined(table, combiner, weighted):
    rows = []
    for ids, weights in zip(IDS, WEIGHTS, strict=True):
        pairs = [(id, weight if weighted else 1.0) for id, weight in zip(ids, weights) if id >= 0]
        factors = np.float64([weight for _, weight in pairs])
        total = factors @ np.float64(table[[id for id, _ in pairs]])
        divisor = {
            "sum": 1.0,
            "mean": factors.sum(),
            "sqrtn": np.sqrt((factors**2).sum()),
        }[combiner]
        rows.append(total / divisor)
    return np.array(rows)


SPECS = {
    "config dict": (by_config, "sqrtn", True),
    "column, mean": (lambda: by_columns("mean"), "mean", False),
    "column, sum": (lambda: by_columns("sum"), "sum", False),
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", SPECS)
def test_an_export_serves_rounded_rows_at_half_the_size(name, way, tmp_path, monkeypatch):
    monkeypatch.setattr(values, "PIECE_BYTES", 100 * DIMENSION * 4)
    make_spec, combiner, weighted = SPECS[name]
    whole = make(tmp_path, make_spec(), "float32", **WAYS[way])
    whole.train(input_fn, steps=1)
    before = sorted(os.listdir(whole.model_dir))
    (name,) = checkpoint.tables(whole.model_dir)
    table = checkpoint.table(whole.model_dir, name)
    whole_path, _ = exported(whole, tmp_path / "float32")
    path, serve = exported(make(tmp_path, make_spec(), **WAYS[way]), tmp_path / "float16")
    assert sorted(os.listdir(whole.model_dir)) == before
    assert size(path) < 0.51 * size(whole_path)
    reader = tf.train.load_checkpoint(f"{path}/variables/variables")
    rounded = table.astype(np.float16)
    np.testing.assert_array_equal(reader.get_tensor(name), rounded)
    assert reader.get_variable_to_dtype_map()[name] == tf.float16
    assert not [one for one in reader.get_variable_to_shape_map() if "Adagrad" in one]
    got = serve(ids=tf.constant(IDS, tf.int64), weights=tf.constant(WEIGHTS))
    assert got["looked_up"].dtype == tf.float32
    wanted = combined(rounded.astype(np.float32), combiner, weighted)
    np.testing.assert_allclose(got["looked_up"], wanted, 1e-6, 1e-6)
    np.testing.assert_allclose(got["output"], wanted * 1.00001, 1e-6, 1e-6)
    assert np.abs(wanted - combined(table, combiner, weighted)).max() > 1e-3
