"""A model split over the cores of a TPU, in the style of mesh libraries of 2019.

Every core reads the whole batch, and computes the part of the hidden layer for its number.
"""

from absl import app
from absl import flags
import numpy as np
import tensorflow.compat.v1 as tf
from tensorflow.contrib import tpu as contrib_tpu
from tensorflow.python.tpu.ops import tpu_ops

FLAGS = flags.FLAGS
flags.DEFINE_string('model_dir', None, 'Where to save.')
flags.DEFINE_string('tpu', 'my-tpu', 'Name of the Cloud TPU.')
flags.DEFINE_integer('cores', 2, 'Number of cores, the size of the mesh.')
flags.DEFINE_integer('inputs', None, 'Numbers given to the cores; as many as cores by default.')

HIDDEN = 8


class SimdMesh(object):
  """Cores that each hold a slice of a dimension."""

  def __init__(self, size):
    self.size = size
    self._pnum_tensor = None

  @property
  def pnum_tensor(self):
    if self._pnum_tensor is None:
      with tf.control_dependencies(None):
        numbers = list(range(FLAGS.inputs or self.size))
        self._pnum_tensor = tpu_ops.tpu_replicated_input(numbers, name='pnum_constants')
    return self._pnum_tensor

  def slice(self, tensor, axis):
    length = tensor.shape[axis].value // self.size
    begin = [0] * tensor.shape.ndims
    begin[axis] = self.pnum_tensor * length
    size = tensor.shape.as_list()
    size[axis] = length
    return tf.slice(tensor, begin, size)

  def allreduce(self, tensor):
    return tpu_ops.cross_replica_sum(tensor, [list(range(self.size))])


def start(shape):
  values = np.cos(np.arange(np.prod(shape), dtype=np.float32)).reshape(shape)
  return tf.constant_initializer(values / 2)


def model_fn(features, labels, mode, params):
  mesh = SimdMesh(FLAGS.cores)
  with tf.variable_scope('dense'):
    w_in = tf.get_variable('w_in', [3, HIDDEN], initializer=start([3, HIDDEN]))
    w_out = tf.get_variable('w_out', [HIDDEN, 1], initializer=start([HIDDEN, 1]))
  hidden = tf.tanh(tf.matmul(features, mesh.slice(w_in, 1)))
  logits = mesh.allreduce(tf.matmul(hidden, mesh.slice(w_out, 0)))
  loss = tf.reduce_mean(tf.square(logits - labels))
  if mode == tf.estimator.ModeKeys.EVAL:
    # A value per core, not per sample.
    number = tf.reshape(tf.cast(mesh.pnum_tensor, tf.float32), [1])
    metric_fn = lambda number: {'numbers': tf.metrics.mean(number)}
    return contrib_tpu.TPUEstimatorSpec(mode, loss=loss, eval_metrics=(metric_fn, [number]))
  optimizer = contrib_tpu.CrossShardOptimizer(tf.train.GradientDescentOptimizer(0.1))
  train_op = optimizer.minimize(loss, tf.train.get_global_step())
  return contrib_tpu.TPUEstimatorSpec(mode, loss=loss, train_op=train_op)


def input_fn(params):
  x = np.sin(np.arange(24, dtype=np.float32)).reshape(8, 3)
  y = x.sum(1, keepdims=True)
  dataset = tf.data.Dataset.from_tensor_slices((x, y)).repeat()
  return dataset.batch(8, drop_remainder=True)


def main(_):
  tpu_config = contrib_tpu.TPUConfig(
    iterations_per_loop=2,
    num_shards=FLAGS.cores,
    per_host_input_for_training=contrib_tpu.InputPipelineConfig.BROADCAST,
  )
  config = contrib_tpu.RunConfig(
    master=FLAGS.tpu, model_dir=FLAGS.model_dir, tpu_config=tpu_config
  )
  estimator = contrib_tpu.TPUEstimator(
    model_fn, config=config, use_tpu=True, train_batch_size=8 * FLAGS.cores,
    eval_batch_size=8 * FLAGS.cores,
  )
  estimator.train(input_fn, max_steps=4)
  metrics = estimator.evaluate(input_fn, steps=1)
  print('metrics', metrics['global_step'], metrics['loss'], metrics['numbers'])


if __name__ == '__main__':
  app.run(main)
