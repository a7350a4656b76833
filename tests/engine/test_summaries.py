"""Summaries of tables for TensorBoard: each figure equals NumPy's for the batch."""

import functools

import harness
import numpy as np
import pytest
import reference
import servers
import tensorflow as tf

import estimator_emb as ee
import feature_columns as fc
from estimator_emb.engine.ordering import structure
from estimator_emb.legacy import input_checkpoint
from estimator_emb.spec import options

v1 = tf.compat.v1
STEPS, BATCH, DIMENSION, LIMIT = 3, 4, 2, 0.9
RATES = {"shared": 0.25, "sequences": 0.5}
COMBINERS = {"shared": "mean", "single": "sum", "sequences": "sum"}
SIZES = {"shared": 9, "single": 5, "sequences": 7}
FEATURES = {
    "sparse": ee.FeatureConfig("shared", weight_key="weights"),
    "matrix": ee.FeatureConfig("shared"),
    "single": ee.FeatureConfig("single"),
    "ragged": ee.FeatureConfig("sequences", max_sequence_length=2),
}
OPTIMIZERS = {
    "shared": {"clip_gradient_min": -0.5},
    "single": {"lazy_adam": False},
    "sequences": {"clip_gradient_max": 0.7},
}


def spec_of(accumulated=True, pipelined=False, limit=LIMIT):
    def rate(step):
        return 0.1 / tf.cast(step + 1, tf.float32)

    def table(name):
        values = harness.normal(5, SIZES[name], DIMENSION)
        optimizer = ee.AdamParameters if name == "single" else ee.AdagradParameters
        more = OPTIMIZERS[name] if accumulated and (limit or name == "single") else {}
        return ee.TableConfig(
            SIZES[name],
            DIMENSION,
            harness.initializer(values),
            COMBINERS[name],
            learning_rate_fn=rate if name == "single" else None,
            learning_rate=RATES.get(name),
            optimization_parameters=optimizer(0.1, use_gradient_accumulation=accumulated, **more),
        )

    return ee.EmbeddingConfigSpec(
        clipping_limit=limit,
        pipeline_execution_with_tensor_core=pipelined,
        feature_to_config_dict=FEATURES,
        table_to_config_dict={name: table(name) for name in SIZES},
    )


def made_batch(step, dropping):
    """Returns a batch's lists of ids, its weights, and the gradients of its activations."""
    rng = np.random.default_rng(100 + step)

    def ids(table, counts):
        return [rng.integers(0, SIZES[table], count).tolist() for count in counts]

    lists = {
        "sparse": ids("shared", [3, 0, 1, 4]),
        "matrix": ids("shared", [2, 2, 0, 1]),
        "single": ids("single", [1, 1, 1, 1]),
        "ragged": ids("sequences", [1, 3, 0, 2]),
    }
    if dropping:
        lists["sparse"][0][1], lists["matrix"][3][0], lists["ragged"][1][2] = 9, 50, -3
    weights = [rng.uniform(0.5, 2, len(of)).astype(np.float32).tolist() for of in lists["sparse"]]
    return lists, weights, harness.random_gradients(rng, spec_of(), BATCH)


def as_features(lists, weights):
    return {
        "sparse": harness.sparse(lists["sparse"]),
        "weights": harness.sparse(weights, np.float32),
        "matrix": harness.matrix(lists["matrix"], 3, np.int32),
        "single": np.array(lists["single"], np.int64),
        "ragged": harness.sparse(lists["ragged"]),
    }


