"""A NaN loss is explained. NaN or infinity in what is trained is not saved. All else trains on."""

import harness
import numpy as np
import pytest
import tensorflow as tf
from harness import dataset, minimized, table_spec
from small_programs import X, each_kind

import estimator_emb as ee
from estimator_emb.errors import NanLossError
from estimator_emb.guards import numbers

v1 = tf.compat.v1
pytestmark = pytest.mark.usefixtures("installed")
NAN, INF = float("nan"), float("inf")
BAD = np.where(np.arange(12).reshape(4, 3) == 7, NAN, X).astype(np.float32)  # At [2, 1].
BAD_X = "features['x']: nan in sample 2, at [2, 1], and 1 such of 12 numbers"
W = "variable w:0: NaN in 1 of 3 numbers (Gradient for w:0 is NaN)"  # As BAD makes w[1].
NO_INPUT = "No feature and no label of this step holds NaN or infinity: the model made it."
EVERY_TWO = {**harness.SILENT, "save_checkpoints_steps": 2}


def masked(y):
    """Keeps NaN out of the loss but not out of gradients, as a fused ReLU does on some CPUs."""
    return tf.where(tf.math.is_finite(y), y, tf.zeros_like(y))


def linear(x):
    return x @ v1.get_variable("w", [3, 1], initializer=v1.zeros_initializer())


def make(kind, model_dir, outputs, run=EVERY_TWO, optimizer=None):
    """Returns an estimator of the model `outputs(x)`, trained by Adagrad."""

    def model(features, labels, mode, spec):
        loss = tf.reduce_mean(tf.square(outputs(features["x"]) - labels))
        trains = (optimizer or v1.train.AdagradOptimizer)(0.1)
        if kind == "emulated":
            trains = v1.tpu.CrossShardOptimizer(trains)
        return spec(mode, loss=loss, train_op=trains.minimize(loss, v1.train.get_global_step()))

    return harness.of_kind(kind, model, model_dir, run=run)


def input_of(*batches):
    return lambda params=None: dataset([({"x": x}, X[:, :1]) for x in batches])


def failure(estimator, input_fn, **kwargs):
    """Asserts that a training raises NanLossError. Returns the message's lines, without indents."""
    with pytest.raises(v1.train.NanLossDuringTrainingError) as caught:
        estimator.train(input_fn, **kwargs)
    assert isinstance(caught.value, NanLossError)
    assert isinstance(caught.value, tf.errors.InvalidArgumentError)
    return str(caught.value).split("\n  ")


def not_saved(step):
    return f"NaN or infinity in the model after step {step}, which is not saved:"


@each_kind
def test_a_nan_feature_is_named_and_the_last_checkpoint_stays(kind, tmp_path):
    estimator = make(kind, tmp_path, linear)
    lines = failure(estimator, input_of(X, X, BAD, X), max_steps=4)
    where = "A batch up to step 3 has" if kind == "emulated" else "The batch of step 3 has"
    assert lines[:2] == [f"NaN loss during training. {where}", BAD_X]
    assert all(np.isfinite(value).all() for value in harness.saved(tmp_path, 2).values())
    estimator.train(input_of(X), max_steps=3)
    assert harness.last_step(tmp_path) == 3


@pytest.mark.parametrize("pipelined", [harness.slow(False), True])
def test_a_nan_feature_is_named_beside_a_table(pipelined, native, tmp_path):
    def model_fn(features, labels, mode, params):
        return minimized(mode, tf.reduce_sum(features["x"]) * tf.reduce_sum(features["age"]))

    optimizer = ee.AdagradParameters(0.1, 0.1)
    spec = table_spec(4, 2, optimizer, pipeline_execution_with_tensor_core=pipelined)
    batches = [({"x": np.arange(4), "age": x}, X[:, 0]) for x in (X, BAD, X)]
    estimator = harness.estimator(model_fn, spec, tmp_path, run=harness.SILENT)
    lines = failure(estimator, lambda params: dataset(batches))
    begin = "NaN loss during training. The batch of step 2 has"
    assert lines[:2] == [begin, BAD_X.replace("'x'", "'age'")]


