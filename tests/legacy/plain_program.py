# SPDX-License-Identifier: Apache-2.0
"""A program of `tf.estimator` that never had a TPU, whose mistakes tests make.

Run under stock tensorflow-estimator, it prints what becomes of them there, as JSON.
"""

import json
import os
import signal
import subprocess
import sys
import tempfile

import numpy as np
import tensorflow as tf

v1 = tf.compat.v1
KINDS = ("own", "canned", "keras")


def input_fn(batches=4):
    x = np.linspace(-1, 1, 2 * batches * 3, dtype=np.float32).reshape(-1, 3)
    y = np.float32(x.sum(1, keepdims=True) > 0)
    return tf.data.Dataset.from_tensor_slices(({"x": x}, y)).batch(2)


def make(kind, model_dir, width=4, name="w", strategy=None):
    """An estimator whose model has a layer of a width; `name` is that of a variable of 'own'."""
    config = tf.estimator.RunConfig(str(model_dir), tf_random_seed=1, train_distribute=strategy)
    if kind == "canned":
        columns = [tf.feature_column.numeric_column("x", [3])]
        return tf.estimator.DNNClassifier([width], columns, config=config)
    if kind == "keras":
        tf.keras.backend.clear_session()
        given = tf.keras.Input([3], name="x")
        logits = tf.keras.layers.Dense(1)(tf.keras.layers.Dense(width)(given))
        model = tf.keras.Model(given, logits)
        model.compile(tf.keras.optimizers.legacy.SGD(), "mse")
        return tf.keras.estimator.model_to_estimator(model, config=config)

    spec = tf.estimator.EstimatorSpec

    def model_fn(features, labels, mode):
        w = v1.get_variable(name, [3, width], initializer=v1.ones_initializer())
        y = tf.reduce_sum(features["x"] @ w, 1, keepdims=True)
        if labels is None:
            return spec(mode, predictions={"y": y})
        loss = tf.reduce_mean(tf.square(y - labels))
        step = v1.train.GradientDescentOptimizer(0.1).minimize(loss, v1.train.get_global_step())
        return spec(mode, loss=loss, train_op=step)

    return tf.estimator.Estimator(model_fn, config=config)


def receiver():
    given = {"x": v1.placeholder(tf.float32, [None, 3])}
    return tf.estimator.export.ServingInputReceiver(given, given)


def sends(number, batch):
    """An input whose reading of a batch sends this process a signal."""
    read = []

    def send(x):
        read.append(0)
        if len(read) == batch:
            os.kill(os.getpid(), number)
        return x

    def through(features, labels):
        x = tf.ensure_shape(tf.numpy_function(send, [features["x"]], tf.float32), [None, 3])
        return {"x": x}, labels

    options = tf.data.Options()
    options.experimental_optimization.inject_prefetch = False
    return lambda: input_fn().repeat().map(through).with_options(options)


def wider(kind, folder):
    """What becomes of a model that goes on from the checkpoint of a narrower one."""
    make(kind, folder).train(input_fn, steps=1)
    try:
        make(kind, folder, 5).train(input_fn, steps=1)
    except Exception as error:
        return type(error).__name__
    return make(kind, folder, 5).get_variable_value("global_step" if kind != "keras" else STEP)


STEP = "estimator_global_step/.ATTRIBUTES/VARIABLE_VALUE"

if __name__ == "__main__":
    if sys.argv[1:]:
        make(sys.argv[1], sys.argv[2]).train(sends(signal.SIGTERM, 5), steps=50)
    found = {}
    for one in KINDS:
        with tempfile.TemporaryDirectory() as directory:
            ended = subprocess.run([sys.executable, __file__, one, f"{directory}/signal"])
            estimator = make(one, f"{directory}/model")
            estimator.train(input_fn, steps=1)
            found[one] = {
                "status": ended.returncode,
                "saved": tf.train.latest_checkpoint(f"{directory}/signal").rpartition("-")[2],
                "empty": float(estimator.evaluate(lambda: input_fn(0))["loss"]),
                "wider": str(wider(one, f"{directory}/wider")),
            }
    print(json.dumps(found))
