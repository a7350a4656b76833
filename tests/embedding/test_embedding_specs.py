"""Whole specs translated to `tf.tpu.experimental.embedding`, and the settings that are lost."""

import harness
import numpy as np
import pytest
import tensorflow as tf

import estimator_emb as ee
import feature_columns as fc
from estimator_emb import embedding

theirs = tf.tpu.experimental.embedding


def spec_of(features=None, **kwargs):
    """Returns a spec of dicts. Keywords that are not fields of the spec are its tables."""
    fields = set(ee.EmbeddingConfigSpec._fields)
    tables = {name: kwargs.pop(name) for name in list(kwargs) if name not in fields}
    return ee.EmbeddingConfigSpec(
        feature_to_config_dict=features or {f"x_{name}": ee.FeatureConfig(name) for name in tables},
        table_to_config_dict=tables,
        **kwargs,
    )


def trained_by(optimizer):
    return ee.TableConfig(7, 3, optimization_parameters=optimizer)


def test_settings_with_a_counterpart_are_translated():
    def rows(shape, dtype=tf.float32):
        return tf.ones(shape, dtype)

    spec = spec_of(
        {
            "weighted": ee.FeatureConfig("plain", weight_key="weights"),
            "sequence": ee.FeatureConfig("plain", max_sequence_length=4),
            "adam": ee.FeatureConfig("own_optimizer"),
        },
        plain=ee.TableConfig(7, 3, rows, combiner=None),
        own_optimizer=trained_by(ee.AdamParameters(0.5, beta1=0.7))._replace(
            combiner="sqrtn", learning_rate=0.75
        ),
        optimization_parameters=ee.AdagradParameters(0.3, 0.2),
        clipping_limit=0.5,
        pipeline_execution_with_tensor_core=True,
        partition_strategy="mod",
    )
    got = embedding.to_tensorflow(spec, strict=True)
    assert got.losses == ()
    assert got.pipeline_execution_with_tensor_core
    assert got.weight_keys == {"weighted": "weights"}
    weights = got.weights({"weights": "its weights", "weighted": "its ids"})
    assert weights == {"weighted": "its weights", "sequence": None, "adam": None}
    assert set(got.features) == {"weighted", "sequence", "adam"}
    assert all(type(feature) is theirs.FeatureConfig for feature in got.features.values())
    plain, own = (got.features[key].table for key in ("weighted", "adam"))
    assert plain is got.features["sequence"].table
    assert got.features["sequence"].max_sequence_length == 4
    assert (plain.name, plain.vocabulary_size, plain.dim) == ("plain", 7, 3)
    assert (plain.combiner, plain.initializer) == ("sum", rows)
    assert vars(plain.optimizer) == vars(theirs.Adagrad(0.3, 0.2, clipvalue=0.5))
    assert (own.combiner, own.optimizer.learning_rate) == ("sqrtn", 0.75)
    assert (type(own.optimizer), own.optimizer.beta_1) == (theirs.Adam, 0.7)


def test_learning_rate_functions_get_the_step():
    step = tf.Variable(3, dtype=tf.int64)
    types = set()

    def quarters(step):
        types.add(step.dtype)
        return tf.cast(step, tf.float32) * 0.25

    def halved(step):
        return tf.compat.v1.train.exponential_decay(1.0, step, 1, 0.5)

    spec = spec_of(
        a=ee.TableConfig(5, 2, learning_rate_fn=quarters),
        b=ee.TableConfig(5, 2, learning_rate_fn=quarters),
        c=trained_by(embedding.SGD(0.5))._replace(learning_rate_fn=halved),
        optimization_parameters=ee.AdagradParameters(0.3),
    )

    def rates(step):
        features = embedding.to_tensorflow(spec, strict=True, step=step).features
        return [features[f"x_{name}"].table.optimizer.learning_rate for name in "abc"]

    a, b, c = rates(step)
    assert a is b  # TPUEmbedding sends each function to the hardware once.
    assert (float(a()), float(c())) == (3 * 0.25, 0.5**3)
    step.assign(4)
    assert (float(tf.function(a)()), float(tf.function(c)())) == (4 * 0.25, 0.5**4)
    assert types == {tf.int64}
    assert float(rates(lambda: 8)[0]()) == 8 * 0.25


