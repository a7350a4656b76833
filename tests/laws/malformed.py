"""Runs good and damaged batches through training steps, in its own process because it may die.

It prints a line before each case, so the last line names the case that died or hung, and a program
for each wrong result. Each configuration has a graph and a session.
"""

import contextlib
import functools
import os
import re
import signal
import sys

import features
import harness
import numpy as np
import tensorflow as tf
from features import Feature

import estimator_emb as ee
import feature_columns as fc
from estimator_emb.guards.call import Call, Runs
from estimator_emb.guards.watching import Watch

v1 = tf.compat.v1
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
FEATURES = [
    Feature(key="a_sparse", form="sparse"),
    Feature(key="b_sparse32", form="sparse", dtype=np.int32, known=False, combiner="sqrtn"),
    Feature(key="c_sequence32", form="sparse", dtype=np.int32, sequence=True),
    Feature(key="d_sequence", form="sparse", known=False, sequence=True),
    Feature(key="e_one32", form="one", dtype=np.int32),
    Feature(key="f_matrix", form="matrix", combiner="sum"),
    Feature(key="g_padded32", form="matrix", dtype=np.int32, sequence=True),
    Feature(key="h_ragged", form="ragged"),
    Feature(key="i_ragged_sequence32", form="ragged", dtype=np.int32, sequence=True),
    Feature(key="j_weighted32", form="sparse", dtype=np.int32, weighted=True),
    Feature(key="k_weighted", form="sparse", known=False, weighted=True, combiner="sqrtn"),
    Feature(key="l_weighted_matrix", form="matrix", weighted=True),
    Feature(key="m_weighted_ragged32", form="ragged", dtype=np.int32, weighted=True),
    Feature(key="n_words", form="sparse", dtype=object),
    Feature(key="o_word_sequence", form="sparse", dtype=object, sequence=True),
    Feature(key="p_word_matrix", form="matrix", dtype=object),
]


def column(feature):
    sequence, words = feature.sequence, feature.dtype is object
    prefix = "sequence_categorical_column_with" if sequence else "categorical_column_with"
    make = getattr(fc, f"{prefix}_{'vocabulary_list' if words else 'identity'}")
    categorical = make(feature.key, features.WORDS if words else features.VOCABULARY)
    if feature.weighted:
        categorical = fc.weighted_categorical_column(categorical, f"{feature.key}_weights")
    length = features.LIMIT if sequence else 0
    options = {"combiner": feature.combiner, "max_sequence_length": length}
    return fc.embedding_column(categorical, DIMENSION, **options)


def placeholders(feature):
    """Returns placeholders for a feature's components, with known or unknown ranks."""
    make, ids = v1.placeholder, tf.as_dtype(feature.dtype)
    parts = {}
    for which, dtype in [("", ids), ("w_", tf.float32)][: 1 + feature.weighted]:
        parts[f"{which}values"] = make(dtype, [None, None] if feature.form == "matrix" else [None])
        if feature.form == "ragged":
            parts[f"{which}splits"] = make(tf.int64, [None])
        if feature.form == "sparse":
            shapes = ([None], [None, 2], [2]) if feature.known else (None, None, None)
            parts[f"{which}values"] = make(dtype, shapes[0])
            parts[f"{which}indices"] = make(tf.int64, shapes[1])
            parts[f"{which}shape"] = make(tf.int64, shapes[2])
    return parts


def tensor_of(parts, which=""):
    """Returns the tensor of a feature's components, or of its weights' if `which` is "w_"."""
    values = parts[f"{which}values"]
    if f"{which}splits" in parts:
        return tf.RaggedTensor.from_row_splits(values, parts[f"{which}splits"], validate=False)
    if f"{which}indices" in parts:
        return tf.SparseTensor(parts[f"{which}indices"], values, parts[f"{which}shape"])
    return values


