"""Runs generated batches through training steps, in its own process because it may die.

It prints a JSON line before each case, so the last line names the case that died or hung. It also
prints a line for each wrong result. Each configuration has a graph and a session.
"""

import contextlib
import functools
import json
import os
import re
import signal
import sys

import batches
import numpy as np
import tensorflow as tf

import estimator_emb as ee
import feature_columns as fc
from estimator_emb.guards.call import Call, Runs
from estimator_emb.guards.watching import Watch

DIMENSION = 4
CONFIGURATIONS = {
    # use_tpu, cores, deployment, bad_ids, native
    "host": (False, 1, None, "error", True),
    "host, TensorFlow's ops": (False, 1, None, "error", False),
    "host, dropping": (False, 1, None, "drop", True),
    "one core": (True, 1, "PER_HOST_V1", "error", True),
    "one core, TensorFlow's ops": (True, 1, "PER_HOST_V1", "error", False),
    "two cores": (True, 2, "PER_HOST_V1", "error", True),
    "two cores, TensorFlow's ops": (True, 2, "PER_HOST_V1", "error", False),
    "two cores, dropping": (True, 2, "PER_HOST_V1", "drop", False),
    "two cores with datasets": (True, 2, "PER_HOST_V2", "error", True),
    "two cores with datasets, TensorFlow's ops": (True, 2, "PER_HOST_V2", "error", False),
}
BATCH = 4
A_CASE = 1200
"""Timeout of a case in seconds."""


def column(kind):
    if kind.dtype is object:
        make = (
            fc.sequence_categorical_column_with_vocabulary_list
            if kind.sequence
            else fc.categorical_column_with_vocabulary_list
        )
        categorical = make(kind.key, batches.WORDS)
    elif kind.sequence:
        categorical = fc.sequence_categorical_column_with_identity(kind.key, batches.VOCABULARY)
    else:
        categorical = fc.categorical_column_with_identity(kind.key, batches.VOCABULARY)
    if kind.weighted:
        categorical = fc.weighted_categorical_column(categorical, f"{kind.key}_weights")
    return fc.embedding_column(
        categorical,
        DIMENSION,
        combiner=kind.combiner,
        max_sequence_length=batches.LIMIT if kind.sequence else 0,
    )


def placeholders(kind):
    """Returns a feature's values and its components by name, with known or unknown ranks."""
    dtype = tf.string if kind.dtype is object else tf.as_dtype(kind.dtype)
    value, parts = _placeholder(kind, dtype)
    features = {kind.key: value}
    if kind.weighted:
        value, of_weights = _placeholder(kind, tf.float32)
        features[f"{kind.key}_weights"] = value
        parts |= {f"w_{name}": tensor for name, tensor in of_weights.items()}
    return features, parts


def _placeholder(kind, dtype):
    make = tf.compat.v1.placeholder
    if kind.form == "ragged":
        value = tf.compat.v1.ragged.placeholder(dtype, 1)
        return value, {"values": value.values, "splits": value.row_splits}
    if kind.form == "sparse":
        shapes = ([None, 2], [None], [2]) if kind.known else (None, None, None)
        dtypes = (tf.int64, dtype, tf.int64)
        parts = [make(one, shape) for one, shape in zip(dtypes, shapes, strict=True)]
        value = tf.SparseTensor(*parts)
        return value, dict(zip(("indices", "values", "shape"), parts, strict=True))
    value = make(dtype, [None] if kind.form == "dense" else [None, None])
    return value, {"values": value}


