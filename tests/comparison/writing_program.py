"""Writes by every way of TensorFlow in the user's folder, as a side of compare, and reads it back.

    python writing_program.py FOLDER_OF_THE_SIDE FOLDER_OF_THE_USER

tests/private/test_file_paths.py has the other functions and ops; `--map` changes the same.
It imports nothing of this package but by files, as a side with stock tensorflow-estimator does.
"""

import functools
import os
import pathlib
import sys

import tensorflow as tf

tf1, gfile = tf.compat.v1, tf.io.gfile
PACKAGE = pathlib.Path(__file__).parents[2] / "estimator_emb"
sys.path.insert(0, str(PACKAGE / "cli" / "bin"))
import side  # noqa: E402
import side_files  # noqa: E402

folder, user = sys.argv[1:]
files = side_files.Files(folder)
redirect = side.load("private/tensorflow_files").redirect
side_files.redirect(files, functools.partial(redirect, side.load("private/files")))
os.chdir(user)


def contents(dataset):
    return [one.numpy() for one in dataset]


def records(where):
    """Records, in a folder that is there for the user or not, by an absolute or relative path."""
    a, b = (f"{where}/{name}.tfrecord" for name in "ab")
    with tf.io.TFRecordWriter(a) as writer:
        writer.write(b"one")
    with tf1.python_io.TFRecordWriter(b) as writer:
        writer.write(b"two")
    both = [b"one", b"two"]
    assert contents(tf.data.TFRecordDataset([a, b])) == both
    names = tf.data.Dataset.from_tensor_slices([a, b])
    assert contents(names.interleave(tf.data.TFRecordDataset, cycle_length=1)) == both
    assert list(tf1.io.tf_record_iterator(a)) == [b"one"]
    assert sorted(gfile.glob(f"{where}/*.tfrecord")) == [a, b]
    assert {"a.tfrecord", "b.tfrecord"} <= set(next(gfile.walk(where))[2])


def folders():
    """A folder lists what the user and the program have in it, and not what is removed."""
    expected = ["a.tfrecord", "b.tfrecord", "mine.txt"]
    for found in (gfile.listdir("there"), os.listdir("there"), os.listdir(f"{user}/there")):
        assert sorted(found) == expected, found
    with os.scandir("there") as entries:
        assert sorted(entry.name for entry in entries) == expected
    assert sorted(gfile.glob("there/*")) == [f"there/{name}" for name in expected]
    with gfile.GFile("there/mine.txt", "a") as file:
        file.write(" and more")
    assert gfile.GFile("there/mine.txt").read() == "mine and more"
    gfile.copy("there/mine.txt", "copied.txt")
    assert gfile.GFile("copied.txt").read() == "mine and more"
    gfile.rename("renamed.txt", "new.txt")
    assert gfile.GFile("new.txt").read() == "mine" and not gfile.exists("renamed.txt")
    gfile.rename("folder", "other")
    assert gfile.listdir("other") == ["file"] and not gfile.exists("folder")
    gfile.remove("removed.txt")
    gfile.rmtree("tree")
    for name in ("removed.txt", "renamed.txt", "folder", "tree"):
        assert not gfile.exists(name) and not os.path.exists(name) and not gfile.glob(f"{name}*")
        assert name not in gfile.listdir(".") and name not in os.listdir(".")


def ops_at_once():
    tf.io.write_file("deep/er/file.txt", "at once")
    assert tf.io.read_file("deep/er/file.txt").numpy() == b"at once"
    assert tf.io.matching_files("deep/*/file.txt").shape == [1]
    assert contents(tf.data.Dataset.range(3).cache("cache/c")) == [0, 1, 2]
    assert gfile.glob("cache/c*")
    writer = tf.summary.create_file_writer("logs/new")
    with writer.as_default():
        tf.summary.scalar("x", 1.0, step=1)
    writer.close()
    assert gfile.glob("logs/new/events*")


def ops_of_a_graph():
    with tf.Graph().as_default() as graph, tf1.Session() as session:
        path, paths = tf1.placeholder(tf.string), tf1.placeholder(tf.string, [None])
        session.run(tf.io.write_file("known.txt", "one"))
        session.run(tf.io.write_file(path, "two"), {path: "fed/file.txt"})
        assert session.run(tf.io.read_file("known.txt")) == b"one"
        assert session.run(tf.io.read_file(path), {path: f"{user}/fed/file.txt"}) == b"two"
        assert session.run(tf.io.read_file(path), {path: "read.txt"}) == b"mine"
        found = session.run(tf.io.matching_files(paths), {paths: ["known*", "fed/*", "read.*"]})
        assert len(found) == 3
        writer = tf1.summary.FileWriter("logs/old", graph)
        writer.close()
        (events,) = gfile.glob("logs/old/events*")
        assert any(one.graph_def for one in tf1.train.summary_iterator(events))


def checkpoints():
    with tf.Graph().as_default(), tf1.Session() as session:
        variable = tf1.get_variable("v", [2], initializer=tf1.ones_initializer())
        session.run(variable.initializer)
        saver = tf1.train.Saver([variable])
        for step in (1, 2):
            saver.save(session, "ckpt/model.ckpt", step)
        saver.restore(session, tf1.train.latest_checkpoint("ckpt"))
        assert tf.train.load_variable("ckpt/model.ckpt-2", "v").tolist() == [1, 1]
        saver.restore(session, "users/model.ckpt")
        assert session.run(variable).tolist() == [7, 7]
        saver.restore(session, "ckpt/model.ckpt-1")
        assert session.run(variable).tolist() == [1, 1]
    module = tf.Module()
    module.v = tf.Variable([1.0, 2.0])
    module.double = tf.function(lambda: module.v * 2, input_signature=[])
    checkpoint = tf.train.Checkpoint(module=module)
    manager = tf.train.CheckpointManager(checkpoint, "managed", 2)
    for _ in range(3):
        manager.save()
    checkpoint.restore(tf.train.latest_checkpoint("managed")).assert_consumed()
    tf.saved_model.save(module, "saved_model")
    loaded = tf.saved_model.load("saved_model")
    assert loaded.double().numpy().tolist() == [2, 4]


records(f"{user}/nowhere/yet")
records("there")
folders()
ops_at_once()
ops_of_a_graph()
checkpoints()
assert "estimator_emb" not in sys.modules
