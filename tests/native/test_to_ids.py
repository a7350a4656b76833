"""The native op turns strings and integers into the ids of TensorFlow's own columns."""

import host_engine
import numpy as np
import pytest
import tensorflow as tf
from harness import estimator, input_fn_of, minimized, normal, same, sparse

import estimator_emb as ee
import feature_columns as fc

pytestmark = pytest.mark.usefixtures("native")

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
    """Returns a column of every kind by its key, for values of a dtype."""
    kind = tf.as_dtype(dtype)
    words = WORDS if dtype == "string" else NUMBERS
    file = str(folder / "words")
    with open(file, "w", encoding="utf-8") as opened:
        opened.writelines(f"{word}\n" for word in words if word)  # TensorFlow takes no empty lines.
    of_list, of_file = (
        fc.categorical_column_with_vocabulary_list,
        fc.categorical_column_with_vocabulary_file,
    )
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


class Ops(v1.train.SessionRunHook):
    """Keeps the ops of the native kernels by type."""

    def begin(self):
        operations = v1.get_default_graph().get_operations()
        self.of_type = {op.type: op for op in operations if op.type.startswith("HostTables")}


def initial(shape, dtype=tf.float32, partition_info=None):
    return tf.constant(normal(shape[0], shape[0], 4))


def by_tensorflow(columns, features):
    """Returns the activations of TensorFlow's own embedding columns, by key."""
    with tf.Graph().as_default(), v1.Session() as session:
        seen = {}
        for key, value in features.items():
            if isinstance(value, v1.ragged.RaggedTensorValue):
                value = sparse(value.to_list(), value.dtype)
            is_sparse = isinstance(value, v1.SparseTensorValue)
            seen[key] = tf.SparseTensor(*value) if is_sparse else tf.constant(value)
        layers = {
            key: v1.feature_column.input_layer(
                seen, [tf.feature_column.embedding_column(column, 4, "sqrtn", initial)]
            )
            for key, column in columns.items()
        }
        session.run([v1.global_variables_initializer(), v1.tables_initializer()])
        return session.run(layers)


def _fast(dtype, form):
    return dtype == "string" or (dtype, form) == ("int64", "sparse")


@pytest.mark.fast(2)
@pytest.mark.parametrize(
    "dtype, form",
    [
        pytest.param(dtype, form, marks=() if _fast(dtype, form) else pytest.mark.slow)
        for dtype in ("string", "int64", "int32")
        for form in ("vector", "column", "matrix", "deep", "sparse", "ragged")
    ],
)
def test_ids_equal_tensorflows(dtype, form, tmp_path):
    categorical = columns_of(dtype, tmp_path)
    features = {key: feature_of(VALUES[dtype], form) for key in categorical}
    columns = {
        key: fc.embedding_column(column, 4, "sqrtn", initial) for key, column in categorical.items()
    }

    def model_fn(features, labels, mode, params):
        layers = {
            key: v1.feature_column.input_layer(features, [column])
            for key, column in columns.items()
        }
        return ee.TPUEstimatorSpec(mode, predictions=layers)

    spec = ee.EmbeddingConfigSpec(
        list(columns.values()), ee.StochasticGradientDescentParameters(0.1)
    )
    ops = Ops()
    made = estimator(model_fn, spec, tmp_path / "model")
    found = list(made.predict(input_fn_of([(features, np.zeros(1))]), hooks=[ops]))
    # TensorFlow's own ops turn ragged features into ids.
    converted = ops.of_type.get("HostTablesToIds")
    assert (converted is None) == (form == "ragged")
    if converted is not None:
        assert len(converted.get_attr("kinds")) == len(categorical)
    expected = by_tensorflow(categorical, features)
    for key in categorical:
        np.testing.assert_allclose(
            [one[key] for one in found], expected[key], rtol=1e-6, atol=1e-6, err_msg=key
        )


def everything():
    """Returns columns that share inputs, with strings in all kinds of features."""
    hashed = fc.categorical_column_with_hash_bucket("word", 50)
    listed = fc.categorical_column_with_vocabulary_list("tags", WORDS[:2])
    weighted = fc.weighted_categorical_column(
        fc.categorical_column_with_hash_bucket("weighted", 20), "weight"
    )
    sequence = fc.sequence_categorical_column_with_vocabulary_list("history", WORDS[:2])
    number = fc.categorical_column_with_identity("number", 9, default_value=1)
    return [
        fc.embedding_column(hashed, 4, "sum", initial),
        fc.embedding_column(hashed, 1, "sum", v1.zeros_initializer()),
        fc.embedding_column(listed, 4, "mean", initial),
        fc.embedding_column(weighted, 4, "mean", initial),
        fc.embedding_column(sequence, 4, None, initial, max_sequence_length=3),
        fc.embedding_column(number, 4, "sum", initial),
    ]


BATCH = {
    "word": np.array(["a", "b", "", "a"]),
    "tags": sparse([["fig", "no"], ["no"], [], ["pear", "fig", "fig"]], object),
    "weighted": np.array([["a", "b"], ["", "c"], ["d", ""], ["", ""]]),
    "weight": np.array([[1, 2], [3, 4], [5, 6], [7, 8]], np.float32),
    "history": np.array([["fig", "no"], ["no", ""], ["", ""], ["pear", "pear"]]),
    "number": np.array([3, -1, 100, 8]),
}


