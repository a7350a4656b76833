# SPDX-License-Identifier: Apache-2.0
"""TPUEstimator on the host: train, evaluate, predict, export, with one set of tables."""

import functools

import harness
import numpy as np
import processes
import pytest
import tensorflow as tf
from columns_program import DIMENSION, VOCABULARY, batches, columns, make, model_fn_of

import estimator_emb as ee
import feature_columns as fc
from estimator_emb.step import tensor_core


def hidden_by_numpy(features, variables):
    """The model's hidden layer for one batch, from the tables of a checkpoint."""
    item = variables["dense_features/item_embedding/embedding_weights"]
    shared = variables["history_words_shared_embedding"]

    def rows(sparse):
        found = [[] for _ in range(sparse.dense_shape[0])]
        for (row, _), value in zip(sparse.indices, sparse.values, strict=True):
            found[row].append(shared[value])
        return found

    words = [
        sum(row) / np.sqrt(len(row)) if row else np.zeros(DIMENSION)
        for row in rows(features["words"])
    ]
    history = rows(features["history"])
    sequence = [sum(r[:2], np.zeros(DIMENSION)) for r in history]
    lengths = [[min(len(r), 2)] for r in history]
    # DenseFeatures sorts its columns by name: age, item_embedding, words_shared_embedding.
    return np.concatenate(
        [features["age"], item[features["item"]], words, sequence, lengths], axis=1
    )


PARAMETERS = ee.AdagradParameters(0.1, initial_accumulator=0.2)


class Names(tf.compat.v1.train.SessionRunHook):
    """Keeps the names of the variables of tables."""

    def after_create_session(self, session, coord):
        variables = tf.compat.v1.global_variables()
        self.names = {v.op.name for v in variables if "embedding" in v.name}


