# SPDX-License-Identifier: Apache-2.0
"""Describes how a checkpoint differs from the program that is to restore it."""

import dataclasses
import difflib
import itertools
from collections.abc import Iterable, Mapping, Sequence

import tensorflow as tf

from estimator_emb.checkpoints.files.checkpoint_files import MissingCheckpoint
from estimator_emb.checkpoints.reading import saved_variables
from estimator_emb.checkpoints.reading.saved_variables import SavedVariable
from estimator_emb.messages.text_columns import escaped
from estimator_emb.spec.resolved import Table
from estimator_emb.tables.storage import saved_name

SHOWN = 5
"""The most differences that a message lists."""


class UnfitCheckpoint(tf.errors.InvalidArgumentError, ValueError):  # type: ignore[misc]
    """The error of a variable that has another shape or type in the checkpoint than in the graph.

    Its two bases are the errors that TensorFlow raises, depending on how it restores the variable.
    """

    def __init__(self, message: str):
        super().__init__(None, None, message)


@dataclasses.dataclass(frozen=True)
class Form:
    """The shape and the type of a variable; of unknown rank, or None, if any will do.

    `shape` is that of the whole variable. With `in_parts`, the graph has parts of it, which no
    saver reshapes.
    """

    shape: tf.TensorShape
    dtype: tf.DType | None
    in_parts: bool = False


