"""Tables served as float16, compared with the checkpoint's tables rounded by NumPy."""

import os
import pathlib

import harness
import numpy as np
import pytest
import saved_values
import tensorflow as tf
from tensorflow.core.protobuf import saved_model_pb2
from tensorflow_estimator.python.estimator.export import export

import estimator_emb as ee
import feature_columns as fc
from estimator_emb import checkpoint
from estimator_emb.checkpoints.files import checkpoint_reader
from estimator_emb.cli import main as main_lib

ROWS, DIMENSION = 1000, 64
IDS = np.array([[5, 997, 0], [3, 3, -1]])
WEIGHTS = np.float32([[1.0, 2.0, 0.5], [4.0, 0.25, 0.0]])
WAYS = {"host": {}, "emulated": {"device": "host", "num_shards": 2}}
v1 = tf.compat.v1


def drawn():
    # All magnitudes, including subnormal numbers of float16.
    random = np.random.default_rng(1)
    sizes = 10.0 ** random.uniform(-9, 3, [ROWS, DIMENSION])
    return np.float32(sizes * random.choice([-1, 1], [ROWS, DIMENSION]))


def by_config():
    optimizer, weighted = ee.AdagradParameters(0.1), {"weight_key": "x_weights"}
    return harness.table_spec(ROWS, DIMENSION, optimizer, drawn(), "sqrtn", weighted)


def by_column():
    category = fc.categorical_column_with_identity("x", ROWS)
    initial = harness.initializer(drawn())
    column = fc.embedding_column(category, DIMENSION, combiner="mean", initializer=initial)
    return ee.EmbeddingConfigSpec([column], ee.AdagradParameters(0.1))


def make(folder, spec, serving="float16", device=None, num_shards=None):
    columns = spec.feature_columns

    def model_fn(features, labels, mode, params):
        looked_up = fc.DenseFeatures(columns)(features) if columns else features["x"]
        scale = v1.get_variable("scale", [1], initializer=v1.ones_initializer())
        output = looked_up * scale
        if mode == ee.ModeKeys.PREDICT:
            return harness.served(mode, output=output)
        return harness.minimized(mode, tf.reduce_mean(output), 0.0)

    def input_fn(params):
        features = {"x": harness.sparse([[1, 2], [3, 4]])}
        if not columns:
            features["x_weights"] = harness.sparse([[1, 2], [3, 4]], np.float32)
        return harness.dataset([(features, np.zeros(2, np.float32))])

    tpu, path = {"serving_tables": serving}, folder / "model"
    made = harness.estimator(model_fn, spec, path, 2, device, num_shards, run={}, tpu=tpu)
    if not made.latest_checkpoint():
        made.train(input_fn, steps=1)
    return made


def receive():
    ids = v1.placeholder(tf.int64, [None, None])
    weights = v1.placeholder(tf.float32, [None, None])
    where, shape = tf.where(ids >= 0), tf.shape(ids, out_type=tf.int64)
    features = {
        "x": tf.sparse.SparseTensor(where, tf.gather_nd(ids, where), shape),
        "x_weights": tf.sparse.SparseTensor(where, tf.gather_nd(weights, where), shape),
    }
    return ee.export.ServingInputReceiver(features, {"ids": ids, "weights": weights})


def check_served(path, table, combiner="sqrtn", tag="serve", **labels):
    """Serves a SavedModel with plain TensorFlow, and compares with rows rounded by NumPy."""
    rows = []
    for ids, given in zip(IDS, WEIGHTS, strict=True):
        factors = np.float64(given[ids >= 0]) if combiner == "sqrtn" else np.ones(sum(ids >= 0))
        divisor = np.sqrt(factors @ factors) if combiner == "sqrtn" else len(factors)
        rows.append(factors @ table.astype(np.float16).astype(np.float32)[ids[ids >= 0]] / divisor)
    serve = tf.saved_model.load(path, [tag]).signatures["serving_default" if not labels else tag]
    got = serve(ids=tf.constant(IDS), weights=tf.constant(WEIGHTS), **labels)
    assert all(one.dtype == tf.float32 for one in got.values())
    if labels:
        np.testing.assert_allclose(got["loss"], np.mean(rows), 1e-6)
    else:
        np.testing.assert_allclose(got["output"], rows, 1e-6, 1e-6)


def size(path):
    return sum(file.stat().st_size for file in pathlib.Path(path, "variables").iterdir())


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """Returns the folder of a trained model."""
    folder = tmp_path_factory.mktemp("float16")
    make(folder, by_config())
    return folder


@pytest.mark.fast(1)
@pytest.mark.parametrize(
    "spec, combiner, way", [(by_config, "sqrtn", "host"), (by_column, "mean", "emulated")]
)
def test_an_export_serves_rounded_rows_at_half_the_size(spec, combiner, way, tmp_path, monkeypatch):
    monkeypatch.setattr(checkpoint_reader, "PIECE_BYTES", 100 * DIMENSION * 4)
    whole = make(tmp_path, spec(), "float32", **WAYS[way])
    before = sorted(os.listdir(whole.model_dir))
    (name,) = checkpoint.tables(whole.model_dir)
    table = checkpoint.table(whole.model_dir, name)
    whole_path = whole.export_saved_model(str(tmp_path / "float32"), receive).decode()
    made = make(tmp_path, spec(), **WAYS[way])
    path = made.export_saved_model(str(tmp_path / "float16"), receive).decode()
    check_served(path, table, combiner)
    assert sorted(os.listdir(whole.model_dir)) == before
    assert size(path) < 0.51 * size(whole_path)
    held = tf.train.load_checkpoint(f"{path}/variables/variables")
    np.testing.assert_array_equal(held.get_tensor(name), table.astype(np.float16), strict=True)
    assert sorted(held.get_variable_to_shape_map()) == sorted(["global_step", "scale", name])


