# SPDX-License-Identifier: Apache-2.0
"""Tables that are served as float16: NumPy rounds those of the checkpoint for comparison."""

import os
import pathlib

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
    return harness.configured(
        model_fn,
        spec,
        config,
        batch_size,
        use_tpu=device is not None,
        params={"weighted": not columns},
    )


def input_fn(params):
    features = {"x": harness.sparse([[1, 2], [3, 4]])}
    if params["weighted"]:
        features["x_weights"] = harness.sparse([[1.0, 2.0], [3.0, 4.0]])
    return tf.data.Dataset.from_tensors((features, tf.zeros([2]))).repeat()


def receiver():
    ids = tf.compat.v1.placeholder(tf.int64, [None, None])
    weights = tf.compat.v1.placeholder(tf.float32, [None, None])
    where = tf.where(ids >= 0)
    shape = tf.shape(ids, out_type=tf.int64)
    sparse = [tf.sparse.SparseTensor(where, tf.gather_nd(a, where), shape) for a in (ids, weights)]
    return ee.export.ServingInputReceiver(
        dict(zip(["x", "x_weights"], sparse, strict=True)), {"ids": ids, "weights": weights}
    )


def exported(estimator, folder):
    path = estimator.export_saved_model(str(folder), receiver).decode()
    return path, tf.saved_model.load(path).signatures["serving_default"]


def size(path):
    return sum(file.stat().st_size for file in pathlib.Path(path, "variables").iterdir())


def combined(table, combiner, weighted):
    rows = []
    for ids, weights in zip(IDS, WEIGHTS, strict=True):
        given = weights if weighted else np.ones(len(ids))
        pairs = [pair for pair in zip(ids, given, strict=True) if pair[0] >= 0]
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


def test_a_table_in_slices_under_a_name_that_an_op_has(tmp_path):
    """TensorFlow reads no float16 in slices, as a cluster saves tables."""
    values = initial(2)
    path = str(tmp_path / "sliced" / "model.ckpt-1")
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        tf.compat.v1.get_variable(
            "t",
            [ROWS, DIMENSION],
            initializer=lambda shape, dtype, partition_info: tf.constant(
                values[partition_info.var_offset[0] :][: shape[0]]
            ),
            partitioner=tf.compat.v1.fixed_size_partitioner(3),
        )
        tf.compat.v1.get_variable("scale", [1], initializer=tf.compat.v1.ones_initializer())
        tf.compat.v1.train.create_global_step()
        session.run(tf.compat.v1.global_variables_initializer())
        tf.compat.v1.train.Saver(sharded=True).save(session, path, write_meta_graph=False)

    def receive():
        tf.no_op("t")
        return receiver()

    estimator = make(tmp_path, by_config())
    path = estimator.export_saved_model(str(tmp_path / "out"), receive, checkpoint_path=path)
    serve = tf.saved_model.load(path.decode()).signatures["serving_default"]
    got = serve(ids=tf.constant(IDS, tf.int64), weights=tf.constant(WEIGHTS))["looked_up"]
    wanted = combined(np.float32(np.float16(values)), "sqrtn", True)
    np.testing.assert_allclose(got, wanted, 1e-6, 1e-6)


def test_graphs_of_evaluation_and_prediction_share_the_tables_and_none_trains(tmp_path):
    make(tmp_path, by_config()).train(input_fn, steps=1)
    estimator = make(tmp_path, by_config())

    def labelled():
        received = receiver()
        labels = tf.compat.v1.placeholder(tf.float32, [None])
        return tf.estimator.export.SupervisedInputReceiver(
            received.features, labels, {**received.receiver_tensors, "labels": labels}
        )

    receivers = {ee.ModeKeys.EVAL: labelled, ee.ModeKeys.PREDICT: receiver}
    path = estimator.experimental_export_all_saved_models(str(tmp_path / "two"), receivers)
    table = checkpoint.table(estimator.model_dir, "t")
    wanted = combined(np.float32(np.float16(table)), "sqrtn", True)
    serve = tf.saved_model.load(path.decode(), ["serve"]).signatures["serving_default"]
    got = serve(ids=tf.constant(IDS, tf.int64), weights=tf.constant(WEIGHTS))
    np.testing.assert_allclose(got["looked_up"], wanted, 1e-6, 1e-6)
    loaded = tf.saved_model.load(path.decode(), ["eval"]).signatures["eval"]
    got = loaded(ids=tf.constant(IDS, tf.int64), weights=tf.constant(WEIGHTS), labels=tf.zeros([2]))
    np.testing.assert_allclose(got["loss"], np.mean(wanted * 1.00001), 1e-5)
    message = harness.refusal(
        ValueError,
        estimator.experimental_export_all_saved_models,
        str(tmp_path / "three"),
        {ee.ModeKeys.TRAIN: labelled},
    )
    assert message == (
        "TPUConfig: serving_tables='float16' exports no graph that trains: optimizers need "
        "float32 tables. Export without ModeKeys.TRAIN, or leave serving_tables out."
    )


