# SPDX-License-Identifier: Apache-2.0
"""The host engine: trains embedding tables with TensorFlow's own ops, as the TPU hardware would.

One `HostEngine` serves one graph. Around the program's model_fn it

1. reads and checks the ids of the batch, and puts a stand-in for each activation in the features;
2. after model_fn, which decides the names of the variables by the scopes it uses its columns in,
   creates the tables, looks the ids up, and wires the activations into the stand-ins;
3. in training, takes the gradient that reached each stand-in and updates the tables with it.
"""

import collections
import logging
from collections.abc import Callable, Mapping
from typing import Any

import tensorflow as tf
from tensorflow.python.tpu import feature_column as tpu_fc
from tensorflow.python.tpu import feature_column_v2 as tpu_fc_v2

from estimator_emb.config import EmbeddingConfigSpec, Table, tables_of_dicts
from estimator_emb.native import engine as native_engine
from estimator_emb.optimizers import OptimizationParameters
from estimator_emb.tables import inputs, lookup, pipeline, storage, update
from feature_columns.tables import tables_of_columns

logger = logging.getLogger("estimator_emb")

HELPER_VARIABLE = "tpu_embedding_dummy_table_variable"
"""Trainable, so that the program's optimizer differentiates with respect to it and thereby passes
through the activations. The name begins as that of the legacy engine's, which programs skip."""


def tables_of(spec: EmbeddingConfigSpec) -> list[Table]:
    """The tables of a spec, sorted by name."""
    if spec.table_to_config_dict:
        return tables_of_dicts(spec)
    return tables_of_columns(spec.feature_columns or ())


