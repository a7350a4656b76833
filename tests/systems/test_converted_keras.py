"""`model_to_estimator` keeps all weights of a trained Keras model: results equal Keras's own."""

import harness
import numpy as np
import pytest
import tensorflow as tf

pytestmark = [
    pytest.mark.usefixtures("installed"),
    pytest.mark.filterwarnings("ignore:`tf.keras.backend.set_learning_phase`"),
]
X = (np.random.default_rng(0).random([16, 3]) * 50 + 100).astype(np.float32)
Y = X.sum(1, keepdims=True) / 50


def input_fn():
    return tf.data.Dataset.from_tensors(({"x": X}, Y))


def trained():
    """Returns a Keras model with weights far from their initial values, also those not trained."""
    tf.keras.backend.clear_session()
    given = tf.keras.Input([3], name="x")
    # Momentum 1 and rate 0 keep all weights unchanged in the estimator's training.
    scaled = tf.keras.layers.BatchNormalization(momentum=1.0, name="scaled")(given)
    hidden = tf.keras.layers.Dense(4, "relu", trainable=False, name="frozen")(scaled)
    model = tf.keras.Model(given, tf.keras.layers.Dense(1, name="last")(hidden))
    model.compile(tf.keras.optimizers.legacy.SGD(0.0), "mse", metrics=["mae"])
    random = np.random.default_rng(1)
    model.set_weights([random.random(one.shape) + 1 for one in model.get_weights()])
    model.get_layer("scaled").moving_mean.assign(X.mean(0))
    model.get_layer("scaled").moving_variance.assign(X.var(0))
    return model


@pytest.mark.slow
@pytest.mark.parametrize("checkpoint_format", ["checkpoint", "saver"])
def test_model_to_estimator_keeps_all_weights(checkpoint_format, tmp_path, caplog):
    model = trained()
    want = dict(zip(("loss", "mae"), model.evaluate(X, Y, 16, verbose=0), strict=True))
    predicted = model.predict(X, 16, verbose=0)
    caplog.set_level("INFO", "estimator_emb")
    estimator = tf.keras.estimator.model_to_estimator(
        model, model_dir=str(tmp_path), checkpoint_format=checkpoint_format
    )

    def assert_results_equal_keras(step):
        got = estimator.evaluate(input_fn)
        assert got.pop("global_step") == step
        harness.assert_same(got, want)
        rows = [next(iter(one.values())) for one in estimator.predict(input_fn)]
        np.testing.assert_allclose(rows, predicted, rtol=1e-5)

    assert_results_equal_keras(step=0)
    source = "the weights are those of the Keras model that model_to_estimator was given."
    said = [line for line in harness.said(caplog) if "weights" in line or "model_dir" in line]
    assert said == [f"evaluate: {source}", f"predict: {source}"]
    exported = harness.exported(
        estimator, tmp_path / "export", harness.receiver_of(x=(tf.float32, [None, 3]))
    )
    (served,) = exported(x=tf.constant(X)).values()
    np.testing.assert_allclose(served, predicted, rtol=1e-5)
    estimator.train(input_fn, steps=1)  # Saves the weights, which `trained` keeps unchanged.
    assert_results_equal_keras(step=1)


def test_model_to_estimator_takes_the_weights_of_a_checkpoint_in_its_folder(tmp_path, caplog):
    caplog.set_level("INFO", "estimator_emb")
    model = trained()
    loss = np.mean(np.square(model(X) - Y))
    estimator = tf.keras.estimator.model_to_estimator(model, model_dir=str(tmp_path))
    with pytest.raises(ZeroDivisionError):
        estimator.evaluate(lambda: 1 / 0)  # The log comes before the input.
    estimator.train(input_fn, steps=1)
    zeros = trained()
    zeros.set_weights([one * 0 for one in zeros.get_weights()])
    estimator = tf.keras.estimator.model_to_estimator(zeros, model_dir=str(tmp_path))
    got = estimator.evaluate(input_fn)
    assert got["global_step"] == 1 and got["loss"] == pytest.approx(loss, rel=1e-5)
    assert caplog.text.count("model_to_estimator was given") == 1  # Only before the training.
