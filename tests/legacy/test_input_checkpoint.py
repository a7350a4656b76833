"""`CheckpointInputPipelineHook`: a killed training resumes with the next batch."""

import functools
import glob
import logging
import os
import random
import subprocess
import sys
import time

import harness
import numpy as np
import processes
import pytest
import sampling
import tensorflow as tf

import estimator_emb as ee
from estimator_emb.compat import async_checkpoint
from estimator_emb.legacy import input_checkpoint
from estimator_emb.legacy.input_checkpoint import CheckpointInputPipelineHook
from estimator_emb.legacy.input_positions import Positions

tf1 = tf.compat.v1

STEPS = 12
LONG = 200  # Steps of a training that is killed at random moments.
IDS = np.array([(3 * i * i + i) % 11 for i in range(4 * (LONG + 10))], np.int64)

WAYS = {
    "plain": {},
    "host": {"use_tpu": False},
    "host, pipelined": {"use_tpu": False, "pipelined": True},
    "emulated": {"use_tpu": True},
    "emulated, 2 cores, loops": {"use_tpu": True, "cores": 2, "iterations": 2},
    "emulated, pipelined": {"use_tpu": True, "pipelined": True, "iterations": 2},
}


class Kill(BaseException):
    """Ends a training as a kill does: nothing runs afterwards, and nothing more is saved."""


class KillAfterStep(tf1.train.SessionRunHook):
    def __init__(self, step):
        self._at = step

    def after_run(self, run_context, run_values):
        if run_context.session.run(tf1.train.get_global_step()) >= self._at:
            raise Kill


def kill_while_saving(step, moment):
    """Returns a listener that kills in its method 'before_save' or 'after_save'."""

    def kill(session, now):
        if now >= step:
            raise Kill

    listener = tf1.train.CheckpointSaverListener()
    setattr(listener, moment, kill)
    return listener


def make(
    model_dir, use_tpu=None, pipelined=False, cores=1, iterations=1, bad_ids="error", **config
):
    """Returns an estimator. "count" counts each id, and other variables depend on their order."""
    config = {"save_checkpoints_steps": 2, "keep_checkpoint_max": 2, **config}
    config.setdefault("log_step_count_steps", None)
    if use_tpu is None:
        config.setdefault("save_summary_steps", None)
        return ee.Estimator(plain_model_fn, str(model_dir), ee.RunConfig(**config))
    tpu = {"iterations_per_loop": iterations, "bad_ids": bad_ids}
    tpu["per_host_input_for_training"] = ee.InputPipelineConfig.PER_HOST_V2
    tables = {
        name: ee.TableConfig(11, 2, tf1.constant_initializer(initial), "sum")
        for name, initial in (("count", 0.0), ("when", 1.0))
    }
    sgd = ee.StochasticGradientDescentParameters(1.0)
    spec = harness.tables_spec(tables, sgd, pipeline_execution_with_tensor_core=pipelined)
    return harness.estimator(
        model_fn, spec, model_dir, 4, "host", cores, config, tpu, use_tpu=use_tpu
    )


def input_fn(params=None, steps=STEPS + 8):
    ids = tf.data.Dataset.from_tensor_slices(IDS[: 4 * steps]).shuffle(7, seed=3)
    ids = ids.batch((params or {}).get("batch_size") or 4, drop_remainder=True)
    given = ids.map(
        lambda ids: dict.fromkeys(("count", "when"), ids[:, None]), num_parallel_calls=2
    )
    return given.prefetch(2)


@functools.cache
def batches(steps=STEPS):
    with tf.Graph().as_default(), tf1.Session() as session:
        batch = tf1.data.make_one_shot_iterator(input_fn()).get_next()["count"]
        return [session.run(batch).ravel() for _ in range(steps)]


def model_fn(features, labels, mode, params):
    dense = tf1.get_variable("dense", [], initializer=tf1.zeros_initializer())
    loss = tf.reduce_sum(features["count"]) + 0.1 * tf.reduce_sum(features["when"] ** 2)
    loss += dense * tf.reduce_mean(features["when"][0])
    optimizer, reduction = tf1.train.MomentumOptimizer(0.1, 0.9), tf1.losses.Reduction.SUM
    return harness.minimized(mode, loss, optimizer=optimizer, reduction=reduction)


