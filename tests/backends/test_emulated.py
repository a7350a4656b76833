"""A program on an emulated TPU of N cores behaves as on a TPU."""

import logging

import harness
import numpy as np
import pytest
import tensorflow as tf
from emulated_program import SPEC, batches, make, model_fn, without_labels
from tensorflow.python.ops import summary_ops_v2 as contrib_summary

import estimator_emb as ee
from estimator_emb.backends.emulated.backend import EmulatedTPU
from estimator_emb.reporting import progress

PIPELINES = ee.InputPipelineConfig

v1 = tf.compat.v1


def all_of(model_dir, cores, pipeline):
    estimator = make(model_fn, model_dir, cores, pipeline, SPEC)
    estimator.train(batches, steps=3)
    error = estimator.evaluate(batches, steps=2)["error"]
    predictions = list(estimator.predict(without_labels))
    assert len(predictions) == 31
    of_samples = {key: [one[key] for one in predictions] for key in ("output", "words")}
    return {**harness.saved(model_dir, 3), "error": error, **of_samples}


@pytest.fixture(scope="module")
def on_one_core(tmp_path_factory):
    return all_of(tmp_path_factory.mktemp("one"), 1, PIPELINES.PER_HOST_V1)


@pytest.mark.parametrize("device", ["emulate", "host"])
@pytest.mark.parametrize("door", ["TPUConfig", "environment"])
def test_device_emulate_and_its_older_name_emulate_a_tpu(door, device, monkeypatch, tmp_path):
    monkeypatch.delenv("ESTIMATOR_EMB_DEVICE", raising=False)
    tpu_config = ee.TPUConfig(device=device)
    if door == "environment":
        monkeypatch.setenv("ESTIMATOR_EMB_DEVICE", device)
        tpu_config = None
    config = ee.RunConfig(model_dir=tmp_path, tpu_config=tpu_config)
    made = ee.TPUEstimator(model_fn, config=config, use_tpu=True, train_batch_size=8)
    assert isinstance(made.backend, EmulatedTPU)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("cores", "pipeline"), [(4, PIPELINES.PER_HOST_V1), (3, PIPELINES.PER_HOST_V2)]
)
def test_n_cores_train_as_one(cores, pipeline, on_one_core, tmp_path):
    got = all_of(tmp_path, cores, pipeline)
    assert {"past_words_shared_embedding/Adam/m", "dense_1/kernel/Adagrad"} < set(got)
    harness.same(got, on_one_core, 1e-4, 1e-6)


# A small model whose numbers are all known.


def one_weight(head=lambda features, loss: {}, **fields):
    """Returns a model with w = 1 at first. A core's loss is w * sum(x), its gradient sum(x)."""

    def model_fn(features, labels, mode, params):
        w = v1.get_variable("w", initializer=1.0)
        loss = tf.reduce_sum(features) * w
        fields_of_head = {"predictions": {"y": features * w}, **head(features, loss)}
        return harness.minimized(mode, loss, **fields_of_head, **fields)

    return model_fn


def mean(features, loss):
    return {"eval_metrics": (lambda x: {"mean": v1.metrics.mean(x)}, [features])}


def numbers(*values, repeat=True):
    """Returns an input_fn for batches of the given numbers, in order."""

    def input_fn(params):
        dataset = tf.data.Dataset.from_tensor_slices(np.array(values, np.float32))
        dataset = dataset.repeat() if repeat else dataset
        return dataset.batch(params["batch_size"], drop_remainder=True)

    return input_fn


def test_evaluation_with_sliced_input_splits_one_batch(tmp_path):
    """With SLICED, input_fn is called once for all cores."""
    config = {"eval_training_input_configuration": PIPELINES.SLICED}
    estimator = make(one_weight(mean), tmp_path, 2, PIPELINES.PER_HOST_V2, batch=4, tpu=config)
    metrics = estimator.evaluate(numbers(1, 2, 30, 40), steps=1)
    assert metrics == {"loss": 3, "mean": 73 / 4, "global_step": 0}


