import harness
import numpy as np
import pytest
import tensorflow as tf
import tpu_simulated
import estimator_emb as ee


def test_first(tmp_path, monkeypatch):
    rng = np.random.default_rng(7)
    data = [({"x": rng.integers(0, 5, [4])}, {"x": rng.normal(size=[4, 2]).astype(np.float32)}) for _ in range(6)]
    table = rng.normal(size=[5, 2]).astype(np.float32)
    spec = ee.EmbeddingConfigSpec(
        feature_to_config_dict={"x": ee.FeatureConfig("t")},
        table_to_config_dict={"t": ee.TableConfig(5, 2, initializer=harness.initializer(table))},
        optimization_parameters=ee.AdagradParameters(0.3),
    )
    model_fn = harness.gradient_model_fn(["x"])
    config = ee.RunConfig(model_dir=str(tmp_path / "tpu"), save_checkpoints_steps=3, tpu_config=ee.TPUConfig(3, tables="host"))
    made = ee.TPUEstimator(model_fn, config=config, use_tpu=True, train_batch_size=4, eval_batch_size=4, predict_batch_size=4, embedding_config_spec=spec)
    with tpu_simulated.running(1, monkeypatch):
        made.train(harness.input_fn_of(data), max_steps=6)
    got = harness.saved(tmp_path / "tpu", 6)
    on_host = harness.estimator(model_fn, spec, tmp_path / "host", 4, device="host")
    on_host.train(harness.input_fn_of(data), max_steps=6)
    expected = harness.saved(tmp_path / "host", 6)
    assert set(got) == set(expected)
    for name in expected:
        np.testing.assert_allclose(got[name], expected[name], rtol=1e-6, atol=1e-6)
