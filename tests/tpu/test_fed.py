# SPDX-License-Identifier: Apache-2.0
"""`TPUConfig(tables='host')`: trained on a simulated TPU, beside the emulated one."""

import time

import harness
import numpy as np
import pytest
import tensorflow as tf
import tpu_simulated
from tensorflow.python.ops import control_flow_util
from tensorflow_estimator.python.estimator.tpu import error_handling

import estimator_emb as ee
import feature_columns as fc
from estimator_emb.engines import tpu_fed

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
        elements = cut(data, BATCH // params["batch_size"])

        def tensors(index):
            def of(values):
                if not isinstance(values[0], tf.compat.v1.SparseTensorValue):
                    return tf.gather(tf.constant(np.stack(values)), index)
                # Elements of one dataset: as wide as the widest.
                width = max(one.dense_shape[1] for one in values)
                count = len(values) * params["batch_size"]
                offsets = np.arange(len(values)) * params["batch_size"]
                whole = tf.SparseTensor(
                    np.concatenate(
                        [
                            one.indices + [[offset, 0]]
                            for one, offset in zip(values, offsets, strict=True)
                        ]
                    ),
                    np.concatenate([one.values for one in values]),
                    [count, width],
                )
                size = params["batch_size"]
                return tf.sparse.slice(whole, tf.stack([index * size, 0]), [size, width])

            features = {
                key: of([one[key] for one, _ in elements]) for key in elements[0][0]
            }
            return features, of([labels for _, labels in elements])

        return tf.data.Dataset.range(len(elements)).map(tensors)

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


def model_fn_of(made, seen=None):
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
        optimizer = tf.compat.v1.tpu.CrossShardOptimizer(tf.compat.v1.train.AdagradOptimizer(0.1))
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
    return ee.TPUEstimator(
        more.pop("model_fn", None) or model_fn_of(made, seen),
        config=ee.RunConfig(
            model_dir=str(model_dir),
            save_summary_steps=None,
            log_step_count_steps=None,
            save_checkpoints_steps=loop,
            keep_checkpoint_max=None,
            tpu_config=ee.TPUConfig(
                loop,
                num_shards=cores,
                per_host_input_for_training=deployment,
                **where,
            ),
        ),
        use_tpu=more.pop("use_tpu", True),
        train_batch_size=BATCH,
        eval_batch_size=BATCH,
        predict_batch_size=BATCH,
        embedding_config_spec=spec or spec_of(made=made),
        **more,
    )


EMULATED = {"device": "host"}


def check_same(got_dir, expected_dir, steps):
    for step in steps:
        got, expected = harness.saved(got_dir, step), harness.saved(expected_dir, step)
        assert set(got) == set(expected)
        for name, value in expected.items():
            np.testing.assert_allclose(got[name], value, 1e-6, 1e-6, err_msg=f"{name} {step}")


@pytest.mark.parametrize(
    "cores, loop, deployment", [(1, 3, V1), (1, 1, V2), (2, 1, V2), (2, 1, V1)]
)
def test_trains_and_evaluates_as_emulated(cores, loop, deployment, tmp_path, monkeypatch):
    results, written = {}, {}
    for name, where in (("tpu", None), ("emulated", EMULATED)):
        seen = written[name] = []
        made = estimator(tmp_path / name, cores, loop, deployment, where, seen=seen)
        results[name] = []
        with tpu_simulated.running(cores, monkeypatch):
            for first in (0, 3):
                made.train(input_fn_of(DATA[first : first + 3]), max_steps=first + 3)
                # The simulation of several cores has no loop of steps.
                steps = STEPS if cores == 1 else 1
                results[name].append(made.evaluate(input_fn_of(DATA), steps=steps))
    check_same(tmp_path / "tpu", tmp_path / "emulated", range(loop, STEPS + 1, loop))
    names = harness.saved(tmp_path / "tpu", STEPS)
    assert len(names) == 3 + 2 * 3  # step, kernel and its slot; two tables with two slots
    assert f"{WORDS}/Adam/v" in names
    for got, expected in zip(results["tpu"], results["emulated"], strict=True):
        assert set(got) == {"loss", "mean", "global_step"} == set(expected)
        for key, value in expected.items():
            np.testing.assert_allclose(got[key], value, rtol=1e-5)
    assert results["tpu"][0] != results["tpu"][1]
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


@pytest.mark.parametrize("parameters", [
    ee.AdagradParameters(0.3, use_gradient_accumulation=False),
    ee.FtrlParameters(0.3, beta=0.5),
])  # fmt: skip
def test_of_two_cores(parameters, tmp_path, monkeypatch):
    kwargs = {"spec": None, "cores": 2}
    made = columns()
    spec = ee.EmbeddingConfigSpec(feature_columns=made, optimization_parameters=parameters)
    kwargs.update(spec=spec, model_fn=model_fn_of(made))
    train_on_simulated(monkeypatch, tmp_path / "tpu", **kwargs)
    emulated = estimator(tmp_path / "emulated", where=EMULATED, **kwargs)
    emulated.train(input_fn_of(DATA), max_steps=STEPS)
    check_same(tmp_path / "tpu", tmp_path / "emulated", [STEPS])


def test_loops_of_the_first_kind(tmp_path, monkeypatch):
    """What programs get that switch TensorFlow 2's control flow off."""
    monkeypatch.setattr(control_flow_util, "ENABLE_CONTROL_FLOW_V2", False)
    train_on_simulated(monkeypatch, tmp_path / "tpu", loop=3)
    emulated = estimator(tmp_path / "emulated", loop=3, where=EMULATED)
    emulated.train(input_fn_of(DATA), max_steps=STEPS)
    check_same(tmp_path / "tpu", tmp_path / "emulated", [3, 6])


def test_native_kernels(native, tmp_path, monkeypatch, caplog):
    caplog.set_level("INFO", "estimator_emb")
    train_on_simulated(monkeypatch, tmp_path / "tpu", loop=3)
    assert "without native kernels" not in caplog.text
    monkeypatch.setenv("ESTIMATOR_EMB_NATIVE", "0")
    emulated = estimator(tmp_path / "emulated", loop=3, where=EMULATED)
    emulated.train(input_fn_of(DATA), max_steps=STEPS)
    check_same(tmp_path / "tpu", tmp_path / "emulated", [3, 6])


# The order of lookups and updates.


def slow_updates(monkeypatch):
    """Updates that take longer than anything else of a step."""
    update = tpu_fed.FedEngine.update

    def slow(self, received):
        def wait(gradient):
            time.sleep(0.3)
            return gradient

        first = tf.compat.v1.py_func(wait, [received[0]], tf.float32)
        first.set_shape(received[0].shape)
        return update(self, [first, *received[1:]])

    monkeypatch.setattr(tpu_fed.FedEngine, "update", slow)


def lookup_waits_for_nothing(monkeypatch):
    take, put_back = tpu_fed.FedEngine._turn, tpu_fed.FedEngine._put_back
    monkeypatch.setattr(tpu_fed.FedEngine, "_turn", lambda self: [])

    def put_back_once_taken(self):
        with tf.control_dependencies(take(self) if self.first_turn else []):
            return put_back(self)

    monkeypatch.setattr(tpu_fed.FedEngine, "_put_back", put_back_once_taken)


def step_waits_for_no_update(monkeypatch):
    monkeypatch.setattr(tpu_fed.FedEngine, "last_update", lambda self, loss: tf.no_op())


@pytest.mark.parametrize("broken", [None, lookup_waits_for_nothing, step_waits_for_no_update])
def test_each_lookup_sees_the_update_before(broken, tmp_path, monkeypatch):
    """Updates are slow; what holds the order is left out in turn, and then it does not hold."""
    emulated = estimator(tmp_path / "emulated", loop=3, where=EMULATED)
    emulated.train(input_fn_of(DATA[:3]), max_steps=3)
    slow_updates(monkeypatch)
    if broken:
        broken(monkeypatch)
    train_on_simulated(monkeypatch, tmp_path / "tpu", DATA[:3], loop=3)
    if broken:
        with pytest.raises(AssertionError):
            check_same(tmp_path / "tpu", tmp_path / "emulated", [3])
    else:
        check_same(tmp_path / "tpu", tmp_path / "emulated", [3])


def test_a_bad_id_stops_training_before_its_update(tmp_path, monkeypatch):
    bad, labels = DATA[2]
    bad = ({**bad, "item": np.array([0, 1, ROWS, 2])}, labels)
    # tensorflow-estimator waits for better errors of other threads.
    monkeypatch.setattr(error_handling.time, "sleep", lambda seconds: None)
    with pytest.raises(tf.errors.InvalidArgumentError) as caught:
        train_on_simulated(monkeypatch, tmp_path, [*DATA[:2], bad])
    assert "Feature item of table" in str(caught.value)
    assert f"id {ROWS} is outside [0, {ROWS})" in str(caught.value)
    assert tf.train.latest_checkpoint(str(tmp_path)).endswith("-2")


# One checkpoint, wherever the tables are.


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


def test_warm_start(tmp_path, monkeypatch):
    trained = estimator(tmp_path / "from", use_tpu=False)
    trained.train(input_fn_of(DATA), max_steps=STEPS)
    for name, where in (("tpu", None), ("emulated", EMULATED)):
        with tpu_simulated.running(1, monkeypatch):
            made = estimator(
                tmp_path / name, where=where, warm_start_from=str(tmp_path / "from")
            )
            made.train(input_fn_of(DATA), max_steps=1)
    check_same(tmp_path / "tpu", tmp_path / "emulated", [0, 1])
    before, after = harness.saved(tmp_path / "from", STEPS), harness.saved(tmp_path / "tpu", 0)
    np.testing.assert_array_equal(before[WORDS], after[WORDS])
