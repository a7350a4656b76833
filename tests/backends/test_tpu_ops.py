"""Ops that run on a TPU but not on a CPU: core numbers and replicated inputs are emulated."""

import re

import harness
import numpy as np
import pytest
import tensorflow as tf
from tensorflow.compiler.tf2xla.ops import gen_xla_ops
from tensorflow.compiler.tf2xla.python import xla
from tensorflow.python.ops import gen_tpu_ops
from tensorflow.python.saved_model import loader_impl
from tensorflow.python.tpu.ops import tpu_ops

import estimator_emb as ee
from estimator_emb.engine.cores import Cores

v1 = tf.compat.v1
BATCH = 16
RATE = 0.5
X = harness.normal(7, BATCH, 3)
W = np.array([[0.5, -0.25], [0.125, 0.75], [-0.5, 0.25]], np.float32)
input_fn = harness.endless(X)


def gathered(tensor, cores):
    """Gathers a tensor from all cores, as SimCLR does."""
    placed = tf.scatter_nd([[xla.replica_id()]], [tensor], [cores, *tensor.shape])
    return tf.reshape(tpu_ops.cross_replica_sum(placed), [-1, *tensor.shape[1:]])


def contrastive(features, labels, mode, params):
    """Trains each sample to match itself among the samples of all cores."""
    cores, size = params["context"].num_replicas, features.shape[0]
    hidden = features @ v1.get_variable("w", initializer=W)
    logits = tf.matmul(hidden, gathered(hidden, cores), transpose_b=True)
    own = tf.range(size) + xla.replica_id() * size
    losses = tf.nn.softmax_cross_entropy_with_logits(tf.one_hot(own, size * cores), logits)
    loss = tf.reduce_mean(losses)
    if mode == "infer":
        return ee.TPUEstimatorSpec(mode, predictions={"own": own, "loss": losses})
    metrics = (lambda losses: {"mean": v1.metrics.mean(losses)}, [losses])
    return harness.minimized(mode, loss, RATE, eval_metrics=metrics)


def estimator(model_fn, model_dir, cores=1, use_tpu=True):
    fields = BATCH, "host", cores, harness.SILENT
    return harness.estimator(model_fn, None, model_dir, *fields, use_tpu=use_tpu)


def numpy_losses(w):
    logits = (X @ w) @ (X @ w).T
    likely = np.exp(logits - logits.max(1, keepdims=True))
    likely /= likely.sum(1, keepdims=True)
    return -np.log(np.diag(likely)), likely


def trained_by_numpy(steps):
    w = W.astype(np.float64)
    for _ in range(steps):
        _, likely = numpy_losses(w)
        wrong = (likely - np.eye(BATCH)) / BATCH
        w = w - RATE * X.T @ ((wrong + wrong.T) @ (X @ w))
    return w


@pytest.mark.parametrize("cores", [2, harness.slow(8)])
def test_a_model_that_gathers_over_cores_trains_like_numpy(cores, tmp_path):
    made = estimator(contrastive, tmp_path, cores)
    made.train(input_fn, steps=3)
    w = trained_by_numpy(3)
    np.testing.assert_allclose(made.get_variable_value("w"), w, rtol=1e-4, atol=1e-6)
    losses, _ = numpy_losses(w)
    metrics = made.evaluate(input_fn, steps=1)
    np.testing.assert_allclose(metrics["mean"], losses.mean(), rtol=1e-4)
    predicted = list(made.predict(lambda params: input_fn(params).take(1)))
    assert [one["own"] for one in predicted] == list(range(BATCH))
    np.testing.assert_allclose([one["loss"] for one in predicted], losses, rtol=1e-3)


NUMBERS = {
    "xla": lambda _: xla.replica_id(),
    "gen_xla_ops": lambda _: gen_xla_ops.xla_replica_id(),
    "tf.function": lambda _: tf.function(lambda: xla.replica_id() + 0)(),
    "tf.cond": lambda _: tf.cond(v1.placeholder_with_default(True, []), xla.replica_id, lambda: -1),
    "tf.while_loop": lambda _: tf.while_loop(
        lambda step, _: step < 2, lambda step, total: (step + 1, total + xla.replica_id()), (0, 0)
    )[1] // 2,
    "tf.map_fn": lambda _: tf.map_fn(lambda _: xla.replica_id(), tf.constant([0, 0]))[1],
}  # fmt: skip
INPUTS = {
    "tpu_ops": lambda values: tpu_ops.tpu_replicated_input(values, name="pnum_constants"),
    "gen_tpu_ops": lambda values: gen_tpu_ops.tpu_replicated_input(values),
    "tensors": lambda values: tpu_ops.tpu_replicated_input([*map(tf.constant, values)]),
    "mirrored": lambda values: tpu_ops.tpu_replicated_input(values, is_mirrored_variable=True),
    "input in tf.function": lambda values: tf.function(
        lambda: tpu_ops.tpu_replicated_input([*values]) + 0
    )(),
    "input in tf.cond": lambda values: tf.cond(
        v1.placeholder_with_default(True, []),
        lambda: tpu_ops.tpu_replicated_input([*values]),
        lambda: -1,
    ),
}  # fmt: skip


