"""legacy_tpu_binary.py after its move to estimator_emb, with only the necessary changes.

    python examples/modern_binary.py --model_dir=/tmp/clicks

Without --tpu it runs on the host and emulates a TPU.
"""

import numpy as np
import tensorflow.compat.v1 as tf
from absl import app, flags
from tensorflow.python.ops import summary_ops_v2 as contrib_summary

import estimator_emb as tf_estimator
import estimator_emb as tpu_estimator
from estimator_emb import AdagradParameters, EmbeddingConfigSpec

FLAGS = flags.FLAGS
flags.DEFINE_string("tpu", None, "Name of the Cloud TPU.")
flags.DEFINE_string("tpu_zone", None, "Zone of the Cloud TPU.")
flags.DEFINE_string("gcp_project", None, "Project of the Cloud TPU.")
flags.DEFINE_string("model_dir", None, "Where to save.", required=True)
flags.DEFINE_integer("train_batch_size", 256, "Examples per training step.")
flags.DEFINE_integer("eval_batch_size", 256, "Examples per evaluation step.")
flags.DEFINE_integer("train_steps", 600, "Steps to train.")
flags.DEFINE_integer("iterations_per_loop", 100, "Steps on the TPU between two calls of hooks.")
flags.DEFINE_float("learning_rate", 0.4, "Learning rate of the tables.")

USERS, ITEMS, HISTORY = 300, 400, 5
EXAMPLES, EVAL_EXAMPLES = 40000, 4096


def make_examples(count, seed):
    """Returns features and labels. Ids begin with 1, and 0 fills up the histories."""
    world, random = np.random.RandomState(0), np.random.RandomState(seed)
    eagerness, charm = world.normal(size=USERS + 1), 2 * world.normal(size=ITEMS + 1)
    charm[0] = 0
    user = random.randint(1, USERS + 1, size=count)
    item = random.randint(1, ITEMS + 1, size=count)
    history = random.randint(1, ITEMS + 1, size=(count, HISTORY))
    history[np.arange(HISTORY) >= random.randint(1, HISTORY + 1, size=(count, 1))] = 0
    hour = random.uniform(0.0, 1.0, size=(count, 1)).astype(np.float32)
    usual = charm[history].sum(axis=1) / (history > 0).sum(axis=1)
    odds = eagerness[user] + charm[item] - usual + 2 * (hour[:, 0] - 0.5)
    clicked = random.uniform(size=count) < 1 / (1 + np.exp(-odds))
    features = {"user": user[:, None], "item": item[:, None], "history": history, "hour": hour}
    return features, clicked.astype(np.float32)[:, None]


def make_input_fn(training):
    def input_fn(params):
        batch_size = params["batch_size"]
        _, call_index, num_calls, _ = params["context"].current_input_fn_deployment()
        features, labels = make_examples(
            EXAMPLES if training else EVAL_EXAMPLES, seed=1 if training else 2
        )
        dataset = tf.data.Dataset.from_tensor_slices((features, labels))
        dataset = dataset.shard(num_calls, call_index)
        if training:
            dataset = dataset.repeat()
        dataset = dataset.batch(batch_size, drop_remainder=True)

        def sparse(features, labels):
            ids = {key: tf.sparse.from_dense(features[key]) for key in ("user", "item", "history")}
            return {**features, **ids}, labels

        return dataset.map(sparse).prefetch(tf.data.experimental.AUTOTUNE)

    return input_fn


def make_columns():
    identity = tf.feature_column.categorical_column_with_identity
    user = tf.tpu.experimental.embedding_column(identity("user", USERS + 1), dimension=8)
    item, history = tf.tpu.experimental.shared_embedding_columns(
        [identity("item", ITEMS + 1), identity("history", ITEMS + 1)], dimension=8, combiner="mean"
    )
    return [user, item, history]


