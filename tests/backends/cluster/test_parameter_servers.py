"""Training on clusters of a chief and parameter servers, each in its own process."""

import pathlib

import harness
import numpy as np
import processes
import pytest
import tensorflow as tf

import estimator_emb as ee

TASKS = [("chief", 0), ("ps", 0), ("ps", 1)]

PROGRAM = """
    import sys
    import harness, test_parameter_servers
    import estimator_emb as ee

    estimator = test_parameter_servers.make(sys.argv[1])
    input_fn = harness.input_fn_of(test_parameter_servers.batches())
    specs = ee.TrainSpec(input_fn, max_steps=4), ee.EvalSpec(input_fn, steps=1)
    ee.train_and_evaluate(estimator, *specs)
"""


def run(model_dir, kernels):
    """Runs PROGRAM until the chief is done. Returns each task's log, and the addresses by job."""
    folder, started = pathlib.Path(f"{model_dir}.logs"), {}
    folder.mkdir()
    jobs = {"chief": 1, "ps": 2}
    with processes.Processes(folder, PROGRAM, [str(model_dir)], jobs) as cluster:
        for task in TASKS:
            started[task] = cluster.start(*task, ESTIMATOR_EMB_NATIVE=str(int(task in kernels)))
        assert started["chief", 0].wait(processes.HANGS) == 0
    return {task: process.log.read_text() for task, process in started.items()}, cluster.cluster


ROWS = {"one": 1, "uneven": 7}


def make(model_dir):
    tables = {
        name: ee.TableConfig(rows, 2, harness.initializer(np.arange(2.0 * rows).reshape(rows, 2)))
        for name, rows in ROWS.items()
    }
    options = {"partition_strategy": "mod", "pipeline_execution_with_tensor_core": True}
    spec = harness.tables_spec(tables, ee.AdagradParameters(0.1), **options)

    def model_fn(features, labels, mode, params):
        loss = tf.add_n([tf.reduce_sum(tf.square(features[name])) for name in ROWS])
        return harness.minimized(mode, loss)

    return harness.estimator(model_fn, spec, model_dir, batch_size=2)


def batches():
    return [
        ({"one": np.array([0, 0]), "uneven": np.array(ids)}, np.zeros(2, np.float32))
        for ids in ([3, 4], [4, 6], [0, 4], [3, 3])
    ]


@pytest.mark.slow
@pytest.mark.parametrize("kernels", [[], TASKS, TASKS[:2]], ids=["none", "native", "one server"])
def test_a_chief_alone_trains_as_one_process_does(kernels, native_library, tmp_path):
    """Uses two servers, a table with fewer rows than servers, and a table of odd size."""
    # kernels: the tasks that load native kernels. Tables use them only if all tasks have them.
    logs, addresses = run(tmp_path / "cluster", kernels)
    for job, index in TASKS[1:]:
        serves = f"Parameter server {index} serves tables by native kernels."
        assert (serves in logs[job, index]) == ((job, index) in kernels)
    native = kernels == TASKS
    on_servers = "Tables are looked up and updated on their parameter servers, by native kernels."
    assert (on_servers in logs["chief", 0]) == native
    if kernels == TASKS[:2]:
        said = f"parameter server 1 ({addresses['ps'][1]}) cannot use them: it has not loaded them"
        assert f"Tables use TensorFlow's ops, without native kernels: {said}" in logs["chief", 0]
        said = "serves tables by TensorFlow's ops, without native kernels: ESTIMATOR_EMB_NATIVE is"
        assert f"Parameter server 1 {said} 0." in logs["ps", 1]
    meta = (tmp_path / "cluster" / "model.ckpt-4.meta").read_bytes()
    nodes = tf.compat.v1.MetaGraphDef.FromString(meta).graph_def.node
    # With pipelining, a lookup runs a step ahead. Its results wait on the chief, not on a server.
    kept = {node.device for node in nodes if node.op in ("Stage", "Unstage")}
    assert kept == {"/job:chief/task:0"}
    make(tmp_path / "process").train(harness.input_fn_of(batches()), steps=4)
    got, want = (harness.saved(tmp_path / name, 4) for name in ("cluster", "process"))
    assert got["uneven"].shape == (7, 2)
    harness.assert_same(got, want, 1e-7, 1e-6)
