"""`estimator_emb.keras.Adagrad` in a v1 graph: its ops, its use in an Estimator, its errors."""

import harness  # harness.refusal(error, call, ...) asserts the error, returns its message.
import numpy as np
import processes
import pytest
import tensorflow as tf
from tensorflow.python.tpu import tpu_function

import estimator_emb as ee
from estimator_emb.engine import cores
from estimator_emb.engine.cores import Cores
from estimator_emb.keras import Adagrad

v1 = tf.compat.v1
schedules = tf.keras.optimizers.schedules
Reference = tf.keras.optimizers.experimental.Adagrad


@pytest.fixture
def session():
    with tf.Graph().as_default(), v1.Session() as session:
        yield session


def variable_in_graph(value=(1.0, 2.0), name="w"):
    return tf.Variable(list(value), name=name)


def loss_of(variable):
    return tf.reduce_sum(variable * tf.constant([1.0, 2.0]))


def after(weights, gradient=(1.0, 2.0), steps=1, accumulator=0.1):
    """Returns weights after steps of Adagrad by NumPy. `loss_of` has the default gradient."""
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
        # Fetching the step twice, and also its op, still takes a single step.
        assert session.run([step, step, step.op]) == [number, number, None]
        np.testing.assert_allclose(session.run(w), after([1, 2], steps=number), rtol=1e-6)
    assert session.run(optimizer.iterations) == 3


def test_outside_graphs_minimize_returns_none_and_needs_a_tape_for_a_tensor():
    """So does the method of Keras. Unlike it, `apply_gradients` returns the step."""
    w = variable_in_graph()
    optimizer = Adagrad(0.1)
    assert optimizer.minimize(lambda: loss_of(w), [w]) is None
    np.testing.assert_allclose(w, after([1, 2]), rtol=1e-6)
    assert optimizer.apply_gradients([(tf.constant([1.0, 2.0]), w)]) == 2
    assert optimizer.update_step(tf.constant([1.0, 2.0]), w) is None
    with pytest.raises(ValueError, match="`tape` is required when a `Tensor` loss is passed"):
        optimizer.minimize(loss_of(w), [w])


def test_a_step_runs_after_its_control_dependencies_and_only_in_its_branch(session):
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


def test_minimize_in_a_loop_takes_every_step(session):
    """On a TPU, TPUEstimator builds such a loop of `iterations_per_loop` steps."""
    w = variable_in_graph()
    # With momentum 0, the average that overwrites `w` after each step equals `w`.
    optimizer = Adagrad(0.1, use_ema=True, ema_momentum=0.0, ema_overwrite_frequency=1)

    def body(number):
        with tf.control_dependencies([optimizer.minimize(loss_of(w), [w])]):
            return number + 1

    loop = tf.while_loop(lambda number: number < 3, body, [0])
    session.run(v1.global_variables_initializer())
    session.run(loop)
    np.testing.assert_allclose(session.run(w), after([1, 2], steps=3), rtol=1e-6)
    assert session.run(optimizer.iterations) == 3
    assert optimizer.get_config()["ema_overwrite_frequency"] == 1


def test_minimize_works_in_wrap_function():
    def one_step(gradient):
        w = v1.get_variable("w", [2], initializer=v1.ones_initializer(), use_resource=True)
        optimizer = Adagrad(0.1)
        optimizer.iterations = v1.train.get_or_create_global_step()
        return optimizer.minimize(tf.reduce_sum(w * gradient), [w])

    wrapped = v1.wrap_function(one_step, [tf.TensorSpec([2])])
    assert wrapped(tf.constant([1.0, 2.0])).numpy() == 1
    w, *_ = wrapped.graph.variables
    np.testing.assert_allclose(w, after([1, 1]), rtol=1e-6)


def test_initializers_run_in_any_order():
    """The average starts as `w`, and the rate by `iterations`, which may be initialized later."""
    with tf.Graph().as_default():
        w = tf.Variable(tf.random.normal([300, 300]))  # So large that its initializer may be last.
        optimizer = Adagrad(schedules.ExponentialDecay(0.1, 10, 0.5), use_ema=True)
        optimizer.build([w])
        average = optimizer.variables[1]
        initialize = v1.global_variables_initializer()
        for _ in range(10):  # Each session has its own order.
            with v1.Session() as session:
                session.run(initialize)
                np.testing.assert_array_equal(*session.run([w, average]))
                assert session.run(optimizer.learning_rate) == np.float32(0.1)


