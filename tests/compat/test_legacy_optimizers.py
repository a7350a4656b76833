"""Keras optimizers in a model_fn train like the legacy class of the same name."""

import harness
import numpy as np
import pytest
import tensorflow as tf
from tensorflow_estimator.python.estimator.canned import optimizers as of_canned
from tensorflow_estimator.python.estimator.head.regression_head import RegressionHead

import estimator_emb as ee
import estimator_emb.keras
from estimator_emb.compat import legacy_optimizers

v1 = tf.compat.v1
optimizers = tf.keras.optimizers
schedules = optimizers.schedules

SETTINGS = {
    "Adadelta": {"rho": 0.5, "epsilon": 1e-3},
    "Adagrad": {"initial_accumulator_value": 0.5, "epsilon": 1e-3},
    "Adam": {"beta_1": 0.5, "beta_2": 0.75, "epsilon": 1e-3, "amsgrad": True},
    "Adamax": {"beta_1": 0.5, "beta_2": 0.75, "epsilon": 1e-3},
    "Ftrl": {
        "learning_rate_power": -0.25,
        "initial_accumulator_value": 0.5,
        "l1_regularization_strength": 0.01,
        "l2_regularization_strength": 0.02,
        "l2_shrinkage_regularization_strength": 0.03,
        "beta": 0.25,
    },
    "Nadam": {"beta_1": 0.5, "beta_2": 0.75, "epsilon": 1e-3},
    "RMSprop": {"rho": 0.5, "momentum": 0.25, "epsilon": 1e-3, "centered": True},
    "SGD": {"momentum": 0.5, "nesterov": True},
}


class Halved(schedules.LearningRateSchedule):
    def __call__(self, step):
        return 0.5 / (tf.cast(step, tf.float32) + 1.0)

    def get_config(self):
        return {}


SCHEDULES = (
    schedules.ExponentialDecay(0.5, 1, 0.5),
    schedules.PiecewiseConstantDecay([1], [0.5, 0.125]),
    schedules.PolynomialDecay(0.5, 2),
    schedules.InverseTimeDecay(0.5, 1, 0.5),
    schedules.CosineDecay(0.5, 4),
    Halved(),
)
OF_EACH = [{}, {"clipnorm": 0.5}, {"clipvalue": 0.25}, {"global_clipnorm": 0.75}, {"name": "mine"}]
CASES = [
    (name, settings)
    for name, own in SETTINGS.items()
    for settings in ({}, {"learning_rate": 0.25}, *({**own, **more} for more in OF_EACH))
] + [("SGD", {"learning_rate": schedule, "momentum": 0.5}) for schedule in SCHEDULES]


def trained_values(optimizer):
    """Returns a variable after each of three updates in a graph, as a sign of all settings."""
    with tf.Graph().as_default():
        variable = v1.get_variable("w", initializer=[1.0, -2.0])
        loss = tf.reduce_sum(tf.square(variable) * [1.0, 3.0])
        optimizer.iterations = v1.train.get_or_create_global_step()
        update = optimizer.get_updates(loss, [variable])[0]
        with v1.Session() as session:
            session.run(v1.global_variables_initializer())
            return np.array([(session.run(update), session.run(variable))[1] for _ in range(3)])


def test_settings_cover_every_class_with_a_legacy_class():
    assert {*SETTINGS} == {*legacy_optimizers._SAME}
    assert {"AdamW", "Lion"}.isdisjoint(SETTINGS)  # Newer, without a legacy class.


@pytest.mark.fast(2)  # All cases but two are slow.
@pytest.mark.parametrize("name, settings", CASES)
def test_optimizer_made_outside_model_fn_trains_like_legacy(name, settings):
    want = getattr(optimizers.legacy, name)(**settings)
    made = legacy_optimizers.legacy_of(getattr(optimizers, name)(**settings))
    assert (type(made), made._name) == (type(want), want._name)
    np.testing.assert_array_equal(trained_values(made), trained_values(want))


@pytest.mark.parametrize("name, settings", CASES)
def test_optimizer_made_in_model_fn_is_legacy(name, settings):
    want = getattr(optimizers.legacy, name)(**settings)
    with tf.Graph().as_default() as graph, legacy_optimizers.made():
        made = getattr(optimizers, name)(**settings)
        assert not graph.get_operations()
    assert type(made) is type(want)
    assert made.get_config() == want.get_config()


@pytest.mark.parametrize("name", SETTINGS)
def test_order_of_arguments_equals_legacy(name):
    values = [0.25, *SETTINGS[name].values()]
    with tf.Graph().as_default(), legacy_optimizers.made():
        made = getattr(optimizers, name)(*values)
    assert made.get_config() == getattr(optimizers.legacy, name)(*values).get_config()


