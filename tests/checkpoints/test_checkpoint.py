"""Reading and converting checkpoints, including a legacy TPUEstimator's checkpoint with 'mod'."""

import harness
import numpy as np
import pytest
import tensorflow as tf
from legacy_checkpoint import ACCUMULATORS, FEW, HELPER, HOSTS, TABLE, WORDS, read, write_legacy
from saved_values import save

import estimator_emb as ee
from estimator_emb import checkpoint
from estimator_emb.checkpoints.files import checkpoint_reader, writer


def test_inspect_lists_variables_and_tables(tmp_path):
    path = write_legacy(tmp_path)
    for named in (path, str(tmp_path)):
        found = {one.name: one for one in checkpoint.inspect(named)}
        names = "dense/kernel empty few few/mine global_step note".split()
        assert list(found) == sorted([TABLE, HELPER, f"{HELPER}/Adam", *names])
        words = found[TABLE]
        assert words == checkpoint.SavedVariable(
            words.name, (13, 2), tf.float32, (f"{words.name}/Adagrad",), "Adagrad"
        )
        assert words.bytes == 4 * 26 * 2
        few = found["few"]
        assert (few.optimizer, few.slots) == ("Adam", ("few/Adam/m", "few/Adam/v"))
        assert (found["few/mine"].optimizer, found["few/mine"].slots) == (None, ())
        assert (found["global_step"].shape, found["global_step"].bytes) == ((), 8)
        assert (found["note"].dtype, found["note"].bytes) == (tf.string, 0)


@pytest.mark.parametrize("chunk", [20, 1 << 30])
def test_convert_to_id_order(chunk, tmp_path, monkeypatch):
    monkeypatch.setattr(writer, "CHUNK_BYTES", chunk)
    monkeypatch.setattr(checkpoint_reader, "PIECE_BYTES", chunk)
    path = write_legacy(tmp_path / "old")
    as_saved = read(path)
    assert not np.array_equal(as_saved[TABLE], WORDS)
    seen = []
    made = checkpoint.convert(
        path,
        str(tmp_path / "new" / "model.ckpt-7"),
        [TABLE, "few", "few/mine"],
        progress=lambda done, total: seen.append((done, total)),
        source_order="mod",
    )
    assert made == checkpoint.Conversion(
        str(tmp_path / "new" / "model.ckpt-7"),
        (TABLE, f"{TABLE}/Adagrad", "few", "few/Adam/m", "few/Adam/v", "few/mine"),
        (HELPER, f"{HELPER}/Adam"),
        HOSTS,
        1,
        (),
    )
    assert tf.train.latest_checkpoint(str(tmp_path / "new")) == made.path
    got = read(made.path)
    want = {
        **{name: value for name, value in as_saved.items() if HELPER not in name},
        TABLE: WORDS,
        f"{TABLE}/Adagrad": ACCUMULATORS,
        "few": FEW,
        "few/Adam/m": FEW + 10,
        "few/Adam/v": FEW + 20,
        "few/mine": FEW + 30,
        "estimator_emb/row_order": got["estimator_emb/row_order"],
    }
    np.testing.assert_equal(got, want)
    for name, value in want.items():
        assert np.asarray(got[name]).dtype == np.asarray(value).dtype
    total = 3 * (4 * (13 * 2 * 2 + 6 * 4 + 9) + 8)  # Checked, written and read back.
    assert seen[-1] == (total, total)
    assert sorted(seen) == seen

    assert not list(tmp_path.glob("**/*.tmp"))


