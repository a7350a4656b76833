"""Trains drawn trainings, and compares each step with NumPy in float64.

Each step is computed from the result of the previous step, so that rounding does not add up.
"""

import contextlib
import sys

import host_engine
import numpy as np
import reference
import trainings

TOLERANCE = 2e-5


def assert_each_step_equals_numpy(training):
    """Trains, and raises AssertionError, which names step and variable, for a wrong result."""
    weights = []
    state = None
    given = training.spec(), training.batches(), training.native, training.cores
    options = {"summarizes": training.summarized, "optimized": training.optimized}
    steps = host_engine.steps(*given, shards=training.shards, **options)
    with contextlib.closing(steps), np.errstate(all="ignore"):
        for number, (activations, variables) in enumerate(steps, start=-1):
            variables = {
                name: _arrays(variables, name, table) for name, table in training.tables.items()
            }
            if activations is not None:
                # A lookup that runs ahead does not see the latest update.
                looked_up = weights[max(number - training.pipelined, 0)]
                for name, table in training.tables.items():
                    for feature in table.features:
                        want = activation(table, feature, number, looked_up[name])
                        owner = f"step {number}: activation {feature.key}"
                        _same(owner, activations[feature.key], want)
                    want, known = updated(training, table, number, state[name])
                    for slot, values in enumerate(variables[name]):
                        owner = f"step {number}: {name}, variable {slot}"
                        _same(owner, values[known], want[slot][known])
            state = variables
            weights.append({name: arrays[0] for name, arrays in variables.items()})
    assert len(weights) == trainings.STEPS + 1


def activation(table, feature, step, weights):
    """Returns a feature's expected activation, in float64, given its table's weights."""
    ids = feature.ids[step]
    if not feature.sequence:
        return reference.combine(weights, ids, feature.weights[step], table.combiner)
    found = np.zeros([trainings.SAMPLES, trainings.LENGTH, weights.shape[1]])
    for sample, of_sample in enumerate(ids):
        found[sample, : len(of_sample)] = weights[of_sample[: trainings.LENGTH]]
    return found


def updated(training, table, step, state):
    """Returns a table's float64 weights and slots after a step, and a mask of known values."""
    parts = []
    for feature in table.features:
        given = feature.ids[step], feature.weights[step], feature.gradients[step]
        if feature.sequence:
            parts.append(reference.of_positions(given[0], given[2]))
        else:
            parts.append(reference.of_samples(*given, table.combiner))
    parameters = table.optimizer.parameters
    cores = 1 if parameters.use_gradient_accumulation else training.cores
    updates = reference.updates_of(parts, cores)
    if parameters.updates_untouched_rows:
        untouched = set(range(len(table.start))) - {row for row, _ in updates}
        updates += [(row, np.zeros(table.start.shape[1])) for row in untouched]
    after = [array.copy() for array in state]
    known = np.ones(state[0].shape, bool)
    for row, g in updates:
        if training.multipliers is not None:
            g = g * training.multipliers[step]
        if training.limit is not None:
            g = np.clip(g, -training.limit, training.limit)
        w, *slots = (array[row] for array in after)
        # After an infinity or NaN, the result depends on the order of a rule's sums.
        known[row] &= np.all([np.isfinite(one) for one in (w, *slots)], axis=0)
        stepped = table.optimizer.step(table.rates[step], g, w, slots)
        for array, values in zip(after, stepped, strict=True):
            array[row] = values
    return after, known


def _same(owner, got, want):
    finite = want[np.isfinite(want)]
    largest = np.abs(finite).max(initial=1.0)
    np.testing.assert_allclose(got, want, TOLERANCE, TOLERANCE * largest, err_msg=owner)


def _arrays(variables, name, table):
    """Returns the weights and slots of a table, in float64."""
    slots = table.optimizer.parameters.slots
    names = [name, *(name + slot.suffix for slot in slots)]
    return [host_engine.whole(variables, one).astype(np.float64) for one in names]


REPEATS = """This program repeats it, with PYTHONPATH=tests/lib:tests/laws:

import by_numpy
import trainings

# {training}
by_numpy.assert_each_step_equals_numpy(trainings.training({seed}, native={native}))
"""


def main():
    kernels, *seeds = sys.argv[1:]
    for seed in map(int, seeds):
        training = trainings.training(seed, kernels == "native")
        try:
            assert_each_step_equals_numpy(training)
        except Exception:
            print(REPEATS.format(training=training, seed=seed, native=training.native))
            raise
