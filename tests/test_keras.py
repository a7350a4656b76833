# SPDX-License-Identifier: Apache-2.0
"""`estimator_emb.keras.Adagrad` against Keras's own: eagerly, in a tf.function, in a v1 graph."""

import contextlib
import functools
import inspect
import itertools

import harness
import numpy as np
import processes
import pytest
import reference
import tensorflow as tf
from golden_training import GOLDEN
from tensorflow.python.tpu import tpu_function

import estimator_emb as ee
from estimator_emb.keras import Adagrad
from estimator_emb.step import cores
from estimator_emb.step.cores import Cores

v1 = tf.compat.v1
schedules = tf.keras.optimizers.schedules
Reference = tf.keras.optimizers.experimental.Adagrad
MODES = ("eager", "function", "graph")


# ---- Driving an optimizer in each of the three ways -------------------------------------------


def gradient_of(parts, shape):
    """A dense gradient of one array, IndexedSlices of ids and values."""
    if len(parts) == 1:
        return parts[0]
    ids, values = parts
    return tf.IndexedSlices(values, ids, tf.constant(list(shape), tf.int64))


def drive(make, mode, initial, steps, constraint=None):
    """The state after each step: variables, then `optimizer.variables`, as NumPy arrays.

    Steps hold for each variable what `gradient_of` takes; `constraint` is of the first variable.
    """
    flat = [[array for parts in step for array in parts] for step in steps]
    counts = [len(parts) for parts in steps[0]]

    def create():
        return [
            tf.Variable(value, name=f"w{i}", constraint=None if i else constraint)
            for i, value in enumerate(initial)
        ]

    def pairs(variables, arrays):
        arrays = iter(arrays)
        return [
            (gradient_of(list(itertools.islice(arrays, count)), variable.shape), variable)
            for variable, count in zip(variables, counts, strict=True)
        ]

    states = []
    if mode in ("graph", "function in a graph"):
        with tf.Graph().as_default(), v1.Session() as session:
            variables = create()
            inputs = [v1.placeholder(array.dtype, [None, *array.shape[1:]]) for array in flat[0]]
            optimizer = make()

            def in_graph():
                optimizer.apply_gradients(pairs(variables, inputs))
                return optimizer.iterations.read_value()

            if mode == "graph":
                step = optimizer.apply_gradients(pairs(variables, inputs))
            else:
                step = tf.function(in_graph)()
            session.run(v1.global_variables_initializer())
            for number, arrays in enumerate(flat):
                done = session.run(step, dict(zip(inputs, arrays, strict=True)))
                assert done == number + 1
                states.append(session.run([*variables, *optimizer.variables]))
        return states
    variables, optimizer = create(), make()

    def apply(*arrays):
        optimizer.apply_gradients(pairs(variables, arrays))

    if mode == "function":
        # Shapes as in the graph: the number of ids differs from step to step.
        apply = tf.function(
            apply,
            autograph=False,
            input_signature=[tf.TensorSpec([None, *a.shape[1:]], a.dtype) for a in flat[0]],
        )
    for arrays in flat:
        apply(*map(tf.constant, arrays))
        states.append([one.numpy() for one in [*variables, *optimizer.variables]])
    return states


def assert_equal(got, expected, atol=0.0):
    for number, (one, other) in enumerate(zip(got, expected, strict=True)):
        for i, (a, b) in enumerate(zip(one, other, strict=True)):
            assert a.dtype == b.dtype
            np.testing.assert_allclose(
                a, b, rtol=0, atol=atol, err_msg=f"step {number + 1}, variable {i}"
            )


def random_steps(count=5, dtype=np.float32):
    """A variable with sparse gradients that repeat ids, and one with dense gradients."""
    rng = np.random.default_rng(0)
    initial = [rng.normal(size=(6, 3)).astype(dtype), rng.normal(size=4).astype(dtype)]
    steps = [
        (
            (rng.integers(0, 6, size), rng.normal(size=(size, 3)).astype(dtype)),
            (rng.normal(size=4).astype(dtype),),
        )
        for size in rng.integers(5, 9, count)
    ]
    return initial, steps


