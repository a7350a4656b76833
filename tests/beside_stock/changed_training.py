"""Programs that change how the model's optimizer trains. Here, the change does not reach tables.

    python changed_training.py

runs all programs under stock tensorflow-estimator, and prints {name: result} as JSON.
"""

import json
import tempfile
import types

import numpy as np
import tensorflow as tf

v1 = tf.compat.v1
RATE, LIMIT, SCALE, FACTOR, PENALTY = 0.5, 0.1, 128.0, 0.1, 0.1


def input_layer(features, column, **kwargs):
    return v1.feature_column.input_layer(features, [column], **kwargs)


def in_scope(layer=input_layer, **kwargs):
    def scoped(features, column):
        with v1.variable_scope("s", **kwargs):
            return layer(features, column)

    return scoped


def keras_layer(of=v1.keras.layers, **kwargs):
    return lambda features, column: of.DenseFeatures([column], **kwargs)(features)


def minimized(penalty=lambda: 0.0):
    return lambda optimizer, loss, step: optimizer.minimize(loss + penalty(), step)


def changing(change, scale=1.0):
    def train(optimizer, loss, step):
        computed = optimizer.compute_gradients(loss * scale)
        return optimizer.apply_gradients(change(computed), step)

    return train


def times(gradient, factor):
    if isinstance(gradient, tf.IndexedSlices):
        return tf.IndexedSlices(gradient.values * factor, gradient.indices, gradient.dense_shape)
    return gradient * factor


def clipped_together(computed):
    gradients, variables = zip(*computed, strict=True)
    return list(zip(v1.clip_by_global_norm(gradients, LIMIT)[0], variables, strict=True))


def averaged(optimizer, loss, step):
    train_op = optimizer.minimize(loss, step)
    with tf.control_dependencies([train_op]):
        return v1.train.ExponentialMovingAverage(0.5).apply(v1.trainable_variables())


def every_second(optimizer, loss, step):
    computed = optimizer.compute_gradients(loss)
    is_even = tf.equal(step % 2, 0)
    with tf.control_dependencies([is_even]):
        counted = v1.assign_add(step, 1)
    applied = v1.cond(is_even, lambda: optimizer.apply_gradients(computed), tf.no_op)
    return tf.group(applied, counted)


def decayed_by_hand(optimizer, loss, step):
    train_op = optimizer.minimize(loss, step)
    with tf.control_dependencies([train_op]):
        return tf.group(*[v.assign_sub(PENALTY * v) for v in v1.trainable_variables()])


_tape = []


def in_tape(features, column):
    _tape[:] = [tf.GradientTape()]
    _tape[0].__enter__()
    return input_layer(features, column)


def by_tape(optimizer, loss, step):
    _tape[0].__exit__(None, None, None)
    variables = v1.trainable_variables()
    return optimizer.apply_gradients(
        zip(_tape[0].gradient(loss, variables), variables, strict=True), step
    )


def by_gradients(optimizer, loss, step):
    variables = v1.trainable_variables()
    return optimizer.apply_gradients(
        zip(v1.gradients(loss, variables), variables, strict=True), step
    )


@tf.custom_gradient
def scaled(activations):
    return activations, lambda gradient: gradient * FACTOR


def l2(variable):
    return PENALTY * v1.reduce_sum(variable * variable)


def doubled(getter, *args, **kwargs):
    return 2.0 * getter(*args, **kwargs)


def only_dense(optimizer, loss, step):
    return optimizer.minimize(loss, step, [v for v in v1.trainable_variables() if v.op.name == "w"])


