# SPDX-License-Identifier: Apache-2.0
"""The host engine: trains embedding tables with TensorFlow's own ops, as the TPU hardware would.

One `HostEngine` serves one graph. Around the program's model_fn it

1. reads and checks the ids of the batch, and puts a stand-in for each activation in the features;
2. after model_fn, which decides the names of the variables by the scopes it uses its columns in,
   creates the tables, looks the ids up, and wires the activations into the stand-ins;
3. in training, takes the gradient that reached each stand-in and updates the tables with it.
"""

import logging
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import tensorflow as tf

from estimator_emb import saver
from estimator_emb.compat.internals.columns import sequence_length_key
from estimator_emb.compat.internals.estimator import ExportOutput
from estimator_emb.config import EmbeddingConfigSpec
from estimator_emb.engines.cores import Cores, wire
from estimator_emb.nan_loss import TableOnHost
from estimator_emb.native import kernels as native_kernels
from estimator_emb.ordering import after_checks
from estimator_emb.spec import Table, optimizer_of
from estimator_emb.step import helper_variable
from estimator_emb.step.kernels import Kernels, TensorFlowKernels
from estimator_emb.step.tap import Tap
from estimator_emb.step.transfer import NextStep, Transfer
from estimator_emb.tables import (
    checks,
    functions,
    inputs,
    integers,
    lookup,
    names,
    scopes,
    storage,
    tensor_core,
)
from estimator_emb.tables.description import describe
from estimator_emb.tables.dropped import DroppedIds
from estimator_emb.tables.learning_rates import LearningRates
from estimator_emb.tables.warm_start import with_slots

logger = logging.getLogger("estimator_emb")


