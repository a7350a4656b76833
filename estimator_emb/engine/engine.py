"""Looks up and trains the tables of a graph on the host, as the TPU hardware would.

A step wraps the program's model_fn in four phases:

1. `TableStep.enqueue` reads the ids of a batch, and creates a stand-in for each activation. In
   training, it also captures the gradients that reach the stand-ins. It returns a `PendingLookup`.
2. model_fn runs on the stand-ins. The scopes in which it uses its columns name the variables.
3. `PendingLookup.create_tables` creates the tables, looks up the ids, and connects the activations
   to the stand-ins. It returns a `LiveTables`.
4. `LiveTables.update` updates the tables, by `engine.update` or by native kernels.

`backends.driver` calls these phases.
"""

import contextlib
import dataclasses
import functools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import tensorflow as tf

from estimator_emb.compat.internals.column_classes import sequence_length_key
from estimator_emb.compat.internals.estimators import ExportOutput
from estimator_emb.compat.internals.graphs import output_context
from estimator_emb.engine import bad_input, inputs, integers, lookup, summaries, tensor_core
from estimator_emb.engine import rates as learning_rates
from estimator_emb.engine.alone import ALONE, Alone
from estimator_emb.engine.cores import Cores, parts_of, wire
from estimator_emb.engine.dropped import DroppedIds
from estimator_emb.engine.gradient_capture import GradientCapture
from estimator_emb.engine.kernels import Factory, Kernels, TensorFlowKernels
from estimator_emb.engine.ordering import after_checks
from estimator_emb.engine.pipelining import LookaheadBuffer
from estimator_emb.engine.tables import (
    creation,
    functions,
    helper_variable,
    placement,
    sizes,
    storage,
)
from estimator_emb.reporting.console import logger
from estimator_emb.spec.config import EmbeddingConfigSpec
from estimator_emb.spec.resolved import Table


@dataclasses.dataclass(frozen=True)
class TablePlace:
    """Where the tables of a graph are. By default, they are in this process.

    Attributes:
      kernels: makes the kernels that look up and train the tables.
      in_step: True if the step of the cores looks up and trains the tables itself.
      in_this_process: False if the tables may be on another machine.
      shards: the number of parameter servers, or 1 without a cluster.
      host: the host that this process is. Each of several hosts creates its part of each table.
      on_tpu: True names variables as on a TPU, and takes all integers as ids, as a TPU does.
        Otherwise columns may look integers up: see `engine.integers`.
      words: names the place in the log.
    """

    kernels: Factory = TensorFlowKernels
    in_step: bool = False
    in_this_process: bool = True
    shards: int = 1
    host: Alone = ALONE
    on_tpu: bool = False
    words: str = "on the host"


