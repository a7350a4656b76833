# SPDX-License-Identifier: Apache-2.0
"""What the host engine does around the optimizers, against closed-form numbers."""

import logging

import harness
import numpy as np
import pytest
import tensorflow as tf

import estimator_emb as ee
import feature_columns as fc
from estimator_emb import optimizers

START = np.array([[1.0, -2.0], [0.5, 0.25], [-1.5, 3.0], [2.0, 0.75]], np.float32)


def spec_of(tables=None, features=None, parameters=None, **kwargs):
    tables = tables or {"t": {}}
    return ee.EmbeddingConfigSpec(
        feature_to_config_dict=features or {"x": ee.FeatureConfig("t")},
        table_to_config_dict={
            name: ee.TableConfig(
                4,
                2,
                **{"initializer": harness.initializer(START), "combiner": "sum", **arguments},
            )
            for name, arguments in tables.items()
        },
        optimization_parameters=parameters or ee.StochasticGradientDescentParameters(0.5),
        **kwargs,
    )


def train(spec, model_dir, data, keys=("x",), steps=None, **kwargs):
    """Trains on (ids, activation gradients) pairs by key; returns the last checkpoint."""
    batches = [
        (
            {key: np.array(ids[key]) for key in keys},
            {key: np.array(gradients[key], np.float32) for key in keys},
        )
        for ids, gradients in data
    ]
    batch = len(batches[0][0][keys[0]])
    estimator = harness.estimator(
        harness.gradient_model_fn(keys), spec, model_dir, batch_size=batch, **kwargs
    )
    estimator.train(harness.input_fn_of(batches), steps=steps or len(data))
    return harness.saved(model_dir, len(data))


ONE = [({"x": [1, 3, 1]}, {"x": [[1, 2], [-3, 0.1], [0.5, 4]]})]


def test_clipping_limit_clips_the_sum_of_a_row(tmp_path):
    got = train(spec_of(clipping_limit=1.2), tmp_path, ONE)["t"]
    # Sums: row 1 (1.5, 6), row 3 (-3, 0.1).
    want = START.copy()
    want[1] -= 0.5 * np.array([1.2, 1.2])
    want[3] -= 0.5 * np.array([-1.2, 0.1])
    np.testing.assert_allclose(got, want, rtol=1e-6)


def test_gradient_multiplier_comes_before_clipping(tmp_path):
    def multiplier(step):
        return tf.cast(step + 1, tf.float32) * 0.1

    spec = spec_of(clipping_limit=0.5, experimental_gradient_multiplier_fn=multiplier)
    got = train(spec, tmp_path, ONE * 2)["t"]
    want = START.copy()
    for factor in (0.1, 0.2):
        want[1] -= 0.5 * np.clip(np.array([1.5, 6.0]) * factor, -0.5, 0.5)
        want[3] -= 0.5 * np.clip(np.array([-3.0, 0.1]) * factor, -0.5, 0.5)
    np.testing.assert_allclose(got, want, rtol=1e-6)


def test_learning_rate_of_each_table(tmp_path):
    calls = []

    def rate(step):
        calls.append(step)
        return 0.1 * tf.cast(step + 1, tf.float32)

    tables = {
        "a": {"learning_rate_fn": rate},
        "b": {"learning_rate_fn": rate},
        "c": {"learning_rate": 0.0},
        "d": {"learning_rate": 0.25},
        "e": {},
    }
    spec = spec_of(tables, {key: ee.FeatureConfig(key) for key in tables})
    data = [({key: [1] for key in tables}, {key: [[1, 1]] for key in tables})] * 2
    got = train(spec, tmp_path, data, keys=tuple(tables))
    moved = {key: (START[1, 0] - got[key][1, 0]) for key in tables}
    np.testing.assert_allclose(
        [moved[key] for key in "abcde"], [0.3, 0.3, 0.0, 0.5, 1.0], rtol=1e-6
    )
    assert len(calls) == 1  # Tables that share a function share its value.


