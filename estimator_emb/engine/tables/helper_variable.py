"""The variable that makes a program's optimizer compute the gradients of activations.

An optimizer differentiates with respect to the trainable variables. Each activation depends on the
helper variable. So the program computes the activation's gradient, and it can be captured.
"""

import logging

import tensorflow as tf

from estimator_emb.compat import custom_gradients
from estimator_emb.reporting import console

HELPER_VARIABLE = "tpu_embedding_dummy_table_variable"
"""Prefix of the helper variable's name. Programs use it to skip the legacy helper variable."""


def create() -> tf.Variable:
    """Creates the helper variable."""
    custom_gradients.find_local_variables()
    scope = tf.compat.v1.VariableScope(reuse=None)
    with tf.init_scope(), tf.compat.v1.variable_scope(scope):
        return tf.compat.v1.get_variable(
            HELPER_VARIABLE,
            initializer=tf.zeros([1]),
            collections=[tf.compat.v1.GraphKeys.LOCAL_VARIABLES],
            use_resource=True,
        )


def hide(keep_trainable: bool = False) -> None:
    """Hides helper variables and their slots from checkpoints and later lists of variables."""
    keys = tf.compat.v1.GraphKeys
    graph = tf.compat.v1.get_default_graph()
    for variable in graph.get_collection(keys.GLOBAL_VARIABLES):
        if HELPER_VARIABLE in variable.name:
            graph.add_to_collection(keys.LOCAL_VARIABLES, variable)
            if variable.op.name.endswith("/ExponentialMovingAverage"):
                console.say_once(
                    "Embedding tables have no moving averages, as on a TPU: "
                    f"{HELPER_VARIABLE} stands for them in trainable_variables().",
                    level=logging.WARNING,
                )
    hidden_from = [keys.GLOBAL_VARIABLES, *([] if keep_trainable else [keys.TRAINABLE_VARIABLES])]
    for key in hidden_from:
        collection = graph.get_collection_ref(key)
        collection[:] = [one for one in collection if HELPER_VARIABLE not in one.name]
