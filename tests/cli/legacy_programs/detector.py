"""A detector in the style of 2019. It imports removed modules of tf.contrib, and uses some."""

import base64

from absl import app
from absl import flags
import numpy as np
import tensorflow as tf
from tensorflow.contrib import image as contrib_image
from tensorflow.contrib import quantize as contrib_quantize
from tensorflow.contrib import tpu as contrib_tpu
import tensorflow.contrib.tensorrt as trt
from tensorflow.contrib.cloud.python.ops import bigquery_reader_ops

try:
  from tensorflow.contrib import mixed_precision
except ImportError:
  mixed_precision = None

FLAGS = flags.FLAGS
flags.DEFINE_string('model_dir', None, 'Where to save.')
flags.DEFINE_integer('cores', 2, 'Number of cores.')
flags.DEFINE_bool('tensorrt', False, 'Serve by TensorRT.')
flags.DEFINE_bool('moving_average', True, 'Train with moving averages.')

BOXES = 2


class TpuBatchNormalization(tf.layers.BatchNormalization):
  """Averages the moments over the cores of a TPU."""

  def _moments(self, inputs, reduction_axes, keep_dims):
    mean, variance = super(TpuBatchNormalization, self)._moments(
      inputs, reduction_axes, keep_dims=keep_dims
    )
    shards = contrib_tpu.python.tpu.tpu_function.get_tpu_context().number_of_shards or 1
    if shards == 1:
      return mean, variance
    # The variance over all cores is the mean of squares minus the squared mean.
    square = contrib_tpu.cross_replica_sum(variance + tf.square(mean)) / shards
    mean = contrib_tpu.cross_replica_sum(mean) / shards
    return mean, square - tf.square(mean)


def backbone(images, is_training):
  values = np.cos(np.arange(3 * 3 * 2 * 4, dtype=np.float32)).reshape(3, 3, 2, 4)
  net = tf.layers.conv2d(
    images, 4, 3, use_bias=False, kernel_initializer=tf.constant_initializer(values)
  )
  net = TpuBatchNormalization(momentum=0.5, epsilon=1e-3, fused=False)(net, training=is_training)
  return tf.reduce_mean(tf.nn.relu(net), [1, 2])


def model_fn(features, labels, mode, params):
  is_training = mode == tf.estimator.ModeKeys.TRAIN
  net = backbone(features, is_training)
  kernel = np.sin(np.arange(4 * BOXES * 4, dtype=np.float32)).reshape(4, BOXES * 4)
  boxes = tf.layers.dense(net, BOXES * 4, kernel_initializer=tf.constant_initializer(kernel))
  loss = tf.losses.huber_loss(labels, tf.reshape(boxes, [-1, BOXES, 4]))
  if not is_training:
    metric_fn = lambda boxes: {'mean_box': tf.metrics.mean(boxes)}
    return contrib_tpu.TPUEstimatorSpec(mode, loss=loss, eval_metrics=(metric_fn, [boxes]))
  optimizer = tf.train.GradientDescentOptimizer(0.1)
  optimizer = contrib_tpu.CrossShardOptimizer(optimizer)
  if FLAGS.moving_average:
    optimizer = tf.contrib.opt.MovingAverageOptimizer(optimizer, average_decay=0.5)
  update_ops = tf.get_collection(tf.GraphKeys.UPDATE_OPS)
  with tf.control_dependencies(update_ops):
    train_op = optimizer.minimize(loss, tf.train.get_global_step())
  return contrib_tpu.TPUEstimatorSpec(mode, loss=loss, train_op=train_op)


def decoded(text):
  """Returns the pixels of an image in base64 text."""
  return np.fromstring(base64.decodestring(text), np.uint8).reshape(6, 6, 2)


def input_fn(params):
  pixels = (np.arange(8 * 72) * 7 % 251).astype(np.uint8).reshape(8, 6, 6, 2)
  texts = [base64.encodestring(one.tobytes()) for one in pixels]
  images = np.stack([decoded(text) for text in texts]).astype(np.float32) / np.float32(255)
  boxes = np.tile(np.linspace(0, 1, BOXES * 4).astype(np.float32), 8).reshape(8, BOXES, 4)
  turned = contrib_image.rotate(images, np.pi / 2)
  dataset = tf.data.Dataset.from_tensor_slices((turned, boxes)).repeat()
  return dataset.batch(params['batch_size'], drop_remainder=True)


def main(_):
  print('mixed precision', mixed_precision)
  if FLAGS.tensorrt:
    trt.create_inference_graph(None, ['boxes'])
  config = contrib_tpu.RunConfig(
    model_dir=FLAGS.model_dir,
    tpu_config=contrib_tpu.TPUConfig(iterations_per_loop=2, num_shards=FLAGS.cores),
  )
  estimator = contrib_tpu.TPUEstimator(
    model_fn, config=config, use_tpu=True, train_batch_size=8, eval_batch_size=8
  )
  estimator.train(input_fn, max_steps=4)
  metrics = estimator.evaluate(input_fn, steps=1)
  print('metrics', metrics['loss'], metrics['mean_box'], metrics['global_step'])


if __name__ == '__main__':
  app.run(main)
