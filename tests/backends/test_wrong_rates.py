# SPDX-License-Identifier: Apache-2.0
"""A rate or a multiplier that goes wrong in a step stops training before that step writes."""

import harness
import numpy as np
import pytest
import servers
import tensorflow as tf

import estimator_emb as ee
from estimator_emb import embedding

SAMPLES, ROWS, GOOD_STEPS = 4, 6, 2
NAN, INFINITE = float("nan"), float("inf")


def turning(value):
    """A function of the step that gives `value` in the step after the good ones."""

    def changing(step=None):
        step = tf.compat.v1.train.get_global_step() if step is None else step
        return tf.gather(tf.constant([0.5] * GOOD_STEPS + [value]), step)

    return changing


def wrong_rate(value):
    function = turning(value)
    return {"rate": function}, f"Table 'b': learning_rate_fn {said(function)}"


def wrong_rate_of_optimizer(value):
    function = turning(value)
    optimizer = embedding.Adagrad(function)
    return {
        "optimizer": optimizer
    }, f"Table 'b': the learning_rate of its Adagrad, {said(function)}"


def wrong_multiplier(value):
    function = turning(value)
    owner = "EmbeddingConfigSpec: experimental_gradient_multiplier_fn"
    return {"multiplier": function}, f"{owner} {said(function)}"


def said(function):
    return f"changing (test_wrong_rates.py, line {function.__code__.co_firstlineno})"


def spec_of(rate=None, optimizer=None, multiplier=None, pipelined=False):
    """Two tables, of which the second has the rate."""
    optimizers = {"a": ee.AdamParameters(0.1), "b": optimizer or ee.AdagradParameters(0.1)}
    return harness.tables_spec(
        {
            key: ee.TableConfig(
                ROWS,
                3,
                tf.compat.v1.ones_initializer(),
                learning_rate_fn=rate if key == "b" else None,
                optimization_parameters=optimizers[key],
            )
            for key in "ab"
        },
        experimental_gradient_multiplier_fn=multiplier,
        pipeline_execution_with_tensor_core=pipelined,
    )


def model_fn(features, labels, mode, params):
    bias = tf.compat.v1.get_variable("bias", [3])
    loss = tf.reduce_sum((features["a"] - bias) * features["b"] * labels)
    return harness.minimized(mode, loss, optimizer=tf.compat.v1.train.AdamOptimizer(0.1))


def input_fn(params):
    ids = {key: tf.constant([0, 1, 1, 3 + number]) for number, key in enumerate("ab")}
    labels = tf.random.stateless_normal([SAMPLES, 3], [1, 2])
    data = tf.data.Dataset.from_tensors((ids, labels)).repeat(9).unbatch()
    return data.batch(params["batch_size"], drop_remainder=True)


class State(tf.compat.v1.train.SessionRunHook):
    """All variables after each step, and, of a session that is not closed, at last."""

    def begin(self):
        self._variables = {one.name: one for one in tf.compat.v1.global_variables()}

    def after_run(self, run_context, run_values):
        self._session = run_context.session
        self.after_step = self.now()

    def now(self):
        return self._session.run(self._variables)


ON_SERVERS = "servers"
WAYS = {
    "host": {},
    "host, pipelined": {"pipelined": True},
    "one core": {"device": "host"},
    "two cores": {"device": "host", "num_shards": 2},
    "two cores, pipelined": {"device": "host", "num_shards": 2, "pipelined": True},
    ON_SERVERS: {},
}
ALWAYS = {("host", wrong_multiplier), ("two cores", wrong_rate)}


@pytest.mark.parametrize(
    "way, wrong, value, allowed",
    [
        pytest.param(
            way,
            wrong,
            value,
            allowed,
            marks=[] if (way, wrong) in ALWAYS else pytest.mark.slow,
            id=f"{way}-{wrong.__name__}",
        )
        for way in WAYS
        for wrong, value, allowed in (
            (wrong_rate, NAN, "finite and not negative"),
            (wrong_rate_of_optimizer, -0.5, "finite and not negative"),
            (wrong_multiplier, -INFINITE, "finite"),
        )
    ],
)
def test_stops_before_that_step_writes(way, wrong, value, allowed, kernels, tmp_path, monkeypatch):
    arguments, owner = wrong(value)
    how = dict(WAYS[way])
    spec = spec_of(pipelined=how.pop("pipelined", False), **arguments)
    common = {"save_checkpoints_steps": 1, "save_summary_steps": 1}
    if way == ON_SERVERS:
        config = servers.Cluster(workers=0, servers=2).config(
            "chief", 0, model_dir=str(tmp_path), **common
        )
    else:
        tpu = ee.TPUConfig(1, **how)
        config = ee.RunConfig(model_dir=str(tmp_path), tpu_config=tpu, **common)
    estimator = harness.configured(model_fn, spec, config, SAMPLES, use_tpu="device" in how)
    state = State()
    monkeypatch.setattr(tf.compat.v1.Session, "close", lambda self: None)
    with pytest.raises(tf.errors.InvalidArgumentError) as caught:
        estimator.train(input_fn, steps=5, hooks=[state])
    expected = f"[{owner}: its value in this step must be {allowed}; got {value}.]"
    assert expected in str(caught.value)
    now = state.now()
    assert now["global_step:0"] == GOOD_STEPS
    assert {name.partition("/")[0].partition(":")[0] for name in now} >= {"a", "b", "bias"}
    for name, values in state.after_step.items():
        np.testing.assert_array_equal(now[name], values, err_msg=name)
    assert tf.train.latest_checkpoint(str(tmp_path)).endswith(f"-{GOOD_STEPS}")