def test_batch_axis_selects_the_split_dimension(tmp_path):
    def input_fn(params):
        return tf.data.Dataset.from_tensors(np.array([[1, 2, 30, 40]], np.float32)).repeat()

    estimator = make(one_weight(), tmp_path, 2, batch=4, batch_axis=[1])
    estimator.train(input_fn, steps=1)
    assert estimator.get_variable_value("w") == 1 - (3 + 70) / 2
    estimator = make(one_weight(), tmp_path, 2, batch=4, batch_axis=[1, 0])
    assert harness.refusal(ValueError, estimator.train, input_fn, steps=1) == (
        "batch_axis has 2 elements, (1, 0), but input_fn yields 1 tensors of features and labels."
    )


@pytest.mark.parametrize(
    "other, said",
    [
        ([2, 3], "shape [2 3], but those of core 0 have [2 2]: pad batches to one width.]"),
        ([3, 2], "3 samples, but those of core 0 have 2.]"),
    ],
)
def test_batches_of_two_cores_with_different_shapes_are_refused(other, said, tmp_path):
    def input_fn(params):
        def of_shape(shape):
            dense = v1.placeholder_with_default(tf.ones(shape, tf.int64), [None, None])
            return tf.data.Dataset.from_tensors({"x": dense})

        return of_shape([2, 2]).concatenate(of_shape(other))

    def model_fn(features, labels, mode, params):
        return harness.minimized(mode, tf.reduce_mean(features["x"]), 0.1)

    spec = harness.table_spec(3, 2, ee.StochasticGradientDescentParameters(8.0))
    estimator = make(model_fn, tmp_path, 2, PIPELINES.PER_HOST_V2, spec, batch=4)
    with pytest.raises(tf.errors.InvalidArgumentError) as error:
        estimator.train(input_fn, steps=1)
    assert error.value.message.splitlines()[0].endswith(
        f"Feature x of table t: its ids of core 1 have {said}"
    )


@pytest.mark.parametrize("pipeline", [PIPELINES.PER_HOST_V1, PIPELINES.PER_HOST_V2])
def test_trains_on_batches_with_only_ids(pipeline, tmp_path):
    """Two cores with two samples each. A core's loss is the mean over its samples."""

    def input_fn(params):
        ids = tf.data.Dataset.from_tensor_slices({"x": np.array([0, 1, 1, 2])})
        return ids.repeat().batch(params["batch_size"], drop_remainder=True)

    def model_fn(features, labels, mode, params):
        assert labels is None and features["x"].shape == [2, 2]
        return harness.minimized(mode, tf.reduce_mean(features["x"]), 0.1)

    sgd = ee.StochasticGradientDescentParameters(8.0)
    spec = harness.table_spec(4, 2, sgd, v1.zeros_initializer())
    make(model_fn, tmp_path, 2, pipeline, spec, batch=4).train(input_fn, steps=1)
    got = harness.saved(tmp_path, 1)["t"]
    # The mean is over 4 numbers of a core, and CrossShardOptimizer halves it.
    np.testing.assert_allclose(got[:, 0], [-1, -2, -1, 0])


def test_hooks_fire_once_a_loop_and_the_log_counts_its_steps(tmp_path, monkeypatch, caplog):
    monkeypatch.setattr(progress, "_SECONDS_BETWEEN_LINES", 0.0)
    caplog.set_level(logging.INFO, "estimator_emb")
    hook, of_spec = (harness.Reads(v1.train.get_global_step) for _ in range(2))
    model_fn = one_weight(training_hooks=[of_spec])
    estimator = make(model_fn, tmp_path, 2, batch=4, tpu={"iterations_per_loop": 3})
    estimator.train(numbers(1, 2, 30, 40), steps=7, hooks=[hook])
    assert hook.seen == of_spec.seen == [3, 6, 7]
    steps = [line.split(",")[0] for line in caplog.messages if line.startswith("step ")]
    assert steps == ["step 3 of 7", "step 6 of 7", "step 7 of 7", "step 7 of 7"]


def test_iterations_per_loop_may_be_a_duration(tmp_path):
    hook = harness.Reads(v1.train.get_global_step)
    estimator = make(one_weight(), tmp_path, 1, batch=4, tpu={"iterations_per_loop": "1h"})
    estimator.train(numbers(1, 2, 30, 40), max_steps=50, hooks=[hook])
    # The first loop has one step. All further steps fit into an hour.
    assert hook.seen == [1, 50]