def test_float32_is_the_default_and_changes_no_node(tmp_path):
    make(tmp_path, by_config()).train(input_fn, steps=1)
    graphs = {}
    for serving in (None, "float32", "float16"):
        path, _ = exported(make(tmp_path, by_config(), serving), tmp_path / str(serving))
        saved = tf.compat.v1.SavedModel.FromString(
            pathlib.Path(path, "saved_model.pb").read_bytes()
        )
        graphs[serving] = saved.meta_graphs[0].graph_def.SerializeToString(deterministic=True)
    assert graphs[None] == graphs["float32"] != graphs["float16"]


@pytest.mark.parametrize("largest", [65504.0, 65505.0])
def test_the_largest_number(largest, tmp_path):
    table = np.zeros([ROWS, DIMENSION], np.float32)
    table[700, 3], table[701, 0], table[702, 1] = -largest, np.inf, np.nan
    spec = harness.table_spec(ROWS, DIMENSION, ee.AdagradParameters(0.1), table)
    estimator = make(tmp_path, spec)
    estimator.train(input_fn, steps=1)
    out = str(tmp_path / "cli")
    command = ["export", estimator.model_dir, out, "--to=saved-model", "--precision=float16"]
    if largest == 65504.0:
        assert main_lib.main([*command, "--table=t"]) == 0
        path, _ = exported(estimator, tmp_path / "out")
        for folder, name in ((path, "t"), (out, "kept/0/.ATTRIBUTES/VARIABLE_VALUE")):
            reader = tf.train.load_checkpoint(f"{folder}/variables/variables")
            np.testing.assert_array_equal(reader.get_tensor(name)[700:703], table[700:703])
        return
    ending = (
        " cannot write table 't': row 700 has -65505, and float16 ends at 65504. Write the tables "
        "as float32."
    )
    message = harness.refusal(ValueError, exported, estimator, tmp_path / "out")
    assert message == "TPUConfig: serving_tables='float16'" + ending
    message = harness.refusal(
        ValueError, checkpoint.export, estimator.model_dir, out, "saved-model", precision="float16"
    )
    assert message == "export: precision='float16'" + ending
    assert not os.path.exists(out)


def test_the_command_writes_float16(tmp_path, monkeypatch):
    table = initial(3)
    path = str(tmp_path / "model.ckpt-1")
    tf.raw_ops.SaveV2(prefix=path, tensor_names=["t"], shape_and_slices=[""], tensors=[table])
    monkeypatch.setattr(values, "PIECE_BYTES", 100 * DIMENSION * 4)
    for precision in ("float16", "float32"):
        out = str(tmp_path / precision)
        arguments = [path, out, "--to=saved-model", f"--precision={precision}"]
        assert main_lib.main(["export", *arguments]) == 0
        served = tf.saved_model.load(out).signatures["t"]
        got = served(ids=tf.range(ROWS, dtype=tf.int64))["embeddings"]
        assert got.dtype == tf.float32
        np.testing.assert_array_equal(got, table.astype(precision).astype(np.float32))
    assert size(tmp_path / "float16") < 0.51 * size(tmp_path / "float32")
    error = np.abs(np.float64(table.astype(np.float16)) - table)
    normal = np.abs(table) >= 2.0**-14
    assert 2.0**-12 < (error / np.abs(table))[normal].max() <= 2.0**-11
    assert 2.0**-26 < error[~normal].max() <= 2.0**-25


def test_other_precisions_and_formats_are_refused(tmp_path, capsys):
    assert harness.refusal(ValueError, ee.TPUConfig, serving_tables="int8") == (
        "TPUConfig: serving_tables must be 'float32' or 'float16'; got 'int8'."
    )
    refused = (
        ("saved-model", "int8", "export: precision must be 'float32' or 'float16'; got 'int8'."),
        ("npz", "float16", "export: npz has no precision 'float16'; only saved-model has it."),
    )
    for to, precision, message in refused:
        arguments = (MOD, str(tmp_path / "out"), to)
        assert message == harness.refusal(
            ValueError, checkpoint.export, *arguments, precision=precision
        )
    like = ["export", MOD, "--table=words", "--like=1", "--precision=float16"]
    assert main_lib.main(like) == 2
    assert "--like shows rows: it takes no --precision." in capsys.readouterr().err
