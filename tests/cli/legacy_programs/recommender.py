"""A recommender in the style of 2020: TPU feature columns, with tables on embedding hardware."""

import argparse

import numpy as np
import tensorflow as tf
from tensorflow.contrib import cluster_resolver as contrib_cluster_resolver
from tensorflow.contrib import summary
from tensorflow.contrib.tpu.python.tpu import async_checkpoint
from tensorflow.contrib.tpu.python.tpu import tpu_config  # pylint: disable=g-import-not-at-top
from tensorflow.python.estimator import estimator as estimator_lib
from tensorflow.python.tpu import tpu_embedding  # the configs' module

try:
    from tensorflow.contrib import tpu as contrib_tpu
except ImportError:
    from tensorflow.compat.v1.estimator import tpu as contrib_tpu

tf1 = tf.compat.v1
tpu_columns = tf1.tpu.experimental
USERS, ITEMS = 40, 30


def make_columns(tf1=tf1):
    user = tf1.feature_column.categorical_column_with_identity("user", USERS)
    item = tf1.feature_column.categorical_column_with_identity("item", ITEMS)
    seen = tf1.feature_column.categorical_column_with_identity("seen", ITEMS)
    return [
        tpu_columns.embedding_column(user, dimension=4, combiner="sum"),
        *tpu_columns.shared_embedding_columns([item, seen], dimension=4),
    ]


def model_fn(features, labels, mode, params):
    feature_columns = params["columns"]
    with tf1.variable_scope("net"):
        net = tf1.keras.layers.DenseFeatures(feature_columns)(features)
        weights = tf1.get_variable("w", [12, 1], initializer=tf1.ones_initializer())
    logits = tf.matmul(net, weights)
    loss = tf1.losses.sigmoid_cross_entropy(labels, logits)
    if mode == tf.estimator.ModeKeys.EVAL:
        return contrib_tpu.TPUEstimatorSpec(
            mode, loss=loss, eval_metrics=(lambda x: {"mean": tf1.metrics.mean(x)}, [logits])
        )
    optimizer = tf1.tpu.CrossShardOptimizer(tf1.train.GradientDescentOptimizer(0.1))
    global_step = tf1.train.get_global_step()
    train_op = optimizer.minimize(loss, global_step)

    def host_call_fn(step, loss):
        with summary.create_file_writer(params["model_dir"], max_queue=10).as_default():
            with summary.always_record_summaries():
                summary.scalar("loss", loss[0], step=step[0])
                return summary.all_summary_ops()

    host_call = (host_call_fn, [tf.reshape(global_step, [1]), tf.reshape(loss, [1])])
    return contrib_tpu.TPUEstimatorSpec(mode, loss=loss, train_op=train_op, host_call=host_call)


def input_fn(params):
    draw = np.random.RandomState(0)
    features = {"user": draw.randint(0, USERS, [64, 1]), "item": draw.randint(0, ITEMS, [64, 1])}
    features["seen"] = draw.randint(0, ITEMS, [64, 3])
    labels = (features["user"] % 2).astype(np.float32)
    dataset = tf.data.Dataset.from_tensor_slices((features, labels)).repeat()

    def sparse(features, labels):
        return {key: tf.sparse.from_dense(value) for key, value in features.items()}, labels

    return dataset.batch(params["batch_size"], drop_remainder=True).map(sparse)


def main(model_dir):
    from tensorflow.compat.v1.estimator.tpu.experimental import EmbeddingConfigSpec

    assert tpu_embedding.TableConfig
    columns = make_columns()
    # Makes the tables deterministic, because their initializers have no seeds.
    tf1.set_random_seed(1)
    estimator = contrib_tpu.TPUEstimator(
        model_fn=model_fn,
        config=contrib_tpu.RunConfig(
            cluster=contrib_cluster_resolver.TPUClusterResolver("grpc://10.0.0.2:8470"),
            model_dir=model_dir,
            tf_random_seed=1,
            save_checkpoints_steps=None,
            save_checkpoints_secs=None,
            tpu_config=tpu_config.TPUConfig(
                2,
                per_host_input_for_training=contrib_tpu.InputPipelineConfig.PER_HOST_V2,
            ),
        ),
        params={"columns": columns, "model_dir": model_dir},
        use_tpu=True,
        train_batch_size=16,
        eval_batch_size=16,
        embedding_config_spec=EmbeddingConfigSpec(
            feature_columns=columns,
            optimization_parameters=tpu_columns.AdamParameters(0.1),
            partition_strategy="mod",
        ),
    )
    assert isinstance(estimator, estimator_lib.Estimator)
    hook = async_checkpoint.AsyncCheckpointSaverHook(checkpoint_dir=model_dir, save_steps=2)
    estimator.train(input_fn, max_steps=4, hooks=[hook])
    result = estimator.evaluate(input_fn, steps=2)
    print("recommender", sorted((key, float(result[key])) for key in result))


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--dir")
    main(parser.parse_args().dir)