def plain_model_fn(features, labels, mode):
    count = tf1.get_variable("count", [11], tf.int64, initializer=tf1.zeros_initializer())
    when = tf1.get_variable("when", [], tf.int64, initializer=tf1.zeros_initializer())
    ids = tf.reshape(features["count"], [-1])
    number = tf.reduce_sum(ids * tf.constant([1, 11, 121, 1331], tf.int64))  # Differs if ids do.
    train_op = tf.group(
        count.assign_add(tf.math.bincount(tf.cast(ids, tf.int32), minlength=11, dtype=tf.int64)),
        when.assign(when * 1000003 + number),  # A hash of all batches in their order.
        tf1.train.get_global_step().assign_add(1),
    )
    return ee.EstimatorSpec(mode, loss=tf.constant(0.0), train_op=train_op)


def train(
    estimator,
    steps=STEPS,
    hooks=(),
    hook_class=CheckpointInputPipelineHook,
    input_fn=input_fn,
    **kwargs,
):
    estimator.train(input_fn, hooks=[hook_class(estimator), *hooks], max_steps=steps, **kwargs)


def killed(*args, **kwargs):
    with pytest.raises(Kill):
        train(*args, **kwargs)


@functools.cache
def uninterrupted(way, directory):
    train(make(directory, **WAYS[way]))
    return harness.saved(directory, STEPS)


def files(directory):
    return sorted(os.path.basename(path) for path in glob.glob(f"{directory}/*"))


def complete(directory):
    """Returns the complete checkpoints in a folder, of the input and of the model."""
    return [name.removesuffix(".index") for name in files(directory) if name.endswith(".index")]


def check_counts(saved, seen):
    count = saved["count"] if saved["count"].ndim == 1 else -saved["count"][:, 0]
    np.testing.assert_array_equal(count, np.bincount(np.concatenate(seen), minlength=11))


def check_all_seen_once(saved):
    check_counts(saved, batches())
    if "dense" not in saved:
        when = np.int64(0)
        with np.errstate(over="ignore"):
            for batch in batches():
                when = when * 1000003 + batch @ np.array([1, 11, 121, 1331])
        assert saved["when"] == when


def check_equal(saved, expected):
    assert saved.keys() == expected.keys()
    for name, value in expected.items():
        np.testing.assert_array_equal(saved[name], value, err_msg=name, strict=True)


@pytest.mark.sampled(3)
@pytest.mark.parametrize(
    "way, kernels",
    [("plain", "tensorflow")]
    + [harness.slow(way, "tensorflow") for way in WAYS if way != "plain"]
    + [harness.slow(way, "native") for way in WAYS if WAYS[way].get("pipelined")],
)
def test_a_killed_training_equals_an_uninterrupted_training(
    way, kernels, request, tmp_path, tmp_path_factory
):
    if kernels == "native":
        request.getfixturevalue("native")
    # Even steps are saved, first the input and then the model.
    kills = [
        kill_while_saving(0, "before_save"),
        kill_while_saving(0, "after_save"),
        kill_while_saving(2, "before_save"),
        KillAfterStep(5),
        kill_while_saving(6, "after_save"),
        kill_while_saving(10, "before_save"),
    ]
    for kill in kills if way == "plain" else kills[2:4]:
        by_hook = isinstance(kill, KillAfterStep)
        killed(make(tmp_path, **WAYS[way]), **{"hooks" if by_hook else "saving_listeners": [kill]})
    train(make(tmp_path, **WAYS[way]))

    saved = harness.saved(tmp_path, STEPS)
    check_all_seen_once(saved)
    expected = uninterrupted(way, str(tmp_path_factory.getbasetemp() / f"whole_{way}"))
    check_equal(saved, expected)
    kept = [f"{what}.ckpt-{step}" for what in ("input", "model") for step in (10, 12)]
    assert complete(tmp_path) == kept
    positions = [name for name in files(tmp_path) if "input.ckpt" in name]
    assert all(name.startswith((f"{kept[0]}.", f"{kept[1]}.")) for name in positions)


def test_consecutive_trainings_with_a_hook_continue_their_input(tmp_path, caplog):
    estimator = make(tmp_path, save_checkpoints_steps=5)
    hook = CheckpointInputPipelineHook(estimator)
    for steps in (6, STEPS):
        estimator.train(input_fn, hooks=[hook], max_steps=steps)
    assert "CheckpointInputPipelineHook" not in caplog.text
    last = tf1.train.latest_checkpoint(str(tmp_path), "checkpoint_input")
    assert last == str(tmp_path / f"input.ckpt-{STEPS}")
    check_all_seen_once(harness.saved(tmp_path, STEPS))


