"""Whole specs translated to `tf.tpu.experimental.embedding`, and the settings that are lost."""

import logging

import harness
import numpy as np
import pytest
import tensorflow as tf

import estimator_emb as ee
import feature_columns as fc
from estimator_emb import embedding
from estimator_emb.spec.column_ids import integer_lookup, string_lookup

theirs = tf.tpu.experimental.embedding
HAS_V2 = hasattr(theirs, "TPUEmbeddingV2")
needs_config = pytest.mark.skipif(
    not hasattr(theirs, "SparseCoreEmbeddingConfig"),
    reason="this TensorFlow has no SparseCoreEmbeddingConfig",
)
needs_v2 = pytest.mark.skipif(not HAS_V2, reason="this TensorFlow has no TPUEmbeddingV2")


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

    step = tf.Variable(3, dtype=tf.int64)
    rates = []

    def rate(step):
        rates.append(step.dtype)
        return tf.cast(step, tf.float32) * 0.25

    spec = spec_of(
        {
            "a": ee.FeatureConfig("plain", weight_key="a_weights"),
            "b": ee.FeatureConfig("plain", max_sequence_length=4),
            "c": ee.FeatureConfig("own_rate"),
            "d": ee.FeatureConfig("by_step"),
            "e": ee.FeatureConfig("by_step_too"),
            "f": ee.FeatureConfig("by_schedule"),
        },
        plain=ee.TableConfig(7, 3, rows, combiner=None),
        own_rate=trained_by(ee.AdamParameters(0.5, beta1=0.7))._replace(
            combiner="sqrtn", learning_rate=0.75
        ),
        by_step=ee.TableConfig(5, 2, learning_rate_fn=rate),
        by_step_too=ee.TableConfig(5, 2, learning_rate_fn=rate),
        by_schedule=trained_by(embedding.SGD(0.5, clipvalue=(-1.0, 0.25)))._replace(
            learning_rate_fn=lambda step: tf.compat.v1.train.exponential_decay(1.0, step, 1, 0.5)
        ),
        optimization_parameters=ee.AdagradParameters(0.3, 0.2),
        clipping_limit=0.5,
        pipeline_execution_with_tensor_core=True,
        partition_strategy="mod",
    )
    got = embedding.to_tensorflow(spec, strict=True, step=step)
    assert got.losses == ()
    assert got.pipeline_execution_with_tensor_core
    assert got.weight_keys == {"a": "a_weights"}
    weights = got.weights({"a_weights": "of a", "a": "ids"})
    assert weights == {"a": "of a", **dict.fromkeys("bcdef")}
    assert set(got.features) == set("abcdef")
    assert all(type(feature) is theirs.FeatureConfig for feature in got.features.values())
    plain, own, by_step, too, schedule = (got.features[key].table for key in "acdef")
    assert plain is got.features["b"].table
    assert got.features["b"].max_sequence_length == 4
    assert (plain.name, plain.vocabulary_size, plain.dim) == ("plain", 7, 3)
    assert (plain.combiner, plain.initializer) == ("sum", rows)
    assert vars(plain.optimizer) == vars(theirs.Adagrad(0.3, 0.2, clipvalue=0.5))
    assert (own.combiner, own.optimizer.learning_rate) == ("sqrtn", 0.75)
    assert (type(own.optimizer), own.optimizer.beta_1) == (theirs.Adam, 0.7)
    # TPUEmbedding sends each function to the hardware once, so tables share its translation.
    assert by_step.optimizer.learning_rate is too.optimizer.learning_rate
    assert float(by_step.optimizer.learning_rate()) == 0.75
    assert float(schedule.optimizer.learning_rate()) == 0.125
    step.assign(4)
    assert float(tf.function(by_step.optimizer.learning_rate)()) == 1.0
    assert float(tf.function(schedule.optimizer.learning_rate)()) == 0.0625
    assert set(rates) == {tf.int64}
    limits = schedule.optimizer.clip_gradient_min, schedule.optimizer.clip_gradient_max
    assert limits == (-0.5, 0.25)
    by_function = embedding.to_tensorflow(spec, step=lambda: 8)
    assert float(by_function.features["d"].table.optimizer.learning_rate()) == 2.0


