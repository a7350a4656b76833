"""Arguments of calls, of all kinds of estimators. tests/mistakes has a TPUEstimator's own calls."""

import functools

import harness
import pytest
import tensorflow as tf
from small_programs import input_fn, minimized, mse

import estimator_emb as ee

v1 = tf.compat.v1
pytestmark = pytest.mark.usefixtures("installed")


def model(features, labels, mode, spec):
    y = features["x"] @ v1.get_variable("w", [3, 1])
    if mode == ee.ModeKeys.PREDICT:
        return spec(mode, predictions={"y": y, "mean": tf.reduce_mean(y)})  # The mean is a scalar.
    loss = mse(y, labels)
    return spec(mode, loss=loss, train_op=minimized(loss))


def strings():
    return input_fn().map(lambda x, y: ({"x": tf.as_string(x["x"])}, y))


def canned(model_dir, kind="LinearRegressor", shape=3, **kwargs):
    x = tf.feature_column.numeric_column("x", shape=[shape])
    return getattr(tf.estimator, kind)(feature_columns=[x], model_dir=str(model_dir), **kwargs)


def test_missing_labels_of_a_plain_estimator_are_named(tmp_path):
    train = harness.of_kind("plain", model, tmp_path).train
    message = harness.refusal(ValueError, train, lambda: input_fn().map(lambda x, y: x), steps=1)
    assert "In model_fn, labels is None in mode 'train'" in message


@pytest.mark.parametrize("kind, steps, last", [("plain", 2.5, 3), ("local", 2, 2)])
def test_unusual_arguments_that_tensorflow_estimator_takes_train(kind, steps, last, tmp_path):
    """A fraction of steps, which is rounded up, hooks of a generator, and specs of another mode."""

    def of_another_mode(features, labels, mode, spec):
        return model(features, labels, mode, lambda mode, **given: spec("training", **given))

    hooks = (hook for hook in [v1.train.StepCounterHook()])
    harness.of_kind(kind, of_another_mode, tmp_path).train(input_fn, hooks, steps)
    assert harness.last_step(tmp_path) == last


HOOK = v1.train.StepCounterHook()
RECEIVER = "takes a function that returns a tf.estimator.export.ServingInputReceiver"
WRONG = {
    "steps": (lambda one, base: one.train(input_fn, steps="9"), "steps and max_steps must be num"),
    "last": (lambda one, base: one.train(input_fn, max_steps="9"), "and max_steps must be numbers"),
    "hooks": (lambda one, base: one.train(input_fn, hooks=HOOK), "hooks must be a list; got"),
    "eval hooks": (lambda one, base: one.evaluate(input_fn, 1, HOOK), "hooks must be a list; got"),
    "predict": (lambda one, base: next(one.predict(input_fn, None, HOOK)), "hooks must be a list"),
    "tuple": (lambda one, base: one.export_saved_model(base, lambda: ({}, {})), RECEIVER),
    "called": (lambda one, base: one.export_saved_model(base, "receiver"), RECEIVER),
}
"""Argument -> (call of an estimator, a part of the error's message)."""
KINDS = ["plain", *(harness.slow(one) for one in ("canned", "emulated"))]


@pytest.mark.parametrize("kind", KINDS)
def test_wrong_arguments_are_explained(kind, tmp_path):
    estimator = canned(tmp_path) if kind == "canned" else harness.of_kind(kind, model, tmp_path)
    estimator.train(input_fn, steps=1)
    for call, said in WRONG.values():
        with pytest.raises((AttributeError, TypeError)) as caught:
            call(estimator, str(tmp_path))
        assert said in str(caught.value)
    if kind != "canned":  # `model` predicts a scalar, which predict cannot divide into examples.
        with pytest.raises((IndexError, ValueError), match="the batch as its first dimension"):
            next(estimator.predict(lambda params=None: input_fn().take(1)))


@pytest.mark.parametrize("kind", ["plain", "emulated"])
def test_what_model_fn_does_not_return_is_named(kind, tmp_path, caplog):
    def returns(change):
        estimator = harness.of_kind(kind, lambda *given: change(model(*given)), tmp_path)
        return harness.refusal(ValueError, estimator.train, input_fn, steps=1)

    assert "return an EstimatorSpec." in returns(lambda spec: None)
    assert "Is its `return` missing?" in returns(lambda spec: None)
    assert "train_op; it returned None." in returns(lambda spec: spec._replace(train_op=None))
    assert harness.said(caplog) == []  # The error is enough.


def test_a_single_hook_of_a_spec_is_told_of_lists(tmp_path):
    def with_hook(features, labels, mode, spec):
        return model(features, labels, mode, functools.partial(spec, training_hooks=HOOK))

    train = harness.of_kind("plain", with_hook, tmp_path).train
    message = harness.refusal(TypeError, train, input_fn, steps=1)
    assert "StepCounterHook" in message and "EstimatorSpec a list of hooks." in message


def test_canned_estimators_name_the_wrong_argument(tmp_path):
    for wrong, given, said in (  # Arguments of `canned`, input_fn, a part of the error.
        ({"shape": 2}, input_fn, "The shape=[...] of a numeric_column must be"),
        ({}, lambda: input_fn().unbatch(), "and input_fn must batch its Dataset."),
        ({"kind": "DNNRegressor", "hidden_units": 4}, input_fn, "hidden_units must be a list"),
        ({}, strings, "a feature of strings: turn it into numbers"),  # No advice about labels.
    ):
        with pytest.raises((TypeError, ValueError, tf.errors.OpError)) as caught:
            canned(tmp_path / said, **wrong).train(given, steps=1)
        assert said in str(caught.value) and "label_vocabulary" not in str(caught.value)
