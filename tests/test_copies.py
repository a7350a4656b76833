"""Copies of specs, configurations and estimators are equal and work."""

import copy
import pickle

import harness
import numpy as np
import pytest
import tensorflow as tf

import estimator_emb as ee
import feature_columns as fc
from estimator_emb.spec import options

BATCHES = [({"x": np.array([1, 3])}, {"x": np.ones([2, 2], np.float32)})]


def rate(step):
    return 0.5


def initial(shape, dtype=tf.float32, partition_info=None):
    return harness.initializer(np.arange(10.0).reshape(5, 2))(shape, dtype, partition_info)


def of_dicts():
    table = ee.TableConfig(
        5, 2, initial, "sum", learning_rate_fn=rate, optimization_parameters=ee.AdamParameters(0.1)
    )
    options = {"clipping_limit": 2.0, "partition_strategy": "mod"}
    options |= {"pipeline_execution_with_tensor_core": True, "profile_data_directory": "/nowhere"}
    options["experimental_gradient_multiplier_fn"] = rate
    return harness.tables_spec({"x": table}, ee.FtrlParameters(0.1), **options)


def of_columns():
    identity = fc.categorical_column_with_identity
    sequence = fc.sequence_categorical_column_with_identity("s", 5)
    columns = [
        fc.embedding_column(identity("x", 5), 2, initializer=tf.compat.v1.zeros_initializer()),
        fc.embedding_column(sequence, 2, max_sequence_length=3),
        *fc.shared_embedding_columns([identity("a", 5), identity("b", 5)], 2),
        fc.embedding_column(fc.weighted_categorical_column(identity("y", 5), "w"), 2),
        fc.embedding_column(fc.categorical_column_with_vocabulary_list("v", ["p", "q"]), 2),
    ]
    return ee.EmbeddingConfigSpec(columns, ee.AdagradParameters(0.1), clipping_limit=2.0)


MAKE = {
    "spec of dicts": of_dicts,
    "spec of columns": of_columns,
    "table": lambda: of_dicts().table_to_config_dict["x"],
    "table of the default initializer": lambda: ee.TableConfig(5, 2),
    "feature": lambda: ee.FeatureConfig("t", 3, "w"),
    "TPUConfig": lambda: ee.TPUConfig(
        3, device="host", num_shards=8, bad_ids="drop", tpu_generation="v4"
    ),
}


@pytest.mark.parametrize("how", [copy.copy, copy.deepcopy])
@pytest.mark.parametrize("what", MAKE)
def test_a_copy_is_another_object_with_equal_fields(what, how):
    one = MAKE[what]()
    copied = how(one)
    assert copied is not one and type(copied) is type(one)
    assert copied == one
    if isinstance(one, ee.TPUConfig):  # `==` compares only the fields of stock's TPUConfig.
        assert options.additions(copied) == options.additions(one)


def test_a_deep_copy_has_its_own_dicts_and_lists():
    spec = of_dicts()
    copied = copy.deepcopy(spec)
    copied.table_to_config_dict["u"] = ee.TableConfig(3, 3)
    assert list(spec.table_to_config_dict) == ["x"]
    spec = of_columns()
    copied = copy.deepcopy(spec)
    for original, of_copy in zip(spec.feature_columns, copied.feature_columns, strict=True):
        assert original is of_copy  # model_fn holds the original columns.
    copied.feature_columns.clear()
    assert len(spec.feature_columns) == 6  # All that `of_columns` makes.


@pytest.mark.parametrize("what", MAKE)
def test_pickling_brings_back_every_field(what):
    one = MAKE[what]()
    back = pickle.loads(pickle.dumps(one))
    assert type(back) is type(one)
    assert repr(_without_addresses(back)) == repr(_without_addresses(one))


def _without_addresses(value):
    """Replaces objects that TensorFlow compares by identity with their contents."""
    if hasattr(value, "_asdict"):
        value = value._asdict()
    if isinstance(value, dict):
        return {str(key): _without_addresses(one) for key, one in value.items()}
    if isinstance(value, (list, tuple)):
        return [_without_addresses(one) for one in value]
    if hasattr(value, "get_config"):
        return type(value).__name__, value.get_config()
    return value if "object at 0x" not in repr(value) else type(value).__name__


def test_a_copied_run_config_keeps_its_tpu_config():
    one = ee.RunConfig(
        model_dir="/nowhere", tpu_config=ee.TPUConfig(3, device="host", num_shards=8)
    )
    for copied in (copy.copy(one), copy.deepcopy(one), pickle.loads(pickle.dumps(one))):
        assert copied.tpu_config == one.tpu_config
        assert copied.tpu_config.device == "host"
        assert copied.model_dir == "/nowhere"


@pytest.mark.parametrize("cores", [None, harness.slow(2)])
def test_a_copied_estimator_with_a_copied_spec_trains_like_the_original(cores, tmp_path):
    spec = of_dicts()._replace(profile_data_directory=None)  # "/nowhere" cannot be written.
    model_fn, run = harness.gradient_model_fn(["x"]), harness.SILENT

    def trained(name, copied):
        folder, own = tmp_path / name, copied(spec)
        one = harness.estimator(model_fn, own, folder, 2, num_shards=cores, run=run)
        copied(one).train(harness.input_fn_of(BATCHES * 2), steps=2)
        return harness.saved(folder, 2)

    np.testing.assert_equal(trained("copies", copy.deepcopy), trained("originals", lambda one: one))