@pytest.mark.parametrize(
    "own", [(None, None), (-1.0, None), (-0.25, 0.125), (0.75, 2.0), (-2.0, -0.75)]
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


def test_lost_settings_are_reported(caplog):
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
    with caplog.at_level(logging.WARNING, "estimator_emb"):
        got = embedding.to_tensorflow(spec)
    said = [str(loss) for loss in got.losses]
    assert harness.said(caplog) == said
    assert said == [
        "EmbeddingConfigSpec: experimental_gradient_multiplier_fn: gradients reach the tables as "
        "they are. Multiply them by its value before TPUEmbedding.apply_gradients.",
        "EmbeddingConfigSpec: profile_data_directory='/profile': the hardware stores no lookup "
        "statistics. No number changes. Profile the program by tf.profiler.",
        "Table 't': hot_id_replication=True: the hardware keeps no copies of its most used rows. "
        "No number changes. Nothing needs to be done.",
        "Table 't': clipping_limit=0.5: without gradient accumulation no gradient can be clipped. "
        "Set use_gradient_accumulation=True, or clip the gradients of activations.",
        f"Table 'u': the optimizer {ee.MomentumParameters(0.1, 0.9, True)!r}: "
        "tf.tpu.experimental.embedding has no such optimizer, so the table gets no optimizer, and "
        "its slots are left behind. Give TPUEmbedding another optimizer, which starts with new "
        "slots.",
        "Table 'v': initial_accumulator_value=0: FTRL of TensorFlow 2 must start above 0: it "
        "starts from 1.2e-38, the smallest float. Nothing needs to be done: it vanishes beside any "
        "square of a gradient.",
        "Table 'w': slot_variable_creation_fn: TPUEmbedding creates the slots, under its own "
        "names. Nothing needs to be done.",
    ]
    t, u, v, w = (got.features[f"x_{name}"].table.optimizer for name in "tuvw")
    assert (t.use_gradient_accumulation, t.clip_gradient_max) == (False, None)
    assert u is None
    assert 0 < v.initial_accumulator_value < 1e-37
    assert w.slot_variable_creation_fn is None
    assert harness.refusal(ValueError, embedding.to_tensorflow, spec, strict=True) == (
        "to_tensorflow: TensorFlow 2 has no counterpart of these settings.\n"
        + "\n".join(f"* {line}" for line in said)
    )


def test_a_wrong_batch_size_is_refused():
    for bad in (0, 2.5, "8"):
        spec = spec_of(t=ee.TableConfig(7, 3))
        message = harness.refusal(ValueError, embedding.to_tensorflow, spec, batch_size=bad)
        assert message == f"to_tensorflow: batch_size must be an int >= 1; got {bad!r}."


def test_a_table_without_an_optimizer_is_translated():
    got = embedding.to_tensorflow(spec_of(t=ee.TableConfig(7, 3)), strict=True)
    assert got.features["x_t"].table.optimizer is None


def test_the_advised_code_gives_the_columns_ids(tmp_path):
    file = tmp_path / "words.txt"
    file.write_text("a\nb\nc\n")
    strings, numbers = np.array(["b", "new", "c", "a"]), np.array([10, 5, 30, -7])
    identity = fc.categorical_column_with_identity("ids", 20, default_value=4)
    of_list, of_file = (
        fc.categorical_column_with_vocabulary_list,
        fc.categorical_column_with_vocabulary_file,
    )
    abc = list("abc")
    columns = [
        (of_list("list", abc), strings),
        (of_list("oov", abc, num_oov_buckets=5), strings),
        (of_list("default", abc, default_value=2), strings),
        (of_list("numbers", [10, 20, 30], dtype=tf.int64), numbers),
        (of_file("file", str(file), 3), strings),
        (of_file("buckets", str(file), num_oov_buckets=4), strings),
        (fc.categorical_column_with_hash_bucket("hash", 11), strings),
        (fc.categorical_column_with_hash_bucket("hashed", 11, dtype=tf.int64), numbers),
        (identity, numbers),
        (fc.sequence_categorical_column_with_vocabulary_list("sequence", abc), strings),
    ]
    spec = ee.EmbeddingConfigSpec(
        feature_columns=[
            fc.embedding_column(
                column, 2, max_sequence_length=3 if column.name == "sequence" else 0
            )
            for column, _ in columns
        ]
        + [fc.embedding_column(fc.categorical_column_with_identity("plain", 20), 2)],
        optimization_parameters=ee.AdagradParameters(0.3),
    )
    losses = embedding.to_tensorflow(spec).losses
    assert [loss.owner for loss in losses] == [f"Feature {one.name!r}" for one, _ in columns]
    kinds = [loss.setting.partition(" of column ")[0] for loss in losses]
    assert kinds[4:9] == [
        *["the vocabulary file"] * 2,
        *["the hash buckets"] * 2,
        "the default value",
    ]
    for loss, (column, values) in zip(losses, columns, strict=True):
        code = loss.instead.removeprefix("Make them in the input: ").removesuffix(".")
        inner = getattr(column, "categorical_column", column)
        got = eval(code, {"tf": tf, "column": inner, "values": tf.constant(values)})
        by_column = string_lookup(column) or integer_lookup(column)
        with tf.Graph().as_default(), tf.compat.v1.Session() as session:
            ids = by_column(tf.constant(values))
            session.run(tf.compat.v1.tables_initializer())
            wanted = session.run(ids)
        assert got.dtype == tf.int64
        np.testing.assert_array_equal(got, wanted, column.name)


@needs_v2
def test_losses_for_sparse_core_are_listed():
    spec = spec_of(
        {"a": ee.FeatureConfig("t", max_sequence_length=4), "b": ee.FeatureConfig("u")},
        t=ee.TableConfig(7, 3),
        u=trained_by(ee.AdamParameters(0.1, lazy_adam=False, clip_weight_max=0.5)),
        optimization_parameters=ee.AdagradParameters(
            0.3, weight_decay_factor=0.5, multiply_weight_decay_factor_by_learning_rate=False
        ),
        clipping_limit=0.5,
    )
    got = embedding.to_tensorflow(spec, sparse_core=True, batch_size=16)
    assert [(loss.owner, loss.setting) for loss in got.losses] == [
        ("Table 't'", "clipping_limit=0.5"),
        ("Table 't'", "weight_decay_factor=0.5"),
        ("Feature 'a'", "max_sequence_length=4"),
        ("Table 'u'", "clipping_limit=0.5"),
        ("Table 'u'", "lazy_adam=False"),
        ("Table 'u'", "clip_weight_max=0.5"),
    ]
    t, u = got.features["a"].table.optimizer, got.features["b"].table.optimizer
    assert t.weight_decay_factor is t.multiply_weight_decay_factor_by_learning_rate is None
    assert (t.clip_gradient_max, u.clip_weight_max, u.lazy_adam) == (None, None, True)
    assert got.features["b"].output_shape == [16]


@pytest.mark.skipif(HAS_V2, reason="this TensorFlow has TPUEmbeddingV2")
def test_sparse_core_needs_a_tensorflow_that_has_it():
    spec = spec_of(t=ee.TableConfig(7, 3))
    assert harness.refusal(ValueError, embedding.to_tensorflow, spec, sparse_core=True) == (
        f"to_tensorflow: TensorFlow {tf.__version__} has no TPUEmbeddingV2, which sparse_core=True "
        "is for."
    )
    arguments = embedding.to_tensorflow(spec, batch_size=16), "v5p", 2, {"x_t": 1}
    assert harness.refusal(ValueError, embedding.sparse_core_config, *arguments) == (
        f"{ROOM}TensorFlow {tf.__version__} has no SparseCoreEmbeddingConfig."
    )


SPARSE_CORE_SPEC = {
    "features": {key: ee.FeatureConfig(table) for key, table in zip("abc", "ttu", strict=True)},
    "t": ee.TableConfig(1000, 3),
    "u": ee.TableConfig(50, 3),
    "optimization_parameters": ee.AdagradParameters(0.3),
}
IDS_PER_SAMPLE = {"a": 3, "b": 5, "c": 70}
ROOM = "sparse_core_config: "


@needs_config
@pytest.mark.parametrize("generation, cores", [("v5p", 4), ("v6e", 2)])
def test_sparse_core_config_has_room_for_every_batch(generation, cores):
    """The limits use TensorFlow's names of the tables, and no batch exceeds them."""
    from tensorflow.python.tpu import tpu_embedding_v3

    chips, batch = 2, 16
    got = embedding.to_tensorflow(spec_of(**SPARSE_CORE_SPEC), sparse_core=True, batch_size=batch)
    config = embedding.sparse_core_config(got, generation, chips, IDS_PER_SAMPLE)
    assert type(config) is theirs.SparseCoreEmbeddingConfig
    assert not config.allow_id_dropping
    assert config.max_ids_per_chip_per_sample == 70
    samples = batch // cores
    shards = chips * cores
    assert config.max_ids_per_table == {"t": samples * 8, "u": samples * 70}
    random = np.random.default_rng(4)
    tables = {"a": "t", "b": "t", "c": "u"}
    for same_shard in (True, False):
        sent = {"t": [[] for _ in range(shards)], "u": [[] for _ in range(shards)]}
        for key, count in IDS_PER_SAMPLE.items():
            ids = random.integers(0, {"t": 1000, "u": 50}[tables[key]], samples * count)
            for one in ids - ids % shards if same_shard else ids:
                sent[tables[key]][one % shards].append(one)
        for table, by_shard in sent.items():
            most = max(len(ids) for ids in by_shard)
            assert most <= config.max_ids_per_table[table]
            assert same_shard is (most == config.max_ids_per_table[table])
            different = max(len(set(ids)) for ids in by_shard)
            assert different <= config.max_unique_ids_per_table[table]
    assert config.max_unique_ids_per_table["u"] == -(-50 // shards)
    (t, u) = (got.features[key].table for key in "ac")
    features = [(key, feature) for key, feature in got.features.items()]
    stacked = tpu_embedding_v3._stack_tables_with_same_table_dim_and_optimizer(
        [t, u], features, chips, cores, config
    )
    assert set(stacked.stacked_table_to_tables) == set(config.max_ids_per_table)


@needs_config
@pytest.mark.parametrize(
    "batch_size, arguments, says",
    [
        (16, ("v4", 2, IDS_PER_SAMPLE), f"{ROOM}generation must be one of v5p, v6e; got 'v4'."),
        (16, ("v5p", 0, IDS_PER_SAMPLE), f"{ROOM}chips must be an int >= 1; got 0."),
        (
            16,
            ("v5p", 2, {"a": 3}),
            f"{ROOM}ids_per_sample must be of the features ['a', 'b', 'c']; got ['a'].",
        ),
        (
            16,
            ("v5p", 2, {**IDS_PER_SAMPLE, "b": 0}),
            "Feature 'b': ids_per_sample must be an int >= 1; got 0.",
        ),
        *(
            (
                size,
                (generation, 2, IDS_PER_SAMPLE),
                f"Feature 'a': give to_tensorflow a batch_size that the {cores} SparseCores of a "
                f"chip of TPU {generation} can divide; got {size}.",
            )
            for size, generation, cores in ((6, "v5p", 4), (None, "v6e", 2))
        ),
    ],
)
def test_sparse_core_config_refuses_wrong_arguments(batch_size, arguments, says):
    spec = spec_of(**SPARSE_CORE_SPEC)
    got = embedding.to_tensorflow(spec, sparse_core=True, batch_size=batch_size)
    assert harness.refusal(ValueError, embedding.sparse_core_config, got, *arguments) == says