def test_evaluation_is_one_loop_and_returns_the_loss_of_core_0(tmp_path):
    """A TPU returns the loss of its first core, too."""
    hook = harness.Reads(v1.train.get_global_step)
    estimator = make(one_weight(mean), tmp_path, 2, batch=4)
    metrics = estimator.evaluate(numbers(1, 2, 30, 40, 5, 6, 70, 80), steps=2, hooks=[hook])
    assert hook.seen == [0]
    assert metrics == {"loss": (3 + 11) / 2, "mean": 234 / 8, "global_step": 0}


def test_host_call_gets_the_tensors_of_all_cores_each_step(tmp_path):
    received = []

    def receive(x, loss):
        received.append((x.tolist(), loss.tolist()))
        return np.float32(0)

    def head(features, loss):
        def host_fn(x, loss):
            return [tf.numpy_function(receive, [x, loss], tf.float32)]

        return {"host_call": (host_fn, {"x": features, "loss": loss[None]})}

    estimator = make(one_weight(head), tmp_path, 2, batch=2)
    estimator.train(numbers(0, 0, 1, 3, 0, 0), steps=3)
    assert received == [([0, 0], [0, 0]), ([1, 3], [1, 3]), ([0, 0], [0, 0])]
    received.clear()
    every_second = {"iterations_per_loop": 5, "experimental_host_call_every_n_steps": 2}
    estimator = make(one_weight(head), tmp_path / "every", 2, batch=2, tpu=every_second)
    estimator.train(numbers(0, 0, 1, 0, 2, 0, 3, 0, 4, 0), steps=5)
    assert [x for x, _ in received] == [[0, 0], [2, 0], [4, 0]]


def test_host_call_summaries_do_not_run_extra_steps(tmp_path):
    hook = harness.Reads(v1.train.get_global_step)

    def head(features, loss):
        def host_fn(x):
            writer = contrib_summary.create_file_writer(str(tmp_path / "summaries"))
            with writer.as_default(), contrib_summary.always_record_summaries():
                step = tf.compat.v1.train.get_global_step()
                contrib_summary.scalar("mean", tf.reduce_mean(x), step=step)
                return tf.compat.v1.summary.all_v2_summary_ops()

        return {"host_call": (host_fn, {"x": features})}

    estimator = make(one_weight(head), tmp_path, 2, batch=2, tpu={"iterations_per_loop": 1})
    estimator.train(numbers(0, 1, 2, 3, 4, 5), steps=3, hooks=[hook])
    assert hook.seen == [1, 2, 3]
    assert list((tmp_path / "summaries").glob("events*"))


@pytest.mark.parametrize("pipeline", [PIPELINES.PER_HOST_V1, PIPELINES.PER_HOST_V2])
def test_predict_accepts_a_partial_last_batch(pipeline, tmp_path):
    estimator = make(one_weight(), tmp_path, 2, pipeline, batch=4)

    def input_fn(params):
        seven = tf.data.Dataset.from_tensor_slices(np.arange(7, dtype=np.float32))
        return seven.batch(params["batch_size"])

    assert [one["y"] for one in estimator.predict(input_fn)] == list(range(7))


def test_predict_needs_a_dataset(tmp_path):
    estimator = make(one_weight(), tmp_path, 1)
    predicted = estimator.predict(lambda params: tf.zeros([12]))
    assert harness.refusal(TypeError, next, predicted) == (
        "For mode PREDICT, `input_fn` must return `Dataset` instead of `features` and `labels`."
    )


def test_shows_the_error_of_the_input(tmp_path):
    def input_fn(params):
        zeros = tf.data.Dataset.from_tensors(tf.zeros([4])).repeat()
        return zeros.map(lambda x: tf.debugging.check_numerics(x / 0.0, "A bad file"))

    with pytest.raises(tf.errors.InvalidArgumentError, match="A bad file"):
        make(one_weight(), tmp_path, 2, batch=4).train(input_fn, steps=1)


def test_a_variable_that_becomes_nan_stops_training(tmp_path):
    def model_fn(features, labels, mode, params):
        w = v1.get_variable("w", initializer=1.0)
        return harness.minimized(mode, tf.reduce_sum(features) + tf.sqrt(w - 1.0))

    with pytest.raises(tf.errors.InvalidArgumentError, match="Gradient for w:0 is NaN"):
        make(model_fn, tmp_path, 1).train(numbers(0), steps=2)


# Errors of the legacy estimator


