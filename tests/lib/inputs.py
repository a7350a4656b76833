"""Values of features and datasets of batches. This module uses nothing of estimator_emb."""

import numpy as np
import tensorflow as tf

v1 = tf.compat.v1


def sparse(rows, dtype=np.int64):
    """Converts lists of values per sample to a SparseTensorValue [batch, longest]."""
    indices = [[i, j] for i, row in enumerate(rows) for j in range(len(row))]
    values = np.array([value for row in rows for value in row], dtype)
    shape = [len(rows), max([len(row) for row in rows] + [1])]
    return v1.SparseTensorValue(
        np.array(indices, np.int64).reshape(-1, 2), values, np.array(shape, np.int64)
    )


def lists(sparse):
    """Converts a SparseTensorValue to lists of values per sample."""
    found = [[] for _ in range(sparse.dense_shape[0])]
    for (row, _), value in zip(sparse.indices, sparse.values, strict=True):
        found[row].append(value)
    return found


def matrix(rows, width, dtype=np.int64, fill=-1):
    """Converts lists of values per sample to a padded matrix [batch, width]."""
    return np.array([[*row, *[fill] * (width - len(row))] for row in rows], dtype)


def ones(ids):
    """Returns a weight of 1 for each id in lists of ids."""
    return [[1.0] * len(of_sample) for of_sample in ids]


def dataset(batches):
    """Returns a dataset of the given (features, labels) batches. Keeps sparse and ragged values."""

    def tensors(value):
        if isinstance(value, v1.SparseTensorValue):
            return tf.SparseTensor(*value)
        if isinstance(value, v1.ragged.RaggedTensorValue):
            return tf.RaggedTensor.from_row_splits(value.values, value.row_splits, validate=False)
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


def endless(samples):
    """Returns an input_fn that repeats `samples`, arrays with a row for each, in full batches."""

    def input_fn(params):
        dataset = tf.data.Dataset.from_tensor_slices(samples).repeat()
        return dataset.batch(params["batch_size"], drop_remainder=True)

    return input_fn