def test_each_table_has_its_own_optimizer(tmp_path):
    tables = {
        "a": {"optimization_parameters": ee.AdagradParameters(0.5, initial_accumulator=0.75)},
        "b": {"optimization_parameters": ee.AdamParameters(0.5, beta1=0.5, beta2=0.75)},
        "c": {},
    }
    spec = spec_of(tables, {key: ee.FeatureConfig(key) for key in tables})
    data = [({key: [2] for key in tables}, {key: [[0.5, -0.5]] for key in tables})]
    got = train(spec, tmp_path, data, keys=tuple(tables))
    assert set(got) == {"global_step", "a", "a/Adagrad", "b", "b/Adam/m", "b/Adam/v", "c"}
    np.testing.assert_allclose(got["a"][2], START[2] - np.array([0.25, -0.25]), rtol=1e-6)
    np.testing.assert_allclose(got["a/Adagrad"][2], [1, 1])
    np.testing.assert_allclose(got["b/Adam/m"][2], [0.25, -0.25])
    np.testing.assert_allclose(got["b/Adam/v"][2], [0.0625, 0.0625])
    np.testing.assert_allclose(got["b"][2], START[2] - np.array([0.5, -0.5]), rtol=1e-6)
    np.testing.assert_allclose(got["c"][2], START[2] - np.array([0.25, -0.25]), rtol=1e-6)


def test_a_row_touched_with_gradient_zero_is_updated_and_others_are_not(tmp_path):
    parameters = ee.StochasticGradientDescentParameters(0.5, weight_decay_factor=0.5)
    data = [({"x": [2, 2]}, {"x": [[1, 1], [-1, -1]]})]
    got = train(spec_of(parameters=parameters), tmp_path, data)
    want = START.copy()
    want[2] *= 0.5
    np.testing.assert_array_equal(got["t"], want)


def test_adam_that_is_not_lazy_moves_every_row(tmp_path):
    parameters = ee.AdamParameters(0.5, beta1=0.5, beta2=0.75, epsilon=0.1, lazy_adam=False)
    data = [({"x": [0, 3]}, {"x": [[1, 2], [3, 4]]}), ({"x": [1, 3]}, {"x": [[-1, 1], [2, 2]]})]
    got = train(spec_of(parameters=parameters), tmp_path, data)
    w, m, v = START.astype(np.float64), np.zeros([4, 2]), np.zeros([4, 2])
    for ids, gradients in data:
        g = np.zeros([4, 2])
        np.add.at(g, ids["x"], gradients["x"])
        m = 0.5 * m + 0.5 * g
        v = 0.75 * v + 0.25 * g * g
        w -= 0.5 * m / np.sqrt(v + 0.01)
    np.testing.assert_allclose(got["t"], w, rtol=1e-5)
    np.testing.assert_allclose(got["t/Adam/m"], m, rtol=1e-6)
    np.testing.assert_allclose(got["t/Adam/v"], v, rtol=1e-6)


