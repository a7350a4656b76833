"""A cluster whose processes are killed at random moments, and may restart.

Every gradient is 1, so two tables count the updates: one by its rows, the other by its
accumulators. In every checkpoint, both must agree with the global step.
"""

import functools
import json
import os
import random
import re
import time

import harness
import numpy as np
import processes
import pytest
import sampling
import servers
import tensorflow as tf

import estimator_emb as ee

TASKS = [("chief", 0), ("worker", 0), ("ps", 0), ("ps", 1), ("evaluator", 0)]
ROWS, DIMENSION, IDS = 5, 2, np.array([0, 3])
STEPS = 2_500
FAULTS = sampling.of(6, 2)
APART = 40
"""Most steps that slow trainers make after a restart before one of the steps is recorded."""
PROGRAM = """
    import sys
    import processes
    import test_cluster_faults
    processes.join_soon()
    test_cluster_faults.train(*sys.argv[1:])
    print("goes on", flush=True)
"""


class Record(tf.compat.v1.train.SessionRunHook):
    """Writes the global step that each step of a trainer sees, with the times before and after."""

    def __init__(self, path):
        self._file = open(path, "a", buffering=1)

    def before_run(self, run_context):
        self._began = time.time()
        return tf.compat.v1.train.SessionRunArgs(tf.compat.v1.train.get_global_step())

    def after_run(self, run_context, run_values):
        seen = time.time(), self._began, int(run_values.results)
        self._file.write(json.dumps(seen) + "\n")


def train(directory, hurry):
    """Runs the task of a process, slowly until the file `hurry` exists."""
    spec = servers.counting_spec(servers.COUNTERS, ROWS, DIMENSION)
    batch = servers.counted(IDS, DIMENSION)

    def wait(value):
        if not os.path.exists(hurry):
            time.sleep(0.1)
        return value

    def input_fn(params):
        def slowly(features, labels):
            ids = tf.numpy_function(wait, [features["sgd"]], tf.int64)
            return {**features, "sgd": tf.ensure_shape(ids, IDS.shape)}, labels

        return harness.dataset([batch]).repeat().map(slowly).prefetch(1)

    run = {**harness.SILENT, "save_checkpoints_secs": 2, "keep_checkpoint_max": None}
    model_fn = harness.gradient_model_fn(servers.COUNTERS)
    estimator = harness.estimator(model_fn, spec, directory, len(IDS), run=run)
    hooks = [Record(f"{hurry}.{os.getpid()}.steps")]
    training = ee.TrainSpec(input_fn, max_steps=STEPS, hooks=hooks)
    evaluation = ee.EvalSpec(input_fn, steps=1, start_delay_secs=1, throttle_secs=2)
    ee.train_and_evaluate(estimator, training, evaluation)


def check_checkpoint(path, most):
    """Checks that tables, slots and step of a checkpoint differ by at most `most` updates."""
    folder, _, number = path.rpartition("/model.ckpt-")
    saved = harness.saved(folder, number)
    step = saved["global_step"]
    for name, counts in servers.updates(saved).items():
        others = np.delete(counts, IDS, axis=0)
        np.testing.assert_array_equal(others, np.zeros_like(others), err_msg=path)
        assert np.abs(counts[IDS] - step).max() <= most, (path, name, counts, step)


def check_roll_backs(steps, told):
    """Checks that training went back only to steps that the logs name (`told`)."""
    # Each item of `steps` holds the times after and before a trainer saw a global step, and it.
    reached, since = [(0.0, 0)], 0.0
    for ended, began, step in sorted(steps):
        # Only steps seen before `began` count. Other trainers may have seen later steps meanwhile.
        highest = max(one for at, one in reached if at < began or not at)
        if began >= since and step < highest:
            assert any(abs(step - one) <= APART for one in told), (highest, step, told)
            reached, since = [(0.0, step)], began
        if began >= since:
            reached.append((ended, step))


_FIRST = 2 if tf.__version__.startswith("2.15.") else 1
if sampling.seed():
    _FIRST += 2 * random.Random(sampling.seed()).randrange(1000)
# FAULT_SEEDS="2 10" runs seeds 2 to 9.
SEEDS = range(*map(int, os.environ.get("FAULT_SEEDS", f"{_FIRST} {_FIRST + 1}").split()))


@pytest.mark.slow
@pytest.mark.parametrize("seed", SEEDS)
def test_training_survives_killed_processes(seed, native_library, tmp_path):
    """Kills one or two of five processes, several times. Odd seeds use native kernels."""
    chosen = random.Random(seed)
    hurry, model = tmp_path / "hurry", tmp_path / "model"
    jobs = {"chief": 1, "worker": 1, "ps": 2}
    with processes.Processes(tmp_path, PROGRAM, [str(model), str(hurry)], jobs) as cluster:
        start = functools.partial(cluster.start, ESTIMATOR_EMB_NATIVE=str(seed % 2))
        running = {task: start(*task) for task in TASKS}
        cluster.until(lambda: tf.train.latest_checkpoint(str(model)))
        killed = []
        for number in range(FAULTS):
            time.sleep(chosen.uniform(0, 6))
            victims = chosen.sample(TASKS, chosen.choice([1, 1, 2]))
            for victim in victims:
                assert running[victim].poll() is None, cluster.logs()
                running[victim].kill()
                running[victim].wait()
            killed.append(victims)
            time.sleep(chosen.uniform(0, 3))
            for victim in victims:
                comes_back = victim[0] != "worker" or number < FAULTS - 1 or chosen.random() < 0.5
                if comes_back:
                    running[victim] = start(*victim)
                else:
                    del running[victim]
        print(f"seed {seed} killed {killed}")
        time.sleep(chosen.uniform(0, 6))
        hurried = time.time()
        hurry.touch()
        for process in running.values():
            cluster.until(lambda process=process: process.poll() is not None)
            assert process.returncode == 0, cluster.logs()

        logs = [process.log.read_text() for process in cluster.started]
        to = r"lost.*to the checkpoint of step (\d+)|goes on from (?:the checkpoint of )?step (\d+)"
        told = [int(a or b) for log in logs for a, b in re.findall(to, log)]
        steps = [
            json.loads(line)
            for path in tmp_path.glob("hurry.*.steps")
            for line in path.read_text().splitlines()
            if line.endswith("]")
        ]
        check_roll_backs([one for one in steps if one[0] < hurried], told)
        # A trainer updates two tables and the step, one after the other. While a checkpoint is
        # saved, and at each kill, both trainers may have done only a part of their updates.
        trainers, kills = 2, sum(map(len, killed))
        for path in tf.train.get_checkpoint_state(str(model)).all_model_checkpoint_paths:
            check_checkpoint(path, most=trainers * (1 + kills))
        assert harness.last_step(model) >= STEPS
