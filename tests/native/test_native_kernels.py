"""The native kernels equal TensorFlow's own ops, in the same engine."""

import harness
import host_engine
import numpy as np
import pytest
import reference
import tensorflow as tf
from host_engine import one_table, same

import estimator_emb as ee

pytestmark = pytest.mark.usefixtures("native")


@pytest.mark.slow
@pytest.mark.parametrize("shards", [1, 4])
def test_kernels_equal_the_ops_in_every_dimension(shards):
    dimensions = {f"t{dimension}": dimension for dimension in (1, 3, 8, 16, 32, 40, 64, 100)}
    tables = {
        name: ee.TableConfig(
            30, dimension, harness.initializer(harness.normal(dimension, 30, dimension)), "mean"
        )
        for name, dimension in dimensions.items()
    }
    spec = harness.tables_spec(tables, ee.AdagradParameters(0.1))
    ids = lambda rng, key, rows: rng.integers(-1, rows, [64, 5])  # noqa: E731
    same(spec, harness.random_batches(0, spec, 64, 2, ids), shards=shards)


@pytest.mark.fast(3)
@pytest.mark.parametrize("rows", [1, 300, 5000, pytest.param(3_000_000, marks=pytest.mark.slow)])
@pytest.mark.parametrize("count, shards", [(1, 1), (600, 1), (40_000, 1), (40_000, 3)])
def test_kernels_equal_the_ops_for_every_size(rows, count, shards):
    """These sizes cover each number of sorting passes, and tables shared by several threads."""
    rng = np.random.default_rng(rows)
    ids = (rng.zipf(1.2, count) - 1) * 7919 % rows
    same(
        one_table(ee.AdagradParameters(0.1), rows, 1),
        [({"x": ids}, {"x": np.round(harness.normal(rng, count, 1) * 8) / 8})],
        shards=shards,
    )


@pytest.mark.fast(2)
@pytest.mark.parametrize("dimension", [8, 16, 20])
@pytest.mark.parametrize("positions", [None, 7])
def test_kernels_equal_the_ops_beyond_the_cpu_cache(dimension, positions):
    rng = np.random.default_rng(dimension)
    shape = [40_000] if positions is None else [6_000, positions]
    ids = rng.integers(0, 5000, shape)
    feature = {"max_sequence_length": positions or 0}
    spec = one_table(ee.AdagradParameters(0.1), 5000, dimension, feature=feature)
    slopes = np.round(harness.normal(rng, *shape, dimension) * 8) / 8
    same(spec, [({"x": ids}, {"x": slopes})])


OUTSIDE = np.array([-3, -1, 7, 2**31 + 2, -(2**40) + 3])
"""Some ids outside a table of 7 rows. Cut to 32 bits, two of them would be rows 2 and 3."""


def forms_with_bad_ids(rng, samples):
    """Returns features by form, with bad ids among good ids, and their configurations."""
    lists = [rng.choice([*range(7), *OUTSIDE], rng.integers(0, 5)) for _ in range(samples)]
    sparse = harness.sparse(lists)
    weights = sparse._replace(values=rng.integers(1, 5, len(sparse.values)).astype(np.float32))
    features = {
        "one": rng.choice([*range(7), *OUTSIDE], samples),
        "dense": rng.choice([*range(7), *OUTSIDE], [samples, 4]),
        "narrow": rng.integers(-2, 10, [samples, 4]).astype(np.int32),
        "sparse": sparse,
        "weighted": sparse,
        "weights": weights,
        "sequence": sparse,
    }
    configs = {
        key: ee.FeatureConfig(
            "t",
            max_sequence_length=3 if key == "sequence" else 0,
            weight_key="weights" if key == "weighted" else None,
        )
        for key in features
        if key != "weights"
    }
    return features, configs


@pytest.mark.fast(1)
@pytest.mark.parametrize("combiner, shards", [("mean", 1), ("sqrtn", 3)])
def test_kernels_drop_the_bad_ids_that_the_ops_drop(combiner, shards):
    rng = np.random.default_rng(0)
    made = [forms_with_bad_ids(rng, 9) for _ in range(2)]
    start = harness.normal(rng, 7, 5)
    spec = ee.EmbeddingConfigSpec(
        feature_to_config_dict=made[0][1],
        table_to_config_dict={"t": ee.TableConfig(7, 5, harness.initializer(start), combiner)},
        optimization_parameters=ee.AdagradParameters(0.1),
    )
    batches = [(features, harness.random_gradients(rng, spec, 9)) for features, _ in made]
    activations, _ = same(spec, batches, shards=shards, drop=True)
    for key in ("one", "dense"):
        good = [[id for id in ids if 0 <= id < 7] for ids in np.c_[made[0][0][key]].tolist()]
        want = reference.combine(start, good, harness.ones(good), combiner)
        np.testing.assert_allclose(activations[0][key], want, rtol=1e-6, atol=1e-6)


