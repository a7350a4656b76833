"""Table variables have stock's names, for every way to use a column in `spellings`.

tests/data/stock_names.json has the names in the checkpoints of stock tensorflow-estimator. Most
tests of this file build graphs without training. `drawn_programs` also trains many of these ways.
"""

import contextlib
import json

import harness
import numpy as np
import processes
import pytest
import sampling
import spellings
import tensorflow as tf
import tpu_described
from tensorflow.python.feature_column import feature_column as fc_v1

import estimator_emb as ee
from estimator_emb import embedding
from estimator_emb.engine.tables.storage import saved_name

STOCK = processes.data("stock_names.json")
EVERY = spellings.every()
WRITTEN = [name for name in EVERY if "names" in STOCK[name]]
"""Ways by which stock writes a checkpoint, and no error."""
CORES = {"cpu": None, "one_core": 1, "eight_cores": 8}
"""Where an estimator runs -> number of cores of its emulated TPU."""


def program_of(spelling):
    """Returns the model_fn and the EmbeddingConfigSpec of a way to use columns."""
    by_key = spellings.columns_by_key(spelling)
    model_fn = spellings.model_fn_of(spelling, by_key, ee.TPUEstimatorSpec)
    return model_fn, ee.EmbeddingConfigSpec([*by_key.values()], ee.AdagradParameters(0.5))


def estimator(spelling, model_dir, place="cpu"):
    given = *program_of(spelling), model_dir, spellings.BATCH
    return harness.estimator(*given, num_shards=CORES[place], run=harness.SILENT)


def is_weights(name):
    leaf = name.rpartition("/")[2]
    return ("embedding_weights" in leaf or "shared_embedding" in leaf) and "kind" not in name


def variable_names(made, keys, mode, graph=None):
    """Returns the checkpoint names of the variables that an estimator builds, without a session."""
    with (graph or tf.Graph()).as_default():
        tf.compat.v1.train.get_or_create_global_step()
        input_fn = spellings.input_fn_of(keys)
        features, labels, _ = made._get_features_and_labels_from_input_fn(input_fn, mode)
        made._call_model_fn(features, labels, mode, made.config)
        return sorted(saved_name(one) for one in tf.compat.v1.global_variables())


def without_slots(names):
    return [name for name in names if not name.endswith("/Adagrad")]


def assert_names_equal_stock(way, place, mode, folder):
    made = estimator(EVERY[way], folder, place)
    names = STOCK[way]["names"] if mode == "train" else without_slots(STOCK[way]["names"])
    assert variable_names(made, EVERY[way].keys, mode) == names


@pytest.mark.parametrize("way", ["v2/nested", "v1/names_in_two_cases"])
def test_variable_names_of_two_ways_equal_stock(way, tmp_path):
    assert_names_equal_stock(way, "one_core", "train", tmp_path)
    assert_names_equal_stock(way, "cpu", "infer", tmp_path)


@pytest.mark.slow
@pytest.mark.sampled(16)
@pytest.mark.parametrize("index, way", enumerate(WRITTEN))
def test_variable_names_of_every_way_equal_stock(index, way, tmp_path):
    for place in ("cpu", ["one_core", "eight_cores"][index % 2]):
        for mode in ("train", "infer"):
            assert_names_equal_stock(way, place, mode, tmp_path)


def test_names_in_a_function_where_stock_fails(tmp_path):
    """Stock creates the variables in the function's graph, where optimizers do not find them."""
    assert STOCK["other/in_a_function"] == {"error": "ValueError: No variables to optimize."}
    spelling = EVERY["other/in_a_function"]
    names = STOCK["v2/one_layer"]["names"]  # The same layer, outside of a function.
    assert variable_names(estimator(spelling, tmp_path), spelling.keys, "train") == names


def test_a_layer_may_be_reused_in_a_second_graph(tmp_path):
    """Stock fails in the second graph, because the layer returns the first graph's variable."""
    layers = {}

    def program(features, by_key):
        if not layers:
            layers["all"] = spellings.layers()["v2"](list(by_key.values()))
        return layers["all"](features)

    made = estimator(spellings.Spelling(program), tmp_path)
    names = STOCK["v2/one_layer"]["names"]
    assert variable_names(made, spellings.KEYS, "train") == names
    assert variable_names(made, spellings.KEYS, "eval") == without_slots(names)


