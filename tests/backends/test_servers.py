"""Tables on parameter servers: no update is lost, and results equal a single process's.

A `servers.Cluster` has a chief, workers and servers in this process. Its `forget` deletes variables
of a server, as if the server had restarted.
"""

import itertools
import os
import re
import sys
import threading

import harness
import numpy as np
import processes
import pytest
import saved_values
import servers
import tensorflow as tf
from host_engine import on_both_kernels

import estimator_emb as ee
from estimator_emb.backends import host_tables
from estimator_emb.checkpoints.restoring import live_servers
from estimator_emb.engine.kernels import TensorFlowKernels
from estimator_emb.native import select_kernels, serving
from estimator_emb.reporting import console

with_native = pytest.mark.parametrize("kernels", ["native"], indirect=True)


@pytest.mark.slow
@pytest.mark.parametrize(
    "mixed, kernels",
    [(False, "native"), (False, "tensorflow"), (True, "native")],
    indirect=["kernels"],
)
def test_no_update_of_three_trainers_is_lost(mixed, monkeypatch, tmp_path):
    """If `mixed`, some trainers use native kernels on the servers, and others do not."""
    if mixed:
        trainers, native = itertools.count(), select_kernels.kernels_for

        def in_turn(*args, **kwargs):
            uses_native = next(trainers) % 2 == 0
            return native(*args, **kwargs) if uses_native else TensorFlowKernels(*args)

        monkeypatch.setattr(select_kernels, "kernels_for", in_turn)
    cluster = servers.Cluster(workers=2, servers=2)
    rows, dimension, ids = 5, 2, np.array([0, 3])
    # Two tables count the updates of each row: SGD by the values, Adagrad by the accumulators.
    spec = servers.counting_spec(servers.COUNTERS, rows, dimension)
    batch = servers.counted(ids, dimension)  # Updates the rows 0 and 3 once.

    def make(job, index):
        config = cluster.config(job, index, model_dir=str(tmp_path), **harness.SILENT)
        model_fn = harness.gradient_model_fn(servers.COUNTERS)
        estimator = harness.configured(model_fn, spec, config, len(ids), use_tpu=False)
        return estimator, harness.endless(batch)

    cluster.train(make, max_steps=600)
    # One more step by the chief alone: while others train, its checkpoints may mix steps.
    chief, input_fn = make("chief", 0)
    chief.train(input_fn, steps=1)
    steps = harness.last_step(tmp_path)
    saved = harness.saved(tmp_path, steps)
    assert steps > 600
    for name, updates in servers.updates(saved).items():
        want = np.zeros([rows, dimension])
        want[ids] = steps
        np.testing.assert_allclose(updates, want, atol=0.3, err_msg=name)  # A lost update is 1.


def dies_after(steps):
    """Returns a hook that makes a trainer fail, so that it saves nothing: it saves at its end."""
    left = iter(range(steps - 1))

    def die():
        if next(left, None) is None:
            raise RuntimeError("the chief dies")

    return harness.AfterStep(die)


def chief_of(cluster, model_dir):
    """Returns a function that trains the chief. A step subtracts 1 from each value of table x."""
    spec = servers.counting_spec({"x": ee.StochasticGradientDescentParameters(1.0)}, 4, 2)
    batch = ({"x": np.arange(4)}, {"x": np.ones([4, 2], np.float32)})

    def train(max_steps, *hooks):
        config = cluster.config("chief", 0, model_dir=str(model_dir), **harness.SILENT)
        model_fn = harness.gradient_model_fn(["x"])
        estimator = harness.configured(model_fn, spec, config, use_tpu=False)
        estimator.train(harness.endless(batch), list(hooks), max_steps=max_steps)

    return train


HOLD = (
    "The parameter servers hold step 7: training goes on from there, not from the checkpoint of "
    "step {}."
)


@with_native
def test_a_restarted_chief_continues_from_the_servers_step(said, tmp_path):
    """The chief may spell its folder differently. It does not wait for a missing worker."""
    cluster = servers.Cluster(workers=1, servers=2, absent=[("worker", 0)])
    chief_of(cluster, tmp_path)(2)
    kernels = "Tables are looked up and updated on their parameter servers, by native kernels."
    assert kernels in said()
    with pytest.raises(RuntimeError, match="the chief dies"):
        chief_of(cluster, f"{tmp_path}/../{tmp_path.name}")(100, dies_after(5))  # Unsaved.
    chief_of(cluster, tmp_path)(12)
    assert [line for line in said() if "hold step" in line] == [HOLD.format(2)]
    np.testing.assert_array_equal(harness.saved(tmp_path, 12)["x"], np.full([4, 2], -12.0))