def test_refuses_settings_that_the_legacy_class_lacks():
    averaged = {"weight_decay": 0.5, "use_ema": True, "ema_overwrite_frequency": 3}
    made = optimizers.SGD(0.1, **averaged)
    message = harness.refusal(ValueError, legacy_optimizers.legacy_of, made)
    assert message == (
        "SGD: An Estimator trains by tf.keras.optimizers.legacy.SGD, which does not know "
        "weight_decay=0.5, use_ema=True, ema_overwrite_frequency=3: leave it out. It takes "
        "clipnorm, clipvalue, decay, global_clipnorm, learning_rate, lr, momentum, name, nesterov."
    )
    with tf.Graph().as_default(), legacy_optimizers.made():
        assert harness.refusal(ValueError, optimizers.SGD, 0.1, **averaged) == message


def test_refuses_classes_without_a_legacy_class():
    for cls in (optimizers.AdamW, optimizers.Lion, type("Own", (optimizers.SGD,), {})):
        message = harness.refusal(ValueError, legacy_optimizers.legacy_of, cls(0.1))
        assert f"tf.keras.optimizers.legacy, which has no {cls.__name__}: give one of " in message


def test_legacy_of_returns_other_objects_unchanged():
    for one in (None, "Adam", optimizers.legacy.SGD(), v1.train.AdamOptimizer(0.1)):
        assert legacy_optimizers.legacy_of(one) is one


def test_only_keras_classes_in_the_graph_of_a_model_fn_become_legacy():
    """`made` is active while a model_fn is called."""
    with tf.Graph().as_default():
        with legacy_optimizers.made():
            pass
        made = optimizers.Adam(0.25)  # After model_fn.
        assert isinstance(made, optimizers.Optimizer)
    assert tf.Module.__new__ is object.__new__  # It has a base class in common with optimizers.
    # The rate is a number, and so fits other graphs.
    assert legacy_optimizers.legacy_of(made).get_config()["learning_rate"] == 0.25
    with legacy_optimizers.made():
        of_canned_estimator = of_canned.get_optimizer_instance_v2(made)
        assert isinstance(of_canned_estimator, optimizers.legacy.Adam)
        assert isinstance(optimizers.Adam(0.1), optimizers.Optimizer)  # Eagerly.
        with tf.Graph().as_default():
            assert type(ee.keras.Adagrad(0.1)) is ee.keras.Adagrad  # A class of another package.


# way: what applies the optimizer. cores: of an emulated TPU, or None for training off a TPU.
@pytest.mark.fast(3)  # All cases but three are slow.
@pytest.mark.parametrize(
    "way, cores",
    [
        ("head", None),  # It gets `before`. Its summary is not supported on a TPU.
        *((way, cores) for way in ("get_updates", "apply_gradients") for cores in (None, 1)),
    ],
)
def test_model_fn_trains_like_with_the_legacy_optimizer(way, cores, tmp_path):
    before = optimizers.SGD(0.1, momentum=0.5)

    def model_fn(features, labels, mode, params):
        weight = v1.get_variable("w", initializer=[[1.0], [2.0]], use_resource=True)
        logits = features @ weight
        step = v1.train.get_or_create_global_step()
        if way == "head":
            given = {"x": features}, mode, logits, labels, before, [weight]
            spec = RegressionHead().create_estimator_spec(*given)
            train_op = tf.group(spec.train_op, step.assign_add(1))
            return ee.TPUEstimatorSpec(mode, loss=spec.loss, train_op=train_op)
        optimizer = optimizers.SGD(0.1, momentum=0.5)
        optimizer.iterations = step
        loss = tf.reduce_mean(tf.square(logits - labels))
        if way == "get_updates":
            train_op = optimizer.get_updates(loss, [weight])[0]
        else:
            train_op = optimizer.apply_gradients([(tf.gradients(loss, weight)[0], weight)])
        return ee.TPUEstimatorSpec(mode, loss=loss, train_op=train_op)

    x, y = np.float32([[1, 2], [3, 4], [5, 6], [7, 8]]) / 8, np.float32([[1], [2], [3], [4]])
    estimator = harness.estimator(model_fn, None, tmp_path, num_shards=cores, run=harness.SILENT)
    estimator.train(harness.input_fn_of([(x, y)] * 2), steps=2)
    # The legacy SGD in NumPy: rate 0.1, and the slope of the mean squared error.
    w, momentum = np.array([[1.0], [2.0]]), 0.0
    for _ in range(2):
        momentum = 0.5 * momentum - 0.1 * 2 * np.mean((x @ w - y) * x, 0)[:, None]
        w += momentum
    np.testing.assert_allclose(estimator.get_variable_value("w"), w, 1e-5)
