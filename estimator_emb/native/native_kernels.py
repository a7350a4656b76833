"""Looks up all tables of a step in a single op, and updates them in another."""

import dataclasses
import hashlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import tensorflow as tf

from estimator_emb.engine import bad_input, bad_values, inputs, structure_checks
from estimator_emb.engine.inputs import Batch, Ids, Source
from estimator_emb.engine.pipelining import LookaheadBuffer, whole_step
from estimator_emb.engine.tables.storage import StoredTable
from estimator_emb.native import ops, to_ids
from estimator_emb.native.rules import Rule

_ONE, _DENSE, _PLACES = range(3)  # The enum Form in kernels.h.
TENSORS = ("ids", "places", "shapes", "weights")
"""Names of the op arguments that are tensors of a batch."""
_COMBINERS = {None: 0, "sum": 0, "mean": 1, "sqrtn": 2}  # The enum Combiner in kernels.h.


@dataclasses.dataclass(frozen=True)
class _Occurrences:
    """The ids of a feature in a form that the kernels read. They must still check `raw` ids.

    `places` is int64 [n], segments, or [n, 2], samples and positions. `shape[0]` is the number of
    samples.
    """

    ids: tf.Tensor
    form: int
    places: tf.Tensor | None
    shape: tf.Tensor | None
    weights: tf.Tensor | None
    raw: bool


class Checked:
    """Kernels that begin with a single op that checks all raw ids of the batch."""

    carried: tuple[str, ...] = TENSORS
    """Keys of the `_features` that an update in the next session call needs."""

    def __init__(
        self, library: ops.Library, tables: Sequence[StoredTable], next_step: LookaheadBuffer | None
    ):
        self._ops = library.ops
        self._number = {table.name: number for number, table in enumerate(tables)}
        self._next_step = next_step
        self._features: dict[str, Any] = {}
        self.checked: tf.Tensor | None = None

    def carry(self) -> None:
        """Keeps the batch's tensors for the update, if the update runs in the next session call."""
        if self._next_step:
            of_batch = {name: self._features[name] for name in self.carried}
            self._features.update(self._next_step.carried(of_batch))

    def check(
        self, batch: Batch, used: Sequence[Source], layout: Mapping[str, Any]
    ) -> dict[str, Any]:
        """Sets `checked` and `batch`, and returns the arguments that describe features `used`.

        `layout` has the arguments that say where tables are.
        """
        self.batch = batch = to_ids.converted(self._ops, batch)
        read = batch.sources
        occurrences = {source.feature.key: _occurrences(source) for source in read}
        computed = [source.ids for source in read if not occurrences[source.feature.key].raw]
        with tf.name_scope("check_ids"), bad_input.after_forms(computed):
            most = [structure_checks.most_samples(one.table, one.feature) for one in read]
            good = self._ops.host_tables_ids_are_good(
                **_arguments(read, occurrences, dict.fromkeys((one.table.name for one in read), 0)),
                others=[
                    *bad_input.reading_holds(computed),
                    *(source.places.all_inside() for source in read if source.places),
                ],
                sizes=[source.table.config.vocabulary_size for source in read],
                most_samples=most,
                batch_size=-1 if batch.size is None else batch.size,
            )
            self.checked = tf.cond(
                good, lambda: tf.constant(True), lambda: _refusal(batch, computed, most)
            )
        for source in read:
            if occurrences[source.feature.key].raw:
                # The ops that compute the lengths of a sequence must wait too.
                structure_checks.hold(source, self.checked)
        features = _arguments(used, occurrences, self._number)
        if self._next_step:
            self._next_step.kernels = _kind_of({**features, **layout}, batch)
        return features


class NativeKernels(Checked):
    """`engine.kernels.Kernels` with a lookup and an update op. `rules` is for updates only."""

    def __init__(
        self,
        library: ops.Library,
        tables: Sequence[StoredTable],
        rules: Sequence[Rule],
        num_cores: int,
        next_step: LookaheadBuffer | None,
    ):
        super().__init__(library, tables, next_step)
        self._tables = list(tables)
        self._rules = rules
        self._num_cores = num_cores
        self._read: list[tf.Tensor] = []
        # An update in the session call of its lookup need not sort the ids again.
        self._keeps_orders = (
            next_step is None
            and bool(rules)
            and not any(table.trained_by.updates_untouched_rows for table in tables)
        )
        self._orders: list[tf.Tensor] = []

    def lookup(self, batch: Batch, used: Sequence[Source]) -> Iterator[tf.Tensor]:
        self._features = self.check(batch, used, {})
        with tf.control_dependencies([self.checked]):
            self._read, self._orders = self._ops.host_tables_lookup(
                tables=[table.variables[0].weights.handle for table in self._tables],
                F=len(used),
                N=len(self._tables) if self._keeps_orders else 0,
                **self._features,
            )
        yield from self._read
        self.carry()

    def update(self, gradients: Iterator[tf.Tensor], rates: Sequence[tf.Tensor]) -> tf.Operation:
        computed = list(gradients)
        variables = [variable for table in self._tables for variable in table.all_variables]
        optimizers = [table.trained_by for table in self._tables]
        # The update must wait for the lookup, even if the gradients do not depend on it.
        with tf.control_dependencies(self._read):
            updated = self._ops.host_tables_update(
                variables=[variable.handle for variable in variables],
                rates=tf.stack(rates),
                gradients=computed,
                orders=self._orders,
                cores=[
                    1 if one.use_gradient_accumulation else self._num_cores for one in optimizers
                ],
                every_row=[one.updates_untouched_rows for one in optimizers],
                **rule_arguments(self._rules),
                **self._features,
            )
        return whole_step([updated], self._next_step)


