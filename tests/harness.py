# SPDX-License-Identifier: Apache-2.0
"""Drives a whole TPUEstimator over given batches, for tests of the engine."""

import numpy as np
import tensorflow as tf

import estimator_emb as ee


def sparse(rows, dtype=np.int64):
    """Lists of values per sample as a SparseTensorValue [batch, longest]."""
    indices = [[i, j] for i, row in enumerate(rows) for j in range(len(row))]
    values = np.array([value for row in rows for value in row], dtype)
    shape = [len(rows), max([len(row) for row in rows] + [1])]
    return tf.compat.v1.SparseTensorValue(
        np.array(indices, np.int64).reshape(-1, 2), values, np.array(shape, np.int64)
    )


def dataset(batches):
    """A dataset of the given (features, labels) batches; SparseTensorValues stay sparse."""

    def tensors(value):
        if isinstance(value, tf.compat.v1.SparseTensorValue):
            return tf.SparseTensor(*value)
        if tf.is_tensor(value):
            return value
        if isinstance(value, dict):
            return {key: tensors(one) for key, one in value.items()}
        return tf.constant(value)

    whole = None
    for features, labels in batches:
        one = tf.data.Dataset.from_tensors((tensors(features), tensors(labels)))
        whole = one if whole is None else whole.concatenate(one)
    return whole


def input_fn_of(batches):
    def input_fn(params):
        return dataset(batches)

    return input_fn


def gradient_model_fn(keys):
    """A model whose activation gradients are the labels, and whose predictions the activations."""

    def model_fn(features, labels, mode, params):
        activations = {key: tf.identity(features[key]) for key in keys}
        if mode == ee.ModeKeys.PREDICT:
            return ee.TPUEstimatorSpec(mode, predictions=activations)
        loss = tf.add_n([tf.reduce_sum(activations[key] * labels[key]) for key in keys])
        train_op = None
        if mode == ee.ModeKeys.TRAIN:
            # A sum: the labels are the gradients, whatever the number of cores.
            optimizer = tf.compat.v1.tpu.CrossShardOptimizer(
                tf.compat.v1.train.GradientDescentOptimizer(1.0),
                reduction=tf.compat.v1.losses.Reduction.SUM,
            )
            train_op = optimizer.minimize(loss, tf.compat.v1.train.get_global_step())
        return ee.TPUEstimatorSpec(mode, loss=loss, train_op=train_op)

    return model_fn


def estimator(model_fn, spec, model_dir, batch_size=4, device=None, num_shards=None, **kwargs):
    config = ee.RunConfig(
        model_dir=str(model_dir),
        tf_random_seed=1,
        save_summary_steps=None,
        log_step_count_steps=None,
        save_checkpoints_steps=1,
        keep_checkpoint_max=None,
        tpu_config=ee.TPUConfig(1, device=device, num_shards=num_shards),
    )
    kwargs.setdefault("use_tpu", device is not None)
    return ee.TPUEstimator(
        model_fn,
        config=config,
        train_batch_size=batch_size,
        eval_batch_size=batch_size,
        predict_batch_size=batch_size,
        embedding_config_spec=spec,
        **kwargs,
    )


def initializer(values):
    """A table initializer that gives `values`, from a callable as legacy programs pass one."""

    def initial(shape, dtype=tf.float32, partition_info=None):
        # On the hosts of a TPU, a part of the table.
        start = partition_info.var_offset[0] if partition_info else 0
        part = values[start : start + shape[0]]
        assert list(shape) == list(np.shape(part))
        return tf.constant(part, dtype)

    return initial


def saved(model_dir, step):
    """The variables of a checkpoint, by name."""
    reader = tf.train.load_checkpoint(f"{model_dir}/model.ckpt-{step}")
    return {name: reader.get_tensor(name) for name in reader.get_variable_to_shape_map()}


def said(caplog):
    """Returns the lines of our own log, without what TensorFlow says of another test's objects."""
    return [one.getMessage() for one in caplog.records if one.name == "estimator_emb"]
