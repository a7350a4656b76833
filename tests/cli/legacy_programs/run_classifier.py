# coding=utf-8
"""A classifier in the style of 2018: TensorFlow 1 as `import tensorflow as tf`, and tf.contrib."""

from __future__ import absolute_import
from __future__ import division
from __future__ import print_function

import numpy as np
import tensorflow as tf
from tensorflow.contrib.tpu.python.tpu import async_checkpoint
from tensorflow.contrib.tpu.python.tpu import tpu_config  # pylint: disable=g-import-not-at-top

flags = tf.flags

FLAGS = flags.FLAGS

flags.DEFINE_string("output_dir", None, "The output directory of the checkpoints.")
tf.flags.DEFINE_string("tpu_name", "my-tpu", "The Cloud TPU to use for training.")

WORDS, HIDDEN = 50, 8


def input_fn_builder(is_training):
  def input_fn(params):
    draw = np.random.RandomState(0)
    words = draw.randint(0, WORDS, [64, 6]).astype(np.int32)
    examples = (words, (words.sum(1) % 2).astype(np.int32))
    d = tf.data.Dataset.range(1).apply(
      tf.contrib.data.parallel_interleave(
        lambda _: tf.data.Dataset.from_tensor_slices(examples), sloppy=is_training, cycle_length=1
      )
    )
    if is_training:
      d = d.repeat()
    return d.apply(
      tf.contrib.data.map_and_batch(
        lambda ids, label: {"input_ids": ids, "label_ids": label},
        batch_size=params["batch_size"],
        drop_remainder=True,
      )
    )

  return input_fn


def create_model(input_ids, num_labels):
  table = tf.get_variable(
    "word_embeddings",
    [WORDS, HIDDEN],
    initializer=tf.truncated_normal_initializer(stddev=0.02, seed=1),
  )
  output = tf.reduce_mean(tf.nn.embedding_lookup(table, input_ids), axis=1)
  output = tf.contrib.layers.layer_norm(
    inputs=output, begin_norm_axis=-1, begin_params_axis=-1, scope=None
  )
  weights = tf.get_variable(
    "output_weights",
    [num_labels, HIDDEN],
    initializer=tf.contrib.layers.xavier_initializer(seed=2),
  )
  return tf.matmul(output, weights, transpose_b=True)


def model_fn_builder(learning_rate):
  def model_fn(features, labels, mode, params):  # pylint: disable=unused-argument
    logits = create_model(features["input_ids"], 2)
    loss = tf.losses.sparse_softmax_cross_entropy(features["label_ids"], logits)
    if mode == tf.estimator.ModeKeys.EVAL:

      def metric_fn(label_ids, logits):
        predictions = tf.argmax(logits, axis=-1, output_type=tf.int32)
        return {"eval_accuracy": tf.metrics.accuracy(label_ids, predictions)}

      return tf.contrib.tpu.TPUEstimatorSpec(
        mode=mode, loss=loss, eval_metrics=(metric_fn, [features["label_ids"], logits])
      )
    optimizer = tf.contrib.tpu.CrossShardOptimizer(tf.train.AdamOptimizer(learning_rate))
    train_op = optimizer.minimize(loss, tf.train.get_global_step())
    return tf.contrib.tpu.TPUEstimatorSpec(mode=mode, loss=loss, train_op=train_op)

  return model_fn


def main(_):
  tf.logging.set_verbosity(tf.logging.WARN)
  tf.gfile.MakeDirs(FLAGS.output_dir)
  run_config = tf.contrib.tpu.RunConfig(
    cluster=tf.contrib.cluster_resolver.TPUClusterResolver(FLAGS.tpu_name),
    model_dir=FLAGS.output_dir,
    tf_random_seed=1,
    save_checkpoints_steps=None,
    save_checkpoints_secs=None,
    tpu_config=tpu_config.TPUConfig(
      2,
      per_host_input_for_training=tf.contrib.tpu.InputPipelineConfig.PER_HOST_V2,
    ),
  )
  estimator = tf.contrib.tpu.TPUEstimator(
    model_fn=model_fn_builder(0.01),
    config=run_config,
    train_batch_size=8,
    eval_batch_size=8,
  )
  hook = async_checkpoint.AsyncCheckpointSaverHook(FLAGS.output_dir, save_steps=2)
  estimator.train(input_fn=input_fn_builder(True), max_steps=4, hooks=[hook])
  result = estimator.evaluate(input_fn=input_fn_builder(False), steps=2)
  print("classifier", sorted((key, float(result[key])) for key in result))


if __name__ == "__main__":
  flags.mark_flag_as_required("output_dir")
  tf.app.run()