CASES = {
    "as it is": {},
    "layer trainable=False": {"layer": lambda f, c: input_layer(f, c, trainable=False)},
    "keras 1 trainable=False": {"layer": keras_layer(trainable=False)},
    "keras 2 trainable=False": {"layer": keras_layer(tf.keras.layers, trainable=False)},
    "scope regularizer": {
        "layer": in_scope(regularizer=l2),
        "train": minimized(v1.losses.get_regularization_loss),
    },
    "keras 1 scope regularizer": {
        "layer": in_scope(keras_layer(), regularizer=l2),
        "train": minimized(v1.losses.get_regularization_loss),
    },
    "penalty": {"train": minimized(lambda: v1.add_n([l2(v) for v in v1.trainable_variables()]))},
    "decay by hand": {"train": decayed_by_hand},
    "moving average": {"train": averaged},
    "clip_by_global_norm": {"train": changing(clipped_together)},
    "clip_by_norm": {"train": changing(lambda gs: [(tf.clip_by_norm(g, LIMIT), v) for g, v in gs])},
    "factor": {"train": changing(lambda gs: [(times(g, FACTOR), v) for g, v in gs])},
    "scaled loss": {"train": changing(lambda gs: [(times(g, 1 / SCALE), v) for g, v in gs], SCALE)},
    "every second step": {"train": every_second},
    "tape": {"layer": in_tape, "train": by_tape},
    "tf.gradients": {"train": by_gradients},
    "custom_getter": {"layer": in_scope(custom_getter=doubled)},
    "stop_gradient": {"layer": lambda f, c: tf.stop_gradient(input_layer(f, c))},
    "var_list": {"train": only_dense},
    "partitioner": {"layer": in_scope(partitioner=v1.fixed_size_partitioner(2))},
    "constraint": {"layer": in_scope(constraint=lambda v: tf.clip_by_value(v, -0.5, 0.5))},
}

# Advice of the docs page -> (the case it replaces, arguments that train the tables like stock).
INSTEAD = {
    "rate of 0": ("layer trainable=False", {"column": {"learning_rate_fn": lambda step: 0.0}}),
    "weight_decay_factor": (
        "scope regularizer",
        {
            "optimizer": {
                "weight_decay_factor": 2 * PENALTY,
                "multiply_weight_decay_factor_by_learning_rate": True,
            }
        },
    ),
    "multiplier": (
        "scaled loss",
        {
            **CASES["scaled loss"],
            "spec": {"experimental_gradient_multiplier_fn": lambda step: 1 / SCALE},
        },
    ),
    "custom gradient": (
        "factor",
        {**CASES["factor"], "layer": lambda f, c: scaled(input_layer(f, c))},
    ),
}


def run(api, layer=input_layer, train=None, column=None, optimizer=None, spec=None):
    """Trains a table of five rows for two steps, and returns the contents of the checkpoint.

    `column`, `optimizer` (of the table) and `spec` are arguments of these objects.
    """
    ids = tf.feature_column.categorical_column_with_identity("a", 5)
    ones = v1.constant_initializer(1.0)
    a = v1.tpu.experimental.embedding_column(ids, 2, initializer=ones, **(column or {}))

    sgd = api.StochasticGradientDescentParameters(RATE, **(optimizer or {}))

    def model_fn(features, labels, mode, params):
        weights = v1.get_variable("w", [2, 1], initializer=ones)
        loss = tf.reduce_mean(tf.square(tf.matmul(layer(features, a), weights) - labels))
        step = v1.train.get_global_step()
        train_op = (train or minimized())(v1.train.GradientDescentOptimizer(RATE), loss, step)
        return api.TPUEstimatorSpec(mode, loss=loss, train_op=train_op)

    def input_fn(params):
        ids = tf.SparseTensor([[n, 0] for n in range(4)], np.array([0, 1, 1, 3]), [4, 1])
        labels = np.array([[0.0], [1.0], [4.0], [2.0]], np.float32)
        return tf.data.Dataset.from_tensors(({"a": ids}, labels)).repeat()

    with tempfile.TemporaryDirectory() as model_dir:
        estimator = api.TPUEstimator(
            model_fn,
            config=api.RunConfig(model_dir=model_dir),
            use_tpu=False,
            train_batch_size=4,
            embedding_config_spec=api.EmbeddingConfigSpec([a], sgd, **(spec or {})),
        )
        estimator.train(input_fn, max_steps=2)
        names = sorted(set(estimator.get_variable_names()) - {"global_step"})
        (table,) = [name for name in names if name.endswith("/embedding_weights")]
        return {
            "names": names,
            "table": estimator.get_variable_value(table)[:, 0].tolist(),
            "w": estimator.get_variable_value("w")[0].tolist(),
        }


if __name__ == "__main__":
    stock = types.SimpleNamespace(
        TPUEstimator=v1.estimator.tpu.TPUEstimator,
        TPUEstimatorSpec=v1.estimator.tpu.TPUEstimatorSpec,
        RunConfig=v1.estimator.tpu.RunConfig,
        EmbeddingConfigSpec=v1.estimator.tpu.experimental.EmbeddingConfigSpec,
        StochasticGradientDescentParameters=v1.tpu.experimental.StochasticGradientDescentParameters,
    )
    print(json.dumps({name: run(stock, **case) for name, case in CASES.items()}))
