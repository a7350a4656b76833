"""A text-to-text trainer in the style of 2019, with summaries and branches for XLA."""

from __future__ import division

from absl import app
from absl import flags
import numpy as np
import tensorflow.compat.v1 as tf
from tensorflow.contrib import learn as contrib_learn
from tensorflow.contrib import summary as contrib_summary
from tensorflow.contrib import tpu as contrib_tpu
from tensorflow.contrib.framework import get_name_scope
from tensorflow.python.ops import control_flow_util

FLAGS = flags.FLAGS
flags.DEFINE_string('model_dir', None, 'Where to save.')
flags.DEFINE_string('tpu', '', 'Name of the Cloud TPU; none trains on the host.')
flags.DEFINE_integer('cores', 2, 'Number of cores.')

VOCABULARY, DEPTH = 12, 4


def is_xla_compiled():
  """Returns whether XLA will compile the current graph."""
  ctxt = tf.get_default_graph()._get_control_flow_context()
  return control_flow_util.GetContainingXLAContext(ctxt) is not None


def should_generate_summaries():
  name_scope = get_name_scope()
  if name_scope and 'while/' in name_scope:
    return False
  return not is_xla_compiled()


def gather(params, indices):
  """Gathers with an implementation that is fast on TPUs."""
  if not is_xla_compiled():
    return tf.gather(params, indices)
  return tf.tensordot(tf.one_hot(indices, VOCABULARY), params, axes=1)


def host_call_fn(step, loss):
  """Writes the mean of the losses since the last reset."""
  mean, update = tf.metrics.mean(loss, name='host_loss')
  with tf.control_dependencies([update]):
    value = tf.identity(mean)
  with contrib_summary.create_file_writer(FLAGS.model_dir + '/host').as_default():
    with contrib_summary.always_record_summaries():
      contrib_summary.scalar('mean_loss', value, step=tf.cast(step[0], tf.int64))
  with tf.control_dependencies(contrib_summary.all_summary_ops()):
    reset = tf.variables_initializer(tf.local_variables('host_loss'))
  return [value, reset]


def model_fn(features, labels, mode, params):
  print('compiled', mode, is_xla_compiled())
  values = np.sin(np.arange(VOCABULARY * DEPTH, dtype=np.float32)).reshape(VOCABULARY, DEPTH)
  with tf.variable_scope('symbol_modality'):
    table = tf.get_variable('weights', [VOCABULARY, DEPTH],
                            initializer=tf.constant_initializer(values))
  hidden = tf.reduce_mean(gather(table, features['inputs']), axis=1)
  logits = tf.matmul(hidden, table, transpose_b=True)
  if should_generate_summaries():
    tf.summary.histogram('hidden', hidden)
  if mode == contrib_learn.ModeKeys.INFER:
    # Also returns the mean of each core, beside the outputs of its samples.
    predictions = {'outputs': tf.argmax(logits, 1), 'mean': tf.reduce_mean(hidden)[None]}
    return contrib_tpu.TPUEstimatorSpec(mode, predictions=predictions)
  loss = tf.losses.sparse_softmax_cross_entropy(labels, logits)
  averages = tf.train.ExponentialMovingAverage(0.5)
  if mode == contrib_learn.ModeKeys.EVAL:
    metric_fn = lambda labels, logits: {
      'accuracy': tf.metrics.accuracy(labels, tf.argmax(logits, 1))
    }
    scaffold_fn = lambda: tf.train.Scaffold(
      saver=tf.train.Saver(averages.variables_to_restore())
    )
    return contrib_tpu.TPUEstimatorSpec(
      mode, loss=loss, eval_metrics=(metric_fn, [labels, logits]), scaffold_fn=scaffold_fn
    )
  optimizer = tf.train.AdamOptimizer(0.05)
  if FLAGS.tpu:
    optimizer = contrib_tpu.CrossShardOptimizer(optimizer)
  train_op = optimizer.minimize(loss, tf.train.get_global_step())
  with tf.control_dependencies([train_op]):
    train_op = averages.apply(tf.trainable_variables())
  step = tf.reshape(tf.train.get_global_step(), [1])
  return contrib_tpu.TPUEstimatorSpec(
    mode, loss=loss, train_op=train_op,
    host_call=(host_call_fn, [step, tf.reshape(loss, [1])]) if FLAGS.tpu else None,
  )


def input_fn(params):
  ids = np.arange(48).reshape(16, 3) * 5 % VOCABULARY
  dataset = tf.data.Dataset.from_tensor_slices(({'inputs': ids}, ids[:, 0])).repeat()
  return dataset.batch(params['batch_size'], drop_remainder=True)


def predict_input_fn(params):
  ids = np.arange(18).reshape(6, 3) % VOCABULARY
  return tf.data.Dataset.from_tensor_slices({'inputs': ids}).batch(params['batch_size'])


def main(_):
  config = contrib_tpu.RunConfig(
    master=FLAGS.tpu, model_dir=FLAGS.model_dir,
    tpu_config=contrib_tpu.TPUConfig(iterations_per_loop=2, num_shards=FLAGS.cores),
  )
  estimator = contrib_tpu.TPUEstimator(
    model_fn, config=config, use_tpu=bool(FLAGS.tpu), train_batch_size=8, eval_batch_size=8,
    predict_batch_size=4,
  )
  estimator.train(input_fn, max_steps=4)
  metrics = estimator.evaluate(input_fn, steps=2)
  print('metrics', metrics['loss'], metrics['accuracy'], metrics['global_step'])
  for batch in estimator.predict(predict_input_fn, yield_single_examples=False):
    print('predicted', batch['outputs'].tolist(), len(batch['mean']))


if __name__ == '__main__':
  app.run(main)
