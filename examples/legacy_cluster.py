"""A training program for parameter servers in the style of 2019, unchanged since.

If TF_CONFIG describes a cluster, `train_and_evaluate` runs each process as its task: the chief, a
worker, a parameter server or the evaluator. Without TF_CONFIG, a single process does everything.

    estimator-emb run examples/legacy_cluster.py --model_dir=/tmp/ratings
    estimator-emb cluster --workers=2 --ps=2 examples/legacy_cluster.py --model_dir=/tmp/ratings2

It learns which users like which items, from made-up data. Users are more or less easily pleased,
and items please more or less.
"""

import numpy as np
import tensorflow.compat.v1 as tf
from absl import app, flags
from tensorflow.compat.v1.estimator import tpu as tpu_estimator
from tensorflow.compat.v1.estimator.tpu.experimental import EmbeddingConfigSpec
from tensorflow.compat.v1.tpu.experimental import AdagradParameters

FLAGS = flags.FLAGS
flags.DEFINE_string("model_dir", None, "Where to save.", required=True)
flags.DEFINE_integer("train_batch_size", 256, "Examples per training step.")
flags.DEFINE_integer("eval_batch_size", 256, "Examples per evaluation step.")
flags.DEFINE_integer("train_steps", 1000, "Steps to train.")
flags.DEFINE_integer("save_checkpoints_steps", 500, "Steps between checkpoints.")
flags.DEFINE_float("learning_rate", 0.4, "Learning rate of the tables.")

USERS, ITEMS = 500, 800
EVAL_EXAMPLES = 4096


def make_examples(count, seed):
    world, random = np.random.RandomState(0), np.random.RandomState(seed)
    ease, charm = world.normal(size=USERS), 2 * world.normal(size=ITEMS)
    user, item = random.randint(USERS, size=count), random.randint(ITEMS, size=count)
    liked = random.uniform(size=count) < 1 / (1 + np.exp(-ease[user] - charm[item]))
    return {"user": user[:, None], "item": item[:, None]}, liked.astype(np.float32)[:, None]


def train_input_fn(params):
    # Each process shuffles differently.
    dataset = tf.data.Dataset.from_tensor_slices(make_examples(100000, seed=1))
    dataset = dataset.shuffle(100000).repeat()
    return dataset.batch(params["batch_size"], drop_remainder=True).prefetch(4)


def eval_input_fn(params):
    dataset = tf.data.Dataset.from_tensor_slices(make_examples(EVAL_EXAMPLES, seed=2))
    return dataset.batch(params["batch_size"], drop_remainder=True)


def make_columns():
    identity = tf.feature_column.categorical_column_with_identity
    return [
        tf.tpu.experimental.embedding_column(identity("user", USERS), dimension=8),
        tf.tpu.experimental.embedding_column(identity("item", ITEMS), dimension=8),
    ]


def model_fn(features, labels, mode, params):
    net = tf.feature_column.input_layer(features, params["columns"])
    net = tf.layers.dense(net, 32, activation=tf.nn.relu)
    logits = tf.layers.dense(net, 1)
    loss = tf.losses.sigmoid_cross_entropy(labels, logits)
    if mode == tf.estimator.ModeKeys.EVAL:

        def metric_fn(labels, logits):
            return {"auc": tf.metrics.auc(labels, tf.sigmoid(logits))}

        return tpu_estimator.TPUEstimatorSpec(
            mode, loss=loss, eval_metrics=(metric_fn, [labels, logits])
        )
    train_op = tf.train.AdamOptimizer(0.005).minimize(loss, tf.train.get_global_step())
    return tpu_estimator.TPUEstimatorSpec(mode, loss=loss, train_op=train_op)


def main(argv):
    del argv
    tf.disable_v2_behavior()
    columns = make_columns()
    estimator = tpu_estimator.TPUEstimator(
        model_fn=model_fn,
        config=tpu_estimator.RunConfig(
            model_dir=FLAGS.model_dir, save_checkpoints_steps=FLAGS.save_checkpoints_steps
        ),
        params={"columns": columns},
        use_tpu=False,
        train_batch_size=FLAGS.train_batch_size,
        eval_batch_size=FLAGS.eval_batch_size,
        embedding_config_spec=EmbeddingConfigSpec(
            feature_columns=columns,
            optimization_parameters=AdagradParameters(FLAGS.learning_rate),
        ),
    )
    tf.estimator.train_and_evaluate(
        estimator,
        tf.estimator.TrainSpec(train_input_fn, max_steps=FLAGS.train_steps),
        tf.estimator.EvalSpec(
            eval_input_fn,
            steps=EVAL_EXAMPLES // FLAGS.eval_batch_size,
            start_delay_secs=0,
            throttle_secs=1,
        ),
    )


if __name__ == "__main__":
    app.run(main)
