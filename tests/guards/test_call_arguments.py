"""Arguments of calls, of all kinds of estimators. tests/mistakes has a TPUEstimator's own calls."""

import functools

import harness
import pytest
import tensorflow as tf

import estimator_emb as ee

v1 = tf.compat.v1


def test_missing_labels_of_a_plain_estimator_are_named(installed, tmp_path):
    def model_fn(features, labels, mode):
        w = v1.get_variable("w", [])
        loss = tf.reduce_sum(w * features - labels)
        train_op = v1.train.GradientDescentOptimizer(0.1).minimize(loss, v1.train.get_global_step())
        return ee.EstimatorSpec(mode, loss=loss, train_op=train_op)

    def input_fn():
        return tf.constant([1.0])

    estimator = ee.Estimator(model_fn, str(tmp_path))
    message = harness.refusal(ValueError, estimator.train, input_fn, steps=1)
    assert "In model_fn, labels is None in mode 'train'" in message
    estimator.train(lambda: (tf.constant([1.0]), tf.constant([2.0])), steps=1)


def test_what_tensorflow_estimator_takes_trains(installed, tmp_path):
    """Steps that are no integer, hooks of a generator, and specs without a mode."""
    steps = []

    class Counts(v1.train.SessionRunHook):
        def after_run(self, run_context, run_values):
            steps.append(1)

    def model_fn(features, labels, mode):
        loss = tf.reduce_sum(v1.get_variable("w", []) * features)
        train_op = v1.train.GradientDescentOptimizer(0.1).minimize(loss, v1.train.get_global_step())
        return ee.EstimatorSpec(None, loss=loss, train_op=train_op)

    def input_fn():
        return tf.data.Dataset.from_tensors([1.0]).repeat()

    estimator = ee.Estimator(model_fn, str(tmp_path))
    estimator.train(input_fn, hooks=(hook for hook in [Counts()]), steps=2.5)
    assert len(steps) == 3


@pytest.mark.parametrize(
    "returned, phrase",
    [
        ("text", "it returned a str. For Python's values, see tf.data.Dataset.from_generator"),
        (tf.data.Dataset.range(4), "must return its features as a dict; .* returned a tensor."),
    ],
    ids=["text", "dataset"],
)
def test_what_input_fn_wrongly_returns_is_named(returned, phrase, tmp_path):
    spec = harness.table_spec(4, 2, ee.AdagradParameters(0.1))
    estimator = harness.estimator(harness.gradient_model_fn(["x"]), spec, tmp_path)
    with pytest.raises((TypeError, ValueError), match=phrase):
        estimator.train(lambda params: returned, steps=1)


def batches(params=None):
    data = tf.data.Dataset.from_tensors(({"x": tf.ones([4, 2])}, tf.ones([4, 1])))
    return data.repeat()


def strings(params=None):
    return batches().map(lambda x, y: ({"x": tf.as_string(x["x"])}, y))


def spec_of(features, labels, mode, spec):
    y = features["x"] @ v1.get_variable("w", [2, 1])
    if mode == ee.ModeKeys.PREDICT:
        return spec(mode, predictions={"y": y, "mean": tf.reduce_mean(y)})
    loss = tf.reduce_mean(tf.square(y - labels))
    train_op = v1.train.GradientDescentOptimizer(0.1).minimize(loss, v1.train.get_global_step())
    return spec(mode, loss=loss, train_op=train_op)


def canned(model_dir, kind="LinearRegressor", shape=2, **kwargs):
    x = tf.feature_column.numeric_column("x", shape=[shape])
    return getattr(tf.estimator, kind)(feature_columns=[x], model_dir=str(model_dir), **kwargs)


def of_kind(kind, model_dir, model=spec_of):
    made = (
        canned(model_dir) if kind == "canned" else harness.of_kind(kind, model, model_dir, run={})
    )
    return made.train(batches, steps=1) if model is spec_of else made


