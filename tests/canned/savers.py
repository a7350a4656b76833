"""Savers that the model_fn of a TPUEstimator with a table makes, with use_tpu=False."""

import numpy as np
import tensorflow as tf
from cases import ITEM, REAL, add, everything, input_fn, off_a_tpu, v1e
from tensorflow_estimator.python.estimator.tpu import _tpu_estimator_embedding as embedding

v1 = tf.compat.v1
train = v1.train


def start(shape, dtype=tf.float32, partition_info=None):
    return tf.reshape(tf.range(float(np.prod(shape))), shape)


def kernel():
    return [one for one in v1.global_variables() if one.op.name == "dense/kernel"]


def averaged():
    """Returns {saved name: variable}: for evaluation, variables restore their averages."""
    names = {"dense/kernel/ExponentialMovingAverage": kernel()[0]}
    return {**names, **{one.op.name: one for one in v1.global_variables() if one not in kernel()}}


MAKES = {
    "all": lambda averages: train.Saver(),
    "sharded": lambda averages: train.Saver(sharded=True),
    "list": lambda averages: train.Saver(v1.global_variables()),
    "dict": lambda averages: train.Saver({one.op.name: one for one in v1.global_variables()}),
    "averages": lambda averages: train.Saver(averages.variables_to_restore(kernel())),
    "averages by names": lambda averages: train.Saver(averaged()),
    "collection": lambda averages: v1.add_to_collection(v1.GraphKeys.SAVERS, train.Saver()),
}


def saved_by(way, folder):
    column = v1.tpu.experimental.embedding_column(ITEM, 2, initializer=start)

    def model_fn(features, labels, mode, params):
        x = tf.keras.layers.DenseFeatures([column])(features)
        options = {"use_bias": False, "kernel_initializer": v1.ones_initializer()}
        logits = v1.layers.dense(x, 1, name="dense", **options)
        averages = tf.train.ExponentialMovingAverage(0.5)
        loss = train_op = scaffold = None
        if mode != "infer":
            loss = tf.reduce_mean(tf.square(logits - labels))
        if mode == "train":
            optimizer = train.GradientDescentOptimizer(0.01)
            train_op = optimizer.minimize(loss, train.get_global_step())
            with tf.control_dependencies([train_op]):
                train_op = averages.apply(kernel())
        if mode != "train" or not way.startswith("averages"):
            saver = MAKES[way](averages)
            scaffold = saver and train.Scaffold(saver=saver)
        predictions = {"logits": logits}
        outputs = {"serving_default": v1e.export.PredictOutput(predictions)}
        fields = {"scaffold": scaffold, "export_outputs": outputs}
        return v1e.EstimatorSpec(mode, predictions, loss, train_op, **fields)

    sgd = v1.tpu.experimental.StochasticGradientDescentParameters(0.01)
    spec = embedding.EmbeddingConfigSpec(feature_columns=[column], optimization_parameters=sgd)
    estimator = off_a_tpu(model_fn, folder, embedding_config_spec=spec)
    estimator.train(input_fn(REAL), steps=2)
    return everything(estimator, REAL, folder)  # Trains from the checkpoint.


for way in MAKES:
    add("savers", way, saved_by, way)
