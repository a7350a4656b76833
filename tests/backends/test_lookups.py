# SPDX-License-Identifier: Apache-2.0
"""Every kind of column through every input layer, forward and backward, on random batches.

One graph for each layer and combiner holds all kinds of columns; TensorFlow's own lookup and NumPy
say what the activations and, after one step of SGD of rate 1, the tables must be.
"""

import functools

import harness
import hypothesis
import numpy as np
import pytest
import tensorflow as tf
from hypothesis import strategies as st

import estimator_emb as ee
import feature_columns as fc
from estimator_emb.spec.resolved import tables_of
from estimator_emb.step.cores import Cores
from estimator_emb.step.engine import TableStep

settings = hypothesis.settings(
    deadline=None,
    max_examples=10,
    suppress_health_check=[hypothesis.HealthCheck.function_scoped_fixture],
)
WORDS = ["ant", "bee", "cat", "dog", "eel", "fox"]
KNOWN = WORDS[:4]
NUMBERS = ("identity", "weighted", "sequence")
"""Kinds whose feature holds positions in WORDS; the others hold the words."""
KINDS = ("file", "hash", "identity", "list", "weighted")
SEQUENCES = ("list_sequence", "sequence")
LIMIT = 3


def categorical(kind, path):
    if kind == "identity":
        return fc.categorical_column_with_identity(kind, 6)
    if kind == "weighted":
        return fc.weighted_categorical_column(
            fc.categorical_column_with_identity(kind, 6), "weights"
        )
    if kind == "hash":
        return fc.categorical_column_with_hash_bucket(kind, 5)
    if kind == "list":
        return fc.categorical_column_with_vocabulary_list(kind, KNOWN)
    if kind == "file":
        path.write_text("\n".join(KNOWN))
        return fc.categorical_column_with_vocabulary_file(kind, str(path), num_oov_buckets=3)
    if kind == "sequence":
        return fc.sequence_categorical_column_with_identity(kind, 6)
    assert kind == "list_sequence"
    return fc.sequence_categorical_column_with_vocabulary_list(kind, KNOWN)


BUCKETS = {n: tf.strings.to_hash_bucket_fast(WORDS, n).numpy() for n in (3, 5)}


def id_of(kind, word):
    """By plain Python; None for a word that counts for nothing."""
    number = WORDS.index(word)
    if kind in NUMBERS:
        return number
    if kind == "hash":
        return BUCKETS[5][number]
    if number < len(KNOWN):
        return number
    return 4 + BUCKETS[3][number] if kind == "file" else None


def through(layer, columns, features):
    """What the model sees, columns side by side in the order of their names."""
    if layer == "DenseFeatures":
        return fc.DenseFeatures(columns)(features)
    if layer == "input_layer":
        return fc.input_layer(features, columns)
    if layer == "SequenceFeatures":
        return fc.SequenceFeatures(columns)(features)[0]
    if layer == "sequence_input_layer":
        return fc.sequence_input_layer(features, columns)[0]
    assert layer == "features"
    return tf.concat([features[one.get_feature_key_name()] for one in columns], axis=-1)


def initializers():
    return [
        tf.compat.v1.global_variables_initializer(),
        tf.compat.v1.local_variables_initializer(),
        tf.compat.v1.tables_initializer(),
    ]