OF_DATASETS = ("SerializeSparse", "DeserializeSparse", "RaggedTensorToVariant")
"""Ops that pass a tensor through a dataset. Their own errors name no feature: docs/faults.md."""


class Program:
    """A training program, built as TPUEstimator builds it but with its own session."""

    def __init__(self, use_tpu, cores, deployment, bad_ids, native, part=slice(None)):
        os.environ["ESTIMATOR_EMB_NATIVE"] = str(int(native))
        tpu = {"bad_ids": bad_ids}
        if use_tpu:
            pipeline = getattr(ee.InputPipelineConfig, deployment)
            tpu |= {"device": "host", "num_shards": cores, "per_host_input_for_training": pipeline}
        self.fed, self.seen, self.drop = [], {}, bad_ids == "drop"
        # Strings do not reach a TPU.
        self.features = [one for one in FEATURES[part] if not use_tpu or one.dtype is not object]
        self.fixed, self.cores, self.datasets = use_tpu, cores, deployment == "PER_HOST_V2"
        config = ee.RunConfig(save_summary_steps=None, tpu_config=ee.TPUConfig(1, **tpu))
        sgd = ee.StochasticGradientDescentParameters(1.0)
        spec = ee.EmbeddingConfigSpec([column(feature) for feature in self.features], sgd)
        estimator = harness.configured(self.model_fn, spec, config, BATCH, use_tpu=use_tpu)
        graph = tf.Graph()
        with graph.as_default():
            estimator._create_and_assert_global_step(graph)
            read = estimator._get_features_and_labels_from_input_fn
            features, labels, _ = read(self.input_fn, ee.ModeKeys.TRAIN)
            spec = estimator._call_model_fn(features, labels, ee.ModeKeys.TRAIN, estimator.config)
            kernels = {op.type for op in graph.get_operations()} & {"HostTablesUpdate"}
            assert bool(kernels) == native
            graph._unfetchable_ops.clear()  # The session fetches from the model.
            self.step = spec.train_op
            hooks = [hook for hook in spec.training_hooks if hasattr(hook, "_initializers")]
            self.restart = [hook._initializers for hook in hooks]
            variables = v1.global_variables()
            self.variables = {one.op.name: one for one in variables}
            initial = [v1.global_variables_initializer(), v1.local_variables_initializer()]
            initial.append(v1.tables_initializer())
        self.session = v1.Session(graph=graph)
        self.session.run(initial)
        self.state = self.read()

    def input_fn(self, params):
        if not self.datasets:
            return self.placeholders(BATCH if self.fixed else None)
        batches = [self.placeholders(BATCH // self.cores) for _ in range(self.cores)]
        of_cores = map(tf.data.Dataset.from_tensors, batches)
        return functools.reduce(lambda first, second: first.concatenate(second), of_cores)

    def placeholders(self, size):
        """Returns features and labels of a batch."""
        parts = {one.key: placeholders(one) for one in self.features}
        given = {key: tensor_of(one) for key, one in parts.items()}
        weighted = [one.key for one in self.features if one.weighted]
        given |= {f"{key}_weights": tensor_of(parts[key], "w_") for key in weighted}
        labels = v1.placeholder(tf.float32, [size])
        self.fed.append((parts, labels))
        return given, labels

    def model_fn(self, features, labels, mode, params):
        loss = 0.0
        for key in [one.key for one in self.features]:
            activation = features[key]
            self.seen[key] = tf.identity(activation)
            slopes = tf.reshape(labels, [-1] + [1] * (activation.shape.rank - 1))
            loss += tf.reduce_sum(activation * slopes)
        # The gradients of these dense variables need no lookup.
        for name in ("bias", "scale"):
            loss += tf.reduce_sum(v1.get_variable(name, [3]))
        optimizer, reduction = v1.train.MomentumOptimizer(0.5, 0.9), v1.losses.Reduction.SUM
        return harness.minimized(mode, loss, optimizer=optimizer, reduction=reduction)

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
            by_dataset = error.op is not None and error.op.type in OF_DATASETS
            owner = "a dataset's " if by_dataset else ""
            return f"{owner}{type(error).__name__}: {error.message}"


def check(program, given, slopes):
    """Runs a step, and returns a description of a wrong result, or None."""
    size, rows, bad = len(slopes), {}, []
    for feature in program.features:
        of_each = [
            features.pairs_of(feature, batch[feature.key], size // len(given), program.drop)
            for batch in given
        ]
        if None in of_each:
            bad.append(feature.key)
        else:
            rows[feature.key] = sum(of_each, [])
    before = program.state
    got = program.run(given, slopes)
    program.state = after = program.read()
    if isinstance(got, str):
        for name, value in before.items():
            if not np.array_equal(after[name], value, equal_nan=True):
                return f"{name} changed, and then: {got}"
        if not bad:
            return f"an error for a good batch: {got}"
        if got.startswith("a dataset's InvalidArgumentError"):
            return None
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
    for feature in program.features:
        name = program.table(feature.key)
        activation, want = features.step(feature, rows[feature.key], before[name], slopes)
        for what, mine, right in (
            ("activation", got[feature.key], activation[:of_core]),
            ("table", after[name], want),
        ):
            if mine.shape != right.shape or not np.allclose(mine, right, rtol=1e-4, atol=1e-4):
                return f"the {what} of {feature.key} is {mine.tolist()}, not {right.tolist()}"
    return None


def generated(program, seed):
    """Returns batches with damage to a feature, their slopes, and what happened to which batch."""
    rng = np.random.default_rng(seed)
    size = BATCH if program.fixed else int(rng.integers(1, 6))
    count = program.cores if program.datasets else 1

    def good(feature):
        drawn = features.lists(feature, features.VOCABULARY, size // count, rng)
        return features.batch_of(feature, *drawn)

    given = [{one.key: good(one) for one in program.features} for _ in range(count)]
    number, happened = rng.integers(count), []
    target = program.features[rng.integers(len(program.features))]
    for _ in range(rng.integers(1, 3)):
        damage = features.DAMAGES[rng.integers(len(features.DAMAGES))]
        # Damage may need a part that other damage has removed.
        with contextlib.suppress(IndexError, ValueError):
            given[number][target.key] = damage(target, given[number][target.key], rng)
            happened.append(damage.__name__)
    return given, rng.normal(size=size).astype(np.float32), (number, target.key, happened)


REPEATS = """{wrong}. This program repeats it, with PYTHONPATH=tests/lib:tests/laws:

from numpy import array, float32, int32, int64, nan, inf

import malformed

program = malformed.Program(*{configuration})
batches, slopes, _ = malformed.generated(program, {seed})
# {happened}
batches[{number}][{key!r}] = {value}
print(malformed.check(program, batches, slopes))
"""


def cases(name, seeds, begins=lambda seed, happened: None, part=slice(None)):
    """Yields each seed with a program that repeats its wrong result, or with None.

    The program has the features FEATURES[part].
    """
    configuration = *CONFIGURATIONS[name], part
    program = Program(*configuration)
    for seed in seeds:
        given, slopes, (number, key, happened) = generated(program, seed)
        begins(seed, [key, *happened])
        wrong = check(program, given, slopes)
        if wrong:
            of_case = {"configuration": configuration, "seed": seed, "happened": happened}
            damaged = {"number": number, "key": key, "value": given[number][key]}
            wrong = REPEATS.format(wrong=wrong, **of_case, **damaged)
        yield seed, wrong


def main():
    configuration, *seeds = sys.argv[1:]

    def begins(seed, happened):
        print(f"seed {seed}: {happened}", flush=True)
        signal.alarm(A_CASE)

    for seed, wrong in cases(configuration, map(int, seeds), begins):
        if wrong:
            print(f"Seed {seed} is wrong: {wrong}")
