"""A NaN or infinite loss names the features or labels that cause it. The step writes nothing."""

import harness
import numpy as np
import pytest
import tensorflow as tf
from harness import dataset, minimized, table_spec

import estimator_emb as ee
from estimator_emb.errors import NanLossError

v1 = tf.compat.v1
NAN, INF = float("nan"), float("inf")
REMEDY = (
    "\n  Correct the data, or fill in what is missing before the model computes with it: a "
    "tf.where around a result keeps NaN out of the loss, but not out of the gradients."
)


class Watch(v1.train.SessionRunHook):
    """Reads all variables before each step and after a failed step."""

    after = None

    def begin(self):
        self.variables = v1.global_variables()

    def after_create_session(self, session, coord):
        run = session.run

        def watched(*args, **kwargs):
            try:
                return run(*args, **kwargs)
            except tf.errors.OpError:
                self.after = run(self.variables)
                raise

        session.run = watched

    def before_run(self, run_context):
        self.before = run_context.session.run(self.variables)


def batch(**changed):
    """Returns a good batch with some values replaced: {feature or 'y': {place: value}}."""
    values = {"x": np.ones([4, 2], np.float32), "y": np.ones([4], np.float32)}
    for name, places in changed.items():
        for place, value in places.items():
            values[name][place] = value
    return {"x": np.arange(4), "age": values["x"]}, {"y": values["y"]}


def model_fn(features, labels, mode, params):
    age = features["age"]
    if not isinstance(age, tf.Tensor):
        age = age.values if isinstance(age, tf.SparseTensor) else age.flat_values
    if params.get("masks"):
        age = tf.where(tf.math.is_nan(age), tf.zeros_like(age), age)
    w = v1.get_variable("w", [], initializer=v1.ones_initializer())
    loss = w * tf.reduce_sum(age) + tf.reduce_sum(labels["y"]) + params.get("plus", 0.0)
    if features["x"].dtype == tf.float32:
        loss += tf.reduce_sum(features["x"])
    return minimized(mode, loss, 0.1)


def make(directory, cores=None, params=None, tables=True, pipelined=False, **kwargs):
    optimizer = ee.AdagradParameters(0.1, 0.1)
    spec = table_spec(4, 2, optimizer, pipeline_execution_with_tensor_core=pipelined)
    spec = spec if tables else None
    return harness.estimator(
        model_fn, spec, directory, num_shards=cores, params=params or {}, **kwargs
    )


def failure(estimator, *batches):
    """Trains until a step fails, checks that the step wrote nothing, and returns the message."""
    watch = Watch()
    takes_params = isinstance(estimator, ee.TPUEstimator)
    with pytest.raises(NanLossError) as caught:
        estimator.train(
            (lambda params: dataset(batches)) if takes_params else lambda: dataset(batches),
            hooks=[watch],
            max_steps=len(batches),
        )
    assert isinstance(caught.value, tf.errors.InvalidArgumentError)
    assert caught.value.__cause__ is None and caught.value.__suppress_context__
    for before, after in zip(watch.before, watch.after, strict=True):
        np.testing.assert_array_equal(before, after)
    return str(caught.value)


WAYS = {
    "host": {},
    "host, pipelined": {"pipelined": True},
    "no tables": {"tables": False},
    "emulated": {"cores": 1},
    "emulated, pipelined": {"cores": 1, "pipelined": True},
    "emulated, no tables": {"cores": 1, "tables": False},
}


@pytest.mark.fast(2)
@pytest.mark.parametrize(
    "way, native_kernels",
    [(way, one) for way, how in WAYS.items() for one in ("0" if "tables" in how else "01")],
)
def test_a_nan_feature_is_named_before_its_step_writes(
    way, native_kernels, native, monkeypatch, tmp_path
):
    monkeypatch.setenv("ESTIMATOR_EMB_NATIVE", native_kernels)
    bad = batch(x={(3, 0): INF, (2, 1): NAN})
    assert failure(make(tmp_path, **WAYS[way]), batch(), bad, batch()) == (
        "NaN loss during training: step 2 wrote nothing, for its batch has\n"
        f"  features['age']: nan in sample 2, at [2, 1], and 2 such of 8 numbers{REMEDY}"
    )


def test_dropped_id_counts_do_not_wait_for_the_loss(monkeypatch, tmp_path):
    """Otherwise the counts would wait for the loss, and the loss for the lookup."""
    monkeypatch.setenv("ESTIMATOR_EMB_BAD_IDS", "drop")
    make(tmp_path, pipelined=True).train(lambda params: dataset([batch()] * 3), max_steps=3)
    assert harness.last_step(tmp_path) == 3


