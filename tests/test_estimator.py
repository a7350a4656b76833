"""TPUEstimator on the host trains, evaluates, predicts and exports with the same tables."""

import functools
import inspect

import harness  # harness.refusal(error, call, ...) asserts the error, returns its message.
import numpy as np
import pytest
import reference
import tensorflow as tf
from columns_program import batches, make
from tensorflow_estimator.python.estimator.tpu.tpu_estimator import TPUEstimator as Stock

import estimator_emb as ee
import feature_columns as fc
from estimator_emb.engine import tensor_core

ITEM = "dense_features/item_embedding/embedding_weights"
SHARED = "history_words_shared_embedding"
OF_TABLES = {ITEM, f"{ITEM}/Adagrad", SHARED, f"{SHARED}/Adagrad"}


def shared_ids(features):
    """Returns the ids per sample of `words` and `history`. Their columns share a table."""
    history = [ids[:2] for ids in harness.lists(features["history"])]
    return harness.lists(features["words"]), history


def hidden_by_numpy(features, variables):
    """Computes the model's hidden layer for a batch from the tables of a checkpoint."""
    words, history = shared_ids(features)
    shared = variables[SHARED]
    # DenseFeatures sorts its columns by name: age, item_embedding, words_shared_embedding.
    parts = [
        features["age"],
        variables[ITEM][features["item"]],
        reference.combine(shared, words, harness.ones(words), "sqrtn"),
        reference.combine(shared, history, harness.ones(history), "sum"),
        [[len(ids)] for ids in history],  # SequenceFeatures returns the lengths too.
    ]
    return np.concatenate(parts, axis=1)


PARAMETERS = ee.AdagradParameters(0.1, initial_accumulator=0.2)


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """Returns a function that trains three steps on a device, once for all tests of this file.

    The function returns the model folder and the arguments of model_fn. Tests must not train
    further in the folder.
    """

    @functools.cache
    def of(device):
        folder, seen = tmp_path_factory.mktemp("trained"), []
        one = make(folder, device, PARAMETERS, seen, run=harness.SILENT)
        one.train(harness.input_fn_of(batches(3)), steps=3)
        return folder, seen

    return of


@pytest.mark.parametrize("device", [None, harness.slow("host")])
def test_model_fn_gets_activations_and_params(device, trained):
    """Expects 4 samples in a batch, 3 columns of each table, and at most 2 ids in a sequence."""
    _, ((features, params), *_) = trained(device)
    shapes = {key: value.shape.as_list() for key, value in features.items()}
    of_columns = {"item": [4, 3], "words": [4, 3], "history": [4, 2, 3], "age": [4, 1]}
    assert shapes == {**of_columns, "history_seq_length_": [4]}
    assert all(features[key].dtype == tf.float32 for key in ("item", "words", "history"))
    assert params["batch_size"] == 4
    assert params["use_tpu"] is (device == "host")
    assert (params["context"].num_replicas, params["context"].num_hosts) == (1, 1)
    with pytest.raises(RuntimeError, match="must not be called from model_fn"):
        params["context"].current_input_fn_deployment()


@pytest.mark.parametrize("device", [None, harness.slow("host")])
def test_evaluation_and_predictions_equal_numpy(device, trained):
    data, (folder, _) = batches(3), trained(device)
    estimator = make(folder, device, PARAMETERS)
    variables = harness.saved(folder, 3)
    of_output = ("output/kernel", "output/kernel/Adagrad", "output/bias", "output/bias/Adagrad")
    assert set(variables) == {"global_step", *of_output, *OF_TABLES}
    hidden = np.concatenate([hidden_by_numpy(features, variables) for features, _ in data])
    output = hidden @ variables["output/kernel"][:, 0] + variables["output/bias"]
    predictions = list(estimator.predict(harness.input_fn_of(data)))
    np.testing.assert_allclose([one["hidden"] for one in predictions], hidden, atol=1e-6)
    np.testing.assert_allclose([one["output"] for one in predictions], output, atol=1e-6)
    metrics = estimator.evaluate(harness.input_fn_of(data), steps=3)
    labels = np.concatenate([labels for _, labels in data])
    np.testing.assert_allclose(metrics["loss"], np.mean(np.square(output - labels)), atol=1e-6)
    np.testing.assert_allclose(metrics["mean_output"], np.mean(output), atol=1e-6)
    assert metrics["global_step"] == 3