@pytest.mark.fast(2)
@pytest.mark.parametrize(
    "rows, dimension, shards", [(5, 3, 3), (300, 16, 1), (70_000, 1, 1), (2_000, 64, 3)]
)
def test_non_lazy_adam_moves_rows_outside_the_batch(rows, dimension, shards):
    """The moments of non-lazy Adam move every row, in parts that threads share."""
    parameters = ee.AdamParameters(0.1, 0.8, 0.9, 1e-3, lazy_adam=False)
    spec = one_table(parameters, rows, dimension)
    batches = harness.random_batches(rows, spec, 50, 3)
    _, found = same(spec, batches, shards=shards)
    want = [harness.normal(3, rows, dimension), 0.0, 0.0]
    for features, slopes in batches:
        g = np.zeros([rows, dimension])
        np.add.at(g, features["x"], slopes["x"])
        want = reference.adam(
            0.1, g, *want, beta1=0.8, beta2=0.9, epsilon=1e-3, sum_inside_sqrt=True
        )
    for name, values in zip(["t", "t/Adam/m", "t/Adam/v"], want, strict=True):
        np.testing.assert_allclose(host_engine.whole(found, name), values, rtol=2e-5, atol=2e-6)


def test_results_do_not_depend_on_threads():
    rng = np.random.default_rng(2)
    ids = rng.integers(0, 50, 20_000)
    spec = one_table(ee.AdagradParameters(0.1), 50, 8)
    batches = [({"x": ids}, {"x": harness.normal(rng, 20_000, 8)})]
    first = host_engine.train(spec, batches, native=True)
    again = host_engine.train(spec, batches, native=True)
    np.testing.assert_array_equal(first[1]["t"], again[1]["t"])


@pytest.mark.fast(1)
@pytest.mark.parametrize(
    "ids, weights, message",
    [
        (np.array([1, 5]), None, "Feature x of table t: id 5 is outside [0, 5)."),
        (np.array([-1, 2]), None, "Feature x of table t: id -1 is outside [0, 5)."),
        (np.array([[1, -1], [7, 2]]), None, "Feature x of table t: id 7 is outside [0, 5)."),
        ([[1, -1], [3]], None, "Feature x of table t: id -1 is outside [0, 5)."),
        ([[1], [2]], [[1], [np.inf]], "Feature x of table t: weight inf is not finite."),
        ([[1], [2]], [[1], [np.nan]], "Feature x of table t: weight nan is not finite."),
        ([[1], [2]], [[], [1, 2]], "its weights have other indices than its ids."),
    ],
)
def test_a_bad_batch_stops_the_step_before_anything_is_written(ids, weights, message):
    batch = {"x": harness.sparse(ids) if isinstance(ids, list) else ids}
    if weights:
        batch["w"] = harness.sparse(weights, np.float32)
    feature = {"weight_key": "w"} if weights else None
    spec = one_table(ee.AdagradParameters(0.1), 5, 2, "mean", feature)
    for native in (False, True):
        with pytest.raises(tf.errors.InvalidArgumentError) as error:
            host_engine.train(spec, [(batch, {"x": np.ones([2, 2])})], native=native)
        assert message in str(error.value)


def test_a_tensor_read_before_an_update_keeps_its_values(native):
    """A read of the whole table shares the table's memory until a sparse write."""
    with tf.Graph().as_default():
        variable = tf.compat.v1.get_variable("t", initializer=tf.ones([4, 8]), use_resource=True)
        before = variable.read_value()
        with tf.control_dependencies([before]):
            features = host_engine.fields_of_features(1, tf.constant([1, 1], tf.int64))
            *_, update = host_engine.looked_up_and_descended(native, [variable], features)
        with tf.control_dependencies([update]):
            kept, after = tf.identity(before), variable.read_value()
        with tf.compat.v1.Session() as session:
            session.run(variable.initializer)
            kept, after = session.run([kept, after])
    np.testing.assert_array_equal(kept, np.ones([4, 8]))
    np.testing.assert_array_equal(after[:, 0], [1, -1, 1, 1])
