"""A program with words and a sequence, on an emulated TPU with any number of cores."""

import functools

import harness
import numpy as np
import tensorflow as tf

import estimator_emb as ee
import feature_columns as fc

v1 = tf.compat.v1
PER_HOST = ee.InputPipelineConfig.PER_HOST_V1
VOCABULARY = 30
RNG = np.random.default_rng(5)
IDS = RNG.integers(0, VOCABULARY, [48, 3])
HISTORY = harness.random_ids(RNG, VOCABULARY, 48, 3)
AGES = RNG.random([48, 2]).astype(np.float32)
LABELS = RNG.random([48, 1]).astype(np.float32)

_OF_WORDS = fc.categorical_column_with_identity("words", VOCABULARY)
_OF_PAST = fc.sequence_categorical_column_with_identity("past", VOCABULARY)
_ROWS = harness.initializer(RNG.random([VOCABULARY, 4]).astype(np.float32))
_OPTIONS = {"combiner": "sqrtn", "initializer": _ROWS, "max_sequence_lengths": [0, 2]}
WORDS, PAST = fc.shared_embedding_columns([_OF_WORDS, _OF_PAST], 4, **_OPTIONS)
SPEC = ee.EmbeddingConfigSpec([WORDS, PAST], ee.AdamParameters(0.01, sum_inside_sqrt=False))


def examples(count=48):
    past = harness.sparse(HISTORY[:count])
    features = {"words": IDS[:count], "past": past, "ages": AGES[:count]}
    return tf.data.Dataset.from_tensor_slices((features, LABELS[:count]))


def model_fn(features, labels, mode, params):
    past, lengths = fc.SequenceFeatures([PAST])({**features})
    words = fc.DenseFeatures([WORDS])({"words": features["words"]})
    lengths = tf.cast(lengths, tf.float32)[:, None]
    hidden = tf.concat([words, tf.reduce_sum(past, axis=1), features["ages"], lengths], axis=1)
    glorot = functools.partial(v1.initializers.glorot_uniform, seed=1)
    hidden = v1.layers.dense(hidden, 5, tf.tanh, kernel_initializer=glorot())
    output = v1.layers.dense(hidden, 1, kernel_initializer=glorot())
    if mode == ee.ModeKeys.PREDICT:
        return ee.TPUEstimatorSpec(mode, predictions={"output": output, "words": words})
    loss = tf.reduce_mean(tf.square(output - labels))

    def metric_fn(labels, output):
        return {"error": v1.metrics.mean_absolute_error(labels, output)}

    optimizer, metrics = v1.train.AdagradOptimizer(0.1), (metric_fn, [labels, output])
    return harness.minimized(mode, loss, optimizer=optimizer, eval_metrics=metrics)


def make(
    model_fn, model_dir, cores, pipeline=PER_HOST, spec=None, batch=12, tpu=None, run=None, **more
):
    """Returns an estimator on an emulated TPU. `run` goes to RunConfig, `more` to TPUEstimator."""
    tpu = {"iterations_per_loop": 2, "per_host_input_for_training": pipeline, **(tpu or {})}
    run = {"tf_random_seed": 1, **(run or {})}
    return harness.estimator(model_fn, spec, model_dir, batch, "host", cores, run, tpu, **more)


def batches(params):
    return examples().repeat().batch(params["batch_size"], drop_remainder=True)


def without_labels(params):
    """Input for predict. The last batch is not full."""
    return examples(31).map(lambda features, _: features).batch(params["batch_size"])


def trained(
    model_dir,
    device,
    cores=1,
    model_fn=model_fn,
    spec=SPEC,
    input_fn=batches,
    steps=4,
    hooks=(),
    tpu=None,
    **more,
):
    """Trains, and returns the estimator and every variable of every checkpoint."""
    tpu = {**(tpu or {}), "device": device}
    run = {"save_checkpoints_steps": 1, "keep_checkpoint_max": None}
    estimator = make(model_fn, model_dir, cores, spec=spec, batch=16, tpu=tpu, run=run, **more)
    estimator.train(input_fn, max_steps=steps, hooks=list(hooks))
    return estimator, every_checkpoint(model_dir)


def every_checkpoint(model_dir):
    saved = {}
    for file in model_dir.rglob("model.ckpt-*.index"):
        step = file.stem.rpartition("-")[2]
        variables = harness.saved(file.parent, step)
        saved |= {f"{name} after step {step}": value for name, value in variables.items()}
    return saved