def test_a_converted_checkpoint_trains_on(tmp_path, meta_graphs):
    by_host = [i for host in range(HOSTS) for i in range(host, 13, HOSTS)]
    for name, rows in (("right", slice(None)), ("legacy", by_host)):
        tables = {"words": WORDS[rows], "words/Adagrad": ACCUMULATORS[rows]}
        save(f"{tmp_path}/{name}/model.ckpt-0", {**tables, "global_step": np.int64(0)})
    legacy = {"tables": ["words"], "hosts": HOSTS, "force": True}
    checkpoint.convert(f"{tmp_path}/legacy", f"{tmp_path}/new", source_order="mod", **legacy)
    spec = ee.EmbeddingConfigSpec(
        feature_to_config_dict={"x": ee.FeatureConfig("words")},
        table_to_config_dict={"words": ee.TableConfig(13, 2)},
        optimization_parameters=ee.AdagradParameters(0.1),
        partition_strategy="mod",
    )
    batch = {"x": np.array([1, 5, 12])}, {"x": np.ones([3, 2], np.float32)}
    for name in ("right", "new"):
        estimator = harness.estimator(
            harness.gradient_model_fn(["x"]), spec, tmp_path / name, batch_size=3
        )
        estimator.train(harness.input_fn_of([batch]), steps=1)
    got, want = (harness.saved(tmp_path / name, 1) for name in ("new", "right"))
    assert not np.array_equal(want["words"], WORDS)
    np.testing.assert_equal(got, want)
    # The record is not saved again, but the graph beside the checkpoint is recognized as ours.
    for strategy in (None, "mod"):
        given = {"source": f"{tmp_path}/new", "destination": f"{tmp_path}/x", **legacy}
        said = harness.refusal(ValueError, checkpoint.convert, source_order=strategy, **given)
        assert said.endswith("model.ckpt-1.meta' is a graph of this package.")
    np.testing.assert_array_equal(checkpoint.table(str(tmp_path / "new"), "words"), got["words"])


@pytest.mark.parametrize(
    "change, phrase",
    [
        ({"to": "div"}, "convert: to must be 'ids' or 'mod'; got 'div'."),
        ({"hosts": 0}, "convert: hosts must be at least 1; got 0."),
        ({"to_hosts": 0}, "convert: to_hosts must be at least 1; got 0."),
        ({"to_hosts": 2}, "convert: to_hosts needs to='mod'"),
        ({"to": "mod", "hosts": None}, "convert: to='mod' needs to_hosts"),
        ({"source_order": "ids"}, "convert: source_order must be 'div' or 'mod'; got 'ids'."),
        ({"tables": []}, "convert: tables must name at least one table (--table)."),
        ({"source": "{folder}/nothing"}, "There is no checkpoint '{folder}/nothing'."),
        ({"source": "{folder}/model.ckpt-7.index"}, "without the end of the file's name."),
        ({"source": "{folder}/void"}, "Folder '{folder}/void' holds no checkpoint."),
        ({"destination": "{folder}/model.ckpt-7.index/8"}, "is a file; it must be a folder for"),
        ({"destination": "{folder}/model.ckpt-7"}, "'{folder}/model.ckpt-7' exists already."),
        *(({"tables": [name]}, "no embedding table matches") for name in ("wrds", "dense/*")),
        ({"tables": ["dense/kernel"]}, "is no embedding table, by its name, its type or its shape"),
        ({"tables": ["global_step"]}, "is no embedding table, by its name, its type or its shape"),
        ({"tables": ["few/Adam/m"]}, "is a slot, which moves with its table: name the table, 'few"),
    ],
)
def test_convert_refuses_invalid_arguments(change, phrase, tmp_path):
    path = write_legacy(tmp_path)
    (tmp_path / "void").mkdir()
    before = sorted(tmp_path.iterdir())
    arguments = {
        "source": path,
        "destination": f"{tmp_path}/new/7",
        "tables": ["few"],
        "hosts": 4,
        "source_order": "mod",
        **change,
    }
    for name in ("source", "destination"):
        arguments[name] = arguments[name].format(folder=tmp_path)
    said = harness.refusal(ValueError, checkpoint.convert, **arguments)
    assert phrase.format(folder=tmp_path) in said
    assert sorted(tmp_path.iterdir()) == before