def test_training_equals_numpy_over_several_steps(trained):
    """Tables and slots after three steps equal those from NumPy's gradients of the same model."""
    folder, _ = trained(None)
    state = {name: one.astype(np.float64) for name, one in harness.saved(folder, 0).items()}

    def update(name, g, row=...):
        slot = f"{name}/Adagrad"
        state[name][row], state[slot][row] = reference.adagrad(
            0.1, g, state[name][row], state[slot][row]
        )

    for features, labels in batches(3):
        hidden = hidden_by_numpy(features, state)
        kernel = state["output/kernel"][:, 0]
        output = hidden @ kernel + state["output/bias"]
        d_output = 2 * (output - labels) / len(labels)
        d_hidden = np.outer(d_output, kernel)
        item = [[one] for one in features["item"]]
        words, history = shared_ids(features)
        # `start` is the first of a feature's three columns in `hidden`, after `age`. `of_samples`
        # gives the gradient of each looked up row, and `updates_of` sums them by row.
        of_item, of_words, of_history = (
            reference.of_samples(ids, harness.ones(ids), d_hidden[:, start : start + 3], combiner)
            for ids, start, combiner in ((item, 1, "sum"), (words, 4, "sqrtn"), (history, 7, "sum"))
        )
        for name, of_features in ((ITEM, [of_item]), (SHARED, [of_words, of_history])):
            for row, g in reference.updates_of(of_features):
                update(name, g, row)
        update("output/kernel", (hidden.T @ d_output)[:, None])
        update("output/bias", d_output.sum(keepdims=True))
    got = harness.saved(folder, 3)
    for name in (*OF_TABLES, "output/kernel"):
        np.testing.assert_allclose(got[name], state[name], atol=1e-5, err_msg=name)


@pytest.mark.slow
@pytest.mark.parametrize("device", [None, "host"])
def test_exported_model_predicts(device, trained, tmp_path):
    folder, _ = trained(device)
    raw = {
        "item": np.array([0, 7, 19]),
        "age": np.array([[0.1], [0.2], [0.3]], np.float32),
        "words": np.array([[1, 2, -1], [3, -1, -1], [-1, -1, -1]]),
        "history": np.array([[5], [0], [-1]]),
    }
    inputs = {key: (one.dtype, [None, *one.shape[1:]]) for key, one in raw.items()}
    estimator = make(folder, device, PARAMETERS)
    serve = harness.exported(estimator, tmp_path, harness.receiver_of(**inputs))
    served = serve(**{key: tf.constant(one) for key, one in raw.items()})
    variables = harness.saved(folder, 3)
    sparse = {"words": [[1, 2], [3], []], "history": [[5], [0], []]}
    features = {**raw, **{key: harness.sparse(rows) for key, rows in sparse.items()}}
    hidden = hidden_by_numpy(features, variables)
    expected = hidden @ variables["output/kernel"][:, 0] + variables["output/bias"]
    np.testing.assert_allclose(served["output"], expected, atol=1e-6)


def test_use_tpu_without_a_tpu_says_how_to_emulate(tmp_path, monkeypatch):
    monkeypatch.delenv("ESTIMATOR_EMB_DEVICE", raising=False)
    train, data = make(tmp_path, use_tpu=True).train, harness.input_fn_of(batches(1))
    message = harness.refusal(RuntimeError, train, data, steps=1)
    assert "Cannot find any TPU cores" in message and "'pjrt'" in message
    assert "set the environment variable ESTIMATOR_EMB_DEVICE=emulate, or pass" in message


@pytest.mark.usefixtures("installed")  # Replaces names in TensorFlow, as `estimator-emb run` does.
def test_a_resolver_without_a_tpu_says_how_to_emulate(monkeypatch):
    monkeypatch.delenv("ESTIMATOR_EMB_DEVICE", raising=False)
    resolver = tf.distribute.cluster_resolver.TPUClusterResolver
    for looks_for_a_tpu in (resolver, tf.tpu.experimental.initialize_tpu_system):
        with pytest.raises(ValueError, match="^Please provide a TPU Name") as error:
            looks_for_a_tpu()
        assert str(error.value).count("ESTIMATOR_EMB_DEVICE=emulate") == 1


