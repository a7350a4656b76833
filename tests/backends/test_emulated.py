"""A program on an emulated TPU of N cores behaves as on a TPU."""

import functools

import emulated_program
import harness
import numpy as np
import pytest
import tensorflow as tf
from emulated_program import SPEC, model_fn
from tensorflow_estimator.python.estimator.tpu import tpu_estimator

import estimator_emb as ee
from estimator_emb.backends.emulated import input as emulated_input
from estimator_emb.backends.emulated.backend import EmulatedTPU
from estimator_emb.reporting import progress

PIPELINES = ee.InputPipelineConfig
make = functools.partial(emulated_program.make, run=harness.SILENT)
unsaved = functools.partial(make, run={**harness.SILENT, "save_checkpoints_secs": None})
v1 = tf.compat.v1


@pytest.mark.parametrize("device", ["emulate", "host"])
def test_device_emulate_and_its_older_name_emulate_a_tpu(device, monkeypatch, tmp_path):
    by_config = make(model_fn, tmp_path, None, tpu={"device": device}, export_to_cpu=False)
    monkeypatch.setenv("ESTIMATOR_EMB_DEVICE", device)
    by_environment = make(model_fn, tmp_path, None, tpu={"device": None})
    assert all(isinstance(made.backend, EmulatedTPU) for made in (by_config, by_environment))
    exports = by_config.backend.constructor_arguments()
    assert exports["export_to_cpu"] and not exports["export_to_tpu"]  # Needs ops of a real TPU.


def one_weight(head=lambda features, loss: {}, **fields):
    """Returns a model with w = 1 at first. A core's loss is w * sum(x), its gradient sum(x).

    Training subtracts the mean of the cores' gradients from w: SGD at rate 1.
    """

    def model_fn(features, labels, mode, params):
        w = v1.get_variable("w", initializer=1.0)
        loss = tf.reduce_sum(features) * w
        fields_of_head = {"predictions": {"y": features * w}, **head(features, loss)}
        return harness.minimized(mode, loss, **fields_of_head, **fields)

    return model_fn


def mean(features, loss):
    return {"eval_metrics": (lambda x: {"mean": v1.metrics.mean(x)}, [features])}


def numbers(*values):
    """Returns an input_fn for batches of the given numbers, in order."""
    return harness.endless(np.array(values, np.float32))


def test_evaluation_with_sliced_input_splits_one_batch(tmp_path):
    """With SLICED, input_fn is called once for all cores."""
    config = {"eval_training_input_configuration": PIPELINES.SLICED}
    estimator = make(one_weight(mean), tmp_path, 2, PIPELINES.PER_HOST_V2, batch=4, tpu=config)
    metrics = estimator.evaluate(numbers(1, 2, 30, 40), steps=1)
    # The loss is of core 0: 1 + 2. The mean is over both cores.
    assert metrics == {"loss": 3, "mean": (1 + 2 + 30 + 40) / 4, "global_step": 0}


def test_batch_axis_has_the_split_dimension_of_each_tensor(tmp_path):
    def input_fn(params):
        return tf.data.Dataset.from_tensors(np.array([[1, 2, 30, 40]], np.float32)).repeat()

    estimator = make(one_weight(), tmp_path, 2, batch=4, batch_axis=[1])
    estimator.train(input_fn, steps=1)
    assert estimator.get_variable_value("w") == 1 - (3 + 70) / 2  # Two cores: (1, 2), (30, 40).
    estimator = make(one_weight(), tmp_path, 2, batch=4, batch_axis=[1, 0])
    assert harness.refusal(ValueError, estimator.train, input_fn, steps=1) == (
        "batch_axis has 2 elements, (1, 0), but input_fn yields 1 tensors of features and labels."
    )


PAIRS, WIDER = np.ones([2, 2], np.int64), np.ones([2, 3], np.int64)
NO_IDS = np.zeros([0, 2], np.int64), np.zeros([0], np.int64)  # Indices and values.
OUTSIDE = "sparse indices outside the dense shape "


