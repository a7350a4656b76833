# SPDX-License-Identifier: Apache-2.0
"""A model trained on several cores without a sum of gradients over them is warned of, by name."""

import harness
import numpy as np
import pytest
import tensorflow as tf

import estimator_emb as ee

v1 = tf.compat.v1


def minimized(optimizer):
    def train(loss, variables):
        return optimizer().minimize(loss, v1.train.get_global_step(), var_list=variables)

    return train


def by_keras(optimizer):
    def train(loss, variables):
        made = optimizer()
        made.iterations = v1.train.get_global_step()
        return tf.group(made.get_updates(loss, variables))

    return train


def by_hand(loss, variables):
    gradients = [v1.tpu.cross_replica_sum(one) for one in tf.gradients(loss, variables)]
    pairs = zip(gradients, variables, strict=True)
    return v1.train.AdamOptimizer().apply_gradients(pairs, v1.train.get_global_step())


def assigned(loss, variables):
    pairs = zip(variables, tf.gradients(loss, variables), strict=True)
    updates = [variable.assign_sub(gradient) for variable, gradient in pairs]
    return tf.group(*updates, v1.train.get_global_step().assign_add(1))


def sgd():
    return v1.train.GradientDescentOptimizer(0.1)


TRAINED = {
    "CrossShardOptimizer": minimized(lambda: v1.tpu.CrossShardOptimizer(sgd())),
    "cross_replica_sum": by_hand,
    "v1": minimized(sgd),
    "v1, slots": minimized(lambda: v1.train.MomentumOptimizer(0.1, 0.9)),
    "Keras": by_keras(lambda: tf.keras.optimizers.legacy.SGD(0.1)),
    "assigned": assigned,
}


def warnings_of(train, directory, caplog, cores=2, tables=False, dense=5):
    def model_fn(features, labels, mode, params):
        loss = tf.reduce_sum(labels)
        variables = []
        for i in range(dense):
            variables.append(v1.get_variable(f"dense/{i}", [], use_resource=True))
            loss += variables[-1] * tf.reduce_sum(features["x"])
        if tables:
            loss += tf.reduce_sum(features["ids"])
            variables = None
        return ee.TPUEstimatorSpec(mode, loss=loss, train_op=train(loss, variables))

    def input_fn(params):
        one = {"x": np.ones([], np.float32)}, np.ones([], np.float32)
        if tables:
            one[0]["ids"] = np.int64(1)
        samples = tf.data.Dataset.from_tensors(one).repeat()
        return samples.batch(params["batch_size"], drop_remainder=True)

    spec = harness.tables_spec({"ids": ee.TableConfig(4, 2)}, ee.AdagradParameters(0.1))
    spec = spec if tables else None
    estimator = harness.estimator(model_fn, spec, directory, device="host", num_shards=cores)
    estimator.train(input_fn, max_steps=1)
    return harness.said(caplog)


FIVE = "dense/0, dense/1, dense/2 and 2 more"


@pytest.mark.parametrize(
    ("train", "case", "names"),
    [
        ("v1", {}, FIVE),
        ("v1, slots", {}, FIVE),
        ("Keras", {}, FIVE),
        ("assigned", {}, FIVE),
        ("v1", {"tables": True, "dense": 1}, "dense/0"),
        ("v1", {"cores": 1}, None),
        ("v1", {"tables": True, "dense": 0}, None),
        ("CrossShardOptimizer", {}, None),
        ("CrossShardOptimizer", {"tables": True}, None),
        ("cross_replica_sum", {}, None),
    ],
    ids=str,
)
def test_gradients_that_are_not_summed_are_warned_of(train, case, names, tmp_path, caplog):
    assert warnings_of(TRAINED[train], tmp_path, caplog, **case) == [
        f"2 cores share the batch, and the gradients of {names} are not summed over them: what "
        "every core but core 0 has learned is lost. Use "
        "tf.compat.v1.tpu.CrossShardOptimizer(optimizer); with an optimizer that is not of "
        "tf.compat.v1.train, sum each gradient by tf.compat.v1.tpu.cross_replica_sum."
    ] * bool(names)
