"""What a training does to tables around their optimizers, compared with closed-form numbers."""

import harness
import numpy as np
import pytest
import tensorflow as tf
from host_engine import on_both_kernels

import estimator_emb as ee

START = np.array([[1.0, -2.0], [0.5, 0.25], [-1.5, 3.0], [2.0, 0.75]], np.float32)


def spec_of(parameters=None, names=("x",)):
    """Returns a spec of tables with values START, each with a feature of its name."""
    table = ee.TableConfig(4, 2, harness.initializer(START), "sum")
    parameters = parameters or ee.StochasticGradientDescentParameters(1.0)
    return harness.tables_spec(dict.fromkeys(names, table), parameters)


def train(spec, model_dir, batches):
    """Trains on (ids, activation gradients) pairs by key. Returns the last checkpoint."""
    model_fn = harness.gradient_model_fn(list(spec.feature_to_config_dict))
    samples = len(next(iter(batches[0][0].values())))
    estimator = harness.estimator(model_fn, spec, model_dir, samples)
    estimator.train(harness.input_fn_of(batches), steps=len(batches))
    return harness.saved(model_dir, len(batches))


IDS, LABELS = np.array([1, 3, 1, 3]), np.array([[1, 2], [3, 4], [5, 6], [7, 8]], np.float32)
ONE = [({"x": IDS}, {"x": LABELS})]
SUMS = np.array([[1 + 5, 2 + 6], [3 + 7, 4 + 8]], np.float32)
"""Gradients of rows 1 and 3 by the first loss of the model below, whose gradient is the labels."""


def changed_by(train_op_of, tmp_path, cores=None):
    """Trains one SGD step of rate 1 on the first of two losses. Returns START - x of rows 1, 3."""

    def model_fn(features, labels, mode, params):
        scale = tf.compat.v1.get_variable("scale", [2], initializer=tf.ones_initializer())
        output = features["x"] * scale
        losses = tf.reduce_sum(output * labels["x"]), tf.reduce_sum(output * 10.0)
        return ee.TPUEstimatorSpec(mode, loss=losses[0], train_op=train_op_of(*losses))

    estimator = harness.estimator(model_fn, spec_of(), tmp_path, num_shards=cores)
    estimator.train(harness.input_fn_of(ONE), steps=1)
    return (START - harness.saved(tmp_path, 1)["x"])[[1, 3]]


def test_clipping_between_compute_and_apply_leaves_the_tables_alone(tmp_path):
    """As on a TPU: its hardware trains tables by the gradients of activations, not by train_op."""

    def train_op_of(loss, _):
        optimizer = tf.compat.v1.train.AdamOptimizer(0.01)
        gradients, variables = zip(*optimizer.compute_gradients(loss), strict=True)
        clipped, _ = tf.clip_by_global_norm(gradients, 0.001)
        pairs = zip(clipped, variables, strict=True)
        return optimizer.apply_gradients(pairs, tf.compat.v1.train.get_global_step())

    np.testing.assert_allclose(changed_by(train_op_of, tmp_path), SUMS, rtol=1e-5)
    # Slots of the helper variable that carries the gradient are not saved.
    names = set(harness.saved(tmp_path, 1))
    of_adam = {"scale/Adam", "scale/Adam_1", "beta1_power", "beta2_power"}
    assert names == {"x", "global_step", "scale", *of_adam}


@pytest.mark.parametrize("rewrite", [False, True])
def test_an_optimizer_that_scales_the_loss_is_refused(rewrite, tmp_path, assert_recorded):
    """The table would get the gradient of the scaled loss."""
    mixed = tf.compat.v1.mixed_precision

    def train_op_of(loss, _):
        optimizer = tf.compat.v1.train.GradientDescentOptimizer(0.0)
        if rewrite:
            optimizer = mixed.enable_mixed_precision_graph_rewrite(optimizer, 128.0)
        else:
            scale = mixed.FixedLossScale(128.0)
            optimizer = mixed.MixedPrecisionLossScaleOptimizer(optimizer, scale)
        return optimizer.minimize(loss, tf.compat.v1.train.get_global_step())

    try:
        message = harness.refusal(ValueError, changed_by, train_op_of, tmp_path)
    finally:
        mixed.disable_mixed_precision_graph_rewrite()
    assert_recorded(message)  # As in messages.json: "... would train by the scaled loss".


def an_optimizer():
    optimizer = tf.compat.v1.train.GradientDescentOptimizer(0.0)
    return tf.compat.v1.tpu.CrossShardOptimizer(optimizer, tf.compat.v1.losses.Reduction.SUM)


@pytest.mark.parametrize("cores", [None, 2])
def test_two_optimizers_of_one_table_are_refused(cores, tmp_path, assert_recorded):
    """Both would update the table. A TPU refuses this too."""

    def apply(first, second):
        both = an_optimizer().minimize(first), an_optimizer().minimize(second)
        return tf.group(*both, tf.compat.v1.train.get_global_step().assign_add(1))

    refused = harness.refusal(RuntimeError, changed_by, apply, tmp_path, cores)
    assert_recorded(refused)  # As in messages.json: it names the feature and two ways out.