@pytest.mark.parametrize(
    # first, second: the ids of each core, a matrix or the indices, values and dense shape of a
    # SparseTensor. said: the end of the error.
    "first, second, said",
    [
        (PAIRS, WIDER, "shape [2 3], but those of core 0 have [2 2]: pad batches to one width.]"),
        (PAIRS, np.ones([3, 2], np.int64), "3 samples, but those of core 0 have 2.]"),
        ((*NO_IDS, [2, 0]), ([[1, 0], [2, 0]], PAIRS[0], [2, 1]), f"{OUTSIDE}[2 1].]"),
        ((*NO_IDS, [2, 0]), (*NO_IDS, [2, -1]), f"{OUTSIDE}[2 -1].]"),
        ((*NO_IDS, [2, 0]), (*NO_IDS, [2**31, 1]), f"{OUTSIDE}[2147483648 1].]"),
    ],
)
def test_refuses_batches_of_two_cores_that_do_not_fit(first, second, said, tmp_path):
    def input_fn(params):
        def of(ids):
            unknown = v1.placeholder_with_default  # Its shape and value are known in steps only.
            if isinstance(ids, tuple):
                ids = tf.SparseTensor(*ids[:2], unknown(np.int64(ids[2]), [2]))
            else:
                ids = unknown(ids, [None, None])
            return tf.data.Dataset.from_tensors({"x": ids})

        return of(first).concatenate(of(second))

    def model_fn(features, labels, mode, params):
        return harness.minimized(mode, tf.reduce_mean(features["x"]), 0.1)

    spec = harness.table_spec(3, 2, ee.StochasticGradientDescentParameters(8.0))
    estimator = unsaved(model_fn, tmp_path, 2, PIPELINES.PER_HOST_V2, spec, batch=4)
    with pytest.raises(tf.errors.InvalidArgumentError) as error:
        estimator.train(input_fn, steps=1)
    first_line = error.value.message.splitlines()[0]
    assert first_line.endswith(f"Feature x of table t: its ids of core 1 have {said}")


@pytest.mark.fast(1)
@pytest.mark.parametrize("pipeline", [PIPELINES.PER_HOST_V1, PIPELINES.PER_HOST_V2])
def test_trains_on_batches_with_only_ids(pipeline, tmp_path):
    """Two cores with two samples each. A core's loss is the mean of its activations' elements."""
    input_fn = harness.endless({"x": harness.sparse([[0], [1, 3, 3], [1], [2]])})

    def model_fn(features, labels, mode, params):
        assert labels is None and features["x"].shape == [2, 2]
        return harness.minimized(mode, tf.reduce_mean(features["x"]), 0.1)

    sgd = ee.StochasticGradientDescentParameters(8.0)
    spec = harness.table_spec(5, 2, sgd, v1.zeros_initializer())
    make(model_fn, tmp_path, 2, pipeline, spec, batch=4).train(input_fn, steps=1)
    got = harness.saved(tmp_path, 1)["t"]
    # For each use of a row (1 and 3 have two): SGD at rate 8, 4 elements per core, mean of 2 cores.
    np.testing.assert_allclose(got[:, 0], -8 / 4 / 2 * np.array([1, 2, 1, 2, 0]))


def test_hooks_fire_once_a_loop_and_the_log_counts_its_steps(tmp_path, monkeypatch, said):
    monkeypatch.setattr(progress, "_SECONDS_BETWEEN_LINES", 0.0)  # Each loop logs, and the end.
    hook, of_spec = (harness.Reads(v1.train.get_global_step) for _ in range(2))
    model_fn = one_weight(training_hooks=[of_spec])
    run = {"log_step_count_steps": 3, "save_summary_steps": 3, "save_checkpoints_secs": None}
    estimator = make(model_fn, tmp_path, 2, batch=4, run=run, tpu={"iterations_per_loop": 3})
    estimator.train(numbers(1, 2, 30, 40), steps=7, hooks=[hook])
    assert hook.seen == of_spec.seen == [3, 6, 7]
    speeds = [step for step, of in harness.summaries(tmp_path).items() if "examples/sec" in of]
    assert speeds == [6, 7]  # After each loop. The first loop starts the clock.
    steps = [line.split(",")[0] for line in said() if line.startswith("step ")]
    assert steps == ["step 3 of 7", "step 6 of 7", "step 7 of 7", "step 7 of 7"]


