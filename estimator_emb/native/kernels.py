# SPDX-License-Identifier: Apache-2.0
"""Looks up all tables of a step in one op, and updates them in another."""

import dataclasses
import hashlib
from collections.abc import Container, Iterator, Mapping, Sequence
from typing import Any

import tensorflow as tf

from estimator_emb.native import ops, to_ids
from estimator_emb.native.rules import Rule
from estimator_emb.step import checks, forms, inputs, integers
from estimator_emb.step.inputs import Batch, Ids
from estimator_emb.step.transfer import NextStep, whole_step
from estimator_emb.tables.storage import StoredTable

_ONE, _DENSE, _PLACES = range(3)  # Form, in kernels.h.
TENSORS = ("ids", "places", "shapes", "weights")
"""The entries of `arguments` that are tensors of a batch."""
_COMBINERS = {None: 0, "sum": 0, "mean": 1, "sqrtn": 2}  # Combiner, in kernels.h.


@dataclasses.dataclass(frozen=True)
class _Occurrences:
    """The ids of a feature, in a form that the kernels read and, if `raw`, still have to check.

    `places` is int64 [n], segments, or [n, 2], samples and positions; `shape[0]` counts
    samples.
    """

    ids: tf.Tensor
    form: int
    places: tf.Tensor | None
    shape: tf.Tensor | None
    weights: tf.Tensor | None
    raw: bool


class Checked:
    """Kernels that begin with one op that checks all raw ids of the batch."""

    carried: tuple[str, ...] = TENSORS
    """The entries of `_features` that an update in the next session call needs of the batch."""

    def __init__(
        self, library: ops.Library, tables: Sequence[StoredTable], next_step: NextStep | None
    ):
        self._ops = library.ops
        self._number = {table.name: number for number, table in enumerate(tables)}
        self._next_step = next_step
        self._features: dict[str, Any] = {}
        self.checked: tf.Tensor | None = None

    def finish_lookup(self) -> None:
        if self._next_step:
            of_batch = {name: self._features[name] for name in self.carried}
            self._features.update(self._next_step.carried(of_batch))

    def check(self, batch: Batch) -> "dict[str, _Occurrences]":
        """Sets `checked`, and returns the occurrences by feature key."""
        read = batch.ids
        converted = to_ids.converted(self._ops, batch)
        features = {**batch.features, **converted}
        raw = {ids.feature.key: _occurrences(ids, features, batch.dropped) for ids in read}

        def explain() -> tf.Tensor:
            # Raw ids are read in this branch, because ops outside it would run in every step.
            again = [
                _read_in_branch(ids, raw[ids.feature.key].raw, features, converted) for ids in read
            ]
            _, good_again = checks.checked(again, batch.size)
            unknown = (
                "The native kernels refuse a batch in which TensorFlow's ops find nothing wrong; "
                "ESTIMATOR_EMB_NATIVE=0 trains without them."
            )
            with tf.control_dependencies([good_again]):
                refused = tf.raw_ops.Assert(condition=tf.constant(False), data=[unknown])
            with tf.control_dependencies([refused]):
                return tf.constant(False)

        computed = [ids for ids in read if not raw[ids.feature.key].raw]
        with tf.name_scope("check_ids"), checks.after_forms(computed):
            good = self._ops.host_tables_ids_are_good(
                **arguments(read, raw, [0] * len(read)),
                others=checks.reading_holds(computed),
                sizes=[ids.table.config.vocabulary_size for ids in read],
                most_samples=[forms.most_samples(ids.table, ids.feature) for ids in read],
                batch_size=-1 if batch.size is None else batch.size,
            )
            self.checked = tf.cond(good, lambda: tf.constant(True), explain)
        for ids in read:
            if raw[ids.feature.key].raw:
                forms.hold(ids, self.checked)  # Ops that compute the lengths of a sequence.
        return raw