HOOK = v1.train.StepCounterHook()
RECEIVER = "takes a function that returns a tf.estimator.export.ServingInputReceiver"
WRONG = {
    "steps": (lambda one, base: one.train(batches, steps="9"), "steps and max_steps must be num"),
    "last": (lambda one, base: one.train(batches, max_steps="9"), "and max_steps must be numbers"),
    "hooks": (lambda one, base: one.train(batches, hooks=HOOK), "hooks must be a list; got"),
    "eval hooks": (lambda one, base: one.evaluate(batches, 1, HOOK), "hooks must be a list; got"),
    "predict": (
        lambda one, base: next(one.predict(batches, None, HOOK)),
        "hooks must be a list; got",
    ),
    "tuple": (lambda one, base: one.export_saved_model(base, lambda: ({}, {})), RECEIVER),
    "called": (lambda one, base: one.export_saved_model(base, "receiver"), RECEIVER),
}
"""Argument -> (call of an estimator, a part of the error's message)."""
KINDS = ["plain", *(pytest.param(one, marks=pytest.mark.slow) for one in ("canned", "emulated"))]


@pytest.mark.parametrize("kind", KINDS)
def test_wrong_arguments_are_explained(kind, installed, tmp_path):
    estimator = of_kind(kind, tmp_path)
    for call, said in WRONG.values():
        with pytest.raises((AttributeError, TypeError)) as caught:
            call(estimator, str(tmp_path))
        assert said in str(caught.value)
    if kind != "canned":
        with pytest.raises((IndexError, ValueError), match="the batch as its first dimension"):
            next(estimator.predict(lambda params=None: batches().take(1)))


@pytest.mark.parametrize("kind", ["plain", "emulated"])
def test_what_model_fn_does_not_return_is_named(kind, installed, tmp_path):
    def returns(change):
        model = lambda *args: change(spec_of(*args))  # noqa: E731
        estimator = of_kind(kind, tmp_path, model)
        return harness.refusal(ValueError, estimator.train, batches, steps=1)

    assert "return an EstimatorSpec." in returns(lambda spec: None)
    assert "Is its `return` missing?" in returns(lambda spec: None)
    assert "train_op; it returned None." in returns(lambda spec: spec._replace(train_op=None))


def test_a_single_hook_of_a_spec_is_told_of_lists(installed, tmp_path):
    def model(features, labels, mode, spec):
        with_hook = functools.partial(spec, training_hooks=v1.train.StepCounterHook())
        return spec_of(features, labels, mode, with_hook)

    estimator = of_kind("plain", tmp_path, model)
    message = harness.refusal(TypeError, estimator.train, batches, steps=1)
    assert "StepCounterHook" in message and "EstimatorSpec a list of hooks." in message


@pytest.mark.parametrize("kind", ["plain", "local"])
def test_a_spec_of_another_mode_trains_as_with_stock(kind, installed, tmp_path):
    def model(features, labels, mode, spec):
        return spec_of(features, labels, mode, lambda mode, **given: spec("training", **given))

    of_kind(kind, tmp_path, model).train(batches, steps=2)
    assert harness.last_step(tmp_path) == 2


def test_canned_estimators_name_the_wrong_argument(installed, tmp_path):
    for wrong, input_fn, said in (
        ({"shape": 3}, batches, "The shape=[...] of a numeric_column must be"),
        ({}, lambda: batches().unbatch(), "and input_fn must batch its Dataset."),
        ({"kind": "DNNRegressor", "hidden_units": 4}, batches, "hidden_units must be a list"),
        ({}, strings, "a feature of strings: turn it into numbers"),
    ):
        with pytest.raises((TypeError, ValueError, tf.errors.OpError)) as caught:
            canned(tmp_path / said, **wrong).train(input_fn, steps=1)
        assert said in str(caught.value) and "label_vocabulary" not in str(caught.value)
