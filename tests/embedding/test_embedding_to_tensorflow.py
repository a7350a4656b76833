"""Tables, features and optimizers translated to `tf.tpu.experimental.embedding`."""

import dataclasses
import functools
import inspect
import logging

import harness
import pytest
import tensorflow as tf
from optimizer_values import by_name, changed_everywhere
from tensorflow.core.protobuf.tpu import optimization_parameters_pb2 as optimization_pb2

import estimator_emb as ee
from estimator_emb import embedding
from estimator_emb.backends.tpu import embedding as hardware
from estimator_emb.embedding import translation
from estimator_emb.optimizers import TF2_OPTIMIZERS

ORIGINALS = tf.tpu.experimental.embedding
every_optimizer = pytest.mark.parametrize("ours", TF2_OPTIMIZERS, ids=by_name)
HAS_V2 = hasattr(ORIGINALS, "TPUEmbeddingV2")
needs_v2 = pytest.mark.skipif(not HAS_V2, reason="this TensorFlow has no TPUEmbeddingV2")


error = functools.partial(harness.refusal, ValueError)


def table_of(**kwargs):
    arguments = {"optimizer": embedding.SGD(0.5), "combiner": "sqrtn", "name": "t", **kwargs}
    return embedding.TableConfig(7, 3, tf.compat.v1.zeros_initializer(), **arguments)


@every_optimizer
def test_hardware_messages_equal_tensorflows(ours):
    """TensorFlow's optimizer and ours write the same message for TPU v2 to v4."""
    arguments = changed_everywhere(ours)
    arguments.pop("slot_variable_creation_fn", None)
    value = ours(**{**arguments, "learning_rate": 0.25})
    theirs = optimization_pb2.OptimizationParameters()
    embedding.to_tensorflow(value)._set_optimization_parameters(theirs)
    engine = hardware.TPUEmbedding(
        {"t": ee.TableConfig(7, 2)},
        {"x": ee.FeatureConfig("t")},
        8,
        hardware.TRAINING,
        optimization_parameters=value,
        device_config=hardware.DeviceConfig(1, 2, "/job:worker"),
    )
    (table,) = engine.config_proto.table_descriptor
    assert table.optimization_parameters.learning_rate.constant == 0.25
    table.optimization_parameters.ClearField("learning_rate")
    assert table.optimization_parameters == theirs


def test_features_keep_every_field_and_share_their_tables():
    quantization = embedding.QuantizationConfig(16, -1.0, 2.0)
    table = table_of(quantization_config=quantization)
    structure = {
        "a": embedding.FeatureConfig(table, 4, False, [2, None], "first"),
        "b": [embedding.FeatureConfig(table), embedding.FeatureConfig(table_of(optimizer=None))],
    }
    theirs = embedding.to_tensorflow(structure)
    ours = embedding.from_tensorflow(theirs)
    assert repr(ours) == repr(structure)
    assert ours["a"].table is ours["b"][0].table is not ours["b"][1].table
    assert embedding.from_tensorflow(ours["a"]) is ours["a"]
    a, (b, other) = theirs["a"], theirs["b"]
    assert type(a) is ORIGINALS.FeatureConfig
    assert a.table is b.table is not other.table
    assert type(a.table) is ORIGINALS.TableConfig
    configs = (structure["a"], a), (table, a.table), (quantization, a.table.quantization_config)
    for given, got in configs:
        for field in dataclasses.fields(given):
            if field.name not in ("table", "optimizer", "quantization_config"):
                assert getattr(got, field.name) == getattr(given, field.name), field.name
    assert a.table.optimizer.learning_rate == 0.5
    assert other.table.optimizer is None


@needs_v2
def test_settings_that_sparse_core_ignores_are_logged(caplog):
    value = embedding.Adam(
        lazy_adam=False, clipvalue=(-0.5, 0.75), clip_weight_min=-2.0, clip_weight_max=1.5
    )
    ftrl = embedding.FTRL(
        use_gradient_accumulation=False,
        allow_zero_accumulator=True,
        low_dimensional_packing_status=True,
    )
    with caplog.at_level(logging.WARNING, "estimator_emb"):
        embedding.to_tensorflow(value)
        assert harness.said(caplog) == []
        table = table_of(optimizer=value)
        embedding.to_tensorflow([embedding.FeatureConfig(table)] * 2, sparse_core=True)
        embedding.to_tensorflow([ftrl, embedding.SGD()], sparse_core=True)
    assert harness.said(caplog) == [
        "Adam: TPUEmbeddingV2 ignores lazy_adam=False, clipvalue=(-0.5, 0.75), "
        "clip_weight_min=-2.0, clip_weight_max=1.5.",
        "FTRL: TPUEmbeddingV2 ignores use_gradient_accumulation=False, "
        "low_dimensional_packing_status=True, allow_zero_accumulator=True.",
    ]


