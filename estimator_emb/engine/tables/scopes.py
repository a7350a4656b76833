"""Records the scopes in which a model_fn uses the columns of TPU tables, to name their variables.

Off a TPU, a column creates its variable where it is used, and the scope there is part of the name.
The kind of scope depends on who creates the variable:

* `tf.compat.v1.keras.layers.DenseFeatures`, `SequenceFeatures`, `input_layer`, `linear_model` and
  all shared columns call `get_variable`: the variable scope.
* `tf.keras.layers.DenseFeatures` calls `add_weight`, which makes a `tf.Variable`: the name scope.

On a TPU, and here, a column creates no variable and only records a scope. TensorFlow's columns
always record the variable scope. Under `tf.keras.layers.DenseFeatures`, all columns have the same
variable scope. If `record` was called before the model_fn, columns record the name that the
variable would have had. Elsewhere nothing changes.
"""

import collections
import functools
import logging
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import tensorflow as tf

from estimator_emb.compat.internals import patches
from estimator_emb.compat.internals.column_classes import (
    TPU_FC_TO_SCOPE,
    StateManagerImpl,
    TPUEmbeddingColumn,
    tpu_feature_column,
    tpu_feature_column_v2,
)
from estimator_emb.reporting import console


class Uses:
    """The uses of columns recorded in a call of a model_fn.

    `names` maps a table's scope key to the name that its variable would have. `ignored` maps a
    setting of a layer or scope that has no effect on tables to the scope keys of the tables.
    `dimensions` maps a scope key to the dimension of the column.
    """

    def __init__(self) -> None:
        self.names: dict[str, str] = {}
        self.dimensions: dict[str, int] = {}
        self.ignored: dict[str, dict[str, None]] = collections.defaultdict(dict)

    def record(self, scope_key: str, name: str, keep_first: bool) -> None:
        """Records a use of a table's column, and the variable name that follows from it.

        Raises ValueError if an earlier use had another name, unless `keep_first` keeps that name.
        """
        first = self.names.setdefault(scope_key, name)
        if first != name and not keep_first:
            scope, first_scope = name.rpartition("/")[0], first.rpartition("/")[0]
            raise ValueError(
                f"For embedding var name {scope_key}, the variable scope name is different, got "
                f"{scope!r}; expected {first_scope!r}. model_fn uses the column of "
                f"{scope_key!r} in two layers, but its table has one variable. Use one layer's "
                "output twice, or give the second layer its own column with its own feature key."
            )


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
"""State manager of a layer -> {scope key: variable name} of the layer's columns."""


def record() -> None:
    """Starts recording where the next call of a model_fn uses columns, for `taken`."""
    _install()
    uses = Uses()
    for graph in _graphs():
        _uses_of_graph[graph] = uses


def taken() -> dict[str, str]:
    """Returns and clears the record of the default graph, scope key -> variable name."""
    uses = _uses_of_graph.pop(tf.compat.v1.get_default_graph(), None)
    return uses.names if uses else {}


def warn_of_ignored() -> None:
    """Warns about settings in the default graph's model_fn that have no effect on tables."""
    uses = _uses_of_graph.get(tf.compat.v1.get_default_graph(), Uses())
    for asked, tables in uses.ignored.items():
        console.say_once(
            f"{asked} has no effect on the tables of columns {', '.join(tables)}, which the spec's "
            f"optimizer trains, as on a TPU. {_INSTEAD[asked]}",
            level=logging.WARNING,
        )


def recorded() -> dict[str, str]:
    """Returns the record like `taken`, but keeps it. Without `record`, it is TensorFlow's."""
    uses = _current()
    if uses:
        return dict(uses.names)
    by_tensorflow = tf.compat.v1.get_default_graph().get_collection(TPU_FC_TO_SCOPE)
    return {key: name for record in by_tensorflow for key, (_, name) in record.items()}


def dimensions() -> dict[str, int]:
    """Returns scope key -> dimension of the columns that the recorded model_fn has used."""
    uses = _current()
    return dict(uses.dimensions) if uses else {}