@pytest.mark.parametrize("control_flow", ["v1"], indirect=True)
def test_cross_shard_optimizer_is_required(control_flow, tmp_path):
    def model_fn(features, labels, mode, params):
        loss = tf.reduce_sum(features) * v1.get_variable("w", initializer=1.0)
        descent = v1.train.GradientDescentOptimizer(1.0)
        train_op = descent.minimize(loss, v1.train.get_global_step())
        return ee.TPUEstimatorSpec(mode, loss=loss, train_op=train_op)

    make(model_fn, tmp_path / "one", 1).train(numbers(0), steps=1)
    on_two = make(model_fn, tmp_path, 2)
    assert harness.refusal(ValueError, on_two.train, numbers(0), steps=1) == (
        "CrossShardOptimizer must be used for model training on TPUs."
    )


def test_scaffold_fn_runs_outside_the_cores(tmp_path):
    made = []

    def scaffold_fn():
        made.append([one.op.name for one in v1.global_variables()])
        return v1.train.Scaffold()

    make(one_weight(scaffold_fn=scaffold_fn), tmp_path, 2).train(numbers(0), steps=1)
    assert made == [["global_step", "w"]]


def test_tables_need_per_host_input(tmp_path):
    assert harness.refusal(ValueError, make, model_fn, tmp_path, 2, PIPELINES.BROADCAST, SPEC) == (
        "Only PER_HOST_V1 and PER_HOST_V2 is supported when using TPU Embedding; got "
        f"{PIPELINES.BROADCAST}."
    )


@pytest.mark.parametrize("known", [True, False], ids=["static", "dynamic"])
def test_a_batch_of_another_size_stops_the_step(known, tmp_path):
    def forgotten(features, labels):
        x = features["x"]
        shape = v1.placeholder_with_default(x.dense_shape, [2])
        return {"x": tf.SparseTensor(x.indices, x.values, shape)}, labels

    def input_fn(params):
        features, labels = {"x": harness.sparse([[1], [2]])}, {"x": np.zeros([12, 2], np.float32)}
        dataset = harness.dataset([(features, labels)])
        return dataset if known else dataset.map(forgotten)

    spec = harness.table_spec(3, 2, ee.AdagradParameters(0.1))
    made = make(harness.gradient_model_fn(["x"]), tmp_path, 2, spec=spec)
    message = "Feature x of table t has 2 samples, but the batch size is 12."
    with pytest.raises(ValueError if known else tf.errors.InvalidArgumentError, match=message):
        made.train(input_fn, steps=1)


def test_evaluation_on_cpu(tmp_path):
    """`eval_on_tpu=False`: one core gets the whole batch. An EstimatorSpec is accepted."""
    seen = []

    def model_fn(features, labels, mode, params):
        seen.append((features.shape.as_list()[0], params["use_tpu"]))
        return one_weight()(features, labels, mode, params)

    estimator = make(model_fn, tmp_path, 2, eval_on_tpu=False)
    assert estimator.evaluate(numbers(1, 2, 3), steps=1)["loss"] == 24
    assert seen == [(12, False)]


def test_ignored_options_are_logged_once(tmp_path, caplog):
    caplog.set_level(logging.INFO, logger="estimator_emb")
    for _ in range(2):
        make(model_fn, tmp_path, 2, tpu={"initial_infeed_sleep_secs": 3, "tpu_job_name": "x"})
    assert harness.said(caplog) == [
        "TPUConfig: initial_infeed_sleep_secs has no meaning where a TPU is emulated.",
        "TPUConfig: tpu_job_name has no meaning where a TPU is emulated.",
    ]


def test_a_replica_may_span_several_cores(tmp_path):
    """`num_cores_per_replica` adds devices and an assignment, with the same arithmetic."""
    seen = []

    def model_fn(features, labels, mode, params):
        context = params["context"]
        assignment = context.device_assignment
        seen.append((context.num_replicas, assignment.num_replicas, features.shape.as_list()))
        seen.append((assignment.num_cores_per_replica, assignment.core_assignment.shape))
        with tf.device(v1.tpu.core(0)):
            w = v1.get_variable("w", initializer=1.0)
            product = features * w
        with tf.device(v1.tpu.core(1)):
            loss = tf.reduce_sum(product) * 2.0
        return harness.minimized(mode, loss)

    estimator = make(
        model_fn, tmp_path, 2, PIPELINES.PER_HOST_V2, batch=4, tpu={"num_cores_per_replica": 2}
    )
    estimator.train(numbers(1, 2, 30, 40), steps=1)
    assert seen == [(2, 2, [2]), (2, (2, 2, 4))]
    assert estimator.get_variable_value("w") == 1 - (3 + 70)


