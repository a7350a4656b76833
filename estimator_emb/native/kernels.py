# SPDX-License-Identifier: Apache-2.0
"""Lookup and update of all tables of a step, in one op each."""

import dataclasses
import logging
import os
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import tensorflow as tf

from estimator_emb.native import build, ops
from estimator_emb.step.transfer import Transfer, waits_for
from estimator_emb.tables import checks, forms, inputs
from estimator_emb.tables.inputs import Batch, Ids
from estimator_emb.tables.storage import StoredTable

logger = logging.getLogger("estimator_emb")

_ONE, _DENSE, _PLACES = range(3)  # Form, in kernels.h.
_COMBINERS = {None: 0, "sum": 0, "mean": 1, "sqrtn": 2}  # Combiner, in kernels.h.


class CannotUse(Exception):
    """Why the kernels do not apply to an engine, in one line."""


@dataclasses.dataclass(frozen=True)
class _Occurrences:
    """A feature's ids in a form that the kernels read: as they came, unless strings or weighted.

    Attributes:
      ids: int32 or int64.
      form: how `places` says where they belong.
      places: int64 [n] or [n, 2], for form `_PLACES`.
      shape: int64, the number of samples first; for the same.
      weights: float32 [n].
      raw: True if this is what came, of which the kernels check all.
    """

    ids: tf.Tensor
    form: int
    places: tf.Tensor | None
    shape: tf.Tensor | None
    weights: tf.Tensor | None
    raw: bool


def kernels_for(
    tables: Sequence[StoredTable],
    clipping_limit: float | None,
    transfer: Transfer | None,
    obstacle: str | None = None,
) -> "NativeKernels | None":
    """Returns kernels for these tables; None where they have none, which training says in the log.

    Args:
      tables: all tables of the step.
      clipping_limit: of the spec.
      transfer: as of `NativeKernels`.
      obstacle: what the step itself knows to be in the way.
    """
    try:
        if os.environ.get("ESTIMATOR_EMB_NATIVE") == "0":
            raise CannotUse("ESTIMATOR_EMB_NATIVE is 0")
        if obstacle:
            raise CannotUse(obstacle)
        _check_tables(tables)
        return NativeKernels(ops.load(), tables, clipping_limit, transfer)
    except (CannotUse, build.BuildError) as reason:
        training = any(table.optimizer is not None for table in tables)
        logger.log(
            logging.INFO if training else logging.DEBUG,
            "Tables use TensorFlow's ops, without native kernels: %s.",
            str(reason),  # A handler that keeps records would keep the exception's graph.
        )
        return None


def _check_tables(tables: Sequence[StoredTable]) -> None:
    seen = set()
    for table in tables:
        if len(table.variables) > 1:
            raise CannotUse(f"table {table.name} is divided into shards")
        (whole,) = table.variables
        for variable in (whole.weights, *whole.slots):
            device = tf.DeviceSpec.from_string(variable.handle.device or "")
            if device.job not in (None, "localhost"):
                raise CannotUse(f"table {table.name} is on {variable.handle.device}")
            if device.device_type not in (None, "CPU") or (
                device.device_type is None and tf.config.list_physical_devices("GPU")
            ):
                raise CannotUse(f"table {table.name} may be on a GPU")
            if variable.handle.ref() in seen:
                raise CannotUse(f"variable {variable.name} serves twice")
            seen.add(variable.handle.ref())
        if whole.weights.shape[0] >= 2**31:
            raise CannotUse(f"table {table.name} has 2^31 rows or more")
        if table.optimizer is not None and table.optimizer.updates_untouched_rows:
            raise CannotUse(f"the optimizer of table {table.name} updates every row")


