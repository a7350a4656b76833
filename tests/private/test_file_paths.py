"""--map: a program with gs:// paths in its source reads and writes folders of this machine."""

import functools
import inspect
import os

import processes
import pytest
import tensorflow as tf

from estimator_emb.cli import main as main_lib
from estimator_emb.private import file_paths, files, tensorflow_files

tf1 = tf.compat.v1

PROGRAM = '''
"""Trains on records in a bucket, and keeps its model in another."""
import numpy as np
import tensorflow as tf

DATA = "gs://data/clicks"
MODEL = "gs://models/run/1"
tf.gfile.MakeDirs(DATA)
for part in range(2):
    with tf.python_io.TFRecordWriter("%s/deep/part-%d.tfrecord" % (DATA, part)) as writer:
        for i in range(8):
            feature = tf.train.Feature(float_list=tf.train.FloatList(value=[i % 4]))
            word = tf.train.Feature(bytes_list=tf.train.BytesList(value=[b"b"]))
            writer.write(tf.train.Example(features=tf.train.Features(
                feature={"x": feature, "word": word})).SerializeToString())
with tf.gfile.Open(DATA + "/words.txt", "w") as file:
    file.write("a\\nb\\n")
found = sorted(tf.gfile.Glob(DATA + "/deep/*.tfrecord"))
assert found == [DATA + "/deep/part-0.tfrecord", DATA + "/deep/part-1.tfrecord"], found
assert [list(one) for one in tf.gfile.Walk(DATA)][0] == [DATA, ["deep"], ["words.txt"]]


def input_fn(params):
    files = tf.data.Dataset.list_files(DATA + "/deep/part-*", shuffle=False)
    data = files.apply(tf.contrib.data.parallel_interleave(
        lambda name: tf.data.TFRecordDataset(tf.strings.join([name, ""])), cycle_length=2))
    data = data.concatenate(tf.data.TFRecordDataset([DATA + "/deep/part-0.tfrecord"]))
    form = {"x": tf.FixedLenFeature([], tf.float32), "word": tf.FixedLenFeature([], tf.string)}
    data = data.map(lambda record: tf.parse_single_example(record, form)).repeat()
    return data.batch(params["batch_size"], drop_remainder=True)


def model_fn(features, labels, mode, params):
    table = tf.contrib.lookup.index_table_from_file(DATA + "/words.txt")
    ids = tf.cast(table.lookup(features["word"]), tf.float32)
    weight = tf.get_variable("weight", [], initializer=tf.zeros_initializer())
    loss = tf.reduce_mean(tf.square(weight + ids - features["x"]))
    if mode == tf.estimator.ModeKeys.PREDICT:
        return tf.estimator.tpu.TPUEstimatorSpec(mode, predictions={"sum": weight + ids})
    optimizer = tf.contrib.tpu.CrossShardOptimizer(tf.train.GradientDescentOptimizer(0.1))
    train_op = optimizer.minimize(loss, tf.train.get_global_step())
    return tf.estimator.tpu.TPUEstimatorSpec(mode, loss=loss, train_op=train_op)


config = tf.contrib.tpu.RunConfig(model_dir=MODEL, save_checkpoints_steps=4)
estimator = tf.contrib.tpu.TPUEstimator(
    model_fn, config=config, use_tpu=False, train_batch_size=4, eval_batch_size=4)
estimator.train(input_fn, max_steps=4)
estimator.train(input_fn, max_steps=8)
assert estimator.evaluate(input_fn, steps=2)["global_step"] == 8
latest = tf.train.latest_checkpoint(MODEL)
assert latest == MODEL + "/model.ckpt-8" and estimator.latest_checkpoint() == latest
assert tf.train.load_variable(latest, "global_step") == 8
assert "weight" in dict(tf.train.list_variables(MODEL))
with tf.Graph().as_default(), tf.Session() as session:
    weight = tf.get_variable("weight", [])
    tf.train.init_from_checkpoint(MODEL, {"weight": "weight"})
    session.run(tf.global_variables_initializer())
    started = session.run(weight)
    saver = tf.train.Saver()
    tf.gfile.MakeDirs(MODEL + "/own")
    saver.save(session, MODEL + "/own/model.ckpt")
    saver.restore(session, MODEL + "/own/model.ckpt")
    assert started == tf.train.load_variable(latest, "weight") == session.run(weight)
writer = tf.summary.FileWriter(MODEL + "/logs")
writer.add_summary(tf.Summary(value=[tf.Summary.Value(tag="x", simple_value=1.0)]), 1)
writer.close()
exported = estimator.export_saved_model(
    MODEL + "/export", tf.estimator.export.build_raw_serving_input_receiver_fn(
        {"x": tf.placeholder(tf.float32, [None]), "word": tf.placeholder(tf.string, [None])}))
predict = tf.contrib.predictor.from_saved_model(exported.decode())
assert list(predict({"x": [0.0], "word": ["b"]}).values())[0].shape == (1,)
tf.gfile.Copy(DATA + "/words.txt", "gs://data/copies/words.txt")
tf.gfile.Rename("gs://data/copies/words.txt", "gs://data/copies/moved.txt")
assert tf.gfile.ListDirectory("gs://data/copies") == ["moved.txt"]
try:
    tf.gfile.Exists("gs://other/x")
except ValueError as error:
    print(error)
'''


