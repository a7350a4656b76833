# SPDX-License-Identifier: Apache-2.0
"""Trains what `drawn` draws, and compares each step with NumPy in float64.

Each step is computed from what the step before has left, so that rounding does not add up. As a
program, this module runs the trainings of some seeds:

    PYTHONPATH=tests python tests/fuzz/trained.py native 17 18
"""

import contextlib
import sys

import drawn
import harness
import host_engine
import numpy as np
import tensorflow as tf

from estimator_emb.native.choice import kernels_for
from estimator_emb.spec import config
from estimator_emb.spec.resolved import tables_of
from estimator_emb.step.cores import Cores
from estimator_emb.step.engine import TableStep
from estimator_emb.step.kernels import TensorFlowKernels

TOLERANCE = 2e-5


def check(training):
    """Raises an AssertionError, which names step and variable, where a training goes wrong."""
    weights = []
    state = None
    with contextlib.closing(_steps(training)) as steps, np.errstate(all="ignore"):
        for number, (activations, variables) in enumerate(steps, start=-1):
            if activations is not None:
                # A lookup that runs ahead has not seen the update before.
                looked_up = weights[max(number - training.pipelined, 0)]
                _check_activations(training, number, activations, looked_up)
                for name, table in training.tables.items():
                    want, known = training.updated(table, number, state[name])
                    for slot, values in enumerate(variables[name]):
                        owner = f"step {number}: {name}, variable {slot}"
                        _same(owner, values[known], want[slot][known])
            state = variables
            weights.append({name: arrays[0] for name, arrays in variables.items()})
    assert len(weights) == drawn.STEPS + 1


def _check_activations(training, step, activations, weights):
    for name, table in training.tables.items():
        for key, feature in table.features.items():
            want = training.activation(table, feature, step, weights[name])
            _same(f"step {step}: activation {key}", activations[key], want)


def _same(owner, got, want):
    finite = want[np.isfinite(want)]
    largest = np.abs(finite).max(initial=1.0)
    np.testing.assert_allclose(got, want, TOLERANCE, TOLERANCE * largest, err_msg=owner)


def _steps(training):
    """Yields the activations of each step by key, and the variables of each table after it.

    Before the first step, it yields None and the variables.
    """
    with tf.Graph().as_default(), host_engine.native_is(training.native):
        step = tf.compat.v1.train.get_or_create_global_step()
        batches = training.batches()
        # Where lookups are a step ahead, the last step reads one more.
        data = harness.dataset([*batches, batches[-1]])
        iterator = tf.compat.v1.data.make_initializable_iterator(data)
        lookup, step_op, next_step = _built(training, *iterator.get_next(), step)
        assert isinstance(lookup.kernels, TensorFlowKernels) != training.native
        variables = {
            table.name: [
                [one[number] for one in ((s.weights, *s.slots) for s in table.variables)]
                for number in range(1 + len(table.trained_by.slots))
            ]
            for table in lookup.tables
        }
        summaries = tf.compat.v1.get_collection(tf.compat.v1.GraphKeys.SUMMARIES)
        fetched = [lookup.activations, summaries, step_op]
        options = tf.compat.v1.ConfigProto()
        options.graph_options.rewrite_options.disable_meta_optimizer = not training.optimized
        with tf.compat.v1.Session(config=options) as session:

            def now():
                return {
                    name: [np.concatenate(parts).astype(np.float64) for parts in arrays]
                    for name, arrays in session.run(variables).items()
                }

            session.run(tf.compat.v1.global_variables_initializer())
            session.run([tf.compat.v1.local_variables_initializer(), iterator.initializer])
            if next_step:
                next_step.after_create_session(session, None)
            yield None, now()
            for _ in range(drawn.STEPS):
                activations = session.run(fetched)[0]
                yield activations, now()


def _built(training, features, gradients, step):
    spec = config.validated(training.spec())
    cores = Cores(training.cores)
    tables = TableStep(
        spec,
        tables_of(spec),
        training=True,
        cores=cores,
        shards=training.shards,
        kernels=kernels_for,
        summarizes=training.summarized,
    )
    with cores.running():
        tap = tables.enqueue(features)
        gradients = tables.from_previous_step(gradients)
        seen = tap.features
        of_core = {key: cores.per_core(tables.slices(one)) for key, one in gradients.items()}
        loss = tf.add_n([tf.reduce_sum(seen[key] * one) for key, one in of_core.items()])
        optimizer = tf.compat.v1.tpu.CrossShardOptimizer(
            tf.compat.v1.train.GradientDescentOptimizer(1.0)
        )
        # Of the sum over all cores, the mean is divided by their number.
        train_op = optimizer.minimize(loss * training.cores, step)
    reached = tap.gradients()
    of_cores = dict(zip(reached, cores.replicate(list(reached.values())), strict=True))
    lookup = tap.create_tables()
    lookup.hold_writes(train_op)
    step_op = tf.group(train_op, lookup.apply_gradients(of_cores))
    return lookup, step_op, tables.next_step


if __name__ == "__main__":
    for seed in sys.argv[2:]:
        training = drawn.training(int(seed), sys.argv[1] == "native")
        try:
            check(training)
        except Exception:
            print(f"Seed {seed}: {training}")
            raise