class NativeKernels:
    """`step.kernels.Kernels` with one op over all tables for the lookup, and one for the update.

    Args:
      library: the ops.
      tables: the tables, with their optimizers where they are updated.
      clipping_limit: of the spec.
      transfer: carries what the lookup reads to an update that does not run beside it; None where
        it does.

    Raises:
      build.BuildError: the rule of an optimizer cannot be built.
    """

    def __init__(
        self,
        library: ops.Library,
        tables: Sequence[StoredTable],
        clipping_limit: float | None,
        transfer: Transfer | None,
    ):
        self._ops = library.ops
        self._tables = list(tables)
        self._number = {table.name: number for number, table in enumerate(tables)}
        self._rules = [
            library.rule(table.optimizer, clipping_limit)
            for table in tables
            if table.optimizer is not None
        ]
        self._transfer = transfer
        self._features: dict[str, Any] = {}
        self._read: list[tf.Tensor] = []
        self.checked: tf.Tensor | None = None

    def lookup(self, batch: Batch, used: Sequence[Ids]) -> Iterator[tf.Tensor]:
        read, features = batch.ids, batch.features
        raw = {one.feature.key: _occurrences(one, features) for one in read}

        def explain() -> tf.Tensor:
            # Reads raw ids once more: what it read outside would be computed in every step.
            again = [_once_more(one, raw[one.feature.key].raw, features) for one in read]
            _, found = checks.checked(again, batch.size)
            unknown = (
                "The native kernels refuse a batch in which TensorFlow's ops find nothing wrong; "
                "ESTIMATOR_EMB_NATIVE=0 trains without them."
            )
            with tf.control_dependencies([found]):
                refused = tf.raw_ops.Assert(condition=tf.constant(False), data=[unknown])
            with tf.control_dependencies([refused]):
                return tf.constant(False)

        computed = [one for one in read if not raw[one.feature.key].raw]
        with tf.name_scope("check_ids"), checks.after_forms(computed):
            good = self._ops.host_tables_ids_are_good(
                **_arguments(read, raw, [0] * len(read)),
                others=checks.reading_holds(computed),
                sizes=[one.table.config.vocabulary_size for one in read],
                most_samples=[forms.most_samples(one.table, one.feature) for one in read],
                batch_size=-1 if batch.size is None else batch.size,
            )
            self.checked = tf.cond(good, lambda: tf.constant(True), explain)
        for one in read:
            if raw[one.feature.key].raw:
                forms.hold(one, self.checked)  # The lengths of a sequence.
        self._features = _arguments(used, raw, [self._number[one.table.name] for one in used])
        with tf.control_dependencies([self.checked]):
            self._read = self._ops.host_tables_lookup(
                tables=[table.variables[0].weights.handle for table in self._tables],
                F=len(used),
                **self._features,
            )

        yield from self._read

    def finish_lookup(self) -> None:
        if self._transfer:
            for name in ("ids", "places", "shapes", "weights"):
                self._features[name] = self._transfer.carried(self._features[name])

    def update(self, gradients: Iterator[tf.Tensor], rates: Sequence[tf.Tensor]) -> tf.Operation:
        computed = list(gradients)
        shards = [table.variables[0] for table in self._tables]
        variables = [(shard.weights, *shard.slots) for shard in shards]
        # A gradient need not depend on the activations; the update waits for them all the same.
        with tf.control_dependencies(waits_for(self._read, self._transfer)):
            return self._ops.host_tables_update(
                variables=[one.handle for of_table in variables for one in of_table],
                rates=tf.stack(rates),
                gradients=computed,
                rules=[rule.name for rule in self._rules],
                slots=[rule.slots for rule in self._rules],
                constants=[number for rule in self._rules for number in rule.constants],
                constants_of=[len(rule.constants) for rule in self._rules],
                **self._features,
            )


def _occurrences(one: Ids, features: Mapping[str, Any]) -> _Occurrences:
    value = features[one.feature.key]
    if not isinstance(value, (tf.RaggedTensor, tf.SparseTensor)):
        value = tf.convert_to_tensor(value)
    ragged = isinstance(value, tf.RaggedTensor)
    if one.weights is None and value.dtype.is_integer and not ragged:
        if isinstance(value, tf.SparseTensor):
            return _Occurrences(value.values, _PLACES, value.indices, value.dense_shape, None, True)
        form = _ONE if one.segments is None else _DENSE
        return _Occurrences(value, form, None, None, None, True)
    if one.segments is None:
        return _Occurrences(one.ids, _ONE, None, None, one.weights, False)
    return _Occurrences(one.ids, _PLACES, one.segments, one.batch, one.weights, False)


def _once_more(one: Ids, raw: bool, features: Mapping[str, Any]) -> Ids:
    """A feature for `checks.check` in a branch of the graph."""
    if not raw:
        return dataclasses.replace(one, source=None)  # Its form was checked outside.
    value = features[one.feature.key]
    if not isinstance(value, tf.SparseTensor):
        value = tf.convert_to_tensor(value)
    # Of this branch, so that what reads them can wait in it.
    mine = tf.nest.map_structure(tf.identity, value, expand_composites=True)
    return inputs.read(one.table, one.feature, {one.feature.key: mine})


def _arguments(
    used: Sequence[Ids], raw: Mapping[str, _Occurrences], table_of: list[int]
) -> dict[str, Any]:
    """The arguments that describe features, alike for every op."""
    occurrences = [raw[one.feature.key] for one in used]
    return {
        "ids": [one.ids for one in occurrences],
        "places": [one.places for one in occurrences if one.places is not None],
        "shapes": [one.shape for one in occurrences if one.shape is not None],
        "weights": [one.weights for one in occurrences if one.weights is not None],
        "forms": [one.form for one in occurrences],
        "combiners": [_COMBINERS[one.table.config.combiner] for one in used],
        "limits": [one.feature.max_sequence_length or 0 for one in used],
        "weighted": [one.weights is not None for one in occurrences],
        "owners": [one.owner for one in used],
        "table_of": table_of,
    }