class Model:
    """A graph that looks batches up and trains one step on them."""

    def __init__(self, layer, kinds, combiner, path):
        columns = [
            fc.embedding_column(
                categorical(kind, path),
                2 + i,
                combiner=combiner,
                max_sequence_length=LIMIT if kinds == SEQUENCES else 0,
            )
            for i, kind in enumerate(kinds)
        ]
        spec = ee.EmbeddingConfigSpec(columns, ee.StochasticGradientDescentParameters(1.0))
        with tf.Graph().as_default(), Cores().running():
            self.fed = {
                kind: tf.compat.v1.sparse_placeholder(
                    tf.int64 if kind in NUMBERS else tf.string, [None, None]
                )
                for kind in kinds
            }
            self.fed["weights"] = tf.compat.v1.sparse_placeholder(tf.float32, [None, None])
            tap = TableStep(spec, tables_of(spec), training=True).enqueue(self.fed)
            self.output = through(layer, columns, tap.features)
            self.gradient = tf.compat.v1.placeholder(tf.float32)
            optimizer = tf.compat.v1.train.GradientDescentOptimizer(1.0)
            train_op = optimizer.minimize(tf.reduce_sum(self.output * self.gradient))
            lookup = tap.create_tables()
            self.step = tf.group(train_op, lookup.apply_gradients())
            self.tables = {
                table.table.features[0].key: table.variables[0].weights for table in lookup.tables
            }
            self.values = {
                kind: tf.compat.v1.placeholder(tf.float32, table.shape)
                for kind, table in self.tables.items()
            }
            self.load = [table.assign(self.values[kind]) for kind, table in self.tables.items()]
            self.session = tf.compat.v1.Session()
            self.session.run(initializers())

    def run(self, batch, weights, start, gradient):
        """The model's input, and the tables after a step from `start`."""
        self.session.run(self.load, {self.values[kind]: table for kind, table in start.items()})
        fed = {self.gradient: gradient, self.fed["weights"]: harness.sparse(weights, np.float32)}
        for kind, rows in batch.items():
            if kind in NUMBERS:
                numbers = [[WORDS.index(word) for word in row] for row in rows]
                fed[self.fed[kind]] = harness.sparse(numbers)
            else:
                fed[self.fed[kind]] = harness.sparse(rows, object)
        output, _ = self.session.run([self.output, self.step], fed)
        return output, self.session.run(self.tables)


@functools.cache
def model(layer, kinds, combiner, folder):
    return Model(layer, kinds, combiner, folder / f"{layer}-{combiner}")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    yield tmp_path_factory.mktemp("vocabularies")
    model.cache_clear()


def drawn(data, kinds, tables, same_length=False):
    """A batch by kind, its weights, tables to start from, and a generator of more numbers."""
    words = st.sampled_from(WORDS)
    batch_size = data.draw(st.integers(1, 4), "batch")
    lengths = [data.draw(st.integers(0, 5)) for _ in range(batch_size)]
    batch = {}
    for kind in kinds:
        batch[kind] = [
            data.draw(
                st.lists(words, min_size=n if same_length else 0, max_size=n if same_length else 4),
                kind,
            )
            for n in lengths
        ]
    rng = np.random.default_rng(data.draw(st.integers(0, 99), "seed"))
    weights = [rng.uniform(0.2, 3, len(row)) for row in batch.get("weighted", [[]])]
    start = {
        kind: rng.normal(size=table.shape).astype(np.float32) for kind, table in tables.items()
    }
    return batch, weights, start, rng


def by_tensorflow(table, pairs, combiner, gradient):
    """Activation and table gradient of `safe_embedding_lookup_sparse` for (id, weight) lists."""
    ids = tf.SparseTensor(*harness.sparse([[i for i, _ in row] for row in pairs]))
    weights = tf.SparseTensor(*harness.sparse([[w for _, w in row] for row in pairs], np.float32))
    table = tf.Variable(table)
    with tf.GradientTape() as tape:
        activation = tf.nn.safe_embedding_lookup_sparse(table, ids, weights, combiner=combiner)
        loss = tf.reduce_sum(activation * gradient)
    return activation.numpy(), tf.convert_to_tensor(tape.gradient(loss, table)).numpy()


def by_numpy(table, pairs, combiner, gradient):
    activation, slope = np.zeros([len(pairs), table.shape[1]]), np.zeros(table.shape)
    for sample, row in enumerate(pairs):
        weights = np.array([w for _, w in row])
        normaliser = {
            "sum": 1.0,
            "mean": weights.sum(),
            "sqrtn": np.sqrt(np.square(weights).sum()),
        }[combiner]
        for i, weight in row:
            activation[sample] += weight / normaliser * table[i]
            slope[i] += weight / normaliser * gradient[sample]
    return activation, slope


