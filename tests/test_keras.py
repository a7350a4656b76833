"""`estimator_emb.keras.Adagrad` equals Keras's own: eagerly, in a tf.function, in a v1 graph."""

import contextlib
import functools
import inspect
import itertools

import harness  # harness.refusal(error, call, ...) asserts the error, returns its message.
import numpy as np
import pytest
import tensorflow as tf

from estimator_emb.keras import Adagrad

v1 = tf.compat.v1
schedules = tf.keras.optimizers.schedules
Reference = tf.keras.optimizers.experimental.Adagrad
MODES = ("eager", "function", "graph")


def gradient_of(variable, given):
    if not isinstance(given, tuple):
        return given
    ids, rows = given
    return tf.IndexedSlices(rows, ids, tf.constant(variable.shape.as_list(), tf.int64))


def drive(make, mode, initial, steps, constraint=None):
    """Returns the state after each step: variables, then `optimizer.variables`, as arrays.

    A step holds a gradient for each variable: an array, or a tuple of ids and their rows.
    `constraint` applies to the first variable.
    """
    # The first dimension is open: the number of ids differs from step to step.
    specs = tf.nest.map_structure(
        lambda array: tf.TensorSpec([None, *array.shape[1:]], array.dtype), steps[0]
    )

    def create():
        return [
            tf.Variable(value, name=f"w{i}", constraint=None if i else constraint)
            for i, value in enumerate(initial)
        ]

    def pairs(gradients):
        return list(zip(map(gradient_of, variables, gradients), variables, strict=True))

    def apply(gradients):
        optimizer.apply_gradients(pairs(gradients))

    states = []
    if mode == "graph":
        with tf.Graph().as_default(), v1.Session() as session:
            variables = create()
            inputs = tf.nest.map_structure(lambda one: v1.placeholder(one.dtype, one.shape), specs)
            given, optimizer = pairs(inputs), make()
            step = optimizer.apply_gradients(given)
            session.run(v1.global_variables_initializer())
            for number, gradients in enumerate(steps):
                feeds = zip(tf.nest.flatten(inputs), tf.nest.flatten(gradients), strict=True)
                assert session.run(step, dict(feeds)) == number + 1
                states.append(session.run([*variables, *optimizer.variables]))
        return states
    variables, optimizer = create(), make()
    taken = apply
    if mode == "function":
        taken = tf.function(apply, autograph=False, input_signature=[specs])
    for gradients in steps:
        taken(tf.nest.map_structure(tf.constant, gradients))
        states.append([one.numpy() for one in [*variables, *optimizer.variables]])
    return states


def assert_same_states(got, expected, atol=0.0):
    """Compares two results of `drive`."""
    for number, (one, other) in enumerate(zip(got, expected, strict=True)):
        for i, (a, b) in enumerate(zip(one, other, strict=True)):
            assert a.dtype == b.dtype
            np.testing.assert_allclose(a, b, 0, atol, err_msg=f"step {number + 1}, variable {i}")


def random_steps(count=5, dtype=np.float32):
    """Returns a variable with sparse gradients, another with dense gradients, and their steps."""
    rng = np.random.default_rng(0)
    initial = [rng.normal(size=(6, 3)).astype(dtype), rng.normal(size=4).astype(dtype)]
    steps = [
        [
            (rng.integers(0, 6, size), rng.normal(size=(size, 3)).astype(dtype)),
            rng.normal(size=4).astype(dtype),
        ]
        for size in rng.integers(5, 9, count)
    ]
    return initial, steps


CLIPS = ({}, {"clipnorm": 0.7}, {"clipvalue": 0.4}, {"global_clipnorm": 1.5})
DECAYS = ({}, {"weight_decay": 0.1})
AVERAGES = (
    {},
    {"use_ema": True, "ema_momentum": 0.7},
    {"use_ema": True, "ema_momentum": 0.7, "ema_overwrite_frequency": 2},
)
RATES = (
    {"learning_rate": 0.1, "epsilon": 0.01, "initial_accumulator_value": 0.3},
    {"learning_rate": schedules.ExponentialDecay(0.2, 2, 0.5)},
)
OPTIONS = [{**a, **b, **c, **d} for a, b, c, d in itertools.product(CLIPS, DECAYS, AVERAGES, RATES)]


