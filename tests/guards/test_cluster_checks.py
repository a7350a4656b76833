"""Clusters by TF_CONFIG: unsupported settings are refused, and sessions get device filters."""

import json

import harness
import numpy as np
import pytest
import tensorflow as tf

import estimator_emb as ee

CLUSTER = {
    "chief": ["localhost:1"],
    "worker": ["localhost:2", "localhost:3"],
    "ps": ["localhost:4"],
}
SPEC = harness.table_spec(4, 2, ee.AdagradParameters(0.1))


@pytest.fixture
def task(monkeypatch):
    def of(job, index=0, cluster=CLUSTER):
        task = {"cluster": cluster, "task": {"type": job, "index": index}}
        monkeypatch.setenv("TF_CONFIG", json.dumps(task))

    return of


def make(tmp_path, model_fn=None, spec=SPEC, use_tpu=False, **kwargs):
    config = ee.RunConfig(model_dir=str(tmp_path), **kwargs)
    model_fn = model_fn or harness.gradient_model_fn(["x"])
    return harness.configured(model_fn, spec, config, use_tpu=use_tpu)


@pytest.mark.parametrize("spec", [SPEC, None], ids=["tables", "no tables"])
@pytest.mark.parametrize("device", ["host", "pjrt"])
@pytest.mark.parametrize("job, index", [("chief", 0), ("worker", 1), ("ps", 0), ("evaluator", 0)])
def test_an_emulated_tpu_in_a_cluster_is_refused(job, index, device, spec, task, tmp_path):
    task(job, index)
    kwargs = {"spec": spec, "use_tpu": True, "tpu_config": ee.TPUConfig(device=device)}
    assert harness.refusal(ValueError, make, tmp_path, **kwargs).startswith(
        f"TF_CONFIG names a cluster (1 chief, 2 worker, 1 ps), and this process is its {job} "
        f"{index}, but device='emulate' and device='pjrt' train in one process."
    )


@pytest.mark.parametrize("job", ["chief", "evaluator"])
def test_an_emulated_tpu_may_have_an_evaluator(job, task, tmp_path):
    task(job, cluster={"chief": ["localhost:1"]})
    made = make(tmp_path, use_tpu=True, tpu_config=ee.TPUConfig(device="host"))
    assert made.config.task_type == job


def test_workers_without_a_parameter_server_are_refused(task, tmp_path, assert_recorded):
    task("worker", cluster={job: [CLUSTER[job][0]] for job in ("chief", "worker")})
    message = harness.refusal(ValueError, make, tmp_path)
    assert "2 processes that train, and no parameter server" in message  # A chief and a worker.
    assert_recorded(message)


@pytest.mark.parametrize(
    "job, index, filters",
    [
        ("chief", 0, ["/job:ps", "/job:chief"]),
        ("worker", 1, ["/job:ps", "/job:worker/task:1"]),
        ("evaluator", 0, []),
    ],
)
def test_sessions_get_device_filters(job, index, filters, task, tmp_path):
    """Without filters, a session waits for all processes, also for a worker that never starts."""
    task(job, index)
    config = make(tmp_path).config.session_config
    assert list(config.device_filters) == filters
    # As of a RunConfig without a cluster.
    rewrite = config.graph_options.rewrite_options
    assert config.allow_soft_placement and rewrite.meta_optimizer_iterations == rewrite.ONE
    given = tf.compat.v1.ConfigProto(inter_op_parallelism_threads=3)
    config = make(tmp_path, session_config=given).config.session_config
    assert config.inter_op_parallelism_threads == 3
    assert list(config.device_filters) == filters
    assert not given.device_filters  # The program's own object is unchanged.
    given.device_filters.append("/job:ps")  # The program's filters are kept.
    config = make(tmp_path, session_config=given).config.session_config
    assert list(config.device_filters) == ["/job:ps"]


def test_synchronous_training_is_refused_before_a_session(
    task, tmp_path, monkeypatch, assert_recorded
):
    task("chief")

    def model_fn(features, labels, mode, params):
        loss = tf.reduce_sum(features["x"])
        sgd = tf.compat.v1.train.GradientDescentOptimizer(0.1)
        optimizer = tf.compat.v1.train.SyncReplicasOptimizer(sgd, replicas_to_aggregate=1)
        train_op = optimizer.minimize(loss, tf.compat.v1.train.get_global_step())
        hooks = [optimizer.make_session_run_hook(True)]
        return ee.TPUEstimatorSpec(mode, loss=loss, train_op=train_op, training_hooks=hooks)

    batch = ({"x": np.arange(4)}, np.zeros(4, np.float32))
    train = make(tmp_path, model_fn).train
    message = harness.refusal(ValueError, train, harness.input_fn_of([batch]), max_steps=1)
    assert message.startswith("SyncReplicasOptimizer makes workers take their steps together")
    assert_recorded(message)
    monkeypatch.delenv("TF_CONFIG")  # A process alone may use it: its training reaches this hook.
    ends = tf.compat.v1.train.SessionRunHook()
    ends.begin = lambda: 1 / 0
    with pytest.raises(ZeroDivisionError):
        make(tmp_path, model_fn).train(harness.input_fn_of([batch]), [ends], max_steps=1)