# ---- Equal to Keras ---------------------------------------------------------------------------

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
OPTIONS = [
    functools.reduce(lambda a, b: {**a, **b}, options)
    for options in itertools.product(CLIPS, DECAYS, AVERAGES, RATES)
]


@functools.cache
def reference_states(number, mode):
    initial, steps = random_steps()
    return drive(lambda: Reference(**OPTIONS[number]), mode, initial, steps, tf.math.abs)


# In a graph, two of every four: they have each clipping with and without decay, average, schedule.
COMBINATIONS = [
    (number, mode)
    for number in range(len(OPTIONS))
    for mode in MODES
    if mode != "graph" or number % 4 in (0, 3)
]


@pytest.mark.slow
@pytest.mark.sampled(24)
@pytest.mark.parametrize(("number", "mode"), COMBINATIONS)
def test_every_combination_of_options_equals_keras(number, mode):
    initial, steps = random_steps()
    got = drive(lambda: Adagrad(**OPTIONS[number]), mode, initial, steps, tf.math.abs)
    # Grappler rewrites a graph or tf.function: Keras itself differs by a bit there from eager.
    assert_equal(got, reference_states(number, "eager" if mode == "eager" else "function"))
    assert_equal(got, reference_states(number, "eager"), atol=3e-7)


@pytest.mark.parametrize(
    "schedule",
    [
        schedules.PiecewiseConstantDecay([1, 3], [0.3, 0.2, 0.1]),
        schedules.CosineDecay(0.01, 4, warmup_target=0.3, warmup_steps=2),
        schedules.PolynomialDecay(0.3, 2, cycle=True),
    ],
    ids=lambda schedule: type(schedule).__name__,
)
def test_schedules_in_a_graph(schedule):
    initial, steps = random_steps(count=6)
    got = drive(lambda: Adagrad(schedule), "graph", initial, steps)
    assert_equal(got, drive(lambda: Reference(schedule), "function", initial, steps))


@pytest.mark.slow
@pytest.mark.parametrize("mode", MODES)
def test_float64_and_xla(mode):
    initial, steps = random_steps(dtype=np.float64)

    def make(cls):
        optimizer = cls(0.1, use_ema=True)
        optimizer.jit_compile = True  # The constructor allows it only where it sees a GPU.
        return optimizer

    expected = drive(lambda: make(Reference), "function", initial, steps)
    assert_equal(drive(lambda: make(Adagrad), mode, initial, steps), expected, atol=1e-12)


def golden_steps():
    """The gradients of the golden fixture, one row for each id as the batch lists them."""
    for step in GOLDEN["steps"]:
        samples = reference.of_samples(step["ids"], step["weights"], step["act_grad"], "sum")
        ids, values = zip(*itertools.chain(*samples), strict=True)
        yield ((np.array(ids), np.array(values, np.float32)),)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("case", GOLDEN["keras"])
def test_golden(case, mode):
    expected = GOLDEN["keras"][case]
    options = dict(expected["args"])
    if "ema" in options:
        options = {
            "use_ema": True,
            "ema_momentum": options["ema"],
            "ema_overwrite_frequency": options["overwrite"],
        }
    table = np.array(GOLDEN["table"], np.float32)
    states = drive(lambda: Adagrad(0.1, **options), mode, [table], list(golden_steps()))
    for number, (variable, _, *slots) in enumerate(states):
        names = ["average", "accumulator"] if "use_ema" in options else ["accumulator"]
        for name, value in zip(["variable", *names], [variable, *slots], strict=True):
            for precision in ("f32", "f64"):
                np.testing.assert_allclose(
                    value,
                    expected[precision][f"step{number + 1}"][name],
                    rtol=1e-6,
                    atol=1e-6,
                    err_msg=f"{name} after step {number + 1}, {precision}",
                )