@pytest.mark.slow
@pytest.mark.sampled(1)
@pytest.mark.parametrize(
    "before, others",
    [
        # (native, shards, bad_ids). Other kernels keep other tensors, some of the same names.
        (("1", 1, "error"), [("0", 1, "error")]),
        (("0", 1, "error"), [("1", 1, "error"), ("0", 1, "drop")]),
        (("0", 1, "drop"), [("0", 1, "error")]),
        (("1", 2, "error"), [("1", 3, "error"), ("1", 1, "error"), ("1", 2, "drop")]),
        (("1", 3, "drop"), [("1", 2, "drop"), ("1", 3, "error")]),
    ],
)
def test_a_lookup_ahead_of_other_settings_is_refused(
    before, others, native_library, in_shards, monkeypatch, tmp_path
):
    """A saved lookup ahead depends on the kernels, the shards and bad_ids."""

    def estimator(native, shards, bad_ids):
        monkeypatch.setenv("ESTIMATOR_EMB_NATIVE", native)
        in_shards(shards)
        return make(tmp_path, **WAYS["host, pipelined"], bad_ids=bad_ids)

    train(estimator(*before), 4)
    saved = harness.saved(tmp_path, 4)
    for other in others:
        message = harness.refusal(ValueError, train, estimator(*other), 8)
        said = "input.ckpt-4 holds a lookup ahead by other features or settings"
        assert said in message
        check_equal(harness.saved(tmp_path, 4), saved)
    train(estimator(*before), 8)


@pytest.mark.slow
def test_a_lookup_ahead_by_tensorflow_fits_other_shards(in_shards, tmp_path, monkeypatch):
    monkeypatch.setenv("ESTIMATOR_EMB_NATIVE", "0")
    for shards, steps in ((3, 4), (2, 8), (4, STEPS)):
        in_shards(shards)
        train(make(tmp_path, **WAYS["host, pipelined"]), steps)
    check_all_seen_once(harness.saved(tmp_path, STEPS))


def saver_hook(directory, class_=tf1.train.CheckpointSaverHook, **options):
    return class_(str(directory), save_steps=3, checkpoint_basename="model.ckpt", **options)


@pytest.mark.parametrize("elsewhere", [False, True], ids=["beside", "elsewhere"])
def test_positions_are_saved_with_the_programs_own_saver(elsewhere, tmp_path):
    directory = tmp_path / "elsewhere" if elsewhere else tmp_path
    saver = saver_hook(directory, listeners=[kill_while_saving(6, "after_save")])
    killed(make(tmp_path), hooks=[saver])
    # Without a saved model in the same folder, positions are saved as the RunConfig says.
    steps = (0, 2, 4, 6) if elsewhere else (3, 6)
    positions = [name for name in complete(tmp_path) if name.startswith("input")]
    assert positions == [f"input.ckpt-{step}" for step in steps]
    if not elsewhere:
        train(make(tmp_path), hooks=[saver_hook(directory)])
        check_all_seen_once(harness.saved(tmp_path, STEPS))


def said_in_training(caplog, *args):
    caplog.clear()
    with caplog.at_level(logging.WARNING, "estimator_emb"):
        train(*args)
    (said,) = harness.said(caplog)
    return said


def test_a_training_without_the_hook_and_positions_of_later_steps_are_logged(
    tmp_path, caplog, assert_recorded
):
    made = make(tmp_path, save_checkpoints_steps=STEPS)
    train(made, 4)
    made.train(input_fn, max_steps=7)
    said = said_in_training(caplog, made, 8)
    assert "no position of the input was saved with the model at step 7" in said
    assert_recorded(said)
    # Batches 1 to 4 with the hook, batches 1 to 3 without it, and batch 5 with it again.
    check_counts(harness.saved(tmp_path, 8), [*batches()[:4], *batches()[:3], batches()[4]])
    # A new model begins in the folder, in which only the position of step 8 is left.
    for path in glob.glob(f"{tmp_path}/*model.ckpt*"):
        os.remove(path)
    os.remove(tmp_path / "checkpoint")
    os.remove(tmp_path / "input.ckpt-7.index")
    said = said_in_training(caplog, made, 6)
    assert "are of later steps (8): the input begins at its start" in said
    assert_recorded(said)
    check_counts(harness.saved(tmp_path, 6), batches()[:6])