def expected(step, table, saved, cores, accumulated, limited, dropping):
    """Computes the figures of a table at a step from the batch and the step's checkpoint."""
    lists, weights, gradients = made_batch(step, dropping)
    of_features, size = [], SIZES[table]
    dropped = 0
    for key, feature in FEATURES.items():
        if feature.table_id != table:
            continue
        good = [[0 <= one < size for one in ids] for ids in lists[key]]
        dropped += sum(not one for of_sample in good for one in of_sample)
        if key == "ragged":
            pairs = reference.of_positions(lists[key], gradients[key])
        else:
            given = weights if key == "sparse" else harness.ones(lists[key])
            # A bad id has no weight in a mean.
            given = [
                np.multiply(*of_sample).tolist() for of_sample in zip(given, good, strict=True)
            ]
            pairs = reference.of_samples(lists[key], given, gradients[key], COMBINERS[table])
        of_features.append([[one for one in sample if 0 <= one[0] < size] for sample in pairs])
    updates = reference.updates_of(of_features, 1 if accumulated else cores)
    rows = sorted({row for row, _ in updates})
    found = np.array([gradient for _, gradient in updates])
    variable = next(saved[name] for name in saved if name.endswith(table))
    figures = {
        "learning_rate": RATES.get(table, 0.1 / step),
        "ids": sum(len(of_sample) for pairs in of_features for of_sample in pairs),
        "distinct_ids": len(rows),
        "rows_updated": size if accumulated and table == "single" else len(rows),
        "row_norm": np.linalg.norm(variable[rows], axis=1).mean(),
        "gradient_norm": np.linalg.norm(found, axis=1).mean(),
    }
    if limited:
        low = -0.5 if accumulated and table == "shared" else -LIMIT
        high = 0.7 if accumulated and table == "sequences" else LIMIT
        figures["share_clipped"] = ((found < low) | (found > high)).mean()
    if dropping:
        figures["dropped_ids"] = dropped
    return {f"embedding/{table}/{name}": value for name, value in figures.items()}


def make(model_dir, spec, cores=None, summaries=True, dropping=False, config=ee.RunConfig):
    bad_ids = "drop" if dropping else "error"
    tpu = ee.TPUConfig(
        1, num_shards=cores, device="host", bad_ids=bad_ids, table_summaries=summaries
    )
    run = {**harness.EACH_STEP, "save_summary_steps": 2, "tpu_config": tpu}
    gradient = harness.gradient_model_fn(FEATURES)

    def model_fn(features, labels, mode, params):
        with tf.name_scope("embedding"), tf.name_scope("single"):
            tf.constant(1, name="ids")  # It has the name of a figure.
        return gradient(features, labels, mode, params)

    made = config(model_dir=str(model_dir), **run)
    return harness.configured(model_fn, spec, made, BATCH, use_tpu=cores is not None)


def trained(model_dir, spec, input_fn, cores=None, summaries=True, steps=STEPS, **kwargs):
    hooks = [CheckNoSummaryOpsInOtherSteps()] if summaries else None
    make(model_dir, spec, cores, summaries, **kwargs).train(input_fn, hooks, max_steps=steps)


class CheckNoSummaryOpsInOtherSteps(v1.train.SessionRunHook):
    """Asserts that a step without summaries runs no summary ops."""

    def before_run(self, run_context):
        self._fetched = run_context.original_args.fetches

    def after_run(self, run_context, run_values):
        needed = structure.leading_to([getattr(one, "op", one) for one in self._fetched], {})
        kinds = {op.type for op in needed if op.name.startswith("embedding_summaries")}
        # Pipelined steps keep the batch for the next step.
        assert kinds <= {"Stage", "Unstage"}, kinds
        assert any(op.name.startswith("embedding_update/") for op in needed)


def inputs(dropping=False, steps=STEPS):
    batches = [made_batch(step, dropping) for step in range(1, steps + 1)]

    def with_ragged(features, labels):
        return features | {"ragged": tf.RaggedTensor.from_sparse(features["ragged"])}, labels

    def input_fn(params):
        given = [(as_features(lists, weights), labels) for lists, weights, labels in batches]
        return harness.dataset(given).map(with_ragged)

    return input_fn


ON_SERVERS = functools.partial(servers.config_of, "servers")
WAYS = {
    "host": {},
    "without limits": {"limited": False},
    "emulated": {"cores": 1},
    "two cores": {"cores": 2},
    "two cores, not accumulated": {"cores": 2, "accumulated": False},
    "pipelined": {"pipelined": True},
    "pipelined on a core": {"pipelined": True, "cores": 1},
    "bad ids": {"dropping": True},
    "bad ids, pipelined": {"dropping": True, "pipelined": True},
    "servers": {"config": ON_SERVERS},
    "servers, pipelined": {"config": ON_SERVERS, "pipelined": True},
}