def test_features_used_by_key_get_tables_at_the_top_level(tmp_path):
    """Stock passes the ids to the program, and creates no variable."""

    def program(features, by_key):
        layer = spellings.layers()["v2"]([by_key["c1"]])
        return features["c0"], layer(features), features["c2"]

    spelling = spellings.Spelling(program)
    assert without_slots(variable_names(estimator(spelling, tmp_path), spelling.keys, "train")) == [
        "c0_embedding/embedding_weights",
        "c2_embedding/embedding_weights",
        "dense_features/c1_embedding/embedding_weights",
        "global_step",
    ]


def refused(program, tmp_path, keys=("c0", "c1"), place="cpu"):
    """Returns the error of a refused program. Checks that it created no variables and files."""
    made = estimator(spellings.Spelling(program, keys=keys), tmp_path / "model", place)
    graph = tf.Graph()
    message = harness.refusal(ValueError, variable_names, made, keys, "train", graph)
    created = graph.get_collection(tf.compat.v1.GraphKeys.GLOBAL_VARIABLES)
    assert not [one for one in created if is_weights(one.op.name) and one.shape.rank == 2]
    assert not (tmp_path / "model").exists()
    return message


def in_one_scope(features, by_key):
    builder = fc_v1._LazyBuilder(features)
    with tf.compat.v1.variable_scope("together", reuse=tf.compat.v1.AUTO_REUSE):
        return [column._get_dense_tensor(builder) for column in by_key.values()]


SHARED = "Tables 'tbl_c0' and 'tbl_c1' would share the variable 'together/embedding_weights'"


@pytest.mark.parametrize("place", ["cpu", "one_core"])
def test_refuses_two_tables_with_the_same_variable(place, tmp_path):
    assert refused(in_one_scope, tmp_path, place=place).startswith(SHARED)


@pytest.mark.fast(1)
@pytest.mark.parametrize("layer, place", [("v1", "cpu"), ("v2", "one_core")])
def test_refuses_a_column_in_two_layers(layer, place, tmp_path, assert_recorded):
    """Stock creates a table for each layer, but a TPU has only one table per column."""

    def program(features, by_key):
        make = spellings.layers()[layer]
        return [make([by_key[key]])(features) for key in ("c0", "c1", "c0")]

    said = refused(program, tmp_path, place=place)
    assert "model_fn uses the column of 'c0' in two layers, but its table has one variable" in said
    assert_recorded(said)


WITH_MODEL = "Table '{}' would share the variable '{}' with model_fn"


@pytest.mark.fast(1)
@pytest.mark.parametrize(
    "by, place", [("get_variable", "cpu"), ("Variable", "one_core"), ("reuse", "one_core")]
)
def test_refuses_a_dense_variable_with_the_name_of_a_table(by, place, tmp_path):
    name = "dense_features/c0_embedding/embedding_weights"

    def program(features, by_key):
        if by == "Variable":
            dense = tf.Variable(tf.zeros([1]), name=name)
        else:
            scope = tf.compat.v1.variable_scope("", reuse=tf.compat.v1.AUTO_REUSE)
            with scope if by == "reuse" else contextlib.nullcontext():
                dense = tf.compat.v1.get_variable(name, [1])
        inputs = spellings.layers()["v1"](list(by_key.values()))(features)
        return inputs + tf.reduce_sum(dense)

    assert refused(program, tmp_path, place=place).startswith(WITH_MODEL.format("tbl_c0", name))