class Trained:
    """A training of six steps, which tests share: they leave its folder as it is.

    Attributes:
      folder: of the model.
      seen: the features and params of each call of model_fn.
      names: of the variables of tables in the graph.
    """

    def __init__(self, folder, device):
        self.folder, self.device, self.seen = folder, device, []
        hook = Names()
        estimator = self.estimator(seen=self.seen)
        estimator.train(harness.input_fn_of(batches()), steps=6, hooks=[hook])
        self.names = hook.names

    def estimator(self, **kwargs):
        return make(self.folder, self.device, PARAMETERS, **kwargs)


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A function of the device: a training there."""
    return functools.cache(lambda device: Trained(tmp_path_factory.mktemp("trained"), device))


@pytest.mark.parametrize("device", [None, "host"])
def test_train_evaluate_predict(device, trained):
    data = batches()
    estimator = trained(device).estimator()
    variables = harness.saved(trained(device).folder, 6)
    assert set(variables) == {
        "global_step",
        "output/kernel",
        "output/kernel/Adagrad",
        "output/bias",
        "output/bias/Adagrad",
        "dense_features/item_embedding/embedding_weights",
        "dense_features/item_embedding/embedding_weights/Adagrad",
        "history_words_shared_embedding",
        "history_words_shared_embedding/Adagrad",
    }
    hidden = np.concatenate([hidden_by_numpy(features, variables) for features, _ in data])
    output = hidden @ variables["output/kernel"][:, 0] + variables["output/bias"]

    predictions = list(estimator.predict(harness.input_fn_of(data)))
    np.testing.assert_allclose([one["hidden"] for one in predictions], hidden, atol=1e-6)
    np.testing.assert_allclose([one["output"] for one in predictions], output, atol=1e-6)

    metrics = estimator.evaluate(harness.input_fn_of(data), steps=6)
    labels = np.concatenate([labels for _, labels in data])
    np.testing.assert_allclose(metrics["loss"], np.mean(np.square(output - labels)), atol=1e-6)
    np.testing.assert_allclose(metrics["mean_output"], np.mean(output), atol=1e-6)
    assert metrics["global_step"] == 6


def test_variable_names_in_the_graph(trained):
    assert trained(None).names == {
        "dense_features/item_embedding/embedding_weights",
        "dense_features/item_embedding/embedding_weights/Adagrad",
        "history_words_shared_embedding",
        "history_words_shared_embedding/Adagrad",
    }
    assert trained("host").names == {name + "/part_0" for name in trained(None).names}


@pytest.mark.parametrize("device", [None, "host"])
def test_what_model_fn_sees(device, trained):
    features, params = trained(device).seen[0]
    assert {key: value.shape.as_list() for key, value in features.items()} == {
        "item": [4, 3],
        "words": [4, 3],
        "history": [4, 2, 3],
        "history_seq_length_": [4],
        "age": [4, 1],
    }
    assert all(features[key].dtype == tf.float32 for key in ("item", "words", "history"))
    assert params["batch_size"] == 4
    assert params["use_tpu"] is (device == "host")
    assert (params["context"].num_replicas, params["context"].num_hosts) == (1, 1)
    with pytest.raises(RuntimeError, match="must not be called from model_fn"):
        params["context"].current_input_fn_deployment()


def test_context_in_input_fn(tmp_path):
    def input_fn(params):
        assert params["batch_size"] == 4
        _, call, calls, replicas = params["context"].current_input_fn_deployment()
        assert (call, calls, replicas) == (0, 1, 1)
        return harness.dataset(batches(1))

    make(tmp_path, "host").train(input_fn, steps=1)


def test_training_equals_numpy_over_several_steps(trained):
    """Tables and slots after six steps, from NumPy's gradients of the same model."""
    data, folder = batches(), trained(None).folder
    item = "dense_features/item_embedding/embedding_weights"
    shared = "history_words_shared_embedding"
    state = harness.saved(folder, 0)
    state = {name: value.astype(np.float64) for name, value in state.items()}
    for features, labels in data:
        hidden = hidden_by_numpy(features, state)
        kernel = state["output/kernel"][:, 0]
        output = hidden @ kernel + state["output/bias"]
        d_output = 2 * (output - labels) / len(labels)
        d_hidden = np.outer(d_output, kernel)
        gradients = {item: np.zeros([VOCABULARY, 3]), shared: np.zeros([VOCABULARY, 3])}
        touched = {item: set(), shared: set()}
        for row, value in enumerate(features["item"]):
            gradients[item][value] += d_hidden[row, 1:4]
            touched[item].add(value)
        words = features["words"]
        counts = np.bincount(words.indices[:, 0], minlength=len(labels))
        for (row, _), value in zip(words.indices, words.values, strict=True):
            gradients[shared][value] += d_hidden[row, 4:7] / np.sqrt(counts[row])
            touched[shared].add(value)
        history = features["history"]
        for (row, column), value in zip(history.indices, history.values, strict=True):
            if column < 2:
                gradients[shared][value] += d_hidden[row, 7:10]
                touched[shared].add(value)
        for name, gradient in gradients.items():
            for row in touched[name]:
                state[name + "/Adagrad"][row] += gradient[row] ** 2
                state[name][row] -= 0.1 * gradient[row] / np.sqrt(state[name + "/Adagrad"][row])
        for name, gradient in (
            ("output/kernel", (hidden.T @ d_output)[:, None]),
            ("output/bias", d_output.sum(keepdims=True)),
        ):
            state[name + "/Adagrad"] += gradient**2
            state[name] -= 0.1 * gradient / np.sqrt(state[name + "/Adagrad"])
    got = harness.saved(folder, 6)
    for name in (item, item + "/Adagrad", shared, shared + "/Adagrad", "output/kernel"):
        np.testing.assert_allclose(got[name], state[name], atol=1e-5, err_msg=name)


@pytest.mark.slow
@pytest.mark.parametrize("device", [None, "host"])
def test_exported_model_predicts_without_estimator_emb(device, trained, tmp_path):
    estimator = trained(device).estimator()
    raw = {
        "item": np.array([0, 7, 19]),
        "age": np.array([[0.1], [0.2], [0.3]], np.float32),
        "words": np.array([[1, 2, -1], [3, -1, -1], [-1, -1, -1]]),
        "history": np.array([[5], [0], [-1]]),
    }

    def receiver():
        given = {
            key: tf.compat.v1.placeholder(one.dtype, [None, *one.shape[1:]])
            for key, one in raw.items()
        }
        return ee.export.ServingInputReceiver(dict(given), given)

    folder = estimator.export_saved_model(str(tmp_path / "export"), receiver)
    np.savez(tmp_path / "raw.npz", **raw)
    program = """
        import sys
        sys.modules["estimator_emb"] = sys.modules["feature_columns"] = None
        import numpy as np, tensorflow as tf
        folder, raw, out = sys.argv[1:]
        serve = tf.saved_model.load(folder).signatures["serving_default"]
        inputs = {key: tf.constant(value) for key, value in np.load(raw).items()}
        np.save(out, serve(**inputs)["output"].numpy())
    """
    arguments = folder.decode(), tmp_path / "raw.npz", tmp_path / "out.npy"
    processes.run(program, *arguments, PYTHONPATH="")
    variables = harness.saved(trained(device).folder, 6)
    sparse = {"words": [[1, 2], [3], []], "history": [[5], [0], []]}
    features = {**raw, **{key: harness.sparse(rows) for key, rows in sparse.items()}}
    hidden = hidden_by_numpy(features, variables)
    expected = hidden @ variables["output/kernel"][:, 0] + variables["output/bias"]
    np.testing.assert_allclose(np.load(tmp_path / "out.npy"), expected, atol=1e-6)


