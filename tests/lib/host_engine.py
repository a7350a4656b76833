"""Runs a TableStep over batches, with or without native kernels, and returns all its results."""

import os
import re
from unittest import mock

import harness
import numpy as np
import pytest
import tensorflow as tf

import estimator_emb as ee
from estimator_emb.engine.cores import Cores
from estimator_emb.engine.dropped import DroppedIds
from estimator_emb.engine.engine import TablePlace, TableStep
from estimator_emb.engine.kernels import TensorFlowKernels
from estimator_emb.native.native_kernels import NativeKernels, rule_arguments
from estimator_emb.native.select_kernels import kernels_for
from estimator_emb.native.sharded import ShardedKernels
from estimator_emb.spec import config
from estimator_emb.spec.resolved import tables_of

v1 = tf.compat.v1

on_both_kernels = pytest.mark.parametrize(
    "kernels", [harness.slow("tensorflow"), "native"], indirect=True
)
"""Runs a test of tests/backends on both kinds of kernels. Fast runs use only native kernels."""


def one_table(parameters, rows, dimension, combiner="sum", feature=None, **fields):
    """Returns the spec of a table 't' of random values, with its feature 'x'."""
    start = harness.normal(3, rows, dimension)
    return harness.table_spec(rows, dimension, parameters, start, combiner, feature, **fields)


def steps(
    spec,
    batches,
    native,
    num_cores=1,
    asked=None,
    shards=1,
    drop=False,
    summarizes=False,
    optimized=True,
):
    """Trains tables for each batch of (features, gradients of activations by key).

    Args:
      spec: the EmbeddingConfigSpec.
      batches: (features, gradients by key) of each step.
      native: whether the engine must use native kernels.
      num_cores: number of emulated cores that share the batch.
      asked: whether to ask for native kernels. None: same as `native`.
      shards: number of shards of each table, all in this process.
      drop: whether to drop bad ids.
      summarizes: whether to compute the tables' statistics.
      optimized: whether TensorFlow's graph optimizers run.

    Yields:
      The activations of each step, by key, and the variables after it, by name. Before the first
      step, None and the variables.
    """
    asked = str(int(native if asked is None else asked))
    with tf.Graph().as_default(), mock.patch.dict(os.environ, ESTIMATOR_EMB_NATIVE=asked):
        global_step = v1.train.get_or_create_global_step()
        # If lookups run a step ahead, the last step reads one more batch.
        data = harness.dataset([*batches, batches[-1]])
        iterator = v1.data.make_initializable_iterator(data)
        features, gradients = iterator.get_next()
        cores = Cores(num_cores)
        spec = config.validated(spec)
        options = {"dropped": DroppedIds(count=True) if drop else None, "summarizes": summarizes}
        options |= {"place": TablePlace(kernels_for, shards=shards), "cores": cores}
        step = TableStep(spec, tables_of(spec), training=True, **options)
        with cores.running():
            pending = step.enqueue(features)
            gradients = step.from_previous_step(gradients)
            seen = pending.features
            of_core = {key: cores.per_core(step.slices(one)) for key, one in gradients.items()}
            of_core = {key: tf.cast(one, tf.float32) for key, one in of_core.items()}
            loss = tf.add_n([tf.reduce_sum(seen[key] * one) for key, one in of_core.items()])
            optimizer = v1.tpu.CrossShardOptimizer(v1.train.GradientDescentOptimizer(1.0))
            # The optimizer averages over cores. The factor num_cores turns the mean into the sum.
            train_op = optimizer.minimize(loss * num_cores, global_step)
        reached = pending.gradients()
        of_cores = dict(zip(reached, cores.replicate(list(reached.values())), strict=True))
        lookup = pending.create_tables()
        divided = any(len(table.variables) > 1 for table in lookup.tables)
        kernels = ShardedKernels if divided else NativeKernels
        assert isinstance(lookup.kernels, kernels if native else TensorFlowKernels)
        lookup.hold_writes(train_op)
        step_op = tf.group(train_op, lookup.apply_gradients(of_cores))
        variables = {one.op.name: one for one in v1.global_variables()}
        summaries = v1.get_collection(v1.GraphKeys.SUMMARIES)
        options = v1.ConfigProto()
        options.graph_options.rewrite_options.disable_meta_optimizer = not optimized
        with v1.Session(config=options) as session:
            session.run(v1.global_variables_initializer())
            session.run([v1.local_variables_initializer(), iterator.initializer])
            if step.next_step:
                step.next_step.after_create_session(session, None)
            yield None, session.run(variables)
            for _ in batches:
                activations = session.run([lookup.activations, summaries, step_op])[0]
                yield activations, session.run(variables)


def train(*args, **kwargs):
    """Returns the activations of all `steps`, and the variables after the last step."""
    _, *found = steps(*args, **kwargs)
    return [activations for activations, _ in found], found[-1][1]


def whole(variables, name):
    """Returns a variable, concatenated from its parts if `variables` holds parts."""
    parts = [one for one in variables if re.fullmatch(rf"{re.escape(name)}(/part_\d+)?", one)]
    parts.sort(key=lambda one: (len(one), one))  # part_10 comes after part_9.
    return np.concatenate([variables[one] for one in parts])


def assert_same_on_both_kernels(spec, batches, rtol=2e-5, atol=2e-6, **kwargs):
    """Trains with and without native kernels. Compares all results, and returns them."""
    want = train(spec, batches, native=False, **kwargs)
    got = train(spec, batches, native=True, **kwargs)
    for of_got, of_want in zip([*got[0], got[1]], [*want[0], want[1]], strict=True):
        harness.assert_same(of_got, of_want, rtol, atol)
    return got


def fields_of_features(tables, ids, form=0, limit=0, places=(), shapes=()):
    """Returns arguments of the native ops: a feature `x` per table, all with the same ids."""
    return {
        "ids": [ids] * tables,
        "places": [*places] * tables,
        "shapes": [*shapes] * tables,
        "weights": [],
        "forms": [form] * tables,
        "combiners": [0] * tables,
        "limits": [limit] * tables,
        "weighted": [False] * tables,
        "owners": [f"Feature x of table t{table}" for table in range(tables)],
        "table_of": list(range(tables)),
    }


def looked_up_and_descended(native, tables, features, orders=0):
    """Returns ops that look up tables, then take a descent step with gradients of 1.

    Returns:
      The activations, the orders and the update.
    """
    handles, count = [table.handle for table in tables], len(tables)
    rule = native.rule(ee.StochasticGradientDescentParameters(1.0), None)
    look_up = native.ops.host_tables_lookup
    activations, orders = look_up(tables=handles, F=count, N=orders, **features)
    given = {"variables": handles, "orders": orders, **rule_arguments([rule] * count), **features}
    given |= {"rates": [1.0] * count, "every_row": [False] * count, "cores": [1] * count}
    with tf.control_dependencies(activations):
        ones = [tf.ones_like(activation) for activation in activations]
        update = native.ops.host_tables_update(gradients=ones, **given)
    return activations, orders, update
