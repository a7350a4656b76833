"""The hosts of an emulated TPU: what a program sees of them, and how it trains there.

The reference for input_fn is tensorflow-estimator itself on a TPU that is only described.
"""

import itertools
import re

import emulated_program
import harness
import numpy as np
import pytest
import tensorflow as tf
import tpu_described

import estimator_emb as ee
from estimator_emb.backends.emulated import topology
from estimator_emb.catalog import slices
from estimator_emb.engine.alone import Alone
from estimator_emb.spec import options

v1 = tf.compat.v1
PIPELINES = ee.InputPipelineConfig


def seen_by(inputs):
    """Returns an input_fn that records each call's context in `inputs`, and a model_fn for it."""

    def input_fn(params):
        context = params["context"]
        _, index, calls, replicas = context.current_input_fn_deployment()
        divided = context._internal_ctx.model_parallelism_enabled
        each = () if divided else range(context.num_replicas)
        seen = {
            "batch_size": params["batch_size"],
            "deployment": (index, calls, replicas),
            "hosts": (context.current_host, context.num_hosts),
            "replicas": context.num_replicas,
            "per_host": None if divided else context.num_of_replicas_per_host,
            "ordinals": [context.device_for_replica(i)[1] for i in each],
        }
        inputs.append(seen)
        # Each feature is the number of the host that feeds it.
        x = tf.fill([params["batch_size"]], float(context.current_host))
        if context._internal_ctx.is_input_sharded_per_core():
            return x, None
        return tf.data.Dataset.from_tensors(x).repeat()

    def model_fn(features, labels, mode, params):
        inputs.append({"model": (features.shape.as_list(), params["batch_size"])})
        w = v1.get_variable("w", initializer=0.0)
        loss = tf.reduce_sum(features) * w  # The gradient of w is the sum of a core's features.
        if params["context"]._internal_ctx.model_parallelism_enabled:
            made = params["context"].device_assignment
            cores = made.num_replicas, made.num_cores_per_replica, made.core_assignment.shape
            inputs[-1]["cores"] = cores
            with tf.device(v1.tpu.core(1)):
                loss = tf.identity(loss)
        metrics = (lambda features: {"mean": v1.metrics.mean(features)}, [features])
        return harness.minimized(mode, loss, predictions={"x": features}, eval_metrics=metrics)

    return input_fn, model_fn


def config(tmp_path, pipeline, **kwargs):
    tpu = ee.TPUConfig(2, device="host", per_host_input_for_training=pipeline, **kwargs)
    run = {**harness.SILENT, "session_config": v1.ConfigProto(allow_soft_placement=False)}
    return ee.RunConfig(tpu, model_dir=str(tmp_path / "emulated"), **run)


def emulated(model_fn, config, batch=32):
    return harness.configured(model_fn, None, config, batch)


def check_seen_as_on_a_tpu(emulating, hosts, described, tmp_path, monkeypatch):
    """Compares what an emulated TPU and a described TPU saw. Returns the first, and what it saw."""
    here, there = [], []
    input_fn, model_fn = seen_by(here)
    made = emulated(model_fn, emulating)
    made.train(input_fn, steps=1)
    monkeypatch.setattr(tpu_described, "CORES_PER_HOST", 8)
    input_fn, model_fn = seen_by(there)
    where = tmp_path / "described"
    tpu = tpu_described.estimator(model_fn, None, where, hosts=hosts, batch=32, **described)
    tpu_described.train(tpu, input_fn)
    assert here == there
    return made, here


