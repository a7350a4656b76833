"""Overrides written for TensorFlow 1.15's Keras work in subclasses of today's Keras."""

import inspect

import numpy as np
import pytest
import tensorflow as tf

from estimator_emb.legacy import keras_overrides

v1 = tf.compat.v1
layers = tf.keras.layers
X = np.float32([[1, 2], [3, 8], [5, 0], [7, 6]])
pytestmark = pytest.mark.usefixtures("installed")


@pytest.mark.parametrize("module", [layers, v1.keras.layers, v1.layers], ids=["2", "1", "tf"])
def test_overridden_batch_normalization_moments_are_called(module):
    """TPU programs of 2019 average the moments of all cores this way."""
    calls = []

    class Shifted(module.BatchNormalization):
        def _moments(self, inputs, reduction_axes, keep_dims):
            calls.append(keep_dims)
            mean, variance = super()._moments(inputs, reduction_axes, keep_dims=keep_dims)
            return mean + 1.0, variance

    with tf.Graph().as_default(), v1.Session() as session:
        fused = {} if module is layers else {"fused": False}
        out = Shifted(epsilon=0.0, **fused)(tf.constant(X), training=True)
        session.run(v1.global_variables_initializer())
        got = session.run(out)
    np.testing.assert_allclose(got, (X - X.mean(0) - 1) / X.std(0), rtol=1e-4)
    assert calls == [False] and keras_overrides._left_out.get(None) is None


def test_overridden_fused_batch_norm_is_called():
    class Fused(layers.BatchNormalization):
        def _fused_batch_norm(self, inputs, training):
            return super()._fused_batch_norm(inputs, training) * 2.0

    x = X.reshape(1, 4, 1, 2)
    got = Fused(epsilon=1e-3)(x, training=True)
    normal = (X - X.mean(0)) / np.sqrt(X.var(0) + 1e-3)
    np.testing.assert_allclose(np.reshape(got, [4, 2]), 2 * normal, rtol=1e-3)


def test_overridden_checkpoint_callback_methods_are_called(tmp_path):
    seen = []

    class Named(tf.keras.callbacks.ModelCheckpoint):
        def _save_model(self, epoch, logs):
            seen.append(("save", epoch))
            super()._save_model(epoch, logs)

        def _get_file_path(self, epoch, logs):
            seen.append(("path", epoch))
            if epoch:  # With the arguments of TensorFlow 1.15, and with today's.
                return super()._get_file_path(epoch, logs)
            return super()._get_file_path(epoch, None, logs=logs)

    model = tf.keras.Sequential([layers.Dense(1, input_shape=(2,))])
    model.compile(tf.keras.optimizers.legacy.SGD(0.01), "mse", run_eagerly=True)
    callback = Named(str(tmp_path / "{epoch}.h5"), save_weights_only=True)
    model.fit(X, X[:, :1], epochs=2, verbose=0, callbacks=[callback])
    assert [path.name for path in sorted(tmp_path.iterdir())] == ["1.h5", "2.h5"]
    callback._get_file_path(2, {})  # As programs of TensorFlow 1.15 call it.
    callback._get_file_path(3, 0, logs={})  # As programs of today call it.
    assert seen == [("save", 0), ("path", 0), ("save", 1), ("path", 1), ("path", 2), ("path", 3)]


def test_overridden_optimizer_gradients_are_called():
    class Clipped(tf.keras.optimizers.legacy.SGD):
        def _compute_gradients(self, loss, var_list, grad_loss=None):
            pairs = super()._compute_gradients(loss, var_list, grad_loss)
            return [(tf.clip_by_value(g, -1.0, 1.0), v) for g, v in pairs]

        def apply_gradients(self, grads_and_vars, name=None):
            return super().apply_gradients([*grads_and_vars], name)

    variable = tf.Variable([1.0, 2.0])
    optimizer = Clipped(0.5)
    optimizer.minimize(lambda: tf.reduce_sum(variable * [0.25, 7.0]), [variable])
    np.testing.assert_array_equal(variable, [0.875, 1.5])  # Gradients 0.25, and 7 clipped to 1.


def test_an_override_with_todays_signature_is_unchanged():
    def today(self, inputs, reduction_axes, keep_dims, mask=None): ...
    def any_arguments(self, *args, **kwargs): ...

    for own in ({"_moments": today}, {"_moments": any_arguments}, {}):
        made = type("Made", (layers.BatchNormalization,), own)
        assert vars(made).get("_moments") is own.get("_moments")  # Without a wrapper.
    with pytest.raises(TypeError, match="takes no keyword arguments"):  # As Python's classes do.
        type("Made", (layers.BatchNormalization,), {}, mistaken=1)


def test_each_added_argument_exists_in_keras():
    """An argument that Keras renames must not stay in the list."""
    for cls, argument, names in keras_overrides._ADDED:
        for name in names.split():
            assert argument in inspect.signature(getattr(cls, name)).parameters