def test_nan_labels_of_a_core_are_named(tmp_path):
    def model_fn(features, labels, mode, params):
        return minimized(mode, v1.get_variable("w", []) * tf.reduce_sum(labels))

    estimator = harness.estimator(model_fn, None, tmp_path, num_shards=2)
    labels = np.array([1, 1, 1, NAN], np.float32)  # The last two are of core 1.
    lines = failure(estimator, lambda params: dataset([({"x": X}, labels)]), max_steps=1)
    assert lines[0] == not_saved(1)  # The save of this step comes first.
    assert "labels of core 1: nan in sample 1, at [1], and 1 such of 2 numbers" in lines


def test_nan_in_sparse_and_ragged_features_is_located(tmp_path):
    sparse = harness.sparse([[5, 1, 0], [1, 1, 1], [2, 3, NAN], [0, 0, 0]], np.float32)
    rows = [[[1.0], [2.0], [1.0]], [], [[2.0], [3.0], [NAN]], []]  # Of lists of one number.
    ragged = v1.ragged.constant_value(rows, np.float32, ragged_rank=1)

    def outputs(x):
        of_ragged = tf.squeeze(x["ragged"].to_tensor(), -1)
        return linear(v1.sparse_tensor_to_dense(x["sparse"]) + of_ragged)

    batch = {"sparse": sparse, "ragged": ragged}
    lines = failure(make("plain", tmp_path, outputs), input_of(batch))
    places = {"sparse": [2, 2], "ragged": [2, 2, 0]}
    for line, (name, place) in zip(lines[1:3], places.items(), strict=True):
        assert line.startswith(f"features['x']['{name}']: nan in sample 2, at {place}, and 1 such")


def test_five_bad_features_are_named_without_a_number_of_others(tmp_path):
    batch = dict.fromkeys("abcde", BAD)
    estimator = make("plain", tmp_path, lambda x: linear(tf.add_n([x[key] for key in batch])))
    _, *named, advice = failure(estimator, input_of(batch))
    assert named == [BAD_X.replace("'x'", f"'x']['{key}'") for key in batch]
    assert advice.startswith("Correct the data")


def test_a_nan_loss_in_an_evaluation_is_a_warning(tmp_path, caplog):
    assert np.isnan(make("plain", tmp_path, linear).evaluate(input_of(X, BAD, BAD))["loss"])
    (line,) = [line for line in harness.said(caplog) if "NaN" in line]  # Once for two batches.
    begin = f"NaN loss in an evaluation after step 0: a batch has\n  {BAD_X}\n  Correct the data"
    assert line.startswith(begin)


def test_nan_of_the_model_names_ops_and_five_variables(tmp_path):
    """Powers and quotients of constants are not named. They make no NaN of finite numbers."""

    def outputs(x):
        y = linear(x) + sum(v1.get_variable(f"v{one}", [1]) for one in range(3))
        for dtype in (tf.float32, tf.bfloat16, tf.complex64):
            of_dtype = tf.cast(y, dtype) ** tf.constant(2, dtype) / tf.constant(1, dtype)
            y += tf.cast(tf.math.real(of_dtype), y.dtype) ** tf.constant(0.0)
        return tf.sqrt(tf.math.log(-1.0 - y * y))  # NaN of a negative number.

    lines = failure(make("plain", tmp_path, outputs), input_of(X))
    assert lines[0] == "NaN loss during training."
    assert lines[1].startswith(f"{NO_INPUT} The op 'Mean' was made by {__file__}")
    assert "The op 'Log' was made by" in lines[2]
    assert lines[2].endswith("# NaN of a negative number.")
    assert lines[3].startswith("train_op = tf.group(train_op, tf.compat.v1.add_check_numerics_ops(")
    assert lines[4] == "After this step, these hold NaN or infinity:"
    # The lines above, five of eight variables (w, v0, v1, v2, their slots), and the last.
    assert len(lines) == 5 + 5 + 1 and lines[-1] == "and 3 more"


@pytest.mark.slow
def test_the_advised_add_check_numerics_ops_names_the_op_that_makes_nan(tmp_path):
    def checked(x):
        y = tf.sqrt(tf.math.log(-1.0 - linear(x) ** 2))
        with tf.control_dependencies([v1.add_check_numerics_ops()]):
            return tf.identity(y)

    with pytest.raises(tf.errors.InvalidArgumentError, match="Log:0 : Tensor had NaN"):
        make("plain", tmp_path, checked).train(input_of(X))