@pytest.mark.fast(1)
@pytest.mark.parametrize("hosts", [harness.slow(1), 2])
@pytest.mark.parametrize("pipeline", ["PER_SHARD_V1", "PER_HOST_V1", "PER_HOST_V2", "BROADCAST"])
def test_input_fn_sees_what_it_sees_on_a_tpu(pipeline, hosts, tmp_path, monkeypatch):
    value = getattr(PIPELINES, pipeline)
    described = {"tpu_config": ee.TPUConfig(2, per_host_input_for_training=value)}
    emulating = config(tmp_path, value, num_shards=8 * hosts)
    made, here = check_seen_as_on_a_tpu(emulating, hosts, described, tmp_path, monkeypatch)
    each = 8 if pipeline == "PER_SHARD_V1" else 1
    fed = 1 if pipeline == "BROADCAST" else hosts
    assert [one["hosts"] for one in here[:-1]] == [
        (host, hosts) for host in range(fed) for _ in range(each)
    ]
    # The mean of 16 cores' gradients, if host 1 feeds 8 of them with two samples of 1 each.
    assert made.get_variable_value("w") == (-8 * 2 * 1 / 16 if fed == 2 else 0)


def test_per_shard_v1_evaluation_calls_input_fn_once_per_host(tmp_path):
    inputs = []
    input_fn, model_fn = seen_by(inputs)
    made = emulated(model_fn, config(tmp_path, PIPELINES.PER_SHARD_V1, num_shards=4))
    made.evaluate(input_fn, steps=1)
    (of_input, of_model) = inputs
    assert (of_input["batch_size"], of_input["deployment"]) == (32, (0, 1, 4))
    assert of_model == {"model": ([8], 8)}


@pytest.mark.fast(1)
@pytest.mark.parametrize(
    # each: the cores of a replica. hosts: with 8 cores each.
    ("replicas", "each", "hosts"),
    [(2, 16, 4), (8, 2, 2), (4, 4, 2), (4, 8, 4)],
)
def test_a_model_over_several_cores_on_several_hosts(replicas, each, hosts, tmp_path, monkeypatch):
    """The right hosts call input_fn, even if a replica spans two hosts: then one of the two."""
    tpu = {"num_shards": replicas, "num_cores_per_replica": each}
    described = {
        "topology": topology.emulated(topology.slice_with_cores(replicas * each, "")),
        "tpu_config": tpu_described.per_core_input(**tpu),
    }
    emulating = config(tmp_path, PIPELINES.PER_HOST_V2, **tpu)
    made, here = check_seen_as_on_a_tpu(emulating, hosts, described, tmp_path, monkeypatch)
    fed = [one["hosts"][0] for one in here[:-1]]
    assert sorted(fed) == ([0, 1] if hosts == 2 else [0, 2] if each == 16 else [0, 1, 2, 3])
    # A replica sums 32 / replicas features. The gradient is the mean over replicas.
    assert made.get_variable_value("w") == -np.mean(fed) * 32 / replicas


@pytest.mark.parametrize(
    ("name", "hosts", "each", "mesh"),
    [
        ("v2-8", 1, 8, [2, 2, 1, 2]),
        ("v2-512", 64, 8, [16, 16, 1, 2]),
        ("v3-32", 4, 8, [4, 4, 1, 2]),
        ("v3-2048", 256, 8, [32, 32, 1, 2]),
        ("v4-8", 1, 4, [2, 2, 1, 1]),
        ("v4-32", 4, 4, [2, 2, 4, 1]),
    ],
)
def test_topology_has_the_hosts_and_cores_of_its_slice(name, hosts, each, mesh, monkeypatch):
    """mesh: chips along x, y and z, and cores of a chip."""
    monkeypatch.setenv("ESTIMATOR_EMB_TOPOLOGY", name)
    shape = topology.emulated_slice()
    assert (shape.hosts, shape.cores_per_host, shape.cores) == (hosts, each, hosts * each)
    made = topology.emulated(shape)
    assert (made.num_tasks, made.num_tpus_per_task) == (hosts, each)
    assert made.mesh_shape.tolist() == mesh
    assert made.missing_devices.size == 0


