"""Large checkpoints in several files, and several hooks that save."""

import importlib.util
import pathlib
import time

import harness
import numpy as np
import pytest
import tensorflow as tf
from words_program import input_fn, make

import estimator_emb as ee
from estimator_emb.checkpoints.files import checkpoint_files
from estimator_emb.checkpoints.restoring import saver
from estimator_emb.compat import async_checkpoint

ROWS = {"a": 400, "b": 100, "c": 100}
BATCH = (
    {key: np.array([3, 3, 99, 0]) for key in ROWS},
    {key: np.ones([4, 8], np.float32) for key in ROWS},
)


def estimator(folder, model_fn=None, **config):
    initializer = tf.compat.v1.random_uniform_initializer(seed=1)
    tables = {key: ee.TableConfig(rows, 8, initializer) for key, rows in ROWS.items()}
    spec = harness.tables_spec(tables, ee.AdagradParameters(0.1))
    model_fn = model_fn or harness.gradient_model_fn(list(ROWS))
    return harness.estimator(model_fn, spec, folder, run={**harness.EACH_STEP, **config})


def train(of, steps):
    of.train(harness.input_fn_of([BATCH] * steps), steps=steps)


def files(folder, step="*"):
    """Returns the data files' names, in order, and sizes."""
    paths = sorted(pathlib.Path(folder).glob(f"model.ckpt-{step}.data-*"))
    return {path.name: path.stat().st_size for path in paths}


@pytest.fixture
def two_cores(monkeypatch):
    monkeypatch.setattr(saver, "FILE_BYTES", 1000)  # So that small tables take several files.
    monkeypatch.setattr(saver.os, "cpu_count", lambda: 2)


@pytest.mark.slow
def test_checkpoint_is_split_into_equal_files(two_cores, tmp_path, monkeypatch):
    train(estimator(tmp_path / "two"), 1)
    train(estimator(tmp_path / "two"), 1)  # Continues from the two files.
    sizes = files(tmp_path / "two", 2)
    assert list(sizes) == [f"model.ckpt-2.data-0000{i}-of-00002" for i in range(2)]
    # A row of 8 floats has 32 bytes. The tables and their slots take two equal files.
    assert all(abs(size - sum(ROWS.values()) * 32) < 100 for size in sizes.values())
    monkeypatch.setattr(saver, "FILE_BYTES", 1 << 20)
    train(estimator(tmp_path / "one"), 2)
    two, one = (harness.saved(tmp_path / name, 2) for name in ("two", "one"))
    assert set(one) == {"global_step", *ROWS, *(f"{key}/Adagrad" for key in ROWS)}
    np.testing.assert_equal(two, one)


def test_old_checkpoints_are_deleted_with_all_files(two_cores, tmp_path):
    train(estimator(tmp_path, keep_checkpoint_max=1), 2)
    assert list(files(tmp_path)) == [f"model.ckpt-2.data-0000{i}-of-00002" for i in range(2)]


def test_the_programs_saver_is_kept(two_cores, tmp_path):
    gradient = harness.gradient_model_fn(list(ROWS))

    def model_fn(features, labels, mode, params):
        def scaffold_fn():
            return tf.compat.v1.train.Scaffold(saver=tf.compat.v1.train.Saver())

        return gradient(features, labels, mode, params)._replace(scaffold_fn=scaffold_fn)

    train(estimator(tmp_path, model_fn), 1)
    assert list(files(tmp_path, 1)) == ["model.ckpt-1.data-00000-of-00001"]  # Ours makes two files.


def test_at_most_one_file_per_variable_and_core(monkeypatch, tmp_path):
    monkeypatch.setattr(saver, "FILE_BYTES", 1)
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        for name, type in (("a", tf.int8), ("b", tf.float64), ("c", tf.float32)):
            tf.compat.v1.get_variable(name, [ROWS[name], 4], type)  # 1600, 3200 and 1600 bytes.
        session.run(tf.compat.v1.global_variables_initializer())
        for cores, sizes in ((8, [3200, 1600, 1600]), (2, [3200, 3200])):
            monkeypatch.setattr(saver.os, "cpu_count", lambda: cores)  # noqa: B023
            in_files = saver.PartsSaver(ee.RunConfig())
            in_files.build()
            in_files.save(session, f"{tmp_path}/model.ckpt-{cores}")
            assert list(files(tmp_path, cores).values()) == sizes


