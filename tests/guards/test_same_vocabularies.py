"""A vocabulary that changes between two trainings in a model_dir is refused.

The change would give rows to other words. Stock tensorflow-estimator trains and evaluates without a
message.
"""

import hashlib
import os
import pathlib

import harness
import numpy as np
import pytest
import tensorflow as tf

import estimator_emb as ee
import feature_columns as fc
from estimator_emb.checkpoints.restoring import vocabulary_record
from estimator_emb.checkpoints.restoring.vocabulary_record import ChangedVocabulary

pytestmark = pytest.mark.usefixtures("installed")
WORDS = ["apple", "pear", "fig"]
RECORD = "estimator_emb_vocabularies.json"
BATCH = {"fruit": np.array([b"fig", b"pear"])}, np.zeros([2, 1], np.float32)


def from_list(module, words, folder, oov=1):
    return module.categorical_column_with_vocabulary_list("fruit", words, num_oov_buckets=oov)


def from_file(module, words, folder, oov=1):
    path = pathlib.Path(folder, "words.txt")
    path.write_text("".join(f"{word}\n" for word in words))
    return module.categorical_column_with_vocabulary_file(
        "fruit", str(path), len(words), num_oov_buckets=oov
    )


def tables(column, model_dir):
    columns = [fc.embedding_column(column, 2)]

    def model_fn(features, labels, mode, params):
        output = tf.reduce_sum(fc.DenseFeatures(columns)(features), 1, keepdims=True)
        output *= tf.compat.v1.get_variable("scale", [], initializer=tf.ones_initializer())
        if mode == ee.ModeKeys.PREDICT:
            return harness.served(mode, predictions=output)
        return harness.minimized(mode, tf.reduce_mean(tf.square(output - labels)), 0.1)

    spec = ee.EmbeddingConfigSpec(columns, ee.AdagradParameters(0.1))
    return harness.estimator(model_fn, spec, model_dir, batch_size=2)


def listed(words, model_dir, oov=1):
    """Returns an estimator with a table of these words and `oov` rows of unknown words."""
    return tables(from_list(fc, words, None, oov), model_dir)


def canned(column, model_dir):
    columns = [tf.feature_column.embedding_column(column, 2)]
    return tf.estimator.DNNRegressor([2], columns, str(model_dir))


KINDS = {"tables": tables, "canned": canned}
KINDS["linear"] = lambda column, folder: tf.estimator.LinearRegressor([column], str(folder))


def input_fn(params=None):
    return tf.data.Dataset.from_tensors(BATCH).repeat()


def train(estimator):
    return estimator.train(input_fn, steps=1)


CALLS = {
    "train": train,
    "evaluate": lambda estimator: estimator.evaluate(input_fn, steps=1),
    "predict": lambda estimator: next(iter(estimator.predict(input_fn))),
}


def refused(call, estimator):
    """Asserts that a call refuses the vocabulary, and returns the error's message."""
    with pytest.raises(ChangedVocabulary) as error:
        call(estimator)
    message = str(error.value)
    assert message.startswith("The vocabulary of column 'fruit' has changed since the training of")
    return message


@pytest.mark.fast(1)
@pytest.mark.parametrize("column", [from_list, from_file])
@pytest.mark.parametrize("kind", ["tables", *(harness.slow(kind) for kind in list(KINDS)[1:])])
def test_a_changed_vocabulary_is_refused(kind, column, tmp_path):
    """The same words are accepted, also from a file instead of a list, or the other way round."""
    folder = tmp_path / "model"
    module = fc if kind == "tables" else tf.feature_column
    train(KINDS[kind](column(module, WORDS, tmp_path), folder))
    before = harness.saved(folder, 1)
    for words in (["fig", "apple", "pear"], ["kiwi", *WORDS[1:]]):  # Another order, another word.
        estimator = KINDS[kind](column(module, words, tmp_path), folder)
        # All calls share the comparison, so only one of these cases tries them all.
        for call in CALLS.values() if kind == "tables" and "kiwi" in words else [train]:
            assert f"'{folder}/model.ckpt-1': it had 3 words, and now" in refused(call, estimator)
    assert harness.last_step(folder) == 1  # The refused trainings saved nothing.
    assert all(np.array_equal(before[name], now) for name, now in harness.saved(folder, 1).items())
    train(KINDS[kind](column(module, WORDS, tmp_path), folder))
    record = (folder / RECORD).read_bytes()
    equal = from_list if column is from_file else from_file
    CALLS["evaluate"](KINDS[kind](equal(module, WORDS, tmp_path), folder))
    assert (folder / RECORD).read_bytes() == record