# Gradients that are not summed over the cores


def minimized(optimizer):
    def train(loss, variables):
        return optimizer().minimize(loss, v1.train.get_global_step(), var_list=variables)

    return train


def by_keras(optimizer):
    def train(loss, variables):
        made = optimizer()
        made.iterations = v1.train.get_global_step()
        return tf.group(made.get_updates(loss, variables))

    return train


def by_hand(loss, variables):
    gradients = [v1.tpu.cross_replica_sum(one) for one in tf.gradients(loss, variables)]
    pairs = zip(gradients, variables, strict=True)
    return v1.train.AdamOptimizer().apply_gradients(pairs, v1.train.get_global_step())


def assigned(loss, variables):
    pairs = zip(variables, tf.gradients(loss, variables), strict=True)
    updates = [variable.assign_sub(gradient) for variable, gradient in pairs]
    return tf.group(*updates, v1.train.get_global_step().assign_add(1))


def sgd():
    return v1.train.GradientDescentOptimizer(0.1)


TRAINED = {
    "CrossShardOptimizer": minimized(lambda: v1.tpu.CrossShardOptimizer(sgd())),
    "cross_replica_sum": by_hand,
    "v1": minimized(sgd),
    "v1, slots": minimized(lambda: v1.train.MomentumOptimizer(0.1, 0.9)),
    "Keras": by_keras(lambda: tf.keras.optimizers.legacy.SGD(0.1)),
    "assigned": assigned,
}


def warnings_of(train, directory, caplog, cores=2, tables=False, dense=5):
    def model_fn(features, labels, mode, params):
        loss = tf.reduce_sum(labels)
        variables = []
        for i in range(dense):
            variables.append(v1.get_variable(f"dense/{i}", [], use_resource=True))
            loss += variables[-1] * tf.reduce_sum(features["x"])
        if tables:
            loss += tf.reduce_sum(features["ids"])
            variables = None
        return ee.TPUEstimatorSpec(mode, loss=loss, train_op=train(loss, variables))

    def input_fn(params):
        one = {"x": np.ones([], np.float32)}, np.ones([], np.float32)
        if tables:
            one[0]["ids"] = np.int64(1)
        samples = tf.data.Dataset.from_tensors(one).repeat()
        return samples.batch(params["batch_size"], drop_remainder=True)

    spec = harness.tables_spec({"ids": ee.TableConfig(4, 2)}, ee.AdagradParameters(0.1))
    spec = spec if tables else None
    estimator = harness.estimator(model_fn, spec, directory, device="host", num_shards=cores)
    estimator.train(input_fn, max_steps=1)
    return harness.said(caplog)


FIVE = "dense/0, dense/1, dense/2 and 2 more"


@pytest.mark.fast(3)
@pytest.mark.parametrize(
    ("train", "case", "names"),
    [
        ("v1", {}, FIVE),
        ("v1, slots", {}, FIVE),
        ("Keras", {}, FIVE),
        ("assigned", {}, FIVE),
        ("v1", {"tables": True, "dense": 1}, "dense/0"),
        ("v1", {"cores": 1}, None),
        ("v1", {"tables": True, "dense": 0}, None),
        ("CrossShardOptimizer", {}, None),
        ("CrossShardOptimizer", {"tables": True}, None),
        ("cross_replica_sum", {}, None),
    ],
    ids=str,
)
def test_warns_of_gradients_that_are_not_summed(train, case, names, tmp_path, caplog):
    assert warnings_of(TRAINED[train], tmp_path, caplog, **case) == [
        f"2 cores share the batch, and the gradients of {names} are not summed over them: what "
        "every core but core 0 has learned is lost. Use "
        "tf.compat.v1.tpu.CrossShardOptimizer(optimizer); with an optimizer that is not of "
        "tf.compat.v1.train, sum each gradient by tf.compat.v1.tpu.cross_replica_sum."
    ] * bool(names)
