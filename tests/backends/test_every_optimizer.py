"""Every optimizer trains tables like `reference`, with TensorFlow's ops and native kernels."""

import harness
import host_engine
import numpy as np
import pytest
import reference
import tensorflow as tf
from descriptors import OPTIMIZERS, SURROUNDED

import estimator_emb as ee

ROWS, STEPS = 9, 3
FIRST_OF_EACH_CLASS = tuple({type(one.parameters): one for one in OPTIMIZERS[::-1]}.values())
VARIANTS = tuple(one for one in OPTIMIZERS if one not in FIRST_OF_EACH_CLASS)
TABLES = (*OPTIMIZERS, *SURROUNDED)
RATES = {"frequency_estimator": [3.0, 4.0, 60.0]}
"""Rates per step of the optimizer that takes the step number as its rate."""


def dimension_of(optimizer):
    # The odd dimension tests the scalar loops, and the remainders of vectorized loops.
    return optimizer.parameters.required_dimension or (16, 11)[TABLES.index(optimizer) % 2]


def rates_of(optimizer):
    return RATES.get(optimizer.name) or [optimizer.parameters.learning_rate] * STEPS


def start_of(optimizer):
    return harness.normal(TABLES.index(optimizer), ROWS, dimension_of(optimizer))


def reading(rates):
    return lambda step: tf.gather(tf.constant(rates), step)


def spec_of(optimizers):
    """Returns a spec with a table for each optimizer."""
    tables = {
        one.name: ee.TableConfig(
            ROWS,
            dimension_of(one),
            harness.initializer(start_of(one)),
            "sum",
            optimization_parameters=one.parameters,
            learning_rate_fn=reading(RATES[one.name]) if one.name in RATES else None,
        )
        for one in optimizers
    }
    return harness.tables_spec(tables)


def expected(optimizer, batches):
    """Returns weights and slots computed by `reference`, in float64."""
    w = start_of(optimizer).astype(np.float64)
    state = [w, *(np.full_like(w, start) for start in optimizer.start)]
    for rate, (features, gradients) in zip(rates_of(optimizer), batches, strict=True):
        ids = features[optimizer.name]
        summed = reference.row_gradients(
            ids[:, None], np.ones([len(ids), 1]), gradients[optimizer.name], "sum"
        )
        for row, g in summed.items():
            w_row, *slots = (array[row] for array in state)
            after = optimizer.step(np.float32(rate), g, w_row, slots)
            for array, values in zip(state, after, strict=True):
                array[row] = values
    return state


@pytest.mark.fast(1)
@pytest.mark.parametrize(
    "kernels", ["tensorflow", pytest.param("native", marks=pytest.mark.slow)], indirect=True
)
@pytest.mark.parametrize(
    "optimizers",
    [FIRST_OF_EACH_CLASS, VARIANTS, pytest.param(SURROUNDED, marks=pytest.mark.slow)],
    ids=["plain", "other arguments", "surrounded"],
)
def test_trains_tables(optimizers, kernels):
    spec = spec_of(optimizers)
    batches = harness.random_batches(0, spec, 12, STEPS)
    got = host_engine.train(spec, batches, kernels == "native")[1]
    for one in optimizers:
        slots = [one.name + slot.suffix for slot in one.parameters.slots]
        assert {name for name in got if name.partition("/")[0] == one.name} == {one.name, *slots}
        want = expected(one, batches)
        assert not np.allclose(got[one.name], start_of(one), atol=1e-3), one.name
        for name, values in zip([one.name, *slots], want, strict=True):
            np.testing.assert_allclose(got[name], values, rtol=2e-5, atol=1e-5, err_msg=name)
