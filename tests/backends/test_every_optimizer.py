# SPDX-License-Identifier: Apache-2.0
"""Every optimizer class trains a feature column's table, for two steps, against NumPy."""

import harness
import numpy as np
import pytest

import estimator_emb as ee
import feature_columns as fc
from estimator_emb import embedding, optimizers

OBJECTS = [
    ee.StochasticGradientDescentParameters(0.1),
    ee.AdagradParameters(0.1, 0.2),
    ee.AdagradMomentumParameters(0.1, 0.9, use_nesterov=True, exponent=3, beta2=0.9, epsilon=0.1),
    ee.AdamParameters(0.1, epsilon=0.01, sum_inside_sqrt=False),
    ee.FtrlParameters(0.1, l1_regularization_strength=0.01, beta=0.5),
    ee.MomentumParameters(0.1, 0.9, use_nesterov=True),
    ee.RMSPropParameters(0.1, 0.9, 0.8, 0.001),
    ee.CenteredRMSPropParameters(0.1, 0.9, 0.8, 0.001),
    ee.AdadeltaParameters(0.5, 0.95, 1e-3),
    ee.ProximalAdagradParameters(0.1, 0.2, 0.01, 0.02),
    ee.ProximalYogiParameters(0.1, l1_regularization_strength=0.01),
    ee.FrequencyEstimatorParameters(0.1, 50.0, 3.0, 1.0),
    embedding.SGD(0.1, clipvalue=(None, 0.5)),
    embedding.Adagrad(0.1, weight_decay_factor=0.1),
    embedding.AdagradMomentum(0.1, momentum=0.9),
    embedding.Adam(0.1, clip_weight_max=0.5),
    embedding.FTRL(0.1, l2_regularization_strength=0.1),
]


def test_there_is_one_of_each_class():
    classes = (*optimizers.PARAMETERS, *optimizers.TF2_OPTIMIZERS)
    assert {type(one) for one in OBJECTS} == set(classes)


@pytest.mark.parametrize("parameters", OBJECTS, ids=lambda one: type(one).__name__)
def test_trains_a_column(parameters, tmp_path):
    dimension = parameters.required_dimension or 2
    rng = np.random.default_rng(0)
    start = rng.normal(size=[5, dimension]).astype(np.float32)
    column = fc.embedding_column(
        fc.categorical_column_with_identity("x", 5),
        dimension,
        combiner="sum",
        initializer=harness.initializer(start),
    )
    spec = ee.EmbeddingConfigSpec(feature_columns=[column], optimization_parameters=parameters)
    batches = [
        ({"x": np.array(ids)}, {"x": rng.normal(size=[3, dimension]).astype(np.float32)})
        for ids in ([1, 4, 1], [4, 0, 1])
    ]
    estimator = harness.estimator(harness.gradient_model_fn(["x"]), spec, tmp_path, batch_size=3)
    estimator.train(harness.input_fn_of(batches), steps=2)

    w = start.copy()
    slots = [np.full_like(w, parameters.initial_value(slot)) for slot in parameters.slots]
    for features, gradients in batches:
        rows = np.unique(features["x"])
        g = np.zeros_like(w)
        np.add.at(g, features["x"], gradients["x"])
        w[rows], *after = optimizers.step(
            parameters,
            optimizers.NUMPY,
            np.float32(parameters.learning_rate),
            g[rows],
            w[rows],
            tuple(slot[rows] for slot in slots),
        )
        for slot, values in zip(slots, after, strict=True):
            slot[rows] = values
    got = harness.saved(tmp_path, 2)
    name = "x_embedding/embedding_weights"
    assert not np.allclose(w, start)
    np.testing.assert_allclose(got[name], w, atol=1e-5)
    for slot, values in zip(parameters.slots, slots, strict=True):
        np.testing.assert_allclose(got[name + slot.suffix], values, atol=1e-5)