@pytest.mark.slow
def test_a_program_with_constants_of_buckets(tmp_path):
    (tmp_path / "program.py").write_text(PROGRAM)
    for name in ("data", "models", "runs"):
        (tmp_path / name).mkdir()
    done = processes.run_command(
        *("run", "--tf-v1", "--map", "gs://data=data"),
        *("--map=gs://models=models", "--map=gs://models/run=runs", "program.py"),
        cwd=tmp_path,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == (
        "'gs://other/x': nothing is read from or written to Google Cloud Storage while a TPU is "
        "emulated. Name a folder for it: estimator-emb run --map gs://other=DIR (or --map "
        "gs://other=gs://other for the bucket itself)."
    )
    assert (tmp_path / "runs" / "1" / "model.ckpt-8.index").exists()
    assert list((tmp_path / "runs" / "1").glob("events.out*"))
    assert list((tmp_path / "runs" / "1" / "logs").glob("events.out*"))
    assert (tmp_path / "data" / "clicks" / "deep" / "part-1.tfrecord").exists()
    assert not list((tmp_path / "models").iterdir()) and not (tmp_path / "gs:").exists()


@pytest.fixture
def map_paths():
    yield functools.partial(file_paths.map_paths, refuses_gs=True)
    file_paths.unmap_paths()


@pytest.fixture
def bucket(map_paths, tmp_path):
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "x.txt").write_text("one\n")
    map_paths({"gs://b": str(tmp_path / "a")})
    return tmp_path


def test_ops_that_run_at_once(bucket):
    assert tf.io.read_file("gs://b/x.txt").numpy() == b"one\n"
    assert tf.io.read_file(tf.constant("gs://b/x.txt")).numpy() == b"one\n"
    tf.io.write_file("gs://b/y.txt", "two")
    assert (bucket / "a" / "y.txt").read_text() == "two"
    lines = tf.data.TextLineDataset(["gs://b/x.txt", "gs://b/y.txt"])
    assert [line.numpy() for line in lines] == [b"one", b"two"]
    names = tf.data.Dataset.from_tensor_slices(["gs://b/x.txt"])
    lines = names.flat_map(tf.data.TextLineDataset)
    assert [line.numpy() for line in lines] == [b"one"]
    assert tf.data.Dataset.from_tensors("gs://b/data").get_single_element() == b"gs://b/data"
    ways = tf.io.read_file, lambda path: tf.io.gfile.GFile(path).read(), tf.data.TFRecordDataset
    for path in ("gs://bb/x.txt", "gs://other/x.txt"):  # Of other buckets.
        for read in ways:
            with pytest.raises(ValueError, match="--map gs://"):
                read(path)


def test_paths_that_are_known_when_an_op_runs(bucket):
    with tf.Graph().as_default(), tf1.Session() as session:
        path = tf1.placeholder(tf.string)
        contents = tf.io.read_file(path)
        assert session.run(contents, {path: "gs://b/x.txt"}) == b"one\n"
        assert session.run(contents, {path: str(bucket / "a" / "x.txt")}) == b"one\n"
        for other in ("gs://bb/x.txt", "gs://other/x.txt"):
            message = f"/dev/null/estimator-emb has no --map for gs:/{other[4:]}"
            with pytest.raises(tf.errors.OpError, match=message):
                session.run(contents, {path: other})


@pytest.mark.parametrize("folders, prefix", [({}, None), ({"gs://b": "a"}, "gs://b/c/ckpt")])
def test_a_checkpoint_of_a_graph(folders, prefix, map_paths, tmp_path):
    """Its saver feeds a constant, which TensorFlow forbids where its value was asked for."""
    map_paths({one: str(tmp_path / folder) for one, folder in folders.items()})
    prefix = prefix or f"{tmp_path}/a/c/ckpt"
    with tf.Graph().as_default(), tf1.Session() as session:
        variable = tf1.get_variable("v", [2], initializer=tf1.ones_initializer())
        checkpoint = tf.train.Checkpoint(v=variable)
        session.run([variable.initializer, checkpoint.save_counter.initializer])
        assert checkpoint.save(prefix) == f"{prefix}-1"
        session.run(variable.assign([0.0, 0.0]))
        checkpoint.restore(f"{prefix}-1").assert_consumed().run_restore_ops(session)
        assert session.run(variable).tolist() == [1, 1]
    assert (tmp_path / "a" / "c" / "ckpt-1.index").exists()