def model_fn(features, labels, mode, params):
    embedded = [tf.keras.layers.DenseFeatures(column)(features) for column in params["columns"]]
    net = tf.keras.layers.Input(tensor=tf.concat([*embedded, features["hour"]], axis=1))
    net = tf.keras.layers.Dense(
        32, activation="relu", kernel_initializer=tf.glorot_uniform_initializer()
    )(net)
    logits = tf.layers.dense(net, 1, kernel_initializer=tf.glorot_uniform_initializer())
    predictions = {"click": tf.sigmoid(logits)}

    if mode == tf_estimator.ModeKeys.PREDICT:
        outputs = {"serving_default": tf_estimator.export.PredictOutput(predictions)}
        return tpu_estimator.TPUEstimatorSpec(mode, predictions=predictions, export_outputs=outputs)

    loss = tf.losses.sigmoid_cross_entropy(labels, logits)

    if mode == tf_estimator.ModeKeys.EVAL:

        def metric_fn(labels, click):
            return {
                "accuracy": tf.metrics.accuracy(labels, tf.round(click)),
                "auc": tf.metrics.auc(labels, click),
            }

        return tpu_estimator.TPUEstimatorSpec(
            mode, loss=loss, eval_metrics=(metric_fn, [labels, predictions["click"]])
        )

    global_step = tf.train.get_global_step()
    optimizer = tf.tpu.CrossShardOptimizer(tf.train.AdamOptimizer(0.005))
    train_op = optimizer.minimize(loss, global_step)

    def host_call_fn(global_step, loss):
        step = global_step[0]
        writer = contrib_summary.create_file_writer(FLAGS.model_dir, max_queue=1000)
        with writer.as_default(), contrib_summary.always_record_summaries():
            contrib_summary.scalar("training/loss", tf.reduce_mean(loss), step=step)
            return tf.summary.all_v2_summary_ops()

    host_call = (host_call_fn, [tf.reshape(global_step, [1]), tf.reshape(loss, [1])])
    return tpu_estimator.TPUEstimatorSpec(mode, loss=loss, train_op=train_op, host_call=host_call)


def serving_input_fn():
    features = {
        key: tf.sparse_placeholder(tf.int64, name=key) for key in ("user", "item", "history")
    }
    features["hour"] = tf.placeholder(tf.float32, [None, 1], name="hour")
    return tf_estimator.export.ServingInputReceiver(features, features)


def main(argv):
    del argv
    tf.disable_v2_behavior()
    cluster = FLAGS.tpu and tf.distribute.cluster_resolver.TPUClusterResolver(
        FLAGS.tpu, zone=FLAGS.tpu_zone, project=FLAGS.gcp_project
    )
    columns = make_columns()
    config = tpu_estimator.RunConfig(
        cluster=cluster,
        model_dir=FLAGS.model_dir,
        tf_random_seed=1,
        save_checkpoints_steps=FLAGS.iterations_per_loop,
        tpu_config=tpu_estimator.TPUConfig(
            iterations_per_loop=FLAGS.iterations_per_loop,
            per_host_input_for_training=tpu_estimator.InputPipelineConfig.PER_HOST_V2,
            device="tpu" if FLAGS.tpu else "host",
        ),
    )
    estimator = tpu_estimator.TPUEstimator(
        model_fn=model_fn,
        config=config,
        params={"columns": columns},
        use_tpu=True,
        train_batch_size=FLAGS.train_batch_size,
        eval_batch_size=FLAGS.eval_batch_size,
        predict_batch_size=FLAGS.eval_batch_size,
        embedding_config_spec=EmbeddingConfigSpec(
            feature_columns=columns,
            optimization_parameters=AdagradParameters(FLAGS.learning_rate),
        ),
    )
    estimator.train(make_input_fn(training=True), max_steps=FLAGS.train_steps)
    result = estimator.evaluate(
        make_input_fn(training=False), steps=EVAL_EXAMPLES // FLAGS.eval_batch_size
    )
    print(
        f"step {result['global_step']}: loss {result['loss']:.6f}, "
        f"accuracy {result['accuracy']:.6f}, auc {result['auc']:.6f}"
    )
    clicks = [
        prediction["click"][0] for prediction in estimator.predict(make_input_fn(training=False))
    ]
    print(f"{len(clicks)} predictions, mean {np.mean(clicks):.6f}")
    path = estimator.export_saved_model(f"{FLAGS.model_dir}/export", serving_input_fn)
    print(f"SavedModel: {path.decode()}")


if __name__ == "__main__":
    app.run(main)
