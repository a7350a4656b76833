"""Looks up and trains the tables of one graph on the host, as the TPU hardware would.

A step goes around the program's model_fn in four phases:

1. `TableStep.read_batch` reads the ids of a batch, and puts a stand-in for each activation into the
   features: a `Reading`.
2. `Reading.pending` gives the activations to the model: a `PendingLookup`, which in training takes
   the gradients that reach them.
3. model_fn decides the names of the variables by the scopes in which it uses its columns. So
   `PendingLookup.create_tables` creates the tables after it, looks the ids up, and wires the
   activations into the stand-ins: a `LiveTables`.
4. `LiveTables.apply_gradients` updates the tables.
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
from estimator_emb.engine.cores import Cores, wire
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


@dataclasses.dataclass(eq=False)
class TableStep:
    """The lookup and training of the tables of one graph, before a batch is read.

    Args:
      training: True creates slots and updates tables.
      cores: the cores that share the batch. Each sees the activations of its slice; the tables are
        looked up and updated once, for the whole batch.
      batch_size: samples of the whole batch, if known beforehand; another size stops the step. With
        several hosts, those of this host's part of the batch.
      as_parts: see `tables.storage.create`.
      part: with several hosts, the number of this host and of all: it creates its part of each
        table.
      shards: the number of parameter servers; 1 without any.
      dropped: leaves bad ids out; None makes them errors.
      look_up_integers: see `engine.integers`.
      summarizes: True adds figures of the tables to the summaries of a training graph.
      in_this_process: False if the tables may be on another machine.
      dtype: of the weights; float16 only where nothing trains them.
      place: where the tables are, for the log.

    Attributes:
      next_step: a session hook that keeps the lookup of the next step, in training with
        `pipeline_execution_with_tensor_core`; else None.
    """

    spec: EmbeddingConfigSpec
    tables: Sequence[Table]
    training: bool
    cores: Cores = dataclasses.field(default_factory=Cores)
    batch_size: int | None = None
    as_parts: bool = False
    part: tuple[int, int] | None = None
    shards: int = 1
    dropped: DroppedIds | None = None
    kernels: Factory = TensorFlowKernels
    look_up_integers: bool = False
    summarizes: bool = False
    in_this_process: bool = True
    dtype: tf.DType = tf.float32
    place: str = "on the host"
    next_step: LookaheadBuffer | None = dataclasses.field(default=None, init=False)

    def __post_init__(self) -> None:
        self.tables = list(self.tables)
        if self.look_up_integers:
            self.tables = integers.looked_up(self.tables)
        self.summarizes = self.summarizes and self.training
        if self.training and self.spec.pipeline_execution_with_tensor_core and self.tables:
            self.next_step = LookaheadBuffer()

    @functools.cached_property
    def replaced(self) -> set[str]:
        """Keys of the ids in the batch; the model sees something else under them."""
        columns = self.spec.tensor_core_feature_columns or ()
        return {
            *(feature.key for table in self.tables for feature in table.features),
            *(column.get_feature_key_name() for column in columns),
        }

    @property
    def consumed(self) -> set[str]:
        """Keys of the ids and weights in the batch, which no core sees."""
        features = [feature for table in self.tables for feature in table.features]
        weights = {feature.weight_key for feature in features if feature.weight_key is not None}
        return self.replaced | weights

    def describe(self) -> str:
        where = self.place
        if placement.beside_gpu():
            where += ", on its CPU beside a GPU"
        if self.shards > 1:
            where += f", over {self.shards} parameter servers"
        return sizes.describe(self.tables, where)

    def from_previous_step(self, structure: Any) -> Any:
        """Returns what the model sees: this batch, or the previous one if lookups are ahead."""
        return structure if self.next_step is None else self.next_step.carried(structure)

    def enqueue(self, features: Any) -> "PendingLookup":
        # The program's names of ops decide those of variables, and must not depend on these ops,
        # which differ between modes.
        with tf.name_scope("embedding_input"):
            return self.read_batch(features).pending()

    @placement.on_cpu()
    def read_batch(self, features: Any) -> "Reading":
        """Reads the features of the whole batch; raises as `inputs.source_of` does."""
        if not isinstance(features, Mapping):
            found = "a tensor" if tf.is_tensor(features) else type(features).__name__
            must = "With an EmbeddingConfigSpec, input_fn must return its features as a dict"
            raise ValueError(f"{must}; got {found}.")
        given = features
        if self.look_up_integers:
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
        return Reading(self, inputs.Batch(sources, given, self.batch_size), stand_ins, others)

    def _core_slice(self, of_batch: tf.Tensor) -> tf.Tensor:
        return self.cores.per_core(self.slices(self.from_previous_step(of_batch)))

    def slices(self, of_batch: tf.Tensor) -> list[tf.Tensor]:
        count = len(self.cores.own)
        return [of_batch] if count == 1 else tf.split(of_batch, count)


@dataclasses.dataclass(frozen=True)
class Reading:
    """A batch that was read, whose activations are not known yet.

    Attributes:
      stand_ins: feature key -> the stand-in for the activation on each core.
      others: what core 0 also gets in place of the features that are `consumed`.
    """

    step: TableStep
    batch: inputs.Batch
    stand_ins: dict[str, list[tf.Tensor]]
    others: dict[str, tf.Tensor]

    @property
    def activations(self) -> dict[str, tf.Tensor]:
        return {key: of_cores[0] for key, of_cores in self.stand_ins.items()}

    @property
    def static_batch(self) -> int | None:
        return next((source.static_batch for source in self.batch.sources), None)

    def pending(self) -> "PendingLookup":
        """Gives core 0's activations to its model and, in training, makes gradients available."""
        given = self.activations
        if not self.step.training or not given:
            return PendingLookup(self, given)
        capture = GradientCapture()
        # The rate of this step is that of the global step before the program increments it.
        global_step = tf.identity(tf.compat.v1.train.get_or_create_global_step())
        with tf.control_dependencies([global_step]):
            seen = {key: capture.through(key, activation) for key, activation in given.items()}
        return PendingLookup(self, seen, capture, global_step)