def on_the_tensor_core(initializer=None):
    identity = fc.categorical_column_with_identity("x", 4)
    on_core = {"embedding_lookup_device": "tpu_tensor_core", "tensor_core_shape": [None, 2]}
    column = fc.embedding_column(identity, 2, initializer=initializer, **on_core)
    return column, ee.EmbeddingConfigSpec([column], ee.AdagradParameters(0.1))


def test_a_table_on_the_tensor_core_trains_by_the_models_optimizer(tmp_path):
    start = np.arange(8, dtype=np.float32).reshape(4, 2)
    column, spec = on_the_tensor_core(harness.initializer(start))

    def model_fn(features, labels, mode, params):
        activation = fc.DenseFeatures([column])(features)
        return harness.minimized(mode, tf.reduce_sum(activation * labels), 0.5)

    data = [({"x": harness.sparse([[1, 3, 0], [2], []])}, np.ones([3, 2], np.float32))]
    estimator = harness.estimator(model_fn, spec, tmp_path, batch_size=3)
    estimator.train(harness.input_fn_of(data), steps=1)
    got = harness.saved(tmp_path, 1)
    assert set(got) == {"global_step", "dense_features/x_embedding/embedding_weights"}
    # The first sample is the mean of rows 1 and 3. Its third id is beyond tensor_core_shape. The
    # gradient of a sample is 1, and the model's rate 0.5.
    want = start - 0.5 * np.array([[0, 0], [0.5, 0.5], [1, 1], [0.5, 0.5]])
    np.testing.assert_allclose(got["dense_features/x_embedding/embedding_weights"], want)


def test_a_feature_named_like_a_tensor_core_mask_is_refused():
    """Protects the mask, a new feature that says where the ids for the tensor core are padded."""
    _, spec = on_the_tensor_core()
    features = {"x": tf.sparse.from_dense([[1, 3]]), "x__TENSOR_CORE_MASK": tf.ones([1, 2])}
    message = harness.refusal(ValueError, tensor_core.padded, spec, features)
    assert "Mask key x__TENSOR_CORE_MASK for Tensor Core embedding is already in use" in message


@pytest.mark.parametrize("mode", ["train", "evaluate", "predict"])
def test_a_saver_made_before_the_tables_of_an_emulated_tpu_is_refused(mode, tmp_path):
    """Prevents checkpoints without the tables, which are made after model_fn."""

    def model_fn(features, labels, mode, params):
        loss = tf.reduce_sum(features["x"]) * tf.compat.v1.get_variable("w", initializer=1.0)
        saver = tf.compat.v1.train.Saver()
        predictions = {"x": features["x"]}
        metrics = (lambda loss: {"m": tf.compat.v1.metrics.mean(loss)}, [loss[None]])
        options = {"predictions": predictions, "eval_metrics": metrics}
        options["scaffold_fn"] = lambda: tf.compat.v1.train.Scaffold(saver=saver)
        return harness.minimized(mode, loss, **options)

    spec = harness.table_spec(5, 2, ee.StochasticGradientDescentParameters(0.1))
    estimator = harness.estimator(model_fn, spec, tmp_path, num_shards=1)
    data = harness.input_fn_of([({"x": np.array([1, 4, 0, 2])}, np.ones([4, 1], np.float32))])
    steps = {} if mode == "predict" else {"steps": 1}
    message = harness.refusal(ValueError, harness.run, mode, estimator, data, **steps)
    assert "Scaffold leaves out the embedding variables ['t/part_0:0']: it was made" in message


