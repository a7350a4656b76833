"""The names that the changes in mistakes.json use."""

import numpy as np
import tensorflow as tf
from program import MISSING, Program, v1  # noqa: F401 - The changes use these names.
from tensorflow.compiler.tf2xla.python import xla  # noqa: F401

import estimator_emb as ee  # noqa: F401
import feature_columns as fc

keras = tf.keras
COLUMNS = Program("").columns()


def item():
    return fc.categorical_column_with_identity("item", 5)


def pairs(loss):
    variables = v1.trainable_variables()
    return zip(tf.gradients(loss, variables), variables, strict=True)


def mapped(change):
    return lambda program, params: program.input_fn(params).map(change)


MADE = tf.constant([[1.0]])
"""A tensor that was made outside of model_fn."""


def with_layer(layer):
    """Makes the good program's logits, and adds a layer behind a variable."""

    def logits(program, features):
        x = features["age"] * v1.get_variable("scale", [1])
        return Program.logits(program, features) + layer(x)

    return logits


def set_weights(x):
    layer = keras.layers.Dense(1)
    y = layer(x)
    layer.set_weights([np.ones([1, 1]), np.zeros(1)])
    return y


def printed(x):
    tf.print(x)
    return x


def v1_dropout(x):
    return v1.layers.dropout(x)


def without_step(program, loss):
    return program.dense_optimizer().minimize(loss)


def compared(program, features):
    tf.equal(features["item"], 1.0)
    return Program.embeddings(program, features)