@pytest.mark.parametrize("piece", [1, 1 << 20])  # Bytes of a file that are read at a time.
def test_equivalent_vocabularies_have_the_same_record(piece, tmp_path, monkeypatch):
    """Equivalent: a list of the words, other line ends, extra lines after the number of words."""
    monkeypatch.setattr(vocabulary_record, "_PIECE_BYTES", piece)
    file = tmp_path / "words.txt"
    whole, number = tf.lookup.TextFileIndex.WHOLE_LINE, tf.lookup.TextFileIndex.LINE_NUMBER

    def recorded(initializer, *args):
        with tf.Graph().as_default() as graph, tf.name_scope("fruit_lookup"):  # A column's name.
            tf.lookup.StaticHashTable(initializer(*args), -1)
        return vocabulary_record.vocabularies_of(graph)

    three_words = {"fruit": [[3, hashlib.sha256(b"apple\npear\nfig\n").hexdigest()]]}
    assert recorded(tf.lookup.KeyValueTensorInitializer, WORDS, [0, 1, 2]) == three_words
    for text, size in (
        ("apple\r\npear\r\nfig\r\n", None),  # None: all lines.
        ("apple\npear\nfig", None),
        ("apple\npear\nfig\nkiwi", 3),
        ("apple\npear\nfig\nkiwi\nlime\n", 3),
    ):
        file.write_text(text, newline="")
        given = str(file), tf.string, whole, tf.int64, number, size
        assert recorded(tf.lookup.TextFileInitializer, *given) == three_words


def test_the_record_keeps_vocabularies_of_all_trainings(tmp_path):
    """Two columns may have the key 'fruit', each with its own vocabulary."""
    one, two, three = [3, "a"], [4, "b"], [4, "c"]  # Number of words, checksum.
    write = vocabulary_record.write
    write(str(tmp_path), {"fruit": [one, two]}, continues=False)
    write(str(tmp_path), {"fruit": [one]}, continues=True)  # Leaves `two` out: the record keeps it.
    path = f"{tmp_path}/model.ckpt-1"
    vocabulary_record.check_unchanged(path, {"fruit": [two, one]})
    with pytest.raises(ChangedVocabulary):  # `three` is new and `two` is gone.
        vocabulary_record.check_unchanged(path, {"fruit": [one, three]})
    # A training from scratch begins a new record, without `one` and `two`.
    write(str(tmp_path), {"Äpfel": [], "fruit": [three]}, continues=False)
    text = '{\n "fruit": [\n  [\n   4,\n   "c"\n  ]\n ],\n "Äpfel": []\n}\n'
    assert (tmp_path / RECORD).read_text() == text
    vocabulary_record.check_unchanged(path, {"fruit": [three]})
    assert os.listdir(tmp_path) == [RECORD]  # No temporary file is left.


def test_a_grown_vocabulary_is_refused_unless_the_record_is_unreadable(
    tmp_path, caplog, assert_recorded
):
    train(listed(WORDS, tmp_path))
    # Another number of rows needs no record: it does not fit the checkpoint's shapes.
    with pytest.raises(tf.errors.InvalidArgumentError, match="does not fit the program"):
        train(listed([*WORDS, "kiwi"], tmp_path))
    # The same shape, but with four words instead of three and a row for unknown words.
    grown = listed([*WORDS[:2], "kiwi", "fig"], tmp_path, oov=0)
    assert_recorded(refused(train, grown))
    refused(CALLS["evaluate"], listed(WORDS[::-1], tmp_path))  # As many words.
    file = tmp_path / RECORD
    file.write_text("[")  # No JSON.
    CALLS["evaluate"](grown)
    assert f"{file} cannot be read: vocabularies are not compared with it." in harness.said(caplog)


@pytest.mark.slow
def test_a_folder_without_a_record_is_accepted(tmp_path):
    """Stock tensorflow-estimator writes no record. The next training here begins the record."""
    train(listed(WORDS, tmp_path))
    (tmp_path / RECORD).unlink()
    CALLS["evaluate"](listed(WORDS[::-1], tmp_path))
    assert not (tmp_path / RECORD).exists()
    train(listed(WORDS[::-1], tmp_path))
    assert f"'{tmp_path}/model.ckpt-2'" in refused(train, listed(WORDS, tmp_path))


@pytest.mark.slow
def test_a_training_from_scratch_may_change_the_vocabulary(tmp_path):
    train(listed(WORDS, tmp_path / "model"))
    for file in (tmp_path / "model").glob("*ckpt*"):
        file.unlink()
    (tmp_path / "model" / "checkpoint").unlink()
    train(listed(WORDS[::-1], tmp_path / "model"))
    CALLS["evaluate"](listed(WORDS[::-1], tmp_path / "model"))
