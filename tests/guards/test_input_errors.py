"""Errors raised inside a dataset also name the feature and table."""

import types

import harness
import pytest
import tensorflow as tf

import estimator_emb as ee
import feature_columns as fc
from estimator_emb.guards.guard import Call, ModelBatch, Runs
from estimator_emb.guards.missing_labels import MissingLabels

SPARSE = (
    "Each value of a SparseTensor needs one index: n values need indices of shape [n, rank] and a "
    "dense shape of shape [rank]."
)
RAGGED = (
    "The row splits of a RaggedTensor must begin with 0, never decrease, and end with the number "
    "of values."
)


def model_fn(features, labels, mode, params):
    activations = features["x"] + features["z"]
    if mode == ee.ModeKeys.PREDICT:
        return ee.TPUEstimatorSpec(mode, predictions={"sum": activations})
    loss = tf.reduce_sum(activations * tf.cast(labels, tf.float32)[:, None])
    return harness.minimized(mode, loss)


def make(tmp_path, cores=None):
    weighted = fc.weighted_categorical_column(fc.categorical_column_with_identity("z", 5), "w")
    columns = [
        fc.embedding_column(fc.categorical_column_with_identity("x", 5), 2, combiner="sum"),
        fc.embedding_column(weighted, 2, combiner="sum"),
    ]
    tpu = {"per_host_input_for_training": ee.InputPipelineConfig.PER_HOST_V2}
    spec = ee.EmbeddingConfigSpec(columns, ee.StochasticGradientDescentParameters(0.5))
    batch_size = 2 * (cores or 1)
    return harness.estimator(model_fn, spec, tmp_path, batch_size, num_shards=cores, tpu=tpu)


def sparse(values):
    """Returns a SparseTensor. Its graph knows neither the number of indices nor of values."""
    unknown = tf.compat.v1.placeholder_with_default
    places = tf.constant([[0, 0], [1, 1]], tf.int64)
    return tf.SparseTensor(unknown(places, [None, 2]), unknown(values, [None]), [2, 2])


def ids(count):
    return tf.ones([count], tf.int64)


def ragged(count):
    unknown = tf.compat.v1.placeholder_with_default
    splits = unknown(tf.constant([0, 1, 2], tf.int64), [3])
    return tf.RaggedTensor.from_row_splits(unknown(ids(count), [None]), splits, validate=False)


def batch(x=None, z=None, w=None):
    features = {
        "x": sparse(ids(2)) if x is None else x,
        "z": sparse(ids(2)) if z is None else z,
        "w": sparse(tf.ones([2])) if w is None else w,
    }
    return features, tf.ones([2])


def repeated(make_batch):
    """Returns a dataset that makes its batches in a function."""
    return tf.data.Dataset.range(8).map(lambda _: make_batch())


INPUTS = {
    "map": lambda: repeated(lambda: batch(x=sparse(ids(3)))),
    "map of a map": lambda: repeated(lambda: batch(z=sparse(ids(3)))).map(
        lambda features, labels: ({**features, "x": features["z"], "z": features["x"]}, labels)
    ),
    "weights": lambda: repeated(lambda: batch(w=sparse(tf.ones([1])))),
    "tensors": lambda: tf.data.Dataset.from_tensors(batch(x=sparse(ids(3)))).repeat(),
    "ragged in a map": lambda: repeated(lambda: batch(x=ragged(4))),
    "ragged tensors": lambda: tf.data.Dataset.from_tensors(batch(x=ragged(4))).repeat(),
    "slices": lambda: tf.data.Dataset.from_tensor_slices(batch(x=sparse(ids(3)))).batch(2, True),
}
IDS = "Feature x of table tbl_x: its ids"
OTHER_IDS = "Feature z of table tbl_z_weighted_by_w: its ids"
WEIGHTS = "Feature z of table tbl_z_weighted_by_w: its weights w"
DESERIALIZING = (
    "Expected row counts of SparseTensor[0].indices and SparseTensor[0].values to match but they "
    "do not: 2 vs. {}"
)
SPLITS = (
    "Requires nested_row_splits[0][-1]=2 to be equal with the number of values in this dimension, "
    "which is 4"
    if harness.IS_2_15
    else "Invalid ragged splits: last element of ragged splits must be the number of ragged "
    "values(4) but is 2"
)
SAID = {
    "map": DESERIALIZING.format(3),
    "map of a map": DESERIALIZING.format(3),
    "weights": DESERIALIZING.format(1),
    "tensors": DESERIALIZING.format(3),
    "ragged in a map": SPLITS,
    "ragged tensors": SPLITS,
    "slices": "indices and values rows (indexing dimension) must match. (indices = 2, values = 3)",
}


def malformed(owner, name, of_each=False):
    """Returns the possible messages. With a dataset per core, any core may fail first."""
    allowed = RAGGED if "ragged" in name else SPARSE
    return [
        f"{owner}{of_core}: malformed in its dataset. {SAID[name]}. {allowed}"
        for of_core in ([" of core 0", " of core 1"] if of_each else [""])
    ]


def failure(estimator, mode, make_dataset):
    def input_fn(params):
        dataset = make_dataset()
        return dataset.map(lambda features, labels: features) if mode == "predict" else dataset

    with pytest.raises(tf.errors.InvalidArgumentError) as error:
        harness.run(mode, estimator, input_fn, **{} if mode == "predict" else {"steps": 1})
    return error.value.message.splitlines()


