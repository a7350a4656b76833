"""Statistics of a checkpoint's values, and reading its tables, compared with NumPy."""

import cProfile
import pstats
import shutil

import numpy as np
import pytest
import tensorflow as tf
from harness import normal, refusal
from saved_values import MOD, WORDS, write

from estimator_emb import checkpoint, optimizers
from estimator_emb.checkpoints.files import checkpoint_reader


@pytest.mark.parametrize("piece", [64, 1 << 25])
def test_statistics_of_norms_and_bad_numbers(piece, tmp_path, monkeypatch):
    monkeypatch.setattr(checkpoint_reader, "PIECE_BYTES", piece)
    words = normal(0, 1001, 4)
    words[3, 1], words[9, 0], words[9, 3], words[10] = np.nan, np.inf, -np.inf, 0
    slot = np.ones_like(words)  # Accumulators only grow: all rows still have the initial value.
    slot[5, 0], slot[7, 1] = np.nan, np.inf
    path = write(tmp_path / "a.ckpt", {"words": words, "words/Adagrad": slot}, slices=300)
    seen = []
    (found,) = checkpoint.statistics(path, progress=lambda *done: seen.append(done))
    assert seen[-1] == (4 * 16016, 4 * 16016)  # Two matrices of 16016 bytes, each read twice.
    norms = np.linalg.norm(np.delete(words, [3, 9], axis=0).astype(np.float64), axis=1)
    assert (found.name, found.rows, found.dimension, found.bytes) == ("words", 1001, 4, 2 * 16016)
    assert (found.nan, found.infinite) == (1 + 1, 2 + 1)  # In the table and in the slot.
    assert found.mean_norm == pytest.approx(norms.mean(), rel=1e-6)
    assert found.largest_norm == pytest.approx(norms.max(), rel=1e-6)
    assert found.never_trained == 1001 - 2  # All rows except the slot's rows 5 and 7.


def test_statistics_of_a_table_without_finite_values(tmp_path):
    tables = {"none": np.zeros([0, 2]), "bad": [[np.nan]], "flat": np.zeros([3, 0])}
    bad, flat, none = checkpoint.statistics(write(tmp_path / "a.ckpt", tables))
    assert (none.rows, none.nan, bad.nan, flat.rows, flat.mean_norm) == (0, 0, 1, 3, 0)
    assert np.isnan([none.mean_norm, bad.mean_norm]).all()
    assert (none.largest_norm, bad.largest_norm) == (0, 0)


@pytest.mark.parametrize("optimizer", optimizers.PARAMETERS, ids=lambda one: one.__name__)
@pytest.mark.parametrize("dimension", [1, 2])
def test_slots_and_untrained_rows_of_every_optimizer(optimizer, dimension, tmp_path):
    """The first five of twelve rows were trained: their slots have left the initial values.

    A string as `slot.initial` means that the program chooses the value, here 0.3. Then the smallest
    value tells it if it fills a row, which means nothing in a table with one column.
    """
    weights = normal(0, 12, dimension)
    variables = {"words": weights, "dense/kernel": weights}
    chosen_only = all(isinstance(slot.initial, str) for slot in optimizer.slots)
    for slot in optimizer.slots:
        initial = 0.3 if isinstance(slot.initial, str) else slot.initial
        value = np.full([12, dimension], initial, np.float32)
        value[:5] += 1 + normal(0, 5, dimension) ** 2
        variables[f"words{slot.suffix}"] = value
    path = write(tmp_path / "a.ckpt", variables)
    (listed,) = [one for one in checkpoint.inspect(path) if one.name == "words"]
    assert listed.slots == tuple(sorted(f"words{slot.suffix}" for slot in optimizer.slots))
    name = optimizer.__name__.removesuffix("Parameters")
    assert listed.optimizer == (name if optimizer.slots else None)
    (found,) = checkpoint.statistics(path)  # A dense layer's kernel is not a table.
    if not optimizer.slots:
        assert (found.never_trained, found.why_unknown) == (None, "it has no slots")
    elif chosen_only and dimension == 1:
        why = "with one column, an accumulator tells nothing"
        assert (found.never_trained, found.why_unknown) == (None, why)
    else:
        assert (found.never_trained, found.why_unknown) == (12 - 5, "")
    for slot in optimizer.slots:
        read = checkpoint.table(path, "words", slot.suffix.removeprefix("/"))
        np.testing.assert_array_equal(read, variables[f"words{slot.suffix}"])


@pytest.mark.parametrize(
    "suffixes, starts",  # starts: the initial value of each slot.
    [
        (("/Adam", "/Adam_1"), (0, 0)),
        (("/RMSProp", "/RMSProp_1"), (1, 0)),
        (("/RMSProp", "/RMSProp_1", "/RMSProp_2"), (1, 0, 0)),
        (("/Adadelta", "/Adadelta_1"), (0, 0)),
    ],
)
def test_statistics_find_slots_of_a_legacy_cpu_checkpoint(suffixes, starts, tmp_path):
    variables = {WORDS: normal(0, 6, 2)}
    for suffix, start in zip(suffixes, starts, strict=True):
        variables[WORDS + suffix] = np.full([6, 2], start, np.float32)
        variables[WORDS + suffix][3:] += 1
    variables[WORDS + suffixes[1]][2] += 1  # So all rows but rows 0 and 1 were trained.
    path = write(tmp_path / "a.ckpt", variables)
    (found,) = checkpoint.statistics(path)
    assert (found.name, found.never_trained) == (WORDS, 2)
    assert list(checkpoint.tables(path)) == [WORDS]