@pytest.mark.fast(1)
@pytest.mark.parametrize("dtype", [tf.float32, tf.bfloat16, tf.float64], ids=lambda one: one.name)
@pytest.mark.parametrize("cores", [None, 1])
def test_tables_are_named(cores, dtype, native, tmp_path):
    def model_fn(features, labels, mode, params):
        w = v1.get_variable("w", [3], dtype, initializer=v1.ones_initializer())
        labels = tf.bitcast(labels, tf.float32)  # Integers hide NaN from the check of the input.
        loss = tf.reduce_sum(labels) * tf.reduce_sum(tf.cast(w, tf.float32)[:2])  # Not w[2].
        return minimized(mode, loss + tf.reduce_sum(features["x"] * labels[:, None]), 0.1)

    spec = table_spec(10, 2, ee.StochasticGradientDescentParameters(1e10))
    # A label is the gradient of a sample's row. In the first step, rows 7 and 9 move by
    # 1e10 * 1e30, which is infinite in float32. In the second, row 1 and w[:2] become NaN.
    labels = np.array([[1e30, 1, 1, 1e30], [0, NAN, 0, 0]], np.float32).view(np.int32)
    batches = [({"x": np.array([7, 1, 2, 9])}, one) for one in labels]
    estimator = harness.estimator(model_fn, spec, tmp_path, num_shards=cores, run=harness.SILENT)
    assert failure(estimator, lambda params: dataset(batches), max_steps=2)[-2:] == [
        "table 't' (features 'x'): NaN in 1 of 10 rows, ids 1; infinity in 2 of 10 rows, ids 7, 9",
        "variable w:0: NaN in 2 of 3 numbers (Gradient for w:0 is NaN)",
    ]


def test_rows_are_numbered_over_all_shards_and_parts_of_a_table():
    """Another host has the first 100 rows. The search takes 16,384 rows at a time."""
    large, small = np.zeros([(1 << 14) + 2, 2]), np.zeros([6, 1])
    large[[0, -1], 1], small[:5] = NAN, INF  # Rows 100 to 16,485, and 16,486 to 16,491.
    ends = "infinity in 5 of 16,492 rows, ids 16486, 16487, 16488, 16489, 16490"
    said = f"NaN in 2 of 16,492 rows, ids 100, 16485; {ends}"
    assert numbers._rows_of([large, small], 100) == said
    assert numbers._rows_of([small[:5]], 0) == "infinity in 5 of 5 rows, ids 0, 1, 2, 3, 4"


@each_kind
def test_weights_are_not_saved_with_nan(kind, tmp_path):
    estimator = make(kind, tmp_path, lambda x: masked(linear(x)))
    lines = failure(estimator, input_of(X, X, BAD, X), max_steps=4)  # Saved after steps 2 and 4.
    assert lines[:3] == [not_saved(4), W, "variable w/Adagrad:0: NaN in 1 of 3 numbers"]
    path = f"{tmp_path}/model.ckpt-2"
    assert lines[-1] == f"The newest checkpoint is {path}, from which training continues."


def half(x):
    """Fills a variable with ones, whose sum overflows float16: no fault. A large x fills in NaN."""
    h = v1.get_variable("half", [1 << 16], tf.float16, v1.ones_initializer())
    value = tf.where(tf.reduce_sum(x) > 1000.0, np.float16(NAN), np.float16(1.0))
    with tf.control_dependencies([h.assign(tf.fill([1 << 16], value))]):
        return linear(tf.minimum(x, 1.0))


def parts_and_rows(x):
    w = v1.get_variable("w", [3, 1], partitioner=v1.fixed_size_partitioner(3))
    outputs = [masked(x @ tf.convert_to_tensor(w))]
    for name, is_resource in (("table", True), ("reference", False)):
        table = v1.get_variable(name, [9, 2], use_resource=is_resource)
        rows = tf.nn.embedding_lookup(table, tf.range(4))
        outputs.append(masked(tf.reduce_sum(rows, 1, keepdims=True) * x[:, 1:2]))
    return tf.add_n(outputs)


