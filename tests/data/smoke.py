"""Trains, evaluates, predicts and exports a small program. Started by path in any environment.

Argument: a folder that does not exist yet. Prints the accuracy and the package's location.
"""

import os
import sys

import numpy as np
import tensorflow as tf

import estimator_emb as ee
import feature_columns as fc

VOCABULARY = 50


def input_fn(params):
    """Gives items with their parity as label."""
    items = np.arange(VOCABULARY).repeat(20)
    dataset = tf.data.Dataset.from_tensor_slices(({"item": items}, items % 2))
    return dataset.shuffle(1000, seed=1).repeat(3).batch(params["batch_size"], drop_remainder=True)


def model_fn(features, labels, mode, params):
    """Uses the sum of an item's activation, plus a bias, as the logit."""
    bias = tf.compat.v1.get_variable("bias", initializer=0.0)
    logits = tf.reduce_sum(fc.DenseFeatures(params["columns"])(features), axis=1) + bias
    if mode == ee.ModeKeys.PREDICT:
        outputs = {"serving_default": ee.export.PredictOutput({"odd": logits})}
        return ee.TPUEstimatorSpec(mode, predictions={"odd": logits}, export_outputs=outputs)
    labels = tf.cast(labels, tf.float32)
    loss = tf.reduce_mean(tf.nn.sigmoid_cross_entropy_with_logits(labels=labels, logits=logits))
    optimizer = tf.compat.v1.train.GradientDescentOptimizer(0.1)
    train_op = optimizer.minimize(loss, tf.compat.v1.train.get_global_step())
    accuracy = tf.compat.v1.metrics.accuracy
    metrics = (lambda *given: {"accuracy": accuracy(*given)}, [labels, logits > 0])
    return ee.TPUEstimatorSpec(mode, loss=loss, train_op=train_op, eval_metrics=metrics)


def main(folder):
    """Runs the program."""
    column = fc.embedding_column(fc.categorical_column_with_identity("item", VOCABULARY), 4)
    spec = ee.EmbeddingConfigSpec([column], ee.AdagradParameters(0.5))
    sizes = ("train_batch_size", "eval_batch_size", "predict_batch_size")
    given = {"params": {"columns": [column]}, "use_tpu": False, **dict.fromkeys(sizes, 50)}
    given |= {"config": ee.RunConfig(tf_random_seed=1), "embedding_config_spec": spec}
    estimator = ee.TPUEstimator(model_fn, model_dir=folder, **given)
    estimator.train(input_fn, max_steps=60)
    accuracy = estimator.evaluate(input_fn, steps=20)["accuracy"]
    odd = [one["odd"] > 0 for one in estimator.predict(input_fn)]
    receiver = ee.export.build_raw_serving_input_receiver_fn({"item": tf.zeros([1], tf.int64)})
    exported = estimator.export_saved_model(os.path.join(folder, "export"), receiver)
    assert accuracy > 0.95 and len(odd) == 3000 and os.path.isdir(exported)
    print(f"accuracy {accuracy:.2f}")
    print(f"TensorFlow {tf.__version__}, Python {sys.version.split()[0]}")
    print(f"estimator_emb {ee.__version__} in {os.path.dirname(ee.__file__)}")


if __name__ == "__main__":
    main(sys.argv[1])
