# SPDX-License-Identifier: Apache-2.0
"""What the variable of a table is called: by the scope in which the model used its column."""

import tensorflow as tf
from tensorflow.python.tpu import feature_column as tpu_fc

from estimator_emb.config import Table


def captured_scopes() -> dict[str, tuple[str, str]]:
    """Scope key -> (variable scope, variable name), as the columns have recorded them.

    The record is taken out of the default graph.
    """
    graph = tf.compat.v1.get_default_graph()
    recorded = graph.get_collection(tpu_fc._TPU_FC_TO_SCOPE)
    graph.clear_collection(tpu_fc._TPU_FC_TO_SCOPE)
    return recorded[0] if recorded else {}


def variable_name(table: Table, scopes: dict[str, tuple[str, str]]) -> str:
    """The name of a table's variable; slots append their suffix to it."""
    if table.scope_key is None:
        return table.name
    if table.scope_key in scopes:
        scope, name = scopes[table.scope_key]
        return f"{scope}/{name}" if scope else name
    # The model reads features[key] instead of using the column.
    return f"{table.features[0].column_name}/embedding_weights"
