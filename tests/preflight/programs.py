"""Programs to check: a DLRM-like model, and small models with an addition."""

import harness
import tensorflow as tf

import estimator_emb as ee

BATCH, REPLICAS = 128, 8


def input_fn(params):
    """Returns a dataset with 13 numbers per sample. For tables, also an id and a list of ids."""
    features = {"dense": tf.zeros([13])}
    if params["has_tables"]:
        features["user"] = tf.zeros([], tf.int64)
        features["history"] = tf.sparse.from_dense(tf.constant([3, 5], tf.int64))
    dataset = tf.data.Dataset.from_tensors((features, tf.zeros([1]))).repeat()
    return dataset.batch(params["batch_size"], drop_remainder=True)


def spec():
    users, items = (ee.TableConfig(rows, 16, combiner="mean") for rows in (1000, 5000))
    history = ee.FeatureConfig("items", max_sequence_length=4)
    return ee.EmbeddingConfigSpec(
        table_to_config_dict={"users": users, "items": items},
        feature_to_config_dict={"user": ee.FeatureConfig("users"), "history": history},
        optimization_parameters=ee.AdagradParameters(0.1),
    )


def layer(x, name, size):
    w = tf.compat.v1.get_variable(f"{name}/kernel", [x.shape[1], size])
    b = tf.compat.v1.get_variable(f"{name}/bias", [size], initializer=tf.zeros_initializer())
    return x @ w + b


def dlrm(features):
    """Returns logits [batch, 1] of a small DLRM."""
    x = tf.nn.relu(layer(features["dense"], "bottom_0", 64))
    x = tf.nn.relu(layer(x, "bottom_1", 16))
    pooled = tf.reduce_mean(features["history"], axis=1)
    vectors = tf.stack([x, features["user"], pooled], axis=1)
    pairs = tf.reshape(tf.matmul(vectors, vectors, transpose_b=True), [-1, 9])
    top = tf.nn.relu(layer(tf.concat([x, pairs], axis=1), "top_0", 64))
    return layer(top, "top_1", 1)


def linear(features):
    """Returns logits [batch, 1] of a linear model."""
    x = [features["dense"]]
    if "user" in features:
        x += [features["user"], tf.reduce_mean(features["history"], axis=1)]
    return layer(tf.concat(x, axis=1), "top", 1)


def model_fn_with(change=None, logits_of=linear, optimizer=None, **fields):
    """Returns a model_fn.

    Args:
      change: (logits, features) -> a tensor that is added to the loss.
      logits_of: features -> logits.
      optimizer: optimizer of the dense variables, instead of gradient descent over all cores.
      **fields: fields of the TPUEstimatorSpec, as functions of (logits, labels).
    """

    def model_fn(features, labels, mode, params):
        assert params["batch_size"] == BATCH // REPLICAS and params["use_tpu"]
        logits = logits_of(features)
        if mode == ee.ModeKeys.PREDICT:
            return ee.TPUEstimatorSpec(mode, predictions={"clicked": tf.sigmoid(logits)})
        loss = tf.reduce_mean(tf.nn.sigmoid_cross_entropy_with_logits(labels=labels, logits=logits))
        if change is not None:
            loss += change(logits, features)
        given = {key: value(logits, labels) for key, value in fields.items()}
        train_op = None
        if mode == ee.ModeKeys.TRAIN:
            descent = tf.compat.v1.train.GradientDescentOptimizer(0.1)
            used = optimizer or tf.compat.v1.tpu.CrossShardOptimizer(descent)
            train_op = used.minimize(loss, tf.compat.v1.train.get_global_step())
        return ee.TPUEstimatorSpec(mode, loss=loss, train_op=train_op, **given)

    return model_fn


def estimator(model_fn, use_tpu=True, embedding_config_spec=None, **tpu_config):
    tpu_config.setdefault("num_shards", REPLICAS)
    tpu_config.setdefault("per_host_input_for_training", ee.InputPipelineConfig.PER_HOST_V2)
    config = ee.RunConfig(tpu_config=ee.TPUConfig(**tpu_config))
    params = {"has_tables": embedding_config_spec is not None}
    return harness.configured(
        model_fn, embedding_config_spec, config, BATCH, params=params, use_tpu=use_tpu
    )


def to_number(x):
    return tf.strings.to_number(tf.strings.as_string(tf.stop_gradient(x)))


def shaped_by_values(logits, features):
    """Returns a term of the loss from tensors with shapes that depend on values."""
    values, _ = tf.unique(tf.cast(tf.reshape(logits, [-1]), tf.int32))
    chosen = tf.boolean_mask(logits, logits > 0)
    return tf.reduce_sum(chosen) + tf.cast(tf.reduce_sum(values), tf.float32)


def line(function, offset=1):
    """Returns the file and number of a line of a function."""
    code = function.__code__
    return f"{code.co_filename}:{code.co_firstlineno + offset}"