ALL_VARIABLES = ["global_step", "estimator_emb_model_dir", "x/part_0", "x/part_1"]


class Loses(tf.compat.v1.train.SessionRunHook):
    """Makes parameter servers lose all variables after some steps, as if they restarted."""

    def __init__(self, cluster, steps, servers):
        self._cluster, self._left, self._servers = cluster, steps, servers

    def before_run(self, run_context):
        self._left -= 1
        if self._left == -1:
            for server in self._servers:
                assert self._cluster.forget("ps", server, ALL_VARIABLES)
            raise tf.errors.AbortedError(None, None, "as TensorFlow says it")


LOST = "A parameter server has lost its variables, {} for one: all servers go back "
LOST_STEP = LOST.format("global_step")
BACK = "from step 7 to the checkpoint of step 2, and 5 steps are lost."
NOTHING = "The parameter servers hold nothing of this training: it goes on from the checkpoint of "


@pytest.mark.slow
@on_both_kernels
@pytest.mark.parametrize(
    # new_chief: the chief restarts, else it sees the loss in its session. lost: the servers that
    # lose `variables`, at step 7. line: of the log, which names one of `variables`. A new chief
    # knows step 7 only if the first server, which holds the step, has kept it.
    "new_chief, lost, variables, line",
    [
        (True, [1], ALL_VARIABLES[2:], LOST + BACK),
        (True, [0], ALL_VARIABLES, LOST_STEP + "to the checkpoint of step 2."),
        (True, [0, 1], ALL_VARIABLES, NOTHING + "step 2."),
        (False, [0, 1], ALL_VARIABLES, LOST_STEP + BACK),
    ],
)
def test_all_servers_restore_after_one_lost_its_variables(
    new_chief, lost, variables, line, said, tmp_path
):
    cluster = servers.Cluster(workers=0, servers=2)
    train = chief_of(cluster, tmp_path)
    train(2)
    if new_chief:
        with pytest.raises(RuntimeError, match="the chief dies"):
            train(100, dies_after(5))
        for server in lost:
            assert cluster.forget("ps", server, variables)
        train(10)
    else:
        train(10, Loses(cluster, 5, lost))
    found = [one for one in said() if "lost" in one or "checkpoint" in one]
    assert found in [[line.format(variable)] for variable in variables]
    # 10 steps, on all servers from the checkpoint of step 2.
    np.testing.assert_array_equal(harness.saved(tmp_path, 10)["x"], np.full([4, 2], -10.0))


def test_servers_keep_only_a_newer_whole_model(said, tmp_path):
    """A chief restores step 5 and x = 50, unless the server holds its model of step 5 or later."""
    cluster, seen = servers.Cluster(workers=0, servers=1), live_servers.StepsSeen()
    path = saved_values.save(f"{tmp_path}/model.ckpt-5", {"global_step": np.int64(5), "x": 50.0})
    lost_x, back = LOST.format("x"), "to the checkpoint of step 5"
    two_lost = f"from step 7 {back}, and 2 steps are lost."
    with tf.Graph().as_default(), tf.device("/job:ps/task:0"):
        step = tf.compat.v1.train.get_or_create_global_step()
        x = tf.compat.v1.get_variable("x", [])
        config = ee.RunConfig(model_dir=f"{tmp_path}/../{tmp_path.name}")
        saver = live_servers.LiveServersSaver(config, seen)
        saver.build()
        saver.build()  # As after a lost server.
        session = tf.compat.v1.Session(f"grpc://{cluster.cluster['ps'][0]}")
        # Before: the model_dir whose model the server holds (None: it has no model_dir), the held
        # variables, and the last step that the chief saw. After: [step, x], and the log's line.
        for owner, held, last, after, line in (
            (None, {}, None, [5, 50], f"{NOTHING}step 5."),
            (None, {}, 8, [5, 50], f"{LOST_STEP}from step 8 {back}, and 3 steps are lost."),
            (None, {step: 7}, None, [5, 50], f"{lost_x}{back}."),
            (tmp_path, {step: 7, x: 70}, None, [7, 70], HOLD.format(5)),  # A newer whole model.
            (tmp_path, {step: 5, x: 51}, None, [5, 51], None),
            (tmp_path, {step: 4, x: 40}, None, [5, 50], None),
            (tmp_path, {step: 7}, None, [5, 50], f"{lost_x}{two_lost}"),
            (tmp_path, {step: 5}, None, [5, 50], None),  # No step is lost.
            ("another", {step: 7, x: 70}, None, [5, 50], None),
            ("another", {step: 7}, None, [5, 50], f"{NOTHING}step 5."),
        ):
            cluster.forget("ps", 0, ["global_step", "x", "estimator_emb_model_dir"])
            if owner:
                session.run(saver._set_mark, {saver._set_mark.inputs[1]: os.path.realpath(owner)})
            for variable, value in held.items():
                variable.load(value, session)
            seen.last, before = last, len(said())
            saver.restore(session, path)
            marked = os.path.realpath(tmp_path).encode()
            assert session.run([step, x, saver._mark]) == [*after, marked]
            assert said()[before:] == [line] * bool(line) and seen.last is None
        cluster.forget("ps", 0, ["estimator_emb_model_dir"])  # As in a new training.
        saver.save(session, f"{tmp_path}/model.ckpt", 7)
        assert session.run(saver._mark) == marked