class HostEngine:
    """Lookup and training of the tables of one graph.

    Args:
      spec: checked.
      tables: those of the spec.
      training: True creates slots and updates tables.
      cores: the cores that share the batch; None is one. Each sees the activations of its slice;
        the tables are looked up and updated once, for the whole batch.
      batch_size: number of samples of the whole batch, where it is known beforehand; a batch of
        another size stops the step.
      as_parts, shards: see `tables.storage.create`.
      dropped: leaves bad ids out; None makes them errors.
      native: False leaves the native kernels out, for a graph that others will run.
      look_up_integers: see `tables.integers`.

    Attributes:
      next_step: with `pipeline_execution_with_tensor_core` in training, what the lookup of the next
        step leaves; a hook of the session. Else None.
    """

    _where = "on the host"

    def __init__(
        self,
        spec: EmbeddingConfigSpec,
        tables: Sequence[Table],
        training: bool,
        cores: Cores | None = None,
        batch_size: int | None = None,
        as_parts: bool = False,
        shards: int = 1,
        dropped: DroppedIds | None = None,
        native: bool = True,
        look_up_integers: bool = False,
    ):
        self._spec = spec
        self._tables = integers.looked_up(tables) if look_up_integers else list(tables)
        self._training = training
        self._cores = cores or Cores()
        self._batch_size = batch_size
        self._as_parts = as_parts
        self._shards = shards
        self._dropped = dropped
        self._native = native
        self._look_up_integers = look_up_integers
        self._kernels: Kernels | None = None
        self._features: Mapping[str, Any] = {}
        self._inputs: dict[str, inputs.Ids] = {}
        self._stand_ins: dict[str, list[tf.Tensor]] = {}
        self._seen: dict[str, tf.Tensor] = {}
        self._activations: dict[str, tf.Tensor] = {}
        self._gradients: dict[str, list[tf.Tensor]] = {}
        self._tap: Tap | None = None
        self._variables: dict[str, storage.Shards] = {}
        self._checked: tf.Tensor | None = None
        self.next_step: NextStep | None = None
        if training and spec.pipeline_execution_with_tensor_core and self._tables:
            self.next_step = NextStep()
        # Carries what the lookup finds out to an update that does not run beside it.
        self._transfer: Transfer | None = self.next_step
        self._step: tf.Tensor | None = None

    @property
    def consumed(self) -> set[str]:
        """Keys of the batch that the engine reads, and that no core sees: ids and weights."""
        features = [feature for table in self._tables for feature in table.features]
        columns = self._spec.tensor_core_feature_columns or ()
        return {
            key
            for key in (
                *(feature.key for feature in features),
                *(feature.weight_key for feature in features),
                *(column.get_feature_key_name() for column in columns),
            )
            if key is not None
        }

    @property
    def static_batch(self) -> int | None:
        """The number of samples of the batch that was read, where the graph fixes it."""
        return next((ids.static_batch for ids in self._inputs.values()), None)

    def enqueue(self, features: Any) -> dict[str, tf.Tensor]:
        """What core 0's model sees in its features in place of what is `consumed`; see `read`."""
        # Names of the program's own, which decide those of variables, must not meet those of these
        # ops: which ops there are depends on the mode.
        with tf.name_scope("embedding_input"):
            activations, others = self.read(features)
            return {**others, **self.observed(activations)}

    def read(self, features: Any) -> tuple[dict[str, tf.Tensor], dict[str, tf.Tensor]]:
        """What core 0 is given in place of what is `consumed`: its activations, and the rest.

        Args:
          features: of the whole batch.

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
        if self._look_up_integers:
            features = integers.as_strings(self._tables, features)
        read = [
            inputs.read(table, feature, features)
            for table in self._tables
            for feature in table.features
        ]
        padded = tensor_core.padded(self._spec, features)
        others = {key: self._slice(value) for key, value in padded.items()}
        if self._dropped and read:
            read = self._dropped.drop(read)
            self._dropped.summarize([one.ids for one in read])
        self._features = features
        for one in read:
            key = one.feature.key
            self._inputs[key] = one
            one = checks.of_size(one, self._batch_size)
            batch, *rest = lookup.activation_shape(one, one.table.config.dimension)
            shape = [None if batch == -1 else batch // self._cores.count, *rest]
            self._stand_ins[key] = self._cores.stand_ins(tf.float32, shape)
            if one.lengths is not None:
                name = sequence_length_key(key)
                others[name] = self._slice(one.lengths)
        return {key: of_cores[0] for key, of_cores in self._stand_ins.items()}, others

    def observed(self, activations: Mapping[str, tf.Tensor]) -> Mapping[str, tf.Tensor]:
        """Core 0's activations as its model sees them: in training, their gradients are kept."""
        self._seen = dict(activations)
        if self._training and activations:
            self._tap = Tap()
            # The rate of this step is that of the global step before the program increments it.
            self._step = tf.identity(tf.compat.v1.train.get_or_create_global_step())
            with tf.control_dependencies([self._step]):
                for key, activation in activations.items():
                    self._seen[key] = self._tap.through(key, activation)
        return self._seen

    def from_previous_step(self, structure: Any) -> Any:
        """Returns what the model sees of a batch: where lookups are a step ahead, of the last."""
        return structure if self.next_step is None else self.next_step.carried(structure)

    def _slice(self, of_batch: tf.Tensor) -> tf.Tensor:
        return self._cores.differing(self._slices(self.from_previous_step(of_batch)))

    def _slices(self, of_batch: tf.Tensor) -> list[tf.Tensor]:
        count = self._cores.count
        return [of_batch] if count == 1 else tf.split(of_batch, count)

    def connect(self, returned: Any = None) -> None:
        """Creates the tables and wires their activations into the features that model_fn saw.

        Args:
          returned: what model_fn returned, in which an activation may stand as it is: that uses it.

        Raises:
          ValueError: in training, a feature that the model never uses.
          RuntimeError: in training, a gradient that cannot be taken out of where it was computed.
        """
        looked_up: list[tuple[Table, list[inputs.Ids]]] = []
        in_results = {id(value) for value in _leaves(returned)}
        for table in self._tables:
            used = [
                feature
                for feature in table.features
                if self._seen[feature.key].consumers() or id(self._seen[feature.key]) in in_results
            ]
            if self._training:
                for feature in table.features:
                    if feature not in used:
                        raise ValueError(
                            f"Feature {feature.key!r} of table {table.name!r} is in the "
                            "EmbeddingConfigSpec, but model_fn never uses it: take it out of the "
                            f"spec, or use features[{feature.key!r}] or its column."
                        )
            if used:
                looked_up.append((table, [self._inputs[feature.key] for feature in used]))
        self._variables = self._create([table for table, _ in looked_up])
        if not looked_up:
            return
        self._kernels = self._kernels_for([table for table, _ in looked_up])
        looked_up_ids = [ids for _, of_table in looked_up for ids in of_table]
        batch = inputs.Batch(list(self._inputs.values()), self._features, self._batch_size)
        with tf.name_scope("embedding_lookup"), tf.control_dependencies(self._turn()):
            activations = self._kernels.lookup(batch, looked_up_ids)
            for ids, activation in zip(looked_up_ids, activations, strict=True):
                self._found(ids.feature.key, self.from_previous_step(activation))
        self._kernels.finish_lookup()
        self._checked = self._kernels.checked

    def _create(self, tables: list[Table]) -> dict[str, storage.Shards]:
        name_of = names.variable_names(tables, scopes.taken())
        parameters = {
            table.name: optimizer_of(table) if self._training else None for table in tables
        }
        names.check_free(
            {table: storage.names_of(name_of[table], parameters[table]) for table in name_of}
        )
        created = {
            table.name: storage.create(
                table, name_of[table.name], parameters[table.name], self._as_parts, self._shards
            )
            for table in tables
        }
        names.check_distinct(
            {
                table: [one for shard in shards for one in (shard.weights, *shard.slots)]
                for table, shards in created.items()
            }
        )
        return created

    def hold_writes(self, *targets: Any) -> None:
        """Makes the variables that `targets` write wait until the batch was found good.

        Args:
          targets: tensors and operations of the step, which the program made, and None.
        """
        if self._checked is not None:
            after_checks.wait(targets, self._checked)

    def checked(self, spec: Any) -> Any:
        """An `EstimatorSpec` that trains or evaluates nothing until the batch was found good."""
        self.hold_writes(getattr(spec, "train_op", None))
        if self._checked is None or self._training or getattr(spec, "loss", None) is None:
            return spec
        with tf.control_dependencies([self._checked]):
            return spec._replace(loss=tf.identity(spec.loss))

    def _turn(self) -> list[tf.Operation]:
        """What the lookup waits for."""
        return []

    def _found(self, key: str, activation: tf.Tensor) -> None:
        """Gives each core its slice of the activation of a feature."""
        self._activations[key] = activation
        for stand_in, mine in zip(self._stand_ins[key], self._slices(activation), strict=True):
            wire(stand_in, mine)

    def _kernels_for(self, tables: list[Table]) -> Kernels:
        """Returns native kernels where they can do what this step must, else TensorFlow's ops."""
        stored = [
            storage.StoredTable(
                table,
                self._variables[table.name],
                optimizer_of(table) if self._training else None,
            )
            for table in tables
        ]
        limit = self._spec.clipping_limit
        native = None
        if self._native:
            native = native_kernels.kernels_for(
                stored, limit, self._transfer, self._obstacle(stored)
            )
        return native or TensorFlowKernels(stored, limit, self._cores.count, self._transfer)

    def _obstacle(self, tables: list[storage.StoredTable]) -> str | None:
        """Returns what this step must do and native kernels cannot; None for nothing."""
        if self.next_step:
            return "pipeline_execution_with_tensor_core is on"
        if self._dropped:
            return "bad ids are left out"
        if self._cores.count > 1 and not all(
            table.optimizer is None or table.optimizer.use_gradient_accumulation for table in tables
        ):
            return "gradients are not accumulated over the cores"
        return None

    def apply_gradients(
        self, gradients: Mapping[str, list[tf.Tensor]] | None = None
    ) -> tf.Operation:
        """Updates every table.

        Args:
          gradients: by feature, the gradient that reached each core's activation; None for those of
            `gradients`, where there is one core. A feature that no gradient reached counts as one
            of gradient zero: its rows are updated.
        """
        if gradients is None:
            gradients = {key: [gradient] for key, gradient in self.gradients().items()}
        self._gradients = dict(gradients)
        if not self._tables:
            return tf.no_op()
        self._warn_of_zeros()
        with tf.name_scope("embedding_update"):
            multiplier = self._multiplier()
            return self._update(self._rates(), multiplier)

    def _warn_of_zeros(self) -> None:
        for table in self._tables:
            without = [f.key for f in table.features if f.key not in self._gradients]
            if without:
                logger.warning(
                    "No gradient reaches features %s of table %s: zeros are used. The loss may not "
                    "depend on them, or the optimizer was given a var_list without %s.",
                    without,
                    table.name,
                    helper_variable.HELPER_VARIABLE,
                )

    def _rates(self) -> list[tf.Tensor]:
        """The learning rate of each table in this step."""
        of_step = LearningRates(self._step)
        rates = [of_step.of(table, optimizer_of(table)) for table in self._tables]
        # Rates may read the global step themselves: they do so before it is incremented.
        if self._tap:
            self._tap.wait_for([rate.op for rate in rates])
        return rates

    def _update(self, rates: list[tf.Tensor], multiplier: tf.Tensor | None) -> tf.Operation:
        assert self._kernels is not None
        gradients = (
            self._gradient(feature.key, multiplier)
            for table in self._tables
            for feature in table.features
        )
        return self._kernels.update(gradients, rates)

    def _multiplier(self) -> tf.Tensor | None:
        function = self._spec.experimental_gradient_multiplier_fn
        return None if function is None else functions.multiplier(function, self._step)

    def gradients(self) -> dict[str, tf.Tensor]:
        """By feature, the gradient that reached core 0's activation.

        Raises:
          RuntimeError: a gradient that cannot be taken out of where it was computed.
        """
        of_core = {}
        for key, upstream in (self._tap.gradients if self._tap else {}).items():
            gradient = tf.convert_to_tensor(upstream)
            if gradient.graph is not self._seen[key].graph:
                raise RuntimeError(
                    f"The gradient of feature {key!r} was computed inside a tf.function or a "
                    "branch of tf.cond; compute gradients in the body of model_fn."
                )
            of_core[key] = gradient
        return of_core

    def _gradient(self, key: str, multiplier: tf.Tensor | None) -> tf.Tensor:
        """Of the activation of the whole batch."""
        of_cores = self._gradients.get(key)
        if of_cores is None:
            return tf.zeros_like(self._activations[key])
        gradient = of_cores[0] if len(of_cores) == 1 else tf.concat(of_cores, axis=0)
        return gradient if multiplier is None else gradient * multiplier

    def warm_start(self, settings: Any) -> Any:
        """`WarmStartSettings` of the program, in which slots go with their tables."""
        return with_slots(
            settings,
            [(self._variables[table.name], optimizer_of(table)) for table in self._tables],
        )

    def tables_on_host(self) -> list[TableOnHost]:
        """What a report of a NaN loss looks at."""
        return [
            TableOnHost(
                table.name,
                [feature.key for feature in table.features],
                [shard.weights for shard in self._variables[table.name]],
            )
            for table in self._tables
            if table.name in self._variables
        ]

    def check_saver(self, scaffold: Any) -> None:
        """Refuses a saver that model_fn made before the tables existed; see `saver.check`."""
        saver.check(
            scaffold,
            [
                variable
                for shards in self._variables.values()
                for shard in shards
                for variable in (shard.weights, *shard.slots)
            ],
        )

    def hide_helper(self) -> None:
        """Keeps the helper variable and its slots out of checkpoints and of later lists."""
        helper_variable.hide()

    def describe(self) -> str:
        """One line: what runs where, and how large it is."""
        where = self._where
        if self._shards > 1:
            where += f", over {self._shards} parameter servers"
        of_tables = {table.name: optimizer_of(table) for table in self._tables}
        return describe(self._tables, of_tables, where)


def _leaves(structure: Any) -> Iterator[Any]:
    """Yields what stands in a structure, and in the export outputs of an `EstimatorSpec`."""
    for leaf in tf.nest.flatten(structure):
        yield leaf
        if isinstance(leaf, ExportOutput):
            yield from tf.nest.flatten(list(vars(leaf).values()))
