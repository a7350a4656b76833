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
