"""An image model in the style of 2019 that imports each name of tf.contrib separately."""

from __future__ import absolute_import
from __future__ import division
from __future__ import print_function

from absl import app
from absl import flags
import numpy as np
import tensorflow.compat.v1 as tf
from tensorflow.contrib import summary
from tensorflow.contrib.tpu.python.tpu import async_checkpoint
from tensorflow.contrib.tpu.python.tpu import tpu_config  # pylint: disable=g-import-not-at-top
from tensorflow.contrib import cluster_resolver as contrib_cluster_resolver
from tensorflow.contrib import tpu as contrib_tpu
from tensorflow.python.estimator import estimator

FLAGS = flags.FLAGS
flags.DEFINE_string('model_dir', None, 'Where to save.')
flags.DEFINE_string('tpu', 'my-tpu', 'Name of the Cloud TPU.')

def resnet_model_fn(features, labels, mode, params):
  net = tf.layers.conv2d(
    features, 4, 3, kernel_initializer=tf.variance_scaling_initializer(seed=1)
  )
  net = tf.reduce_mean(tf.nn.relu(net), [1, 2])
  logits = tf.layers.dense(
    net, 3, kernel_initializer=tf.random_normal_initializer(stddev=0.01, seed=2)
  )
  if mode == tf.estimator.ModeKeys.PREDICT:
    return tf.estimator.EstimatorSpec(
      mode=mode,
      predictions={'classes': tf.argmax(logits, axis=1)},
      export_outputs={'classify': tf.estimator.export.PredictOutput(logits)},
    )
  loss = tf.losses.sparse_softmax_cross_entropy(labels, logits)
  global_step = tf.train.get_global_step()
  host_call = None
  train_op = None
  if mode == tf.estimator.ModeKeys.TRAIN:
    optimizer = contrib_tpu.CrossShardOptimizer(tf.train.MomentumOptimizer(0.05, 0.9))
    train_op = optimizer.minimize(loss, global_step)

    def host_call_fn(gs, loss):
      gs = gs[0]
      with summary.create_file_writer(FLAGS.model_dir, max_queue=10).as_default():
        with summary.always_record_summaries():
          summary.scalar('loss', loss[0], step=gs)
          return summary.all_summary_ops()

    host_call = (host_call_fn, [tf.reshape(global_step, [1]), tf.reshape(loss, [1])])
  return contrib_tpu.TPUEstimatorSpec(
    mode=mode, loss=loss, train_op=train_op, host_call=host_call
  )


def input_fn(params):
  draw = np.random.RandomState(0)
  images = draw.normal(size=[32, 6, 6, 3]).astype(np.float32)
  dataset = tf.data.Dataset.from_tensor_slices((images, np.arange(32) % 3)).repeat()
  return dataset.batch(params['batch_size'], drop_remainder=True)


def main(unused_argv):
  tpu_cluster_resolver = contrib_cluster_resolver.TPUClusterResolver(
    FLAGS.tpu, zone=None, project=None
  )
  config = contrib_tpu.RunConfig(
    cluster=tpu_cluster_resolver,
    model_dir=FLAGS.model_dir,
    tf_random_seed=1,
    save_checkpoints_steps=None,
    save_checkpoints_secs=None,
    tpu_config=tpu_config.TPUConfig(
      2, per_host_input_for_training=contrib_tpu.InputPipelineConfig.PER_HOST_V2
    ),
  )  # pylint: disable=line-too-long
  resnet_classifier = contrib_tpu.TPUEstimator(
    resnet_model_fn, config=config, train_batch_size=8, export_to_tpu=False
  )
  assert isinstance(resnet_classifier, estimator.Estimator)
  hooks = [
    async_checkpoint.AsyncCheckpointSaverHook(checkpoint_dir=FLAGS.model_dir, save_steps=2)
  ]
  resnet_classifier.train(input_fn=input_fn, max_steps=4, hooks=hooks)


if __name__ == '__main__':
  app.run(main)