def test_model_fit_with_embedding_layer():
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
        assert change[:9].max() > 0.01
        assert change[9].max() == 0
    assert_equal(weights[:1], weights[1:])


# ---- In a v1 graph ----------------------------------------------------------------------------


@pytest.fixture
def session():
    with tf.Graph().as_default(), v1.Session() as session:
        yield session


def variable_in_graph(value=(1.0, 2.0), name="w"):
    return tf.Variable(list(value), name=name)


def loss_of(variable):
    return tf.reduce_sum(variable * tf.constant([1.0, 2.0]))


def after(weights, gradient=(1.0, 2.0), steps=1, accumulator=0.1):
    weights, gradient = np.array(weights), np.array(gradient)
    for _ in range(steps):
        accumulator = accumulator + gradient**2
        weights = weights - 0.1 * gradient / np.sqrt(accumulator + 1e-7)
    return weights


@pytest.mark.parametrize("loss", ["tensor", "callable", "tape", "all callable"])
def test_minimize_returns_the_step(loss, session):
    w = variable_in_graph()
    optimizer = Adagrad(0.1)
    with tf.GradientTape() as tape:
        value = loss_of(w)
    arguments = {
        "tensor": (value, [w]),
        "callable": (lambda: loss_of(w), [w]),
        "all callable": (lambda: loss_of(w), lambda: [w]),
        "tape": (value, [w], tape),
    }
    step = optimizer.minimize(*arguments[loss])
    session.run(v1.global_variables_initializer())
    for number in (1, 2, 3):
        # Fetching it twice, and with its op, is still one step.
        assert session.run([step, step, step.op]) == [number, number, None]
        np.testing.assert_allclose(session.run(w), after([1, 2], steps=number), rtol=1e-6)
    assert session.run(optimizer.iterations) == 3


def test_minimize_outside_graphs_returns_none():
    w = variable_in_graph()
    optimizer = Adagrad(0.1)
    assert optimizer.minimize(lambda: loss_of(w), [w]) is None
    np.testing.assert_allclose(w, after([1, 2]), rtol=1e-6)
    assert optimizer.apply_gradients([(tf.constant([1.0, 2.0]), w)]) is not None
    with pytest.raises(ValueError, match="`tape` is required when a `Tensor` loss is passed"):
        optimizer.minimize(loss_of(w), [w])


def test_step_waits_for_control_dependencies_and_branches(session):
    w, counter = variable_in_graph(), tf.Variable(0)
    wanted = v1.placeholder(tf.bool, [])
    optimizer = Adagrad(0.1)
    gradient = tf.constant([1.0, 2.0])
    with tf.control_dependencies([counter.assign_add(1)]):
        step = tf.cond(
            wanted,
            lambda: optimizer.apply_gradients([(gradient, w)]),
            lambda: tf.constant(-1, tf.int64),
        )
    session.run(v1.global_variables_initializer())
    assert session.run(step, {wanted: False}) == -1
    np.testing.assert_array_equal(session.run(w), [1, 2])
    assert session.run(step, {wanted: True}) == 1
    np.testing.assert_allclose(session.run(w), after([1, 2]), rtol=1e-6)
    assert session.run(counter) == 2


def test_steps_in_a_loop(session):
    """As TPUEstimator builds it on a TPU, for `iterations_per_loop` steps."""
    w = variable_in_graph()
    optimizer = Adagrad(0.1, use_ema=True, ema_momentum=0.0, ema_overwrite_frequency=1)

    def body(number):
        with tf.control_dependencies([optimizer.minimize(loss_of(w), [w])]):
            return number + 1

    loop = tf.while_loop(lambda number: number < 3, body, [0])
    session.run(v1.global_variables_initializer())
    session.run(loop)
    np.testing.assert_allclose(session.run(w), after([1, 2], steps=3), rtol=1e-6)
    assert session.run(optimizer.iterations) == 3


