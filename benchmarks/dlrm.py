# SPDX-License-Identifier: Apache-2.0
"""A DLRM training program, for `whole_step.py` and `profile_step.py`.

    python benchmarks/dlrm.py PEER BATCH

PEER is 'ours', `TPUEstimator` with an EmbeddingConfigSpec; 'legacy', tensorflow-estimator's
Estimator with feature_column.embedding_column and v1 Adagrad; or 'no tables', that Estimator with
given activations, which only adds a trained vector to each. All train the dense layers of the
reference DLRM for the Criteo data, with 26 tables of 100,000 x 16, on batches of BATCH samples from
tf.data.

After the warm-up it prints, as JSON, the seconds from the start of the process to the end of the
first step. Then it reads numbers of steps from stdin, one in each line, trains for as many, and
prints the examples per second and the CPU milliseconds of a step.
"""

import json
import os
import resource
import sys
import tempfile
import time

STARTED = time.time()

import numpy as np  # noqa: E402
import tensorflow as tf  # noqa: E402

TABLES, VOCABULARY, DIMENSION, NUMBERS = 26, 100_000, 16, 13
BOTTOM, TOP = (512, 256, 64, DIMENSION), (512, 256)
KEYS = [f"c{table:02d}" for table in range(TABLES)]
WARM_UP = 10


def input_fn(params):
    samples = 16 * params["batch_size"]
    rng = np.random.default_rng(0)
    ids = np.minimum(rng.zipf(1.05, [TABLES, samples]), 2**62).astype(np.int64) % VOCABULARY
    features = dict(zip(KEYS, ids, strict=True))
    features["numbers"] = rng.normal(size=[samples, NUMBERS]).astype(np.float32)
    labels = (rng.random([samples, 1]) < 0.3).astype(np.float32)
    dataset = tf.data.Dataset.from_tensor_slices((features, labels))
    return dataset.batch(params["batch_size"], drop_remainder=True).cache().repeat().prefetch(2)


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
        lower = np.flatnonzero(np.tril(np.ones([TABLES + 1, TABLES + 1]), -1))
        flat = tf.reshape(products, [-1, (TABLES + 1) ** 2])
        x = layers(tf.concat([bottom, tf.gather(flat, lower.tolist(), axis=1)], 1), TOP, "top")
        w = tf.compat.v1.get_variable("logits/w", [TOP[-1], 1])
        logits = tf.matmul(x, w)
        return tf.reduce_mean(tf.nn.sigmoid_cross_entropy_with_logits(labels=labels, logits=logits))


def train_op_of(loss):
    optimizer = tf.compat.v1.train.AdagradOptimizer(0.01)
    return optimizer.minimize(loss, tf.compat.v1.train.get_global_step())


def ours(folder, batch, session_config=None):
    import estimator_emb as ee

    def model_fn(features, labels, mode, params):
        loss = loss_of([features[key] for key in KEYS], features["numbers"], labels)
        return ee.TPUEstimatorSpec(mode, loss=loss, train_op=train_op_of(loss))

    return ee.TPUEstimator(
        model_fn,
        config=ee.RunConfig(
            model_dir=folder,
            session_config=session_config,
            save_summary_steps=None,
            log_step_count_steps=None,
        ),
        use_tpu=False,
        train_batch_size=batch,
        embedding_config_spec=ee.EmbeddingConfigSpec(
            feature_to_config_dict={key: ee.FeatureConfig(key) for key in KEYS},
            table_to_config_dict={key: ee.TableConfig(VOCABULARY, DIMENSION) for key in KEYS},
            optimization_parameters=ee.AdagradParameters(0.01),
        ),
    )


def on_estimator(folder, batch, activations_of):
    if not hasattr(tf, "estimator"):
        import estimator_emb as ee

        ee.install()
    lib = tf.estimator

    def model_fn(features, labels, mode, params):
        loss = loss_of(activations_of(features), features["numbers"], labels)
        return lib.EstimatorSpec(mode, loss=loss, train_op=train_op_of(loss))

    return lib.Estimator(
        model_fn,
        config=lib.RunConfig(model_dir=folder, save_summary_steps=None, log_step_count_steps=None),
        params={"batch_size": batch},
    )


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

    return on_estimator(folder, batch, activations_of)


def no_tables(folder, batch):
    def activations_of(features):
        given = features["numbers"][:, :1]
        return [given + tf.compat.v1.get_variable(key, [DIMENSION]) for key in KEYS]

    return on_estimator(folder, batch, activations_of)


class Clock(tf.compat.v1.train.SessionRunHook):
    """A hook that times as many steps as stdin asks for, and ends training with its last line."""

    def __init__(self, batch):
        self.batch = batch

    def begin(self):
        self.left = WARM_UP + 1
        self.start = None

    def after_run(self, run_context, run_values):
        if self.start is None:
            self.start = time.time() - STARTED
        self.left -= 1
        if self.left:
            return
        if self.start:
            answer = {"start": self.start, "tensorflow": tf.__version__}
            self.start = 0
        else:
            wall, cpu = np.subtract(now(), self.since) / self.steps
            answer = {"examples": self.batch / wall, "cpu": cpu * 1e3}
        print(json.dumps(answer), flush=True)
        line = sys.stdin.readline()
        if not line:
            run_context.request_stop()
            return
        self.steps = self.left = int(line)
        self.since = now()


def now():
    """Returns seconds by the clock, and of CPU time of this process."""
    return time.perf_counter(), cpu_seconds()


def cpu_seconds():
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


PEERS = {"ours": ours, "legacy": legacy, "no tables": no_tables}


def main() -> None:
    tf.compat.v1.logging.set_verbosity("ERROR")
    peer, batch = sys.argv[1], int(sys.argv[2])
    with tempfile.TemporaryDirectory(prefix="dlrm") as folder:
        PEERS[peer](folder, batch).train(input_fn, hooks=[Clock(batch)])


if __name__ == "__main__":
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    main()
