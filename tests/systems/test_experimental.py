"""Hooks of `estimator_emb.experimental` end a TPUEstimator when they end a plain Estimator.

A plain `Estimator` is tensorflow-estimator's own class, without our code.
"""

import itertools

import harness
import numpy as np
import pytest
import tensorflow as tf
from tensorflow_estimator.python.estimator import early_stopping
from tensorflow_estimator.python.estimator.api._v1.estimator import experimental as api_v1
from tensorflow_estimator.python.estimator.api._v2.estimator import experimental as api_v2

import estimator_emb as ee

v1 = tf.compat.v1
CORES = {"host": None, "emulated": 2}
"""Where a TPUEstimator trains -> number of cores of its emulated TPU."""
ITEMS = np.arange(4, dtype=np.int64)


def test_exports_the_names_of_tensorflow_estimator():
    ours = {name: getattr(ee.experimental, name) for name in ee.experimental.__all__}
    theirs = {
        name: getattr(api, name)
        for api in (api_v1, api_v2)
        for name in dir(api)
        if not name.startswith("_")
    }
    assert ours == theirs


def plain_model_fn(features, labels, mode):
    step = v1.train.get_global_step()
    # Otherwise a hook may read the global step before or after this update.
    with tf.control_dependencies([step.graph.as_graph_element(step)]):
        train_op = v1.assign_add(step, 1)
    return ee.EstimatorSpec(mode, loss=tf.constant(1.0), train_op=train_op)


def plain(model_dir):
    config = ee.RunConfig(model_dir=str(model_dir), save_checkpoints_steps=1)
    return ee.Estimator(plain_model_fn, config=config)


def with_a_table(place, model_dir, model_fn=None):
    """Returns a TPUEstimator. `place` is a key of `CORES`."""
    spec = harness.tables_spec({"item": ee.TableConfig(8, 2)}, ee.AdagradParameters(0.1))
    model_fn = model_fn or harness.gradient_model_fn(["item"])
    return harness.estimator(model_fn, spec, model_dir, num_shards=CORES[place])


def input_fn(params=None):
    features, gradients = {"item": ITEMS[:, None]}, {"item": np.ones([4, 2], np.float32)}
    return tf.data.Dataset.from_tensors((features, gradients)).repeat()


def stops_at_fourth_call():
    calls = itertools.count(1)
    return lambda: next(calls) == 4


EVERY_SECOND = {"run_every_secs": None, "run_every_steps": 2}
HOOKS = {
    "make_early_stopping_hook": lambda make, one: make(one, stops_at_fourth_call(), **EVERY_SECOND),
    # These hooks look at the metrics that `WritesMetrics` writes, from step 4 on.
    "stop_if_higher_hook": lambda make, one: make(one, "x", 3.0, min_steps=4, **EVERY_SECOND),
    "stop_if_lower_hook": lambda make, one: make(one, "y", 4.0, min_steps=4, **EVERY_SECOND),
    "stop_if_no_decrease_hook": lambda make, one: make(one, "y", 3, min_steps=4, **EVERY_SECOND),
    "stop_if_no_increase_hook": lambda make, one: make(one, "x", 3, min_steps=4, **EVERY_SECOND),
    "make_stop_at_checkpoint_step_hook": lambda make, one: make(one, 6),
}
"""Name of a function of `experimental` -> how to make its hook for an estimator."""


class WritesMetrics(v1.train.SessionRunHook):
    """Writes metrics x and y after each step, as a concurrent evaluation does."""

    def __init__(self, eval_dir):
        self._step = 0
        with tf.Graph().as_default():
            self._writer = v1.summary.FileWriter(str(eval_dir))

    def after_run(self, run_context, run_values):
        self._step += 1
        # x rises until step 5, and y falls until step 6.
        metrics = {"x": min(self._step, 5) - 1.0, "y": 8.0 - min(self._step, 6)}
        values = [v1.Summary.Value(tag=tag, simple_value=one) for tag, one in metrics.items()]
        self._writer.add_summary(v1.Summary(value=values), self._step)
        self._writer.flush()


def last_step_with_hook(name, estimator):
    hook = HOOKS[name](getattr(ee.experimental, name), estimator)
    estimator.train(input_fn, hooks=[WritesMetrics(estimator.eval_dir()), hook], max_steps=20)
    return int(estimator.get_variable_value("global_step"))


@pytest.mark.slow
@pytest.mark.parametrize("name", HOOKS)
def test_hooks_end_training_when_they_end_a_plain_estimator(name, tmp_path):
    plain_end = last_step_with_hook(name, plain(tmp_path / "plain"))
    assert 4 < plain_end < 20  # The hook ends the training, before max_steps.
    ends = {one: last_step_with_hook(name, with_a_table(one, tmp_path / one)) for one in CORES}
    assert ends == dict.fromkeys(CORES, plain_end)


@pytest.mark.slow
@pytest.mark.parametrize("place", CORES)
def test_in_memory_evaluation_reads_the_tables_of_its_step(place, tmp_path):
    """Its metric, the mean of all looked-up rows, equals the mean of the checkpoint's rows."""

    def model_fn(features, labels, mode, params):
        spec = harness.gradient_model_fn(["item"])(features, labels, mode, params)
        if mode == ee.ModeKeys.TRAIN:
            return spec
        mean = (lambda rows: {"mean": v1.metrics.mean(rows)}, [tf.identity(features["item"])])
        return ee.TPUEstimatorSpec(mode, loss=spec.loss, eval_metrics=mean)

    made = with_a_table(place, tmp_path, model_fn)
    hook = ee.experimental.InMemoryEvaluatorHook(made, input_fn, steps=1, every_n_iter=2)
    made.train(input_fn, hooks=[hook], max_steps=4)
    found = early_stopping.read_eval_metrics(made.eval_dir())
    assert [*found] == [0, 2, 4]  # By every_n_iter=2.
    means = {step: metrics["mean"] for step, metrics in found.items()}
    for step in (2, 4):
        rows = harness.saved(tmp_path, step)["item"][ITEMS]
        np.testing.assert_allclose(means[step], rows.mean(), rtol=1e-5)
    assert means[2] != means[4]