def test_untrained_rows_without_initial_values_and_without_a_slot(tmp_path):
    values = normal(0, 50, 3)
    trained = {"trained": values, "trained/Adagrad": 0.1 + values**2}  # All rows were trained.
    path = write(tmp_path / "a.ckpt", {**trained, "words": values, "words/Adam/m": values})
    without_adam_v, of_adagrad = checkpoint.statistics(path, ["words", "trained"])
    assert of_adagrad.never_trained == 0
    assert without_adam_v.why_unknown == "its slots do not tell its optimizer"


BY_ID = np.float32([[10 * row, 10 * row + 1] for row in range(13)])
"""Rows of 'words' in data/tpu_checkpoints. The accumulators there are 0.5 higher."""


@pytest.mark.parametrize("strategy", ["div", "mod"])
def test_table_is_in_id_order(strategy, tmp_path, monkeypatch):
    """With 'mod', the checkpoint has the rows host by host: host 0 of 4 has ids 0, 4, 8, 12."""
    folder = MOD.removesuffix("mod") + strategy
    converted = checkpoint.convert(folder, f"{tmp_path}/new", ["*"], to="mod", to_hosts=2).path
    for slot, more in ((None, 0), ("Adagrad", 0.5), ("/Adagrad", 0.5)):
        read = checkpoint.table(folder, "words", slot)
        assert read.dtype == np.float32
        np.testing.assert_array_equal(read, BY_ID + more)
        for rows, size in ((5, 1 << 25), (None, 40)):  # 40 bytes are 5 rows of two float32.
            monkeypatch.setattr(checkpoint_reader, "PIECE_BYTES", size)
            pieces = dict(checkpoint.table_pieces(folder, "words", slot, rows=rows))
            assert [*pieces] == [0, 5, 10]
            np.testing.assert_array_equal(np.concatenate([*pieces.values()]), BY_ID + more)
        monkeypatch.setattr(checkpoint_reader, "PIECE_BYTES", 7)  # Less than a row.
        for rows in (None, 1):
            assert len([*checkpoint.table_pieces(folder, "words", slot, rows=rows)]) == 13
        np.testing.assert_array_equal(checkpoint.table(converted, "words", slot), BY_ID + more)


def test_table_needs_an_order_without_a_graph(tmp_path):
    path, no_graph = f"{tmp_path}/model.ckpt-7", shutil.ignore_patterns("*.meta")
    shutil.copytree(MOD, tmp_path, ignore=no_graph, dirs_exist_ok=True)
    message = refusal(ValueError, checkpoint.table, path, "words")
    assert f"nothing in {path!r} says in which order the rows of 'words' are." in message
    np.testing.assert_array_equal(checkpoint.table(path, "words", order="mod"), BY_ID)
    by_host = [0, 4, 8, 12, 1, 5, 9, 2, 6, 10, 3, 7, 11]  # As 'mod' has saved them.
    np.testing.assert_array_equal(checkpoint.table(path, "words", order="div"), BY_ID[by_host])


def test_a_variable_that_the_graph_of_a_tpu_does_not_load_is_in_id_order(tmp_path):
    half = BY_ID.astype(tf.bfloat16.as_numpy_dtype)  # Exact, because these integers are small.
    path = write(tmp_path / "a.ckpt", {"words": BY_ID, "other": half}, hosts={"words": 4})
    shutil.copy(f"{MOD}/model.ckpt-7.meta", f"{path}.meta")
    for name, saved in (("words", BY_ID), ("other", half)):
        np.testing.assert_array_equal(checkpoint.table(path, name), saved, strict=True)


def test_table_refuses_an_order_that_contradicts_the_checkpoint(tmp_path):
    with pytest.raises(ValueError, match="order is 'div', and the rows of 'words' in .* 4 hosts"):
        checkpoint.table(MOD, "words", order="div")
    np.testing.assert_array_equal(checkpoint.table(MOD, "words", order="mod"), BY_ID)
    with pytest.raises(ValueError, match="order is 'mod', and .* in the order of the ids"):
        checkpoint.table(MOD.removesuffix("mod") + "div", "words", order="mod")
    by_id = checkpoint.table(MOD.removesuffix("mod") + "div", "words", order="div")
    np.testing.assert_array_equal(by_id, BY_ID)
    whole = write(tmp_path / "whole.ckpt", {"words": BY_ID})
    with pytest.raises(ValueError, match="order is 'mod', and 'words' is saved in one part"):
        checkpoint.table(whole, "words", order="mod")
    # A row on each of three hosts is in both orders.
    rows = write(tmp_path / "rows.ckpt", {"words": BY_ID[:3]}, hosts={"words": 3})
    np.testing.assert_array_equal(checkpoint.table(rows, "words", order="mod"), BY_ID[:3])