def test_in_wrap_function():
    def one_step(gradient):
        w = v1.get_variable("w", [2], initializer=v1.ones_initializer(), use_resource=True)
        optimizer = Adagrad(0.1)
        optimizer.iterations = v1.train.get_or_create_global_step()
        return optimizer.minimize(tf.reduce_sum(w * gradient), [w])

    wrapped = v1.wrap_function(one_step, [tf.TensorSpec([2])])
    assert wrapped(tf.constant([1.0, 2.0])).numpy() == 1
    w, *_ = wrapped.graph.variables
    np.testing.assert_allclose(w, after([1, 1]), rtol=1e-6)


def test_the_programs_own_function_in_a_graph():
    """Here Keras's own optimizer works, but for the overwrite."""
    options = {"use_ema": True, "ema_momentum": 0.7, "ema_overwrite_frequency": 2}
    got = drive(lambda: Adagrad(0.1, **options), "function in a graph", *random_steps())
    assert_equal(got, drive(lambda: Reference(0.1, **options), "function", *random_steps()))


def test_initializers_run_in_any_order():
    with tf.Graph().as_default():
        w = tf.Variable(tf.random.normal([300, 300]))
        optimizer = Adagrad(schedules.ExponentialDecay(0.1, 10, 0.5), use_ema=True)
        optimizer.build([w])
        average = optimizer.variables[1]
        initialize = v1.global_variables_initializer()
        for _ in range(30):
            with v1.Session() as session:
                session.run(initialize)
                np.testing.assert_array_equal(*session.run([w, average]))
                assert session.run(optimizer.learning_rate) == np.float32(0.1)


def test_averages_start_at_the_first_step(session):
    w = variable_in_graph()
    step = Adagrad(0.1, use_ema=True, ema_momentum=1.0).minimize(loss_of(w), [w])
    (average,) = [one for one in v1.global_variables() if "average" in one.name]
    session.run(v1.global_variables_initializer())
    session.run(w.assign([3.0, 4.0]))  # As a warm start does, or a restored checkpoint.
    for _ in range(2):
        session.run(step)
        np.testing.assert_array_equal(session.run(average), [3, 4])


def test_pairs_without_gradient_and_no_pairs(session):
    w, unused = variable_in_graph(), variable_in_graph(name="unused")
    optimizer = Adagrad(0.1)
    step = optimizer.minimize(loss_of(w), [w, unused])
    nothing = optimizer.apply_gradients([])
    session.run(v1.global_variables_initializer())
    assert session.run(nothing) == 0
    assert session.run(step) == 1
    np.testing.assert_array_equal(session.run(unused), [1, 2])
    with pytest.raises(ValueError, match="No gradients provided for any variable"):
        optimizer.apply_gradients([(None, w)])


def test_update_step_and_finalize_return_ops(session):
    w = variable_in_graph()
    optimizer = Adagrad(0.1, use_ema=True)
    optimizer.build([w])
    update = optimizer.update_step(tf.constant([1.0, 2.0]), w)
    finalize = optimizer.finalize_variable_values([w])
    session.run(v1.global_variables_initializer())
    assert session.run(update) == 0
    np.testing.assert_allclose(session.run(w), after([1, 2]), rtol=1e-6)
    session.run(finalize)
    np.testing.assert_array_equal(session.run(w), [1, 2])


def test_methods_that_create_variables_in_a_graph(session):
    w = variable_in_graph()
    optimizer = Adagrad(0.1)
    ones = optimizer.add_variable([2], initializer="ones", name="own")
    momentum = optimizer.add_variable_from_reference(w, "momentum")
    assert [one.name for one in optimizer.variables] == ["iteration:0", "own:0", "momentum/w:0"]
    session.run(v1.global_variables_initializer())
    np.testing.assert_array_equal(session.run(ones + momentum), [1, 1])