def test_complete_adds_embedding_variables_to_older_savers(tmp_path):
    """A saver that model_fn made before the table could not list it. A later saver could."""
    v1 = tf.compat.v1
    with tf.Graph().as_default(), v1.Session() as session:
        empty, weight = v1.train.Saver(allow_empty=True), v1.get_variable("weight", [2])
        listed, named = v1.train.Saver([weight]), v1.train.Saver({"old": weight})
        defined = v1.train.Saver(saver_def=listed.saver_def)  # Its list is unknown.
        table = v1.get_variable("table", [4, 3], partitioner=v1.fixed_size_partitioner(2))
        bias = v1.get_variable("bias", [5])
        later = v1.train.Saver([weight, v1.get_variable("helper", [1])])
        savers = [empty, listed, named, later]
        of_all = v1.train.Saver(defer_build=True)  # Lists all variables when it is built.
        v1.get_collection_ref(v1.GraphKeys.SAVERS).extend([*savers, of_all])
        found = saver.savers_of_program(None)
        tables = [*table, bias]
        saver.complete(found, tables, without="helper", on_tpu=False, training=False)
        session.run(v1.global_variables_initializer())
        for one, of_model in zip(savers, (None, "weight", "old", "weight"), strict=True):
            path = one.save(session, f"{tmp_path}/model.ckpt")
            shapes = {of_model: [2]} if of_model else {}
            shapes |= {} if one is later else {"table": [4, 3], "bias": [5]}
            assert tf.train.load_checkpoint(path).get_variable_to_shape_map() == shapes
        assert of_all.saver_def is None  # It is not built yet.
        # A training saves, so even a later saver must have all variables.
        saver.complete([later], tables, "no such name", on_tpu=False, training=True)
        reader = tf.train.load_checkpoint(later.save(session, f"{tmp_path}/model.ckpt"))
        assert reader.get_variable_to_shape_map().keys() == {"weight", "table", "bias"}
        with pytest.raises(ValueError, match="'bias:0', 'table/part_0:0', 'table/part_1:0'"):
            saver.complete([defined], tables, "no such name", on_tpu=False, training=False)


def test_a_restored_checkpoint_is_not_saved_again_and_is_deleted_when_oldest(tmp_path, meta_graphs):
    def of_step(step):
        return {path.name: path.stat().st_mtime_ns for path in tmp_path.glob(f"*-{step}.*")}

    seen = []
    of = estimator(tmp_path, keep_checkpoint_max=2)
    train(of, 1)
    before = of_step(1)  # The second training restores this checkpoint.
    looks = harness.AfterStep(lambda: seen.append(of_step(1)))
    of.train(harness.input_fn_of([BATCH] * 2), hooks=[looks], steps=2)
    assert seen[0] == before and len(before) == 3  # The files .data, .index and .meta.
    assert list(files(tmp_path, 2)) == ["model.ckpt-2.data-00000-of-00001"]  # It is small.
    assert str(tmp_path) not in (tmp_path / "checkpoint").read_text()  # So the folder may move.
    # It counts among the kept checkpoints, and is deleted when it is the oldest.
    assert not of_step(0) and not of_step(1)
    assert len(of_step(2)) == len(of_step(3)) == 3


ASYNC = [async_checkpoint.AsyncCheckpointSaverHook]
if importlib.util.find_spec("tensorflow.python.tpu.async_checkpoint"):
    module = importlib.import_module("tensorflow.python.tpu.async_checkpoint")
    ASYNC.append(module.AsyncCheckpointSaverHook)


@pytest.fixture
def writing(monkeypatch):
    """Returns a list: the number of concurrent saves at the start of each save."""
    now, counts, write = [], [], tf.compat.v1.train.Saver.save

    def save(*args, **kwargs):
        now.append(None)
        counts.append(len(now))
        try:
            time.sleep(0.05)
            return write(*args, **kwargs)
        finally:
            now.pop()

    monkeypatch.setattr(tf.compat.v1.train.Saver, "save", save)
    return counts


@pytest.mark.fast(1)
@pytest.mark.parametrize("kind", ASYNC, ids=lambda kind: kind.__module__.split(".")[0])
@pytest.mark.parametrize(
    "way, others",
    [
        # The TPU's estimator also saves with its own hook.
        harness.slow("emulated", [tf.compat.v1.train.CheckpointSaverHook]),
        ("host", [tf.compat.v1.train.CheckpointSaverHook, "async"]),
    ],
)
def test_hooks_save_one_at_a_time(way, others, kind, writing, tmp_path):
    def hooks():
        # In both orders, because hooks end in the order in which they are listed.
        kinds = [kind, *(kind if other == "async" else other for other in others)]
        for ordered in (kinds, kinds[::-1]):
            yield [one(str(tmp_path), save_steps=1) for one in ordered]

    for number, saving in enumerate(hooks(), 1):
        estimator = make(tmp_path, way)
        estimator.train(lambda params: input_fn(params).repeat(), hooks=saving, steps=2)
        assert estimator.latest_checkpoint() == f"{tmp_path}/model.ckpt-{2 * number}"
        assert estimator.get_variable_value("global_step") == 2 * number
    assert len(writing) > 4  # In two trainings of two steps, more than one hook has saved.
    assert set(writing) == {1}
    assert not list(tmp_path.glob("*_temp"))


@pytest.mark.parametrize("kind", ASYNC, ids=lambda kind: kind.__module__.split(".")[0])
def test_a_single_async_hook_saves_each_step(kind, writing, tmp_path):
    """Alone, TensorFlow 2.15's hook saves only at the end: its thread does not find the graph."""

    class Wait(tf.compat.v1.train.SessionRunHook):
        """Waits for each save, because an asynchronous hook skips a save while it writes."""

        def before_run(self, run_context):
            threads = vars(async_hook)  # In our hook, or in TensorFlow 2.15's.
            (threads.get("_thread") or threads.get("_save_thread")).join()

    async_hook = kind(str(tmp_path), save_steps=1)
    estimator = make(tmp_path)
    hooks = [async_hook, Wait()]
    estimator.train(lambda params: input_fn(params).repeat(), hooks=hooks, steps=2)
    assert checkpoint_files.checkpoints(str(tmp_path)) == [f"model.ckpt-{n}" for n in range(3)]
    assert writing == [1, 1, 1]  # One at a time, and none twice.
