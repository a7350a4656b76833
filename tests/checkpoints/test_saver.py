"""Large checkpoints in several files."""

import pathlib

import harness
import numpy as np
import pytest
import tensorflow as tf

import estimator_emb as ee
from estimator_emb.checkpoints.restoring import saver

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
    monkeypatch.setattr(saver, "FILE_BYTES", 1000)
    monkeypatch.setattr(saver.os, "cpu_count", lambda: 2)


@pytest.mark.slow
def test_checkpoint_is_split_into_equal_files(two_cores, tmp_path, monkeypatch):
    train(estimator(tmp_path / "two"), 1)
    train(estimator(tmp_path / "two"), 1)  # Continues from the two files.
    sizes = files(tmp_path / "two", 2)
    assert list(sizes) == [f"model.ckpt-2.data-0000{i}-of-00002" for i in range(2)]
    # A row has 32 bytes. There are tables and slots.
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
    assert list(files(tmp_path, 1)) == ["model.ckpt-1.data-00000-of-00001"]


def test_at_most_one_file_per_variable(monkeypatch, tmp_path):
    monkeypatch.setattr(saver, "FILE_BYTES", 1)
    monkeypatch.setattr(saver.os, "cpu_count", lambda: 8)
    train(estimator(tmp_path), 1)
    assert len(files(tmp_path, 1)) == 7  # Tables, slots and the global step.


def test_training_keeps_its_first_checkpoint_until_it_is_the_oldest(tmp_path, monkeypatch):
    def of_step(step):
        return {path.name: path.stat().st_mtime_ns for path in tmp_path.glob(f"*-{step}.*")}

    seen = []

    # With the graph, which conftest.py omits in other tests.
    export = tf.compat.v1.train.Saver.export_meta_graph.__wrapped__
    monkeypatch.setattr(tf.compat.v1.train.Saver, "export_meta_graph", export)
    of = estimator(tmp_path, keep_checkpoint_max=2)
    train(of, 1)
    before = of_step(1)
    looks = harness.AfterStep(lambda: seen.append(of_step(1)))
    of.train(harness.input_fn_of([BATCH] * 2), hooks=[looks], steps=2)
    assert seen[0] == before and len(before) == 3
    assert list(files(tmp_path, 2)) == ["model.ckpt-2.data-00000-of-00001"]  # It is small.
    # It counts among the kept checkpoints, and is deleted when it is the oldest.
    assert not of_step(0) and not of_step(1)
    assert len(of_step(2)) == len(of_step(3)) == 3
