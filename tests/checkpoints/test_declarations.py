"""Checkpoints with an index that declares something impossible, but has correct checksums.

TensorFlow aborts the process for most of them.
"""

import pathlib
import shutil

import harness
import hostile_checkpoint
import numpy as np
import pytest
import saved_values
import tensorflow as tf
from words_program import call, make, refused, spec

import estimator_emb as ee
from estimator_emb import checkpoint
from estimator_emb.checkpoints.files import checkpoint_files, checkpoint_reader
from estimator_emb.checkpoints.files.checkpoint_files import DamagedCheckpoint, MissingCheckpoint
from estimator_emb.cli import main as main_lib

NAME = b"words"


@pytest.fixture(scope="module")
def once(tmp_path_factory):
    variables = {
        "words": np.arange(40, dtype=np.float32).reshape(10, 4),
        "text": np.array([b"", b"b" * 300], object),
        "global_step": np.int64(3),
    }
    folder = tmp_path_factory.mktemp("once")
    saved_values.write(folder / "whole", variables)
    saved_values.write(folder / "sliced", variables, slices=4)
    return folder


def copy(once, kind, tmp_path):
    for file in once.glob(f"{kind}.*"):
        shutil.copy(file, tmp_path / file.name.replace(kind, "model.ckpt-3"))
    return f"{tmp_path}/model.ckpt-3"


def shape(*sizes, of=NAME):
    def change(header, entries):
        del entries[of].shape.dim[:]
        for size in sizes:
            entries[of].shape.dim.add(size=size)

    return change


def field(name, value, of=NAME):
    return lambda header, entries: setattr(entries[of], name, value)


def shards(count):
    return lambda header, entries: setattr(header, "num_shards", count)


def unknown_rank(header, entries):
    entries[NAME].shape.unknown_rank = True


def start(value):
    def change(header, entries):
        entries[NAME].slices[1].extent[0].start = value

    return change


def one_more_slice(header, entries):
    entries[NAME].slices.add().extent.add(start=0, length=1)


def shorter_slice(header, entries):
    key = sorted(key for key in entries if key.startswith(b"\0"))[0]
    entries[key].shape.dim[0].size = 1
    entries[key].size = 16


def without_a_slice(header, entries):
    del entries[sorted(key for key in entries if key.startswith(b"\0"))[-1]]
    del entries[NAME].slices[-1]


def not_utf8(header, entries):
    entries[b"\xff"] = entries.pop(NAME)


WORDS = "'{path}.index' declares variable words "
FIT = "which its {} bytes do not fill"
HOSTILE = {
    "many files": (shards(2**31 - 1), "'{path}.data-00000-of-2147483647' is missing"),
    "negative files": (shards(-1), "'{path}.data-00000-of--0001' is missing"),
    "negative": (shape(-1, 4), f"{WORDS}of the shape [-1, 4], which no tensor has"),
    "overflow": (
        shape(2**40, 2**40),
        f"{WORDS}of the shape [{2**40}, {2**40}], which no tensor has",
    ),
    "overflow by 0": (
        shape(2**40, 2**40, 0),
        f"{WORDS}of the shape [{2**40}, {2**40}, 0], which no tensor has",
    ),
    "large": (shape(2**40, 4), f"{WORDS}of float32 and the shape [{2**40}, 4], {FIT.format(160)}"),
    "small": (shape(9, 4), f"{WORDS}of float32 and the shape [9, 4], {FIT.format(160)}"),
    "dimensions": (shape(*[1] * 301), f"{WORDS}with 301 dimensions; TensorFlow has at most 254"),
    "rank": (unknown_rank, f"{WORDS}with unknown dimensions; TensorFlow has at most 254"),
    "type": (field("dtype", 99), f"{WORDS}of the type 99, which no checkpoint has"),
    "resource": (field("dtype", 20), f"{WORDS}of the type 20, which no checkpoint has"),
    "reference": (field("dtype", 101), f"{WORDS}of the type 101, which no checkpoint has"),
    "variant": (field("dtype", 21), f"{WORDS}of variant and the shape [10, 4], {FIT.format(160)}"),
    "offset": (field("offset", -8), f"{WORDS}at byte -8 of file 0, with 160 bytes"),
    "strings": (
        shape(2**40, of=b"text"),
        "'{path}.index' declares variable text of string and the shape "
        f"[{2**40}], {FIT.format(307)}",
    ),
    "words as strings": (
        field("dtype", 7),
        f"{WORDS}of string and the shape [10, 4], {FIT.format(160)}",
    ),
    "name": (
        not_utf8,
        "'{path}.index' cannot be read ('utf-8' codec can't decode byte 0xff in position 0: "
        "invalid start byte)",
    ),
}
IN_SLICES = {
    "outside": (start(2**62), "with a slice that does not fit its shape [10, 4]"),
    "before": (start(-4), "with a slice that does not fit its shape [10, 4]"),
    "more": (one_more_slice, "with a slice that is missing"),
    "shorter": (shorter_slice, "with a slice that does not fit its shape [10, 4]"),
    "fewer": (without_a_slice, "with slices that do not fill its shape [10, 4]"),
    "other type": (field("dtype", 2), "with a slice that does not fit its shape [10, 4]"),
}