@pytest.mark.parametrize(
    "outputs, x, bad",  # bad: variable -> NaN in how many of its numbers.
    [
        (half, X + 1000.0, {"half": "65,536 of 65,536"}),
        # NaN at [2, 1] reaches the second part of w, and row 2 of both tables of 9 * 2 numbers.
        (parts_and_rows, BAD, {"w/part_1": "1 of 1", "table": "2 of 18", "reference": "2 of 18"}),
    ],
    ids=["half", "in parts and looked up"],
)
def test_each_kind_of_variable_is_checked(outputs, x, bad, tmp_path):
    """The first step, of X, is without fault. The second makes NaN."""
    said, *lines = failure(make("plain", tmp_path, outputs), input_of(X, x), max_steps=2)
    assert said == not_saved(2)
    for line, (name, count) in zip(lines[: len(bad)], bad.items(), strict=True):
        assert line.startswith(f"variable {name}:0: NaN in {count} numbers")


@pytest.mark.fast(1)
@pytest.mark.parametrize("cpus, added, reads", [(1, 0, 1), (2, 2, 10)])  # reads: at least.
def test_the_check_adds_few_ops_and_copies_nothing(cpus, added, reads, tmp_path):
    """One op reads 14 variables and their slots. With two CPU devices, each has its own read."""

    class Copies(v1.train.SessionRunHook):
        def begin(self):
            operations = v1.get_default_graph().get_operations()
            # The check is a Python function. No other takes so many inputs.
            (self.check,) = [op for op in operations if op.type == "PyFunc" and len(op.inputs) > 9]
            self.added = [op.type for op in operations if op.name.startswith("check_numbers/")]

        def end(self, session):
            options = v1.RunOptions(trace_level=v1.RunOptions.FULL_TRACE)
            metadata = v1.RunMetadata()
            session.run(self.check, options=options, run_metadata=metadata)
            nodes = [one for device in metadata.step_stats.dev_stats for one in device.node_stats]
            self.reads = [one for one in nodes if "ReadVariable" in one.timeline_label]

    def outputs(x):
        table = v1.get_variable("table", [9999, 2])
        y = linear(x) + sum(v1.get_variable(f"v{one}", [1]) for one in range(12))
        return y + tf.reduce_sum(tf.nn.embedding_lookup(table, [1, 2]))

    hook, devices = Copies(), v1.ConfigProto(device_count={"CPU": cpus})
    run = {**EVERY_TWO, "session_config": devices}
    make("plain", tmp_path, outputs, run).train(input_of(X, X), hooks=[hook])
    assert len(hook.reads) >= reads
    assert not sum(part.total_bytes for read in hook.reads for part in read.memory)  # No copies.
    # Of the table and its slot. A plain read would copy them, because single rows are updated.
    assert hook.added.count("ReadVariableOp") == added
    assert len(hook.added) < 20 and "All" not in hook.added  # One loss needs no reduction.


@pytest.mark.parametrize("cores", [None, harness.slow(2)])
def test_nan_in_tables_and_slots_is_not_saved(cores, tmp_path):
    def model_fn(features, labels, mode, params):
        return minimized(mode, tf.reduce_sum(masked(features["x"] * labels["x"])))

    def batch(of_row):
        labels = np.ones([4, 2], np.float32)
        labels[2] = of_row
        return {"x": np.arange(4)}, {"x": labels}

    spec = table_spec(9, 2, ee.AdagradParameters(0.1, 0.1))
    options = {"run": EVERY_TWO, "tpu": {"iterations_per_loop": 2}}
    estimator = harness.estimator(model_fn, spec, tmp_path, num_shards=cores, **options)
    batches = [batch(1), batch(1), batch([1, NAN]), batch(1)]  # Saved after steps 2 and 4.
    assert failure(estimator, lambda params: dataset(batches), max_steps=4)[:3] == [
        not_saved(4),
        "table 't' (features 'x'): NaN in 1 of 9 rows, ids 2",
        "slot t/Adagrad of table 't': NaN in 1 of 9 rows, ids 2",
    ]


class Averaged(v1.train.AdamOptimizer):
    """Keeps moving averages of all trainable variables."""

    def minimize(self, loss, global_step):
        average = v1.train.ExponentialMovingAverage(0.9)
        with tf.control_dependencies([super().minimize(loss, global_step)]):
            return average.apply(v1.trainable_variables())


def scaled(rate):
    """Returns an optimizer that skips steps with infinite gradients, and halves its scale then."""
    scale = v1.mixed_precision.DynamicLossScale(1e38, 2)
    optimizer = v1.train.GradientDescentOptimizer(rate)
    return v1.mixed_precision.MixedPrecisionLossScaleOptimizer(optimizer, scale)


