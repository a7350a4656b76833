# SPDX-License-Identifier: Apache-2.0
"""Tables on parameter servers: every update counts, and the arithmetic is one process's."""

import math

import harness
import numpy as np
import pytest
import servers
import tensorflow as tf

import estimator_emb as ee

BETA = 0.999
OPTIMIZERS = {
    "sgd": ee.StochasticGradientDescentParameters(1.0),
    "adagrad": ee.AdagradParameters(1e-3, initial_accumulator=1.0),
    "adam": ee.AdamParameters(1e-3, beta1=0.5, beta2=BETA),
    "ftrl": ee.FtrlParameters(1e-3, initial_accumulator_value=1.0),
}


def counts(saved):
    """How often each row of each table was updated with gradient 1, by what it holds."""
    return {
        "sgd": -saved["sgd"],
        "adagrad": saved["adagrad/Adagrad"] - 1,
        "adam": np.log1p(-saved["adam/Adam/v"].astype(np.float64)) / math.log(BETA),
        "ftrl": saved["ftrl/Ftrl"] - 1,
    }


@pytest.fixture(params=["0", None], ids=["tensorflow", "native"])
def native(request, monkeypatch):
    if request.param:
        monkeypatch.setenv("ESTIMATOR_EMB_NATIVE", request.param)
    return request.param is None


def test_no_update_of_three_trainers_is_lost(native, tmp_path):
    cluster = servers.Cluster(workers=2, servers=2)
    rows, dimension, ids = 5, 2, np.array([0, 3])
    spec = ee.EmbeddingConfigSpec(
        feature_to_config_dict={name: ee.FeatureConfig(name) for name in OPTIMIZERS},
        table_to_config_dict={
            name: ee.TableConfig(
                rows,
                dimension,
                initializer=tf.zeros_initializer(),
                optimization_parameters=optimizer,
            )
            for name, optimizer in OPTIMIZERS.items()
        },
    )
    ones = np.ones([len(ids), dimension], np.float32)
    batch = ({name: ids for name in OPTIMIZERS}, {name: ones for name in OPTIMIZERS})

    def make(job, index):
        config = cluster.config(
            job,
            index,
            model_dir=str(tmp_path),
            save_summary_steps=None,
            log_step_count_steps=None,
            save_checkpoints_steps=100_000,
        )
        estimator = ee.TPUEstimator(
            harness.gradient_model_fn(OPTIMIZERS),
            config=config,
            use_tpu=False,
            train_batch_size=len(ids),
            embedding_config_spec=spec,
        )
        return estimator, lambda params: harness.dataset([batch]).repeat()

    cluster.train(make, max_steps=600)
    path = tf.train.latest_checkpoint(str(tmp_path))
    steps = int(path.rpartition("-")[2])
    assert steps >= 600
    for name, of_table in counts(harness.saved(tmp_path, steps)).items():
        want = np.zeros([rows, dimension])
        want[ids] = steps
        np.testing.assert_allclose(of_table, want, atol=0.3, err_msg=name)
