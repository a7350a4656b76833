# SPDX-License-Identifier: Apache-2.0
"""Records the scopes in which a model_fn uses the columns of TPU tables; they name the variables.

Off a TPU, a column creates its variable where it is used, and the scope there is in the name. Which
scope depends on who creates the variable:

* `tf.compat.v1.keras.layers.DenseFeatures`, `SequenceFeatures`, `input_layer`, `linear_model` and
  all shared columns call `get_variable`: the variable scope.
* `tf.keras.layers.DenseFeatures` calls `add_weight`, which makes a `tf.Variable`: the name scope.

On a TPU, and here, a column creates nothing and only records a scope. TensorFlow's columns always
record the variable scope, which under `tf.keras.layers.DenseFeatures` is the same for all columns.
In a model_fn wrapped by `recording`, they record the name that the variable would have had;
elsewhere nothing changes.
"""

import functools
import logging
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import tensorflow as tf

from estimator_emb.messages import console
from estimator_emb.private.columns import (
    TPU_FC_TO_SCOPE,
    StateManagerImpl,
    TPUEmbeddingColumn,
    tpu_feature_column,
    tpu_feature_column_v2,
)


class Uses:
    """The uses that columns have recorded in one call of a model_fn.

    `names` is scope key of a table -> name that its variable would have; `ignored` is a setting of
    a layer or scope that has no effect on tables -> the scope keys of those.
    """

    def __init__(self) -> None:
        self.names: dict[str, str] = {}
        self.ignored: dict[str, dict[str, None]] = {}

    def record(self, scope_key: str, name: str, keep_first: bool) -> None:
        """Records a use of a table's column, and the variable name by it.

        Raises ValueError if an earlier use had another name, unless `keep_first` keeps it.
        """
        first = self.names.setdefault(scope_key, name)
        if first != name and not keep_first:
            scope, first_scope = name.rpartition("/")[0], first.rpartition("/")[0]
            raise ValueError(
                f"For embedding var name {scope_key}, the variable scope name is different, got "
                f"{scope!r}; expected {first_scope!r}. model_fn uses the column of "
                f"{scope_key!r} in two layers, and its table has one variable: use one layer, "
                "whose output may be used twice, or give the second layer a column of its own, "
                "with its own feature key."
            )

    def ignore(self, asked: str, scope_key: str) -> None:
        self.ignored.setdefault(asked, {})[scope_key] = None


_FROZEN = "trainable=False"
_REGULARIZER = "The regularizer of a variable scope"
_INSTEAD = {
    _FROZEN: "A learning rate of 0 keeps a table as it is: embedding_column(..., "
    "learning_rate_fn=lambda step: 0.0).",
    _REGULARIZER: "weight_decay_factor of the optimizer's parameters decays the rows that a step "
    "updates.",
}
_uses_of_graph: weakref.WeakKeyDictionary[tf.Graph, Uses] = weakref.WeakKeyDictionary()
_built: weakref.WeakKeyDictionary[Any, dict[str, str]] = weakref.WeakKeyDictionary()
"""State manager of a layer -> the names of its columns' variables, by scope key."""


def recording(model_fn: Callable[..., Any]) -> Callable[..., Any]:
    """Returns `model_fn` wrapped, so that `taken` can tell where it used columns."""
    _install()

    @functools.wraps(model_fn)
    def with_uses(*args: Any, **kwargs: Any) -> Any:
        uses = Uses()
        for graph in _graphs():
            _uses_of_graph[graph] = uses
        return model_fn(*args, **kwargs)

    return with_uses


def taken() -> dict[str, str]:
    """Returns the record of the default graph, scope key -> variable name, and clears it."""
    uses = _uses_of_graph.pop(tf.compat.v1.get_default_graph(), None)
    return uses.names if uses else {}


def warn_of_ignored() -> None:
    """Warns of settings in the model_fn of the default graph that have no effect on tables."""
    uses = _uses_of_graph.get(tf.compat.v1.get_default_graph(), Uses())
    for asked, tables in uses.ignored.items():
        console.say_once(
            f"{asked} has no effect on the tables of columns {', '.join(tables)}, which the spec's "
            f"optimizer trains, as on a TPU. {_INSTEAD[asked]}",
            level=logging.WARNING,
        )


def recorded() -> dict[str, str]:
    """Returns what `taken` would, and keeps it; without `recording`, TensorFlow's own record."""
    uses = _current()
    if uses:
        return dict(uses.names)
    by_tensorflow = tf.compat.v1.get_default_graph().get_collection(TPU_FC_TO_SCOPE)
    return {key: name for record in by_tensorflow for key, (_, name) in record.items()}