def test_inputs_and_estimators_without_a_position_are_refused(tmp_path, assert_recorded, caplog):
    def constant(params=None):
        return dict.fromkeys(("count", "when"), tf.zeros([4, 1], tf.int64))

    def other_input_fn():
        with tf.name_scope("other"):
            return tf1.data.make_one_shot_iterator(input_fn()).get_next()

    train(make(tmp_path), 2)
    refusal = harness.refusal(ValueError, train, make(tmp_path), 4, input_fn=other_input_fn)
    assert "input.ckpt-2 holds the position of another input" in refusal
    assert_recorded(refusal)
    new = tmp_path / "new"
    refusal = harness.refusal(ValueError, train, make(new), input_fn=constant)
    assert "No variables to save: CheckpointInputPipelineHook saves the position of" in refusal
    assert_recorded(refusal)
    # While a thread saves the model, training reads on. So no position belongs to the model.
    made, saver = make(new, **WAYS["host"]), async_checkpoint.AsyncCheckpointSaverHook
    assert_recorded(harness.refusal(ValueError, train, made, 200, [saver_hook(new, saver)]))
    assert "a TPU's input is read ahead" not in caplog.text
    # A position is saved with each checkpoint, and this estimator saves none.
    unsaved = make(new, save_checkpoints_steps=None, save_checkpoints_secs=None)
    assert_recorded(harness.refusal(ValueError, CheckpointInputPipelineHook, unsaved))
    said = harness.refusal(ValueError, CheckpointInputPipelineHook, make(new), "sometimes")
    assert "ignore" in said  # The error lists the external_state_policies.


def test_unfinished_and_outdated_positions_are_removed(tmp_path):
    (tmp_path / "input.ckpt-3_temp").mkdir()
    others = ["input_worker_0.ckpt-1.index", "model.ckpt-2.index"]
    own = [f"input.ckpt-{step}.index" for step in (1, 2, 3)]
    for name in (*others, *own, "unfinished_input.ckpt-4.index"):
        (tmp_path / name).touch()
    positions = Positions(str(tmp_path), "input")
    assert positions.steps() == [1, 2, 3]
    positions.remove_those_before_models()
    assert positions.steps() == [2, 3]
    positions.remove_those_without_model(4)
    assert files(tmp_path) == ["input.ckpt-2.index", *others]


theirs = pytest.mark.skipif(
    not hasattr(tf.data.experimental, "CheckpointInputPipelineHook"),
    reason="this TensorFlow has no such hook",
)


@theirs
def test_positions_of_tensorflows_hook_are_read(tmp_path, monkeypatch):
    input_checkpoint.attach_hooks()
    estimator = input_checkpoint.Estimator  # Trains at first as without estimator_emb.
    own = estimator._train_with_estimator_spec.__wrapped__
    monkeypatch.setattr(estimator, "_train_with_estimator_spec", own)
    train(make(tmp_path), 5, hook_class=tf.data.experimental.CheckpointInputPipelineHook)
    monkeypatch.undo()
    assert "input.ckpt-4.meta" in files(tmp_path)  # Our hook writes no .meta.
    train(make(tmp_path))
    check_all_seen_once(harness.saved(tmp_path, STEPS))
    assert not [name for name in files(tmp_path) if name.startswith("input.ckpt-4")]


@pytest.mark.fast(1)
@theirs
@pytest.mark.parametrize("way", ["plain", "host"])
def test_tensorflows_hook_is_replaced(tmp_path, way):
    """After a kill, TensorFlow's own hook may restore the input of another step than the model's.

    So every batch is seen once only if our hook takes its place.
    """
    if way == "plain":
        input_checkpoint.attach_hooks()  # `install` does this.
    hook_class = tf.data.experimental.CheckpointInputPipelineHook
    for step in (3, 6):
        estimator = make(tmp_path, **WAYS[way])
        killed(estimator, hooks=[KillAfterStep(step)], hook_class=hook_class)
    train(make(tmp_path, **WAYS[way]), hook_class=hook_class)
    check_all_seen_once(harness.saved(tmp_path, STEPS))


def train_long(directory):
    estimator = make(directory, **WAYS["host"], save_checkpoints_steps=3)
    train(estimator, LONG, input_fn=lambda params: input_fn(params, steps=LONG + 2))


@pytest.mark.slow
def test_kills_at_random_moments_lose_no_batch(tmp_path):
    """Kills a training at random moments, mostly while it runs, then lets it run to its end."""
    killed, whole = tmp_path / "killed", tmp_path / "whole"
    program = "import sys, test_input_checkpoint as tests; tests.train_long(sys.argv[1])"
    command = [sys.executable, "-c", program, killed]
    for _ in range(sampling.of(8, some=2)):
        before = files(killed)
        process = subprocess.Popen(command, env=processes.environment())
        # The process's session has begun when it writes its events.
        processes.until(lambda: files(killed) != before or process.poll() is not None)  # noqa: B023
        time.sleep(random.uniform(0.0, 1.5))
        process.kill()
        process.wait()
    processes.ended(command, 0, None, processes.HANGS, processes.environment())
    assert not [name for name in files(killed) if "unfinished" in name]
    train_long(whole)
    check_equal(harness.saved(killed, LONG), harness.saved(whole, LONG))