@pytest.mark.parametrize("kind", [*HOSTILE, *IN_SLICES])
def test_reader_names_impossible_declarations(kind, once, tmp_path):
    path = copy(once, "whole" if kind in HOSTILE else "sliced", tmp_path)
    change, problem = HOSTILE[kind] if kind in HOSTILE else IN_SLICES[kind]
    problem = problem if kind in HOSTILE else WORDS + problem
    assert checkpoint_files.find_problem(path, thorough=True) is None
    hostile_checkpoint.rewrite(path, change)
    error = MissingCheckpoint if kind.endswith("files") else DamagedCheckpoint
    assert harness.refusal(error, checkpoint_reader.CheckpointReader, path) == (
        f"Checkpoint '{path}' is damaged: {problem.format(path=path)}."
    )


def test_reader_refuses_wrong_lengths_of_strings(once, tmp_path):
    """The lengths are in the data file, with their own checksum."""
    path = copy(once, "whole", tmp_path)
    file = pathlib.Path(f"{path}.data-00000-of-00001")
    contents = bytearray(file.read_bytes())
    place = contents.index(bytes([0, 0xAC, 2]))  # The lengths 0 and 300.
    contents[place + 2] = 0x7F
    file.write_bytes(contents)
    assert harness.refusal(DamagedCheckpoint, checkpoint_reader.CheckpointReader, path) == (
        f"Checkpoint '{path}' is damaged: '{path}.index' declares variable text of string and the "
        "shape [2], which its 307 bytes do not fill."
    )


def test_reader_refuses_a_block_beyond_the_end_of_the_index(once, tmp_path):
    path = copy(once, "whole", tmp_path)
    file = pathlib.Path(f"{path}.index")
    size = len(file.read_bytes())
    footer = b"\0" * 3 + hostile_checkpoint.number(2**60)
    file.write_bytes(file.read_bytes()[:-48] + footer.ljust(40, b"\0") + file.read_bytes()[-8:])
    assert harness.refusal(DamagedCheckpoint, checkpoint_reader.CheckpointReader, path) == (
        f"Checkpoint '{path}' is damaged: '{path}.index' declares a block of {2**60:,} bytes, and "
        f"has {size:,}."
    )


READING = {
    "inspect": lambda path: checkpoint.inspect(path),
    "statistics": lambda path: checkpoint.statistics(path),
    "differences": lambda path: checkpoint.differences(path, path),
    "export": lambda path: checkpoint.export(path, f"{path}.npz", "npz"),
    "convert": lambda path: checkpoint.convert(path, f"{path}-new", ["words"]),
    "vocabulary_warm_start": lambda path: ee.vocabulary_warm_start(path, spec(), {}),
}