class Misfits:
    """The differences between the variables `here` in a graph and those of a checkpoint."""

    def __init__(
        self,
        path: str,
        tables: Sequence[Table],
        here: Mapping[str, Form],
        warm_start: bool = False,
    ):
        self._path = path
        self._tables = tables
        self._here = here
        self._warm_start = warm_start
        self._other_shapes: dict[str, tuple[tf.TensorShape, tf.TensorShape]] = {}
        self._others: list[str] = []
        self._missing: dict[str, str] = {}
        self._remedies: dict[str, None] = {}

    def of_shape(self, name: str, here: tf.TensorShape, there: tf.TensorShape) -> None:
        """Notes a variable whose shapes differ."""
        self._other_shapes[name] = here, there

    def of_type(self, name: str, here: tf.DType, there: tf.DType) -> None:
        """Notes a variable whose types differ."""
        self._others.append(
            f"{self._described(name)} is {here.name} here and {there.name} in the checkpoint"
        )
        self._advise("save the checkpoint again with the types of the program")

    def of_old_vocabulary(self, name: str, size: int, there: tf.TensorShape) -> None:
        """Notes a table whose `VocabInfo` asks for more rows than the checkpoint has."""
        self._others.append(
            f"{self._described(name)} is {_list(there)} in the checkpoint, and its VocabInfo says "
            f"old_vocab_size={size}"
        )
        self._advise("give the VocabInfo of the vocabulary that the checkpoint has")

    def missing(self, name: str, key: str) -> None:
        """Notes a variable that the checkpoint should have under the name `key`."""
        self._missing[name] = key

    def raise_error(self) -> None:
        """Raises an error that lists the differences, if there are any."""
        differences = [*self._describe_shapes(), *self._others]
        unfit = bool(differences)
        if self._missing:
            differences += self._describe_missing()
        if not differences:
            return
        more = len(differences) - SHOWN
        doing = "Warm-starting" if self._warm_start else "Restoring"
        message = "\n".join(
            [
                f"{doing} from checkpoint failed: '{self._path}' does not fit the program:",
                *(f"  {difference}" for difference in differences[:SHOWN]),
                *([f"  and {more} more"] if more > 0 else []),
                *(f"What to do: {remedy}." for remedy in self._remedies),
            ]
        )
        raise UnfitCheckpoint(message) if unfit else MissingCheckpoint(message)

    def _advise(self, remedy: str) -> None:
        self._remedies[remedy] = None

    def _elsewhere(self, names: Sequence[str]) -> str:
        if self._warm_start:
            return f"leave {', '.join(names)} out of vars_to_warm_start"
        return "train in another model_dir"

    def _described(self, name: str) -> str:
        table, weights = self._owner(name)
        if table is None:
            return f"variable {name}"
        return f"table {table.name!r}: {'variable' if name == weights else 'slot'} {name}"

    def _owner(self, name: str) -> tuple[Table | None, str]:
        """Returns (table of a variable or None, name of its weights)."""
        for table in self._tables:
            weights = _weights(table, name)
            if weights:
                return table, weights
        return None, ""

    def _describe_shapes(self) -> list[str]:
        texts: list[tuple[bool, str]] = []
        rows: list[str] = []
        columns: list[str] = []
        dense: list[str] = []
        for name, shapes in self._other_shapes.items():
            table, weights = self._owner(name)
            if name != weights and self._other_shapes.get(weights) == shapes:
                continue  # The text of its table names it.
            here, there = shapes
            slots = [
                slot
                for slot, slot_shapes in self._other_shapes.items()
                if table is not None and slot_shapes == shapes
                if slot != name == weights == self._owner(slot)[1]
            ]
            text = self._described(name)
            text += f" and {', '.join(slots)} are" if slots else " is"
            text += f" {_list(here)} here and {_list(there)} in the checkpoint"
            texts.append((table is None, text))
            if table is None or here.rank != 2 or there.rank != 2:
                dense.append(name)
            else:
                (rows if here[1] == there[1] else columns).append(name)
        self._advise_on_shapes(rows, columns, dense)
        return [text for _, text in sorted(texts)]

    def _advise_on_shapes(
        self, rows: Sequence[str], columns: Sequence[str], dense: Sequence[str]
    ) -> None:
        if rows:
            more = ", ..." if len(rows) > 1 else ""
            infos = f"var_name_to_vocab_info={{'{rows[0]}': VocabInfo(...){more}}}"
            if self._warm_start:
                self._advise(
                    f"give {infos}, which moves rows to their new ids, or {self._elsewhere(rows)}"
                )
            else:
                listed = _not_trainable(rows)
                self._advise(
                    "give the table its old number of rows again, or train in another model_dir "
                    f"with warm_start_from=WarmStartSettings('{self._path}', {listed}{infos}), "
                    "which moves rows to their new ids"
                )
        if columns:
            self._advise(f"give the table its old dimension again, or {self._elsewhere(columns)}")
        if dense:
            self._advise(
                f"build the model as it was when it was saved, or {self._elsewhere(dense)}"
            )

    def _describe_missing(self) -> list[str]:
        saved = {variable.name: variable for variable in saved_variables.inspect(self._path)}
        tables, others = [], []
        renamed: dict[str, str] = {}
        described = set()
        for name, key in self._missing.items():
            table, weights = self._owner(name)
            if table is None:
                others.append(self._describe_name(name, key, None, saved.values(), renamed))
            elif name == weights:
                tables.append(self._describe_name(name, key, table, saved.values(), renamed))
            elif weights not in self._missing and weights not in described:
                # One text for all slots of a table; a missing table has a text of its own.
                described.add(weights)
                slots = [
                    key for slot, key in self._missing.items() if self._owner(slot)[1] == weights
                ]
                tables.append(self._describe_slots(table, slots, saved.get(weights)))
        self._advise_on_names(renamed)
        return [*tables, *others]

    def _advise_on_names(self, renamed: Mapping[str, str]) -> None:
        if not renamed:
            return
        pairs = [f"{name!r}: {old!r}" for name, old in renamed.items()]
        old_names = f"var_name_to_prev_var_name={{{', '.join(pairs[:2])}"
        old_names += ", ...}" if pairs[2:] else "}"
        if self._warm_start:
            self._advise(f"if it was renamed, give {old_names}")
        else:
            self._advise(
                "if it was renamed, give it its old name, or train in another model_dir with "
                f"warm_start_from=WarmStartSettings('{self._path}', ['.*'], {old_names})"
            )

    def _describe_slots(
        self,
        table: Table,
        slots: Sequence[str],
        saved: SavedVariable | None,
    ) -> str:
        there, as_before = "it has no slots in the checkpoint", ""
        if saved is not None and saved.slots:
            there = f"its slots in the checkpoint are {', '.join(saved.slots)}"
            if saved.optimizer:
                there += f" of {saved.optimizer}"
                as_before = f"train with {saved.optimizer}Parameters again, or "
        if self._warm_start:
            self._advise(f"{as_before}{self._elsewhere(slots)}")
        else:
            listed = _not_trainable([self._owner(slots[0])[1]]).removesuffix(", ")
            start = f"WarmStartSettings('{self._path}', {listed})" if listed else f"'{self._path}'"
            self._advise(
                f"{as_before}train in another model_dir with warm_start_from={start}, which takes "
                "the tables and begins their slots anew"
            )
        optimizer = type(table.optimizer).__name__.removesuffix("Parameters")
        nor = f" (nor {', '.join(slots[1:])})" if slots[1:] else ""
        return (
            f"Key {slots[0]} not found in checkpoint{nor}: table {table.name!r} trains with "
            f"{optimizer} here, and {there}"
        )

    def _describe_name(
        self,
        name: str,
        key: str,
        table: Table | None,
        saved: Iterable[SavedVariable],
        renamed: dict[str, str],
    ) -> str:
        """Describes a missing variable, and adds its possible former name to `renamed`."""
        shape = self._here[name].shape
        alike = [
            variable.name
            for variable in saved
            if variable.name not in self._here
            and shape.rank
            and shape.is_compatible_with(variable.shape)
        ]
        alike.sort(key=lambda old_name: -difflib.SequenceMatcher(None, name, old_name).ratio())
        text = f"Key {key} not found in checkpoint"
        text += (
            f": it is {_list(shape)}"
            if table is None
            else (f": table {table.name!r} is {_list(shape)}")
        )
        if alike:
            renamed[name] = alike[0]
            more = f" and {len(alike) - 3} more" if len(alike) > 3 else ""
            names = escaped(", ".join(alike[:3]))
            return f"{text}, and of that shape the checkpoint has {names}{more}"
        self._advise(f"build the model as it was when it was saved, or {self._elsewhere([name])}")
        return f"{text}, and of that shape the checkpoint has no other"


def _not_trainable(names: Sequence[str]) -> str:
    """Returns patterns for a warm start of tables that are not trainable, as on a TPU, or ''."""
    trainable = {saved_name(variable) for variable in tf.compat.v1.trainable_variables()}
    if trainable.issuperset(names):
        return ""
    patterns = ", ".join(f"'{name}/part_'" for name in names)
    return f"[{patterns}, ...], "


def _list(shape: tf.TensorShape) -> str:
    return str(shape.as_list()) if shape.rank is not None else str(shape)


def _weights(table: Table, name: str) -> str | None:
    """Returns the weights of a table if `name` is theirs or that of a slot, else None."""
    parts = name.split("/")
    if table.scope_key is None:
        own = name == table.name or name.startswith(f"{table.name}/")
        return table.name if own else None
    columns = {feature.column_name for feature in table.features}
    for end, (column, last) in enumerate(itertools.pairwise(parts), start=2):
        if column in columns and last == "embedding_weights":
            return "/".join(parts[:end])
    shared = all(str(column).endswith("_shared_embedding") for column in columns)
    if shared and table.scope_key in parts:
        return "/".join(parts[: parts.index(table.scope_key) + 1])
    return None
