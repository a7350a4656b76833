"""Programs with Keras layers that model_fn calls without `training`."""

import functools

import tensorflow as tf
from cases import REAL, add, config, everything, off_a_tpu, v1e, v2e

v1 = tf.compat.v1


def layers_of(keras):
    # Dense layers of v1 have no seed of their own.
    start = keras.initializers.RandomUniform(seed=5)
    return [
        keras.layers.Dense(4, kernel_initializer=start, name="first"),
        keras.layers.BatchNormalization(name="bn", momentum=0.5),
        keras.layers.Dropout(0.5, name="drop"),
        keras.layers.Dense(2, kernel_initializer=start, name="last"),
    ]


def bare(keras, made):
    return lambda x: functools.reduce(lambda y, layer: layer(y), made, x)


def functional(keras, made):
    x = keras.Input([2])
    return keras.Model(x, bare(keras, made)(x))


def sequential(keras, made):
    return keras.Sequential(made)


def sequential_of_shape(keras, made):
    return keras.Sequential([keras.layers.InputLayer([2]), *made])


def subclassed(keras, made):
    class Own(keras.Model):
        def __init__(self):
            super().__init__()
            self.made = made

        def call(self, x):
            return bare(keras, self.made)(x)

    return Own()


def nested(keras, made):
    x = keras.Input([2])
    inner = functional(keras, made[:3])
    return keras.Model(x, made[3](inner(x)))


def trained(keras, kind, head_only, on_tpu_class, phase, folder):
    def model_fn(features, labels, mode, params):
        if phase is not None:
            keras.backend.set_learning_phase(phase)
        y = kind(keras, layers_of(keras))(features["x"])
        if head_only:
            y = v1.layers.dense(y, 1, kernel_initializer=v1.ones_initializer(), name="head")
        outputs = {"serving_default": v1e.export.PredictOutput({"y": y})}
        if mode == "infer":
            return v1e.EstimatorSpec(mode, {"y": y}, export_outputs=outputs)
        loss = tf.reduce_mean(tf.square(y - labels))
        if mode == "eval":
            return v1e.EstimatorSpec(mode, loss=loss)
        trained = [one for one in v1.trainable_variables() if "head" in one.name or not head_only]
        optimizer = v1.train.GradientDescentOptimizer(0.01)
        train_op = optimizer.minimize(loss, v1.train.get_global_step(), trained)
        return v1e.EstimatorSpec(mode, loss=loss, train_op=train_op)

    if on_tpu_class:
        estimator = off_a_tpu(model_fn, folder)
    else:
        estimator = v2e.Estimator(model_fn, config=config(folder), params={})
    return everything(estimator, REAL, folder)


def add_way(name, keras, kind, head_only=False, on_tpu_class=False, phase=None):
    add("Keras calls", name, trained, keras, kind, head_only, on_tpu_class, phase)


for kind in (functional, sequential, sequential_of_shape, subclassed, nested, bare):
    add_way(kind.__name__, tf.keras, kind)
    add_way(f"{kind.__name__} v1", v1.keras, kind)
add_way("head", tf.keras, functional, head_only=True)
add_way("head, TPUEstimator", tf.keras, functional, head_only=True, on_tpu_class=True)
add_way("TPUEstimator", tf.keras, sequential, on_tpu_class=True)
add_way("phase 0", tf.keras, functional, phase=0)
