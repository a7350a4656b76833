# SPDX-License-Identifier: Apache-2.0
"""What the variables of tables are called, for every way to consume a column; see `spellings`."""

import contextlib
import json
import os
import pathlib
import random
import subprocess
import sys

import harness
import numpy as np
import pytest
import sampling
import spellings
import tensorflow as tf
import tpu_described
from tensorflow.python.feature_column import feature_column as fc_v1

import estimator_emb as ee
from estimator_emb import embedding, export
from estimator_emb.tables.storage import saved_name

STOCK = json.loads(
    (pathlib.Path(spellings.__file__).parent / "data" / "stock_names.json").read_text()
)
EVERY = spellings.every()
WRITTEN = [name for name in EVERY if "names" in STOCK[name]]
OF_EACH_KIND = [name for name in WRITTEN if "tf_keras" not in name and "sequence_v1" not in name]
# The slow tests of the oldest TensorFlow take one half of the spellings, those of others the other.
SHARE = slice(0 if tf.__version__.startswith("2.15.") else 1, None, 2)
WAYS = {
    "cpu": {},
    "one_core": {"device": "host"},
    "two_cores": {"device": "host", "num_shards": 2},
    "eight_cores": {"device": "host", "num_shards": 8},
}
RATE, ACCUMULATOR, STEPS = 0.5, 0.1, 2


def spec_of(columns):
    return ee.EmbeddingConfigSpec(
        feature_columns=columns,
        optimization_parameters=ee.AdagradParameters(RATE, initial_accumulator=ACCUMULATOR),
    )


def estimator(spelling, model_dir, by_key=None, use_tpu=None, **tpu_config):
    by_key = by_key or spellings.columns_by_key(spelling)
    return harness.configured(
        spellings.model_fn_of(spelling, by_key, ee.TPUEstimatorSpec),
        spec_of(list(by_key.values())),
        ee.RunConfig(
            model_dir=str(model_dir),
            save_summary_steps=None,
            log_step_count_steps=None,
            tpu_config=ee.TPUConfig(1, **tpu_config),
        ),
        spellings.BATCH,
        use_tpu=bool(tpu_config),
    )


def table_of(spelling, key):
    """What the table of a key is called here: keys of one table have one name."""
    shared = spelling.columns is spellings.shared_columns_of and key[1] in "01"
    return "shared" if shared else key


def trained_tables(spelling, steps):
    """By NumPy, the tables after Adagrad steps of the gradient 1 for each use of an id."""
    tables = {}
    for name in {table_of(spelling, key) for key in spelling.keys}:
        of_table = [key for key in spelling.keys if table_of(spelling, key) == name]
        counts = sum(
            np.bincount(spellings.ids(key).reshape(-1), minlength=spellings.VOCABULARY)
            for key in of_table
        )
        gradient = counts.astype(np.float32) * spelling.uses
        rows = np.full([spellings.VOCABULARY], spellings.table_value(name), np.float32)
        accumulator = np.full_like(rows, ACCUMULATOR)
        for _ in range(steps):
            accumulator += gradient**2
            rows -= RATE * gradient / np.sqrt(accumulator)
        tables[name] = rows
    return tables


def predictions(spelling, tables):
    """By NumPy, what the program predicts for each sample of a batch."""
    each = sum(
        tables[table_of(spelling, key)][spellings.ids(key)].sum(axis=1) for key in spelling.keys
    )
    return each * spellings.DIMENSION * spelling.uses + spelling.beside


def saved(model_dir):
    reader = tf.train.load_checkpoint(str(model_dir))
    return {name: reader.get_tensor(name) for name in reader.get_variable_to_shape_map()}


def check_trained(spelling, variables, steps):
    """Checks that the tables of a checkpoint are those of NumPy, whatever their names."""
    found = sorted(
        (value[:, 0] for name, value in variables.items() if is_weights(name)), key=tuple
    )
    expected = sorted(trained_tables(spelling, steps).values(), key=tuple)
    assert len(found) == len(expected)
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5)


def is_weights(name):
    leaf = name.rpartition("/")[2]
    return ("embedding_weights" in leaf or "shared_embedding" in leaf) and "kind" not in name


def serving_input_fn_of(keys):
    def receive():
        features = {
            key: tf.compat.v1.sparse_placeholder(tf.int64, [None, spellings.LENGTH]) for key in keys
        }
        number = tf.compat.v1.placeholder(tf.float32, [None, 1])
        kind = tf.compat.v1.placeholder(tf.int64, [None, 1])
        features |= {"number": number, "kind": kind}
        return export.ServingInputReceiver(features, dict(features))

    return receive