def _occurrences(source: Source) -> _Occurrences:
    value = source.value
    ragged = isinstance(value, tf.RaggedTensor)
    if not source.drop and source.weights is None and value.dtype.is_integer and not ragged:
        if isinstance(value, tf.SparseTensor):
            return _Occurrences(value.values, _PLACES, value.indices, value.dense_shape, None, True)
        form = _ONE if source.one_per_sample else _DENSE
        return _Occurrences(value, form, None, None, None, True)
    ids = source.ids
    if ids.segments is None:
        return _Occurrences(ids.ids, _ONE, None, None, ids.weights, False)
    return _Occurrences(ids.ids, _PLACES, ids.segments, ids.batch, ids.weights, False)


def _arguments(
    used: Sequence[Source], occurrences: Mapping[str, _Occurrences], number_of: Mapping[str, int]
) -> dict[str, Any]:
    """Returns the arguments that describe features, the same for all ops."""
    of_used = [occurrences[one.feature.key] for one in used]
    return {
        "ids": [feature.ids for feature in of_used],
        "places": [feature.places for feature in of_used if feature.places is not None],
        "shapes": [feature.shape for feature in of_used if feature.shape is not None],
        "weights": [feature.weights for feature in of_used if feature.weights is not None],
        "forms": [feature.form for feature in of_used],
        "combiners": [_COMBINERS[one.table.config.combiner] for one in used],
        "limits": [one.feature.max_sequence_length or 0 for one in used],
        "weighted": [feature.weights is not None for feature in of_used],
        "owners": [one.owner for one in used],
        "table_of": [number_of[one.table.name] for one in used],
    }


def _kind_of(arguments: Mapping[str, Any], batch: Batch) -> str:
    """Returns a name that two ops share only if the tensors in their arguments mean the same."""
    meaning = {name: value for name, value in arguments.items() if name not in TENSORS}
    form = [(tensor.dtype.name, tensor.shape.rank) for tensor in arguments["ids"]]
    text = repr((sorted(meaning.items()), form, any(source.drop for source in batch.sources)))
    return f"native_{hashlib.sha256(text.encode()).hexdigest()[:16]}_"


def _refusal(batch: Batch, computed: Sequence[Ids], most: Sequence[int]) -> tf.Tensor:
    """Returns a tensor that fails with the error of `bad_input.checked` when a step computes it.

    `computed` are the ids that TensorFlow's ops have read. `most` has each feature's most samples.
    """
    parts = ("ids", "segments", "weights", "batch", "uncut", "fit", "places")
    read = {one.feature.key: {name: getattr(one, name) for name in parts} for one in computed}
    structure = [read.get(one.feature.key) or _raw(one) for one in batch.sources]
    tensors = inputs.tensors_in(structure)

    def explain(*values: Any) -> bytes:
        given = inputs.packed(structure, values)
        found = bad_values.explanation(batch.sources, given, most, batch.size)
        internal = (
            "Internal error: the native kernels rejected a batch that TensorFlow's ops accept. "
            "Please report it; ESTIMATOR_EMB_NATIVE=0 works around it."
        )
        return (found or internal).encode()

    message = tf.numpy_function(explain, tensors, tf.string)
    stops = tf.raw_ops.Assert(condition=tf.constant(False), data=[message], summarize=1)
    with tf.control_dependencies([stops]):
        return tf.constant(False)


def _raw(source: Source) -> dict[str, Any]:
    value = source.value
    if not isinstance(value, tf.SparseTensor):
        return {"values": value}
    parts = {"values": value.values, "indices": value.indices, "shape": value.dense_shape}
    return {**parts, "places": source.places}


def rule_arguments(rules: Sequence[Rule]) -> dict[str, Any]:
    """Returns the arguments that describe rules, the same for all update ops."""
    return {
        "rules": [rule.name for rule in rules],
        "slots": [rule.slots for rule in rules],
        "constants": [number for rule in rules for number in rule.constants],
        "constants_of": [len(rule.constants) for rule in rules],
    }