@dataclasses.dataclass(frozen=True, eq=False)
class PendingLookup:
    """Activations in a model, whose gradients appear as the program's optimizer takes its own.

    Attributes:
      activations: core 0's activations as its model sees them, by feature key.
      capture: takes their gradients, in training; else None.
      global_step: before the program increments it, in training; else None.
    """

    reading: Reading
    activations: Mapping[str, tf.Tensor]
    capture: GradientCapture | None = None
    global_step: tf.Tensor | None = None

    @property
    def step(self) -> TableStep:
        return self.reading.step

    @property
    def features(self) -> dict[str, tf.Tensor]:
        """What core 0's model sees in place of the features that are `consumed`."""
        return {**self.reading.others, **self.activations}

    def again(self, key: str) -> tf.Tensor:
        """Returns an activation for a GradientTape, which sees only what is computed under it."""
        if self.capture is None:
            return self.activations[key]
        return self.capture.through(key, self.reading.activations[key])

    def gradients(self) -> dict[str, tf.Tensor]:
        """Returns the gradient of each of core 0's activations that has one, by feature key.

        Raises RuntimeError if a feature has two, or one that was computed in a function, loop or
        branch.
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

    def warn_of_zeros(self, reached: Iterable[str]) -> None:
        """Warns of the features that are not among `reached`, those with a gradient."""
        for table in self.step.tables:
            without = [f.key for f in table.features if f.key not in reached]
            if without:
                logger.warning(
                    "No gradient reaches features %s of table %s: zeros are used. The loss may not "
                    "depend on them, the optimizer was given a var_list without %s, or a "
                    "tf.GradientTape was opened after they were computed: use minimize(), "
                    "compute_gradients() or tf.gradients().",
                    without,
                    table.name,
                    helper_variable.HELPER_VARIABLE,
                )

    def multiplier(self) -> tf.Tensor | None:
        function = self.step.spec.experimental_gradient_multiplier_fn
        return None if function is None else functions.multiplier(function, self.global_step)

    def rates(self) -> list[tf.Tensor]:
        rates = learning_rates.table_rates(self.step.tables, self.global_step)
        # Rates may read the global step themselves: they do so before it is incremented.
        if self.capture:
            self.capture.wait_for([rate.op for rate in rates])
        return rates

    def create_tables(self, returned: Any = None) -> "LiveTables":
        """Creates the tables and wires their activations into the features that model_fn saw.

        From here on, no checkpoint and no list of variables shows the helper variable. An
        activation that stands unchanged in `returned`, the value of model_fn, counts as used.
        Raises MemoryError if this machine cannot hold the tables.
        """
        step, used = self.step, self._used(returned)
        tables = [table for table in step.tables if any(f.key in used for f in table.features)]
        if step.in_this_process and step.part is None:
            sizes.check_fits(tables, step.training)
        with placement.on_cpu():
            created = creation.create(
                tables, step.training, step.as_parts, step.shards, step.dtype, step.part
            )
        found = LiveTables(self, created)
        if tables:
            found.look_up(used)
        if step.training:
            helper_variable.hide()
        return found

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
      step: what looks them up.
      tables: those that the model uses, with their variables.
      kernels: None without tables.
      activations: of the whole batch, by feature key.
      fetch: brings the variables of tables that are elsewhere up to date in a session; else None.
      parts: writes the parts of a checkpoint that other hosts have, for its path, and returns their
        paths; None without other hosts.
    """

    def __init__(self, pending: PendingLookup, tables: list[storage.StoredTable]):
        self._pending = pending
        self.step = pending.step
        self.tables = tables
        self.activations: dict[str, tf.Tensor] = {}
        self.kernels: Kernels | None = None
        self._summaries: summaries.TableSummaries | None = None
        self._held: list[Any] = []
        self.fetch: Callable[[Any], None] | None = None
        self.parts: Callable[[bytes], list[bytes]] | None = None

    @property
    def stand_ins(self) -> dict[str, list[tf.Tensor]]:
        """Feature key -> the stand-in for the activation on each core."""
        return self._pending.reading.stand_ins

    def look_up(self, used: set[str]) -> None:
        step, reading = self.step, self._pending.reading
        cores = step.cores.count
        self.kernels = step.kernels(self.tables, cores, step.next_step)
        looked_up = [one for one in reading.batch.sources if one.feature.key in used]
        with tf.name_scope("embedding_lookup"), placement.on_cpu():
            computed = self.kernels.lookup(reading.batch, looked_up)
            for source, activation in zip(looked_up, computed, strict=True):
                key = source.feature.key
                activation = step.from_previous_step(activation)
                self.activations[key] = activation
                parts = step.slices(activation)
                for stand_in, part in zip(reading.stand_ins[key], parts, strict=True):
                    wire(stand_in, part)
        if step.summarizes:
            with placement.on_cpu():
                self._summaries = summaries.TableSummaries(
                    self.kernels.batch, step.next_step, step.dropped, cores
                )

    def hold_writes(self, *targets: Any) -> None:
        """Makes the variables that `targets` write wait until the batch was found good."""
        self._held += targets
        if self.kernels is not None:
            after_checks.wait(targets, self.kernels.checked)

    def after_checks(self, spec: Any) -> Any:
        """Returns an `EstimatorSpec` that writes nothing until the batch was found good."""
        self.hold_writes(getattr(spec, "train_op", None))
        if self.kernels is None or self.step.training or getattr(spec, "loss", None) is None:
            return spec
        with tf.control_dependencies([self.kernels.checked]):
            return spec._replace(loss=tf.identity(spec.loss))

    def apply_gradients(
        self, gradients: Mapping[str, Sequence[tf.Tensor]] | None = None
    ) -> tf.Operation:
        """Updates every table.

        `gradients` are by feature those of each core's activation; None takes those captured, for
        one core. A feature without a gradient gets gradient zero: its rows are updated. A bad rate
        or multiplier stops the step before it writes anything.
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

        `reached` are the features with a gradient.
        """
        self._pending.warn_of_zeros(reached)
        multiplier = self._pending.multiplier()
        return self._pending.rates(), multiplier

    def check_rates(
        self, rates: Sequence[tf.Tensor], multiplier: tf.Tensor | None
    ) -> list[tf.Tensor]:
        """Returns what fails for a bad rate or multiplier, if they are a program's functions."""
        problems = learning_rates.problems(self.step.spec, self.tables, rates, multiplier)
        return [bad_input.require(problems, "check_rates")] if problems else []

    def warm_start(self, settings: Any) -> Any:
        """Returns the program's `WarmStartSettings`, in which slots go with their tables."""
        return storage.with_slots(settings, self.tables)

    def saved_names(self) -> list[str]:
        return [storage.saved_name(table.variables[0].weights) for table in self.tables]

    def all_variables(self) -> list[tf.Variable]:
        """Returns every variable of the tables: their weights and slots, by shard."""
        return [one for table in self.tables for one in table.all_variables]


@contextlib.contextmanager
def in_update() -> Iterator[None]:
    """Names and places the ops that compute rates and update tables."""
    with tf.name_scope("embedding_update"), placement.on_cpu():
        yield


def _place(tensor: tf.Tensor) -> tuple[tf.Graph, Any]:
    return tensor.graph, output_context(tensor.op)


def _leaves(structure: Any) -> Iterator[Any]:
    for leaf in tf.nest.flatten(structure):
        yield leaf
        if isinstance(leaf, ExportOutput):
            yield from tf.nest.flatten(list(vars(leaf).values()))