def test_averages_start_at_the_first_step(session):
    w = variable_in_graph()
    step = Adagrad(0.1, use_ema=True, ema_momentum=1.0).minimize(loss_of(w), [w])
    (average,) = [one for one in v1.global_variables() if "average" in one.name]
    session.run(v1.global_variables_initializer())
    # A warm start or a restored checkpoint also changes variables before the first step.
    session.run(w.assign([3.0, 4.0]))
    for _ in range(2):  # With momentum 1, the average stays as it starts.
        session.run(step)
        np.testing.assert_array_equal(session.run(average), [3, 4])


def test_missing_gradients_are_skipped_or_refused(session):
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
    assert session.run(update) == 0  # The number of whole steps.
    np.testing.assert_allclose(session.run(w), after([1, 2]), rtol=1e-6)
    session.run(finalize)  # Only a whole step changes the average of `w`.
    np.testing.assert_array_equal(session.run(w), [1, 2])


def test_add_variable_works_in_a_graph(session):
    w = variable_in_graph()
    optimizer = Adagrad(0.1)
    ones = optimizer.add_variable([2], initializer="ones", name="own")
    momentum = optimizer.add_variable_from_reference(w, "momentum")
    assert [one.name for one in optimizer.variables] == ["iteration:0", "own:0", "momentum/w:0"]
    session.run(v1.global_variables_initializer())
    np.testing.assert_array_equal(session.run(ones + momentum), [1, 1])  # Momentum begins at 0.


@pytest.mark.parametrize("shards", [2, harness.slow(None), harness.slow(1)])
@pytest.mark.parametrize("aggregate", [True, False])
def test_gradients_are_summed_over_tpu_cores(shards, aggregate, monkeypatch):
    """The cross-core sum has no CPU kernel. Here, a product by the number of cores replaces it."""

    def summed(x, group_assignment, name=None):
        def product(one):  # The gradient is the same on each core.
            return one * (shards or 1) if one.dtype.is_floating else one

        return tf.nest.map_structure(product, x, expand_composites=True)

    monkeypatch.setattr(cores, "_unchanged", summed)  # `Cores()` calls it instead of the sum.
    with tf.Graph().as_default(), v1.Session() as session, Cores().running(shards is not None):
        tpu_function.get_tpu_context().set_number_of_shards(shards)
        w, table = variable_in_graph(), variable_in_graph()
        pairs = [
            (tf.constant([1.0, 2.0]), w),
            (tf.IndexedSlices(tf.constant([2.0]), tf.constant([1]), tf.constant([2])), table),
        ]
        # Both arguments say the same.
        step = Adagrad(0.1).apply_gradients(pairs, skip_gradients_aggregation=not aggregate)
        again = Adagrad(0.1).apply_gradients(pairs, experimental_aggregate_gradients=aggregate)
        factor = shards if shards and aggregate else 1  # None: the program is not on a TPU.
        for one in (step, again):
            session.run(v1.global_variables_initializer())
            session.run(one)
            expected = after([1, 2], [factor, 2 * factor])
            np.testing.assert_allclose(session.run(w), expected, rtol=1e-6)
            np.testing.assert_allclose(session.run(table), [1, expected[1]], rtol=1e-6)


BOUNDS = {"weight_decay": 0.01, "global_clipnorm": 1.0}
AVERAGE = {"use_ema": True, "ema_momentum": 0.6, "ema_overwrite_frequency": 2}
OPTIMIZERS = {
    "constant": {"learning_rate": 0.1},
    "everything": {"learning_rate": schedules.ExponentialDecay(0.2, 2, 0.5), **BOUNDS, **AVERAGE},
}
TABLE = np.random.default_rng(1).random((5, 3)).astype(np.float32)


def batches(count):
    rng = np.random.default_rng(0)
    return [
        ({"id": rng.integers(0, 5, 4)}, rng.random((4, 1)).astype(np.float32)) for _ in range(count)
    ]


def estimator(options, model_dir, device, callable_loss=False):
    """Returns an estimator with a table 'id' and a dense variable 'w', trained by `Adagrad`."""

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
    return harness.estimator(model_fn, spec, model_dir, device=device, run=harness.SILENT)