def trained(folder, native, bad_ids="error", **fields):
    """Returns the variables after two steps, and the ops of the native kernels by type."""
    columns = everything()

    def model_fn(features, labels, mode, params):
        flat = [column for column in columns if column.get_max_sequence_length() == 0]
        dense = tf.concat(
            [v1.feature_column.input_layer(features, [column]) for column in flat], axis=1
        )
        sequence, _ = fc.sequence_input_layer(
            features, [column for column in columns if column not in flat]
        )
        total = tf.reduce_sum(tf.sin(dense), 1) + tf.reduce_sum(tf.cos(sequence), [1, 2])
        return minimized(mode, tf.reduce_mean(tf.square(total - labels)), 0.1)

    spec = ee.EmbeddingConfigSpec(columns, ee.AdagradParameters(0.1), **fields)
    labels = np.array([1.0, -1.0, 2.0, 0.5], np.float32)
    ops, tpu = Ops(), {"bad_ids": bad_ids}
    with host_engine.native_is(native):
        made = estimator(model_fn, spec, folder, run={"save_summary_steps": None}, tpu=tpu)
        made.train(input_fn_of([(BATCH, labels)] * 2), hooks=[ops])
    return {name: made.get_variable_value(name) for name in made.get_variable_names()}, ops.of_type


@pytest.mark.parametrize(
    "options",
    [
        {},
        pytest.param({"bad_ids": "drop"}, marks=pytest.mark.slow),
        pytest.param({"pipeline_execution_with_tensor_core": True}, marks=pytest.mark.slow),
    ],
    ids=["plain", "dropping", "pipelined"],
)
def test_a_training_on_strings_equals_tensorflows_ops(options, tmp_path):
    native, ops = trained(tmp_path / "native", True, **options)
    plain, _ = trained(tmp_path / "plain", False, **options)
    same(native, plain, 1e-5, 1e-6)
    if "bad_ids" in options:
        assert "HostTablesToIds" not in ops
    else:
        # Two columns share a conversion. The weighted columns and the sequence are not converted.
        assert len(ops["HostTablesToIds"].get_attr("kinds")) == 3


def test_strings_for_sharded_tables_equal_tensorflows_ops():
    columns = [
        fc.embedding_column(column, 4, "mean", initial)
        for column in (
            fc.categorical_column_with_hash_bucket("hash", 50),
            fc.categorical_column_with_hash_bucket("matrix", 50),
        )
    ]
    spec = ee.EmbeddingConfigSpec(columns, ee.AdagradParameters(0.1))
    features = {
        "hash": feature_of(VALUES["string"], "vector"),
        "matrix": feature_of(VALUES["string"], "matrix"),
    }
    slopes = {key: np.random.default_rng(0).normal(size=[8, 4]) for key in features}
    batches = [(features, {key: one.astype(np.float32) for key, one in slopes.items()})] * 2
    host_engine.same(spec, batches, shards=3)


DROP = " TPUConfig(bad_ids='drop') leaves such ids out and counts them."
BAD = {
    "default_value": (
        {"x": np.array(["fig", "no"]), "y": np.array([0, 1])},
        "Feature x of table tbl_x: id 7 is outside [0, 2)." + DROP,
    ),
    "default_value of sparse ones": (
        {"x": sparse([["fig"], ["fig", "no"]], object), "y": np.array([0, 1])},
        "Feature x of table tbl_x: id 7 is outside [0, 2)." + DROP,
    ),
    "an id beside missing strings": (
        {"x": np.array(["", "fig"]), "y": np.array([0, 9])},
        "Feature y of table tbl_y: id 9 is outside [0, 5)." + DROP,
    ),
    "a place": (
        {
            "x": v1.SparseTensorValue(
                np.array([[0, 0], [5, 0]]), np.array(["fig", "fig"], object), np.array([2, 1])
            ),
            "y": np.array([0, 1]),
        },
        "Feature x of table tbl_x: sparse index [5 0] is outside the dense shape [2 1].",
    ),
    "a place of an unknown string": (
        {
            "x": v1.SparseTensorValue(
                np.array([[0, 0], [5, 0]]), np.array(["fig", "no"], object), np.array([2, 1])
            ),
            "y": np.array([0, 1]),
        },
        "Feature x of table tbl_x: sparse index [5 0] is outside the dense shape [2 1].",
    ),
    "batch sizes": (
        {"x": np.array(["fig", "fig", "fig"]), "y": np.array([0, 1])},
        "Feature y of table tbl_y has 2 samples, but feature x has 3. All features of a batch need "
        "the same number.",
    ),
}


@pytest.mark.fast(2)
@pytest.mark.parametrize("problem", BAD)
def test_errors_equal_those_of_tensorflows_ops(problem, tmp_path):
    batch, message = BAD[problem]
    default = 7 if "default" in problem else -1
    listed = fc.categorical_column_with_vocabulary_list("x", WORDS[:2], default_value=default)
    identity = fc.categorical_column_with_identity("y", 5)
    columns = [fc.embedding_column(one, 2, "sum") for one in (listed, identity)]

    def model_fn(features, labels, mode, params):
        return minimized(mode, tf.reduce_sum(v1.feature_column.input_layer(features, columns)))

    def input_fn(params):
        def unknown(value):
            if isinstance(value, v1.SparseTensorValue):
                return tf.SparseTensor(*value)
            return v1.placeholder_with_default(tf.constant(value), [None])

        return {key: unknown(value) for key, value in batch.items()}, None

    def error(native):
        spec = ee.EmbeddingConfigSpec(columns, ee.AdagradParameters(0.1))
        made = estimator(model_fn, spec, tmp_path / str(native))
        with host_engine.native_is(native), pytest.raises(tf.errors.InvalidArgumentError) as caught:
            made.train(input_fn, steps=1)
        return caught.value.message.partition("\n")[0]

    expected = f"assertion failed: [{message}]"
    assert [error(native) for native in (True, False)] == [expected] * 2