def test_a_variable_of_an_rnn_is_read_after_the_step(tmp_path):
    def model_fn(features, labels, mode, params):
        cell = v1.nn.rnn_cell.BasicRNNCell(1, tf.identity)
        (y,), _ = v1.nn.static_rnn(cell, [features[:, None]], dtype=tf.float32)
        spec, (_, bias) = harness.minimized(mode, tf.reduce_sum(y)), v1.trainable_variables()
        with tf.control_dependencies([spec.train_op]):
            return spec._replace(train_op=v1.get_variable("seen", [1]).assign(bias).op)

    make(model_fn, tmp_path, 2, batch=4).train(numbers(1, 2, 3, 4), steps=1)
    assert harness.saved(tmp_path, 1)["seen"] == -2  # Each core has 2 samples, of slope 1.


def test_iterations_per_loop_may_be_a_duration(tmp_path):
    hook, run = harness.Reads(v1.train.get_global_step), {**harness.SILENT, "save_summary_steps": 1}
    estimator = make(one_weight(), tmp_path, 1, batch=4, tpu={"iterations_per_loop": "1h"}, run=run)
    estimator.train(numbers(1, 2, 30, 40), max_steps=50, hooks=[hook])
    # The first loop has one step. All further steps fit into an hour.
    assert hook.seen == [1, 50]
    assert harness.summaries(tmp_path)[1]["loss"] == 73  # 1 * (1 + 2 + 30 + 40)


def test_evaluation_is_one_loop_and_returns_the_loss_of_core_0(tmp_path):
    """A TPU returns the loss of its first core, too: here 1 + 2 in step 1, and 5 + 6 in step 2."""
    hook = harness.Reads(lambda: [v1.train.get_global_step(), *v1.trainable_variables()])
    estimator = make(one_weight(mean), tmp_path, 2, batch=4)
    metrics = estimator.evaluate(numbers(1, 2, 30, 40, 5, 6, 70, 80), steps=2, hooks=[hook])
    assert hook.seen == [[0, 1]]  # One loop calls hooks once. The only trainable variable is w.
    # The mean is over all 8 numbers, of both cores and steps.
    assert metrics == {"loss": (3 + 11) / 2, "mean": (3 + 70 + 11 + 150) / 8, "global_step": 0}


def test_host_call_gets_the_tensors_of_all_cores_each_step_or_each_nth(tmp_path):
    received = []

    def receive(x, loss):
        received.append((x.tolist(), loss.tolist()))
        return np.float32(0)

    def head(features, loss):
        def host_fn(x, loss):
            return [tf.numpy_function(receive, [x, loss], tf.float32)]

        return {"host_call": (host_fn, {"x": features, "loss": loss[None]})}

    estimator = unsaved(one_weight(head), tmp_path, 2, batch=2)
    estimator.train(numbers(0, 0, 1, 3, 0, 0), steps=3)
    # Numbers and losses of both cores. In step 2 w is still 1, because the numbers of step 1 are 0.
    assert received == [([0, 0], [0, 0]), ([1, 3], [1, 3]), ([0, 0], [0, 0])]
    estimator.evaluate(numbers(5, 6, 7, 8), steps=2)  # One loop of two steps.
    assert received[3:] == [([5, 6], [5, 6]), ([7, 8], [7, 8])]
    received.clear()
    every_second = {"iterations_per_loop": 5, "experimental_host_call_every_n_steps": 2}
    estimator = unsaved(one_weight(head), tmp_path / "every", 2, batch=2, tpu=every_second)
    estimator.train(numbers(0, 0, 1, 0, 2, 0, 3, 0, 4, 0), steps=5)
    assert [x for x, _ in received] == [[0, 0], [2, 0], [4, 0]]  # Steps 1, 3 and 5.