def check_figures_equal_numpy(
    directory,
    cores=None,
    accumulated=True,
    limited=True,
    dropping=False,
    pipelined=False,
    config=ee.RunConfig,
):
    """Compares trainings with table summaries (`on`) and without (`off`)."""
    spec = spec_of(accumulated, pipelined, LIMIT if limited else None)
    for name in ("on", "off"):
        given = inputs(dropping), cores, name == "on"
        trained(directory / name, spec, *given, dropping=dropping, config=config)
    events = {name: harness.summaries(directory / name) for name in ("on", "off")}
    assert sorted(events["on"]) == sorted(events["off"]) == [1, 3]
    for step, values in events["on"].items():
        saved = harness.saved(directory / "on", step)
        figures = {}
        for table in SIZES:
            figures |= expected(step, table, saved, cores or 1, accumulated, limited, dropping)
        # All other summaries are the same as without the tables' figures.
        ours = {tag: value for tag, value in values.items() if tag.startswith("embedding/")}
        assert {tag: values[tag] for tag in values if tag not in ours} == events["off"][step]
        harness.assert_same(ours, figures, 1e-5, 0.0)
        np.testing.assert_equal(saved, harness.saved(directory / "off", step))


@pytest.fixture(params=["1", "0"], ids=["native", "ops"])
def kernels(request, monkeypatch):
    monkeypatch.setenv("ESTIMATOR_EMB_NATIVE", request.param)


with_each = pytest.mark.usefixtures("kernels")


@pytest.mark.slow
@pytest.mark.sampled(9)
@pytest.mark.parametrize("way", WAYS)
@with_each
def test_each_figure_equals_numpy(way, tmp_path):
    check_figures_equal_numpy(tmp_path, **WAYS[way])


