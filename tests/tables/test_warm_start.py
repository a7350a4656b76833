# SPDX-License-Identifier: Apache-2.0
"""Warm starts from a smaller vocabulary: rows and slots at their words' new ids, exactly."""

import harness
import numpy as np
import pytest
import tensorflow as tf

import estimator_emb as ee
import feature_columns as fc

OLD = ["apple", "pear", "fig", "plum"]
NEW = ["fig", "quince", "apple", "kiwi", "plum", "lime"]
NAME = "dense_features/word_embedding/embedding_weights"
FIELDS = ("", "/Adam/m", "/Adam/v")


def make(model_dir, words, buckets=2, warm_start_from=None, device=None, start=0.0, layer=None):
    path = model_dir.parent / f"{model_dir.name}.words"
    path.write_text("\n".join(words) + "\n")
    word = fc.categorical_column_with_vocabulary_file(
        "word", str(path), len(words), num_oov_buckets=buckets
    )
    rows = len(words) + buckets
    values = start + np.arange(3 * rows, dtype=np.float32).reshape(rows, 3)
    column = fc.embedding_column(word, 3, initializer=tf.compat.v1.constant_initializer(values))
    spec = ee.EmbeddingConfigSpec([column], ee.AdamParameters(0.5))

    def model_fn(features, labels, mode, params):
        hidden = fc.DenseFeatures([column], name=layer)(features)
        loss = tf.reduce_sum(hidden * hidden)
        if mode == ee.ModeKeys.EVAL:
            return ee.TPUEstimatorSpec(mode, loss=loss)
        return harness.minimized(mode, loss, 0.1)

    return harness.estimator(
        model_fn, spec, model_dir, device=device, warm_start_from=warm_start_from
    )


def train(estimator, words=("apple", "pear", "fig", "plum")):
    batch = ({"word": np.array(words)}, np.zeros(len(words), np.float32))
    estimator.train(harness.input_fn_of([batch]), steps=1)


@pytest.fixture(scope="module")
def old(tmp_path_factory):
    """Model directory of a model of the old vocabulary."""
    model_dir = tmp_path_factory.mktemp("warm_start") / "old"
    train(make(model_dir, OLD, start=1.0))
    return model_dir


def info(old, tmp_path):
    return ee.VocabInfo(
        new_vocab=str(tmp_path / "new.words"),
        new_vocab_size=len(NEW),
        num_oov_buckets=2,
        old_vocab=f"{old}.words",
        old_vocab_size=len(OLD),
        backup_initializer=lambda shape, dtype=tf.float32: tf.fill(shape, -3.0),
    )


def moved(before, backup):
    want = np.full([len(NEW) + 2, 3], backup, np.float32)
    for i, word in enumerate(NEW):
        if word in OLD:
            want[i] = before[OLD.index(word)]
    return want


@pytest.mark.parametrize(
    "asked, device, shards",
    [
        ("named", None, 1),
        ("named", None, 3),
        ("pattern", None, 1),
        ("pattern", "host", 1),
        ("pattern", None, 3),
        ("tables only", None, 1),
        ("tables only", "host", 1),
        ("vocabularies only", None, 1),
    ],
)
def test_rows_move_to_their_new_ids(asked, device, shards, old, tmp_path, in_shards):
    before = harness.saved(old, 1)
    named = {"named": FIELDS}.get(asked, FIELDS[:1])
    settings = ee.WarmStartSettings(
        str(old),
        vars_to_warm_start={
            "named": [".*dense_features.*"],
            "pattern": [".*dense_features.*"],
            "tables only": ".*dense_features.*",
            "vocabularies only": None,
        }[asked],
        var_name_to_vocab_info={NAME + field: info(old, tmp_path) for field in named},
    )
    in_shards(shards)
    words = [2, 7, 0, 4] if device == "host" else OLD  # An emulated TPU takes ids.
    train(make(tmp_path / "new", NEW, warm_start_from=settings, device=device, start=100.0), words)
    got = harness.saved(tmp_path / "new", 0)
    for field in FIELDS:
        name, backup = NAME + field, -3.0
        assert np.all(before[name][:4] != 0)
        if field and asked == "pattern":
            backup = 0.0  # The slot's own.
        if field and asked in ("tables only", "vocabularies only"):
            want = np.zeros([len(NEW) + 2, 3])
        else:
            want = moved(before[name], backup)
        np.testing.assert_array_equal(got[name], want, err_msg=name)


@pytest.mark.parametrize("with_words", [True, False])
def test_slots_follow_a_table_to_its_new_name(with_words, old, tmp_path):
    words = NEW if with_words else OLD
    before = harness.saved(old, 1)
    renamed = NAME.replace("dense_features", "layer")
    settings = ee.WarmStartSettings(
        str(old),
        vars_to_warm_start=["layer.*"],
        var_name_to_vocab_info={renamed: info(old, tmp_path)} if with_words else None,
        var_name_to_prev_var_name={renamed: NAME},
    )
    train(make(tmp_path / "new", words, warm_start_from=settings, layer="layer"))
    got = harness.saved(tmp_path / "new", 0)
    for field in FIELDS:
        want = before[NAME + field]
        if with_words:
            want = moved(want, 0.0 if field else -3.0)
        np.testing.assert_array_equal(got[renamed + field], want)