@pytest.mark.parametrize("shards", [None, 1, 2])
@pytest.mark.parametrize("aggregate", [True, False])
def test_sums_over_tpu_cores(shards, aggregate, monkeypatch):
    """The op of the sum has no kernel here: stand-ins double, as two equal cores would."""
    monkeypatch.setattr(
        cores,
        "_unchanged",
        lambda x, group_assignment, name=None: tf.nest.map_structure(
            lambda one: one * (shards or 1) if one.dtype.is_floating else one,
            x,
            expand_composites=True,
        ),
    )
    with tf.Graph().as_default(), v1.Session() as session, Cores().running(shards is not None):
        tpu_function.get_tpu_context().set_number_of_shards(shards)
        w, table = variable_in_graph(), variable_in_graph()
        pairs = [
            (tf.constant([1.0, 2.0]), w),
            (tf.IndexedSlices(tf.constant([2.0]), tf.constant([1]), tf.constant([2])), table),
        ]
        step = Adagrad(0.1).apply_gradients(pairs, skip_gradients_aggregation=not aggregate)
        same = Adagrad(0.1).apply_gradients(pairs, experimental_aggregate_gradients=aggregate)
        factor = shards if shards and aggregate else 1
        for one in (step, same):
            session.run(v1.global_variables_initializer())
            session.run(one)
            expected = after([1, 2], [factor, 2 * factor])
            np.testing.assert_allclose(session.run(w), expected, rtol=1e-6)
            np.testing.assert_allclose(session.run(table), [1, expected[1]], rtol=1e-6)


# ---- In an Estimator --------------------------------------------------------------------------

OPTIMIZERS = {
    "constant": {"learning_rate": 0.1},
    "everything": {
        "learning_rate": schedules.ExponentialDecay(0.2, 2, 0.5),
        "weight_decay": 0.01,
        "global_clipnorm": 1.0,
        "use_ema": True,
        "ema_momentum": 0.6,
        "ema_overwrite_frequency": 2,
    },
}


TABLE = np.random.default_rng(1).random((5, 3)).astype(np.float32)


def batches(count):
    rng = np.random.default_rng(0)
    return [
        ({"id": rng.integers(0, 5, 4)}, rng.random((4, 1)).astype(np.float32)) for _ in range(count)
    ]


def estimator(options, model_dir, device, callable_loss=False):
    """One of a table 'id' and a dense variable 'w', which our optimizer trains."""

    def model_fn(features, labels, mode, params):
        w = v1.get_variable("w", initializer=tf.ones([3, 1]) / 3, use_resource=True)
        activation = tf.identity(features["id"])

        def error():
            return tf.reduce_mean(tf.square(tf.matmul(activation, w) - labels))

        optimizer = Adagrad(**options)
        optimizer.iterations = v1.train.get_or_create_global_step()
        loss = error()
        train_op = optimizer.minimize(error if callable_loss else loss, v1.trainable_variables())
        return ee.TPUEstimatorSpec(mode, loss=loss, train_op=train_op)

    table = ee.TableConfig(5, 3, harness.initializer(TABLE), "sum")
    spec = harness.tables_spec({"id": table}, ee.StochasticGradientDescentParameters(0.5))
    return harness.estimator(model_fn, spec, model_dir, device=device)


@pytest.mark.slow
@pytest.mark.parametrize("device", [None, "host"])
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_estimator_saves_and_resumes(name, device, tmp_path):
    options, data = OPTIMIZERS[name], batches(6)
    for run, parts in {"once": [data], "twice": [data[:3], data[3:]]}.items():
        for part in parts:
            made = estimator(options, tmp_path / run, device)
            made.train(harness.input_fn_of(part), steps=len(part))
    once, twice = (harness.saved(tmp_path / run, 6) for run in ("once", "twice"))
    slots = {"Adagrad/accumulator/w"} | ({"Adagrad/average/w"} if "use_ema" in options else set())
    rate = "learning_rate" if name == "constant" else "current_learning_rate"
    assert set(once) == {"global_step", "id", "w", "iteration", rate, *slots}
    assert once["global_step"] == 6
    np.testing.assert_equal(twice, once)