class Program:
    """A training program, built as TPUEstimator builds it but with its own session."""

    def __init__(self, use_tpu, cores, deployment, bad_ids, native):
        os.environ["ESTIMATOR_EMB_NATIVE"] = str(int(native))
        tpu = {"bad_ids": bad_ids}
        if use_tpu:
            tpu |= {
                "device": "host",
                "num_shards": cores,
                "per_host_input_for_training": getattr(ee.InputPipelineConfig, deployment),
            }
        self.fed, self.seen = [], {}
        # Strings do not reach a TPU.
        self.kinds = [one for one in batches.KINDS if not use_tpu or one.dtype is not object]
        self.fixed, self.cores, self.datasets = use_tpu, cores, deployment == "PER_HOST_V2"
        estimator = ee.TPUEstimator(
            self.model_fn,
            config=ee.RunConfig(save_summary_steps=None, tpu_config=ee.TPUConfig(1, **tpu)),
            use_tpu=use_tpu,
            train_batch_size=BATCH,
            embedding_config_spec=ee.EmbeddingConfigSpec(
                [column(kind) for kind in self.kinds],
                ee.StochasticGradientDescentParameters(1.0),
            ),
        )
        graph = tf.Graph()
        with graph.as_default():
            estimator._create_and_assert_global_step(graph)
            features, labels, _ = estimator._get_features_and_labels_from_input_fn(
                self.input_fn, ee.ModeKeys.TRAIN
            )
            spec = estimator._call_model_fn(features, labels, ee.ModeKeys.TRAIN, estimator.config)
            kernels = {op.type for op in graph.get_operations()} & {"HostTablesUpdate"}
            assert bool(kernels) == native
            graph._unfetchable_ops.clear()  # The session fetches from the model.
            self.step = spec.train_op
            self.restart = [
                hook._initializers for hook in spec.training_hooks if hasattr(hook, "_initializers")
            ]
            variables = tf.compat.v1.global_variables()
            self.variables = {one.op.name: one for one in variables}
            initial = [
                tf.compat.v1.global_variables_initializer(),
                tf.compat.v1.local_variables_initializer(),
                tf.compat.v1.tables_initializer(),
            ]
        self.session = tf.compat.v1.Session(graph=graph)
        self.session.run(initial)
        self.state = self.read()

    def input_fn(self, params):
        if not self.datasets:
            return self.placeholders(BATCH if self.fixed else None)
        of_cores = [
            tf.data.Dataset.from_tensors(self.placeholders(BATCH // self.cores))
            for _ in range(self.cores)
        ]
        return functools.reduce(lambda first, second: first.concatenate(second), of_cores)

    def placeholders(self, size):
        """Returns features and labels of a batch."""
        features, parts = {}, {}
        for kind in self.kinds:
            of_kind, parts[kind.key] = placeholders(kind)
            features |= of_kind
        labels = tf.compat.v1.placeholder(tf.float32, [size])
        self.fed.append((parts, labels))
        return features, labels

    def model_fn(self, features, labels, mode, params):
        loss = 0.0
        for kind in self.kinds:
            activation = features[kind.key]
            self.seen[kind.key] = tf.identity(activation)
            slopes = tf.reshape(labels, [-1] + [1] * (activation.shape.rank - 1))
            loss += tf.reduce_sum(activation * slopes)
        # The gradients of these dense variables need no lookup.
        for name in ("bias", "scale"):
            loss += tf.reduce_sum(tf.compat.v1.get_variable(name, [3]))
        optimizer = tf.compat.v1.tpu.CrossShardOptimizer(
            tf.compat.v1.train.MomentumOptimizer(0.5, 0.9),
            reduction=tf.compat.v1.losses.Reduction.SUM,
        )
        train_op = optimizer.minimize(loss, tf.compat.v1.train.get_global_step())
        return ee.TPUEstimatorSpec(mode, loss=loss, train_op=train_op)

    def read(self):
        return self.session.run(self.variables)

    def table(self, key):
        (name,) = [one for one in self.state if re.search(rf"(^|/|tbl_){key}(_|/|$)", one)]
        return name

    def run(self, given, slopes):
        """Returns core 0's activations of a step, or the message of the step's error.

        `given` has a batch for all cores together, or a batch per core. `slopes` has a value for
        each sample.
        """
        feed = {}
        parts_of_slopes = np.split(slopes, len(given))
        for (parts, labels), batch, mine in zip(self.fed, given, parts_of_slopes, strict=True):
            feed[labels] = mine
            for key, value in batch.items():
                feed |= {parts[key][part]: one for part, one in value.items()}
        try:
            with Watch(Call(Runs.LOCAL, method="predict")).surround():
                if not self.datasets:
                    return self.session.run([self.seen, self.step], feed)[0]
                self.session.run(self.restart, feed)
                return self.session.run([self.seen, self.step])[0]
        except tf.errors.OpError as error:
            return f"{type(error).__name__}: {error.message}"


def check(program, given, slopes, drop):
    """Runs a step, and returns a description of a wrong result, or None."""
    size, rows, bad = len(slopes), {}, []
    for kind in program.kinds:
        of_each = [
            batches.pairs_of(kind, batch[kind.key], size // len(given), drop) for batch in given
        ]
        if None in of_each:
            bad.append(kind.key)
        else:
            rows[kind.key] = sum(of_each, [])
    before = program.state
    got = program.run(given, slopes)
    program.state = after = program.read()
    if isinstance(got, str):
        for name, value in before.items():
            if not np.array_equal(after[name], value, equal_nan=True):
                return f"{name} changed, and then: {got}"
        if not bad:
            return f"an error for a good batch: {got}"
        if not got.startswith("InvalidArgumentError"):
            return f"another error: {got}"
        if not any(re.search(rf"[Ff]eature {key}\b", got) for key in bad):
            return f"{bad} are bad, and the error names none of them: {got}"
        return None
    if bad:
        return f"trained with bad {bad}"
    if after["global_step"] != before["global_step"] + 1:
        return f"global step {before['global_step']} became {after['global_step']}"
    of_core = size // program.cores
    for kind in program.kinds:
        name = program.table(kind.key)
        activation, want = batches.step(kind, rows[kind.key], before[name], slopes)
        for what, mine, right in (
            ("activation", got[kind.key], activation[:of_core]),
            ("table", after[name], want),
        ):
            if mine.shape != right.shape or not np.allclose(mine, right, rtol=1e-4, atol=1e-4):
                return f"the {what} of {kind.key} is {mine.tolist()}, not {right.tolist()}"
    return None


def generated(program, rng):
    """Returns batches with changes to a feature, their slopes, and the names of the changes."""
    size = BATCH if program.fixed else int(rng.integers(1, 6))
    count = program.cores if program.datasets else 1
    given = [
        {kind.key: batches.whole(kind, size // count, rng) for kind in program.kinds}
        for _ in range(count)
    ]
    happened, batch = [], given[rng.integers(count)]
    target = program.kinds[rng.integers(len(program.kinds))]
    for _ in range(rng.integers(1, 3)):
        happening = batches.HAPPENINGS[rng.integers(len(batches.HAPPENINGS))]
        # A change may need a part that another change has removed.
        with contextlib.suppress(IndexError, ValueError):
            batch[target.key] = happening(target, batch[target.key], rng)
            happened.append(happening.__name__)
    return given, rng.normal(size=size).astype(np.float32), [target.key, *happened]


def cases(name, seeds, begins=lambda **about: None):
    """Yields each seed with a description of its wrong result, or None.

    Before each case it calls `begins` with the seed and the names of the changes.
    """
    configuration = CONFIGURATIONS[name]
    program = Program(*configuration)
    for seed in seeds:
        given, slopes, happened = generated(program, np.random.default_rng(seed))
        begins(seed=seed, happened=happened)
        wrong = check(program, given, slopes, configuration[3] == "drop")
        yield seed, wrong and f"{happened}: {wrong}"


def main():
    configuration, *seeds = sys.argv[1:]

    def begins(**about):
        print(json.dumps(about), flush=True)
        signal.alarm(A_CASE)

    for seed, wrong in cases(configuration, map(int, seeds), begins):
        if wrong:
            print(json.dumps({"seed": seed, "wrong": wrong}))
