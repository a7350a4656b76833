"""A mistake for each registered check, with the part of its message that docs/errors.md lists.

The lines below [check action device] change the good program. On the page, … stands for any text.
"""

import numpy as np
import tensorflow as tf
import text_tables
from functions import COLUMNS, mapped, pairs  # noqa: F401 - The mistakes use these.
from program import Program, v1
from tensorflow.compiler.tf2xla.python import xla

import feature_columns as fc  # noqa: F401

keras = tf.keras
MADE = tf.constant([[1.0]])
"""A tensor that was made outside of model_fn."""


def with_layer(program, features, layer):
    """Returns the good program's logits, and adds a layer behind a variable."""
    x = features["age"] * v1.get_variable("scale", [1])
    return Program.logits(program, features) + layer(x)


def set_weights(x):
    layer = keras.layers.Dense(1)
    y = layer(x)
    layer.set_weights([np.ones([1, 1]), np.zeros(1)])
    return y


def printed(x):
    tf.print(x)
    return x


def normalized(x):
    return v1.layers.batch_normalization(x, training=True)


def numbered(x):
    return x * tf.cast(xla.replica_id(), tf.float32)


def penalized(x):
    return v1.layers.dense(x, 1, kernel_regularizer=keras.regularizers.l2(0.1))


def rounded(x):
    return tf.cast(tf.cast(v1.layers.dense(x, 1), tf.int32), tf.float32)


def v1_dropout(x):
    return v1.layers.dropout(x)


def without_step(program, loss):
    return program.dense_optimizer().minimize(loss)


def compared(program, features):
    tf.equal(features["item"], 1.0)
    return Program.embeddings(program, features)


ROWS = r"""
[input_values train cpu]
train.input_fn = lambda params: None
    must return a Dataset, or features and labels
[empty_training train cpu]
train.input_fn = lambda program, params: program.input_fn(params).take(0)
    input_fn yielded no batch
[evaluated_batches evaluate cpu]
evaluate.input_fn = lambda program, params: program.input_fn(params).take(0)
    input_fn yielded no batch
[sample_counts train host]
train.input_fn = mapped(lambda x, y: (x, y[:3]))
    : batch the dataset as a whole, with drop_remainder=True.
[missing_labels train cpu]
train.input_fn = mapped(lambda x, y: x)
    labels is None in mode
[activations_as_ids train cpu]
dicts = True
logits = lambda features: tf.nn.embedding_lookup(tf.ones([5, 1]), features['item'])
    are activations of embedding tables, not the ids
[compared_activations train cpu]
dicts = True
embeddings = compared
    as ids (op …), and in model_fn it is the activation
[unknown_columns train cpu]
spec.feature_columns = COLUMNS[:1]
embeddings = lambda features: fc.DenseFeatures(COLUMNS)(features)
    which are not in the EmbeddingConfigSpec: add them to its feature_columns.
[takes_params train cpu]
model_fn = lambda program, features, labels, mode: None
    does not include params argument
[wrong_optimizers train cpu]
train.input_fn = lambda program, params: program.input_fn(params).take(1)
train_op = lambda loss: keras.optimizers.AdamW(0.1).apply_gradients(pairs(loss))
    A Keras optimizer does not train in a model_fn
[model_errors train cpu]
logits = lambda features: features['ages']
    The features that model_fn is given are
[no_gradients train cpu]
loss = lambda logits, labels: tf.cast(tf.argmax(logits, 0)[0], tf.float32)
    No gradients provided for any variable
[model_values train cpu]
model_fn = lambda features, labels, mode, params: None
    model_fn should return an EstimatorSpec.
[core_numbers train cpu]
logits = lambda program, features: with_layer(program, features, numbered)
    is xla.replica_id(), which has no number here
[spread_labels train cpu]
loss = lambda logits, labels: tf.reduce_mean(tf.square(logits - labels[:, 0]))
    The loss of model_fn is of all pairs of samples
[learning_phase train cpu]
logits = lambda program, features: with_layer(program, features, keras.layers.Dropout(0.5))
    A layer that is called without training=
[given_weights train cpu]
logits = lambda program, features: with_layer(program, features, set_weights)
    that no training gets: Keras sets them in a session of its own
[reached_steps train cpu]
run = lambda program, action: [Program.run(program, action) for _ in range(2)]
    so max_steps=… is reached: nothing was trained.
[gradient_sums train host]
tpu.num_shards = 2
dense_optimizer = lambda: v1.train.AdagradOptimizer(0.1)
    the gradients of … are not summed over them
[unrun_updates train cpu]
logits = lambda program, features: with_layer(program, features, normalized)
    No step of this training updates
[unrun_updates train cpu]
logits = lambda program, features: with_layer(program, features, penalized)
    are part of no loss, so the regularizers have no effect
[unrun_updates train cpu]
logits = lambda program, features: with_layer(program, features, rounded)
    No gradient reaches
[learning_phase train cpu]
logits = lambda program, features: with_layer(program, features, v1_dropout)
    A layer that is called without training=
[unshown_calls train cpu]
logits = lambda program, features: with_layer(program, features, printed)
    tf.print prints nothing in a model_fn
[global_step train cpu]
train.input_fn = lambda program, params: program.input_fn(params).take(1)
train_op = without_step
    The train_op of model_fn does not increase the global step
[numbers_of_training train cpu]
features.age = [[0.1], [float('nan')], [0.3], [0.4]]
    loss during training. The batch of step … has
[numbers_of_evaluation evaluate cpu]
features.age = [[0.1], [float('nan')], [0.3], [0.4]]
    loss in an evaluation after step …: a batch has
[numbers_of_graph train cpu]
features.age = [[0.1], [float('nan')], [0.3], [0.4]]
    loss during training. The batch of step … has
[known_errors train cpu]
logits = lambda program, features: with_layer(program, features, lambda x: x + MADE)
    Each call of an estimator has a graph of its own
"""


def rows():
    """Yields the check, the action, the device, the changes and the phrase of each row."""
    for group in ROWS.split("\n[")[1:]:
        head, _, entry = group.partition("]\n")
        ((lines, phrase),) = text_tables.read(entry).items()
        assigned = (line.split(" = ", 1) for line in lines.splitlines())
        change = {
            place: eval(compile(value, __file__, "eval"), globals()) for place, value in assigned
        }
        yield *head.split(), change, phrase