@pytest.mark.fast(1)
@pytest.mark.parametrize(
    "name, device, callable_loss",
    [("everything", "host", False), ("everything", None, True), ("constant", None, False)],
)
def test_estimator_with_embedding_tables_resumes(name, device, callable_loss, tmp_path):
    """Four steps in two trainings equal Keras's Adagrad, with gradient descent for the table."""
    data, options = batches(4), OPTIMIZERS[name]
    for part in (data[:2], data[2:]):
        made = estimator(options, tmp_path, device, callable_loss)
        made.train(harness.input_fn_of(part), steps=2)

    w, rows = tf.Variable(tf.ones([3, 1]) / 3), tf.Variable(TABLE)
    optimizer = Reference(**options)
    for features, labels in data:
        with tf.GradientTape() as tape:
            activation = tf.gather(rows, features["id"])
            loss = tf.reduce_mean(tf.square(tf.matmul(activation, w) - labels))
        d_w, d_rows = tape.gradient(loss, [w, rows])
        optimizer.apply_gradients([(d_w, w)])
        rows.scatter_sub(tf.IndexedSlices(0.5 * d_rows.values, d_rows.indices))
    got = harness.saved(tmp_path, 4)
    np.testing.assert_allclose(got["w"], w, atol=1e-6)
    np.testing.assert_allclose(got["id"], rows, atol=1e-6)
    slots = {"Adagrad/accumulator/w"} | ({"Adagrad/average/w"} if "use_ema" in options else set())
    # With a schedule, the saved rate is that of the last step, under another name.
    rate = "learning_rate" if name == "constant" else "current_learning_rate"
    assert set(got) == {"global_step", "id", "w", "iteration", rate, *slots}


def test_setting_the_rate_in_a_graph_is_refused(session, assert_recorded):
    assigned = harness.refusal(RuntimeError, setattr, Adagrad(0.1), "learning_rate", 0.2)
    assert assigned == harness.refusal(RuntimeError, setattr, Adagrad(0.1), "lr", 0.2)
    assert "learning_rate cannot be set in a graph" in assigned
    assert_recorded(assigned)  # tests/messages.json has the whole text, with what to do instead.


def test_a_tensor_or_function_as_rate_in_a_graph_is_refused(session, assert_recorded):
    tensor = harness.refusal(TypeError, Adagrad, tf.constant(0.1))
    assert "must be a number or a LearningRateSchedule" in tensor
    assert_recorded(tensor)
    assert "a LearningRateSchedule" in harness.refusal(TypeError, Adagrad, lambda: 0.1)


def test_a_strategy_in_a_graph_is_refused(session, assert_recorded):
    with tf.distribute.OneDeviceStrategy("/cpu:0").scope():
        said = harness.refusal(NotImplementedError, Adagrad().build, [variable_in_graph()])
    assert said.startswith("Adagrad does not support a distribution strategy in a graph; got")
    assert_recorded(said)


def test_ref_variables_are_refused(session):
    ref = v1.get_variable("ref", initializer=tf.zeros([2]), use_resource=False)
    w, optimizer = variable_in_graph(), Adagrad()
    optimizer.iterations = ref
    for made, variable in ((Adagrad(), ref), (optimizer, w)):
        message = harness.refusal(ValueError, made.minimize, loss_of(variable), [variable])
        assert "Adagrad needs resource variables; 'ref:0' is a RefVariable" in message


def test_objects_created_outside_the_graph_are_refused():
    w, gradient = variable_in_graph(), np.array([1.0, 2.0], np.float32)
    outside = [Adagrad(0.1), Adagrad(schedules.ExponentialDecay(0.2, 2, 0.5))]
    with tf.Graph().as_default():
        outside.append(Adagrad(0.1))
        outside[-1].build([variable_in_graph()])
    with tf.Graph().as_default():
        inside = variable_in_graph(name="inside")
        cases = [(optimizer, inside, "iteration:0") for optimizer in outside]
        for optimizer, variable, name in [*cases, (Adagrad(0.1), w, "w:0")]:
            pairs = [(tf.constant(gradient), variable)]
            message = harness.refusal(ValueError, optimizer.apply_gradients, pairs)
            assert message.startswith(f"Adagrad: {name!r} was created outside this graph.")


def test_unknown_variable_after_the_first_step_is_refused(session):
    w, late = variable_in_graph(), variable_in_graph(name="late")
    optimizer = Adagrad()
    optimizer.minimize(loss_of(w), [w])
    with pytest.raises(KeyError, match="The optimizer cannot recognize variable late:0."):
        optimizer.minimize(loss_of(late), [late])


@pytest.mark.slow
def test_adagrad_trains_with_v2_behavior_disabled():
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
            change = 0.05 * np.array([1, 2]) / np.sqrt([1.1, 4.1])  # Half a step: the average.
            np.testing.assert_allclose(session.run(w), [1, 2] - change, rtol=1e-6)
            assert session.run(v1.train.get_global_step()) == 1
        print("trained")
    """
    assert processes.run(program).stdout == "trained\n"