def test_refuses_a_scalar_of_host_call(tmp_path):
    model = one_weight(lambda features, loss: {"host_call": (lambda loss: [loss], [loss])})
    given = unsaved(model, tmp_path, 1).train, numbers(0)
    assert "should preserve batch size" in harness.refusal(RuntimeError, *given, steps=1)


def sliced(rows, samples, size):
    """Returns the rows that stock yields: all of a full batch, else as many as its samples."""
    padding = tf.cast(tf.range(size) >= samples, tf.int32)
    signals = {"padding_mask": padding, "stopping": tf.fill([size, 1], False)}
    return tpu_estimator._PaddingSignals.slice_tensor_or_dict(tf.constant(rows), signals).numpy()


@pytest.mark.parametrize("pipeline", [PIPELINES.PER_HOST_V1, PIPELINES.PER_HOST_V2])
@pytest.mark.parametrize("cores", [2, *(harness.slow(n) for n in (1, 4))])
def test_predicted_rows_that_are_not_samples_are_sliced_like_samples(cores, pipeline, tmp_path):
    """10 samples make two batches of 4 and one of 2, padded to 4 samples."""

    def model_fn(features, labels, mode, params):
        v1.get_variable("w", initializer=1.0)
        predictions = {  # A row for each sample, a row for each core, and two for each sample.
            "x": features["x"] * 2.0,
            "core": tf.reshape(tf.reduce_max(features["x"]), [1]),
            "pairs": tf.reshape(tf.stack([features["x"]] * 2, 1) + [[0.0], [0.5]], [-1]),
        }
        return ee.TPUEstimatorSpec(mode, predictions=predictions)

    def input_fn(params):
        xs = np.arange(10, dtype=np.float32)[:, None]
        return tf.data.Dataset.from_tensor_slices({"x": xs}).batch(params["batch_size"])

    estimator = make(model_fn, tmp_path, cores, pipeline, batch=4)
    got = list(estimator.predict(input_fn, yield_single_examples=False))
    assert len(got) == 3
    for batch, predictions in enumerate(got):
        x = np.float32([[4 * batch + row] for row in range(4)])
        samples = min(4, 10 - 4 * batch)
        x[samples:] = 0  # Padding.
        if pipeline is PIPELINES.PER_HOST_V2:
            # A core without a batch gets the first batch again, 0 to 4 // cores - 1.
            for start in range(0, 4, 4 // cores):
                if start >= samples:
                    x[start : start + 4 // cores, 0] = range(4 // cores)
        rows = {
            "x": x * 2,
            "core": x.reshape(cores, -1).max(1),
            "pairs": (x + np.float32([[0, 0.5]])).reshape(-1),
        }
        assert predictions.keys() == rows.keys()
        for name, value in rows.items():
            np.testing.assert_array_equal(
                predictions[name], sliced(value, samples, 4), name, strict=True
            )
    if cores > 1:  # Rows that are not samples cannot be yielded one by one.
        message = harness.refusal(ValueError, list, estimator.predict(input_fn))
        assert message.startswith("Batch length of predictions should be same.")


def test_prediction_fills_up_a_batch_and_a_step():
    """A batch of 3 samples gets a sample without ids. Core 1 may get the first batch, not real."""
    ids, real = tf.ragged.constant([[5], [6, 7], [8]]), []
    given = tf.data.Dataset.from_tensors({"ragged": ids, "sparse": ids.to_sparse()}).repeat(2)
    for batch in emulated_input._filled_up(given, 4, 2):
        real.append(batch["real"].numpy().tolist())
        filled = batch["features"]
        assert filled["ragged"].to_list() == [[5], [6, 7], [8], []]
        assert tf.RaggedTensor.from_sparse(filled["sparse"]).to_list() == filled["ragged"].to_list()
    assert real == [[True] * 3 + [False]] * 2 + [[False] * 4]


def test_predict_refuses_tensors_and_a_batch_axis(tmp_path):
    predicted = make(one_weight(), tmp_path, 1).predict(lambda params: tf.zeros([12]))
    assert harness.refusal(TypeError, next, predicted) == (
        "For mode PREDICT, `input_fn` must return `Dataset` instead of `features` and `labels`."
    )
    predicted = make(one_weight(), tmp_path, 2, batch_axis=[0, 0]).predict(numbers(0))
    message = "For mode PREDICT, batch_axis is not supported yet."
    assert harness.refusal(TypeError, next, predicted) == message
    predicted = make(one_weight(), tmp_path, 2, batch=4).predict(
        lambda params: numbers(*range(5))({"batch_size": 5})
    )
    message = "A batch of input_fn has more than 4 samples."
    assert harness.refusal(ValueError, next, predicted).startswith(message)


def test_predict_refuses_an_estimator_spec_and_rows_of_unknown_number(tmp_path):
    def model_fn(features, labels, mode, params):
        return spec(mode, predictions={"y": tf.boolean_mask(features, features > -1)})

    spec = ee.EstimatorSpec
    predict = make(model_fn, tmp_path, 2).predict
    message = harness.refusal(RuntimeError, next, predict(numbers(0)))
    assert message.startswith("estimator_spec used by TPU prediction must have type`TPUEstimator")
    spec = ee.TPUEstimatorSpec
    assert "predictions has dynamic shape" in harness.refusal(ValueError, next, predict(numbers(0)))


def test_a_variable_that_becomes_nan_stops_training(tmp_path):
    """Stock's message names a gradient, although its check reads the variable after a step."""

    def model_fn(features, labels, mode, params):
        w = v1.get_variable("w", initializer=1.0)
        # The slope is 1 / 0. So step 1 makes w -infinity, and step 2 makes loss and w NaN.
        return harness.minimized(mode, tf.reduce_sum(features) + tf.sqrt(w - 1.0))

    with pytest.raises(tf.errors.InvalidArgumentError, match="Gradient for w:0 is NaN"):
        unsaved(model_fn, tmp_path, 1).train(numbers(0), steps=2)


@pytest.mark.parametrize("control_flow", ["v1"], indirect=True)  # Only there stock checks it.
def test_cross_shard_optimizer_is_required_on_two_cores(control_flow, tmp_path):
    def model_fn(features, labels, mode, params):
        loss = tf.reduce_sum(features) * v1.get_variable("w", initializer=1.0)
        descent = v1.train.GradientDescentOptimizer(1.0)
        train_op = descent.minimize(loss, v1.train.get_global_step())
        return ee.TPUEstimatorSpec(mode, loss=loss, train_op=train_op)

    unsaved(model_fn, tmp_path / "one", 1).train(numbers(0), steps=1)
    on_two = unsaved(model_fn, tmp_path, 2)
    message = harness.refusal(ValueError, on_two.train, numbers(0), steps=1)
    assert message == "CrossShardOptimizer must be used for model training on TPUs."


def test_tables_need_per_host_input(tmp_path):
    assert harness.refusal(ValueError, make, model_fn, tmp_path, 2, PIPELINES.BROADCAST, SPEC) == (
        "Only PER_HOST_V1 and PER_HOST_V2 is supported when using TPU Embedding; got "
        f"{PIPELINES.BROADCAST}."
    )


@pytest.mark.parametrize("kernels", ["tensorflow"], indirect=True)
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
    made = unsaved(harness.gradient_model_fn(["x"]), tmp_path, 2, spec=spec)
    message = "Feature x of table t has 2 samples, but the batch size is 12."  # `make`'s default.
    with pytest.raises(ValueError if known else tf.errors.InvalidArgumentError, match=message):
        made.train(input_fn, steps=1)


def test_evaluation_on_cpu_gets_the_whole_batch(tmp_path):
    """`eval_on_tpu=False`: model_fn gets the whole batch of 12, the default of `make`."""
    seen = []

    def model_fn(features, labels, mode, params):
        seen.append((features.shape.as_list()[0], params["use_tpu"]))
        return one_weight()(features, labels, mode, params)

    estimator = make(model_fn, tmp_path, 2, eval_on_tpu=False)
    assert estimator.evaluate(numbers(1, 2, 3), steps=1)["loss"] == 24  # 4 * (1 + 2 + 3)
    assert seen == [(12, False)]


def test_ignored_options_are_logged_once(tmp_path, said):
    options = {"initial_infeed_sleep_secs": 3, "tpu_job_name": "x"}
    for _ in range(2):
        make(model_fn, tmp_path, 2, tpu=options)
    ignored = [f"TPUConfig: {name} has no meaning where a TPU is emulated." for name in options]
    assert said() == ignored
    make(model_fn, tmp_path, 2, spec=SPEC._replace(profile_data_directory="/profile"))
    assert said()[-1].startswith("profile_data_directory: lookup statistics come fr")


def by(optimizer):
    def train(loss, variables):
        return optimizer().minimize(loss, v1.train.get_global_step(), var_list=variables)

    return train


def sgd():
    return v1.train.GradientDescentOptimizer(0.1)


def by_keras(loss, variables):
    optimizer = tf.keras.optimizers.legacy.SGD(0.1)
    optimizer.iterations = v1.train.get_global_step()
    return tf.group(optimizer.get_updates(loss, variables))


def by_hand(loss, variables):
    gradients = [v1.tpu.cross_replica_sum(one) for one in tf.gradients(loss, variables)]
    pairs = zip(gradients, variables, strict=True)
    return v1.train.AdamOptimizer().apply_gradients(pairs, v1.train.get_global_step())


def assigned(loss, variables):
    pairs = zip(variables, tf.gradients(loss, variables), strict=True)
    updates = [variable.assign_sub(gradient) for variable, gradient in pairs]
    return tf.group(*updates, v1.train.get_global_step().assign_add(1))


TRAINED = {
    "CrossShardOptimizer": by(lambda: v1.tpu.CrossShardOptimizer(sgd())),
    "cross_replica_sum": by_hand,
    "v1": by(sgd),
    "v1, slots": by(lambda: v1.train.MomentumOptimizer(0.1, 0.9)),
    "Keras": by_keras,
    "assigned": assigned,
}
FIVE = "dense/0, dense/1, dense/2 and 2 more"


@pytest.mark.fast(2)
@pytest.mark.parametrize(
    # train: of TRAINED. dense: the number of the model's variables. tables: whether the model also
    # reads a table, whose gradients need no optimizer. names: in the warning, or None for none.
    ("train", "cores", "dense", "tables", "names"),
    [
        ("v1", 2, 5, False, FIVE),
        ("v1, slots", 2, 5, False, FIVE),
        ("Keras", 2, 5, False, FIVE),
        ("assigned", 2, 5, False, FIVE),
        ("v1", 2, 1, True, "dense/0"),
        ("v1", 1, 5, False, None),
        ("v1", 2, 0, True, None),
        ("CrossShardOptimizer", 2, 5, False, None),
        ("CrossShardOptimizer", 2, 5, True, None),
        ("cross_replica_sum", 2, 5, False, None),
    ],
)
def test_warns_of_gradients_that_are_not_summed(
    train, cores, dense, tables, names, tmp_path, caplog
):
    def model_fn(features, labels, mode, params):
        named = [f"dense/{number}" for number in range(dense)]
        variables = [v1.get_variable(name, [], use_resource=True) for name in named]
        loss = tf.reduce_sum(labels) * tf.add_n([tf.constant(1.0), *variables])
        if tables:
            loss += tf.reduce_sum(features["x"])
            variables = None  # The optimizer finds them.
        decayed = v1.get_variable("decayed", [])
        # This update depends on no input, so it is the same on all cores.
        train_op = tf.group(TRAINED[train](loss, variables), decayed.assign(0.9 * decayed))
        return ee.TPUEstimatorSpec(mode, loss=loss, train_op=train_op)

    spec = harness.table_spec(4, 2, ee.AdagradParameters(0.1)) if tables else None
    batch = {"x": np.ones([4], np.int64)}, np.ones([4], np.float32)
    estimator = unsaved(model_fn, tmp_path, cores, spec=spec, batch=4)
    estimator.train(harness.input_fn_of([batch]), steps=1)
    said = harness.said(caplog)
    assert len(said) == bool(names)
    if names:
        lost = f"2 cores share the batch, and the gradients of {names} are not summed over them"
        assert lost in said[0]
