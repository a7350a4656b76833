"""A training ends before it saves weights or slots that became NaN or infinite."""

import harness
import numpy as np
import pytest
import servers
import tensorflow as tf
from harness import dataset, minimized

import estimator_emb as ee

v1 = tf.compat.v1
pytestmark = pytest.mark.usefixtures("installed")
NAN, INF = float("nan"), float("inf")
X = np.array([[1.0, 2, 3], [4, 6, 5], [2, 0, 1], [1, 1, 9]], np.float32)
BAD = np.where(np.arange(12).reshape(4, 3) == 7, NAN, X).astype(np.float32)
SLOW = [pytest.param(kind, marks=pytest.mark.slow) for kind in ("local", "emulated")]
of_each_kind = pytest.mark.parametrize("kind", ["plain", *SLOW])
REMEDY = (
    "Correct the data, or fill in what is missing before the model computes with it: a tf.where "
    "around a result keeps NaN out of the loss, but not out of the gradients."
)
EVERY_TWO = {**harness.SILENT, "save_checkpoints_steps": 2}


def masked(y):
    """Keeps NaN out of the loss but not out of gradients, as a fused ReLU does on some CPUs."""
    return tf.where(tf.math.is_finite(y), y, tf.zeros_like(y))


def linear(x):
    w = v1.get_variable("w", [3, 1], initializer=v1.zeros_initializer())
    return masked(x @ w)


def make(kind, model_dir, outputs=linear, run=EVERY_TWO):
    """Returns an estimator of the model `outputs(x)`, trained by Adagrad."""

    def model(features, labels, mode, spec):
        loss = tf.reduce_mean(tf.square(outputs(features["x"]) - labels))
        optimizer = v1.train.AdagradOptimizer(0.1)
        if kind == "emulated":
            optimizer = v1.tpu.CrossShardOptimizer(optimizer)
        return spec(mode, loss=loss, train_op=optimizer.minimize(loss, v1.train.get_global_step()))

    return harness.of_kind(kind, model, model_dir, run=run)


def input_of(*batches):
    return lambda params=None: dataset([({"x": x}, X[:, :1]) for x in batches])


def failure(estimator, input_fn, **kwargs):
    with pytest.raises(v1.train.NanLossDuringTrainingError) as caught:
        estimator.train(input_fn, **kwargs)
    assert isinstance(caught.value, tf.errors.InvalidArgumentError)
    return str(caught.value).split("\n  ")


def begin(step):
    return f"NaN or infinity in the model after step {step}, which is not saved:"


def newest(directory, step):
    return f"The newest checkpoint is {directory}/model.ckpt-{step}, from which training continues."


AGE = "features['x']: nan in sample 2, at [2, 1], and 1 such of 12 numbers"
W = "variable w:0: NaN in 1 of 3 numbers (Gradient for w:0 is NaN)"
SLOT = "variable w/Adagrad:0: NaN in 1 of 3 numbers"


@of_each_kind
def test_the_last_good_checkpoint_is_kept(kind, tmp_path):
    estimator = make(kind, tmp_path)
    at_once = kind == "emulated"  # Dense weights are checked after each session call.
    lines = failure(estimator, input_of(X, X, BAD, X, X, BAD), max_steps=6)
    assert lines == [
        begin(3 if at_once else 4),
        W,
        *([] if at_once else [SLOT]),
        f"{'its last' if at_once else 'a later'} batch has {AGE}",
        REMEDY,
        newest(tmp_path, 2),
    ]
    assert all(np.isfinite(value).all() for value in harness.saved(tmp_path, 2).values())
    estimator.train(input_of(X, X), max_steps=4)
    assert harness.last_step(tmp_path) == 4


@of_each_kind
def test_nan_without_a_bad_batch_gets_advice(kind, tmp_path):
    def outputs(x):
        return linear(tf.where(tf.equal(v1.train.get_global_step(), 2), x * NAN, x))

    lines = failure(make(kind, tmp_path, outputs), input_of(X, X, X), max_steps=3)
    assert lines == [
        begin(3),
        W.replace("1 of", "3 of"),
        *([] if kind == "emulated" else [SLOT.replace("1 of", "3 of")]),
        "Look for NaN in the input (features['x'], labels), and for a learning rate that is too "
        "high. With save_checkpoints_steps=1, training ends at the first such step.",
        newest(tmp_path, 2),
    ]


@pytest.mark.parametrize("bad", [False, True])
def test_a_float16_sum_may_overflow(bad, tmp_path):
    """65,536 values of 1 are fine, although their sum overflows. A NaN among them is an error."""

    def outputs(x):
        half = v1.get_variable(
            "half", [1 << 16], tf.float16, v1.ones_initializer(), trainable=False
        )
        value = tf.where(tf.reduce_sum(x) > 1000.0, np.float16(NAN), np.float16(1.0))
        with tf.control_dependencies([half.assign(tf.fill([1 << 16], value))]):
            return linear(tf.minimum(x, 1.0))

    estimator = make("plain", tmp_path, outputs)
    batches = input_of(X, X + 1000.0 if bad else X)
    if bad:
        lines = failure(estimator, batches, max_steps=2)
        assert lines[:2] == [begin(2), "variable half:0: NaN in 65,536 of 65,536 numbers"]
    else:
        estimator.train(batches, max_steps=2)
        assert harness.last_step(tmp_path) == 2


