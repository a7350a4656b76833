"""If a GPU is visible, tables and their ops stay on the CPU.

The tests run without a GPU and check the devices that the graph requests.
"""

import forms
import harness
import numpy as np
import pytest
import tensorflow as tf
from host_engine import on_both_kernels

import estimator_emb as ee
from estimator_emb.engine.tables import placement, storage
from estimator_emb.spec.resolved import Table

CPU = "/device:CPU:0"
OF_TABLES = {"matrix": "t", "sparse": "t", "weighted": "u", "sequence": "u"}
"""Form of ids -> its table."""


@pytest.fixture
def beside_gpu(monkeypatch):
    """Makes the package see a GPU."""
    monkeypatch.setattr(placement, "beside_gpu", lambda: True)


def estimator_of(model_dir, use_tpu=False, **config):
    tables = {name: ee.TableConfig(11, 2, tf.compat.v1.ones_initializer()) for name in "tu"}
    spec = ee.EmbeddingConfigSpec(
        feature_to_config_dict={form: forms.feature(form, t) for form, t in OF_TABLES.items()},
        table_to_config_dict=tables,
        optimization_parameters=ee.AdamParameters(0.1),
        pipeline_execution_with_tensor_core=config.pop("pipelined", False),
    )

    def model_fn(features, labels, mode, params):
        together = tf.concat([features[key] for key in ("matrix", "sparse", "weighted")], axis=1)
        together += tf.reduce_sum(features["sequence"])
        output = tf.compat.v1.layers.dense(together, 1, name="model")
        if mode == ee.ModeKeys.PREDICT:
            return ee.TPUEstimatorSpec(mode, predictions={"output": output})
        return harness.minimized(mode, tf.reduce_mean(output), 0.1)

    tpu = {"iterations_per_loop": 2, "bad_ids": config.pop("bad_ids", "error")}
    how = {"device": "host", "run": harness.SILENT | config, "tpu": tpu, "use_tpu": use_tpu}
    return harness.estimator(model_fn, spec, model_dir, **how)


BATCH = {**forms.IDS, **forms.WEIGHTS}, np.zeros([forms.SAMPLES, 1], np.float32)


def built(estimator, mode):
    """Returns the ops of a step."""
    with tf.Graph().as_default() as graph, tf.compat.v1.device(estimator.config.device_fn):
        tf.compat.v1.train.create_global_step()
        dataset = harness.dataset([BATCH])
        features, labels = tf.compat.v1.data.make_one_shot_iterator(dataset).get_next()
        estimator._call_model_fn(features, labels, mode, estimator.config)
        return graph.get_operations()


@pytest.mark.fast(1)
@on_both_kernels
@pytest.mark.parametrize("options", [{}, {"pipelined": True, "bad_ids": "drop"}], ids=str)
@pytest.mark.parametrize("mode", ["train", *(harness.slow(one) for one in ("eval", "infer"))])
def test_tables_stay_on_the_cpu(mode, options, beside_gpu, tmp_path):
    """All ops of tables ask for the CPU. The model's ask for no device, so they may use the GPU."""
    ops = built(estimator_of(tmp_path, save_summary_steps=9, **options), mode)
    scopes = ("embedding_lookup", "embedding_update", "check_ids")
    of_tables = [op for op in ops if op.name.partition("/")[0] in (*"tu", *scopes)]
    variables = [op.name for op in of_tables if op.type == "VarHandleOp"]
    slots = ["", "/Adam/m", "/Adam/v"] if mode == ee.ModeKeys.TRAIN else [""]
    assert sorted(variables) == [table + slot for table in "tu" for slot in slots]
    updates = {op.type for op in of_tables} & {"HostTablesUpdate", "ResourceScatterUpdate"}
    assert bool(updates) == (mode == ee.ModeKeys.TRAIN)
    # Ops of initial values ask to be on the device of their variable instead.
    beside = {f"loc:@{name}".encode() for name in variables}
    placed = {op.name: op.device for op in of_tables if not beside & set(op.colocation_groups())}
    assert {name: device for name, device in placed.items() if device != CPU} == {}
    # With pipelining, the results of a lookup wait for the next step in a staging area.
    stages = {op.device for op in ops if "Stage" in op.type or "stage" in op.type}
    pipelined = options.get("pipelined") and mode == ee.ModeKeys.TRAIN
    assert stages == ({CPU} if pipelined else set())
    model = [op for op in ops if op.name.startswith("model")]
    assert {op.device for op in model} == {""}
    assert {op.type for op in model} >= {"VarHandleOp", "MatMul"}


def test_without_a_gpu_nothing_is_placed(tmp_path):
    ops = built(estimator_of(tmp_path), ee.ModeKeys.TRAIN)
    assert {op.device for op in ops if op.name.startswith(("t/", "u/", "embedding_"))} == {""}


@on_both_kernels
@pytest.mark.parametrize("use_tpu", [False, harness.slow(True)])
def test_tables_beside_a_gpu_train_on_the_cpu_and_log_it(use_tpu, beside_gpu, tmp_path, said):
    estimator_of(tmp_path, use_tpu).train(harness.input_fn_of([BATCH] * 2), steps=2)
    where = [line for line in said() if line.startswith("Embedding tables train ")]
    expected = "Embedding tables train on the host, on its CPU beside a GPU"
    assert [line.partition(":")[0] for line in where] == [expected]
    assert np.any(harness.saved(tmp_path, 2)["t"] != 1)


def test_initial_values_are_placed_with_their_table(beside_gpu):
    """On another device, they would fail: the session does not allow soft placement."""

    def place(op):
        return "/device:CPU:1" if op.type == "VarHandleOp" else op.device

    config = tf.compat.v1.ConfigProto(device_count={"CPU": 2}, allow_soft_placement=False)
    table_config = ee.TableConfig(9, 2, tf.compat.v1.ones_initializer())
    table = Table("t", table_config, (), optimizer=ee.AdagradParameters(0.1))
    with tf.Graph().as_default(), tf.compat.v1.device(place):
        with placement.on_cpu():
            (shard,) = storage.create(table, "t", False)
        with tf.compat.v1.Session(config=config) as session:
            session.run(tf.compat.v1.global_variables_initializer())
            assert session.run(shard.weights).tolist() == np.ones([9, 2]).tolist()
        assert shard.weights.device == "/device:CPU:1"


def test_log_names_the_device_that_the_program_chose(native, beside_gpu, tmp_path, said):
    estimator = estimator_of(tmp_path, device_fn=lambda op: "/device:GPU:0")
    built(estimator, ee.ModeKeys.TRAIN)
    assert [line for line in said() if "native" in line] == [
        "Tables use TensorFlow's ops, without native kernels: the program places table t on "
        "/device:GPU:0; leave it on the CPU, the default, to use them."
    ]