@dataclasses.dataclass(eq=False)
class TableStep:
    """The lookup and training of the tables of one graph, before a batch is read.

    Args:
      training: True creates slots and updates tables.
      place: where the tables are.
      cores: the cores that share the batch. Each core sees the activations of its slice. The tables
        are looked up and updated once, for the whole batch.
      batch_size: samples of the whole batch, if known beforehand. Another size stops the step. With
        several hosts, the samples of this host's part of the batch.
      dropped: leaves out bad ids. None makes bad ids errors.
      summarizes: True adds statistics of the tables to the summaries of a training graph.

    Attributes:
      next_step: a session hook that keeps the lookup of the next step. It exists only in training
        with `pipeline_execution_with_tensor_core`.
    """

    spec: EmbeddingConfigSpec
    tables: Sequence[Table]
    training: bool
    place: TablePlace = TablePlace()
    cores: Cores = dataclasses.field(default_factory=Cores)
    batch_size: int | None = None
    dropped: DroppedIds | None = None
    summarizes: bool = False
    next_step: LookaheadBuffer | None = dataclasses.field(default=None, init=False)

    def __post_init__(self) -> None:
        if not self.place.on_tpu:
            self.tables = integers.looked_up(self.tables)
        self.summarizes = self.summarizes and self.training and not self.place.in_step
        if self.training and self.spec.pipeline_execution_with_tensor_core and self.tables:
            self.next_step = LookaheadBuffer()

    @functools.cached_property
    def replaced(self) -> set[str]:
        """Keys of the features that the model sees as activations or padded ids, not as ids."""
        columns = self.spec.tensor_core_feature_columns or ()
        return {
            *(feature.key for table in self.tables for feature in table.features),
            *(column.get_feature_key_name() for column in columns),
        }

    @property
    def consumed(self) -> set[str]:
        """Keys of the ids and weights in the batch. No core sees the values under these keys."""
        features = [feature for table in self.tables for feature in table.features]
        weights = {feature.weight_key for feature in features if feature.weight_key is not None}
        return self.replaced | weights

    def describe(self) -> str:
        where, shards = self.place.words, self.place.shards
        if placement.beside_gpu():
            where += ", on its CPU beside a GPU"
        if shards > 1:
            where += f", over {shards} parameter servers"
        return sizes.describe(self.tables, where)

    def from_previous_step(self, structure: Any) -> Any:
        """Returns `structure`, or the previous batch's structure if lookups run a step ahead."""
        return structure if self.next_step is None else self.next_step.carried(structure)

    def enqueue(self, features: Any) -> "PendingLookup":
        """Reads the features of the whole batch. Raises the same errors as `inputs.source_of`."""
        # The names of the program's ops decide the names of its variables. These ops differ between
        # modes, so the scope keeps them from changing the names.
        with tf.name_scope("embedding_input"):
            pending = self._read(features)
            if self.training and pending.activations:
                pending.capture_gradients()
            return pending

    @placement.on_cpu()
    def _read(self, features: Any) -> "PendingLookup":
        if not isinstance(features, Mapping):
            found = "a tensor" if tf.is_tensor(features) else type(features).__name__
            must = "With an EmbeddingConfigSpec, input_fn must return its features as a dict"
            raise ValueError(f"{must}; got {found}.")
        given = features
        if not self.place.on_tpu:
            given = integers.as_matrices(self.tables, features)
            features = integers.as_strings(self.tables, given)
        sources = [
            inputs.source_of(table, feature, features, self.dropped.drop if self.dropped else None)
            for table in self.tables
            for feature in table.features
        ]
        padded = tensor_core.padded(self.spec, features)
        others = {key: self._core_slice(value) for key, value in padded.items()}
        if self.dropped and sources:
            self.dropped.summarize([source.ids.ids for source in sources])
        stand_ins = {}
        for source in sources:
            key = source.feature.key
            bad_input.check_size(source, source.static_batch, self.batch_size)
            batch, *rest = lookup.activation_shape(source, source.table.config.dimension)
            batch = batch if self.batch_size is None else self.batch_size
            shape = [None if batch == -1 else batch // len(self.cores.own), *rest]
            stand_ins[key] = self.cores.stand_ins(tf.float32, shape)
            if source.feature.max_sequence_length:
                lengths = bad_input.with_batch_size(source.ids, self.batch_size).lengths
                others[sequence_length_key(key)] = self._core_slice(lengths)
        return PendingLookup(self, inputs.Batch(sources, given, self.batch_size), stand_ins, others)

    def _core_slice(self, of_batch: tf.Tensor) -> tf.Tensor:
        return self.cores.per_core(self.slices(self.from_previous_step(of_batch)))

    def slices(self, of_batch: tf.Tensor) -> list[tf.Tensor]:
        count = len(self.cores.own)
        return [of_batch] if count == 1 else parts_of(of_batch, count)


@dataclasses.dataclass(eq=False)
class PendingLookup:
    """A batch that was read, in use by a model before its activations are computed.

    Attributes:
      stand_ins: feature key -> the stand-in for the activation on each core.
      others: the features, besides activations, that replace the `consumed` features on core 0.
      activations: core 0's activations as its model sees them, by feature key.
      capture: captures the gradients of the activations, only in training.
      global_step: its value before the program increments it, only in training.
      live: the tables, once they are created.
    """

    step: TableStep
    batch: inputs.Batch
    stand_ins: dict[str, list[tf.Tensor]]
    others: dict[str, tf.Tensor]
    activations: dict[str, tf.Tensor] = dataclasses.field(init=False)
    capture: GradientCapture | None = None
    global_step: tf.Tensor | None = None
    live: "LiveTables | None" = None

    def __post_init__(self) -> None:
        self.activations = {key: of_cores[0] for key, of_cores in self.stand_ins.items()}

    @property
    def static_batch(self) -> int | None:
        return next((source.static_batch for source in self.batch.sources), None)

    @property
    def features(self) -> dict[str, tf.Tensor]:
        """The features that core 0's model sees instead of the `consumed` features."""
        return {**self.others, **self.activations}

    def capture_gradients(self) -> None:
        """Captures the gradients of the activations when the program differentiates."""
        self.capture = GradientCapture()
        # Learning rates depend on the global step before the program increments it.
        self.global_step = tf.identity(tf.compat.v1.train.get_or_create_global_step())
        with tf.control_dependencies([self.global_step]):
            self.activations = {
                key: self.capture.through(key, activation)
                for key, activation in self.activations.items()
            }

    def again(self, key: str) -> tf.Tensor:
        """Returns an activation computed anew, so that an open GradientTape records it."""
        if self.capture is None:
            return self.activations[key]
        return self.capture.through(key, self.stand_ins[key][0])

    def gradients(self) -> dict[str, tf.Tensor]:
        """Returns the gradients that reached core 0's activations, by feature key.

        Raises RuntimeError if the program trains by two gradients of a feature, or if it computed a
        gradient in a function, loop or branch.
        """
        sent = [one.value for one in self.step.cores.collectives]
        applied = self.capture.applied(sent) if self.capture else {}
        of_core = {}
        for key, upstream in applied.items():
            parts = [tf.convert_to_tensor(part) for part in upstream]
            if any(_place(part) != _place(self.activations[key]) for part in parts):
                raise RuntimeError(
                    f"The gradient of feature {key!r} was computed inside a tf.function, a loop or "
                    "a branch of tf.cond; compute gradients in the body of model_fn."
                )
            of_core[key] = parts[0] if len(parts) == 1 else tf.add_n(parts)
        return of_core

    def rates(self) -> tuple[list[tf.Tensor], tf.Tensor | None]:
        """Returns the rate of each table in a step, and the multiplier of all gradients."""
        function = self.step.spec.experimental_gradient_multiplier_fn
        multiplier = None if function is None else functions.multiplier(function, self.global_step)
        rates = learning_rates.table_rates(self.step.tables, self.global_step)
        # A rate may read the global step itself, but must do so before the increment.
        if self.capture:
            self.capture.wait_for([rate.op for rate in rates])
        return rates, multiplier

    def create_tables(self, returned: Any = None) -> "LiveTables":
        """Creates the tables and connects their activations to the features that model_fn saw.

        Later calls return the same tables. An activation that appears unchanged in `returned`, the
        return value of model_fn, counts as used. In training, the helper variable is hidden from
        checkpoints and lists of variables afterwards. Raises MemoryError if this machine cannot
        hold the tables.
        """
        if self.live is not None:
            return self.live
        step, used, place = self.step, self._used(returned), self.step.place
        tables = [table for table in step.tables if any(f.key in used for f in table.features)]
        if place.in_this_process and place.host.count == 1:
            servers = "divide them over parameter servers on several machines"
            servers += ", with use_tpu=False" if place.on_tpu else ""
            divide = "train on several hosts" if place.in_step else servers
            sizes.check_fits(tables, step.training, divide)
        with placement.on_cpu():
            created = creation.create(tables, step.training, place.on_tpu, place.shards, place.host)
            if not place.in_step:  # Sparse updates are elsewhere.
                storage.save_in_place(table for table in created if table.optimizer is not None)
        self.live = LiveTables(self, created)
        if tables:
            self.live.look_up(used)
        if step.training:
            helper_variable.hide()
        return self.live

    def _used(self, returned: Any) -> set[str]:
        in_results = {id(value) for value in _leaves(returned)}
        return {
            key
            for key, seen in self.activations.items()
            if self.step.training or seen.consumers() or id(seen) in in_results
        }


class LiveTables:
    """Tables that were created and looked up.

    Attributes:
      step: the `TableStep` that looks them up.
      tables: the tables that the model uses, with their variables.
      kernels: the kernels that look up and update the tables, if there are tables.
      activations: activations of the whole batch, by feature key.
      stand_ins: feature key -> the stand-ins for its activation, core by core.
      checked: a tensor that fails in a step with a bad batch, if there are tables.
      fetch: if tables are elsewhere, copies them to their variables in a given session.
    """

    def __init__(self, pending: PendingLookup, tables: list[storage.StoredTable]):
        self._pending = pending
        self.stand_ins = pending.stand_ins
        self.step = pending.step
        self.tables = tables
        self.activations: dict[str, tf.Tensor] = {}
        self.kernels: Kernels | None = None
        self.checked: tf.Tensor | None = None
        self._summaries: summaries.TableSummaries | None = None
        self._held: list[Any] = []
        self.fetch: Callable[[Any], None] | None = None

    def look_up(self, used: set[str]) -> None:
        step, batch = self.step, self._pending.batch
        cores = step.cores.count
        self.kernels = step.place.kernels(self.tables, cores, step.next_step)
        looked_up = [one for one in batch.sources if one.feature.key in used]
        with tf.name_scope("embedding_lookup"), placement.on_cpu():
            computed = self.kernels.lookup(batch, looked_up)
            for source, activation in zip(looked_up, computed, strict=True):
                key = source.feature.key
                activation = step.from_previous_step(activation)
                self.activations[key] = activation
                parts = step.slices(activation)
                for stand_in, part in zip(self.stand_ins[key], parts, strict=True):
                    wire(stand_in, part)
        self.checked = self.kernels.checked
        if step.summarizes:
            with placement.on_cpu():
                self._summaries = summaries.TableSummaries(
                    self.kernels.batch, step.next_step, step.dropped, cores
                )

    def hold_writes(self, *targets: Any) -> None:
        """Makes the variables that `targets` write wait until the batch has passed its checks."""
        self._held += targets
        if self.checked is not None:
            after_checks.wait(targets, self.checked)

    def update(self, spec: Any, gradients: Any) -> tf.Operation | None:
        """Returns the op that updates the tables in the step of `spec`, or None if the step does.

        The step writes nothing until the batch has passed its checks. `gradients` are as in
        `apply_gradients`.
        """
        train_op = getattr(spec, "train_op", None)
        self.hold_writes(train_op, getattr(spec, "loss", None))
        if train_op is None or self.step.place.in_step:
            return None
        return self.apply_gradients(gradients)

    def apply_gradients(
        self, gradients: Mapping[str, Sequence[tf.Tensor]] | None = None
    ) -> tf.Operation:
        """Updates every table.

        `gradients` maps a feature key to the gradients of its activation, one for each core. None
        means the captured gradients of a single core. A feature without a gradient gets zeros, and
        its rows are still updated. A bad rate or multiplier stops the step before any write.
        """
        if gradients is None:
            gradients = {key: [gradient] for key, gradient in self._pending.gradients().items()}
        if self.kernels is None:
            return tf.no_op()

        def whole_batch(key: str) -> tf.Tensor:
            of_cores = gradients.get(key, ())
            if not of_cores:
                return tf.zeros_like(self.activations[key])
            gradient = of_cores[0] if len(of_cores) == 1 else tf.concat(of_cores, axis=0)
            return gradient if multiplier is None else gradient * multiplier

        with in_update():
            rates, multiplier = self.rates_of_step(gradients)
            checked = self.check_rates(rates, multiplier)
            for good in checked:
                after_checks.wait(self._held, good)
            with tf.control_dependencies(checked):
                if self._summaries is None:
                    return self.kernels.update(map(whole_batch, self.activations), rates)
                computed = {key: whole_batch(key) for key in self.activations}
                updated = self.kernels.update(iter(computed.values()), rates)
                return self._summaries.added_to(updated, self.tables, computed, rates)

    def rates_of_step(self, reached: Iterable[str]) -> tuple[list[tf.Tensor], tf.Tensor | None]:
        """Returns the rate of each table in a step, and the multiplier of all gradients.

        Also warns about features that received no gradient (not in `reached`).
        """
        for table in self.step.tables:
            without = [f.key for f in table.features if f.key not in reached]
            if without:
                logger.warning(
                    "No gradient reaches features %s of table %s: zeros are used. Possible causes: "
                    "the loss does not depend on them, the optimizer was given a var_list without "
                    "%s, or a tf.GradientTape was opened after they were computed (use minimize(), "
                    "compute_gradients() or tf.gradients() instead).",
                    without,
                    table.name,
                    helper_variable.HELPER_VARIABLE,
                )
        return self._pending.rates()

    def check_rates(
        self, rates: Sequence[tf.Tensor], multiplier: tf.Tensor | None
    ) -> list[tf.Tensor]:
        """Returns tensors that fail in a step if a function returns a bad rate or multiplier."""
        problems = learning_rates.problems(self.step.spec, self.tables, rates, multiplier)
        return [bad_input.require(problems, "check_rates")] if problems else []

    def warm_start(self, settings: Any) -> Any:
        """Returns the program's `WarmStartSettings`, extended to the slots of its tables."""
        return storage.with_slots(settings, self.tables)

    def all_variables(self) -> list[tf.Variable]:
        """Returns all variables of the tables: weights and slots, shard by shard."""
        return [one for table in self.tables for one in table.all_variables]


@contextlib.contextmanager
def in_update() -> Iterator[None]:
    """Sets the name scope and the device of the ops that compute rates and update tables."""
    with tf.name_scope("embedding_update"), placement.on_cpu():
        yield


def _place(tensor: tf.Tensor) -> tuple[tf.Graph, Any]:
    return tensor.graph, output_context(tensor.op)


def _leaves(structure: Any) -> Iterator[Any]:
    for leaf in tf.nest.flatten(structure):
        yield leaf
        if isinstance(leaf, ExportOutput):
            yield from tf.nest.flatten(list(vars(leaf).values()))