@pytest.mark.parametrize("callable_loss, device", [(False, "host"), (True, None)])
def test_estimator_with_embedding_tables(device, callable_loss, tmp_path):
    """Gradients reach the tables through the optimizer of the dense variables."""
    data, options = batches(3), OPTIMIZERS["everything"]
    made = estimator(options, tmp_path, device, callable_loss)
    made.train(harness.input_fn_of(data), steps=3)

    w, rows = tf.Variable(tf.ones([3, 1]) / 3), tf.Variable(TABLE)
    optimizer = Reference(**options)
    for features, labels in data:
        with tf.GradientTape() as tape:
            activation = tf.gather(rows, features["id"])
            loss = tf.reduce_mean(tf.square(tf.matmul(activation, w) - labels))
        d_w, d_rows = tape.gradient(loss, [w, rows])
        optimizer.apply_gradients([(d_w, w)])
        rows.scatter_sub(tf.IndexedSlices(0.5 * d_rows.values, d_rows.indices))
    got = harness.saved(tmp_path, 3)
    np.testing.assert_allclose(got["w"], w, atol=1e-6)
    np.testing.assert_allclose(got["id"], rows, atol=1e-6)
    assert not [name for name in got if "dummy" in name]


# ---- Configuration and contract ---------------------------------------------------------------

OTHER_VALUES = {
    "learning_rate": 0.25,
    "initial_accumulator_value": 0.5,
    "epsilon": 0.01,
    "weight_decay": 0.2,
    "clipnorm": 1.0,
    "clipvalue": 2.0,
    "global_clipnorm": None,  # Not together with clipnorm; tested apart.
    "use_ema": True,
    "ema_momentum": 0.5,
    "ema_overwrite_frequency": 3,
    "jit_compile": False,
    "name": "Other",
}


@pytest.mark.parametrize("in_graph", [False, True])
def test_config_round_trip(in_graph):
    assert {*inspect.signature(Adagrad).parameters} == {*OTHER_VALUES, "kwargs"}
    schedule = schedules.ExponentialDecay(0.2, 2, 0.5)
    for values in (
        {},
        OTHER_VALUES,
        {**OTHER_VALUES, "clipnorm": None, "global_clipnorm": 3.0, "learning_rate": schedule},
    ):
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


def test_methods_keep_their_signatures():
    for name, method in inspect.getmembers(Reference, inspect.isfunction):
        ours = inspect.signature(getattr(Adagrad, name)).parameters
        theirs = inspect.signature(method).parameters
        assert [(p.name, p.kind, p.default) for p in ours.values()] == [
            (p.name, p.kind, p.default) for p in theirs.values()
        ], name
    properties = dict(inspect.getmembers(Reference, lambda one: isinstance(one, property)))
    for name, theirs in properties.items():
        assert bool(getattr(Adagrad, name).fset) == bool(theirs.fset), name


def test_learning_rate_outside_graphs():
    optimizer = Adagrad(0.1)
    optimizer.learning_rate = 0.5
    assert optimizer.learning_rate.numpy() == optimizer.lr.numpy() == 0.5
    optimizer.lr = 0.25
    assert optimizer.get_config()["learning_rate"] == 0.25


# ---- Errors -----------------------------------------------------------------------------------


def test_learning_rate_cannot_be_set_in_a_graph(session):
    optimizer = Adagrad(0.1)
    for attribute in ("learning_rate", "lr"):
        assert harness.refusal(RuntimeError, setattr, optimizer, attribute, 0.2) == (
            "Adagrad: learning_rate cannot be set in a graph, where no one would run the "
            "assignment. Pass a tf.keras.optimizers.schedules.LearningRateSchedule to the "
            "constructor, or run learning_rate.assign(...) in the session."
        )


def test_learning_rate_read_once_is_refused(session):
    for rate in (tf.constant(0.1), lambda: 0.1):
        assert harness.refusal(TypeError, Adagrad, rate) == (
            "Adagrad: in a graph learning_rate must be a number or a LearningRateSchedule; "
            "anything else would be read only once, when variables are initialised; got "
            f"{rate!r}."
        )


