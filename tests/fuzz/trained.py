"""Trains `drawn` trainings, and compares each step with NumPy in float64.

Each step is computed from the result of the previous step, so that rounding does not add up. Run as
a program with a kernel and seeds, it runs the trainings of these seeds:

    PYTHONPATH=tests/lib python tests/fuzz/trained.py native 17 18
"""

import contextlib
import sys

import drawn
import host_engine
import numpy as np

TOLERANCE = 2e-5


def check(training):
    """Raises AssertionError, which names step and variable, if a training goes wrong."""
    weights = []
    state = None
    steps = host_engine.steps(
        training.spec(),
        training.batches(),
        training.native,
        training.cores,
        shards=training.shards,
        summarizes=training.summarized,
        optimized=training.optimized,
    )
    with contextlib.closing(steps), np.errstate(all="ignore"):
        for number, (activations, variables) in enumerate(steps, start=-1):
            variables = {
                name: _arrays(variables, name, table) for name, table in training.tables.items()
            }
            if activations is not None:
                # A lookup that runs ahead does not see the latest update.
                looked_up = weights[max(number - training.pipelined, 0)]
                for name, table in training.tables.items():
                    for key, feature in table.features.items():
                        want = training.activation(table, feature, number, looked_up[name])
                        _same(f"step {number}: activation {key}", activations[key], want)
                    want, known = training.updated(table, number, state[name])
                    for slot, values in enumerate(variables[name]):
                        owner = f"step {number}: {name}, variable {slot}"
                        _same(owner, values[known], want[slot][known])
            state = variables
            weights.append({name: arrays[0] for name, arrays in variables.items()})
    assert len(weights) == drawn.STEPS + 1


def _same(owner, got, want):
    finite = want[np.isfinite(want)]
    largest = np.abs(finite).max(initial=1.0)
    np.testing.assert_allclose(got, want, TOLERANCE, TOLERANCE * largest, err_msg=owner)


def _arrays(variables, name, table):
    """Returns the weights and slots of a table, in float64."""
    slots = table.optimizer.parameters.slots
    names = [name, *(name + slot.suffix for slot in slots)]
    return [host_engine.whole(variables, one).astype(np.float64) for one in names]


def main():
    for seed in sys.argv[2:]:
        training = drawn.training(int(seed), sys.argv[1] == "native")
        try:
            check(training)
        except Exception:
            print(f"Seed {seed}: {training}")
            raise


if __name__ == "__main__":
    main()