def test_training_goes_on_from_the_checkpoint(trained, tmp_path):
    data = batches()
    # All the data in the first half too: the seeds of a graph depend on its number of ops.
    make(tmp_path, parameters=PARAMETERS).train(harness.input_fn_of(data), steps=3)
    make(tmp_path, parameters=PARAMETERS).train(harness.input_fn_of(data[3:]), steps=3)
    once, twice = (harness.saved(folder, 6) for folder in (trained(None).folder, tmp_path))
    assert set(once) == set(twice)
    for name in once:
        np.testing.assert_allclose(twice[name], once[name], atol=1e-7, err_msg=name)


def test_use_tpu_without_a_tpu_says_how_to_emulate(tmp_path, monkeypatch):
    monkeypatch.delenv("ESTIMATOR_EMB_DEVICE", raising=False)
    estimator = make(tmp_path, use_tpu=True)
    with pytest.raises(RuntimeError) as error:
        estimator.train(harness.input_fn_of(batches(1)), steps=1)
    assert "Cannot find any TPU cores" in str(error.value)
    assert str(error.value).endswith(
        "To run this program without a TPU, set the environment variable "
        "ESTIMATOR_EMB_DEVICE=host, or pass TPUConfig(device='host')."
    )


def test_environment_asks_to_emulate(tmp_path, monkeypatch):
    monkeypatch.setenv("ESTIMATOR_EMB_DEVICE", "host")
    estimator = make(tmp_path, use_tpu=True)
    estimator.train(harness.input_fn_of(batches(1)), steps=1)
    assert estimator.latest_checkpoint().endswith("-1")


@pytest.mark.slow
def test_a_last_batch_that_is_smaller(trained):
    data = batches()
    estimator = trained(None).estimator()
    whole = [one["output"] for one in estimator.predict(harness.input_fn_of(data[:2]))]
    small = batches(1, batch=2, seed=9)
    parts = list(estimator.predict(harness.input_fn_of(data[:2] + small)))
    np.testing.assert_allclose([one["output"] for one in parts[:8]], whole, atol=1e-6)
    assert len(parts) == 10


def test_a_table_on_the_tensor_core_trains_with_the_model(tmp_path):
    start = np.arange(8, dtype=np.float32).reshape(4, 2)
    column = fc.embedding_column(
        fc.categorical_column_with_identity("x", 4),
        2,
        combiner="mean",
        initializer=harness.initializer(start),
        embedding_lookup_device="tpu_tensor_core",
        tensor_core_shape=[None, 2],
    )
    spec = ee.EmbeddingConfigSpec(
        feature_columns=[column], optimization_parameters=ee.AdagradParameters(0.1)
    )

    def model_fn(features, labels, mode, params):
        activation = fc.DenseFeatures([column])(features)
        loss = tf.reduce_sum(activation * labels)
        return harness.minimized(mode, loss, 0.5)

    data = [({"x": harness.sparse([[1, 3, 0], [2], []])}, np.ones([3, 2], np.float32))]
    estimator = harness.estimator(model_fn, spec, tmp_path, batch_size=3)
    estimator.train(harness.input_fn_of(data), steps=1)
    got = harness.saved(tmp_path, 1)
    assert set(got) == {"global_step", "dense_features/x_embedding/embedding_weights"}
    # The third id of the first sample is beyond tensor_core_shape.
    want = start - 0.5 * np.array([[0, 0], [0.5, 0.5], [1, 1], [0.5, 0.5]])
    np.testing.assert_allclose(got["dense_features/x_embedding/embedding_weights"], want)