def with_numbers_of_its_own(x):
    """Has variables that are not trained, or begin, with NaN or infinity, and a metric of NaN.

    The model masks NaN of its input.
    """
    x = tf.where(tf.math.is_nan(x), tf.zeros_like(x), x)

    def written(name, value, initial=0.0):
        start = v1.constant_initializer(initial)
        variable = v1.get_variable(name, [], initializer=start, trainable=False)
        return variable.assign(value(variable))

    mask = v1.get_variable("mask", [3], initializer=v1.constant_initializer([0, -INF, 0]))
    y = v1.layers.batch_normalization(linear(x) + tf.reduce_sum(tf.exp(mask)), training=True)
    updates = [
        written("best", lambda best: tf.minimum(best, tf.reduce_min(x)), INF),
        written("w/best", lambda best: INF),  # Named as a slot of w, but of another shape.
        written("seen", lambda seen: seen * NAN),
        v1.metrics.mean(x * NAN)[1],
    ]
    with tf.control_dependencies([*updates, *v1.get_collection(v1.GraphKeys.UPDATE_OPS)]):
        return tf.identity(y)


@pytest.mark.parametrize(
    "outputs, optimizer, batch, steps",
    [
        (with_numbers_of_its_own, Averaged, BAD, 4),
        # The largest gradient, 17, times the scale 1e38 is infinite in float32, until the scale was
        # halved by three skipped steps. These do not count.
        (linear, scaled, X, 4 - 3),
    ],
)
def test_intended_nan_and_infinity_train_on(outputs, optimizer, batch, steps, tmp_path, caplog):
    caplog.set_level("INFO", "estimator_emb")
    make("plain", tmp_path, outputs, optimizer=optimizer).train(input_of(*[batch] * 4))
    assert harness.last_step(tmp_path) == steps
    assert [one for one in harness.said(caplog) if "NaN" in one or "nfini" in one] == []


LARGE = np.where(np.arange(12).reshape(4, 3) == 0, INF, X).astype(np.float32)


def sum_of_x(features, labels, mode, params):
    total = tf.reduce_sum(tf.stop_gradient(features["x"]))
    return minimized(mode, v1.get_variable("w", []) * 0.0 + total)


@pytest.mark.parametrize("cores, of", [(None, "The batch of"), (1, "A batch up to")])
def test_an_infinite_loss_trains_on(cores, of, tmp_path, caplog):
    """tensorflow-estimator's `NanTensorHook` ends a training by NaN only."""
    estimator = harness.estimator(sum_of_x, None, tmp_path, num_shards=cores)
    estimator.train(input_of(LARGE, LARGE, X), steps=3)
    assert harness.last_step(tmp_path) == 3
    (line,) = [line for line in harness.said(caplog) if "nfinite" in line]
    begin = f"Infinite loss during training. {of} step 1 has\n  features['x']"
    assert line.startswith(begin)


def test_nan_after_infinity_in_a_loop_of_a_tpu_is_named(tmp_path):
    options = {"run": harness.SILENT, "tpu": {"iterations_per_loop": 2}}
    estimator = harness.estimator(sum_of_x, None, tmp_path, num_shards=1, **options)
    lines = failure(estimator, input_of(LARGE, BAD), max_steps=2)
    assert lines[:2] == ["NaN loss during training. A batch up to step 2 has", BAD_X]


def test_a_training_that_begins_with_nan_warns(tmp_path, caplog):
    def outputs(x):
        w = v1.get_variable("w", [3, 1], initializer=v1.constant_initializer([[1], [NAN], [1]]))
        return masked(x @ w)

    make("plain", tmp_path, outputs).train(input_of(X, X))
    (line,) = [line for line in harness.said(caplog) if "NaN" in line]
    begin = f"Training begins with weights that are NaN, which no step mends:\n  {W}"
    assert line.startswith(begin)


def test_an_integer_loss_trains(tmp_path):
    """An integer is never NaN, and TensorFlow's ops that look for NaN refuse it."""

    def model_fn(features, labels, mode, params):
        spec = minimized(mode, tf.reduce_sum(features["x"]) * v1.get_variable("w", []))
        return spec._replace(loss=tf.cast(spec.loss, tf.int32))

    harness.estimator(model_fn, None, tmp_path).train(input_of(X))
    assert harness.last_step(tmp_path) == 1
