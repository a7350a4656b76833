"""Clusters of parameter servers and trainers in one process, for tests."""

import json
import os
import threading
from multiprocessing import pool
from unittest import mock

import harness
import numpy as np
import processes
import tensorflow as tf

import estimator_emb as ee


class _Start(tf.compat.v1.train.SessionRunHook):
    def __init__(self, barrier):
        self._barrier = barrier

    def after_create_session(self, session, coord):
        self._barrier.wait(timeout=processes.HANGS)


COUNTERS = {
    "sgd": ee.StochasticGradientDescentParameters(1.0),
    "adagrad": ee.AdagradParameters(1e-3, initial_accumulator=1.0),
}
"""Optimizers whose tables count the updates with a gradient of 1."""


def updates(saved):
    """Returns the number of updates of each row, by the saved tables of COUNTERS."""
    return {"sgd": -saved["sgd"], "adagrad": saved["adagrad/Adagrad"] - 1}


def counted(ids, dimension):
    """Returns a batch that updates the rows `ids` of the tables of COUNTERS once."""
    ones = np.ones([len(ids), dimension], np.float32)
    return dict.fromkeys(COUNTERS, ids), dict.fromkeys(COUNTERS, ones)


def counting_spec(optimizers, rows, dimension):
    """Returns a spec with a table of zeros and a feature for each named optimizer."""
    zeros = ee.TableConfig(rows, dimension, tf.zeros_initializer())
    return harness.tables_spec(
        {name: zeros._replace(optimization_parameters=one) for name, one in optimizers.items()}
    )


class Cluster:
    """A chief, workers and parameter servers on loopback, all in this process.

    Args:
      workers: number of workers, besides the chief.
      servers: number of parameter servers.
      absent: (job, index) of tasks that are listed in the cluster but not started.
    """

    def __init__(self, workers, servers, absent=()):
        jobs = {"chief": 1, "worker": workers, "ps": servers}
        self.tasks = [(job, index) for job, count in jobs.items() for index in range(count)]
        self.cluster = processes.addresses(**{job: count for job, count in jobs.items() if count})
        self._servers = []
        for task in self.tasks:
            if task not in absent:
                self.start(task)

    def start(self, task):
        """Starts a task that was absent."""
        job, index = task
        self._servers.append(tf.distribute.Server(self.cluster, job_name=job, task_index=index))

    def forget(self, job, index, names):
        """Deletes the variables `names` from a task. Returns how many of them it had."""
        ops, shape = tf.raw_ops, {"dtype": tf.float32, "shape": None}
        with tf.Graph().as_default() as graph, tf.device(f"/job:{job}/task:{index}"):
            handles = [ops.VarHandleOp(shared_name=name, **shape) for name in names]
            held = [ops.VarIsInitializedOp(resource=one) for one in handles]
            gone = [
                ops.DestroyResourceOp(resource=one, ignore_lookup_error=True) for one in handles
            ]
        target = f"grpc://{self.cluster[job][index]}"
        with tf.compat.v1.Session(target, graph=graph) as session:
            count = sum(session.run(held))
            session.run(gone)
            return count

    def config(self, job, index, **kwargs):
        """The RunConfig of a task."""
        task = {"cluster": self.cluster, "task": {"type": job, "index": index}}
        with mock.patch.dict(os.environ, TF_CONFIG=json.dumps(task)):
            return ee.RunConfig(**kwargs)

    def train(self, make, **kwargs):
        """Trains on all trainers at once. No trainer takes a step before all have a session.

        Args:
          make: called with the job and index of each trainer; returns its estimator and input_fn.
          kwargs: of `TPUEstimator.train`.
        """
        estimators = {task: make(*task) for task in self.tasks if task[0] != "ps"}
        start = threading.Barrier(len(estimators))

        def run(task):
            estimator, input_fn = estimators[task]
            try:
                estimator.train(input_fn, hooks=[_Start(start)], **kwargs)
            except BaseException:
                start.abort()
                raise

        manager = tf.compat.v1.train.SessionManager
        with mock.patch.object(manager, "__init__", manager.__init__):
            processes.join_soon(0.2)
            with pool.ThreadPool(len(estimators)) as threads:
                threads.map_async(run, estimators).get(timeout=processes.HANGS)


def config_of(way, model_dir, **kwargs):
    """Returns a RunConfig for "host", "servers" (two of them), or a number of cores: "2 cores"."""
    if way == "servers":
        cluster = Cluster(workers=0, servers=2)
        return cluster.config("chief", 0, model_dir=str(model_dir), **kwargs)
    tpu = None if way == "host" else ee.TPUConfig(1, device="host", num_shards=int(way.split()[0]))
    return ee.RunConfig(model_dir=str(model_dir), tpu_config=tpu, **kwargs)
