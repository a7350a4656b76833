"""Specs and configurations: fields, accepted values, settings of the environment, and errors."""

import inspect
import types

import harness  # harness.refusal(error, call, ...) asserts the error, returns its message.
import numpy as np
import pytest
import tensorflow as tf
from tensorflow_estimator.python.estimator.tpu import _tpu_estimator_embedding

import estimator_emb as ee
import feature_columns as fc
from estimator_emb.compat.internals.tpu_estimator import StockTPUConfig
from estimator_emb.optimizers import PARAMETERS, TF2_OPTIMIZERS
from estimator_emb.reporting import console, program_calls
from estimator_emb.spec import column_ids, config, options, tf_config
from estimator_emb.spec.resolved import Feature, Table, tables_of, with_own_keys

NAN = float("nan")
ADAGRAD = ee.AdagradParameters(0.1)
PARAMETER_NAMES = ", ".join(sorted(one.__name__ for one in (*PARAMETERS, *TF2_OPTIMIZERS)))
ONE_WAY = (
    "EmbeddingConfigSpec: exactly one of `feature_columns` and the pair `feature_to_config_dict` "
    "and `table_to_config_dict` must be specified."
)


def rate(step):
    return 0.1


def item_column(dimension=2, **kwargs):
    return fc.embedding_column(fc.categorical_column_with_identity("item", 5), dimension, **kwargs)


def dicts(features=None, tables=None):
    return {
        "feature_to_config_dict": features or {"item": ee.FeatureConfig("t")},
        "table_to_config_dict": tables or {"t": ee.TableConfig(5, 2)},
    }


SPEC = ee.EmbeddingConfigSpec(**dicts(), optimization_parameters=ADAGRAD)


def spec_error(spec, error=ValueError):
    """Asserts that a spec is refused, and returns the message of the error."""
    return harness.refusal(error, config.validated, spec)


def test_table_config_holds_its_arguments():
    zeros = tf.compat.v1.zeros_initializer()
    table = ee.TableConfig(7, 3, zeros, "sum", True, 0.5, None, ADAGRAD)
    assert tuple(table) == (7, 3, zeros, "sum", True, 0.5, None, ADAGRAD)
    assert ee.TableConfig(7, 3, learning_rate_fn=rate).learning_rate_fn is rate
    assert ee.TableConfig(7, 3, combiner=None).combiner is None
    assert ee.TableConfig(np.int64(7), np.int32(3))[:2] == (7, 3)
    assert ee.TableConfig(7, 3, learning_rate=np.float32(0.5)).learning_rate == 0.5


def test_the_default_initializer_is_a_truncated_normal():
    table = ee.TableConfig(7, 4)
    assert isinstance(table.initializer, tf.compat.v1.truncated_normal_initializer)
    assert (table.initializer.mean, table.initializer.stddev) == (0.0, 1 / np.sqrt(4))


@pytest.mark.parametrize(
    "change, message",
    [
        *(
            ({name: wrong}, f"{name} must be {allowed}; got {wrong!r}.")
            for name, allowed, values in (
                ("vocabulary_size", "an int >= 1", (0, "7", 7.0, True)),
                ("dimension", "an int >= 1", (-1, None, 2.5)),
                ("initializer", "callable or None", (0.5,)),
                ("combiner", "'mean', 'sum', 'sqrtn' or None", ("max",)),
                ("hot_id_replication", "True or False", (1,)),
                ("learning_rate", "a number", ("0.1", rate, NAN, True)),
                ("learning_rate", "finite in float32", (float("inf"), 1e39)),
                ("learning_rate_fn", "a function of the global step", (0.1,)),
                ("optimization_parameters", f"one of {PARAMETER_NAMES}", (0.1,)),
            )
            for wrong in values
        ),
        ({"learning_rate": -0.1}, "learning_rate must not be negative; got -0.1."),
        (
            {"learning_rate": 0.1, "learning_rate_fn": rate},
            "at most one of learning_rate and learning_rate_fn may be given; got 0.1 and "
            f"{rate!r}.",
        ),
    ],
)
def test_table_config_refuses_wrong_values(change, message):
    made = harness.refusal(
        ValueError, ee.TableConfig, **{"vocabulary_size": 7, "dimension": 3, **change}
    )
    # The same value, set without the constructor.
    replaced = SPEC._replace(table_to_config_dict={"t": ee.TableConfig(7, 3)._replace(**change)})
    assert made == spec_error(replaced) == f"TableConfig: {message}"