@pytest.mark.parametrize("saves", ["none", "program's hook"])
def test_weights_are_checked_at_the_end_of_a_training(saves, tmp_path):
    run = {**harness.SILENT, "save_checkpoints_steps": None, "save_checkpoints_secs": None}
    hooks = []
    if saves != "none":
        hooks = [v1.train.CheckpointSaverHook(str(tmp_path), save_steps=1)]
    estimator = make("plain", tmp_path, run=run)
    lines = failure(estimator, input_of(X, BAD), hooks=hooks, max_steps=2)
    assert lines[:3] == [begin(2), W, SLOT]
    assert harness.last_step(tmp_path) == (0 if saves == "none" else 1)


def test_nan_in_a_partitioned_variable_is_named(tmp_path):
    def outputs(x):
        partitioner = v1.fixed_size_partitioner(3)
        w = v1.get_variable("w", [3, 1], partitioner=partitioner)
        return masked(x @ tf.convert_to_tensor(w))

    lines = failure(make("plain", tmp_path, outputs), input_of(BAD, X), max_steps=2)
    assert lines[:4] == [
        begin(2),
        "variable w/part_1:0: NaN in 1 of 1 numbers (Gradient for w/part_1:0 is NaN)",
        "variable w/part_1/Adagrad:0: NaN in 1 of 1 numbers",
        "Look for NaN in the input (features['x'], labels), and for a learning rate that is too "
        "high. With save_checkpoints_steps=1, training ends at the first such step.",
    ]


@pytest.mark.parametrize("reference", [False, True])
def test_nan_in_a_looked_up_variable_is_named(reference, tmp_path):
    def outputs(x):
        table = v1.get_variable("table", [9, 2], use_resource=not reference)
        rows = tf.nn.embedding_lookup(table, tf.range(4))
        return masked(tf.reduce_sum(rows, 1, keepdims=True) * x[:, 1:2])

    lines = failure(make("plain", tmp_path, outputs), input_of(BAD, X), max_steps=2)
    assert lines[:3] == [
        begin(2),
        "variable table:0: NaN in 2 of 18 numbers (Gradient for table:0 is NaN)",
        "variable table/Adagrad:0: NaN in 2 of 18 numbers",
    ]


@pytest.mark.parametrize(
    "way", ["host", *(pytest.param(way, marks=pytest.mark.slow) for way in ("2 cores", "servers"))]
)
def test_nan_in_tables_and_slots_is_named(way, tmp_path):
    def model_fn(features, labels, mode, params):
        return minimized(mode, tf.reduce_sum(masked(features["x"] * labels["x"])))

    def batch(of_row):
        labels = np.ones([4, 2], np.float32)
        labels[2] = of_row
        return {"x": np.arange(4)}, {"x": labels}

    spec = harness.table_spec(9, 2, ee.AdagradParameters(0.1, 0.1))
    config = servers.config_of(way, tmp_path, **EVERY_TWO)
    estimator = harness.configured(model_fn, spec, config, use_tpu=way == "2 cores")
    batches = [batch(1), batch(1), batch([1, NAN]), batch(1), batch([1, NAN])]
    lines = failure(estimator, lambda params: dataset(batches), max_steps=4)
    label = "labels['x'] of core 1: nan in sample 0, at [0, 1], and 1 such of 4 numbers"
    if way != "2 cores":
        label = "labels['x']: nan in sample 2, at [2, 1], and 1 such of 8 numbers"
    assert lines == [
        begin(4),
        "table 't' (features 'x'): NaN in 1 of 9 rows, ids 2",
        "slot t/Adagrad of table 't': NaN in 1 of 9 rows, ids 2",
        f"a later batch has {label}",
        REMEDY,
        newest(tmp_path, 2),
    ]


def mask_of_infinity(x):
    mask = v1.get_variable("mask", [3], initializer=v1.constant_initializer([0, -INF, 0]))
    return linear(x) + tf.reduce_sum(tf.exp(mask))


def least_so_far(x):
    least = v1.get_variable(
        "least", [2], initializer=v1.constant_initializer([INF, INF]), trainable=False
    )
    with tf.control_dependencies([least.assign(tf.minimum(least, [INF, tf.reduce_min(x)]))]):
        return linear(tf.identity(x))


def metric_of_nothing(x):
    _, update = v1.metrics.mean(x * NAN)
    with tf.control_dependencies([update]):
        return linear(tf.identity(x))