def test_table_refuses_wrong_arguments():
    with pytest.raises(ValueError, match="order must be 'div' or 'mod'; got 'ids'"):
        checkpoint.table(MOD, "words", order="ids")
    with pytest.raises(ValueError, match="rows must be at least 1; got 0"):
        next(checkpoint.table_pieces(MOD, "words", rows=0))


assert WORDS == "dense_features/words_embedding/embedding_weights"
SHARED = "tower/a_b_shared_embedding"  # The table that columns 'a' and 'b' share.


@pytest.mark.parametrize(
    "name, variable",
    [
        *((name, WORDS) for name in (WORDS, "words", "words_embedding", "tbl_words")),
        *((name, SHARED) for name in ("a_b", "a_b_shared_embedding", "tbl_a_b_shared_embedding")),
    ],
)
def test_table_accepts_short_and_full_names(name, variable, tmp_path):
    tables = {WORDS: normal(0, 6, 2), f"{WORDS}/Adagrad": normal(0, 6, 2), SHARED: normal(0, 5, 2)}
    path = write(tmp_path / "a.ckpt", {**tables, "other": normal(0, 6, 2)})
    np.testing.assert_array_equal(checkpoint.table(path, name), tables[variable])


def test_table_name_that_also_fits_a_column(tmp_path):
    """The name 'tbl_words' fits the tables of a column 'words' and of a column 'tbl_words'."""
    weights, others = normal(0, 6, 2), normal(0, 7, 2)
    tbl_words = "tower/tbl_words_embedding/embedding_weights"
    path = write(tmp_path / "a.ckpt", {tbl_words: weights, "other": others})
    with pytest.raises(ValueError, match="there is no table called 'tbl_other' in checkpoint"):
        checkpoint.table(path, "tbl_other")  # Not a column's table, so it has only its own name.
    for name in ("tbl_words", "tbl_tbl_words"):
        np.testing.assert_array_equal(checkpoint.table(path, name), weights)
    both = write(tmp_path / "both.ckpt", {tbl_words: weights, WORDS: others})
    with pytest.raises(ValueError, match="there is more than one table, .* called 'tbl_words'"):
        checkpoint.table(both, "tbl_words")
    np.testing.assert_array_equal(checkpoint.table(both, "words"), others)
    np.testing.assert_array_equal(checkpoint.table(both, "tbl_tbl_words"), weights)


def test_table_refuses_unknown_and_ambiguous_names(tmp_path):
    weights = normal(0, 6, 2)
    names = [WORDS, "tower/words_embedding/embedding_weights", "a/kernel_1"]
    both = dict.fromkeys(names, weights)
    no_tables = {"a/bias": weights[:, 0], "a/counts": weights.astype(np.int32)}
    path = write(tmp_path / "a.ckpt", {**both, **no_tables})
    message = refusal(ValueError, checkpoint.table, path, "words")
    assert f"there is more than one table, {sorted(both)[1:]}, called 'words'" in message
    for name in ("word", "embedding_weights", "", "WORDS", *no_tables):
        with pytest.raises(ValueError, match=f"there is no table called '{name}' in checkpoint"):
            checkpoint.table(path, name)
    with pytest.raises(ValueError, match=r"has no slot 'Adam/m'; it has \[\]"):
        checkpoint.table(path, WORDS, "Adam/m")
    with pytest.raises(ValueError, match="'nothing' is no table of checkpoint"):
        checkpoint.statistics(path, ["nothing"])


def saved(folder, tables):
    names = [f"column_{number}_embedding/embedding_weights" for number in range(tables)]
    names += [f"{name}/Adagrad" for name in names]
    return write(folder / f"{tables}.ckpt", dict.fromkeys(names, np.zeros([3, 2], np.float32)))


COMMANDS = {
    "export": lambda path, out, tables: checkpoint.export(path, out, "npz", tables=tables),
    "statistics": lambda path, out, tables: checkpoint.statistics(path),
    "convert": lambda path, out, tables: checkpoint.convert(
        path, f"{out}/model.ckpt", tables, source_order="mod", hosts=2, force=True
    ),
    "inspect": lambda path, out, tables: checkpoint.inspect(path),
}


@pytest.mark.slow
@pytest.mark.any_version
@pytest.mark.parametrize("name", COMMANDS)
def test_work_of_commands_grows_linearly_with_tables(name, tmp_path):
    calls = []
    for count in (10, 20, 80):  # The first run imports modules.
        path = saved(tmp_path, count)
        tables = [f"column_{one}_embedding/embedding_weights" for one in range(count)]
        with cProfile.Profile() as profile:
            COMMANDS[name](path, f"{tmp_path}/out_{count}", tables)
        calls.append(pstats.Stats(profile).total_calls)
    assert calls[2] < 4.5 * calls[1], calls  # 80 tables are 4 times 20.