def _graphs() -> Iterator[tf.Graph]:
    """Yields the default graph, and the graphs around it if a function or loop is being built."""
    graph = tf.compat.v1.get_default_graph()
    while graph is not None:
        yield graph
        graph = getattr(graph, "outer_graph", None)


def _current() -> Uses | None:
    return next((_uses_of_graph[graph] for graph in _graphs() if graph in _uses_of_graph), None)


def _replace(owner: Any, name: str, own: Callable[..., Any]) -> None:
    """Replaces a TensorFlow function with `own` on a TPU, while a recorded model_fn runs.

    `own` gets the uses of that model_fn, the function that it replaces, and the arguments.
    """

    def make(original: Callable[..., Any]) -> Callable[..., Any]:
        def replacement(*args: Any, **kwargs: Any) -> Any:
            uses = None if tpu_feature_column._is_running_on_cpu() else _current()
            if uses is None:
                return original(*args, **kwargs)
            return own(uses, original, *args, **kwargs)

        return replacement

    patches.LASTING.wrap(owner, name, make)


def _record_by_variable_scope(
    uses: Uses,
    _: Any,
    embedding_var_name: str,
    embedding_var_name_in_fc: str,
    is_shared_embedding: bool = False,
    bypass_scope_validation: bool = False,
) -> str:
    """Records and returns the name that the column's variable would have in the variable scope."""
    scope = tf.compat.v1.get_variable_scope()
    name = "/".join(filter(None, (scope.name, embedding_var_name_in_fc)))
    uses.record(embedding_var_name, name, is_shared_embedding or bypass_scope_validation)
    if scope.regularizer:
        uses.ignored[_REGULARIZER][embedding_var_name] = None
    return name


def _create_state(uses: Uses, original: Any, column: Any, state_manager: Any) -> None:
    """Records the variable's name when a layer makes a column create its variable."""
    scope_key, any_scope = column.get_embedding_var_name(), column._bypass_scope_validation
    name = "embedding_weights"
    if type(state_manager).create_variable is StateManagerImpl.create_variable:
        name = _record_by_variable_scope(
            uses, original, scope_key, name, bypass_scope_validation=any_scope
        )
    else:
        name = "/".join(filter(None, (tf.compat.v1.get_default_graph().get_name_scope(), name)))
        uses.record(scope_key, name, any_scope)
    if not getattr(state_manager, "_trainable", True):
        uses.ignored[_FROZEN][scope_key] = None
    _built.setdefault(state_manager, {})[scope_key] = name


def _read(
    uses: Uses, original: Any, column: Any, transformation_cache: Any, state_manager: Any
) -> Any:
    """Records a use by a layer, even if the layer was built in another graph."""
    scope_key = column.get_embedding_var_name()
    uses.dimensions[scope_key] = column.get_embedding_table_size()[1]
    if name := _built.get(state_manager, {}).get(scope_key):
        uses.record(scope_key, name, column._bypass_scope_validation)
    return original(column, transformation_cache, state_manager)


def _read_in_layer(
    uses: Uses,
    original: Any,
    column: Any,
    inputs: Any,
    weight_collections: Any = None,
    trainable: bool | None = None,
) -> Any:
    """Records a use by `input_layer` or `sequence_input_layer`. They have no state."""
    uses.dimensions[column.get_embedding_var_name()] = column.get_embedding_table_size()[1]
    if trainable is False:
        uses.ignored[_FROZEN][column.get_embedding_var_name()] = None
    return original(column, inputs, weight_collections, trainable)


@functools.cache
def _install() -> None:
    """Replaces TensorFlow's methods that record uses of columns, on the first call of `record`."""
    for module in (tpu_feature_column, tpu_feature_column_v2):
        _replace(module, "_record_variable_scope_and_name", _record_by_variable_scope)
    _replace(TPUEmbeddingColumn, "create_state", _create_state)
    for name in ("get_dense_tensor", "get_sequence_dense_tensor"):
        _replace(TPUEmbeddingColumn, name, _read)
    for name in ("_get_dense_tensor", "_get_sequence_dense_tensor"):
        _replace(TPUEmbeddingColumn, name, _read_in_layer)