def test_created_outside_the_graph():
    eager, w = Adagrad(0.1), variable_in_graph()
    scheduled = Adagrad(schedules.ExponentialDecay(0.2, 2, 0.5))
    gradient = np.array([1.0, 2.0], np.float32)
    with tf.Graph().as_default():
        other = Adagrad(0.1)
        other.build([variable_in_graph()])
    with tf.Graph().as_default():
        inside = variable_in_graph(name="inside")
        for optimizer, variable, name in (
            (eager, inside, "iteration:0"),
            (scheduled, inside, "iteration:0"),
            (other, inside, "iteration:0"),
            (Adagrad(0.1), w, "w:0"),
        ):
            pairs = [(tf.constant(gradient), variable)]
            assert harness.refusal(ValueError, optimizer.apply_gradients, pairs) == (
                f"Adagrad: {name!r} was created outside this graph. Create the optimizer and the "
                "model inside model_fn."
            )


def test_ref_variables(session):
    ref = v1.get_variable("ref", initializer=tf.zeros([2]), use_resource=False)
    w, optimizer = variable_in_graph(), Adagrad()
    optimizer.iterations = ref
    for made, variable in ((Adagrad(), ref), (optimizer, w)):
        assert harness.refusal(ValueError, made.minimize, loss_of(variable), [variable]) == (
            "Adagrad needs resource variables; 'ref:0' is a RefVariable. Create it with "
            "use_resource=True, or call tf.compat.v1.enable_resource_variables() first."
        )


def test_distribution_strategy_in_a_graph(session):
    with tf.distribute.OneDeviceStrategy("/cpu:0").scope():
        w = variable_in_graph()
        assert harness.refusal(NotImplementedError, Adagrad().build, [w]) == (
            "Adagrad does not support a distribution strategy in a graph; got OneDeviceStrategy."
        )


def test_unknown_variable_after_the_first_step(session):
    w, late = variable_in_graph(), variable_in_graph(name="late")
    optimizer = Adagrad()
    optimizer.minimize(loss_of(w), [w])
    with pytest.raises(KeyError, match="The optimizer cannot recognize variable late:0."):
        optimizer.minimize(loss_of(late), [late])


@pytest.mark.parametrize("in_graph", [False, True])
def test_constructor_errors_are_kerass(in_graph):
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


@pytest.mark.slow
def test_program_that_disables_v2_behavior():
    program = """
        import estimator_emb.keras
        import numpy as np, tensorflow as tf
        v1 = tf.compat.v1
        v1.disable_v2_behavior()
        v1.enable_resource_variables()
        w = v1.get_variable("w", initializer=[1.0, 2.0])
        optimizer = estimator_emb.keras.Adagrad(
            0.1, use_ema=True, ema_momentum=0.5, ema_overwrite_frequency=1
        )
        optimizer.iterations = v1.train.get_or_create_global_step()
        step = optimizer.minimize(tf.reduce_sum(w * [1.0, 2.0]), [w])
        with v1.Session() as session:
            session.run(v1.global_variables_initializer())
            assert session.run(step) == 1
            change = 0.05 * np.array([1, 2]) / np.sqrt([1.1, 4.1])
            np.testing.assert_allclose(session.run(w), [1, 2] - change, rtol=1e-6)
            assert session.run(v1.train.get_global_step()) == 1
        print("trained")
    """
    assert processes.run(program).stdout == "trained\n"


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
def test_numbers_that_train_nothing_right_are_refused(mode, name, value, message):
    message = f"Adagrad: {name} {message}"
    with tf.Graph().as_default() if mode == "graph" else contextlib.nullcontext():
        assert harness.refusal(ValueError, Adagrad, **{name: value}) == message
        optimizer = Adagrad(0.0)
    if mode == "eager" and name == "learning_rate":
        assert harness.refusal(ValueError, setattr, optimizer, name, value) == message