@pytest.mark.fast(2)
@pytest.mark.parametrize(
    "name, cores",
    [
        *((name, None) for name in INPUTS),
        pytest.param("map", 1, marks=pytest.mark.slow),
        ("weights", 2),
        *(
            pytest.param(name, 2, marks=pytest.mark.slow)
            for name in ("map", "tensors", "ragged in a map")
        ),
    ],
)
def test_an_input_error_names_feature_and_table(name, cores, tmp_path):
    said, *more = failure(make(tmp_path, cores), "train", INPUTS[name])
    # The second function of "map of a map" takes the bad value as z and returns it as x.
    owner = {"weights": WEIGHTS, "map of a map": OTHER_IDS}.get(name, IDS)
    assert said in malformed(owner, name, cores == 2 and name in ("map", "weights", "tensors"))
    # If the program's own line made the failing dataset, the message shows that line.
    made = name in ("slices", "ragged tensors")
    assert len(more) == made and all(f"was made by {__file__}, line" in line for line in more)


@pytest.mark.parametrize("cores", [None, pytest.param(2, marks=pytest.mark.slow)])
@pytest.mark.parametrize("mode", ["evaluate", "predict"])
def test_input_errors_are_named_in_evaluation_and_prediction(mode, cores, tmp_path):
    (said,) = failure(make(tmp_path, cores), mode, INPUTS["weights"])
    assert said in malformed(WEIGHTS, "weights", cores and mode == "evaluate")


def test_an_ambiguous_input_error_names_both_features(tmp_path):
    def both():
        first = repeated(lambda: batch(z=ragged(2), w=None))
        features = first.map(lambda features, labels: {"z": features["z"].to_sparse()})
        second = repeated(lambda: batch(x=ragged(4)))
        return tf.data.Dataset.zip((features, second)).map(
            lambda one, two: ({**two[0], **one}, two[1])
        )

    (said,) = failure(make(tmp_path), "train", both)
    owners = f"{OTHER_IDS} or {IDS}", f"{IDS} or {OTHER_IDS}"
    assert [said] in [malformed(one, "ragged tensors") for one in owners]


def test_the_full_input_error_is_shown_on_request(tmp_path, monkeypatch):
    monkeypatch.setenv("ESTIMATOR_EMB_FULL_TRACEBACK", "1")
    first, *lines = failure(make(tmp_path), "train", INPUTS["map"])
    assert [first] == malformed(IDS, "map")
    assert any("Original stack trace for" in line or "Node: " in line for line in lines)


def test_other_input_errors_are_unchanged(tmp_path):
    def failing():
        def check(features, labels):
            with tf.control_dependencies([tf.debugging.Assert(False, ["of the program"])]):
                return features, tf.identity(labels)

        return repeated(batch).map(check)

    lines = failure(make(tmp_path), "train", failing)
    assert lines[0].endswith("assertion failed: [of the program]")
    assert not any("malformed" in line for line in lines)


def test_batches_of_two_cores_with_different_widths_are_refused(tmp_path):
    """The dense ids of each batch may have another width."""

    def of_width(width):
        dense = tf.compat.v1.placeholder_with_default(tf.ones([2, width], tf.int64), [2, None])
        return tf.data.Dataset.from_tensors(batch(x=dense))

    (said,) = failure(make(tmp_path, 2), "train", lambda: of_width(2).concatenate(of_width(3)))
    assert said == (
        f"assertion failed: [{IDS} of core 1 have shape [2 3], but those of core 0 have [2 2]: pad "
        "batches to one width.]"
    )


def of_every_kind():
    """Returns a dataset with batches from unusual functions and inputs, in turns."""
    signature = tf.TensorSpec([], tf.int64)
    numbers = tf.data.Dataset.from_generator(lambda: range(8), output_signature=signature)
    legacy = tf.compat.v1.data.Dataset.range(8).map_with_legacy_function(lambda _: 1)
    kinds = [
        repeated(batch),
        legacy.map(lambda _: batch()),
        numbers.map(lambda _: batch()),
        tf.data.Dataset.range(8).interleave(lambda _: repeated(batch), 2).prefetch(2),
    ]
    turns = tf.data.Dataset.range(len(kinds)).repeat(2)
    return tf.data.Dataset.choose_from_datasets(kinds, turns)


@pytest.mark.slow
def test_datasets_of_every_kind_train(tmp_path):
    make(tmp_path / "one").train(lambda params: of_every_kind(), steps=4)
    assert harness.saved(tmp_path / "one", 4)["global_step"] == 4
    make(tmp_path / "two", 2).train(lambda params: repeated(batch), steps=1)
    assert harness.saved(tmp_path / "two", 1)["global_step"] == 1


@pytest.mark.parametrize(
    "error, explained",
    [
        (ValueError("Shapes (None, 3) and (None, 4) are incompatible"), False),
        (ValueError("expected min_ndim=2, found ndim=1. Full shape received: (None,)"), False),
        (TypeError("Expected [None, 3], got <TensorShape (None)>"), False),
        (KeyError("None"), False),
        (ValueError("Attempt to convert a value (None) to a Tensor."), True),
        (ValueError("None values not supported."), True),
        (AttributeError("'NoneType' object has no attribute 'shape'"), True),
    ],
)
def test_only_errors_about_none_mention_missing_labels(error, explained):
    before = str(error)
    guard = MissingLabels(types.SimpleNamespace(call=Call(Runs.LOCAL, mode="train")))
    with pytest.raises(type(error)), guard.around(ModelBatch({}, labels=None)):
        raise error
    assert str(error).startswith(before)
    assert ("labels is None in mode 'train'" in str(error)) is explained
