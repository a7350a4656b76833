"""A TensorFlow 1 style program that runs under stock tensorflow-estimator and under ours.

Its only optimizer is also the spec's, so tables train the same on both sides. Flags add errors.
"""

import argparse
import os
import shutil
import sys

import numpy as np
import tensorflow.compat.v1 as tf
from tensorflow.compat.v1 import estimator as tf_estimator
from tensorflow.compat.v1.estimator import tpu as tpu_estimator

parser = argparse.ArgumentParser()
parser.add_argument("--model_dir", required=True)
parser.add_argument("--clip", type=float)
parser.add_argument("--rate", type=float, default=0.1)
parser.add_argument("--chance", action="store_true", help="input that no seed determines")
parser.add_argument("--optimizer", choices=("sgd", "adam"), default="sgd")
parser.add_argument("--calls", type=int, default=1, help="how often it trains")
parser.add_argument("--fail", type=int, help="the step after which it fails")
parser.add_argument("--out", help="a folder to write records in, and to export to")
parser.add_argument("--plain", action="store_true", help="an Estimator, by train_and_evaluate")
flags = parser.parse_args()

# Many programs begin by deleting the old folder and leaving a note.
if os.path.exists(flags.model_dir):
    shutil.rmtree(flags.model_dir)
tf.gfile.MakeDirs(flags.model_dir)
with tf.gfile.Open(os.path.join(flags.model_dir, "flags.txt"), "w") as file:
    file.write(str(flags))
with open(os.path.join(flags.model_dir, "flags.txt")) as file:
    assert file.read() == str(flags)

column = tf.tpu.experimental.embedding_column(
    tf.feature_column.categorical_column_with_identity("item", 50),
    4,
    combiner="mean",
    initializer=tf.random_normal_initializer(),
)


def write_records(path):
    """Writes the input and reads it back by the same path, as BERT's programs do."""
    random = np.random.RandomState(3)
    tf.gfile.MakeDirs(flags.out)
    with tf.python_io.TFRecordWriter(path) as writer:
        for items in random.randint(0, 50, [64, 3]):
            ids = tf.train.Feature(int64_list=tf.train.Int64List(value=items))
            features = tf.train.Features(feature={"item": ids})
            writer.write(tf.train.Example(features=features).SerializeToString())


def read_records(path, batch_size):
    form = {"item": tf.FixedLenFeature([3], tf.int64)}
    dataset = tf.data.Dataset.from_tensor_slices(tf.gfile.Glob(path + "*"))
    dataset = dataset.interleave(tf.data.TFRecordDataset, cycle_length=1).repeat()
    dataset = dataset.map(lambda record: tf.parse_single_example(record, form)["item"])
    dataset = dataset.batch(batch_size, True)
    return dataset.map(lambda x: ({"item": tf.sparse.from_dense(x)}, tf.to_float(x[:, :1] % 2)))


def input_fn(params):
    if flags.out:
        return read_records(RECORDS, params["batch_size"])
    random = np.random.RandomState(None if flags.chance else 3)
    items = random.randint(0, 50, [64, 3])
    dataset = tf.data.Dataset.from_tensor_slices((items, (items[:, :1] % 2).astype(np.float32)))
    dataset = dataset.shuffle(64).repeat().batch(params.get("batch_size", 8), True)
    return dataset.map(lambda x, y: ({"item": tf.sparse.from_dense(x + 0)}, y))


if flags.out:
    RECORDS = os.path.join(flags.out, "train.tf_record")
    write_records(RECORDS)


class Fail(tf.train.SessionRunHook):
    def __init__(self):
        self.step = 0

    def after_run(self, run_context, run_values):
        self.step += 1
        if self.step == flags.fail:
            raise ValueError("the program's own failure")


def optimizers():
    if flags.optimizer == "adam":
        return tf.train.AdamOptimizer(flags.rate), tf.tpu.experimental.AdamParameters(flags.rate)
    return (
        tf.train.GradientDescentOptimizer(flags.rate),
        tf.tpu.experimental.StochasticGradientDescentParameters(flags.rate),
    )


def model_fn(features, labels, mode, params):
    if flags.plain:
        table = tf.get_variable("table", [50, 4])
        net = tf.nn.embedding_lookup_sparse(table, features["item"], None, combiner="mean")
    else:
        net = tf.keras.layers.DenseFeatures(column)(features)
    weights = tf.get_variable("weights", [4, 1])
    logits = net @ weights
    if mode == tf_estimator.ModeKeys.PREDICT:
        return tpu_estimator.TPUEstimatorSpec(mode, predictions={"logits": logits})
    loss = tf.losses.sigmoid_cross_entropy(labels, logits)
    metrics = (lambda y, x: {"mae": tf.metrics.mean_absolute_error(y, x)}, [labels, logits])
    step = tf.train.get_global_step()
    hooks = [Fail()] if flags.fail else []
    train_op = optimizers()[0].minimize(loss, step)
    if flags.plain:
        metrics = metrics[0](*metrics[1])
        return tf_estimator.EstimatorSpec(
            mode, loss=loss, train_op=train_op, eval_metric_ops=metrics
        )
    return tpu_estimator.TPUEstimatorSpec(
        mode, loss=loss, train_op=train_op, eval_metrics=metrics, training_hooks=hooks
    )


if flags.plain:
    config = tf_estimator.RunConfig(flags.model_dir, save_checkpoints_steps=3)
    estimator = tf_estimator.Estimator(
        lambda features, labels, mode: model_fn(features, labels, mode, {}), config=config
    )
    tf_estimator.train_and_evaluate(
        estimator,
        tf_estimator.TrainSpec(lambda: input_fn({}), max_steps=1000),
        tf_estimator.EvalSpec(lambda: input_fn({}), steps=2, throttle_secs=0),
    )
    sys.exit(0)
estimator = tpu_estimator.TPUEstimator(
    model_fn,
    config=tpu_estimator.RunConfig(model_dir=flags.model_dir),
    use_tpu=False,
    train_batch_size=8,
    eval_batch_size=8,
    predict_batch_size=8,
    embedding_config_spec=tpu_estimator.experimental.EmbeddingConfigSpec(
        feature_columns=[column], optimization_parameters=optimizers()[1], clipping_limit=flags.clip
    ),
)
for _ in range(flags.calls):
    estimator.train(input_fn, steps=max(1, 1000 // flags.calls))
    estimator.evaluate(input_fn, steps=2)
for count, _ in enumerate(estimator.predict(input_fn)):
    if count == 9:
        break
if flags.out:

    def receive():
        items = {"item": tf.sparse.placeholder(tf.int64, [None, 3])}
        return tf_estimator.export.ServingInputReceiver(items, items)

    exported = estimator.export_saved_model(os.path.join(flags.out, "export"), receive)
    with tf.Graph().as_default(), tf.Session() as session:
        tf.saved_model.load(session, ["serve"], exported)
sys.exit(0)