def test_the_settings_serve_again(old, tmp_path):
    """A second training goes on from its own checkpoint; evaluation has no slots to name."""
    settings = ee.WarmStartSettings(
        str(old),
        vars_to_warm_start=[".*dense_features"],
        var_name_to_vocab_info={NAME: info(old, tmp_path)},
        var_name_to_prev_var_name={},
    )
    estimator = make(tmp_path / "new", NEW, warm_start_from=settings)
    train(estimator)
    train(estimator)
    batch = ({"word": np.array(["fig"])}, np.zeros(1, np.float32))
    metrics = estimator.evaluate(harness.input_fn_of([batch]), steps=1)
    fig = harness.saved(tmp_path / "new", 2)[NAME][0]
    np.testing.assert_allclose(metrics["loss"], np.sum(fig**2), rtol=1e-6)


TABLES = {"words": (6, 2), "items": (4, 2)}


def two_tables(model_dir, start=None):
    spec = ee.EmbeddingConfigSpec(
        feature_to_config_dict={name: ee.FeatureConfig(name) for name in TABLES},
        table_to_config_dict={
            name: ee.TableConfig(*shape, tf.compat.v1.constant_initializer(1.0))
            for name, shape in TABLES.items()
        },
        optimization_parameters=ee.AdagradParameters(0.5, initial_accumulator=0.1),
    )

    def model_fn(features, labels, mode, params):
        loss = tf.reduce_sum(features["words"] + features["items"])
        return harness.minimized(mode, loss, 0.1)

    return harness.estimator(model_fn, spec, model_dir, warm_start_from=start)


def train_two(estimator, steps=1):
    batch = ({name: np.zeros(2, np.int32) for name in TABLES}, np.zeros(2, np.float32))
    estimator.train(harness.input_fn_of([batch] * steps), steps=steps)


@pytest.fixture(scope="module")
def two(tmp_path_factory):
    model_dir = tmp_path_factory.mktemp("two") / "model"
    train_two(two_tables(model_dir), steps=3)
    return model_dir


@pytest.mark.parametrize(
    "patterns, taken, step",
    [
        ([".*"], {"words", "words/Adagrad", "items", "items/Adagrad"}, 1),
        ([".*", "global_step"], {"words", "words/Adagrad", "items", "items/Adagrad"}, 4),
        (["items.*"], {"items", "items/Adagrad"}, 1),
        ("w", {"words"}, 1),
    ],
)
def test_a_pattern_takes_what_it_finds_and_the_global_step_by_name(
    patterns, taken, step, two, tmp_path, caplog
):
    caplog.set_level("INFO", "estimator_emb")
    before = harness.saved(two, 3)
    train_two(two_tables(tmp_path / "new", ee.WarmStartSettings(str(two), patterns)))
    got = harness.saved(tmp_path / "new", step - 1)
    assert got["global_step"] == step - 1
    for name, shape in TABLES.items():
        for variable, initial in ((name, 1.0), (f"{name}/Adagrad", 0.1)):
            want = before[variable] if variable in taken else np.full(shape, initial, np.float32)
            np.testing.assert_array_equal(got[variable], want, err_msg=variable)
    names = sorted([*before, "global_step"] if step > 1 else before)
    begun = sorted(taken | ({"global_step"} if step > 1 else set()))
    others = [name for name in names if name not in begun]
    rest = f"initialized: {', '.join(others)}" if others else "nothing else is to be initialized"
    (said,) = [line for line in caplog.messages if line.startswith("Warm start")]
    assert said == f"Warm start from {two}: {', '.join(begun)}; {rest}."


@pytest.mark.parametrize(
    "patterns, fits, advice",
    [
        (["words", "itms"], "'itms', which fits no variable", " Did you mean 'items'?"),
        (
            ["Adagrad"],
            "'Adagrad', which fits no variable",
            " It must fit from the beginning of a name: '.*Adagrad' finds items/Adagrad, "
            "words/Adagrad.",
        ),
        (
            "words/Adagrad",
            "'words/Adagrad', which fits no trainable variable",
            " A list looks among all variables: vars_to_warm_start=['words/Adagrad'].",
        ),
        (
            ["x.*"],
            "'x.*', which fits no variable",
            " It has global_step, items, items/Adagrad, words, words/Adagrad.",
        ),
    ],
)
def test_a_pattern_that_finds_nothing_is_refused(patterns, fits, advice, two, tmp_path):
    estimator = two_tables(tmp_path / "new", ee.WarmStartSettings(str(two), patterns))
    message = harness.refusal(ValueError, train_two, estimator)
    assert message == (
        f"warm_start_from: vars_to_warm_start has the pattern {fits} of the model.{advice}"
    )
    assert not list((tmp_path / "new").glob("model.ckpt*"))
