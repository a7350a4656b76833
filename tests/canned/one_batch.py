"""Trainings whose input has one batch, or ends while features are read."""

from functools import partial

import numpy as np
import tensorflow as tf
from cases import add, v1e, v2e
from tensorflow_estimator.python.estimator.canned.timeseries import ar_model, estimators

v1 = tf.compat.v1
X = np.arange(12, dtype=np.float32).reshape(6, 2) % 5
Y = X.sum(1, keepdims=True)
CONFIG = v1e.RunConfig(tf_random_seed=1)


def one_batch():
    return tf.data.Dataset.from_tensors(({"x": X}, Y))


def of_queue(x_epochs, z_epochs):
    """Returns an input_fn whose two features end on their own."""

    def input_fn():
        z = v1.train.limit_epochs(tf.constant(X), z_epochs)
        return {"x": v1.train.limit_epochs(tf.constant(X), x_epochs), "z": z}, tf.constant(Y)

    return input_fn


def train(input_fn, folder, initial=None, hooks=(), reads=True, **more):
    """Trains a linear model."""

    def model_fn(features, labels, mode):
        start = initial(features) if initial else tf.ones([2, 1])
        w = v1.get_variable("w", initializer=start, use_resource=True)
        predicted = features["x"] @ w if reads else tf.reduce_sum(w)
        loss = tf.reduce_mean(tf.square(predicted - (labels if reads else 1.0)))
        train_op = v1.train.AdamOptimizer(0.1).minimize(loss, v1.train.get_global_step())
        made = [hook(features) for hook in hooks]
        return v2e.EstimatorSpec(mode, loss=loss, train_op=train_op, training_hooks=made)

    estimator = v2e.Estimator(model_fn, folder, CONFIG)
    estimator.train(input_fn, **more)
    return {**saved(estimator), **estimator.evaluate(input_fn, steps=1)}


def saved(estimator):
    # A step without input may still raise the global step, and a save may come before that.
    names = [name for name in estimator.get_variable_names() if name != "global_step"]
    return {name: estimator.get_variable_value(name) for name in names}


class TakesBatch(v1.train.SessionRunHook):
    """Reads a batch before the first step, as the initialization of KMeans does."""

    def __init__(self, features):
        self._features = features

    def after_create_session(self, session, coord):
        session.run(self._features)


def kmeans(input_fn, folder, initial=X[:2], **more):
    estimator = v1e.experimental.KMeans(2, folder, initial, config=CONFIG, seed=1, **more)
    for _ in range(3):
        estimator.train(input_fn)
    clusters = list(map(int, estimator.predict_cluster_index(input_fn)))
    centers, score = estimator.cluster_centers(), estimator.score(input_fn)
    return {"centers": centers, "score": score, "of points": clusters}


def timeseries(folder):
    windows = {"input_window_size": 4, "output_window_size": 2}
    model = ar_model.ARModel(periodicities=4, num_features=1, **windows)
    given = {"optimizer": v1.train.AdamOptimizer(0.1), "config": CONFIG}
    estimator = estimators.TimeSeriesRegressor(model, model_dir=folder, **given)
    tf.keras.utils.set_random_seed(1)
    times = np.arange(6)[np.newaxis]
    features = {"times": times, "values": np.sin(times)[..., np.newaxis].astype(np.float32)}
    estimator.train(lambda: tf.data.Dataset.from_tensors(features))
    return saved(estimator)


def canned(of_class, folder):
    x = tf.feature_column.numeric_column("x", 2)
    estimator = of_class(feature_columns=[x], model_dir=folder, config=CONFIG)
    estimator.train(one_batch)
    return {**saved(estimator), **estimator.evaluate(one_batch)}


def one_shot(batches):
    """Returns an input_fn whose iterator needs no initializer, so that initializers can read it."""
    return lambda: v1.data.make_one_shot_iterator(one_batch().repeat(batches)).get_next()


def mean(features):
    return tf.reduce_mean(features["x"], 0)[:, None]


def points():
    return tf.data.Dataset.from_tensors(X)


for name, program in {
    "steps=None": partial(train, one_batch),
    "more steps than batches": partial(train, one_batch, steps=5),
    "initializer": partial(train, one_shot(1), initial=mean),
    "initializer, two batches": partial(train, one_shot(2), initial=mean),
    "hook": partial(train, lambda: one_batch().repeat(2), hooks=[TakesBatch]),
    "train_op without input": partial(train, one_batch, reads=False, steps=4),
    "queues": partial(train, of_queue(1, 1)),
    "a shorter queue that no step reads": partial(train, of_queue(3, 1)),
    "linear": partial(canned, v2e.LinearRegressor),
    "timeseries": timeseries,
    "kmeans": partial(kmeans, points, use_mini_batch=False),
    "kmeans, mini-batches": partial(kmeans, points),
    "kmeans, initialized from its batch": partial(
        kmeans, points, initial="random", use_mini_batch=False
    ),
}.items():
    add("one batch", name, program)