def check(name, tmp_path, way):
    """Trains, evaluates, predicts, exports, and trains again in a new graph."""
    spelling = EVERY[name]
    by_key = spellings.columns_by_key(spelling)
    made = estimator(spelling, tmp_path, by_key, **WAYS[way])
    input_fn = spellings.input_fn_of(spelling.keys)
    made.train(input_fn, steps=STEPS)
    variables = saved(tmp_path)
    assert sorted(variables) == STOCK[name]["names"]
    check_trained(spelling, variables, STEPS)
    assert made.evaluate(input_fn, steps=1)["global_step"] == STEPS
    predicted = [one["each"] for one in made.predict(input_fn)][: spellings.BATCH]
    tables = trained_tables(spelling, STEPS)
    np.testing.assert_allclose(predicted, predictions(spelling, tables), rtol=1e-4)
    receive = serving_input_fn_of(spelling.keys)
    exported = made.export_saved_model(str(tmp_path / "export"), receive).decode()
    held = [name for name, _ in tf.train.list_variables(f"{exported}/variables/variables")]
    assert set(held) <= set(variables)
    assert [name for name in held if is_weights(name)] == [
        name for name in sorted(variables) if is_weights(name)
    ]
    estimator(spelling, tmp_path, **WAYS[way]).train(input_fn, steps=STEPS)
    assert sorted(saved(tmp_path)) == STOCK[name]["names"]
    check_trained(spelling, saved(tmp_path), 2 * STEPS)


def built(made, keys, mode):
    """The names in a checkpoint of what an estimator builds; no session runs."""
    with tf.Graph().as_default():
        tf.compat.v1.train.get_or_create_global_step()
        input_fn = spellings.input_fn_of(keys)
        features, labels, _ = made._get_features_and_labels_from_input_fn(input_fn, mode)
        made._call_model_fn(features, labels, mode, made.config)
        return sorted(saved_name(one) for one in tf.compat.v1.global_variables())


def without_slots(names):
    return [name for name in names if not name.endswith("/Adagrad")]


@pytest.mark.parametrize(
    "name",
    [
        "v2/nested",
        "v2/called_twice_and_another",
        "v2/each_in_name_scope",
        "v1/names_in_two_cases",
        "sequence_v2/named_in_variable_scope",
        "other/layers_named_as_ops",
    ],
)
def test_names(name, tmp_path):
    spelling = EVERY[name]
    made = estimator(spelling, tmp_path, **WAYS["one_core"])
    assert built(made, spelling.keys, "train") == STOCK[name]["names"]
    made = estimator(spelling, tmp_path, **WAYS["cpu"])
    assert built(made, spelling.keys, "infer") == without_slots(STOCK[name]["names"])


@pytest.mark.slow
@pytest.mark.sampled(16)
@pytest.mark.parametrize("index, name", enumerate(WRITTEN))
def test_every_name(index, name, tmp_path):
    for way in ("cpu", ["one_core", "eight_cores"][index % 2]):
        made = estimator(EVERY[name], tmp_path, **WAYS[way])
        names = STOCK[name]["names"]
        assert built(made, EVERY[name].keys, "train") == names
        assert built(made, EVERY[name].keys, "infer") == without_slots(names)


@pytest.mark.slow
@pytest.mark.sampled(8)
@pytest.mark.parametrize("index, name", enumerate(OF_EACH_KIND[SHARE]))
def test_every_value(index, name, tmp_path):
    check(name, tmp_path, list(WAYS)[index % 4])


def test_names_in_a_function_where_stock_fails(tmp_path):
    """Stock makes the variables in the function's graph, where no optimizer finds them."""
    assert STOCK["other/in_a_function"] == {"error": "ValueError: No variables to optimize."}
    spelling = EVERY["other/in_a_function"]
    names = STOCK["v2/one_layer"]["names"]
    assert built(estimator(spelling, tmp_path), spelling.keys, "train") == names


def test_layer_that_outlives_its_graph(tmp_path):
    """Stock fails in the second graph: the layer returns the variable of the first."""
    layers = {}

    def program(features, by_key):
        if not layers:
            layers["all"] = spellings.layers()["v2"](list(by_key.values()))
        return layers["all"](features)

    made = estimator(spellings.Spelling(program), tmp_path)
    names = STOCK["v2/one_layer"]["names"]
    assert built(made, spellings.KEYS, "train") == names
    assert built(made, spellings.KEYS, "eval") == without_slots(names)


def test_features_by_their_keys(tmp_path):
    """Stock gives the program its ids there, and no variable."""

    def program(features, by_key):
        layer = spellings.layers()["v2"]([by_key["c1"]])
        return features["c0"], layer(features), features["c2"]

    spelling = spellings.Spelling(program)
    assert without_slots(built(estimator(spelling, tmp_path), spelling.keys, "train")) == [
        "c0_embedding/embedding_weights",
        "c2_embedding/embedding_weights",
        "dense_features/c1_embedding/embedding_weights",
        "global_step",
    ]


