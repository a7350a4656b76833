"""Keras layers that model_fn calls without `training`. Prints {way: values of each mode}.

A program that runs with stock and with this package.
"""

import json
import sys
import tempfile

import numpy as np
import tensorflow as tf

v1 = tf.compat.v1
if sys.argv[1] == "ours":
    import estimator_emb as ee

    ee.install()
from tensorflow_estimator.python.estimator import estimator as estimators  # noqa: E402
from tensorflow_estimator.python.estimator import run_config  # noqa: E402
from tensorflow_estimator.python.estimator.export import export, export_output  # noqa: E402
from tensorflow_estimator.python.estimator.model_fn import EstimatorSpec  # noqa: E402
from tensorflow_estimator.python.estimator.tpu import tpu_config, tpu_estimator  # noqa: E402

X = np.array([[1.0, 2, 3], [4, 6, 5], [2, 0, 1], [1, 1, 9]], np.float32)


def rows(shape, dtype=tf.float32, partition_info=None):
    shape = [int(dimension) for dimension in shape]
    return tf.constant(np.sin(1.0 + np.arange(np.prod(shape))).reshape(shape), dtype)


def layers_of(keras):
    return [
        keras.layers.Dense(4, kernel_initializer=rows, name="first"),
        keras.layers.BatchNormalization(name="bn", momentum=0.5),
        keras.layers.Dropout(0.5, name="drop"),
        keras.layers.Dense(2, kernel_initializer=rows, name="last"),
    ]


def functional(keras, made):
    x = y = keras.Input([3])
    for layer in made:
        y = layer(y)
    return keras.Model(x, y)


def sequential(keras, made):
    return keras.Sequential(made)


def sequential_of_shape(keras, made):
    return keras.Sequential([keras.layers.InputLayer([3]), *made])


def subclassed(keras, made):
    class Own(keras.Model):
        def __init__(self):
            super().__init__()
            self.made = made

        def call(self, x):
            for layer in self.made:
                x = layer(x)
            return x

    return Own()


def nested(keras, made):
    x = keras.Input([3])
    inner = functional(keras, made[:3])
    return keras.Model(x, made[3](inner(x)))


def bare(keras, made):
    def call(x):
        for layer in made:
            x = layer(x)
        return x

    return call


KINDS = (functional, sequential, sequential_of_shape, subclassed, nested, bare)
KERAS = {"keras": tf.keras, "v1": v1.keras}


def input_fn(params=None):
    return tf.data.Dataset.from_tensors(({"x": X}, X[:, :1])).repeat(3)


def receiver():
    fed = v1.placeholder(tf.float32, [None, 3])
    return export.ServingInputReceiver({"x": fed}, {"x": fed})


def served(path):
    with tf.Graph().as_default(), v1.Session() as session:
        signature = v1.saved_model.load(session, ["serve"], path.decode()).signature_def
        signature = signature["serving_default"]
        fed = {next(iter(signature.inputs.values())).name: X}
        return session.run(signature.outputs["y"].name, fed).tolist()


def values(estimator, folder):
    """Returns the variables after three steps, and the values of each other mode."""
    estimator.train(input_fn)
    reader = v1.train.load_checkpoint(v1.train.latest_checkpoint(folder))
    predicted = estimator.predict(input_fn, yield_single_examples=False)
    names = sorted(reader.get_variable_to_shape_map())
    return {
        "trained": {name: reader.get_tensor(name).tolist() for name in names},
        "loss": float(estimator.evaluate(input_fn)["loss"]),
        "predicted": next(predicted)["y"].tolist(),
        "served": served(estimator.export_saved_model(f"{folder}/export", receiver)),
    }


def trained(keras, kind, head_only, on_tpu_class, phase=None):
    def model_fn(features, labels, mode, params):
        if phase is not None:
            keras.backend.set_learning_phase(phase)
        y = kind(keras, layers_of(keras))(features["x"])
        if head_only:
            y = v1.layers.dense(y, 1, kernel_initializer=rows, name="head")
        outputs = {"serving_default": export_output.PredictOutput({"y": y})}
        if mode == "infer":
            return EstimatorSpec(mode, {"y": y}, export_outputs=outputs)
        loss = tf.reduce_mean(tf.square(y - labels))
        if mode == "eval":
            return EstimatorSpec(mode, loss=loss)
        trained = [one for one in v1.trainable_variables() if "head" in one.name or not head_only]
        optimizer = v1.train.GradientDescentOptimizer(0.01)
        train_op = optimizer.minimize(loss, v1.train.get_global_step(), trained)
        return EstimatorSpec(mode, loss=loss, train_op=train_op)

    folder = tempfile.mkdtemp()
    if not on_tpu_class:
        config = run_config.RunConfig(folder)
        return values(estimators.EstimatorV2(model_fn, config=config, params={}), folder)
    estimator = tpu_estimator.TPUEstimator(
        model_fn,
        config=tpu_config.RunConfig(model_dir=folder, tpu_config=tpu_config.TPUConfig(1)),
        use_tpu=False,
        export_to_tpu=False,
        train_batch_size=4,
        eval_batch_size=4,
        predict_batch_size=4,
    )
    return values(estimator, folder)


WAYS = {
    f"{name} {kind.__name__}": (keras, kind, False, False)
    for name, keras in KERAS.items()
    for kind in KINDS
}
WAYS["head"] = (tf.keras, functional, True, False)
WAYS["head, TPUEstimator"] = (tf.keras, functional, True, True)
WAYS["TPUEstimator"] = (tf.keras, sequential, False, True)
WAYS["phase 0"] = (tf.keras, functional, False, False, 0)

if __name__ == "__main__":
    chosen = sys.argv[2:] or WAYS
    print(json.dumps({way: trained(*WAYS[way]) for way in chosen}))