@pytest.mark.parametrize(
    "own", [(None, None), (-1.0, None), (-1.0, 0.25), (-0.25, 0.125), (0.75, 2.0), (-2.0, -0.75)]
)
def test_a_clipping_limit_acts_before_the_limits_of_the_optimizer(own):
    table = trained_by(embedding.SGD(clipvalue=None if own == (None, None) else own))
    got = embedding.to_tensorflow(spec_of(t=table, clipping_limit=0.5), strict=True)
    optimizer = got.features["x_t"].table.optimizer
    g = np.linspace(-3, 3, 49)
    low, high = (
        np.inf * sign if one is None else one for sign, one in zip((-1, 1), own, strict=True)
    )
    wanted = np.clip(np.clip(g, -0.5, 0.5), low, high)
    clipped = np.clip(g, optimizer.clip_gradient_min, optimizer.clip_gradient_max)
    np.testing.assert_array_equal(clipped, wanted)


def test_lost_settings_are_reported(caplog, assert_recorded):
    """The spec and table t each lose two settings (t's clipping needs accumulation), u to w one."""
    spec = spec_of(
        t=ee.TableConfig(7, 3, hot_id_replication=True),
        u=trained_by(ee.MomentumParameters(0.1, 0.9, use_nesterov=True)),
        v=trained_by(ee.FtrlParameters(0.1, initial_accumulator_value=0.0)),
        w=trained_by(embedding.Adagrad(slot_variable_creation_fn=lambda *given: {})),
        optimization_parameters=ee.AdagradParameters(0.3, use_gradient_accumulation=False),
        clipping_limit=0.5,
        experimental_gradient_multiplier_fn=lambda step: 0.5,
        profile_data_directory="/profile",
    )
    with caplog.at_level("WARNING", "estimator_emb"):
        got = embedding.to_tensorflow(spec)
    said = [str(loss) for loss in got.losses]
    assert harness.said(caplog) == said
    owners = [line.partition(": ")[0] for line in said]
    assert owners == ["EmbeddingConfigSpec"] * 2 + [f"Table {name!r}" for name in "ttuvw"]
    for line in said:
        assert_recorded(line)  # In messages.json: the setting, the effect, and advice.
    t, u, v, w = (got.features[f"x_{name}"].table.optimizer for name in "tuvw")
    assert (t.use_gradient_accumulation, t.clip_gradient_max) == (False, None)
    assert u is None  # TensorFlow 2 has no momentum for tables.
    assert 0 < v.initial_accumulator_value < 1e-37  # TensorFlow 2 refuses 0.
    assert w.slot_variable_creation_fn is None  # Its TPUEmbedding creates the slots.
    assert harness.refusal(ValueError, embedding.to_tensorflow, spec, strict=True) == (
        "to_tensorflow: TensorFlow 2 has no counterpart of these settings.\n"
        + "\n".join(f"* {line}" for line in said)
    )


def test_a_wrong_batch_size_is_refused():
    spec = spec_of(t=ee.TableConfig(7, 3))
    for bad in (0, 2.5, "8"):
        message = harness.refusal(ValueError, embedding.to_tensorflow, spec, batch_size=bad)
        assert message == f"to_tensorflow: batch_size must be an int >= 1; got {bad!r}."
    # A batch size and an optimizer are optional.
    assert embedding.to_tensorflow(spec, strict=True).features["x_t"].table.optimizer is None


def test_columns_that_look_values_up_are_listed(tmp_path):
    """TPUEmbedding takes ids. All columns but the last make ids of words or other values."""
    file = tmp_path / "words.txt"
    file.write_text("a\nb\nc\n")
    columns = [
        fc.categorical_column_with_vocabulary_list("numbers", [10, 20], dtype=tf.int64),
        fc.categorical_column_with_vocabulary_file("file", str(file), 3),
        fc.categorical_column_with_hash_bucket("hash", 11),
        fc.categorical_column_with_identity("default", 20, default_value=4),
        fc.sequence_categorical_column_with_vocabulary_list("sequence", list("abc")),
        fc.categorical_column_with_identity("plain", 20),
    ]
    spec = ee.EmbeddingConfigSpec(
        feature_columns=[
            fc.embedding_column(one, 2, max_sequence_length=3 if one.name == "sequence" else 0)
            for one in columns
        ],
        optimization_parameters=ee.AdagradParameters(0.3),
    )
    losses = {loss.owner: str(loss) for loss in embedding.to_tensorflow(spec).losses}
    assert set(losses) == {f"Feature {one.name!r}" for one in columns if one.name != "plain"}
    assert "the vocabulary, hash or default of column 'hash_embedding'" in losses["Feature 'hash'"]