def refused(program, tmp_path, keys=("c0", "c1"), way="cpu", columns=None):
    """The message with which a program is refused; it has created no variable and no file."""
    spelling = spellings.Spelling(program, keys=keys, columns=columns)
    created = []
    with (
        tf.Graph().as_default() as graph,
        pytest.raises(ValueError) as refusal,
    ):
        made = estimator(spelling, tmp_path / "model", **WAYS[way])
        tf.compat.v1.train.get_or_create_global_step()
        input_fn = spellings.input_fn_of(keys)
        features, labels, _ = made._get_features_and_labels_from_input_fn(input_fn, "train")
        made._call_model_fn(features, labels, "train", made.config)
    created = [
        one.op.name
        for one in graph.get_collection(tf.compat.v1.GraphKeys.GLOBAL_VARIABLES)
        if is_weights(one.op.name) and one.shape == [spellings.VOCABULARY, spellings.DIMENSION]
    ]
    assert not created and not (tmp_path / "model").exists()
    return str(refusal.value)


def in_one_scope(features, by_key):
    builder = fc_v1._LazyBuilder(features)
    made = []
    for column in by_key.values():
        with tf.compat.v1.variable_scope("together", reuse=tf.compat.v1.AUTO_REUSE):
            made.append(column._get_dense_tensor(builder))
    return made


SHARED = (
    "Tables 'tbl_c0' and 'tbl_c1' would share the variable 'together/embedding_weights', and the "
    "EmbeddingConfigSpec does not say that they are one table: model_fn uses the columns of both "
    "in one scope. Use each column in a scope of its own, or make them with "
    "shared_embedding_columns if they are to be one table."
)


@pytest.mark.parametrize("way", ["cpu", "one_core"])
def test_tables_in_one_scope(way, tmp_path):
    assert refused(in_one_scope, tmp_path, way=way) == SHARED


@pytest.mark.parametrize("layer, way", [("v1", "cpu"), ("v2", "one_core")])
def test_column_in_two_layers(layer, way, tmp_path):
    """Stock makes a table for each layer; a TPU has one for a column."""

    def program(features, by_key):
        make = spellings.layers()[layer]
        return [make([by_key[key]])(features) for key in ("c0", "c1", "c0")]

    assert refused(program, tmp_path, way=way) == (
        "For embedding var name c0, the variable scope name is different, got "
        "'dense_features_2/c0_embedding'; expected 'dense_features/c0_embedding'. model_fn uses "
        "the column of 'c0' in two layers, and its table has one variable: use one layer, whose "
        "output may be used twice, or give the second layer a column of its own, with its own "
        "feature key."
    )


@pytest.mark.parametrize(
    "by, way", [("get_variable", "cpu"), ("Variable", "one_core"), ("reuse", "one_core")]
)
def test_dense_variable_of_the_name_of_a_table(by, way, tmp_path):
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

    assert refused(program, tmp_path, way=way) == (
        f"Table 'tbl_c0' would share the variable '{name}' with model_fn, which has made a "
        "variable of that name. Rename that variable, or use the column of the table in another "
        "scope."
    )


def dict_estimator(names, model_dir, program=lambda: 0.0, optimizer=None):
    """An estimator of tables in config dicts, all of one shape, each with a feature."""
    spec = ee.EmbeddingConfigSpec(
        feature_to_config_dict={f"x{i}": ee.FeatureConfig(name) for i, name in enumerate(names)},
        table_to_config_dict={name: ee.TableConfig(6, 4) for name in names},
        optimization_parameters=optimizer or ee.AdagradParameters(RATE),
    )
    keys = [f"x{i}" for i in range(len(names))]

    def model_fn(features, labels, mode, params):
        loss = tf.add_n([tf.reduce_sum(features[key]) for key in keys]) + program()
        return harness.minimized(mode, loss, optimizer=tf.compat.v1.train.AdagradOptimizer(0.1))

    made = harness.estimator(model_fn, spec, model_dir)
    features = {key: np.zeros([4, 1], np.int64) for key in keys}
    return made, harness.input_fn_of([(features, np.zeros([4], np.float32))])