def _graphs() -> Iterator[tf.Graph]:
    """Yields the default graph and, if it is that of a function or a loop, those around it."""
    graph = tf.compat.v1.get_default_graph()
    while graph is not None:
        yield graph
        graph = getattr(graph, "outer_graph", None)


def _current() -> Uses | None:
    return next((_uses_of_graph[graph] for graph in _graphs() if graph in _uses_of_graph), None)


def _recording_variable_scope(original: Callable[..., None]) -> Callable[..., None]:
    @functools.wraps(original)
    def record(
        embedding_var_name: str,
        embedding_var_name_in_fc: str,
        is_shared_embedding: bool = False,
        bypass_scope_validation: bool = False,
    ) -> None:
        uses = _current()
        if uses is None:
            original(
                embedding_var_name,
                embedding_var_name_in_fc,
                is_shared_embedding=is_shared_embedding,
                bypass_scope_validation=bypass_scope_validation,
            )
            return
        scope = tf.compat.v1.get_variable_scope()
        uses.record(
            embedding_var_name,
            "/".join(filter(None, (scope.name, embedding_var_name_in_fc))),
            is_shared_embedding or bypass_scope_validation,
        )
        if scope.regularizer:
            uses.ignore(_REGULARIZER, embedding_var_name)

    return record


def _creating_state(original: Callable[..., Any]) -> Callable[..., Any]:
    """Wraps the method that a layer calls so that a column creates its variable."""

    @functools.wraps(original)
    def create_state(column: Any, state_manager: Any) -> Any:
        uses = None if tpu_feature_column._is_running_on_cpu() else _current()
        if uses is None:
            return original(column, state_manager)
        scope_key = column.get_embedding_var_name()
        by_variable_scope = type(state_manager).create_variable is StateManagerImpl.create_variable
        scope = tf.compat.v1.get_default_graph().get_name_scope()
        if by_variable_scope:
            scope = tf.compat.v1.get_variable_scope().name
            if tf.compat.v1.get_variable_scope().regularizer:
                uses.ignore(_REGULARIZER, scope_key)
        name = f"{scope}/embedding_weights" if scope else "embedding_weights"
        uses.record(scope_key, name, column._bypass_scope_validation)
        if not getattr(state_manager, "_trainable", True):
            uses.ignore(_FROZEN, scope_key)
        _built.setdefault(state_manager, {})[scope_key] = name
        return None

    return create_state


def _reading(original: Callable[..., Any]) -> Callable[..., Any]:
    """Wraps the method that a layer calls for the values of a column."""

    @functools.wraps(original)
    def read(column: Any, transformation_cache: Any, state_manager: Any) -> Any:
        uses = None if tpu_feature_column._is_running_on_cpu() else _current()
        name = _built.get(state_manager, {}).get(column.get_embedding_var_name()) if uses else None
        if uses and name:
            # A layer may have been built in another graph, which it has outlived.
            uses.record(column.get_embedding_var_name(), name, column._bypass_scope_validation)
        return original(column, transformation_cache, state_manager)

    return read


def _in_layer(original: Callable[..., Any]) -> Callable[..., Any]:
    """Wraps the method that `input_layer` and `sequence_input_layer` call instead."""

    @functools.wraps(original)
    def read(
        column: Any, inputs: Any, weight_collections: Any = None, trainable: bool | None = None
    ) -> Any:
        uses = None if tpu_feature_column._is_running_on_cpu() else _current()
        if uses and trainable is False:
            uses.ignore(_FROZEN, column.get_embedding_var_name())
        return original(column, inputs, weight_collections, trainable)

    return read


@functools.cache
def _install() -> None:
    """Replaces TensorFlow's methods that record uses of columns; called when a program has some."""
    for module in (tpu_feature_column, tpu_feature_column_v2):
        module._record_variable_scope_and_name = _recording_variable_scope(
            module._record_variable_scope_and_name
        )
    column = TPUEmbeddingColumn
    column.create_state = _creating_state(column.create_state)
    column.get_dense_tensor = _reading(column.get_dense_tensor)
    column.get_sequence_dense_tensor = _reading(column.get_sequence_dense_tensor)
    column._get_dense_tensor = _in_layer(column._get_dense_tensor)
    column._get_sequence_dense_tensor = _in_layer(column._get_sequence_dense_tensor)
