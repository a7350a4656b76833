"""A DLRM training program, for `whole_step.py` and `profile_step.py`.

    python benchmarks/dlrm.py PEER BATCH

PEER 'ours' is `TPUEstimator` with an EmbeddingConfigSpec. 'PJRT, host' is the same with its model
on a PJRT device, by jax, and 'PJRT, device' has its tables there too. 'legacy' is
tensorflow-estimator's Estimator with feature_column.embedding_column and v1 Adagrad. 'no tables' is
that Estimator with given activations, and only adds a trained vector to each. All train the dense
layers of the reference DLRM for the Criteo data, with 26 tables of 100,000 x 16, on batches of
BATCH samples from tf.data.

After the warm-up it prints, as JSON, the seconds from the start of the process to the end of the
first step. Then it reads numbers of steps from stdin, each on its own line. For each it trains that
many steps, and prints the examples per second and the CPU milliseconds of a step.
"""

import functools
import os
import sys
import tempfile
import time

STARTED = time.time()

import tensorflow as tf  # noqa: E402
from dlrm_workload import (  # noqa: E402
    BOTTOM,
    DIMENSION,
    INITIAL_ACCUMULATOR,
    LEARNING_RATE,
    TABLES,
    TOP,
    VOCABULARY,
    Clock,
    pairs,
    samples,
)

KEYS = [f"c{table:02d}" for table in range(TABLES)]


def input_fn(params):
    batch = params["batch_size"]
    ids, numbers, labels = samples(batch)
    features = {**dict(zip(KEYS, ids, strict=True)), "numbers": numbers}
    dataset = tf.data.Dataset.from_tensor_slices((features, labels))
    return dataset.batch(batch, drop_remainder=True).cache().repeat().prefetch(2)


def loss_of(activations, numbers, labels):
    with tf.name_scope("dense"):

        def layers(x, sizes, name):
            for layer, size in enumerate(sizes):
                shape = [int(x.shape[1]), size]
                w = tf.compat.v1.get_variable(f"{name}{layer}/w", shape)
                b = tf.compat.v1.get_variable(
                    f"{name}{layer}/b", [size], initializer=tf.compat.v1.zeros_initializer()
                )
                x = tf.nn.relu(tf.matmul(x, w) + b)
            return x

        bottom = layers(numbers, BOTTOM, "bottom")
        vectors = tf.stack([bottom, *activations], axis=1)
        products = tf.matmul(vectors, vectors, transpose_b=True)
        flat = tf.reshape(products, [-1, (TABLES + 1) ** 2])
        x = layers(tf.concat([bottom, tf.gather(flat, pairs().tolist(), axis=1)], 1), TOP, "top")
        w = tf.compat.v1.get_variable("logits/w", [TOP[-1], 1])
        logits = tf.matmul(x, w)
        return tf.reduce_mean(tf.nn.sigmoid_cross_entropy_with_logits(labels=labels, logits=logits))


def train_op_of(loss, cores=1):
    optimizer = tf.compat.v1.train.AdagradOptimizer(LEARNING_RATE, INITIAL_ACCUMULATOR)
    if cores != 1:
        optimizer = tf.compat.v1.tpu.CrossShardOptimizer(optimizer)
    return optimizer.minimize(loss, tf.compat.v1.train.get_global_step())


def ours(folder, batch, session_config=None, device=None, tables=None, cores=1):
    import estimator_emb as ee

    def model_fn(features, labels, mode, params):
        loss = loss_of([features[key] for key in KEYS], features["numbers"], labels)
        return ee.TPUEstimatorSpec(mode, loss=loss, train_op=train_op_of(loss, cores))

    return ee.TPUEstimator(
        model_fn,
        config=ee.RunConfig(
            model_dir=folder,
            session_config=session_config,
            save_summary_steps=None,
            log_step_count_steps=None,
            tpu_config=ee.TPUConfig(1, num_shards=device and cores, device=device, tables=tables),
        ),
        use_tpu=device is not None,
        train_batch_size=batch,
        embedding_config_spec=ee.EmbeddingConfigSpec(
            feature_to_config_dict={key: ee.FeatureConfig(key) for key in KEYS},
            table_to_config_dict={key: ee.TableConfig(VOCABULARY, DIMENSION) for key in KEYS},
            optimization_parameters=ee.AdagradParameters(LEARNING_RATE, INITIAL_ACCUMULATOR),
        ),
    )


def on_estimator(folder, batch, loss_and_train_op_of):
    if not hasattr(tf, "estimator"):
        import estimator_emb as ee

        ee.install()
    lib = tf.estimator

    def model_fn(features, labels, mode, params):
        loss, train_op = loss_and_train_op_of(features, labels)
        return lib.EstimatorSpec(mode, loss=loss, train_op=train_op)

    return lib.Estimator(
        model_fn,
        config=lib.RunConfig(model_dir=folder, save_summary_steps=None, log_step_count_steps=None),
        params={"batch_size": batch},
    )


def trained(activations_of):
    """Returns a function from (features, labels) to (loss, train_op) of the DLRM."""

    def loss_and_train_op_of(features, labels):
        loss = loss_of(activations_of(features), features["numbers"], labels)
        return loss, train_op_of(loss)

    return loss_and_train_op_of


def legacy(folder, batch):
    def activations_of(features):
        activations = []
        for key in KEYS:
            column = tf.feature_column.embedding_column(
                tf.feature_column.categorical_column_with_identity(key, VOCABULARY), DIMENSION
            )
            ids = {key: tf.expand_dims(features[key], 1)}
            activations.append(tf.compat.v1.feature_column.input_layer(ids, column))
        return activations

    return on_estimator(folder, batch, trained(activations_of))


def no_tables(folder, batch):
    def activations_of(features):
        given = features["numbers"][:, :1]
        return [given + tf.compat.v1.get_variable(key, [DIMENSION]) for key in KEYS]

    return on_estimator(folder, batch, trained(activations_of))


class ClockHook(tf.compat.v1.train.SessionRunHook):
    """A hook that asks the clock after each step whether to go on."""

    def __init__(self, batch):
        self._clock = Clock(batch, STARTED, f"TensorFlow {tf.__version__}")

    def after_run(self, run_context, run_values):
        if not self._clock.goes_on():
            run_context.request_stop()


PEERS = {
    "ours": ours,
    "PJRT, host": functools.partial(ours, device="pjrt", tables="host"),
    "PJRT, device": functools.partial(ours, device="pjrt", tables="device"),
    "legacy": legacy,
    "no tables": no_tables,
}


def main() -> None:
    tf.compat.v1.logging.set_verbosity("ERROR")
    peer, batch = sys.argv[1], int(sys.argv[2])
    with tempfile.TemporaryDirectory(prefix="dlrm") as folder:
        PEERS[peer](folder, batch).train(input_fn, hooks=[ClockHook(batch)], max_steps=10**9)


if __name__ == "__main__":
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    main()