def test_a_host_feeds_its_own_cores_and_evaluates_alone(tmp_path):
    """This process is the second of two hosts with 8 cores each."""
    second = Alone()
    second.count, second.own = 2, lambda of_both: of_both[len(of_both) // 2 :]
    sizes = {"train_batch_size": 32, "eval_batch_size": 24, "predict_batch_size": None}
    shape = config(tmp_path, "PER_HOST_V2"), slices.slice_of(16)
    context = topology.EmulatedContext(*shape, second, eval_on_tpu=True, **sizes)
    for mode, expected in {"train": (16, range(8, 16), 32 / 2), "eval": (8, range(8), 24)}.items():
        with context.with_mode(mode) as of_mode:
            assert (of_mode.num_replicas, of_mode.own_cores, of_mode.own_batch_size) == expected


def test_topology_has_the_requested_number_of_cores():
    assert topology.emulated_slice().cores == 1  # By default.
    for cores, hosts in ((1, 1), (3, 1), (8, 1), (24, 3), (128, 16)):
        made = topology.emulated(topology.slice_with_cores(cores, ""))
        assert (made.num_tasks, made.num_tasks * made.num_tpus_per_task) == (hosts, cores)
        assert made.missing_devices.size == 0


@pytest.mark.parametrize(
    ("name", "value", "hosts", "cores"),
    # v4-16 has two hosts with four chips each, and one device per chip.
    [("TOPOLOGY", "v4-16", 2, 8), ("SHARDS", "2", 1, 2), ("SHARDS", "1", 1, 1)],
)
def test_environment_variables_set_the_number_of_cores(
    name, value, hosts, cores, monkeypatch, tmp_path, caplog, said
):
    monkeypatch.setenv(f"ESTIMATOR_EMB_{name}", value)
    input_fn, model_fn = seen_by(inputs := [])
    made = emulated(model_fn, config(tmp_path, PIPELINES.PER_HOST_V1))
    made.train(input_fn, steps=1)
    assert made.config.tpu_config.num_shards == (2 if value == "2" else None)
    assert [(one["deployment"], one["hosts"], one["batch_size"]) for one in inputs[:-1]] == [
        ((host, hosts, cores // hosts), (host, hosts), 32 // hosts) for host in range(hosts)
    ]
    assert inputs[-1] == {"model": ([32 // cores], 32 // cores)}
    line = f"A TPU is emulated on the host, with {cores} cores on {hosts} hosts."
    assert (line in said()) == (hosts > 1)
    assert "num_shards" not in caplog.text  # tensorflow-estimator warns about num_shards=1.


@pytest.mark.parametrize(
    ("environment", "tpu", "phrase"),
    [
        ({}, {"num_shards": 12}, "or a multiple of 8, for several hosts; got 12 cores."),
        ({}, {"num_shards": 6, "num_cores_per_replica": 2}, "it, times num_cores_per_replica=2, "),
        ({"SHARDS": "20"}, {"num_shards": 8}, "ESTIMATOR_EMB_SHARDS must be at most 8, which"),
        ({"SHARDS": "1000000000"}, {}, "must be at most 2,048, as many as the largest TPU; got 1"),
        ({"TOPOLOGY": "v5e-16"}, {}, "TOPOLOGY must be one of v2-8, v2-32, v2-128, v2-256, v2-512"),
        ({"TOPOLOGY": "v3-32", "SHARDS": "32"}, {}, "got 'v3-32' and '32'. Set one of them."),
    ],
)
def test_refuses_invalid_numbers_of_cores_and_slices(
    environment, tpu, phrase, tmp_path, monkeypatch
):
    for name, value in environment.items():
        monkeypatch.setenv(f"ESTIMATOR_EMB_{name}", value)
    with pytest.raises(ValueError, match=re.escape(phrase)):
        emulated(seen_by([])[1], config(tmp_path, PIPELINES.PER_HOST_V2, **tpu))


def test_refuses_num_shards_that_differs_from_the_slice(tmp_path, monkeypatch, assert_recorded):
    monkeypatch.setenv("ESTIMATOR_EMB_TOPOLOGY", "v3-32")
    input_fn, model_fn = seen_by([])
    made = emulated(model_fn, config(tmp_path, PIPELINES.PER_HOST_V2, num_shards=8))
    refused = harness.refusal(ValueError, made.train, input_fn, steps=1)
    assert_recorded(refused)  # Stock's, as in messages.json: "should be (32), got (8)".


def test_evaluation_and_prediction_on_several_hosts(tmp_path, monkeypatch, assert_recorded):
    """tensorflow-estimator allows PER_HOST_V2 for evaluation, and BROADCAST for both."""
    monkeypatch.setenv("ESTIMATOR_EMB_TOPOLOGY", "v4-16")  # Two hosts.

    def made(pipeline):
        return emulated(seen_by([])[1], config(tmp_path, pipeline))

    input_fn = seen_by([])[0]
    by_core = made(PIPELINES.PER_HOST_V2)
    # Half of the samples come from host 0, and half from host 1.
    assert by_core.evaluate(input_fn, steps=1)["mean"] == 0.5
    by_host = made(PIPELINES.PER_HOST_V1)  # messages.json has stock's two refusals:
    assert_recorded(harness.refusal(ValueError, by_host.evaluate, input_fn, steps=1))
    assert_recorded(harness.refusal(ValueError, lambda: next(by_core.predict(input_fn))))
    to_all = made(PIPELINES.BROADCAST)
    assert to_all.evaluate(input_fn, steps=1)["mean"] == 0  # All samples come from host 0.
    assert len(list(itertools.islice(to_all.predict(input_fn), 40))) == 40  # Beyond a batch of 32.


@pytest.mark.slow
@pytest.mark.parametrize("pipeline", [PIPELINES.PER_HOST_V1, PIPELINES.PER_HOST_V2])
def test_tables_train_as_on_one_host(pipeline, tmp_path, monkeypatch):
    """Compares eight cores on two hosts (v4-16) and on one host, with the same batches."""
    batch, steps = 16, 2

    def train(model_dir, slice_of_tpu, hosts):
        def input_fn(params):
            size, host = params["batch_size"], params["context"].current_host
            assert params["context"].num_hosts == hosts
            share = batch // hosts
            of_host = emulated_program.examples(batch).skip(share * host).take(share)
            return of_host.repeat().batch(size, drop_remainder=True)

        monkeypatch.setenv("ESTIMATOR_EMB_TOPOLOGY", slice_of_tpu)
        program = emulated_program.model_fn, model_dir, None, pipeline, emulated_program.SPEC
        emulated_program.make(*program, batch=batch).train(input_fn, steps=steps)
        return harness.saved(model_dir, steps)

    two, one = train(tmp_path / "two", "v4-16", 2), train(tmp_path / "one", "v3-8", 1)
    harness.assert_same(two, one, 1e-6, 1e-6)


def test_refuses_tables_with_model_parallelism_on_several_hosts(tmp_path, assert_recorded):
    """8 replicas of two cores need two hosts. The emulation supports such tables on one host."""
    program = emulated_program.model_fn, tmp_path, 8, PIPELINES.PER_HOST_V2, emulated_program.SPEC
    refused = options.CannotEmulate, emulated_program.make
    message = harness.refusal(*refused, *program, tpu={"num_cores_per_replica": 2})
    assert_recorded(message)  # As in messages.json: it names the option and the number of hosts.


def test_refuses_hosts_with_different_features(tmp_path, assert_recorded):
    def input_fn(params):
        name = "x" if params["context"].current_host == 0 else "y"
        return tf.data.Dataset.from_tensors({name: tf.zeros([params["batch_size"]])}).repeat()

    made = emulated(seen_by([])[1], config(tmp_path, PIPELINES.PER_HOST_V1, num_shards=16))
    refused = harness.refusal(ValueError, made.train, input_fn, steps=1)
    assert_recorded(refused)  # As in messages.json: "got features['x'] for core 0, and ['y'] ...".