def large_halves(x):
    half = v1.get_variable(
        "half", [99], tf.float16, v1.constant_initializer(60000), trainable=False
    )
    with tf.control_dependencies([half.assign(half - 32)]):
        return linear(tf.identity(x))


def counter(x):
    seen = v1.get_variable("seen", [], tf.int32, v1.zeros_initializer(), trainable=False)
    with tf.control_dependencies([seen.assign_add(1)]):
        return linear(tf.identity(x))


@pytest.mark.fast(3)
@of_each_kind
@pytest.mark.parametrize(
    "outputs", [mask_of_infinity, least_so_far, metric_of_nothing, large_halves, counter]
)
def test_intended_infinity_and_nan_train(kind, outputs, tmp_path, caplog):
    if kind == "emulated" and outputs in (mask_of_infinity, metric_of_nothing):
        pytest.skip("A TPU refuses a trainable mask of -inf, and metrics.")
    make(kind, tmp_path, outputs).train(input_of(X, X, X, X), max_steps=4)
    assert harness.last_step(tmp_path) == 4
    assert [line for line in harness.said(caplog) if "NaN" in line] == []


def test_nan_written_by_a_hook_is_allowed(tmp_path):
    class Writes(v1.train.SessionRunHook):
        def begin(self):
            (self.variable,) = (one for one in v1.global_variables() if one.op.name == "kept")
            self.write = self.variable.assign([NAN, INF])

        def after_run(self, run_context, run_values):
            run_context.session.run(self.write)

    def outputs(x):
        v1.get_variable("kept", [2], trainable=False)
        return linear(x)

    make("plain", tmp_path, outputs).train(input_of(X, X), hooks=[Writes()], max_steps=2)
    assert np.isnan(harness.saved(tmp_path, 2)["kept"][0])


@of_each_kind
def test_a_training_that_begins_with_nan_warns(kind, tmp_path, caplog):
    def outputs(x):
        w = v1.get_variable("w", [3, 1], initializer=v1.constant_initializer([[1], [NAN], [1]]))
        return masked(x @ w)

    if kind == "emulated":
        pytest.skip("As on a TPU, such a training ends after its first session call.")
    make(kind, tmp_path, outputs).train(input_of(X, X), max_steps=2)
    assert [line for line in harness.said(caplog) if "NaN" in line] == [
        "Training begins with weights that are NaN, which no step mends:\n  "
        f"{W}\n  Begin from an older checkpoint, or correct what gives them these values."
    ]


@pytest.mark.fast(1)
@pytest.mark.parametrize("canned", ["DNNRegressor", "DNNLinearCombinedRegressor"])
def test_nan_in_a_canned_estimator_is_named(canned, tmp_path):
    columns = [tf.feature_column.numeric_column("x", 3)]
    of_class = {
        "DNNRegressor": {"feature_columns": columns},
        "DNNLinearCombinedRegressor": {
            "linear_feature_columns": [tf.feature_column.numeric_column("z")],
            "dnn_feature_columns": columns,
        },
    }
    units = "hidden_units" if canned == "DNNRegressor" else "dnn_hidden_units"
    activation = "activation_fn" if canned == "DNNRegressor" else "dnn_activation_fn"
    estimator = getattr(tf.estimator, canned)(
        **{**of_class[canned], units: [5], activation: lambda y: tf.nn.relu(masked(y))},
        config=tf.estimator.RunConfig(model_dir=str(tmp_path), **EVERY_TWO),
    )
    z = np.ones([4, 1], np.float32)
    batches = [({"x": x, "z": z}, X[:, :1]) for x in (X, X, BAD, X, BAD)]
    lines = failure(estimator, lambda: dataset(batches), max_steps=4)
    kernel = "dnn/hiddenlayer_0/kernel"
    assert lines[:2] == [
        begin(4),
        f"variable {kernel}:0: NaN in 5 of 15 numbers (Gradient for {kernel}:0 is NaN)",
    ]
    assert lines[2].endswith("kernel/accumulator:0: NaN in 5 of 15 numbers")
    assert lines[3:] == [f"a later batch has {AGE}", REMEDY, newest(tmp_path, 2)]
    assert harness.last_step(tmp_path) == 2


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["plain", "local", "emulated"])
def test_nan_hidden_by_a_fused_relu_is_found(kind, tmp_path):
    """A ReLU fused by oneDNN drops NaN. Elsewhere the loss is NaN, also with an error."""

    def outputs(x):
        return v1.layers.dense(v1.layers.dense(x, 8, tf.nn.relu), 1)

    lines = failure(make(kind, tmp_path, outputs), input_of(X, X, BAD, X, BAD, X), max_steps=5)
    assert any("features['x']: nan in sample 2, at [2, 1]" in line for line in lines)
    assert all(np.isfinite(value).all() for value in harness.saved(tmp_path, 2).values())
