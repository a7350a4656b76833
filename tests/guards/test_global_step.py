"""A training that counts no steps, or each step twice, is told so."""

import harness
import numpy as np
import pytest
import tensorflow as tf
from small_programs import each_kind, input_fn, linear, make, minimized, off_a_tpu
from tensorflow.python.platform import tf_logging

from estimator_emb.reporting import progress

v1 = tf.compat.v1
pytestmark = pytest.mark.usefixtures("installed")
STOCK_SAYS = "It seems that global step (tf.train.get_global_step) has not been increased."


def estimator_of(kind, model_dir, train_op):
    """Returns an estimator of a linear model that `train_op(loss)` trains."""

    def build(x, labels):
        loss = linear(x, labels)
        return loss, train_op(loss)

    return make(kind, model_dir, build)


def stock_warnings(caplog):
    return [line for line in caplog.messages if line.startswith(STOCK_SAYS)]


@pytest.fixture(autouse=True)
def stock_warns_again(monkeypatch):
    monkeypatch.setattr(tf_logging, "_log_counter_per_token", {})


def without_step(loss):
    return minimized(loss, step=False)


def in_no_train_op(loss):
    minimized(loss)  # This op would count a step.
    return without_step(loss)


def of_keras(loss):
    step, optimizer = v1.train.get_global_step(), tf.keras.optimizers.legacy.SGD(0.125)
    read = tf.cond(loss < 0, step.read_value, lambda: step + 1)  # Branches that only read it.
    return tf.group(read, *optimizer.get_updates(loss, v1.trainable_variables()))


@pytest.mark.fast(3)
@each_kind
@pytest.mark.parametrize("train_op", [without_step, of_keras, in_no_train_op])
@pytest.mark.parametrize("asked", [{"max_steps": 3}, {"steps": 3}, {}])
def test_a_train_op_that_counts_no_steps_trains_with_a_warning(
    kind, train_op, asked, tmp_path, caplog
):
    """Stock's own warning, which repeats with each step, is hidden then."""
    if kind == "emulated" and train_op is in_no_train_op:
        pytest.skip("An emulated TPU cannot tell which ops of the graph its loop runs.")
    if kind == "emulated" and not asked:
        pytest.skip("A training on a TPU needs steps or max_steps.")
    caplog.set_level("INFO", "estimator_emb")
    estimator = estimator_of(kind, tmp_path, train_op)
    # A hook of the program may raise the step, unlike one of TensorFlow.
    own = [harness.AfterStep(int)] if train_op is of_keras else []
    hooks = [v1.train.StepCounterHook(), *own]
    try:
        estimator.train(lambda params=None: input_fn().take(9), hooks, **asked)
    except tf.errors.OutOfRangeError:  # The input ends before the asked steps.
        assert kind == "emulated"  # As on a TPU.
    (message,) = [line for line in harness.said(caplog) if "train_op" in line]
    unless = ", unless one of the hooks does (AfterStep)." if own else "."
    assert message.startswith(f"The train_op of model_fn does not increase the global step{unless}")
    assert not stock_warnings(caplog)
    ended = [line for line in harness.said(caplog) if "the input ended" in line]
    advice = "No step raised the global step, by which steps and max_steps count."
    # Only a training that asks for a number of steps reports that its input has ended.
    assert [line.endswith(advice) for line in ended] == [True] * bool(asked)
    if kind != "emulated":  # As in stock, only step 0 was saved, with its w: the trained w is lost.
        assert estimator.get_variable_value("global_step") == 0
        assert np.abs(estimator.get_variable_value("w")).max() == 0


@off_a_tpu
def test_a_branch_that_never_raises_the_step_is_shown(kind, tmp_path, caplog, monkeypatch):
    """It is not known before the training. Stock's warning is shown, and progress lines tell."""

    def train_op(loss):  # The loss is a mean of squares, so never negative.
        return tf.group(tf.cond(loss < 0, lambda: minimized(loss), tf.no_op))

    monkeypatch.setattr(progress, "_SECONDS_BETWEEN_LINES", 0.0)
    caplog.set_level("INFO", "estimator_emb")
    estimator = estimator_of(kind, tmp_path, train_op)
    estimator.train(lambda params=None: input_fn().take(9), max_steps=3)
    assert len(stock_warnings(caplog)) == 5  # Stock warns at most five times.
    lines = [line for line in harness.said(caplog) if line.startswith("step 0 of 3, ")]
    assert lines[-1].endswith(", no step raises the global step")


def two_optimizers(loss):
    return tf.group(minimized(loss), minimized(loss))


def by_two(loss):
    with tf.control_dependencies([without_step(loss)]):
        return v1.train.get_global_step().assign_add(2).op


@pytest.mark.fast(1)
@off_a_tpu
@pytest.mark.parametrize("train_op", [two_optimizers, by_two])
def test_a_step_counted_twice_is_logged(kind, train_op, tmp_path, caplog):
    batches = []
    count = harness.AfterStep(lambda: batches.append(1))
    estimator = estimator_of(kind, tmp_path, train_op)
    estimator.train(input_fn, hooks=[count], max_steps=10)
    assert (len(batches), harness.last_step(tmp_path)) == (10 / 2, 10)
    estimator.train(input_fn, hooks=[count], steps=6)
    assert (len(batches), harness.last_step(tmp_path)) == (10 / 2 + 6 / 2, 10 + 6)
    (message,) = harness.said(caplog)  # The second training does not repeat it.
    assert message.startswith(
        "Each step of the training raises the global step by 2, so that steps, max_steps and what "
        "else counts by it come 2 times as soon. It is raised in "
    )
    maker = train_op if train_op is by_two else minimized
    line = maker.__code__.co_firstlineno + 2  # In both functions, its last line raises the step.
    assert f".py, line {line}, in {maker.__name__}: " in message
    assert message.endswith("Pass global_step to one minimize or apply_gradients only.")


@off_a_tpu
def test_branches_of_a_step_count_once(kind, tmp_path, caplog):
    def train_op(loss):  # Of the two ops that raise the step by 1, one runs.
        step = v1.train.get_global_step()
        with tf.control_dependencies([without_step(loss)]):
            return tf.cond(step % 2 > 0, lambda: step.assign_add(1), lambda: step.assign_add(1)).op

    estimator_of(kind, tmp_path, train_op).train(input_fn, max_steps=3)
    assert harness.said(caplog) == []
    assert harness.last_step(tmp_path) == 3