@functools.cache
def reference_states(number, mode):
    initial, steps = random_steps()
    return drive(lambda: Reference(**OPTIONS[number]), mode, initial, steps, tf.math.abs)


# In a graph, half of the options run. They have each clipping with and without decay, average and
# schedule.
COMBINATIONS = [
    (number, mode)
    for number in range(len(OPTIONS))
    for mode in MODES
    if mode != "graph" or number % 4 in (0, 3)
]


@pytest.mark.fast(2)
@pytest.mark.sampled(16)
@pytest.mark.parametrize(("number", "mode"), COMBINATIONS)
def test_every_combination_of_options_equals_keras(number, mode):
    initial, steps = random_steps()
    got = drive(lambda: Adagrad(**OPTIONS[number]), mode, initial, steps, tf.math.abs)
    # Grappler rewrites graphs and tf.functions. There, even Keras's own results differ by a bit
    # from eager results.
    assert_same_states(got, reference_states(number, "eager" if mode == "eager" else "function"))
    assert_same_states(got, reference_states(number, "eager"), atol=3e-7)


@pytest.mark.fast(1)
@pytest.mark.parametrize(
    "schedule",
    [
        schedules.PiecewiseConstantDecay([1, 3], [0.3, 0.2, 0.1]),
        schedules.CosineDecay(0.01, 4, warmup_target=0.3, warmup_steps=2),
        schedules.PolynomialDecay(0.3, 2, cycle=True),
    ],
    ids=lambda schedule: type(schedule).__name__,
)
def test_schedules_in_a_graph_equal_keras(schedule):
    initial, steps = random_steps(count=6)
    got = drive(lambda: Adagrad(schedule), "graph", initial, steps)
    assert_same_states(got, drive(lambda: Reference(schedule), "function", initial, steps))


@pytest.mark.slow
def test_float64_with_xla_equals_keras():
    initial, steps = random_steps(dtype=np.float64)

    def make(cls):
        optimizer = cls(0.1, use_ema=True)
        optimizer.jit_compile = True  # The constructor allows it only if it sees a GPU.
        return optimizer

    expected = drive(lambda: make(Reference), "function", initial, steps)
    for mode in MODES:
        assert_same_states(drive(lambda: make(Adagrad), mode, initial, steps), expected, atol=1e-12)


@pytest.mark.slow
def test_model_fit_equals_keras():
    rng = np.random.default_rng(0)
    ids, labels = rng.integers(0, 9, (32, 3)), rng.random(32).astype(np.float32)
    weights = []
    layers = tf.keras.layers
    for cls in (Adagrad, Reference):
        tf.keras.utils.set_random_seed(1)
        embedding = layers.Embedding(10, 4, input_length=3)
        model = tf.keras.Sequential([embedding, layers.Flatten(), layers.Dense(1)])
        start = embedding.get_weights()[0]
        optimizer = cls(0.1, use_ema=True, ema_momentum=0.5, ema_overwrite_frequency=3)
        model.compile(optimizer, "mse")
        model.fit(ids, labels, batch_size=8, shuffle=False, verbose=0)
        weights.append(model.get_weights() + [one.numpy() for one in optimizer.variables])
        change = np.abs(embedding.get_weights()[0] - start)
        assert change[:9].max() > 0.01 and change[9].max() == 0  # All ids are less than 9.
    assert_same_states(weights[:1], weights[1:])


OTHER_VALUES = {
    "learning_rate": 0.25,
    "initial_accumulator_value": 0.5,
    "epsilon": 0.01,
    "weight_decay": 0.2,
    "clipnorm": 1.0,
    "clipvalue": 2.0,
    "global_clipnorm": None,  # Excludes clipnorm, so it is tested separately.
    "use_ema": True,
    "ema_momentum": 0.5,
    "ema_overwrite_frequency": 3,
    "jit_compile": False,
    "name": "Other",
}


