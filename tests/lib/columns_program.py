"""A program with an embedding column, a shared column and a sequence column, for every mode."""

import harness
import numpy as np
import tensorflow as tf

import estimator_emb as ee
import feature_columns as fc

VOCABULARY = 20
DIMENSION = 3


def batches(count=6, batch=4, seed=0, longest_history=4):
    rng = np.random.default_rng(seed)

    def ids(longest):
        return harness.sparse(harness.random_ids(rng, VOCABULARY, batch, longest))

    made = []
    for _ in range(count):
        features = {
            "item": rng.integers(0, VOCABULARY, batch),
            "words": ids(4),
            "history": ids(longest_history),
            "age": rng.random([batch, 1]).astype(np.float32),
        }
        made.append((features, rng.random(batch).astype(np.float32)))
    return made


def columns(shared=DIMENSION, **options):
    """Returns the columns. `shared` is the shared table's dimension, `options` are the other's."""
    item = fc.categorical_column_with_identity("item", VOCABULARY)
    words = fc.categorical_column_with_identity("words", VOCABULARY)
    history = fc.sequence_categorical_column_with_identity("history", VOCABULARY)
    return [
        fc.embedding_column(item, DIMENSION, combiner="sum", **options),
        *fc.shared_embedding_columns(
            [words, history], shared, combiner="sqrtn", max_sequence_lengths=[0, 2]
        ),
    ]


def model_fn_of(tpu_columns, seen=None):
    def model_fn(features, labels, mode, params):
        if seen is not None:
            seen.append((dict(features), dict(params)))
        flat = fc.DenseFeatures([*tpu_columns[:2], fc.numeric_column("age")])(features)
        sequence, lengths = fc.SequenceFeatures(tpu_columns[2:])(features)
        hidden = tf.concat(
            [flat, tf.reduce_sum(sequence, 1), tf.cast(lengths, tf.float32)[:, None]], axis=1
        )
        start = tf.compat.v1.glorot_uniform_initializer(seed=3)
        output = tf.compat.v1.layers.dense(hidden, 1, kernel_initializer=start, name="output")[:, 0]
        if mode == ee.ModeKeys.PREDICT:
            return harness.served(mode, output=output, hidden=hidden)
        loss = tf.reduce_mean(tf.square(output - labels))
        optimizer = tf.compat.v1.train.AdagradOptimizer(0.1)
        metrics = (lambda output: {"mean_output": tf.compat.v1.metrics.mean(output)}, [output])
        return harness.minimized(mode, loss, optimizer=optimizer, eval_metrics=metrics)

    return model_fn


def make(model_dir, device=None, parameters=None, seen=None, **kwargs):
    tpu_columns = columns()
    spec = ee.EmbeddingConfigSpec(tpu_columns, parameters or ee.AdagradParameters(0.1))
    return harness.estimator(
        model_fn_of(tpu_columns, seen), spec, model_dir, device=device, **kwargs
    )