class NativeKernels(Checked):
    """`step.kernels.Kernels` with one lookup and one update op; without updates no `rules`."""

    def __init__(
        self,
        library: ops.Library,
        tables: Sequence[StoredTable],
        rules: Sequence[Rule],
        num_cores: int,
        next_step: NextStep | None,
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

    def lookup(self, batch: Batch, used: Sequence[Ids]) -> Iterator[tf.Tensor]:
        raw = self.check(batch)
        self._features = arguments(used, raw, [self._number[ids.table.name] for ids in used])
        if self._next_step:
            self._next_step.kernels = kind_of(self._features, batch)
        with tf.control_dependencies([self.checked]):
            self._read, self._orders = self._ops.host_tables_lookup(
                tables=[table.variables[0].weights.handle for table in self._tables],
                F=len(used),
                N=len(self._tables) if self._keeps_orders else 0,
                **self._features,
            )

        yield from self._read

    def update(self, gradients: Iterator[tf.Tensor], rates: Sequence[tf.Tensor]) -> tf.Operation:
        computed = list(gradients)
        shards = [table.variables[0] for table in self._tables]
        variables = [(shard.weights, *shard.slots) for shard in shards]
        optimizers = [table.trained_by for table in self._tables]
        # The update must wait for the lookup, even if the gradients do not depend on it.
        with tf.control_dependencies(self._read):
            updated = self._ops.host_tables_update(
                variables=[
                    variable.handle for table_variables in variables for variable in table_variables
                ],
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


def _occurrences(ids: Ids, features: Mapping[str, Any], dropped: bool) -> _Occurrences:
    value = inputs.as_tensor(features[ids.feature.key])
    ragged = isinstance(value, tf.RaggedTensor)
    if not dropped and ids.weights is None and value.dtype.is_integer and not ragged:
        if isinstance(value, tf.SparseTensor):
            return _Occurrences(value.values, _PLACES, value.indices, value.dense_shape, None, True)
        form = _ONE if ids.segments is None else _DENSE
        return _Occurrences(value, form, None, None, None, True)
    if ids.segments is None:
        return _Occurrences(ids.ids, _ONE, None, None, ids.weights, False)
    return _Occurrences(ids.ids, _PLACES, ids.segments, ids.batch, ids.weights, False)


def _read_in_branch(
    ids: Ids, raw: bool, features: Mapping[str, Any], converted: Container[str]
) -> Ids:
    if not raw:
        return dataclasses.replace(ids, source=None)  # Its form was checked outside the branch.
    value = inputs.as_tensor(features[ids.feature.key])
    # Copied into this branch, so that the ops that read them can wait for its control inputs.
    copied = tf.nest.map_structure(tf.identity, value, expand_composites=True)
    feature = ids.feature
    if feature.key in converted:  # Strings again: among integers, -1 would be a bad id in places.
        copied = integers.written(copied)
        feature = dataclasses.replace(feature, to_ids=integers.parsed)
    return inputs.read_feature(ids.table, feature, {feature.key: copied})


def arguments(
    used: Sequence[Ids], raw: Mapping[str, _Occurrences], table_of: list[int]
) -> dict[str, Any]:
    """Returns the arguments that describe features, which all ops share."""
    occurrences = [raw[ids.feature.key] for ids in used]
    return {
        "ids": [feature.ids for feature in occurrences],
        "places": [feature.places for feature in occurrences if feature.places is not None],
        "shapes": [feature.shape for feature in occurrences if feature.shape is not None],
        "weights": [feature.weights for feature in occurrences if feature.weights is not None],
        "forms": [feature.form for feature in occurrences],
        "combiners": [_COMBINERS[ids.table.config.combiner] for ids in used],
        "limits": [ids.feature.max_sequence_length or 0 for ids in used],
        "weighted": [feature.weights is not None for feature in occurrences],
        "owners": [ids.owner for ids in used],
        "table_of": table_of,
    }


def kind_of(arguments: Mapping[str, Any], batch: Batch) -> str:
    """Returns a name that two ops share only if the tensors in their arguments mean the same."""
    meaning = {name: value for name, value in arguments.items() if name not in TENSORS}
    form = [(tensor.dtype.name, tensor.shape.rank) for tensor in arguments["ids"]]
    text = repr((sorted(meaning.items()), form, batch.dropped))
    return f"native_{hashlib.sha256(text.encode()).hexdigest()[:16]}_"


def rule_arguments(rules: Sequence[Rule]) -> dict[str, Any]:
    """Returns the arguments that describe rules, which all update ops share."""
    return {
        "rules": [rule.name for rule in rules],
        "slots": [rule.slots for rule in rules],
        "constants": [number for rule in rules for number in rule.constants],
        "constants_of": [len(rule.constants) for rule in rules],
    }
