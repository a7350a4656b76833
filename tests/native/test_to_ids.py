"""The native op turns strings and integers into the ids of TensorFlow's own columns."""

import host_engine
import numpy as np
import pytest
import tensorflow as tf
from harness import assert_same, estimator, input_fn_of, normal, sparse

import estimator_emb as ee
import feature_columns as fc

pytestmark = pytest.mark.usefixtures("native")  # Turns the native kernels on.

v1 = tf.compat.v1
WORDS = ["fig", "pear", "", "apple pie", "größer"]
"""Words of vocabularies. The empty word counts only in sparse and ragged features."""
NUMBERS = [7, 20, -3, 2**31 - 1]
VALUES = {
    "string": np.array(
        [b"fig", b"", b"apple pie", b"unknown", b"\xff\xfe", "größer".encode(), b"a\0b", b"x" * 99],
        object,
    ),
    "int32": np.array([7, -1, 20, 3, -3, 2**31 - 1, -(2**31), 0], np.int32),
    "int64": np.array([7, -1, 20, 3, -3, 2**31 - 1, -(2**63), 2**63 - 1], np.int64),
}
LENGTHS = [3, 0, 1, 2, 0, 2]
"""Lengths of the samples of sparse and ragged features. They hold all values of a dtype."""


def columns_of(dtype, folder):
    """Returns a column of every kind that turns values of a dtype into ids, by its key."""
    kind = tf.as_dtype(dtype)
    words = WORDS if dtype == "string" else NUMBERS
    file = str(folder / "words")
    with open(file, "w", encoding="utf-8") as opened:
        opened.writelines(f"{word}\n" for word in words if word)  # TensorFlow takes no empty lines.
    of_list = fc.categorical_column_with_vocabulary_list
    of_file = fc.categorical_column_with_vocabulary_file
    columns = {
        "hash": fc.categorical_column_with_hash_bucket("hash", 1000, kind),
        "one_bucket": fc.categorical_column_with_hash_bucket("one_bucket", 1, kind),
        "list": of_list("list", words, kind),
        "list_oov": of_list("list_oov", words, kind, num_oov_buckets=5),
        "list_default": of_list("list_default", words, kind, default_value=2),
        "list_none": of_list("list_none", words, kind, default_value=-7),
        "file_none": of_file("file_none", file, default_value=-2, dtype=kind),
        "file": of_file("file", file, dtype=kind),
        "file_size": of_file("file_size", file, 2, num_oov_buckets=3, dtype=kind),
        "file_default": of_file("file_default", file, default_value=0, dtype=kind),
    }
    if dtype != "string":
        columns["identity"] = fc.categorical_column_with_identity("identity", 21, default_value=5)
    return columns


def feature_of(values, form):
    """Returns the values in a form, with several values per sample if the form allows it."""
    if form == "vector":
        return values
    if form == "column":
        return values[:, None]
    if form == "matrix":
        return np.stack([values, values[::-1], np.roll(values, 3)], axis=1)
    if form == "deep":
        return feature_of(values, "matrix")[:, None, None, :]
    ends = np.cumsum([0, *LENGTHS], dtype=np.int64)
    rows = [values[begin:end] for begin, end in zip(ends, ends[1:], strict=False)]
    if form == "sparse":
        return sparse(rows, values.dtype)
    return v1.ragged.RaggedTensorValue(values, ends)


def initial(shape, dtype=tf.float32, partition_info=None):
    return tf.constant(normal(shape[0], shape[0], 4))


def by_tensorflow(columns, features):
    """Returns the activations of TensorFlow's own embedding columns, by key."""
    with tf.Graph().as_default(), v1.Session() as session:
        seen = {}
        for key, value in features.items():
            if isinstance(value, v1.ragged.RaggedTensorValue):
                value = sparse(value.to_list(), value.dtype)
            seen[key] = v1.convert_to_tensor_or_sparse_tensor(value)
        layers = {
            key: v1.feature_column.input_layer(
                seen, [tf.feature_column.embedding_column(column, 4, "sqrtn", initial)]
            )
            for key, column in columns.items()
        }
        session.run([v1.global_variables_initializer(), v1.tables_initializer()])
        return session.run(layers)


@pytest.mark.parametrize(
    "dtype, form",
    [
        pytest.param(dtype, form, marks=() if dtype + form == "stringmatrix" else pytest.mark.slow)
        for dtype in ("string", "int64", "int32")
        for form in ("vector", "column", "matrix", "deep", "sparse", "ragged")
    ],
)
def test_ids_equal_tensorflows(dtype, form, tmp_path):
    """Equal ids look up equal activations, as all rows of the tables differ."""
    categorical = columns_of(dtype, tmp_path)
    features = {key: feature_of(VALUES[dtype], form) for key in categorical}
    columns = {
        key: fc.embedding_column(column, 4, "sqrtn", initial) for key, column in categorical.items()
    }
    graphs = []

    def model_fn(features, labels, mode, params):
        graphs.append(v1.get_default_graph())
        layers = {
            key: v1.feature_column.input_layer(features, [column])
            for key, column in columns.items()
        }
        return ee.TPUEstimatorSpec(mode, predictions=layers)

    spec = ee.EmbeddingConfigSpec(
        list(columns.values()), ee.StochasticGradientDescentParameters(0.1)
    )
    made = estimator(model_fn, spec, tmp_path / "model")
    found = list(made.predict(input_fn_of([(features, np.zeros(1))])))
    # A single native op makes all ids, except that TensorFlow's own ops turn ragged features.
    converted = [op for op in graphs[0].get_operations() if op.type == "HostTablesToIds"]
    counts = [len(op.get_attr("kinds")) for op in converted]
    assert counts == ([] if form == "ragged" else [len(categorical)])
    got = {key: [one[key] for one in found] for key in categorical}
    assert_same(got, by_tensorflow(categorical, features), 1e-6, 1e-6)


@pytest.mark.slow
def test_strings_for_sharded_tables_equal_tensorflows_ops():
    columns = [
        fc.embedding_column(fc.categorical_column_with_hash_bucket(key, 50), 4, "mean", initial)
        for key in ("matrix", "ragged")
    ]
    spec = ee.EmbeddingConfigSpec(columns, ee.AdagradParameters(0.1))
    features = {
        "matrix": feature_of(VALUES["string"][: len(LENGTHS)], "matrix"),
        "ragged": feature_of(VALUES["string"], "ragged"),
    }
    batches = [(features, {key: normal(0, 6, 4) for key in features})] * 2
    host_engine.assert_same_on_both_kernels(spec, batches, shards=3)