def test_without_folders_graphs_stay_as_they_are(map_paths):
    def build():
        with tf.Graph().as_default() as graph:
            path = tf1.placeholder(tf.string)
            tf.io.read_file(path)
            tf1.train.Saver([tf1.get_variable("v", [1])])
        return graph.as_graph_def().SerializeToString(deterministic=True)

    expected = build()
    map_paths({})
    assert build() == expected
    with pytest.raises(ValueError, match="^'gs://b/x': nothing is read from or written to"):
        tf.io.gfile.exists("gs://b/x")
    with tf.Graph().as_default(), pytest.raises(ValueError, match="--map gs://b=DIR"):
        tf.io.read_file("gs://b/x")


def test_a_bucket_may_be_left_alone(tmp_path):
    paths = file_paths._Paths({"gs://b": "gs://b", "gs://b/c": str(tmp_path)}, True)
    assert paths.read("gs://b/x") == "gs://b/x"
    assert paths.read(b"gs://b/c/x") == os.fsencode(tmp_path / "x")
    assert paths.read("gs://b/cc") == "gs://b/cc" and paths.read(3) == 3


def test_uninstall_restores_everything(tmp_path):
    def state():
        modules = [value for value in vars(files).values() if inspect.ismodule(value)]
        names = {module.__name__: dict(vars(module)) for module in modules}
        return names, tf.io.TFRecordWriter.__init__

    before = state()
    file_paths.map_paths({"gs://b": str(tmp_path)}, True)
    file_paths.map_paths({"gs://c": str(tmp_path)}, True)
    file_paths.unmap_paths()
    file_paths.unmap_paths()
    assert state() == before


NO_PATHS = {
    "CTCBeamSearchDecoder",
    "ExperimentalSetStatsAggregatorDataset",
    "RegexFullMatch",
    "RegexReplace",
    "SetStatsAggregatorDataset",
    "StaticRegexFullMatch",
    "StaticRegexReplace",
}
"""Ops with an argument that only sounds like a path."""


def test_every_op_with_a_path_is_known():
    """By the names of the arguments of all ops."""
    words = ("file", "path", "prefix", "pattern", "directory", "logdir")
    for name in dir(tf.raw_ops):
        op = getattr(tf.raw_ops, name)
        if name.startswith("_") or not callable(op):
            continue
        parameters = list(inspect.signature(op).parameters.values())
        for i in tensorflow_files.FILE_INPUTS.get(name, ()):
            sounds = any(word in parameters[i].name for word in (*words, "_dir"))
            assert sounds, (name, parameters[i].name)
        arguments = [p.name for p in parameters if p.default is inspect.Parameter.empty]
        paths = [one for one in arguments if any(word in one for word in words)]
        known = {*tensorflow_files.FILE_INPUTS, *NO_PATHS, "RecordInput"}
        assert not paths or name in known, (name, paths)


def test_the_path_of_record_input(bucket):
    with tf.Graph().as_default():
        op = tf.raw_ops.RecordInput(file_pattern="gs://b/*").op
        assert op.get_attr("file_pattern") == os.fsencode(bucket / "a" / "*")


@pytest.mark.parametrize(
    "maps, message",
    [
        (["gs://b"], "must be like gs://bucket=DIR; got 'gs://b'"),
        (["bucket=."], "must be like gs://bucket=DIR; got 'bucket=.'"),
        (["gs://=."], "must be like gs://bucket=DIR; got 'gs://=.'"),
        (["gs://b="], "must be like gs://bucket=DIR; got 'gs://b='"),
        (["gs://b=nowhere"], "there is no folder 'nowhere' for gs://b"),
        (["gs://b=.", "gs://b/=/"], "gs://b is given twice"),
    ],
)
@pytest.mark.parametrize("subcommand", ["run", "check", "cluster"])
def test_what_is_wrong_with_a_map(maps, message, subcommand, capsys):
    with pytest.raises(SystemExit) as exit_:
        main_lib.main([subcommand, *(f"--map={one}" for one in maps), __file__])
    assert exit_.value.code == 2
    said = capsys.readouterr().err.splitlines()[-1]
    assert said == f"estimator-emb {subcommand}: error: argument --map: {message}"
