# SPDX-License-Identifier: Apache-2.0
"""Sequences, and ids without combiner, through every input layer, forward and backward.

NumPy says what the activations and, after one step of SGD of rate 1, the tables must be. Other
columns are compared by `malformed` and, with stock tensorflow-estimator, by `beside_stock`.
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
SEQUENCES = {
    "list_sequence": fc.sequence_categorical_column_with_vocabulary_list("list_sequence", KNOWN),
    "sequence": fc.sequence_categorical_column_with_identity("sequence", len(WORDS)),
}
LIMIT = 3


def id_of(kind, word):
    """By plain Python; None for a word that counts for nothing."""
    number = WORDS.index(word)
    return number if kind == "sequence" or number < len(KNOWN) else None


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
    """A graph that looks batches of sequences up and trains one step on them."""

    def __init__(self, layer):
        columns = [
            fc.embedding_column(column, 2 + i, max_sequence_length=LIMIT)
            for i, column in enumerate(SEQUENCES.values())
        ]
        spec = ee.EmbeddingConfigSpec(columns, ee.StochasticGradientDescentParameters(1.0))
        with tf.Graph().as_default(), Cores().running():
            self.fed = {
                kind: tf.compat.v1.sparse_placeholder(
                    column.parse_example_spec[kind].dtype, [None] * 2
                )
                for kind, column in SEQUENCES.items()
            }
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

    def run(self, batch, start, gradient):
        """The model's input, and the tables after a step from `start`."""
        self.session.run(self.load, {self.values[kind]: table for kind, table in start.items()})
        numbers = [[WORDS.index(word) for word in row] for row in batch["sequence"]]
        fed = {
            self.gradient: gradient,
            self.fed["sequence"]: harness.sparse(numbers),
            self.fed["list_sequence"]: harness.sparse(batch["list_sequence"], object),
        }
        output, _ = self.session.run([self.output, self.step], fed)
        return output, self.session.run(self.tables)


model = functools.cache(Model)


@st.composite
def batches(draw):
    """Sequences of words by kind, as long as each other."""
    lengths = draw(st.lists(st.integers(0, 5), min_size=1, max_size=4))
    words = st.sampled_from(WORDS)
    return {
        kind: [draw(st.lists(words, min_size=n, max_size=n)) for n in lengths] for kind in SEQUENCES
    }


@pytest.mark.parametrize("layer", ["SequenceFeatures", "sequence_input_layer", "features"])
@settings
@hypothesis.given(batch=batches(), seed=st.integers(0, 99))
def test_sequences(layer, batch, seed):
    made, rng = model(layer), np.random.default_rng(seed)
    start = {
        kind: rng.normal(size=table.shape).astype(np.float32) for kind, table in made.tables.items()
    }
    samples = len(batch["sequence"])
    gradient = rng.normal(size=[samples, LIMIT, 5]).astype(np.float32)
    output, after = made.run(batch, start, gradient)
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