def dict_estimator(names, model_dir, program=lambda: 0.0, optimizer=None):
    """Returns an estimator with tables of one shape from config dicts, and an input_fn."""
    tables = {name: ee.TableConfig(6, 4) for name in names}
    spec = harness.tables_spec(tables, optimizer or ee.AdagradParameters(0.5))

    def model_fn(features, labels, mode, params):
        loss = tf.add_n([tf.reduce_sum(features[name]) for name in names]) + program()
        return harness.minimized(mode, loss, optimizer=tf.compat.v1.train.AdagradOptimizer(0.1))

    made = harness.estimator(model_fn, spec, model_dir)
    features = {name: np.zeros([4, 1], np.int64) for name in names}
    return made, harness.input_fn_of([(features, np.zeros([4], np.float32))])


BOTH = "Tables 'a' and 'a/Adagrad' would share the variable 'a/Adagrad': both use this name"


@pytest.mark.parametrize(
    "names, dense, message",
    [
        (["a", "a/Adagrad"], None, BOTH),
        (["kernel"], "kernel", WITH_MODEL.format("kernel", "kernel")),
        (["a"], "a/Adagrad", WITH_MODEL.format("a", "a/Adagrad")),
    ],
)
def test_refuses_config_dict_tables_with_clashing_names(names, dense, message, tmp_path):
    def program():
        return tf.reduce_sum(tf.compat.v1.get_variable(dense, [6, 4])) if dense else 0.0

    made, input_fn = dict_estimator(names, tmp_path / "model", program)
    assert harness.refusal(ValueError, made.train, input_fn, steps=1).startswith(message)
    assert not list((tmp_path / "model").glob("*"))


def test_refuses_a_slot_variable_of_two_tables(tmp_path, assert_recorded):
    slots = {}

    def create(table, slot_names, initializers):
        (name,) = slot_names
        if "one" not in slots:
            given = {"initializer": initializers[0], "use_resource": True}
            slots["one"] = tf.compat.v1.get_variable("mine", table.shape, **given)
        return {name: slots["one"]}

    optimizer = embedding.Adagrad(0.5, slot_variable_creation_fn=create)
    made, input_fn = dict_estimator(["a", "b"], tmp_path / "model", optimizer=optimizer)
    said = harness.refusal(ValueError, made.train, input_fn, steps=1)
    assert said.startswith("Tables 'a' and 'b' would share the variable 'mine'")
    assert_recorded(said)


def test_a_table_may_have_the_name_of_an_op(tmp_path):
    """Names in a checkpoint are case-sensitive, and independent of the names of ops."""
    tables = ["a", "OTHER", "other"]
    made, input_fn = dict_estimator(tables, tmp_path, lambda: tf.zeros([], name="a"))
    made.train(input_fn, steps=1)
    names = {*tables, *(f"{table}/Adagrad" for table in tables), "global_step"}
    assert set(harness.saved(tmp_path, 1)) == names
    assert made.evaluate(input_fn, steps=1)["global_step"] == 1


def on_described_tpu(spelling, model_dir):
    """Returns the arguments of the session in which a TPU would train. No TPU is needed."""
    given = *program_of(spelling), model_dir
    made = tpu_described.estimator(*given, tpu_config=ee.TPUConfig(5))
    return tpu_described.train(made, spellings.input_fn_of(spelling.keys))


@pytest.mark.sampled(8)
@pytest.mark.parametrize("way", ["v2/nested", *(harness.slow(name) for name in WRITTEN)])
def test_variable_names_on_a_tpu_equal_stock(way, tmp_path):
    variables = on_described_tpu(EVERY[way], tmp_path).graph.get_collection("variables")
    assert sorted(map(saved_name, variables)) == STOCK[way]["names"]


def test_refuses_two_tables_with_the_same_variable_on_a_tpu(tmp_path):
    spelling = spellings.Spelling(in_one_scope, keys=("c0", "c1"))
    assert harness.refusal(ValueError, on_described_tpu, spelling, tmp_path).startswith(SHARED)


@pytest.mark.slow
@pytest.mark.skipif(not tf.__version__.startswith("2.15."), reason="stock imports on 2.15 only")
def test_stock_names_json_is_up_to_date():
    names = sampling.drawn(EVERY, 12)
    written = processes.run_python(spellings.__file__, *names)
    assert json.loads(written.stdout) == {name: STOCK[name] for name in names}, written.stderr
    assert set(STOCK) == set(EVERY)