@pytest.mark.fast(1)
@pytest.mark.parametrize("cores, last", [(None, False), (1, True), (2, False), (2, True)])
def test_unapplied_gradients_do_not_update_tables(cores, last, tmp_path):
    """Gradients of another loss, computed before or after those that train."""

    def apply(first, second):
        def look():
            variables = tf.compat.v1.trainable_variables()
            return tf.linalg.global_norm(tf.gradients(second, variables))

        before = None if last else look()
        step = tf.compat.v1.train.get_global_step()
        done = an_optimizer().minimize(first, global_step=step)
        norm = look() if last else before
        with tf.control_dependencies([done]):
            return tf.group(tf.debugging.check_numerics(norm, "norm"))

    np.testing.assert_allclose(changed_by(apply, tmp_path, cores), SUMS, rtol=1e-6)


def test_without_a_helper_gradient_the_last_gradient_updates_the_table(tmp_path, caplog):
    """The tables' gradients go through a helper variable, "tpu_embedding_dummy_table_variable".

    Older programs skip it when they apply gradients, so that nothing tells which gradient trains.
    """

    def apply(first, second):
        optimizer = tf.compat.v1.train.GradientDescentOptimizer(0.0)
        tf.gradients(second, tf.compat.v1.trainable_variables())
        found = optimizer.compute_gradients(first)
        without_helper = [(gradient, one) for gradient, one in found if "dummy" not in one.name]
        return optimizer.apply_gradients(without_helper, tf.compat.v1.train.get_global_step())

    np.testing.assert_allclose(changed_by(apply, tmp_path), SUMS, rtol=1e-6)
    begin = "Feature 'x': model_fn computes 2 gradients of its activation, but applies none of "
    assert any(line.startswith(begin) for line in harness.said(caplog))


@on_both_kernels
def test_a_bad_id_stops_before_any_update(tmp_path):
    gradients = {key: np.ones([1, 2], np.float32) for key in ("good", "bad")}
    # Of tables with 4 rows. In the second batch, the feature "bad" has the id 4.
    batches = [({"good": np.array([i]), "bad": np.array([i + 2])}, gradients) for i in (1, 2)]
    with pytest.raises(tf.errors.InvalidArgumentError) as error:
        train(spec_of(names=("good", "bad")), tmp_path, batches)
    assert "[Feature bad of table bad: id 4 is outside [0, 4). " in error.value.message
    assert tf.train.latest_checkpoint(str(tmp_path)).endswith("-1")
    assert not list(tmp_path.glob("*-2*"))


FREQUENCY = ee.FrequencyEstimatorParameters(0.1, 50.0, 3.0, 1.0)


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        (None, "Table 'x' has no optimizer: give it optimization_parameters in its TableConfig"),
        (FREQUENCY, "Table 'x': FrequencyEstimatorParameters needs dimension 1; got 2."),
    ],
)
def test_a_spec_made_invalid_by_replace_is_refused_at_use(parameters, message, tmp_path):
    """`_replace` of a named tuple does not run the checks of the spec's constructor."""
    spec = spec_of()._replace(optimization_parameters=parameters)
    assert harness.refusal(ValueError, train, spec, tmp_path, ONE).startswith(message)


@pytest.mark.fast(1)
@pytest.mark.parametrize("cores", [None, 2])
def test_activations_returned_without_an_op_are_looked_up(cores, tmp_path):
    """A feature that no op reads is not looked up, unless model_fn returns its activation."""

    def model_fn(features, labels, mode, params):
        x, mean = features["x"], tf.compat.v1.metrics.mean
        metrics, loss = (lambda x: {"mean": mean(x)}, [x]), tf.constant(0.0)
        return ee.TPUEstimatorSpec(mode, loss=loss, predictions={"x": x}, eval_metrics=metrics)

    estimator = harness.estimator(model_fn, spec_of(), tmp_path, num_shards=cores)
    predicted = [one["x"] for one in estimator.predict(harness.input_fn_of(ONE))]
    np.testing.assert_array_equal(predicted, START[IDS])
    metrics = estimator.evaluate(harness.input_fn_of(ONE), steps=1)
    assert metrics["mean"] == pytest.approx(START[IDS].mean())


def test_one_log_line_describes_the_tables(tmp_path, said, assert_recorded):
    train(spec_of(parameters=ee.AdamParameters(0.1)), tmp_path, ONE)
    # Other lines say whether native kernels are used.
    tables, progress = (one for one in said() if "ative kernels" not in one)
    assert_recorded(tables)  # Its numbers of tables, rows and bytes, as in messages.json.
    assert progress.startswith("step 1 of 1, mean loss ")