@needs_v2
def test_settings_unread_by_sparse_core_are_listed():
    """TPUEmbeddingV2 ignores each optimizer attribute that its source code never names."""
    from tensorflow.python.tpu import tpu_embedding_v3

    source = inspect.getsource(tpu_embedding_v3)
    refused = {"weight_decay_factor", "multiply_weight_decay_factor_by_learning_rate"}
    # The optimizer itself uses these, to create slots.
    elsewhere = {"self", "slot_variable_creation_fn", "initial_accumulator_value"}
    for ours in TF2_OPTIMIZERS:
        for name in set(inspect.signature(ours.__init__).parameters) - refused - elsewhere:
            ignored = name in translation.IGNORED_BY_SPARSE_CORE
            assert (f"optimizer.{name}" in source) != ignored, name


@needs_v2
def test_settings_without_counterpart_on_sparse_core_are_refused():
    decay = embedding.SGD(weight_decay_factor=0.5)
    assert error(embedding.to_tensorflow, decay, sparse_core=True) == (
        "SGD: TPUEmbeddingV2 has no counterpart of weight_decay_factor=0.5. It has no weight "
        "decay; set them to None."
    )
    sequence = embedding.FeatureConfig(table_of(), max_sequence_length=4)
    assert error(embedding.to_tensorflow, sequence, sparse_core=True) == (
        "FeatureConfig: TPUEmbeddingV2 combines the ids of every sample; it has no counterpart of "
        "max_sequence_length=4."
    )
    ignored = embedding.Adam(lazy_adam=False, clip_weight_max=1.5)
    features = [embedding.FeatureConfig(table_of(optimizer=ignored))]
    assert error(embedding.to_tensorflow, features, sparse_core=True, strict=True) == (
        "Adam: TPUEmbeddingV2 has no counterpart of lazy_adam=False, clip_weight_max=1.5. Leave "
        "them at their defaults."
    )


# Whole specs.


def test_from_spec_translates_tables_and_features():
    adam = ee.AdamParameters(0.2, beta1=0.7)
    tables = {
        "t": ee.TableConfig(7, 3, combiner="sum"),
        "u": ee.TableConfig(5, 2, optimization_parameters=adam),
    }
    looks_up = {"a": ("t", 0), "b": ("t", 4), "c": ("u", 0)}
    spec = ee.EmbeddingConfigSpec(
        feature_to_config_dict={key: ee.FeatureConfig(*one) for key, one in looks_up.items()},
        table_to_config_dict=tables,
        optimization_parameters=ee.AdagradParameters(0.3),
        partition_strategy="mod",
    )
    features = embedding.from_spec(spec)
    assert list(features) == ["a", "b", "c"]
    assert features["a"].table is features["b"].table
    assert [one.max_sequence_length for one in features.values()] == [0, 4, 0]
    assert [one.name for one in features.values()] == ["a", "b", "c"]
    t, u = features["a"].table, features["c"].table
    assert (t.name, t.vocabulary_size, t.dim, t.combiner) == ("t", 7, 3, "sum")
    assert t.optimizer == embedding.Adagrad(0.3)
    assert u.optimizer == embedding.Adam(0.2, beta_1=0.7, epsilon=1e-8)
    theirs = embedding.to_tensorflow(features)
    assert theirs["a"].table is theirs["b"].table


def test_from_spec_refuses_settings_without_counterpart():
    sgd = ee.StochasticGradientDescentParameters(0.5)
    assert error(embedding.from_spec, harness.table_spec(7, 3, sgd, clipping_limit=0.5)) == (
        "EmbeddingConfigSpec: the TF2 vocabulary has no counterpart of clipping_limit=0.5. Limits "
        "of gradients belong in the optimizer's clipvalue, factors in the training step."
    )
    assert error(embedding.from_spec, harness.table_spec(7, 3, None)) == (
        "Table 't' has no optimizer: give it optimization_parameters in its TableConfig, or in the "
        "EmbeddingConfigSpec."
    )