def test_a_feature_under_the_key_of_a_mask():
    column = fc.embedding_column(
        fc.categorical_column_with_identity("x", 4),
        2,
        embedding_lookup_device="tpu_tensor_core",
        tensor_core_shape=[None, 2],
    )
    spec = ee.EmbeddingConfigSpec([column], ee.AdagradParameters(0.1))
    features = {"x": tf.sparse.from_dense([[1, 3]]), "x__TENSOR_CORE_MASK": tf.ones([1, 2])}
    with pytest.raises(ValueError) as error:
        tensor_core.padded(spec, features)
    assert str(error.value) == (
        "Mask key x__TENSOR_CORE_MASK for Tensor Core embedding is already in use, of column "
        "x_embedding: call the feature otherwise in input_fn."
    )


def test_a_saver_made_in_model_fn_is_refused(tmp_path):
    tpu_columns = columns()
    inner = model_fn_of(tpu_columns)

    def model_fn(features, labels, mode, params):
        spec = inner(features, labels, mode, params)
        return ee.EstimatorSpec(
            mode,
            loss=spec.loss,
            train_op=spec.train_op,
            scaffold=tf.compat.v1.train.Scaffold(saver=tf.compat.v1.train.Saver()),
        )

    spec = ee.EmbeddingConfigSpec(
        feature_columns=tpu_columns,
        optimization_parameters=ee.StochasticGradientDescentParameters(0.1),
    )
    with pytest.raises(ValueError) as error:
        harness.estimator(model_fn, spec, tmp_path).train(harness.input_fn_of(batches(1)), steps=1)
    assert str(error.value) == (
        "The saver of model_fn's Scaffold leaves out the embedding variables "
        "['dense_features/item_embedding/embedding_weights:0', "
        "'history_words_shared_embedding:0']: it was made before they were, or with other "
        "variables. Make it in the scaffold_fn of a TPUEstimatorSpec, which is called after them, "
        "and of all variables."
    )


def test_a_plain_model_may_use_cross_shard_optimizer(tmp_path):
    """Without an EmbeddingConfigSpec too, wherever it runs."""

    def model_fn(features, labels, mode, params):
        weight = tf.compat.v1.get_variable("weight", initializer=2.0)
        return harness.minimized(mode, tf.square(weight), 0.25)

    for device in (None, "host"):
        folder = tmp_path / str(device)
        estimator = harness.estimator(model_fn, None, folder, device=device)
        data = [({"x": np.zeros(4, np.float32)}, np.zeros(4, np.float32))]
        estimator.train(harness.input_fn_of(data), steps=1)
        assert harness.saved(folder, 1)["weight"] == 1.0


def test_train_batch_size_may_be_left_out(tmp_path):
    """Where no TPU is asked for. Stock tensorflow-estimator fails when it first logs its speed."""
    tpu_columns = columns()
    estimator = ee.TPUEstimator(
        model_fn_of(tpu_columns),
        config=ee.RunConfig(model_dir=str(tmp_path), log_step_count_steps=2),
        use_tpu=False,
        embedding_config_spec=ee.EmbeddingConfigSpec(tpu_columns, ee.AdagradParameters(0.1)),
    )
    estimator.train(harness.input_fn_of(batches()), steps=6)
    assert estimator.get_variable_value("global_step") == 6


def test_a_scalar_prediction_that_nobody_asks_for_is_left(tmp_path):
    def model_fn(features, labels, mode, params):
        mean = tf.reduce_mean(features["x"])
        predictions = {"x": features["x"], "mean": mean}
        step = tf.compat.v1.assign_add(tf.compat.v1.train.get_global_step(), 1)
        return ee.TPUEstimatorSpec(mode, predictions=predictions, loss=mean, train_op=step.op)

    def input_fn(params):
        return tf.data.Dataset.from_tensors({"x": [[1.0], [2.0]]})

    config = ee.RunConfig(model_dir=str(tmp_path))
    estimator = harness.configured(model_fn, None, config, 2, use_tpu=False)
    estimator.train(input_fn, steps=1)
    told = estimator.predict(input_fn, predict_keys=["x"])
    assert [one["x"].tolist() for one in told] == [[1.0], [2.0]]
    with pytest.raises(ValueError, match=r"predictions\['mean'\] is a scalar"):
        next(estimator.predict(input_fn, predict_keys=["mean"]))
    (batch,) = estimator.predict(input_fn, yield_single_examples=False)
    assert batch["mean"] == 1.5
