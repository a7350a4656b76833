# SPDX-License-Identifier: Apache-2.0
"""`TPUConfig(tables='host')`: trained on a simulated TPU, beside the emulated one."""

import contextlib
import time

import harness
import numpy as np
import pytest
import tensorflow as tf
import tpu_described
import tpu_simulated
from tensorflow.python.ops import control_flow_util
from tensorflow_estimator.python.estimator.tpu import error_handling

import estimator_emb as ee
import feature_columns as fc
from estimator_emb.backends.tables_on_host import context
from estimator_emb.backends.tables_on_host.tables import HostedLookup, HostedTables, Turns

BATCH, STEPS, ROWS = 4, 6, 7
WORDS = "dense_features/words_weighted_by_shares_embedding/embedding_weights"
V1, V2 = ee.InputPipelineConfig.PER_HOST_V1, ee.InputPipelineConfig.PER_HOST_V2
RNG = np.random.default_rng(7)
LARGE, SMALL = (RNG.normal(size=[ROWS, size]).astype(np.float32) for size in (2, 3))
KERNEL = RNG.normal(size=[9, 1]).astype(np.float32)


def halving(step):
    return 1.0 / (1.0 + tf.cast(step, tf.float32))


def batch():
    def rows(longest):
        return [RNG.integers(0, ROWS, RNG.integers(0, longest + 1)) for _ in range(BATCH)]

    words = rows(4)
    shares = [RNG.uniform(0.5, 2.0, len(one)) for one in words]
    features = {
        "words": harness.sparse(words),
        "shares": harness.sparse(shares, np.float32),
        "history": harness.sparse(rows(3)),
        "item": RNG.integers(0, ROWS, BATCH),
        "age": RNG.normal(size=[BATCH, 1]).astype(np.float32),
    }
    return features, RNG.normal(size=[BATCH]).astype(np.float32)


DATA = [batch() for _ in range(STEPS)]


def cut(data, parts):
    """The batches of `data`, each as several of consecutive samples."""

    def piece(value, part):
        if not isinstance(value, tf.compat.v1.SparseTensorValue):
            return value[part * size : (part + 1) * size]
        inside = value.indices[:, 0] // size == part
        shape = np.array([size, value.dense_shape[1]])
        return tf.compat.v1.SparseTensorValue(
            value.indices[inside] - np.array([part * size, 0]), value.values[inside], shape
        )

    size = BATCH // parts
    return [
        ({key: piece(value, part) for key, value in features.items()}, piece(labels, part))
        for features, labels in data
        for part in range(parts)
    ]