def test_a_saver_of_a_hook_gets_the_tables_made_after_it(tmp_path):
    """Leaves out the helper variable, which stands for the tables in the two lists."""

    def model_fn(features, labels, mode, params):
        loss = tf.reduce_sum(features["x"])
        v1 = tf.compat.v1
        train_op = v1.train.AdagradOptimizer(0.1).minimize(loss, v1.train.get_global_step())
        listed = [*v1.global_variables(), *v1.trainable_variables()]
        hook = v1.train.CheckpointSaverHook(
            str(tmp_path / "hook"), save_steps=1, saver=v1.train.Saver(listed)
        )
        return ee.EstimatorSpec(mode, loss=loss, train_op=train_op, training_hooks=[hook])

    spec = harness.table_spec(5, 2, ee.AdagradParameters(0.1), np.ones([5, 2], np.float32))
    estimator = harness.estimator(model_fn, spec, tmp_path)
    data = harness.input_fn_of([({"x": np.array([1, 4, 0, 2])}, np.ones([4, 1], np.float32))] * 2)
    estimator.train(data)
    got = harness.saved(tmp_path / "hook", 2)
    assert set(got) == {"global_step", "t", "t/Adagrad"}
    row = 1 - 0.1 / np.sqrt(1.1) - 0.1 / np.sqrt(2.1)  # Adagrad, two steps of gradient 1.
    np.testing.assert_allclose(got["t"], [[row] * 2] * 3 + [[1, 1], [row] * 2], rtol=1e-6)


def test_a_spec_of_another_thread_replaces_no_host_call(tmp_path):
    """tensorflow-estimator calls the host_call of the last spec that was made in the process."""
    called = []

    def model_fn(features, labels, mode, params):
        loss = tf.reduce_sum(features["x"] * tf.compat.v1.get_variable("w", initializer=1.0))
        call = lambda loss: called.append(loss.shape) or loss  # noqa: E731
        spec = harness.minimized(mode, loss, host_call=(call, [loss[None]]))
        harness.minimized(mode, loss)  # As the other thread, meanwhile.
        return spec

    data = harness.input_fn_of([({"x": np.ones(4, np.float32)}, np.ones(4))])
    harness.estimator(model_fn, None, tmp_path).train(data, steps=1)
    assert called == [[1]]


def test_train_batch_size_is_optional(tmp_path, caplog):
    """With `use_tpu=False`. Stock tensorflow-estimator fails then when it first logs its speed."""
    logging_each_step = harness.SILENT | {"log_step_count_steps": 1}
    estimator = ee.TPUEstimator(
        harness.gradient_model_fn(["x"]),
        config=ee.RunConfig(model_dir=str(tmp_path), **logging_each_step),
        use_tpu=False,
        embedding_config_spec=harness.table_spec(5, 2, ee.AdagradParameters(0.1)),
    )
    # Stock logs them for `params` of None, and for `eval_on_tpu`, True by default.
    for warning in ("params are not passed to Estimator", "eval_on_tpu ignored"):
        assert warning not in caplog.text
    data = [({"x": np.array([1, 4])}, {"x": np.ones([2, 2], np.float32)})] * 2
    estimator.train(harness.input_fn_of(data))
    assert estimator.get_variable_value("global_step") == 2


def test_methods_have_the_arguments_and_defaults_of_stock():
    def arguments(method):
        return [(one.name, one.default) for one in inspect.signature(method).parameters.values()]

    for name in ("__init__", "train", "evaluate", "predict", "export_saved_model"):
        assert arguments(getattr(ee.TPUEstimator, name)) == arguments(getattr(Stock, name))


def test_predict_refuses_a_scalar_only_in_single_examples(tmp_path):
    def model_fn(features, labels, mode, params):
        predictions = {"x": features["x"], "mean": tf.reduce_mean(features["x"])}
        return ee.TPUEstimatorSpec(mode, predictions=predictions)

    def input_fn(params):
        return tf.data.Dataset.from_tensors({"x": [[1.0], [2.0]]})

    estimator = harness.estimator(model_fn, None, tmp_path, batch_size=2)
    examples = estimator.predict(input_fn, predict_keys=["x"])
    assert [one["x"].tolist() for one in examples] == [[1.0], [2.0]]
    with pytest.raises(ValueError, match=r"predictions\['mean'\] is a scalar"):
        next(estimator.predict(input_fn, predict_keys=["mean"]))
    (batch,) = estimator.predict(input_fn, yield_single_examples=False)
    assert batch["mean"] == (1.0 + 2.0) / 2