def test_feature_config_holds_its_arguments():
    assert tuple(ee.FeatureConfig("t")) == ("t", 0, None)
    assert tuple(ee.FeatureConfig("t", 3, "w")) == ("t", 3, "w")
    assert ee.FeatureConfig("t", np.int64(3)).max_sequence_length == 3


@pytest.mark.parametrize("length", [-1, 1.5, None, True])
def test_feature_config_refuses_wrong_lengths(length):
    replaced = {"item": ee.FeatureConfig("t")._replace(max_sequence_length=length)}
    assert (
        harness.refusal(ValueError, ee.FeatureConfig, "t", length)
        == spec_error(SPEC._replace(feature_to_config_dict=replaced))
        == f"FeatureConfig: max_sequence_length must be an int >= 0; got {length}."
    )


def test_spec_holds_its_arguments():
    """Moves tensor core columns out of the first field, into the second, which is no argument."""
    column = item_column()
    spec = ee.EmbeddingConfigSpec([column], ADAGRAD, 0.5, True, rate, None, None, "mod", "/tmp")
    assert tuple(spec) == ([column], [], ADAGRAD, 0.5, True, rate, None, None, "mod", "/tmp")
    spec = ee.EmbeddingConfigSpec((column,), ADAGRAD)
    assert tuple(spec) == ([column], [], ADAGRAD, None, False, None, None, None, "div", None)
    both = dicts()
    features, tables = both["feature_to_config_dict"], both["table_to_config_dict"]
    spec = ee.EmbeddingConfigSpec(**both)
    assert tuple(spec) == (None, None, None, None, False, None, features, tables, "div", None)


def test_spec_separates_tensor_core_columns():
    """Separates the columns that the model itself looks up, not the embedding hardware."""
    engine, cpu = item_column(), item_column(embedding_lookup_device="cpu")
    device = {"embedding_lookup_device": "tpu_tensor_core", "tensor_core_shape": [None, 3]}
    core = item_column(**device)
    spec = ee.EmbeddingConfigSpec([core, engine, cpu], ADAGRAD)
    for one in (spec, config.validated(spec)):
        assert one.feature_columns == [engine, cpu]
        assert one.tensor_core_feature_columns == [core]
    # A spec with only tensor core columns still counts as a spec of columns.
    only = config.validated(ee.EmbeddingConfigSpec([core], ADAGRAD))
    assert (only.feature_columns, only.tensor_core_feature_columns) == ([], [core])


COLUMNS = {"feature_columns": [item_column()], "optimization_parameters": ADAGRAD}
OF_THE_STEP = "a function of the global step or None"
REFUSED_OF_BOTH = [
    ({name: wrong}, f"EmbeddingConfigSpec: {name} must be {allowed}; got {wrong!r}.")
    for name, allowed, values in (
        ("partition_strategy", "'div' or 'mod'", ("range", None)),
        ("pipeline_execution_with_tensor_core", "True or False", ("yes",)),
        ("profile_data_directory", "a str or None", (3,)),
        ("clipping_limit", "a positive number or None", (0, -0.5, NAN, float("-inf"), "1")),
        ("experimental_gradient_multiplier_fn", OF_THE_STEP, (0.5, "f")),
        ("optimization_parameters", f"one of {PARAMETER_NAMES}", ("adagrad", 3)),
    )
    for wrong in values
]