@pytest.mark.parametrize("sample, core", [(1, 0), (3, 1)])
def test_nan_labels_of_a_core_are_named(sample, core, tmp_path):
    assert failure(make(tmp_path, 2), batch(y={sample: -INF})) == (
        "Infinite loss during training: step 1 wrote nothing, for its batch has\n"
        f"  labels['y'] of core {core}: -inf in sample 1, at [1], and 1 such of 2 numbers{REMEDY}"
    )


RAGGED = [[[1.0], []], [], [[2.0, 3.0], [4.0, NAN]], [[5.0]]]


@pytest.mark.parametrize(
    "age, at, count",
    [
        (lambda: harness.sparse([[5.0, 1.0], [], [2.0, 3.0, NAN], []], np.float32), "2, 2", 5),
        (lambda: v1.ragged.constant_value(RAGGED, np.float32), "2, 1, 1", 6),
    ],
    ids=["sparse", "ragged"],
)
def test_nan_in_sparse_and_ragged_features_is_located(age, at, count, tmp_path):
    features, labels = batch()
    assert failure(make(tmp_path), ({**features, "age": age()}, labels)) == (
        "NaN loss during training: step 1 wrote nothing, for its batch has\n"
        f"  features['age']: nan in sample 2, at [{at}], and 1 such of {count} numbers{REMEDY}"
    )


@pytest.mark.parametrize("cores, plus", [(None, 0.0), (2, INF)])
def test_masked_nan_trains_unchanged(plus, cores, tmp_path):
    trained = []
    for name, value in (("masked", NAN), ("zero", 0.0)):
        estimator = make(tmp_path / name, cores, {"masks": True, "plus": plus})
        batches = [batch(x={(1, 1): value})] * 2
        estimator.train(lambda params, batches=batches: dataset(batches), max_steps=2)
        trained.append(harness.saved(tmp_path / name, 2))
    np.testing.assert_equal(*trained)


def test_infinity_in_a_scalar_feature_is_named(tmp_path):
    features, labels = batch()
    assert failure(make(tmp_path), ({**features, "age": np.float32(INF)}, labels)) == (
        "Infinite loss during training: step 1 wrote nothing, for its batch has\n"
        f"  features['age']: inf, and 1 such of 1 numbers{REMEDY}"
    )


@pytest.mark.parametrize("tables", [True, False])
def test_an_integer_loss_trains_unchanged(tables, tmp_path):
    def of_integers(features, labels, mode, params):
        spec = model_fn(features, labels, mode, params)
        return spec._replace(loss=tf.cast(spec.loss, tf.int32))

    spec = table_spec(4, 2, ee.AdagradParameters(0.1, 0.1)) if tables else None
    estimator = harness.estimator(of_integers, spec, tmp_path)
    estimator.train(lambda params: dataset([batch()]))
    assert estimator.evaluate(lambda params: dataset([batch()]), steps=1)["global_step"] == 1


@pytest.mark.slow
@pytest.mark.parametrize("cores", [None, 2])
def test_a_nan_loss_in_an_evaluation_warns_once(cores, tmp_path, caplog):
    estimator = make(tmp_path, cores)
    estimator.train(lambda params: dataset([batch()]), max_steps=1)
    batches = [batch(), batch(x={(2, 1): NAN}), batch(x={(3, 1): NAN})]
    caplog.clear()
    evaluated = estimator.evaluate(lambda params: dataset(batches), steps=3)
    assert evaluated["global_step"] == 1
    where = "features['age']: nan in sample 2, at [2, 1], and 1 such of 8"
    if cores:
        where = "features['age'] of core 1: nan in sample 0, at [0, 1], and 1 such of 4"
    assert [line for line in harness.said(caplog) if "loss" in line] == [
        f"NaN loss in an evaluation after step 1: a batch has\n  {where} numbers{REMEDY}"
    ]
    caplog.clear()
    estimator.evaluate(lambda params: dataset([batch()]), steps=1)
    assert harness.said(caplog) == []


def test_a_plain_estimator_names_nan_labels(installed, tmp_path):
    def plain_model_fn(features, labels, mode):
        loss = v1.get_variable("w", []) * tf.reduce_sum(labels["y"])
        step = v1.train.get_global_step()
        train_op = v1.train.GradientDescentOptimizer(0.1).minimize(loss, step)
        return ee.EstimatorSpec(mode, loss=loss, train_op=train_op)

    estimator = ee.Estimator(plain_model_fn, str(tmp_path))
    assert failure(estimator, batch(), batch(y={3: NAN})) == (
        "NaN loss during training: step 2 wrote nothing, for its batch has\n"
        f"  labels['y']: nan in sample 3, at [3], and 1 such of 4 numbers{REMEDY}"
    )