@pytest.mark.fast(10)
@pytest.mark.parametrize("way", NUMBERS | INPUTS)
@pytest.mark.parametrize("count", [1, 3])
def test_a_core_gets_its_number_or_its_input(count, way, control_flow):
    inputs = [7 * core + 2 for core in range(count)]
    with tf.Graph().as_default() as graph, v1.Session() as session:
        cores = Cores(count)
        with cores.running(numbered=True):
            mine = (NUMBERS | INPUTS)[way](inputs)
        assert mine.dtype == tf.int32 and mine.shape == []
        (of_cores,) = cores.replicate([mine])
        assert session.run(of_cores) == (inputs if way in INPUTS else [*range(count)])
        of_tpu = {"XlaReplicaId", "TPUReplicatedInput"}  # A CPU cannot run them.
        assert not {op.type for op in graph.get_operations()} & of_tpu


def test_replicated_input_refuses_other_inputs(assert_recorded):
    """It takes one tensor for each core, in the body of model_fn: see messages.json."""
    with tf.Graph().as_default(), Cores(2).running(numbered=True):
        given = tpu_ops.tpu_replicated_input
        for wrong in ([1], [1, 2, 3], []):
            assert harness.refusal(ValueError, given, wrong).endswith(f"; got {len(wrong)}.")
        assert_recorded(harness.refusal(ValueError, given, [1, 2], is_packed=True))
        handles = [v1.get_variable(name, [], use_resource=True).handle for name in "ab"]
        assert_recorded(harness.refusal(NotImplementedError, given, handles))
        with Cores().running(shard_context=False, numbered=True):  # A single core shares nothing.
            assert given(handles[:1]).dtype == tf.resource
        tensors = [tf.constant(1), given([1, 2])]
        within = tf.function(lambda: given(tensors), autograph=False)
        assert_recorded(harness.refusal(NotImplementedError, within))


def simple(loss=lambda loss: loss, **fields):
    def model_fn(features, labels, mode, params):
        given = loss(tf.reduce_mean(features) * v1.get_variable("w", initializer=1.0))
        more = {name: make(given) for name, make in fields.items()}
        return harness.minimized(mode, given, RATE, predictions={"x": features}, **more)

    return model_fn


def plus_number(loss):
    return loss + tf.cast(xla.replica_id(), tf.float32)


NUMBER = " is xla.replica_id(), which has no number here."
LINE = f"({__file__}, line {plus_number.__code__.co_firstlineno + 1}, in plus_number: return "


def metrics_of_number(x):
    return {"m": v1.metrics.mean(plus_number(x))}


@pytest.mark.parametrize("use_tpu, cores", [(True, 2), (False, 1)])
def test_replica_id_is_refused_on_the_host(use_tpu, cores, tmp_path):
    """The functions of host_call and eval_metrics, and input_fn, run on the host, not on a core."""
    in_host_call = simple(host_call=lambda loss: (plus_number, [loss[None]]))
    in_metrics = simple(eval_metrics=lambda loss: (metrics_of_number, [loss[None]]))
    made = estimator(in_host_call, tmp_path / "host_call", cores, use_tpu)
    for_host_call = harness.refusal(ValueError, made.train, input_fn, steps=1)
    made = estimator(in_metrics, tmp_path / "eval_metrics", cores, use_tpu)
    for_metrics = harness.refusal(ValueError, made.evaluate, input_fn, steps=1)
    assert all(LINE in one and NUMBER in one for one in (for_host_call, for_metrics))
    made = estimator(simple(), tmp_path / "input_fn", cores, use_tpu)
    with pytest.raises(ValueError, match=rf"of function.*{re.escape(NUMBER)}"):
        made.train(lambda params: input_fn(params).map(plus_number), steps=1)


def receiver():
    x = v1.placeholder(tf.float32, [None, 3])
    return ee.export.TensorServingInputReceiver(x, {"x": x})


@pytest.mark.parametrize("mode", ["train", "evaluate", "predict", "export"])
def test_replica_id_is_refused_off_a_tpu(mode, tmp_path, assert_recorded):
    if mode == "export":  # It needs a checkpoint.
        estimator(simple(), tmp_path, use_tpu=False).train(input_fn, steps=1)
    made = estimator(simple(plus_number), tmp_path, use_tpu=False)
    calls = {
        "train": lambda: made.train(input_fn, steps=1),
        "evaluate": lambda: made.evaluate(input_fn, steps=1),
        "predict": lambda: next(made.predict(input_fn)),
        "export": lambda: made.export_saved_model(str(tmp_path / "export"), receiver),
    }
    message = harness.refusal(ValueError, calls[mode])
    assert message.startswith(f"Op 'XlaReplicaId' {LINE}") and NUMBER in message
    assert_recorded(message.replace(LINE, "(LINE: "))  # As in messages.json, for each mode.
    assert not list(tmp_path.glob("export/[0-9]*"))
    assert mode == "export" or not list(tmp_path.glob("model.ckpt*"))


@pytest.mark.fast(1)
@pytest.mark.parametrize("use_tpu", [False, True])
def test_an_export_may_contain_a_graph_for_tpus(use_tpu, tmp_path):
    """With use_tpu=False, both graphs are exported, the second with ops that no CPU runs."""

    def model_fn(features, labels, mode, params):
        out = features @ v1.get_variable("w", initializer=W)
        if mode == ee.ModeKeys.PREDICT:
            return harness.served(mode, out=out)
        return harness.minimized(mode, tf.reduce_mean(out), RATE)

    made = estimator(model_fn, tmp_path, use_tpu=use_tpu)
    made.train(input_fn, steps=1)
    exported = loader_impl.parse_saved_model(made.export_saved_model(f"{tmp_path}/ex", receiver))
    of_graphs = [sorted(graph.meta_info_def.tags) for graph in exported.meta_graphs]
    assert of_graphs == ([["serve"]] if use_tpu else [["serve"], ["serve", "tpu"]])