@pytest.mark.parametrize(
    "good, change, message",
    [
        *((good, *refused) for good in (COLUMNS, dicts()) for refused in REFUSED_OF_BOTH),
        *(
            (COLUMNS, change, ONE_WAY)
            for change in (
                {"feature_columns": None},
                {"feature_columns": []},
                dicts(),
                {"feature_columns": None, "feature_to_config_dict": {"a": ee.FeatureConfig("t")}},
                {"feature_columns": None, "table_to_config_dict": {"t": ee.TableConfig(5, 2)}},
            )
        ),
        *(
            (dicts(), change, ONE_WAY)
            for change in (COLUMNS, {"feature_to_config_dict": {}}, {"table_to_config_dict": None})
        ),
        (
            COLUMNS,
            {"optimization_parameters": None},
            "EmbeddingConfigSpec: optimization_parameters must be given with feature_columns.",
        ),
        (
            dicts(),
            {"table_to_config_dict": {name: ee.TableConfig(5, 2) for name in ("u", "t", "s")}},
            "EmbeddingConfigSpec: no feature uses the tables ['s', 'u'] of table_to_config_dict.",
        ),
        *(
            (
                dicts(),
                {f"{part}_to_config_dict": {key: wrong}},
                f"EmbeddingConfigSpec: the config of {part} {key!r} must be a {kind}; got "
                f"{wrong!r}.",
            )
            for part, key, kind, wrong in (
                ("feature", "item", "FeatureConfig", "t"),
                ("table", "t", "TableConfig", (5, 2)),
                ("table", "t", "TableConfig", ee.FeatureConfig("t")),
            )
        ),
    ],
)
def test_spec_refuses_wrong_values(good, change, message):
    error = TypeError if "the config of" in message else ValueError
    made = harness.refusal(error, ee.EmbeddingConfigSpec, **{**good, **change})
    assert made == spec_error(ee.EmbeddingConfigSpec(**good)._replace(**change), error) == message


@pytest.mark.parametrize(
    "spec", [None, 5, {"feature_columns": []}, ("a", "b"), ee.EmbeddingConfigSpec]
)
def test_validated_takes_specs_only(spec):
    assert spec_error(spec, TypeError) == (
        f"embedding_config_spec must be an EmbeddingConfigSpec; got {spec!r}."
    )


def test_estimator_validates_its_spec(tmp_path):
    spec = ee.EmbeddingConfigSpec([item_column()], ADAGRAD)._replace(clipping_limit=-1)
    model_fn = harness.gradient_model_fn(["item"])
    said = harness.refusal(ValueError, harness.estimator, model_fn, spec, tmp_path)
    assert said.startswith("EmbeddingConfigSpec: clipping_limit must be a positive number")


def test_spec_leaves_the_programs_dicts_alone():
    features, tables = {"item": ee.FeatureConfig("t")}, {"t": ee.TableConfig(5, 2)}
    spec = ee.EmbeddingConfigSpec(feature_to_config_dict=features, table_to_config_dict=tables)
    spec.table_to_config_dict["u"] = None
    spec.feature_to_config_dict["u"] = None
    assert (list(features), list(tables)) == (["item"], ["t"])


def test_tables_of_a_spec_of_dicts_are_sorted():
    adam, sgd = ee.AdamParameters(0.1), ee.StochasticGradientDescentParameters(0.2)
    t, u = ee.TableConfig(5, 2, optimization_parameters=adam), ee.TableConfig(6, 4)
    features = {
        "z": ee.FeatureConfig("t", weight_key="w"),
        "b": ee.FeatureConfig("u"),
        "a": ee.FeatureConfig("t", 3),
    }
    spec = ee.EmbeddingConfigSpec(**dicts(features, {"u": u, "t": t}), optimization_parameters=sgd)
    assert tables_of(spec) == [
        Table("t", t, (Feature("a", 3), Feature("z", 0, "w")), optimizer=adam),
        Table("u", u, (Feature("b"),), optimizer=sgd),
    ]