def test_exports_a_table_saved_in_slices_with_the_name_of_an_op(trained, tmp_path):
    """A cluster saves tables in slices, but TensorFlow cannot read float16 in slices."""
    others = {"scale": np.float32([1.0]), "global_step": np.int64(1)}
    path = saved_values.write(tmp_path / "model.ckpt-1", {"t": drawn(), **others}, slices=300)

    def with_op():
        tf.no_op("t")
        return receive()

    made = make(trained, by_config())
    exported = made.export_saved_model(str(tmp_path / "out"), with_op, checkpoint_path=path)
    check_served(exported.decode(), drawn())


@pytest.mark.slow
def test_graphs_of_evaluation_and_prediction_share_the_tables_and_none_trains(trained, tmp_path):
    made = make(trained, by_config())

    def labelled():
        received = receive()
        labels = v1.placeholder(tf.float32, [None])
        given = {**received.receiver_tensors, "labels": labels}
        return export.SupervisedInputReceiver(received.features, labels, given)

    receivers = {ee.ModeKeys.EVAL: labelled, ee.ModeKeys.PREDICT: receive}
    path = made.experimental_export_all_saved_models(str(tmp_path / "two"), receivers).decode()
    table = checkpoint.table(made.model_dir, "t")
    check_served(path, table)
    check_served(path, table, tag="eval", labels=tf.zeros([2]))
    call, out = made.experimental_export_all_saved_models, str(tmp_path / "three")
    assert harness.refusal(ValueError, call, out, {ee.ModeKeys.TRAIN: labelled}) == (
        "TPUConfig: serving_tables='float16' exports no graph that trains: optimizers need "
        "float32 tables. Export without ModeKeys.TRAIN, or leave serving_tables out."
    )


def test_float32_is_the_default_and_changes_no_node(trained, tmp_path):
    nodes = {}
    for serving in (None, "float32", "float16"):
        made = make(trained, by_config(), serving)
        path = made.export_saved_model(str(tmp_path / str(serving)), receive).decode()
        read = pathlib.Path(path, "saved_model.pb").read_bytes()
        graph = saved_model_pb2.SavedModel.FromString(read).meta_graphs[0].graph_def
        nodes[serving] = [(node.name, node.op, [*node.input]) for node in graph.node]
    assert nodes[None] == nodes["float32"] != nodes["float16"]


def test_the_command_writes_float16_with_the_error_that_the_page_states(tmp_path, monkeypatch):
    table, path = drawn(), str(tmp_path / "model.ckpt-1")
    tf.raw_ops.SaveV2(prefix=path, tensor_names=["t"], shape_and_slices=[""], tensors=[table])
    monkeypatch.setattr(checkpoint_reader, "PIECE_BYTES", 100 * DIMENSION * 4)
    for precision in ("float16", "float32"):
        arguments = [path, str(tmp_path / precision), "--to=saved-model"]
        assert main_lib.main(["export", *arguments, f"--precision={precision}"]) == 0
        served = tf.saved_model.load(str(tmp_path / precision)).signatures["t"]
        got = served(ids=tf.range(ROWS, dtype=tf.int64))["embeddings"].numpy()
        wanted = table.astype(precision).astype(np.float32)
        np.testing.assert_array_equal(got, wanted, strict=True)
        if precision == "float16":
            error, normal = np.abs(np.float64(got) - table), np.abs(table) >= 2.0**-14
    assert size(tmp_path / "float16") < 0.51 * size(tmp_path / "float32")
    assert 2.0**-12 < (error / np.abs(table))[normal].max() <= 2.0**-11
    assert 2.0**-26 < error[~normal].max() <= 2.0**-25


@pytest.mark.parametrize("largest", [65504.0, 65505.0])
def test_refuses_finite_numbers_beyond_float16(largest, trained, tmp_path):
    variables = harness.saved(trained / "model", 1)
    table = variables["t"]
    table[700, 3], table[701, 0], table[702, 1] = -largest, np.inf, np.nan
    path = saved_values.write(tmp_path / "model.ckpt-1", variables)
    made, out = make(trained, by_config()), str(tmp_path / "out")
    calls = {
        "TPUConfig: serving_tables='float16'": lambda: made.export_saved_model(
            out, receive, checkpoint_path=path
        ),
        "export: precision='float16'": lambda: checkpoint.export(
            path, f"{out}/own", "saved-model", precision="float16"
        ),
    }
    for owner, call in calls.items():
        if largest == 65504.0:
            call()
            continue
        assert harness.refusal(ValueError, call) == (
            f"{owner} cannot write table 't': row 700 has -65505, and float16 ends at 65504. Write "
            "the tables as float32."
        )
    assert os.path.exists(f"{out}/own") == (largest == 65504.0)


def test_other_precisions_and_formats_are_refused(tmp_path, capsys):
    assert harness.refusal(ValueError, ee.TPUConfig, serving_tables="int8") == (
        "TPUConfig: serving_tables must be 'float32' or 'float16'; got 'int8'."
    )
    call, path = checkpoint.export, str(tmp_path)
    assert harness.refusal(ValueError, call, path, path, "saved-model", precision="int8") == (
        "export: precision must be 'float32' or 'float16'; got 'int8'."
    )
    assert harness.refusal(ValueError, call, path, path, "npz", precision="float16") == (
        "export: npz has no precision 'float16'; only saved-model has it."
    )
    assert main_lib.main(["export", path, "--table=t", "--like=1", "--precision=float16"]) == 2
    assert "--like shows rows: it takes no --precision." in capsys.readouterr().err
