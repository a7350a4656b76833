"""The error for a NaN loss names the tables, rows and variables that are NaN or infinite."""

import harness
import numpy as np
import pytest
import tensorflow as tf
from harness import dataset, estimator, minimized

import estimator_emb as ee
import feature_columns as fc

v1 = tf.compat.v1
NAN = float("nan")


def train(directory, labels, cores=None, tables=True, plus=0.0, parameters=None, dtype=None):
    def model_fn(features, labels, mode, params):
        w = v1.get_variable("w", [3], dtype, initializer=v1.ones_initializer())
        w = tf.cast(w, tf.float32)
        labels = tf.bitcast(labels, tf.float32)  # Integers hide NaN from the check of the input.
        loss = tf.reduce_sum(labels) * tf.reduce_sum(w[:2]) + plus
        if tables:
            # The first feature's gradient is its sample's label. The other's is always 1.
            loss += tf.reduce_sum(features["a"] * labels[:, None])
            loss += tf.reduce_sum(features["b"]) + tf.reduce_sum(features["c"])
        return minimized(mode, loss, 0.1)

    def input_fn(params):
        features = {"x": np.zeros([4], np.float32)}
        if tables:
            features = {"a": np.array([7, 1, 2, 9]), "b": np.arange(4), "c": np.arange(4)}
        return dataset([(features, np.array(one, np.float32).view(np.int32)) for one in labels])

    def column(key, rows):
        return fc.categorical_column_with_identity(key, rows)

    spec = None
    if tables:
        spec = ee.EmbeddingConfigSpec(
            feature_columns=[
                *fc.shared_embedding_columns([column("a", 10), column("b", 10)], 2),
                fc.embedding_column(column("c", 5), 2),
            ],
            optimization_parameters=parameters or ee.AdagradParameters(0.1),
        )
    # Without saves: saving such weights would raise an error first.
    made = estimator(model_fn, spec, directory, num_shards=cores, run=harness.SILENT)
    made.train(input_fn, max_steps=len(labels))


def failure(*args, **kwargs):
    with pytest.raises(v1.train.NanLossDuringTrainingError) as caught:
        train(*args, **kwargs)
    return caught.value


BEGIN = ["NaN loss during training. After this step, these hold NaN or infinity:"]
TABLE = "table 'tbl_a_b_shared_embedding' (features 'a', 'b'): NaN in 2 of 10 rows, ids 1, 9"
DENSE = "variable w:0: NaN in 2 of 3 numbers (Gradient for w:0 is NaN)"
WAYS = [
    (None, False, "0"),
    (1, False, "0"),
    (None, True, "0"),
    (None, True, "1"),
    (1, True, "1"),
    (2, True, "0"),
]


@pytest.mark.fast(3)
@pytest.mark.parametrize(("cores", "tables", "native_kernels"), WAYS)
def test_tables_and_variables_with_nan_are_named(
    tmp_path, monkeypatch, native, cores, tables, native_kernels
):
    monkeypatch.setenv("ESTIMATOR_EMB_NATIVE", native_kernels)
    error = failure(tmp_path, [[1, 1, 1, 1], [1, NAN, 1, NAN], [1, 1, 1, 1]], cores, tables)
    assert str(error) == "\n  ".join([*BEGIN, *([TABLE] if tables else []), DENSE])
    # A TPU raises this type for such a variable.
    assert isinstance(error, tf.errors.InvalidArgumentError) == (cores is not None)


@pytest.mark.parametrize("dtype", [tf.float32, tf.bfloat16, tf.float64], ids=lambda one: one.name)
def test_infinite_rows_are_distinguished_from_nan(tmp_path, dtype):
    # The steps of rows 7 and 9 are too long for float32.
    labels = [[1e30, 1, 1, 1e30], [0, NAN, 0, 0]]
    parameters = ee.StochasticGradientDescentParameters(1e10)
    error = failure(tmp_path, labels, parameters=parameters, dtype=dtype)
    table = TABLE.removesuffix("NaN in 2 of 10 rows, ids 1, 9")
    table += "NaN in 1 of 10 rows, ids 1; infinity in 2 of 10 rows, ids 7, 9"
    assert str(error) == "\n  ".join([*BEGIN, table, DENSE])


def test_an_infinite_variable_is_named(tmp_path):
    error = failure(tmp_path, [[3e38] * 4, [0] * 4], tables=False)
    assert str(error) == "\n  ".join([*BEGIN, DENSE.replace("NaN in 2", "infinity in 2")])


def test_a_row_spoilt_by_an_earlier_step_is_named(tmp_path):
    # An infinite gradient makes a row NaN, and the next step reads the row.
    infinite = float("inf")
    error = failure(tmp_path, [[infinite, 1, 1, 1], [1, 1, 1, 1]])
    table = TABLE.replace("2 of 10 rows, ids 1, 9", "1 of 10 rows, ids 7")
    assert f"\n  {table}\n" in str(error)


def test_a_table_is_named_with_tensorflow_1_shapes(tmp_path):
    # In TensorFlow 1, the dimensions of a shape are objects.
    v1.disable_v2_tensorshape()
    try:
        error = failure(tmp_path, [[1, NAN, 1, NAN]])
    finally:
        v1.enable_v2_tensorshape()
    assert f"\n  {TABLE}\n" in str(error)


@pytest.mark.parametrize("cores", [None, 1])
def test_a_nan_loss_without_other_nan_gets_advice(tmp_path, cores):
    error = failure(tmp_path, [[1, 1, 1, 1]], cores, plus=NAN)
    assert str(error) == (
        "NaN loss during training. No table and no variable of the model, and no feature and no "
        "label of this step, holds NaN or infinity: look at what the loss divides by or takes the "
        "logarithm or the root of."
    )