@pytest.mark.parametrize("in_graph", [False, True])
def test_config_equals_keras_and_makes_an_equal_optimizer(in_graph):
    assert {*inspect.signature(Adagrad).parameters} == {*OTHER_VALUES, "kwargs"}
    schedule = schedules.ExponentialDecay(0.2, 2, 0.5)
    changed = {"clipnorm": None, "global_clipnorm": 3.0, "epsilon": -0.01, "weight_decay": -0.2}
    for values in ({}, OTHER_VALUES, {**OTHER_VALUES, **changed, "learning_rate": schedule}):
        expected = Reference(**values).get_config()
        with tf.Graph().as_default() if in_graph else tf.init_scope():
            config = Adagrad(**values).get_config()
            again = Adagrad.from_config(dict(config))
            assert type(again) is Adagrad
            assert again.get_config() == config
        assert config == expected
        assert type(config["learning_rate"]) is type(expected["learning_rate"])
        assert set(config) == {*OTHER_VALUES, "is_legacy_optimizer"}
        for name, value in values.items():
            if name != "learning_rate":
                assert config[name] == value


def test_methods_and_properties_have_the_signatures_of_keras():
    for name, method in inspect.getmembers(Reference, inspect.isfunction):
        ours = inspect.signature(getattr(Adagrad, name)).parameters
        theirs = inspect.signature(method).parameters
        assert [(p.name, p.kind, p.default) for p in ours.values()] == [
            (p.name, p.kind, p.default) for p in theirs.values()
        ], name
    properties = dict(inspect.getmembers(Reference, lambda one: isinstance(one, property)))
    for name, theirs in properties.items():
        assert bool(getattr(Adagrad, name).fset) == bool(theirs.fset), name


def test_learning_rate_can_be_set_outside_graphs():
    optimizer = Adagrad(0.1)
    optimizer.learning_rate = 0.5
    assert optimizer.learning_rate.numpy() == optimizer.lr.numpy() == 0.5
    optimizer.lr = 0.25
    assert optimizer.get_config()["learning_rate"] == 0.25


@pytest.mark.parametrize("in_graph", [False, True])
def test_constructor_errors_equal_keras(in_graph):
    for options in (
        {"use_ema": True, "ema_momentum": 1.5},
        {"use_ema": True, "ema_overwrite_frequency": -1},
        {"clipnorm": 1.0, "global_clipnorm": 1.0},
        {"decay": 0.1},
        {"beta": 0.1},
    ):
        with pytest.raises((TypeError, ValueError)) as expected:
            Reference(**options)
        with tf.Graph().as_default() if in_graph else tf.init_scope():
            assert harness.refusal(expected.type, Adagrad, **options) == str(expected.value)


@pytest.mark.parametrize("mode", ["eager", "graph"])
@pytest.mark.parametrize(
    "name, value, message",
    [
        ("learning_rate", -0.1, "must not be negative; got -0.1."),
        ("learning_rate", float("nan"), "must not be NaN."),
        ("learning_rate", float("inf"), "must be finite in float32; got inf."),
        ("initial_accumulator_value", -1.0, "must not be negative; got -1.0."),
        ("epsilon", float("nan"), "must not be NaN."),
        ("weight_decay", float("inf"), "must be finite in float32; got inf."),
    ],
)
def test_invalid_hyperparameters_are_refused(mode, name, value, message):
    message = f"Adagrad: {name} {message}"
    with tf.Graph().as_default() if mode == "graph" else contextlib.nullcontext():
        assert harness.refusal(ValueError, Adagrad, **{name: value}) == message
        optimizer = Adagrad(0.0)
    if mode == "eager" and name == "learning_rate":
        assert harness.refusal(ValueError, setattr, optimizer, name, value) == message