class HostEngine:
    """Lookup and training of the tables of one graph.

    Args:
      spec: checked.
      training: True creates slots and updates tables.
      num_cores: how many cores the program asked for; see `tables.update.of_batch`.
      as_parts: see `tables.storage.create`.
      native: False leaves the native kernels out, for a graph that others will run.
    """

    def __init__(
        self,
        spec: EmbeddingConfigSpec,
        training: bool,
        num_cores: int = 1,
        as_parts: bool = False,
        native: bool = True,
    ):
        self._spec = spec
        self._tables = tables_of(spec)
        self._training = training
        self.num_cores = num_cores
        self._as_parts = as_parts
        self._native = native
        self._kernels: native_engine.Kernels | None = None
        self._features: Mapping[str, Any] = {}
        self._inputs: dict[str, inputs.Ids] = {}
        self._stand_ins: dict[str, tf.Tensor] = {}
        self._seen: dict[str, tf.Tensor] = {}
        self._gradients: dict[str, tf.Tensor] = {}
        self._before_increment: dict[str, tf.Operation] = {}
        self._occurrences: dict[str, tuple[tf.Tensor, list[lookup.Occurrences]]] = {}
        self._variables: dict[str, storage.TableVariables] = {}
        self._looked_up: list[tf.Tensor] = []
        self._step: tf.Tensor | None = None

    def enqueue(self, features: Any) -> dict[str, Any]:
        """The features as a model_fn sees them: activations in place of ids and weights.

        Raises:
          ValueError: the features are no dict.
          KeyError, ValueError: see `inputs.read`.
        """
        if not isinstance(features, Mapping):
            found = "a tensor" if tf.is_tensor(features) else type(features).__name__
            raise ValueError(
                f"With an EmbeddingConfigSpec, input_fn must return its features as a dict; got "
                f"{found}."
            )
        read = [
            inputs.read(table, feature, features)
            for table in self._tables
            for feature in table.features
        ]
        seen_by_model = {**features, **self._padded(features)}
        if not read:
            return seen_by_model
        self._features = features
        helper = self._helper() if self._training else None
        for one in read:
            key = one.feature.key
            self._inputs[key] = one
            stand_in, seen = self._stand_in(one, helper)
            self._stand_ins[key], self._seen[key] = stand_in, seen
            seen_by_model[key] = seen
            if one.lengths is not None:
                name = tpu_fc.get_sequence_length_feature_key_name_from_feature_key_name(key)
                seen_by_model[name] = one.lengths
            seen_by_model.pop(one.feature.weight_key, None)
        return seen_by_model

    def _padded(self, features: Mapping[str, Any]) -> dict[str, tf.Tensor]:
        """Ids and their mask for columns whose table the model looks up itself.

        `embedding_lookup_device='tpu_tensor_core'` makes the table a variable of the model, which
        the program's own optimizer trains; it expects ids padded to `tensor_core_shape`.
        """
        padded = {}
        for column in self._spec.tensor_core_feature_columns or ():
            key = column.get_feature_key_name()
            if key not in features:
                raise KeyError(
                    f"Feature {key} of column {column.name} is not among the features of the "
                    f"batch, {sorted(features)}."
                )
            ids = features[key]
            if isinstance(ids, tf.RaggedTensor):
                ids = ids.to_sparse()
            if not isinstance(ids, tf.SparseTensor) or not ids.dtype.is_integer:
                raise ValueError(
                    f"Feature {key} of column {column.name}: with "
                    "embedding_lookup_device='tpu_tensor_core', ids must be a SparseTensor or "
                    f"RaggedTensor of integers; got {ids!r}."
                )
            values, mask = tpu_fc_v2.pad_sparse_embedding_lookup_indices(
                ids, column._tensor_core_shape[1]
            )
            shape = [ids.shape[0], column._tensor_core_shape[1]]
            padded[key] = tf.ensure_shape(values, shape)
            padded[key + tpu_fc_v2._TENSOR_CORE_MASK_KEY_SUFFIX] = tf.ensure_shape(mask, shape)
        return padded

    def _helper(self) -> tf.Tensor:
        with tf.compat.v1.variable_scope(tf.compat.v1.VariableScope(reuse=None)):
            variable = tf.compat.v1.get_variable(
                HELPER_VARIABLE,
                initializer=tf.zeros([1]),
                collections=[tf.compat.v1.GraphKeys.LOCAL_VARIABLES],
                use_resource=True,
            )
        return variable.read_value()

    def _stand_in(
        self, one: inputs.Ids, helper: tf.Tensor | None
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """The tensor whose input becomes the activation, and the one that the model sees."""
        shape = [
            None if size == -1 else size
            for size in lookup.activation_shape(one, one.table.config.dimension)
        ]
        placeholder = tf.compat.v1.placeholder(tf.float32, shape)
        if helper is None:
            stand_in = tf.identity(placeholder)
            return stand_in, stand_in
        # The rate of this step is that of the global step before the program increments it.
        if self._step is None:
            self._step = tf.identity(tf.compat.v1.train.get_or_create_global_step())
        with tf.control_dependencies([self._step]):
            stand_in = tf.identity(placeholder)
        key = one.feature.key

        @tf.custom_gradient
        def intercept(activation: tf.Tensor, helper: tf.Tensor) -> Any:
            def gradient(upstream: tf.Tensor) -> tuple[None, tf.Tensor]:
                self._gradients[key] = upstream
                # A model without variables of its own has only this to wait for before it
                # increments the global step.
                with tf.control_dependencies([upstream]):
                    zero = tf.zeros_like(helper)
                self._before_increment[key] = zero.op
                return None, zero

            return tf.identity(activation), gradient

        return stand_in, intercept(stand_in, helper)

    def connect(self) -> None:
        """Creates the tables and wires their activations into the features that model_fn saw.

        Raises:
          ValueError: in training, a feature that the model never uses.
          RuntimeError: in training, a gradient that cannot be taken out of where it was computed.
        """
        scopes = self._captured_scopes()
        looked_up: list[tuple[Table, list[inputs.Ids]]] = []
        for table in self._tables:
            used = [feature for feature in table.features if self._seen[feature.key].consumers()]
            if self._training:
                for feature in table.features:
                    if feature not in used:
                        raise ValueError(
                            f"Feature {feature.key!r} of table {table.name!r} is in the "
                            "EmbeddingConfigSpec, but model_fn never uses it: take it out of the "
                            f"spec, or use features[{feature.key!r}] or its column."
                        )
            if not used:
                continue
            variables = storage.create(
                table,
                self._variable_name(table, scopes),
                self._parameters(table) if self._training else None,
                self._as_parts,
            )
            self._variables[table.name] = variables
            looked_up.append((table, [self._inputs[feature.key] for feature in used]))
        if not looked_up:
            return
        self._kernels = self._native_kernels([table for table, _ in looked_up])
        read = list(self._inputs.values())
        if self._kernels:
            ids = [one for _, of_table in looked_up for one in of_table]
            with tf.name_scope("embedding_lookup"):
                self._looked_up = self._kernels.lookup(read, ids, self._features, inputs.check)
            for one, activation in zip(ids, self._looked_up, strict=True):
                self._stand_ins[one.feature.key].op._update_input(0, activation)
            return
        checked = {one.feature.key: one for one in inputs.check(read)}
        for table, of_table in looked_up:
            with tf.name_scope("embedding_lookup"):
                rows, occurrences = lookup.distinct(
                    [checked[one.feature.key] for one in of_table], table.config.combiner
                )
                self._occurrences[table.name] = rows, occurrences
                values = self._variables[table.name].weights.sparse_read(rows)
                self._looked_up.append(values)
                for occurrence in occurrences:
                    activation = lookup.combine(values, occurrence)
                    self._stand_ins[occurrence.ids.feature.key].op._update_input(0, activation)

    def _native_kernels(self, tables: list[Table]) -> native_engine.Kernels | None:
        """The kernels, where they can do what this engine must."""
        if not self._native:
            return None
        of_table = {
            table.name: self._parameters(table) if self._training else None for table in tables
        }
        obstacle = None
        if self._training and self._spec.pipeline_execution_with_tensor_core:
            obstacle = "pipeline_execution_with_tensor_core is on"
        elif self.num_cores > 1 and not all(
            one is None or one.use_gradient_accumulation for one in of_table.values()
        ):
            obstacle = "gradients are not accumulated over the cores"
        return native_engine.kernels_for(
            [
                native_engine.TableOp(name, self._variables[name], parameters)
                for name, parameters in of_table.items()
            ],
            self._spec.clipping_limit,
            obstacle,
        )

    def _captured_scopes(self) -> dict[str, tuple[str, str]]:
        """Scope key -> (variable scope, variable name), as the columns have recorded them."""
        graph = tf.compat.v1.get_default_graph()
        recorded = graph.get_collection(tpu_fc._TPU_FC_TO_SCOPE)
        graph.clear_collection(tpu_fc._TPU_FC_TO_SCOPE)
        return recorded[0] if recorded else {}

    def _variable_name(self, table: Table, scopes: dict[str, tuple[str, str]]) -> str:
        if table.scope_key is None:
            return table.name
        if table.scope_key in scopes:
            scope, name = scopes[table.scope_key]
            return f"{scope}/{name}" if scope else name
        # The model reads features[key] instead of using the column.
        return f"{table.features[0].column_name}/embedding_weights"

    def _parameters(self, table: Table) -> OptimizationParameters:
        parameters = table.config.optimization_parameters or self._spec.optimization_parameters
        if parameters is None:
            raise ValueError(
                f"Table {table.name!r} has no optimizer: give it optimization_parameters in its "
                "TableConfig, or in the EmbeddingConfigSpec."
            )
        required = parameters.required_dimension
        if required not in (None, table.config.dimension):
            raise ValueError(
                f"Table {table.name!r}: {type(parameters).__name__} needs dimension {required}; "
                f"got {table.config.dimension}."
            )
        return parameters

    def apply_gradients(self) -> tf.Operation:
        """Updates every table from the gradients that reached its activations.

        A feature that no gradient reached counts as one of gradient zero: its rows are updated.
        """
        if not self._tables:
            return tf.no_op()
        for table in self._tables:
            without = [f.key for f in table.features if f.key not in self._gradients]
            if without:
                logger.warning(
                    "No gradient reaches features %s of table %s: zeros are used. The loss may not "
                    "depend on them, or the optimizer was given a var_list without %s.",
                    without,
                    table.name,
                    HELPER_VARIABLE,
                )
        with tf.name_scope("embedding_update"):
            multiplier = self._multiplier()
            of_step = _LearningRates(self._step)
            rates = [of_step.of(table, self._parameters(table)) for table in self._tables]
            # Rates may read the global step themselves: they do so before it is incremented.
            for operation in self._before_increment.values():
                operation._add_control_inputs([rate.op for rate in rates])
            if self._kernels:
                gradients = [
                    self._gradient(feature.key, multiplier)
                    for table in self._tables
                    for feature in table.features
                ]
                # A gradient need not depend on the activations; the update waits all the same.
                with tf.control_dependencies(self._looked_up):
                    return self._kernels.update(gradients, rates)
            updates = [self._updates(table, multiplier) for table in self._tables]
            if self._spec.pipeline_execution_with_tensor_core:
                waiting = pipeline.WaitingUpdates(self._apply)
                return waiting.exchange(updates, rates, after=self._looked_up)
            with tf.control_dependencies(self._looked_up):
                return tf.group(
                    *(
                        self._apply(index, rate, of_table)
                        for index, (rate, of_table) in enumerate(zip(rates, updates, strict=True))
                    )
                )

    def _updates(self, table: Table, multiplier: tf.Tensor | None) -> list[update.RowUpdate]:
        rows, occurrences = self._occurrences[table.name]
        return update.of_batch(
            rows,
            occurrences,
            [self._gradient(one.ids.feature.key, multiplier) for one in occurrences],
            self._parameters(table),
            table.config.dimension,
            self.num_cores,
        )

    def _apply(
        self, index: int, rate: tf.Tensor, updates: list[update.RowUpdate]
    ) -> tf.Operation:
        table = self._tables[index]
        return update.apply(
            self._variables[table.name],
            self._parameters(table),
            rate,
            updates,
            self._spec.clipping_limit,
        )

    def _multiplier(self) -> tf.Tensor | None:
        function = self._spec.experimental_gradient_multiplier_fn
        return None if function is None else tf.cast(function(self._step), tf.float32)

    def _gradient(self, key: str, multiplier: tf.Tensor | None) -> tf.Tensor:
        gradient = self._gradients.get(key)
        if gradient is None:
            return tf.zeros_like(self._seen[key])
        gradient = tf.convert_to_tensor(gradient)
        if gradient.graph is not self._seen[key].graph:
            raise RuntimeError(
                f"The gradient of feature {key!r} was computed inside a tf.function or a branch of "
                "tf.cond; compute gradients in the body of model_fn."
            )
        return gradient if multiplier is None else gradient * multiplier

    def check_saver(self, scaffold: Any) -> None:
        """Refuses a saver that model_fn made before the tables existed.

        Raises:
          ValueError: the scaffold's saver leaves tables out.
        """
        listed = getattr(getattr(scaffold, "saver", None), "_var_list", None)
        if listed is None:
            return
        saved = [one.name for one in (listed.values() if isinstance(listed, dict) else listed)]
        missing = sorted(
            variable.name
            for variables in self._variables.values()
            for variable in (variables.weights, *variables.slots)
            if variable.name not in saved
        )
        if missing:
            raise ValueError(
                f"The saver of model_fn's Scaffold leaves out the embedding variables {missing}: "
                "it was made before they were. Return a TPUEstimatorSpec, whose scaffold_fn is "
                "called after them."
            )

    def hide_helper(self) -> None:
        """Keeps the helper variable and its slots out of checkpoints and of later lists."""
        keys = tf.compat.v1.GraphKeys
        graph = tf.compat.v1.get_default_graph()
        everything = graph.get_collection_ref(keys.GLOBAL_VARIABLES)
        helpers = [variable for variable in everything if HELPER_VARIABLE in variable.name]
        for variable in helpers:
            graph.add_to_collection(keys.LOCAL_VARIABLES, variable)
        for key in (keys.GLOBAL_VARIABLES, keys.TRAINABLE_VARIABLES):
            collection = graph.get_collection_ref(key)
            collection[:] = [one for one in collection if HELPER_VARIABLE not in one.name]

    def describe(self) -> str:
        """One line: what runs where, and how large it is."""
        by_optimizer = collections.Counter(
            type(self._parameters(table)).__name__.removesuffix("Parameters")
            for table in self._tables
        )
        rows = sum(table.config.vocabulary_size for table in self._tables)
        sizes = [t.config.vocabulary_size * t.config.dimension for t in self._tables]
        floats = sum(
            size * (1 + len(self._parameters(table).slots))
            for size, table in zip(sizes, self._tables, strict=True)
        )
        optimizers = ", ".join(f"{name} x {n}" for name, n in sorted(by_optimizer.items()))
        return (
            f"Embedding tables train on the host: {len(self._tables)} tables, {rows:,} rows, "
            f"{sum(sizes):,} parameters, {4 * floats / 1e6:,.1f} MB with slots ({optimizers})."
        )


class _LearningRates:
    """The rate of each table in this step; tables that share a function share its value.

    A table's own rate or function of the step comes before the rate of its optimizer, which is a
    number or, in the TF2 vocabulary, a function without arguments.
    """

    def __init__(self, step: tf.Tensor):
        self._step = step
        self._of_function: dict[Any, tf.Tensor] = {}

    def of(self, table: Table, parameters: OptimizationParameters) -> tf.Tensor:
        config = table.config
        if config.learning_rate_fn is not None:
            return self._value(config.learning_rate_fn, self._step)
        if config.learning_rate is not None:
            return tf.constant(config.learning_rate, tf.float32)
        if callable(parameters.learning_rate):
            return self._value(parameters.learning_rate)
        return tf.constant(parameters.learning_rate, tf.float32)

    def _value(self, function: Callable[..., Any], *step: tf.Tensor) -> tf.Tensor:
        key = function, len(step)
        if key not in self._of_function:
            self._of_function[key] = tf.cast(function(*step), tf.float32)
        return self._of_function[key]