@pytest.mark.slow
def test_unknown_words_are_not_counted(tmp_path):
    words = fc.categorical_column_with_vocabulary_list("words", ["a", "b", "c", "d"])
    column = fc.embedding_column(words, DIMENSION, combiner="sum")

    def model_fn(features, labels, mode, params):
        return harness.minimized(mode, tf.reduce_sum(fc.DenseFeatures([column])(features)))

    given = {"words": np.array([["a", "zzz", "b"], ["a", "", ""]])}
    spec = ee.EmbeddingConfigSpec([column], ee.StochasticGradientDescentParameters(0.5))
    tpu = {"table_summaries": True}
    estimator = harness.estimator(model_fn, spec, tmp_path, 2, run={}, tpu=tpu)
    estimator.train(harness.input_fn_of([(given, np.zeros(2))]), max_steps=1)
    values = harness.summaries(tmp_path)[1]
    figures = {"ids": 3, "distinct_ids": 2, "rows_updated": 2, "gradient_norm": 1.5 * np.sqrt(2)}
    for name, value in figures.items():  # Gradients are [2, 2] of row a, in 2 samples, [1, 1] of b.
        np.testing.assert_allclose(values[f"embedding/tbl_words/{name}"], value, 1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("pipelined", [False, True])
@with_each
def test_bad_input_fails_before_the_figures(pipelined, tmp_path):
    """The error comes before the figures' ops read the batch: they could fail in other ways."""
    lists, weights, gradients = made_batch(1, dropping=False)
    features = as_features(lists, weights)
    features["ragged"] = features["ragged"]._replace(dense_shape=np.array([-4, 3]))
    batches = harness.input_fn_of([(features, gradients)] * 2)
    said = r"the dense shape \[-4 3\] of its ids"
    with pytest.raises(tf.errors.InvalidArgumentError, match=said):
        trained(tmp_path, spec_of(pipelined=pipelined), batches)


@pytest.mark.slow
@with_each
def test_a_pipelined_training_resumes_with_its_figures(tmp_path):
    def train(model_dir, steps, summaries=True):
        estimator = make(model_dir, spec_of(pipelined=True), summaries=summaries)
        hook = input_checkpoint.CheckpointInputPipelineHook(estimator)
        estimator.train(inputs(), hooks=[hook], max_steps=steps)

    train(tmp_path / "one", STEPS)
    train(tmp_path / "two", 2)
    other = "by other features or settings (bad_ids, table_summaries, parameter servers,"
    assert other in harness.refusal(ValueError, train, tmp_path / "two", STEPS, summaries=False)
    train(tmp_path / "two", STEPS)
    one, two = (harness.summaries(tmp_path / name) for name in ("one", "two"))
    figures = {tag: value for tag, value in one[STEPS].items() if tag.startswith(("emb", "lo"))}
    assert len(figures) == 22 and figures.items() <= two[STEPS].items()  # 7 of 3 tables, the loss.


def asked(**kwargs):
    return options.asked_table_summaries(ee.RunConfig(tpu_config=ee.TPUConfig(**kwargs)))


def test_table_summaries_follow_the_option_and_the_environment(monkeypatch):
    monkeypatch.delenv("ESTIMATOR_EMB_TABLE_SUMMARIES", raising=False)
    assert asked() is None
    monkeypatch.setenv("ESTIMATOR_EMB_TABLE_SUMMARIES", "1")
    assert asked() and asked(table_summaries=True) and not asked(table_summaries=False)
    changed = ee.TPUConfig(table_summaries=False)._replace(num_shards=2)  # Keeps our option.
    assert not options.asked_table_summaries(ee.RunConfig(tpu_config=changed))
    monkeypatch.setenv("ESTIMATOR_EMB_TABLE_SUMMARIES", "0")
    assert not asked() and asked(table_summaries=True)
    monkeypatch.setenv("ESTIMATOR_EMB_TABLE_SUMMARIES", "yes")  # Refused even without summaries.
    with pytest.raises(ValueError, match="must be '0' or '1'; got 'yes'"):
        options.table_summaries_on_host(ee.RunConfig(save_summary_steps=0))
    message = harness.refusal(ValueError, ee.TPUConfig, table_summaries="on")
    assert message == "TPUConfig: table_summaries must be True or False; got 'on'."


@pytest.mark.parametrize("every, wanted", [(None, False), (0, False), (99, False), (100, True)])
def test_table_summaries_are_on_by_default_if_rare(every, wanted, monkeypatch):
    monkeypatch.delenv("ESTIMATOR_EMB_TABLE_SUMMARIES", raising=False)
    assert options.table_summaries_on_host(ee.RunConfig(save_summary_steps=every)) is wanted
    chosen = ee.TPUConfig(table_summaries=not wanted)
    chosen = ee.RunConfig(save_summary_steps=every, tpu_config=chosen)
    assert options.table_summaries_on_host(chosen) is bool(every and not wanted)


@pytest.mark.fast(1)
@pytest.mark.parametrize("cores, variable", [(1, None), (None, None), (None, "0")])
def test_table_summaries_are_written_by_default(cores, variable, tmp_path, monkeypatch):
    monkeypatch.delenv("ESTIMATOR_EMB_TABLE_SUMMARIES", raising=False)
    if variable:
        monkeypatch.setenv("ESTIMATOR_EMB_TABLE_SUMMARIES", variable)

    def config(save_summary_steps, **kwargs):
        assert save_summary_steps < 100
        return ee.RunConfig(save_summary_steps=100, **kwargs)  # So rare that they are on.

    batch = inputs(steps=1)
    trained(tmp_path, spec_of(limit=None), batch, cores, summaries=None, steps=1, config=config)
    tags = {tag for tag in harness.summaries(tmp_path)[1] if tag.startswith("embedding/")}
    figures = "learning_rate", "ids", "distinct_ids", "rows_updated", "row_norm", "gradient_norm"
    wanted = {f"embedding/{table}/{figure}" for table in SIZES for figure in figures}
    assert tags == (set() if variable else wanted)