@pytest.mark.parametrize(
    "names, program, message",
    [
        (
            ["a", "a/Adagrad"],
            lambda: 0.0,
            "Tables 'a' and 'a/Adagrad' would share the variable 'a/Adagrad', which is the name "
            "of the weights or of a slot of both. Rename one of the tables.",
        ),
        (
            ["kernel"],
            lambda: tf.reduce_sum(tf.compat.v1.get_variable("kernel", [6, 4])),
            "Table 'kernel' would share the variable 'kernel' with model_fn, which has made a "
            "variable of that name. Rename that variable, or use the column of the table in "
            "another scope.",
        ),
        (
            ["a"],
            lambda: tf.reduce_sum(tf.compat.v1.get_variable("a/Adagrad", [6, 4])),
            "Table 'a' would share the variable 'a/Adagrad' with model_fn, which has made a "
            "variable of that name. Rename that variable, or use the column of the table in "
            "another scope.",
        ),
    ],
)
def test_tables_of_dicts_that_would_share(names, program, message, tmp_path):
    made, input_fn = dict_estimator(names, tmp_path / "model", program)
    assert harness.refusal(ValueError, made.train, input_fn, steps=1) == message
    assert not list((tmp_path / "model").glob("*"))


def test_slots_that_a_program_gives_to_two_tables(tmp_path):
    slots = {}

    def create(table, slot_names, initializers):
        (name,) = slot_names
        if "one" not in slots:
            slots["one"] = tf.compat.v1.get_variable(
                "mine", table.shape, initializer=initializers[0], use_resource=True
            )
        return {name: slots["one"]}

    optimizer = embedding.Adagrad(RATE, slot_variable_creation_fn=create)
    made, input_fn = dict_estimator(["a", "b"], tmp_path / "model", optimizer=optimizer)
    assert harness.refusal(ValueError, made.train, input_fn, steps=1) == (
        "Tables 'a' and 'b' would share the variable 'mine': slot_variable_creation_fn gave it to "
        "both. It must create variables of its own for each table, named after the table that it "
        "is given."
    )


@pytest.mark.parametrize("table", ["a", "OTHER"])
def test_name_that_something_else_has(table, tmp_path):
    """A checkpoint does not depend on what ops are called, and tells cases apart."""
    made, input_fn = dict_estimator([table, "other"], tmp_path, lambda: tf.zeros([], name="a"))
    made.train(input_fn, steps=1)
    names = {table, f"{table}/Adagrad", "other", "other/Adagrad", "global_step"}
    assert set(saved(tmp_path)) == names
    assert made.evaluate(input_fn, steps=1)["global_step"] == 1


def hardware(spelling, model_dir):
    """An estimator on a described TPU, and its input_fn."""
    by_key = spellings.columns_by_key(spelling)
    made = tpu_described.estimator(
        spellings.model_fn_of(spelling, by_key, ee.TPUEstimatorSpec),
        spec_of(list(by_key.values())),
        model_dir,
        tpu_config=tpu_described.per_core_input(),
    )

    def input_fn(params):
        batch = params["batch_size"]
        ids = tf.sparse.from_dense(tf.ones([batch, 1], tf.int64))
        features = dict.fromkeys(spelling.keys, ids)
        features |= {"number": tf.ones([batch, 1]), "kind": tf.zeros([batch, 1], tf.int64)}
        return tf.data.Dataset.from_tensors((features, tf.zeros([batch]))).repeat()

    return made, input_fn


def check_hardware(name, model_dir):
    spelling = EVERY[name]
    made, input_fn = hardware(spelling, model_dir)
    graph = tpu_described.train(made, input_fn).graph
    names = {saved_name(one) for one in graph.get_collection("variables")}
    assert sorted(names - {"global_step"}) == [
        name for name in STOCK[name]["names"] if name != "global_step"
    ]


@pytest.mark.parametrize("name", ["v2/one_for_each", "other/sequences_and_others"])
def test_names_on_a_tpu(name, tmp_path):
    check_hardware(name, tmp_path)


@pytest.mark.slow
@pytest.mark.sampled(8)
@pytest.mark.parametrize("name", OF_EACH_KIND[SHARE])
def test_every_name_on_a_tpu(name, tmp_path):
    check_hardware(name, tmp_path)


def test_tables_in_one_scope_on_a_tpu(tmp_path):
    spelling = spellings.Spelling(in_one_scope, keys=("c0", "c1"))
    with pytest.raises(ValueError) as refusal:
        tpu_described.train(*hardware(spelling, tmp_path))
    assert str(refusal.value) == SHARED


@pytest.mark.slow
@pytest.mark.skipif(not tf.__version__.startswith("2.15."), reason="stock imports on 2.15 only")
def test_stock_writes_these_names():
    environment = {
        name: value for name, value in os.environ.items() if not name.startswith("ESTIMATOR_EMB")
    }
    names = random.Random(sampling.seed()).sample(list(EVERY), sampling.of(len(EVERY), some=24))
    written = subprocess.run(
        [sys.executable, spellings.__file__, *names],
        capture_output=True,
        check=True,
        text=True,
        env={**environment, "CUDA_VISIBLE_DEVICES": "", "TF_CPP_MIN_LOG_LEVEL": "3"},
    )
    assert json.loads(written.stdout) == {name: STOCK[name] for name in names}
    assert set(STOCK) == set(EVERY)
