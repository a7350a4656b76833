"""A rate or multiplier that becomes invalid stops training before that step writes."""

import harness
import numpy as np
import pytest
import servers
import tensorflow as tf
from host_engine import on_both_kernels

import estimator_emb as ee
from estimator_emb import embedding

SAMPLES, ROWS, GOOD_STEPS = 4, 6, 2
NAN, INFINITE = float("nan"), float("inf")


def turning(value):
    """Returns a function of the step that gives `value` after the good steps."""

    def changing(step=None):
        step = tf.compat.v1.train.get_global_step() if step is None else step
        return tf.gather(tf.constant([0.5] * GOOD_STEPS + [value]), step)

    return changing


def said(function):
    return f"changing (test_wrong_rates.py, line {function.__code__.co_firstlineno})"


# Each function returns arguments of `spec_of`, and the owner that the error names.


def wrong_rate(function):
    return {"rate": function}, f"Table 'b': learning_rate_fn {said(function)}"


def wrong_rate_of_optimizer(function):
    whose = f"Table 'b': the learning_rate of its Adagrad, {said(function)}"
    return {"optimizer": embedding.Adagrad(function)}, whose


def wrong_multiplier(function):
    whose = f"EmbeddingConfigSpec: experimental_gradient_multiplier_fn {said(function)}"
    return {"multiplier": function}, whose


def spec_of(rate=None, optimizer=None, multiplier=None, pipelined=False):
    """Returns a spec of two tables. Only the second has the rate."""
    table = ee.TableConfig(ROWS, 3, tf.compat.v1.ones_initializer())
    return harness.tables_spec(
        {
            "a": table._replace(optimization_parameters=ee.AdamParameters(0.1)),
            "b": table._replace(optimization_parameters=optimizer, learning_rate_fn=rate),
        },
        ee.AdagradParameters(0.1),  # Of table b, unless it has an optimizer.
        experimental_gradient_multiplier_fn=multiplier,
        pipeline_execution_with_tensor_core=pipelined,
    )


def model_fn(features, labels, mode, params):
    bias = tf.compat.v1.get_variable("bias", [3])
    loss = tf.reduce_sum((features["a"] - bias) * features["b"] * labels)
    return harness.minimized(mode, loss, optimizer=tf.compat.v1.train.AdamOptimizer(0.1))


IDS = {"a": np.array([0, 1, 1, 3]), "b": np.array([0, 1, 1, 4])}
input_fn = harness.endless((IDS, harness.normal(1, SAMPLES, 3)))


class State(harness.Reads):
    """Reads all variables after each step. `now` reads them while the session is open."""

    def __init__(self):
        super().__init__(lambda: {one.name: one for one in tf.compat.v1.global_variables()})

    def after_create_session(self, session, coord):
        self._session = session

    def now(self):
        return self._session.run(self._read)


@pytest.mark.fast(1)
@pytest.mark.sampled(6)
@on_both_kernels
@pytest.mark.parametrize("way", ["host", "1 core", "2 cores", "servers"])
@pytest.mark.parametrize("pipelined", [False, True])
@pytest.mark.parametrize(
    "wrong, value",
    [(wrong_rate, NAN), (wrong_rate_of_optimizer, -0.5), (wrong_multiplier, -INFINITE)],
)
def test_an_invalid_rate_stops_training_before_the_step_writes(
    way, pipelined, wrong, value, tmp_path, monkeypatch
):
    arguments, owner = wrong(turning(value))
    spec = spec_of(pipelined=pipelined, **arguments)
    config = servers.config_of(way, tmp_path, save_checkpoints_steps=1, save_summary_steps=1)
    estimator = harness.configured(model_fn, spec, config, SAMPLES, use_tpu="core" in way)
    state = State()
    monkeypatch.setattr(tf.compat.v1.Session, "close", lambda self: None)  # `state.now` needs it.
    with pytest.raises(tf.errors.InvalidArgumentError) as caught:
        estimator.train(input_fn, steps=5, hooks=[state])
    allowed = "finite" if wrong is wrong_multiplier else "finite and not negative"
    expected = f"[{owner}: its value in this step must be {allowed}; got {value}.]"
    assert expected in str(caught.value)
    now = state.now()
    assert now["global_step:0"] == GOOD_STEPS
    assert {name.partition("/")[0].partition(":")[0] for name in now} >= {"a", "b", "bias"}
    np.testing.assert_equal(now, state.seen[-1])
    assert tf.train.latest_checkpoint(str(tmp_path)).endswith(f"-{GOOD_STEPS}")