def test_a_worker_logs_the_steps_that_were_lost(said):
    """If the chief has restarted too, only the worker knows these steps."""
    seen = live_servers.StepsSeen()
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        step = tf.compat.v1.train.get_or_create_global_step()
        seen.begin()
        # The global step in a new session, and the worker's last step before it, if any.
        for value, last in ((7, 9), (9, 9), (7, None), (10, 9)):  # Only the first goes back.
            session.run(tf.compat.v1.assign(step, value))
            if last:  # A step reads the global step before it adds 1.
                seen.after_run(None, tf.compat.v1.train.SessionRunValues(last - 1, None, None))
            seen.after_create_session(session, None)
    assert said() == [
        "Training goes on from step 7, after a parameter server was away: the 2 steps that "
        "followed, up to step 9, are lost."
    ]


def test_without_the_extra_native_tables_use_tensorflows_ops(monkeypatch, caplog, said):
    monkeypatch.setitem(sys.modules, "estimator_emb.native.select_kernels", None)
    for asked, level in (("1", "WARNING"), ("", "INFO")):
        monkeypatch.setattr(console, "_logged", set())
        monkeypatch.setenv("ESTIMATOR_EMB_NATIVE", asked)
        assert type(host_tables.kernels_for([], 1, None)) is TensorFlowKernels
        last = caplog.records[-1]
        assert last.levelname == level and last.msg.startswith("Tables use TensorFlow's ops. This")


def test_only_servers_of_tables_load_native_kernels(monkeypatch, tmp_path):
    """A chief serves no tables, nor does a server of a program without tables."""
    loaded, spec = [], harness.table_spec(2, 2, ee.AdagradParameters(0.1))
    monkeypatch.setattr(serving, "load", lambda *given: loaded.append(given))
    cluster = servers.Cluster(0, 1, absent=[("chief", 0), ("ps", 0)])
    for job, tables in (("chief", spec), ("ps", spec), ("ps", None)):
        config = cluster.config(job, 0, model_dir=str(tmp_path))
        harness.configured(harness.gradient_model_fn("x"), tables, config, use_tpu=False)
    ((config, (table,)),) = loaded
    assert (config.task_type, table.name) == ("ps", "t")


@with_native
@pytest.mark.slow
def test_servers_with_another_training_are_restored(said, tmp_path):
    cluster = servers.Cluster(workers=0, servers=2)
    one, other = (chief_of(cluster, tmp_path / name) for name in ("one", "other"))
    one(2)
    other(7)
    one(4)  # From its own checkpoint of step 2, though the servers hold step 7 of the other.
    assert not [line for line in said() if "parameter servers hold" in line]
    saved = harness.saved(tmp_path / "one", 4)
    np.testing.assert_array_equal(saved["x"], np.full([4, 2], -4.0))


@with_native
@pytest.mark.slow
def test_log_names_a_server_that_is_away(monkeypatch, said, tmp_path):
    monkeypatch.setattr(serving, "_NEXT_LINE", 0.1)
    cluster = servers.Cluster(workers=0, servers=2, absent=[("ps", 1)])
    address = cluster.cluster["ps"][1]
    waiting = rf"Waiting for parameter server 1 at {address} for \d+ s: Connection refused\."

    def come():
        processes.until(lambda: any(re.fullmatch(waiting, line) for line in said()))
        cluster.start(("ps", 1))

    late = threading.Thread(target=come, daemon=True)
    late.start()
    chief_of(cluster, tmp_path)(2)
    late.join()
    assert harness.saved(tmp_path, 2)["global_step"] == 2
