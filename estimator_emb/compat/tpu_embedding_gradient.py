"""Replaces `tensorflow.python.tpu.tpu_embedding_gradient`, which TensorFlow 2.16 removed.

tensorflow-estimator imports it in `tpu/tpu_estimator.py`, and so does the TPUEmbedding class of
TensorFlow 1 (`tensorflow.python.tpu.tpu_embedding`).

TPU embedding tables are not TensorFlow variables, so optimizers do not compute the gradients of
their activations. The functions here get these gradients in either of two ways:

* `get_gradients_through_compute_gradients` asks an optimizer for them.
* `create_dummy_table_variables` makes a trainable variable for each table, and
  `hook_dummy_table_variables_to_activations` passes the activations through an op that depends on
  the variable. Any optimizer then differentiates that op. The op's gradient function (still in
  `tensorflow.python.tpu.ops.tpu_ops`) stores the activations' gradients in a graph collection, and
  `get_gradients_through_dummy_table_variables` collects them.
"""

import collections
from collections.abc import Mapping
from typing import Any

import tensorflow as tf

from estimator_emb.compat.internals.tpu import tpu_ops

logging = tf.compat.v1.logging

_VARIABLE_COLLECTION = "tpu_embedding_dummy_table_variables"
_VARIABLE_NAME = "tpu_embedding_dummy_table_variable_{}"
# The gradient function of `TPUEmbeddingActivations` writes to this collection. Item i is the
# gradient for the table's feature i, or `None` before it is computed.
_GRADIENT_COLLECTION = "tpu_embedding_gradients_table_{}"


def get_gradients_through_compute_gradients(
    optimizer, loss, activations: Mapping[str, Any]
) -> collections.OrderedDict:
    """Returns the gradients of `loss` by feature name, as `optimizer` computes them."""
    pairs = optimizer.compute_gradients(loss, list(activations.values()))
    return collections.OrderedDict(
        (feature, gradient) for feature, (gradient, _) in zip(activations, pairs, strict=True)
    )


def create_dummy_table_variables(tpu_embedding) -> tuple[collections.OrderedDict, Any]:
    """Creates a dummy variable for each table, and a graph collection for its features' gradients.

    Returns the variables by table name, and the op that initializes them. Raises RuntimeError if
    the graph already has gradients for a table.
    """
    graph = tf.compat.v1.get_default_graph()
    dummies = collections.OrderedDict()
    for table_id, (table, features) in enumerate(tpu_embedding.table_to_features_dict.items()):
        # The variable is not in GLOBAL_VARIABLES, so checkpoints do not contain it. (They contain
        # an optimizer's slots for it.)
        dummies[table] = tf.compat.v1.get_variable(
            _VARIABLE_NAME.format(table),
            shape=[1],
            dtype=tf.float32,
            trainable=True,
            use_resource=True,
            collections=[_VARIABLE_COLLECTION],
        )
        name = _GRADIENT_COLLECTION.format(table_id)
        gradients = graph.get_collection_ref(name)
        if gradients:
            raise RuntimeError(f"The graph collection {name} already has gradients.")
        gradients.extend([None] * len(features))
    init_op = tf.compat.v1.variables_initializer(
        list(dummies.values()), name="tpu_embedding_dummy_table_variables_init"
    )
    return dummies, init_op


def hook_dummy_table_variables_to_activations(
    tpu_embedding, activations: Mapping[str, Any], dummy_table_variables: Mapping[str, Any]
) -> collections.OrderedDict:
    """Returns the activations unchanged in value, but dependent on the dummy variables."""
    table_ids = {table: i for i, table in enumerate(tpu_embedding.table_to_config_dict)}
    hooked = collections.OrderedDict()
    for feature, activation in activations.items():
        table = tpu_embedding.feature_to_config_dict[feature].table_id
        hooked[feature] = tpu_ops.tpu_embedding_activations(
            dummy_table_variables[table],
            activation,
            table_id=table_ids[table],
            lookup_id=tpu_embedding.table_to_features_dict[table].index(feature),
        )
    return hooked


def get_gradients_through_dummy_table_variables(tpu_embedding) -> collections.OrderedDict:
    """Returns, by feature name, the gradients that an optimizer computed for hooked activations.

    A feature that does not affect the loss gets zeros, and its table a warning.
    """
    graph = tf.compat.v1.get_default_graph()
    by_table = {
        table: graph.get_collection(_GRADIENT_COLLECTION.format(table_id))
        for table_id, table in enumerate(tpu_embedding.table_to_config_dict)
    }
    for table_id, (table, gradients) in enumerate(by_table.items()):
        if any(gradient is None for gradient in gradients):
            logging.warning(
                "Table %s (id %d) has features without a gradient: their activations are not used "
                "in the loss, or tf.stop_gradient() hides them. TPUEmbedding will get zeros, which "
                "some optimizers (not SGD, AdaGrad, FTRL) tell from no gradient.",
                table,
                table_id,
            )
    if all(gradient is None for gradients in by_table.values() for gradient in gradients):
        logging.warning(
            "No table has a gradient: the activations of TPUEmbedding are not used in the loss. If "
            "tf.stop_gradient() is applied to all of them, its INFERENCE mode may fit better."
        )

    by_feature = collections.OrderedDict()
    for table, gradients in by_table.items():
        features = tpu_embedding.table_to_features_dict[table]
        # Without dummy variables `gradients` is empty.
        for feature, gradient in zip(features, gradients, strict=False):
            if gradient is None:
                gradient = _zero_gradient(tpu_embedding, table, feature)
            by_feature[feature] = gradient
    return by_feature


def _zero_gradient(tpu_embedding, table: str, feature: str):
    shape = [tpu_embedding.batch_size_per_core, tpu_embedding.table_to_config_dict[table].dimension]
    sequence_length = tpu_embedding.feature_to_config_dict[feature].max_sequence_length
    if sequence_length:
        shape.insert(1, sequence_length)
    return tf.zeros(shape)