def test_columns_that_read_the_same_key_have_their_own_tables_off_a_tpu():
    """Accepts what a TPU refuses. The first table reads the feature, others a key of their own."""
    zeros = item_column(3, initializer=tf.compat.v1.zeros_initializer())
    columns = [item_column(2), *[item_column(3)] * 2, zeros]  # One is given twice.
    spec = ee.EmbeddingConfigSpec(columns, ADAGRAD)
    tables = tables_of(spec, off_tpu=True)
    assert [(table.name, table.config.dimension, table.features[0].key) for table in tables] == [
        ("tbl_item", 2, "item"),
        ("tbl_item_1", 3, "item/item_embedding"),
        ("tbl_item_2", 3, "item/item_embedding_1"),
    ]
    assert all(table.features[0].column for table in tables)  # To read "item" for its own key.
    copied = with_own_keys(tables, {"item": [4]})
    assert copied == {"item": [4], "item/item_embedding": [4], "item/item_embedding_1": [4]}
    assert with_own_keys(tables, {"other": [4]}) == {"other": [4]}  # Refused later.
    assert "used with multiple embeddings" in harness.refusal(ValueError, tables_of, spec)


def test_a_default_value_below_minus_1_leaves_values_out():
    column = fc.categorical_column_with_vocabulary_list("word", ["a", "b"], default_value=-2)
    assert column_ids.string_lookup(column)(tf.constant(["b", "x"])).numpy().tolist() == [1, -1]


def test_tensorflow_estimators_spec_becomes_ours():
    if harness.IS_2_15:
        from tensorflow.python.tpu import tpu_embedding as classes
    else:
        classes = ee
    features = {"item": classes.FeatureConfig("t", 3, "w")}
    of_table, adam = (5, 2, tf.compat.v1.zeros_initializer(), "sum", True, None, rate), (0.2, 0.7)
    tables = {"t": classes.TableConfig(*of_table, classes.AdamParameters(*adam))}
    ours = {"t": ee.TableConfig(*of_table, ee.AdamParameters(*adam))}
    parameters = ee.AdagradParameters(0.3)
    arguments = {
        **dicts(features, tables),
        "optimization_parameters": classes.AdagradParameters(0.3),
        "clipping_limit": 1.5,
        "experimental_gradient_multiplier_fn": rate,
        "partition_strategy": "mod",
        "profile_data_directory": "/tmp",
        "pipeline_execution_with_tensor_core": True,
    }
    theirs = _tpu_estimator_embedding.EmbeddingConfigSpec(**arguments)
    checked = config.validated(theirs)
    assert type(checked) is ee.EmbeddingConfigSpec
    assert type(checked.table_to_config_dict["t"]) is ee.TableConfig
    assert type(checked.feature_to_config_dict["item"]) is ee.FeatureConfig
    assert checked == (None, None, parameters, 1.5, True, rate, features, ours, "mod", "/tmp")
    tables["t"] = type("Own", (classes.TableConfig,), {})(*tables["t"])
    assert config.validated(type("Own", (type(theirs),), {})(**arguments)) == checked
    assert "clipping_limit must be a positive" in spec_error(theirs._replace(clipping_limit=-1.5))
    # TensorFlow's own constructor accepts a text as the rate.
    with pytest.raises(ValueError, match="^TableConfig: learning_rate must be a number; got '0.5'"):
        wrong = classes.TableConfig(5, 2, learning_rate="0.5")
        ee.EmbeddingConfigSpec(**dicts(features, {"t": wrong}))


def test_a_foreign_class_of_the_same_name_is_refused():
    """Refuses it, although TensorFlow 2.15's own classes of these names are accepted."""
    foreign = type("AdagradParameters", (), {"__repr__": lambda self: "foreign"})()
    said = harness.refusal(ValueError, ee.TableConfig, 5, 2, optimization_parameters=foreign)
    assert said.endswith("; got foreign.")
    table = type("TableConfig", (tuple,), {"__repr__": lambda self: "foreign"})((5, 2))
    said = harness.refusal(TypeError, ee.EmbeddingConfigSpec, **dicts(tables={"t": table}))
    assert said.endswith("the config of table 't' must be a TableConfig; got foreign.")