def test_without_accumulation_cores_take_turns(tmp_path):
    """Four cores, rows seen by one, two and three of them, by hand in the documented order."""
    parameters = ee.AdagradParameters(0.5, 0.25, use_gradient_accumulation=False)
    ids = [1, 3, 1, 2, 2, 1, 3, 0]  # two samples to a core
    gradients = np.array([[1, -1], [2, 0.5], [3, 2], [1, 1], [-2, 1], [0.5, 4], [1, 3], [5, 6]])
    got = train(
        spec_of(parameters=parameters),
        tmp_path,
        [({"x": ids}, {"x": gradients})],
        device="host",
        num_shards=4,
    )
    w, a = START.astype(np.float64), np.full([4, 2], 0.25)
    for row, cores in {0: [3], 1: [1, 0, 2], 2: [2, 1], 3: [3, 0]}.items():
        for core in cores:
            mine = [g for i, g in enumerate(gradients) if ids[i] == row and i // 2 == core]
            assert mine
            g = np.sum(mine, axis=0)
            a[row] += g * g
            w[row] -= 0.5 * g / np.sqrt(a[row])
    np.testing.assert_allclose(got["t"], w, rtol=1e-5)
    np.testing.assert_allclose(got["t/Adagrad"], a, rtol=1e-6)


def gradients_by(train_op_of, tmp_path, dense=False):
    """Trains one SGD step of rate 1 with a custom train_op; returns the change of rows 1 and 3."""

    def model_fn(features, labels, mode, params):
        output = features["x"]
        if dense:
            scale = tf.compat.v1.get_variable("scale", [2], initializer=tf.ones_initializer())
            output = output * scale
        loss = tf.reduce_sum(output * labels["x"])
        return ee.TPUEstimatorSpec(mode, loss=loss, train_op=train_op_of(loss))

    spec = spec_of(parameters=ee.StochasticGradientDescentParameters(1.0))
    estimator = harness.estimator(model_fn, spec, tmp_path, batch_size=3)
    batch = ({"x": np.array(ONE[0][0]["x"])}, {"x": np.array(ONE[0][1]["x"], np.float32)})
    estimator.train(harness.input_fn_of([batch]), steps=1)
    change = START - harness.saved(tmp_path, 1)["t"]
    return change[[1, 3]]


SUMS = np.array([[1.5, 6.0], [-3.0, 0.1]])


def test_gradient_of_a_scaled_loss(tmp_path):
    def train_op_of(loss):
        optimizer = tf.compat.v1.train.GradientDescentOptimizer(0.0)
        return optimizer.minimize(3.0 * loss, tf.compat.v1.train.get_global_step())

    np.testing.assert_allclose(gradients_by(train_op_of, tmp_path), 3 * SUMS, rtol=1e-5)


def test_clipping_between_compute_and_apply_leaves_the_tables_alone(tmp_path):
    def train_op_of(loss):
        optimizer = tf.compat.v1.train.AdamOptimizer(0.01)
        gradients, variables = zip(*optimizer.compute_gradients(loss), strict=True)
        clipped, _ = tf.clip_by_global_norm(gradients, 0.001)
        return optimizer.apply_gradients(
            zip(clipped, variables, strict=True), tf.compat.v1.train.get_global_step()
        )

    got = gradients_by(train_op_of, tmp_path, dense=True)
    np.testing.assert_allclose(got, SUMS, rtol=1e-5)
    # The optimizer's slots for the variable that carries the gradient are not saved.
    names = set(harness.saved(tmp_path, 1))
    assert names == {
        "t",
        "global_step",
        "scale",
        "scale/Adam",
        "scale/Adam_1",
        "beta1_power",
        "beta2_power",
    }


def test_gradient_by_tf_gradients_over_trainable_variables(tmp_path):
    def train_op_of(loss):
        variables = tf.compat.v1.trainable_variables()
        gradients = tf.gradients(loss, variables)
        return tf.compat.v1.train.GradientDescentOptimizer(0.1).apply_gradients(
            zip(gradients, variables, strict=True), tf.compat.v1.train.get_global_step()
        )

    got = gradients_by(train_op_of, tmp_path, dense=True)
    np.testing.assert_allclose(got, SUMS, rtol=1e-5)


@pytest.mark.parametrize("rewrite", [False, True])
def test_an_optimizer_that_scales_the_loss_is_refused(rewrite, tmp_path):
    """The table would take the gradient of the scaled loss."""
    mixed = tf.compat.v1.mixed_precision

    def train_op_of(loss):
        optimizer = tf.compat.v1.train.GradientDescentOptimizer(0.0)
        if rewrite:
            optimizer = mixed.enable_mixed_precision_graph_rewrite(optimizer, 128.0)
        else:
            scale = mixed.FixedLossScale(128.0)
            optimizer = mixed.MixedPrecisionLossScaleOptimizer(optimizer, scale)
        return optimizer.minimize(loss, tf.compat.v1.train.get_global_step())

    try:
        with pytest.raises(ValueError) as error:
            gradients_by(train_op_of, tmp_path)
    finally:
        mixed.disable_mixed_precision_graph_rewrite()
    assert str(error.value) == (
        "MixedPrecisionLossScaleOptimizer scales the loss, and embedding tables would train by the "
        "scaled one. Give the optimizer that it wraps, without "
        "enable_mixed_precision_graph_rewrite: compute in bfloat16, which needs no scale, or in "
        "float32."
    )


def test_without_tables_it_may_scale_the_loss(tmp_path):
    def model_fn(features, labels, mode, params):
        weight = tf.compat.v1.get_variable("weight", [], initializer=tf.ones_initializer())
        optimizer = tf.compat.v1.mixed_precision.MixedPrecisionLossScaleOptimizer(
            tf.compat.v1.train.GradientDescentOptimizer(1.0),
            tf.compat.v1.mixed_precision.FixedLossScale(128.0),
        )
        loss = weight * tf.reduce_sum(features["x"])
        train_op = optimizer.minimize(loss, tf.compat.v1.train.get_global_step())
        return ee.TPUEstimatorSpec(mode, loss=loss, train_op=train_op)

    estimator = harness.estimator(model_fn, None, tmp_path, batch_size=2)
    batch = ({"x": np.array([1.0, 2.0], np.float32)}, np.zeros(2))
    estimator.train(harness.input_fn_of([batch]), steps=1)
    assert harness.saved(tmp_path, 1)["weight"] == -2.0


def two_losses(mode, features, labels, apply):
    """Trains by what `apply` makes of optimizers' calls on two losses over x."""
    scale = tf.compat.v1.get_variable("scale", [2], initializer=tf.ones_initializer())
    output = features["x"] * scale
    losses = tf.reduce_sum(output * labels["x"]), tf.reduce_sum(output * 10.0)
    return ee.TPUEstimatorSpec(mode, loss=losses[0], train_op=apply(*losses))


def trained_by(apply, tmp_path, cores=None):
    where = {} if cores is None else {"device": "host", "num_shards": cores}

    def model_fn(features, labels, mode, params):
        return two_losses(mode, features, labels, apply)

    spec = spec_of(parameters=ee.StochasticGradientDescentParameters(1.0))
    estimator = harness.estimator(model_fn, spec, tmp_path, batch_size=4, **where)
    features, labels = np.array([1, 3, 1, 3]), np.array([[1.0, 2], [3, 4], [5, 6], [7, 8]])
    batch = ({"x": features}, {"x": labels.astype(np.float32)})
    estimator.train(harness.input_fn_of([batch]), steps=1)
    return (START - harness.saved(tmp_path, 1)["t"])[[1, 3]]


def an_optimizer():
    return tf.compat.v1.tpu.CrossShardOptimizer(
        tf.compat.v1.train.GradientDescentOptimizer(0.0), tf.compat.v1.losses.Reduction.SUM
    )


@pytest.mark.parametrize("cores", [None, 1, 2])
def test_two_optimizers_of_one_table_are_refused(cores, tmp_path):
    """Both would update it, with or without them; a TPU refuses it too."""

    def apply(first, second):
        step = tf.compat.v1.train.get_global_step()
        return tf.group(
            an_optimizer().minimize(first), an_optimizer().minimize(second, global_step=step)
        )

    assert harness.refusal(RuntimeError, trained_by, apply, tmp_path, cores) == (
        "Feature 'x': model_fn trains by 2 gradients of its activation in one step, from as many "
        "calls of minimize() or tf.gradients(), and a table is updated by one. Minimize the sum of "
        "the losses, or put tf.stop_gradient() around the activation in all losses but one."
    )


@pytest.mark.parametrize("cores", [None, 1, 2])
@pytest.mark.parametrize("last", [False, True])
def test_gradients_that_are_only_looked_at(last, cores, tmp_path):
    """Of another loss, before or after those that train."""

    def apply(first, second):
        def look():
            variables = tf.compat.v1.trainable_variables()
            return tf.linalg.global_norm(tf.gradients(second, variables))

        before = None if last else look()
        step = tf.compat.v1.train.get_global_step()
        done = an_optimizer().minimize(first, global_step=step)
        norm = look() if last else before
        with tf.control_dependencies([done]):
            return tf.group(tf.debugging.check_numerics(norm, "norm"))

    np.testing.assert_allclose(trained_by(apply, tmp_path, cores), [[6, 8], [10, 12]], rtol=1e-6)


def test_of_gradients_that_pass_the_helper_by_the_last_is_taken(tmp_path, caplog):
    def apply(first, second):
        optimizer = tf.compat.v1.train.GradientDescentOptimizer(0.0)
        tf.gradients(second, tf.compat.v1.trainable_variables())
        found = optimizer.compute_gradients(first)
        dense = [(gradient, one) for gradient, one in found if "dummy" not in one.name]
        return optimizer.apply_gradients(dense, tf.compat.v1.train.get_global_step())

    np.testing.assert_allclose(trained_by(apply, tmp_path), [[6, 8], [10, 12]], rtol=1e-6)
    assert (
        "Feature 'x': model_fn computes 2 gradients of its activation, and none leads to a "
        "variable named tpu_embedding_dummy_table_variable: the last one updates its table."
    ) in harness.said(caplog)


def test_a_feature_without_gradient_counts_as_zero(tmp_path, caplog):
    def train_op_of(loss):
        return tf.compat.v1.assign_add(tf.compat.v1.train.get_global_step(), 1)

    np.testing.assert_array_equal(gradients_by(train_op_of, tmp_path), np.zeros([2, 2]))
    assert "No gradient reaches features ['x'] of table t: zeros are used." in caplog.text


def test_cross_replica_sum_computes(tmp_path):
    def train_op_of(loss):
        total = tf.compat.v1.tpu.cross_replica_sum(2.0 * loss)
        return tf.compat.v1.train.GradientDescentOptimizer(0.0).minimize(
            total, tf.compat.v1.train.get_global_step()
        )

    np.testing.assert_allclose(gradients_by(train_op_of, tmp_path), 2 * SUMS, rtol=1e-5)


def test_a_bad_id_stops_before_any_update(tmp_path):
    spec = spec_of(
        {"good": {}, "bad": {}},
        {"x": ee.FeatureConfig("good"), "y": ee.FeatureConfig("bad")},
    )
    data = [
        ({"x": [1], "y": [1]}, {"x": [[1, 1]], "y": [[1, 1]]}),
        ({"x": [2], "y": [4]}, {"x": [[1, 1]], "y": [[1, 1]]}),
    ]
    with pytest.raises(tf.errors.InvalidArgumentError) as error:
        train(spec, tmp_path, data, keys=("x", "y"))
    assert (
        "[Feature y of table bad: id 4 is outside [0, 4). TPUConfig(bad_ids='drop') leaves such "
        "ids out and counts them.]"
    ) in error.value.message
    assert tf.train.latest_checkpoint(str(tmp_path)).endswith("-1")
    assert not list(tmp_path.glob("*-2*"))


def test_a_feature_that_the_model_never_uses(tmp_path, caplog):
    """It trains with zeros, as on a TPU; the walk is in `test_refusals.py`."""
    caplog.set_level(logging.WARNING, logger="estimator_emb")
    spec = spec_of({"t": {}, "u": {}}, {"x": ee.FeatureConfig("t"), "y": ee.FeatureConfig("u")})
    estimator = harness.estimator(harness.gradient_model_fn(["x"]), spec, tmp_path, batch_size=1)
    batch = ({"x": np.array([1]), "y": np.array([1])}, {"x": np.ones([1, 2], np.float32)})
    estimator.train(harness.input_fn_of([batch]), steps=1)
    assert (
        "No gradient reaches features ['y'] of table u: zeros are used. The loss may not depend on "
        "them, the optimizer was given a var_list without tpu_embedding_dummy_table_variable, or a "
        "tf.GradientTape was opened after they were computed: use minimize(), compute_gradients() "
        "or tf.gradients()."
    ) in harness.said(caplog)
    assert {"t", "u"} <= set(estimator.get_variable_names())


def test_a_table_without_optimizer(tmp_path):
    spec = ee.EmbeddingConfigSpec(
        feature_to_config_dict={"x": ee.FeatureConfig("t")},
        table_to_config_dict={"t": ee.TableConfig(4, 2)},
    )
    assert harness.refusal(ValueError, train, spec, tmp_path, ONE) == (
        "Table 't' has no optimizer: give it optimization_parameters in its TableConfig, or in the "
        "EmbeddingConfigSpec."
    )


def test_an_optimizer_that_needs_dimension_1(tmp_path):
    parameters = optimizers.FrequencyEstimatorParameters(0.1, 50.0, 3.0, 1.0)
    assert harness.refusal(ValueError, train, spec_of(parameters=parameters), tmp_path, ONE) == (
        "Table 't': FrequencyEstimatorParameters needs dimension 1; got 2."
    )


def test_a_column_read_straight_from_the_features(tmp_path):
    column = fc.embedding_column(
        fc.categorical_column_with_identity("x", 4), 2, initializer=harness.initializer(START)
    )
    spec = ee.EmbeddingConfigSpec(
        feature_columns=[column],
        optimization_parameters=ee.StochasticGradientDescentParameters(0.5),
    )
    got = train(spec, tmp_path, ONE)["x_embedding/embedding_weights"]
    np.testing.assert_allclose(got[[1, 3]], START[[1, 3]] - 0.5 * SUMS, rtol=1e-5)


def test_mod_trains_as_div_does(tmp_path):
    parameters = ee.AdagradParameters(0.5)
    div = train(spec_of(parameters=parameters), tmp_path / "div", ONE)
    mod = train(spec_of(parameters=parameters, partition_strategy="mod"), tmp_path / "mod", ONE)
    assert set(div) == set(mod)
    for name in div:
        np.testing.assert_array_equal(div[name], mod[name])


@pytest.mark.parametrize(
    "combiner, lazy, shards",
    [("sum", True, 1), (None, False, 1), ("sum", False, 3), (None, True, 2)],
)
def test_pipelining_delays_each_update_by_one_lookup(combiner, lazy, shards, in_shards, tmp_path):
    """Against NumPy, for a loss whose gradient depends on what the lookup saw."""
    in_shards(shards)
    batches = [[1, 3, 1], [0, 1, 3], [3, 3, 2], [1, 2, 0], [2, 1, 1]]
    scales = np.arange(1, 16, dtype=np.float32).reshape([5, 3]) / 8

    def rate(step):
        return 0.1 * tf.cast(step + 1, tf.float32)

    spec = spec_of(
        {"t": {"learning_rate_fn": rate, "combiner": combiner}},
        parameters=ee.AdamParameters(1.0, beta1=0.5, beta2=0.5, epsilon=0.5, lazy_adam=lazy),
        pipeline_execution_with_tensor_core=True,
    )
    losses = []

    def model_fn(features, labels, mode, params):
        loss = tf.reduce_sum(tf.square(features["x"]) * labels[:, None]) / 2
        return harness.minimized(mode, loss)

    class Loss(tf.compat.v1.train.SessionRunHook):
        def before_run(self, run_context):
            return tf.compat.v1.train.SessionRunArgs(run_context.original_args.fetches[1])

        def after_run(self, run_context, run_values):
            losses.append(run_values.results)

    config = ee.RunConfig(
        model_dir=str(tmp_path), save_checkpoints_steps=1, keep_checkpoint_max=None
    )
    estimator = harness.configured(model_fn, spec, config, 3, use_tpu=False)
    data = [({"x": np.array(ids)}, scale) for ids, scale in zip(batches, scales, strict=True)]
    estimator.train(harness.input_fn_of(data), steps=5, hooks=[Loss()])

    w, m, v = START.astype(np.float64), np.zeros([4, 2]), np.zeros([4, 2])
    looked_up = w[batches[0]]
    for number, (ids, scale) in enumerate(zip(batches, scales, strict=True), start=1):
        np.testing.assert_allclose(
            losses[number - 1], (looked_up**2 * scale[:, None]).sum() / 2, rtol=1e-5
        )
        g = np.zeros([4, 2])
        np.add.at(g, ids, looked_up * scale[:, None])
        if number < 5:
            looked_up = w[batches[number]]  # before this step's update
        rows = sorted(set(ids)) if lazy else slice(None)
        m[rows] = 0.5 * m[rows] + 0.5 * g[rows]
        v[rows] = 0.5 * v[rows] + 0.5 * g[rows] ** 2
        w[rows] -= 0.1 * number * m[rows] / np.sqrt(v[rows] + 0.25)
        got = harness.saved(tmp_path, number)
        assert set(got) == {"global_step", "t", "t/Adam/m", "t/Adam/v"}
        np.testing.assert_allclose(got["t"], w, rtol=1e-5)
        np.testing.assert_allclose(got["t/Adam/m"], m, rtol=1e-5)
        np.testing.assert_allclose(got["t/Adam/v"], v, rtol=1e-5)


@pytest.mark.parametrize("cores", [None, 8])
def test_pipelining_trains_with_each_batch_once(cores, tmp_path):
    """Also where the program's configuration names the cores of the TPU that it used to run on."""
    spec = spec_of({"t": {"combiner": "sum"}}, pipeline_execution_with_tensor_core=True)
    config = ee.RunConfig(
        model_dir=str(tmp_path), tpu_config=ee.TPUConfig(iterations_per_loop=1, num_shards=cores)
    )
    estimator = harness.configured(harness.gradient_model_fn(["x"]), spec, config, 3, use_tpu=False)
    batch = {"x": np.array([1, 3, 1])}, {"x": np.ones([3, 2], np.float32)}
    estimator.train(harness.input_fn_of([batch] * 3))
    assert estimator.get_variable_value("global_step") == 3


def test_a_field_made_bad_by_replace_is_caught_at_use(tmp_path):
    for name, value, message in (
        (
            "partition_strategy",
            "rows",
            "EmbeddingConfigSpec: partition_strategy must be 'div' or 'mod'; got 'rows'.",
        ),
        (
            "clipping_limit",
            -1.0,
            "EmbeddingConfigSpec: clipping_limit must be a positive number or None; got -1.0.",
        ),
        (
            "table_to_config_dict",
            {"t": ee.TableConfig(4, 2)._replace(dimension=-1)},
            "TableConfig: dimension must be an int >= 1; got -1.",
        ),
    ):
        spec = spec_of()._replace(**{name: value})
        with pytest.raises(ValueError) as error:
            harness.estimator(harness.gradient_model_fn(["x"]), spec, tmp_path)
        assert str(error.value) == message


def test_one_line_says_what_runs_where(tmp_path, caplog):
    caplog.set_level("INFO", logger="estimator_emb")
    train(spec_of(parameters=ee.AdamParameters(0.1)), tmp_path, ONE)
    messages = harness.said(caplog)
    tables, progress = (one for one in messages if "ative kernels" not in one)
    assert tables == (
        "Embedding tables train on the host: 1 tables, 4 rows, 8 parameters, 0.0 MB with slots "
        "(Adam x 1)."
    )
    assert progress.startswith("step 1 of 1, loss ")