@pytest.mark.parametrize("way", READING)
def test_every_reader_refuses_an_impossible_shape(way, once, tmp_path):
    path = copy(once, "whole", tmp_path)
    hostile_checkpoint.rewrite(path, shape(-1, 4))
    assert harness.refusal(DamagedCheckpoint, READING[way], path) == (
        f"Checkpoint '{path}' is damaged: '{path}.index' declares variable words of the shape "
        "[-1, 4], which no tensor has."
    )


@pytest.mark.parametrize("command", ["inspect", "export", "convert", "compare"])
def test_every_command_refuses_an_impossible_shape(command, once, tmp_path, capsys):
    path = copy(once, "whole", tmp_path)
    (tmp_path / "checkpoint").write_text(
        'model_checkpoint_path: "model.ckpt-3"\nall_model_checkpoint_paths: "model.ckpt-3"\n'
    )
    hostile_checkpoint.rewrite(path, shape(-1, 4))
    arguments = {
        "inspect": [path],
        "export": [path, f"{tmp_path}/out", "--to=npz"],
        "convert": [path, f"{tmp_path}/new", "--table=words"],
        "compare": [f"{tmp_path}", f"{tmp_path}"],
    }
    assert main_lib.main([command, *arguments[command]]) == 2
    assert capsys.readouterr().err == (
        f"estimator-emb {command}: Checkpoint '{path}' is damaged: '{path}.index' declares "
        "variable words of the shape [-1, 4], which no tensor has.\n"
    )


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    folder = tmp_path_factory.mktemp("trained")
    call("train", make(str(folder)))
    return folder


@pytest.mark.parametrize("way", ["host", pytest.param("emulated", marks=pytest.mark.slow)])
@pytest.mark.parametrize("what", ["train", "evaluate", "predict", "export", "warm start"])
def test_every_restore_refuses_an_impossible_shape(what, way, trained, tmp_path):
    shutil.copytree(trained, tmp_path / "old")
    path = f"{tmp_path}/old/model.ckpt-1"
    hostile_checkpoint.rewrite(path, shape(-1, 4))
    warm = what == "warm start"
    estimator = make(f"{tmp_path}/{'new' if warm else 'old'}", way, start=path if warm else None)
    error = refused("train" if warm else what, estimator, tf.errors.DataLossError)
    assert error.startswith(
        f"Restoring from checkpoint failed: checkpoint '{path}' is damaged: '{path}.index' "
        "declares variable words of the shape [-1, 4], which no tensor has.\nThe newest checkpoint "
        "that is whole is 'model.ckpt-0'.\n"
    )


@pytest.mark.slow
def test_mirrored_strategy_refuses_an_impossible_shape(tmp_path):
    def model_fn(features, labels, mode, params):
        loss = tf.reduce_mean(tf.compat.v1.get_variable("w", [2]) * features)
        step = tf.compat.v1.train.get_global_step()
        train_op = tf.compat.v1.train.GradientDescentOptimizer(0.1).minimize(loss, step)
        return ee.EstimatorSpec(mode, loss=loss, train_op=train_op)

    def input_fn(params):
        return tf.data.Dataset.from_tensors((np.float32([1, 2]), np.float32(0)))

    def estimator():
        strategy = tf.distribute.MirroredStrategy(["cpu:0"])
        config = ee.RunConfig(model_dir=str(tmp_path), train_distribute=strategy)
        return ee.TPUEstimator(model_fn, config=config, use_tpu=False, train_batch_size=1)

    estimator().train(input_fn, steps=1)
    path = f"{tmp_path}/model.ckpt-1"
    hostile_checkpoint.rewrite(path, shape(-1, of=b"w"))
    with pytest.raises(DamagedCheckpoint) as error:
        estimator().train(input_fn, steps=1)
    assert str(error.value).startswith(
        f"Restoring from checkpoint failed: checkpoint '{path}' is damaged: '{path}.index' "
        "declares variable w of the shape [-1], which no tensor has.\n"
    )