def test_errors_of_constructors_show_only_the_programs_lines():
    for call in (
        lambda: ee.TableConfig(0, 2),
        lambda: ee.EmbeddingConfigSpec(**dicts(), clipping_limit=0),
        lambda: ee.TPUConfig(device="x"),
        lambda: ee.RunConfig(save_summary_steps=-1),
    ):
        with pytest.raises(ValueError, match="must be|should be") as raised:
            call()
        files = {str(entry.path) for entry in raised.traceback}
        # Before Python 3.11, the file that shortens tracebacks stays in them.
        assert files - {program_calls.__file__} == {__file__}


def test_additions_are_the_keyword_only_fields_of_tpu_config():
    """Keeps the fields that we add outside of the tuple, which is that of tensorflow-estimator."""
    own = {
        name: "v4" if name == "tpu_generation" else None
        for name, argument in inspect.signature(ee.TPUConfig.__new__).parameters.items()
        if argument.kind is argument.KEYWORD_ONLY
    }
    made = ee.TPUConfig(3, tpu_generation="v4")
    assert options.additions(made) == options.additions(made._replace(num_shards=2)) == own
    assert set(options.additions(StockTPUConfig()).values()) == {None}
    assert tuple(ee.TPUConfig()) == tuple(StockTPUConfig())  # The other defaults.


def test_environment_sets_hosts_shards_and_the_wait_limit(monkeypatch):
    assert options.asked_hosts() is options.asked_shards() is options.asked_wait_limit() is None
    given = {"HOSTS": "1", "HOST": "0", "COORDINATOR": "there:80"}
    for name, value in {**given, "SHARDS": "1", "WAIT_LIMIT": "0.5"}.items():
        monkeypatch.setenv(f"ESTIMATOR_EMB_{name}", value)
    assert options.asked_hosts() == (1, 0, "there:80")
    assert (options.asked_shards(), options.asked_wait_limit()) == (1, 0.5)
    for name, asked, values in (
        ("SHARDS", options.asked_shards, ("0", "x")),
        ("WAIT_LIMIT", options.asked_wait_limit, ("0", "x", "inf")),
        ("COORDINATOR", options.asked_hosts, ("there", "")),
        ("HOST", options.asked_hosts, ("1", "x", "")),
        ("HOSTS", options.asked_hosts, ("0", "x")),
    ):
        for wrong in values:
            monkeypatch.setenv(f"ESTIMATOR_EMB_{name}", wrong)
            message = harness.refusal(ValueError, asked)
            assert message.startswith(f"Environment variable ESTIMATOR_EMB_{name} must be ")
    monkeypatch.setenv("ESTIMATOR_EMB_HOSTS", "auto")
    assert options.asked_hosts() == (None, None, None)


def test_choices_of_devices_without_effect_are_logged(monkeypatch, caplog):
    """Calls what TPUEstimator calls if use_tpu=False, where only the host trains."""
    caplog.set_level("INFO", "estimator_emb")
    monkeypatch.setattr(console, "_logged", set())
    options.say_unused(ee.RunConfig())  # Says nothing, as the environment chooses no device.
    monkeypatch.setenv("ESTIMATOR_EMB_TABLES", "device")
    options.say_unused(ee.RunConfig(ee.TPUConfig(device="emulate")))
    choices = "TPUConfig(device='emulate') and ESTIMATOR_EMB_TABLES=device"
    assert harness.said(caplog) == [f"{choices}: no effect, as use_tpu=False."]
    said = harness.refusal(ValueError, options.check_tables, ee.RunConfig())
    assert said.startswith("TPUConfig: tables='device' needs device='pjrt'; the device is ")


def test_a_cluster_of_only_a_chief_has_no_parameter_servers():
    only_chief = types.SimpleNamespace(cluster_spec=tf.train.ClusterSpec({"chief": ["a:1"]}))
    assert tf_config.servers(only_chief) == []