@pytest.mark.slow
@pytest.mark.parametrize(
    ("layer", "combiner"),
    [
        pytest.param(
            layer,
            combiner,
            marks=[] if layer == "features" or combiner == "mean" else pytest.mark.slow,
        )
        for layer in ("DenseFeatures", "input_layer", "features")
        for combiner in ("mean", "sum", "sqrtn")
    ],
)
@settings
@hypothesis.given(data=st.data())
def test_combined(layer, combiner, folder, data):
    made = model(layer, KINDS, combiner, folder)
    batch, weights, start, rng = drawn(data, KINDS, made.tables)
    gradients = {
        kind: rng.normal(size=[len(batch[kind]), 2 + i]).astype(np.float32)
        for i, kind in enumerate(KINDS)
    }
    output, after = made.run(
        batch, weights, start, np.concatenate([gradients[kind] for kind in KINDS], axis=1)
    )
    parts = np.split(output, np.cumsum([2 + i for i in range(len(KINDS))])[:-1], axis=1)
    for kind, part in zip(KINDS, parts, strict=True):
        pairs = []
        for sample, row in enumerate(batch[kind]):
            of_row = weights[sample] if kind == "weighted" else np.ones(len(row))
            found = [(id_of(kind, word), w) for word, w in zip(row, of_row, strict=True)]
            pairs.append([(i, w) for i, w in found if i is not None])
        for formula in (by_tensorflow, by_numpy):
            activation, slope = formula(start[kind], pairs, combiner, gradients[kind])
            np.testing.assert_allclose(part, activation, atol=1e-5, err_msg=kind)
            np.testing.assert_allclose(after[kind], start[kind] - slope, atol=1e-5, err_msg=kind)


@pytest.mark.parametrize("layer", ["SequenceFeatures", "sequence_input_layer", "features"])
@settings
@hypothesis.given(data=st.data())
def test_sequences(layer, folder, data):
    made = model(layer, SEQUENCES, "mean", folder)
    batch, weights, start, rng = drawn(data, SEQUENCES, made.tables, same_length=True)
    samples = len(batch["sequence"])
    gradient = rng.normal(size=[samples, LIMIT, 5]).astype(np.float32)
    output, after = made.run(batch, weights, start, gradient)
    for kind, columns in zip(SEQUENCES, (slice(0, 2), slice(2, 5)), strict=True):
        want, slope = np.zeros([samples, LIMIT, len(range(5)[columns])]), np.zeros_like(start[kind])
        for sample, row in enumerate(batch[kind]):
            for position, word in enumerate(row[:LIMIT]):
                i = id_of(kind, word)
                if i is not None:
                    want[sample, position] = start[kind][i]
                    slope[i] += gradient[sample, position, columns]
        np.testing.assert_allclose(output[..., columns], want, atol=1e-6, err_msg=kind)
        np.testing.assert_allclose(after[kind], start[kind] - slope, atol=1e-5, err_msg=kind)


def test_a_dense_column_without_combiner():
    """Combiner None: one id per sample, and id 0 is one."""
    column = fc.embedding_column(fc.categorical_column_with_identity("x", 5), 2, combiner=None)
    spec = ee.EmbeddingConfigSpec([column], ee.StochasticGradientDescentParameters(1.0))
    start = np.arange(10, dtype=np.float32).reshape(5, 2)
    gradient = np.array([[1, 2], [3, 4], [5, 6]], np.float32)
    for layer in ("DenseFeatures", "input_layer", "features"):
        with tf.Graph().as_default(), Cores().running():
            step = TableStep(spec, tables_of(spec), training=True)
            tap = step.enqueue({"x": tf.constant([0, 4, 0])})
            output = through(layer, [column], tap.features)
            loss = tf.reduce_sum(output * gradient)
            train_op = tf.compat.v1.train.GradientDescentOptimizer(1.0).minimize(loss)
            lookup = tap.create_tables()
            updated = tf.group(train_op, lookup.apply_gradients())
            weights = lookup.tables[0].variables[0].weights
            with tf.compat.v1.Session() as session:
                session.run(initializers())
                session.run(weights.assign(start))
                got, _ = session.run([output, updated])
                after = session.run(weights)
        np.testing.assert_array_equal(got, start[[0, 4, 0]])
        want = start.copy()
        want[0] -= [6, 8]
        want[4] -= [3, 4]
        np.testing.assert_array_equal(after, want)
