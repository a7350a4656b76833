# SPDX-License-Identifier: Apache-2.0
"""Runs a TableStep over batches and shows all it computes, with native kernels or without."""

import os
from unittest import mock

import harness
import numpy as np
import tensorflow as tf

import estimator_emb as ee
from estimator_emb.native.choice import kernels_for
from estimator_emb.native.kernels import NativeKernels, rule_arguments
from estimator_emb.native.sharded import ShardedKernels
from estimator_emb.spec import config
from estimator_emb.spec.resolved import tables_of
from estimator_emb.step.cores import Cores
from estimator_emb.step.dropped import DroppedIds
from estimator_emb.step.engine import TableStep
from estimator_emb.tables.helper_variable import HELPER_VARIABLE


def one_table(parameters, rows, dimension, combiner="sum", feature=None, **fields):
    """The spec of a table 't' of random values, and of its feature 'x'."""
    start = np.random.default_rng(3).normal(size=[rows, dimension]).astype(np.float32)
    return harness.table_spec(rows, dimension, parameters, start, combiner, feature, **fields)


def native_is(on):
    return mock.patch.dict(os.environ, ESTIMATOR_EMB_NATIVE="1" if on else "0")


def train(spec, batches, native, num_cores=1, asked=None, shards=1, drop=False):
    """Trains a table for each batch of (features, gradients by key).

    Args:
      spec: the EmbeddingConfigSpec.
      batches: (features, gradients by key) of each step.
      native: whether the engine must use native kernels.
      num_cores: how many emulated cores the batch is divided over.
      asked: whether to ask for them; None: as `native`.
      shards: into how many parts tables are divided, all in this process.
      drop: whether bad ids are left out.

    Returns:
      The activations of each step, by key, and the variables after the last, by name.
    """
    with tf.Graph().as_default(), native_is(native if asked is None else asked):
        global_step = tf.compat.v1.train.get_or_create_global_step()
        features = {key: _placeholder(value) for key, value in batches[0][0].items()}
        keys = list(batches[0][1])
        cores = Cores(num_cores)
        spec = config.validated(spec)
        step = TableStep(
            spec,
            tables_of(spec),
            training=True,
            cores=cores,
            shards=shards,
            dropped=DroppedIds(count=True) if drop else None,
            kernels=kernels_for,
        )
        tap = step.enqueue(features)
        seen = tap.features
        activations = {key: tf.identity(seen[key]) for key in keys}
        gradients = {
            key: tf.compat.v1.placeholder(tf.float32, activations[key].shape) for key in keys
        }
        helper = [one for one in tf.compat.v1.local_variables() if HELPER_VARIABLE in one.name]
        tf.gradients(list(activations.values()), helper, grad_ys=[gradients[key] for key in keys])
        lookup = tap.create_tables()
        divided = any(len(table.variables) > 1 for table in lookup.tables)
        kernels = ShardedKernels if divided else NativeKernels
        assert isinstance(lookup.kernels, kernels) == native
        reached = tap.gradients()
        of_cores = cores.replicate(list(reached.values()))
        update = lookup.apply_gradients(dict(zip(reached, of_cores, strict=True)))
        with tf.control_dependencies([update]):
            update = global_step.assign_add(1).op
        variables = {one.op.name: one for one in tf.compat.v1.global_variables()}
        found = []
        with tf.compat.v1.Session() as session:
            session.run(tf.compat.v1.global_variables_initializer())
            session.run(tf.compat.v1.local_variables_initializer())
            for of_batch, of_gradients in batches:
                feed = {features[key]: value for key, value in of_batch.items()}
                # All cores are given the gradients of the first one.
                feed.update(
                    {gradients[k]: v[: len(v) // num_cores] for k, v in of_gradients.items()}
                )
                found.append(session.run([activations, update], feed)[0])
            return found, session.run(variables)


def same(spec, batches, rtol=2e-5, atol=2e-6, **kwargs):
    """Trains with native kernels and without, compares all there is, and returns it."""
    want = train(spec, batches, native=False, **kwargs)
    got = train(spec, batches, native=True, **kwargs)
    for of_got, of_want in zip([*got[0], got[1]], [*want[0], want[1]], strict=True):
        assert of_got.keys() == of_want.keys()
        for name, value in of_want.items():
            np.testing.assert_allclose(of_got[name], value, rtol, atol, err_msg=name)
    return got


def _placeholder(value):
    if isinstance(value, tf.compat.v1.SparseTensorValue):
        return tf.compat.v1.sparse_placeholder(value.values.dtype, [None, None])
    return tf.compat.v1.placeholder(value.dtype, value.shape)


def fields_of_features(tables, ids, form=0, limit=0, places=(), shapes=()):
    """Arguments of the native ops: for each of some tables, a feature `x` of the same ids."""
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


def fields_of_descent(native, tables):
    """Arguments of the native update: each table takes its gradient at a rate of 1."""
    rule = native.rule(ee.StochasticGradientDescentParameters(1.0), None)
    return {
        "rates": [1.0] * tables,
        "every_row": [False] * tables,
        "cores": [1] * tables,
        **rule_arguments([rule] * tables),
    }


def looked_up_and_descended(native, tables, features, orders=0):
    """Ops that look tables up, then take a step of descent along a gradient of ones.

    Returns:
      The activations, the orders and the update.
    """
    handles = [table.handle for table in tables]
    activations, orders = native.ops.host_tables_lookup(
        tables=handles, F=len(tables), N=orders, **features
    )
    with tf.control_dependencies(activations):
        update = native.ops.host_tables_update(
            variables=handles,
            gradients=[tf.ones_like(activation) for activation in activations],
            orders=orders,
            **fields_of_descent(native, len(tables)),
            **features,
        )
    return activations, orders, update
