"""Valid and invalid results of learning rate functions and gradient multipliers."""

import functools

import harness
import numpy as np
import pytest
import tensorflow as tf

from estimator_emb import embedding
from estimator_emb.engine import rates
from estimator_emb.engine.tables import functions
from estimator_emb.spec.config import TableConfig
from estimator_emb.spec.resolved import Feature, Table, tables_of


def multiplier_of(function):
    """Returns the multiplier of gradients at step 7."""
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        return session.run(functions.multiplier(function, tf.constant(7, tf.int64)))


def rate_of(function, *, of_optimizer=False):
    """Returns the learning rate of a table with this function at step 7."""
    parameters = embedding.SGD(function if of_optimizer else 0.5)
    config = TableConfig(4, 2, learning_rate_fn=None if of_optimizer else function)
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        step = tf.compat.v1.placeholder(tf.int64, [])
        table = Table("t", config, (Feature("f"),), optimizer=parameters)
        (rate,) = rates.table_rates([table], step)
        assert (rate.dtype, rate.shape.rank) == (tf.float32, 0)
        return session.run(rate, {step: 7})


@pytest.mark.parametrize(
    "value", [0.25, 0, 3, np.float64(0.25), np.int32(1), np.array(0.5, np.float32), 1e-50]
)
def test_a_rate_function_may_return_a_number(value):
    assert rate_of(lambda step: value) == np.float32(value)
    assert rate_of(lambda: value, of_optimizer=True) == np.float32(value)


def test_a_rate_function_may_return_a_tensor():
    assert rate_of(lambda step: tf.cast(step, tf.float64) / 2) == 3.5
    assert rate_of(lambda step: step) == 7
    assert rate_of(lambda step: tf.constant(0.25, tf.bfloat16)) == 0.25
    assert rate_of(tf.keras.optimizers.schedules.ExponentialDecay(1.0, 7, 0.5)) == 0.5
    # A negative value that is known only at run time stops the step: see backends/test_wrong_rates.
    assert rate_of(lambda step: -tf.cast(step, tf.float32)) == -7

    def unknown(step):
        return tf.compat.v1.placeholder_with_default(step, None)

    assert rate_of(unknown) == 7


def test_only_rates_that_a_step_computes_are_checked():
    """Constants were checked when the graph was built. A check returns False for a problem."""
    functions = {"a": None, "b": lambda step: 0.25, **dict.fromkeys("cd", lambda step: step * 0.5)}
    configs = {name: TableConfig(4, 2, learning_rate_fn=one) for name, one in functions.items()}
    spec = harness.tables_spec(configs, embedding.SGD(0.5), experimental_gradient_multiplier_fn=max)
    tables = tables_of(spec)
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        step = tf.compat.v1.placeholder(tf.float32, [])
        a, b, c, d = rates.table_rates(tables, step)
        assert c is d and len(step.consumers()) == 1  # A function is called once for its tables.
        assert rates.problems(spec, tables[:2], [a, b], tf.constant(2.0)) == []
        # `c` is a table's rate and also the multiplier of gradients, which may be negative.
        checks = [holds for holds, _ in rates.problems(spec, tables, [a, b, c, d], multiplier=c)]
        for value, want in ((0, [True, True]), (-1, [False, True]), (np.inf, [False, False])):
            assert session.run(checks, {step: value}) == want


def test_a_rate_of_wrong_shape_fails_at_run_time():
    with pytest.raises(tf.errors.InvalidArgumentError, match="is not compatible with expected"):
        rate_of(lambda step: tf.compat.v1.placeholder_with_default(step[tf.newaxis], None))


def nothing(step=7): ...


class Schedule:
    def __call__(self, step=7): ...


NONE = " returned None; it must return a number or a scalar tensor. Is its `return` missing?"
NEGATIVE = ": its value must not be negative; got -0.1."
MUST = " must return a number or a scalar tensor; got "
OWNERS = {
    "Table 't': learning_rate_fn": rate_of,
    "Table 't': the learning_rate of its SGD,": functools.partial(rate_of, of_optimizer=True),
    "EmbeddingConfigSpec: experimental_gradient_multiplier_fn": multiplier_of,
}


@pytest.mark.parametrize("owner", OWNERS)
@pytest.mark.parametrize(
    ("function", "error", "message"),
    [
        (nothing, TypeError, NONE),
        (Schedule(), TypeError, NONE),
        (functools.partial(nothing), TypeError, NONE),
        (lambda step=7: "0.1", TypeError, MUST + "a string: '0.1'."),
        (lambda step=7: True, TypeError, MUST + "a bool: True."),
        (lambda step=7: np.array([int]), TypeError, MUST + "array([<class 'int'>], dtype=object)."),
        (lambda step=7: tf.ones([2]), ValueError, MUST + "the shape (2,)."),
        (lambda step=7: -0.1, ValueError, NEGATIVE),
        (lambda step=7: tf.constant(float("nan")), ValueError, ": its value must not be NaN."),
        (lambda step=7: 1e39, ValueError, ": its value must be finite in float32; got inf."),
    ],
)
def test_a_wrong_function_is_named_with_its_table(owner, function, error, message):
    if OWNERS[owner] is multiplier_of and message == NEGATIVE:
        assert multiplier_of(function) == np.float32(-0.1)  # A multiplier may reverse gradients.
        return
    name = "Schedule"
    if not isinstance(function, Schedule):
        inner = getattr(function, "func", function)
        name = f"{inner.__name__} (test_functions.py, line {inner.__code__.co_firstlineno})"
    assert harness.refusal(error, OWNERS[owner], function) == f"{owner} {name}{message}"