def input_fn_of(data):
    """Ids of any number per sample, in batches of the size that the deployment asks for."""

    def input_fn(params):
        return harness.dataset(cut(data, BATCH // params["batch_size"]))

    return input_fn


def columns():
    words, history = (
        fc.weighted_categorical_column(
            fc.categorical_column_with_identity("words", ROWS), "shares"
        ),
        fc.sequence_categorical_column_with_identity("history", ROWS),
    )
    item = fc.categorical_column_with_identity("item", ROWS)
    return [
        fc.embedding_column(
            words, 3, combiner="mean", initializer=harness.initializer(SMALL),
            learning_rate_fn=halving,
        ),
        *fc.shared_embedding_columns(
            [item, history], 2, combiner="sum", initializer=harness.initializer(LARGE),
            max_sequence_lengths=[0, 2],
        ),
    ]  # fmt: skip


def spec_of(parameters=None, made=None):
    return ee.EmbeddingConfigSpec(
        feature_columns=made or columns(),
        optimization_parameters=parameters or ee.AdamParameters(0.1, epsilon=1e-3),
        clipping_limit=0.7,
        experimental_gradient_multiplier_fn=lambda step: 2.0 * halving(step),
    )


def model_fn_of(made, seen=None, summed=True):
    """A linear model with a host_call, which writes down the step and the activations."""

    def model_fn(features, labels, mode, params):
        flat = fc.DenseFeatures([*made[:2], fc.numeric_column("age")])(features)
        sequence, lengths = fc.SequenceFeatures(made[2:])(features)
        inputs = [flat, tf.reduce_sum(sequence, 1), tf.cast(lengths, tf.float32)[:, None]]
        kernel = tf.compat.v1.get_variable("kernel", initializer=lambda: tf.constant(KERNEL))
        output = tf.matmul(tf.concat(inputs, 1), kernel)[:, 0]
        if mode == ee.ModeKeys.PREDICT:
            return ee.TPUEstimatorSpec(mode, predictions={"output": output})
        loss = tf.reduce_mean(tf.square(output - labels))
        if mode == ee.ModeKeys.EVAL:
            metrics = (lambda output: {"mean": tf.compat.v1.metrics.mean(output)}, [output])
            return ee.TPUEstimatorSpec(mode, loss=loss, eval_metrics=metrics)
        optimizer = tf.compat.v1.train.AdagradOptimizer(0.1)
        if summed:
            optimizer = tf.compat.v1.tpu.CrossShardOptimizer(optimizer)
        step = tf.compat.v1.train.get_global_step()
        tensors = {"step": tf.reshape(tf.identity(step), [1]), "flat": tf.identity(flat)}
        with tf.control_dependencies(list(tensors.values())):
            train_op = optimizer.minimize(loss, step)

        def write_down(step, flat):
            def write(step, flat):
                if seen is not None:
                    seen.append((int(step[0]), flat.copy()))
                return np.int64(0)

            return [tf.compat.v1.py_func(write, [step, flat], tf.int64)]

        return ee.TPUEstimatorSpec(
            mode, loss=loss, train_op=train_op, host_call=(write_down, tensors)
        )

    return model_fn


def estimator(model_dir, cores=1, loop=1, deployment=V2, where=None, spec=None, seen=None, **more):
    """On the simulated TPU with its tables on the host, unless `where` says otherwise."""
    made = columns()
    where = where or {"tables": "host"}
    return harness.configured(
        more.pop("model_fn", None) or model_fn_of(made, seen),
        spec or spec_of(made=made),
        ee.RunConfig(
            model_dir=str(model_dir),
            save_summary_steps=None,
            log_step_count_steps=None,
            save_checkpoints_steps=loop,
            keep_checkpoint_max=None,
            tpu_config=ee.TPUConfig(
                loop,
                num_shards=cores if cores > 1 else None,
                per_host_input_for_training=deployment,
                **where,
            ),
        ),
        BATCH,
        **more,
    )


EMULATED = {"device": "host"}


def check_same(got_dir, expected_dir, steps):
    for step in steps:
        got, expected = harness.saved(got_dir, step), harness.saved(expected_dir, step)
        assert set(got) == set(expected)
        for name, value in expected.items():
            np.testing.assert_allclose(got[name], value, 1e-6, 1e-6, err_msg=f"{name} {step}")


@pytest.mark.slow
@pytest.mark.parametrize("cores, loop, deployment", [(1, 3, V1), (2, 1, V2)])
def test_trains_and_evaluates_as_emulated(cores, loop, deployment, tmp_path, monkeypatch):
    results, written = {}, {}
    for name, where in (("tpu", None), ("emulated", EMULATED)):
        seen = written[name] = []
        made = estimator(tmp_path / name, cores, loop, deployment, where, seen=seen)
        # The simulation of several cores has no loop of steps.
        steps = STEPS if cores == 1 else 1
        with tpu_simulated.running(cores, monkeypatch):
            for first in (0, 3):
                made.train(input_fn_of(DATA[first : first + 3]), max_steps=first + 3)
            results[name] = made.evaluate(input_fn_of(DATA), steps=steps)
    check_same(tmp_path / "tpu", tmp_path / "emulated", range(loop, STEPS + 1, loop))
    names = harness.saved(tmp_path / "tpu", STEPS)
    assert len(names) == 3 + 2 * 3  # step, kernel and its slot; two tables with two slots
    assert f"{WORDS}/Adam/v" in names
    assert set(results["tpu"]) == {"loss", "mean", "global_step"}
    for key, value in results["emulated"].items():
        np.testing.assert_allclose(results["tpu"][key], value, rtol=1e-5)
    # The program's own host_call, in each step.
    assert [step for step, _ in written["tpu"]] == list(range(STEPS))
    if loop == 1:
        for (_, got), (_, expected) in zip(*written.values(), strict=True):
            np.testing.assert_allclose(got, expected, rtol=1e-5, atol=1e-6)


def train_on_simulated(monkeypatch, model_dir, data=DATA, cores=1, max_steps=None, **kwargs):
    with tpu_simulated.running(cores, monkeypatch):
        made = estimator(model_dir, cores, **kwargs)
        made.train(input_fn_of(data), max_steps=max_steps or len(data))
    return made


def check_as_emulated(tmp_path, **kwargs):
    """Trains three steps on the emulated TPU; compares those of the simulated one with them."""
    emulated = estimator(tmp_path / "emulated", where=EMULATED, **kwargs)
    emulated.train(input_fn_of(DATA[:3]), max_steps=3)
    check_same(tmp_path / "tpu", tmp_path / "emulated", [3])


@pytest.mark.slow
def test_updates_core_by_core(tmp_path, monkeypatch):
    parameters = ee.AdagradParameters(0.3, use_gradient_accumulation=False)
    made = columns()
    spec = ee.EmbeddingConfigSpec(feature_columns=made, optimization_parameters=parameters)
    kwargs = {"cores": 2, "deployment": V1, "spec": spec, "model_fn": model_fn_of(made)}
    train_on_simulated(monkeypatch, tmp_path / "tpu", DATA[:3], **kwargs)
    check_as_emulated(tmp_path, **kwargs)


@pytest.mark.slow
def test_loops_of_the_first_kind(tmp_path, monkeypatch):
    """What programs get that switch TensorFlow 2's control flow off."""
    monkeypatch.setattr(control_flow_util, "ENABLE_CONTROL_FLOW_V2", False)
    train_on_simulated(monkeypatch, tmp_path / "tpu", DATA[:3], loop=3)
    check_as_emulated(tmp_path, loop=3)


@pytest.mark.slow
def test_native_kernels(native, tmp_path, monkeypatch, caplog):
    caplog.set_level("INFO", "estimator_emb")
    train_on_simulated(monkeypatch, tmp_path / "tpu", DATA[:3], loop=3)
    assert "without native kernels" not in caplog.text
    monkeypatch.setenv("ESTIMATOR_EMB_NATIVE", "0")
    check_as_emulated(tmp_path, loop=3)


# The order of lookups and updates.


def slow_updates(monkeypatch):
    """Updates that take longer than anything else of a step."""
    update = HostedLookup.update

    def slow(self, received):
        def wait(gradient):
            time.sleep(0.6)
            return gradient

        first = tf.compat.v1.py_func(wait, [received[0]], tf.float32)
        first.set_shape(received[0].shape)
        return update(self, [first, *received[1:]])

    monkeypatch.setattr(HostedLookup, "update", slow)


def lookup_waits_for_nothing(monkeypatch):
    update = HostedLookup.update

    def without_token(self, received):
        with monkeypatch.context() as patch:
            patch.setattr(Turns, "give", lambda self: tf.no_op())
            return update(self, received)

    monkeypatch.setattr(HostedLookup, "update", without_token)
    monkeypatch.setattr(HostedTables, "lookup_waits_for", lambda self: [])


def step_waits_for_no_update(monkeypatch):
    monkeypatch.setattr(HostedLookup, "last_update", lambda self, loss: tf.no_op())


@pytest.mark.slow
@pytest.mark.parametrize("broken", [None, lookup_waits_for_nothing, step_waits_for_no_update])
def test_each_lookup_sees_the_update_before(broken, tmp_path, monkeypatch):
    """Updates are slow; what holds the order is left out in turn, and then it does not hold."""
    got, expected = [], []
    emulated = estimator(tmp_path / "emulated", where=EMULATED, seen=expected)
    emulated.train(input_fn_of(DATA[:3]), max_steps=3)
    slow_updates(monkeypatch)
    if broken:
        broken(monkeypatch)
    train_on_simulated(monkeypatch, tmp_path / "tpu", DATA[:3], loop=3, seen=got)
    right = [
        np.allclose(one, other, 1e-5, 1e-6)
        for (_, one), (_, other) in zip(got, expected, strict=True)
    ]
    assert right[0] and all(right) == (broken != lookup_waits_for_nothing)
    with pytest.raises(AssertionError) if broken else contextlib.nullcontext():
        check_same(tmp_path / "tpu", tmp_path / "emulated", [3])


def stopped_by(tmp_path, monkeypatch, data, **kwargs):
    """What stops a training in its third step, before the update."""
    # tensorflow-estimator waits for better errors of other threads.
    monkeypatch.setattr(error_handling.time, "sleep", lambda seconds: None)
    with pytest.raises(tf.errors.InvalidArgumentError) as caught:
        train_on_simulated(monkeypatch, tmp_path, data, **kwargs)
    assert tf.train.latest_checkpoint(str(tmp_path)).endswith("-2")
    return str(caught.value)


def test_a_bad_id_stops_training_before_its_update(tmp_path, monkeypatch):
    bad, labels = DATA[2]
    bad = ({**bad, "item": np.array([0, 1, ROWS, 2])}, labels)
    message = stopped_by(tmp_path, monkeypatch, [*DATA[:2], bad])
    assert "Feature item of table" in message
    assert f"id {ROWS} is outside [0, {ROWS})" in message


def test_a_wrong_multiplier_stops_training_before_its_update(tmp_path, monkeypatch):
    """The cores compute it, and the host finds it before the tables change."""

    def turning(step):
        return tf.gather(tf.constant([0.5, 0.5, float("nan")]), step)

    made = columns()
    spec = spec_of(made=made)._replace(experimental_gradient_multiplier_fn=turning)
    kwargs = {"spec": spec, "model_fn": model_fn_of(made)}
    line = turning.__code__.co_firstlineno
    assert (
        "EmbeddingConfigSpec: experimental_gradient_multiplier_fn turning "
        f"(test_tables_on_host.py, line {line}): its value in this step must be finite; got nan."
    ) in stopped_by(tmp_path, monkeypatch, DATA[:3], **kwargs)


# One checkpoint, wherever the tables are.


@pytest.mark.slow
def test_training_goes_on_elsewhere(tmp_path, monkeypatch):
    """From the host to the TPU and back, as if all had been on one."""
    for name in ("moved", "host"):
        on_host = estimator(tmp_path / name, use_tpu=False)
        on_host.train(input_fn_of(DATA[:2]), max_steps=2)
    on_host.train(input_fn_of(DATA[2:]), max_steps=STEPS)
    train_on_simulated(monkeypatch, tmp_path / "moved", DATA[2:4], max_steps=4)
    back = estimator(tmp_path / "moved", use_tpu=False)
    back.train(input_fn_of(DATA[4:]), max_steps=STEPS)
    check_same(tmp_path / "moved", tmp_path / "host", [2, 4, STEPS])


@pytest.mark.slow
def test_prediction_is_on_the_host(tmp_path, monkeypatch):
    contexts = []

    def its_input_fn(params):
        contexts.append(params["context"].num_hosts)
        return input_fn_of(DATA)(params)

    with tpu_simulated.running(1, monkeypatch):
        made = estimator(tmp_path)
        made.train(input_fn_of(DATA), max_steps=1)
        got = [one["output"] for one in made.predict(its_input_fn)]
        off = estimator(tmp_path, eval_on_tpu=False)
        on_cpu = off.evaluate(input_fn_of(DATA), steps=STEPS)
        on_tpu = made.evaluate(input_fn_of(DATA), steps=STEPS)
    on_host = estimator(tmp_path, use_tpu=False)
    expected = [one["output"] for one in on_host.predict(input_fn_of(DATA))]
    assert len(got) == STEPS * BATCH and contexts == [1]
    np.testing.assert_allclose(got, expected, rtol=1e-6)
    np.testing.assert_allclose(on_cpu["loss"], on_tpu["loss"], rtol=1e-5)


@pytest.mark.slow
def test_warm_start(tmp_path, monkeypatch):
    trained = estimator(tmp_path / "from", use_tpu=False)
    trained.train(input_fn_of(DATA), max_steps=STEPS)
    for name, where in (("tpu", None), ("emulated", EMULATED)):
        with tpu_simulated.running(1, monkeypatch):
            made = estimator(tmp_path / name, where=where, warm_start_from=str(tmp_path / "from"))
            made.train(input_fn_of(DATA), max_steps=1)
    check_same(tmp_path / "tpu", tmp_path / "emulated", [0, 1])
    before, after = harness.saved(tmp_path / "from", STEPS), harness.saved(tmp_path / "tpu", 0)
    np.testing.assert_array_equal(before[WORDS], after[WORDS])


# The whole graph on a described TPU, which has two cores.


def reached(how, tmp_path, summed=True, **kwargs):
    made = columns()
    tpu_config = ee.TPUConfig(5, tables="host")
    spec = spec_of(made=made)
    model_fn = model_fn_of(made, summed=summed)
    on_tpu = tpu_described.estimator(
        model_fn, spec, tmp_path, tpu_config=tpu_config, batch=BATCH, **kwargs
    )
    return how(on_tpu, input_fn_of(DATA))


def in_functions(graph, part):
    """The nodes of functions whose type contains `part`."""
    functions = graph.as_graph_def().library.function
    return [node for one in functions for node in one.node_def if part in node.op]


def before(op):
    """Every op that `op` waits for."""
    found, waiting = set(), [op]
    while waiting:
        for one in (*(tensor.op for tensor in waiting[-1].inputs), *waiting.pop().control_inputs):
            if one not in found:
                found.add(one)
                waiting.append(one)
    return found


def _root(op):
    """The name of the variable that `op` reads, through others."""
    while op.inputs:
        op = op.inputs[0].op
    return op.name


HOST = "/job:tpu_worker/task:0/device:CPU:0"
DENSE = {"kernel"}


@pytest.mark.parametrize("summed", [True, False])
def test_gradients_that_are_not_summed_are_warned_of(summed, tmp_path, caplog):
    caplog.set_level("WARNING", "estimator_emb")
    reached(tpu_described.train, tmp_path, summed=summed)
    warning = (
        "2 cores share the batch, and the gradients of kernel are not summed over them: what every "
        "core but core 0 has learned is lost. Use "
        "tf.compat.v1.tpu.CrossShardOptimizer(optimizer); with an optimizer that is not of "
        "tf.compat.v1.train, sum each gradient by tf.compat.v1.tpu.cross_replica_sum."
    )
    found = harness.said(caplog)
    assert found == ([] if summed else [warning])


@pytest.mark.parametrize("how", [tpu_described.train, tpu_described.evaluate])
def test_the_graph(how, tmp_path):
    training = how is tpu_described.train
    got = reached(how, tmp_path)
    assert not got.ops("TPUEmbedding") and not in_functions(got.graph, "TPUEmbedding")

    # Each core gets its half of the batch: age, activations, lengths, labels.
    enqueues = got.ops("InfeedEnqueueTuple")
    assert [op.get_attr("device_ordinal") for op in enqueues] == [0, 1]
    for op in enqueues:
        assert op.device == HOST
        assert sorted(one.shape.as_list() for one in op.inputs) == [
            [2], [2], [2, 1], [2, 2], [2, 2, 2], [2, 3],
        ]  # fmt: skip
    tables = [one for one in got.graph.get_collection("variables") if "/part_" in one.name]
    assert len(tables) == (2 * 3 if training else 2)
    reads = [op for table in tables for op in table.handle.consumers()]
    on_core = "TPUReplicate"
    for table in tables:
        assert table.handle.op.device == HOST
    for op in reads:
        if op.type.startswith(("ResourceGather", "ResourceScatter")):
            assert op.device == HOST and on_core not in {one.type for one in before(op)}
        assert "_tpu_replicate" not in op.node_def.attr
    (loop,) = [op for op in got.ops("While") if "_tpu_replicate" in op.node_def.attr]
    assert not {table.handle.ref() for table in tables} & {one.ref() for one in loop.inputs}

    # What is checked for NaN after each loop: nothing that would be copied for it.
    checked = {_root(op) for op in got.ops("CheckNumerics")}
    assert checked == DENSE
    trainable = {one.op.name for one in got.graph.get_collection("trainable_variables")}
    assert trainable == DENSE | {one.op.name for one in tables[:: 3 if training else 1]}
    assert not [one.name for one in got.graph.get_collection("variables") if "dummy" in one.name]

    tokens = [op for op in got.ops("FIFOQueueV2") if op.name.endswith("embedding_token")]
    assert len(tokens) == training
    if not training:
        return
    (token,) = tokens
    takes = [op for op in token.outputs[0].consumers() if op.type == "QueueDequeueV2"]
    puts = [op for op in token.outputs[0].consumers() if op.type == "QueueEnqueueV2"]
    (for_lookup,) = [op for op in takes if op in before(enqueues[0])]
    (for_end,) = [op for op in takes if op is not for_lookup]
    lookups = [op for op in before(enqueues[0]) if op.type.startswith("ResourceGather")]
    assert len(lookups) == 2
    for op in lookups:
        assert for_lookup in before(op)
    # The first token comes from a hook, one goes back after every update, and one after the wait.
    updates = {op for op in reads if op.type.startswith("ResourceScatter")}
    assert len(updates) == 2 * 3
    (after_update,) = [op for op in puts if updates <= before(op)]
    assert not before(after_update) & {for_lookup, for_end, *enqueues}
    assert loop in before(for_end)
    assert for_end in before(got.fetches)


# What it refuses.


def refused(tmp_path, pipelined=False, deployment=V2, **of_tpu_config):
    spec = spec_of()._replace(pipeline_execution_with_tensor_core=pipelined)
    where = {"tables": "host", **of_tpu_config}
    asked = {"deployment": deployment, "where": where, "spec": spec}
    return harness.refusal(ValueError, estimator, tmp_path, **asked)


def test_what_does_not_go_with_it(tmp_path):
    shared = ee.InputPipelineConfig.BROADCAST
    assert refused(tmp_path, deployment=shared) == (
        "TPUConfig: with tables='host', per_host_input_for_training must be PER_HOST_V1 or "
        f"PER_HOST_V2; got {shared}."
    )
    assert refused(tmp_path, num_cores_per_replica=2) == (
        "TPUConfig: with tables='host', each core runs the whole model, and num_cores_per_replica "
        "must be None; got 2."
    )
    assert refused(tmp_path, experimental_host_call_every_n_steps=3) == (
        "TPUConfig: with tables='host', gradients come out of the TPU in every step, and "
        "experimental_host_call_every_n_steps must be 1; got 3."
    )
    assert refused(tmp_path, pipelined=True) == (
        "EmbeddingConfigSpec: with TPUConfig(tables='host'), the lookup of a step waits for the "
        "update of the step before, and pipeline_execution_with_tensor_core must be False."
    )
    assert refused(tmp_path, bad_ids="drop") == (
        "bad_ids='drop' works on the host only: a TPU does not check ids."
    )


def test_several_hosts(tmp_path):
    assert harness.refusal(ValueError, reached, tpu_described.train, tmp_path, hosts=2) == (
        "TPUConfig: tables='host' feeds a TPU of one host; this one has 2."
    )


def test_how_it_is_asked_for(tmp_path, monkeypatch):
    message = harness.refusal(ValueError, ee.TPUConfig, tables="core")
    assert message == "TPUConfig: tables must be 'tpu' or 'host'; got 'core'."
    assert ee.TPUConfig(tables="host")._replace(num_shards=2).tables == "host"
    assert ee.TPUConfig().tables is None
    monkeypatch.setenv("ESTIMATOR_EMB_TABLES", "host")
    for asked, fed in ((None, True), ("host", True), ("tpu", False)):
        config = ee.RunConfig(model_dir=str(tmp_path), tpu_config=ee.TPUConfig(tables=asked))
        kwargs = {"config": config, "use_tpu": True, "train_batch_size": BATCH}
        made = ee.TPUEstimator(model_fn_of(columns()), embedding_config_spec=spec_of(), **kwargs)
        assert isinstance(made._ctx, context.TPUWithoutTables) == fed
        # Without tables there is nothing to keep anywhere.
        plain = ee.TPUEstimator(model_fn_of(columns()), **kwargs)
        assert not isinstance(plain._ctx, context.TPUWithoutTables)


def test_features_without_gradient_or_use(tmp_path, monkeypatch):
    """A plain EstimatorSpec; no gradient reaches y, and evaluation does not use it."""

    def model_fn(features, labels, mode, params):
        loss = tf.reduce_sum(features["x"] * labels)
        if mode == ee.ModeKeys.EVAL:
            return ee.TPUEstimatorSpec(mode, loss=loss)
        loss += tf.reduce_sum(tf.stop_gradient(features["y"]))
        return ee.EstimatorSpec(mode, loss=loss, train_op=harness.minimized(mode, loss).train_op)

    def its_input_fn(params):
        ids = tf.constant([0, 3, 3, 1])
        element = {"x": ids, "y": ids + 1}, tf.fill([BATCH, 2], 0.5)
        return tf.data.Dataset.from_tensors(element).repeat(2)

    table = ee.TableConfig(ROWS, 2, initializer=harness.initializer(LARGE))
    spec = ee.EmbeddingConfigSpec(
        feature_to_config_dict={key: ee.FeatureConfig(key) for key in "xy"},
        table_to_config_dict={"x": table, "y": table},
        optimization_parameters=ee.AdamParameters(0.1, epsilon=1e-3),
    )
    losses = {}
    for name, where in (("tpu", None), ("emulated", EMULATED)):
        kwargs = {"where": where, "deployment": V1, "spec": spec, "model_fn": model_fn}
        made = estimator(tmp_path / name, **kwargs)
        with tpu_simulated.running(1, monkeypatch):
            made.train(its_input_fn, max_steps=2)
            losses[name] = made.evaluate(its_input_fn, steps=1)["loss"]
    check_same(tmp_path / "tpu", tmp_path / "emulated", [1, 2])
    np.testing.assert_allclose(losses["tpu"], losses["emulated"], rtol=1e-5)
