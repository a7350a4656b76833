# SPDX-License-Identifier: Apache-2.0
"""How a checkpoint differs from the program that would restore it, in words."""

import dataclasses
import difflib
import itertools
from collections.abc import Iterable, Mapping, Sequence

import tensorflow as tf

from estimator_emb import checkpoint
from estimator_emb.checkpoints.checkpoint_files import MissingCheckpoint
from estimator_emb.spec import Table
from estimator_emb.tables.storage import saved_name

SHOWN = 5
"""How many differences a message tells of."""


class UnfitCheckpoint(tf.errors.InvalidArgumentError, ValueError):  # type: ignore[misc]
    """A variable has another shape or type in the checkpoint than in the graph.

    TensorFlow raises one or the other of these two, by how the variable is restored.
    """

    def __init__(self, message: str):
        super().__init__(None, None, message)


@dataclasses.dataclass(frozen=True)
class Form:
    """What a variable holds.

    Attributes:
      shape: of the whole, where the graph has parts; of unknown rank if any will do.
      dtype: of its values; None if any will do.
      in_parts: whether the graph has parts, which no saver reshapes.
    """

    shape: tf.TensorShape
    dtype: tf.DType | None
    in_parts: bool = False


class Misfits:
    """Collects the differences between a graph and a checkpoint.

    Args:
      path: prefix of the checkpoint.
      tables: those of the spec, each with the name of its optimizer.
      here: the variables of the graph, by name.
      warm_start: whether the checkpoint is one to warm-start from.
    """

    def __init__(
        self,
        path: str,
        tables: Sequence[tuple[Table, str]],
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
        """Notes a table whose `VocabInfo` promises more rows than the checkpoint has."""
        self._others.append(
            f"{self._described(name)} is {_list(there)} in the checkpoint, and its VocabInfo says "
            f"old_vocab_size={size}"
        )
        self._advise("give the VocabInfo of the vocabulary that the checkpoint has")

    def missing(self, name: str, key: str) -> None:
        """Notes a variable that the checkpoint should have under the name `key`."""
        self._missing[name] = key

    def raise_error(self) -> None:
        """Raises an error that tells of the differences, if there are any.

        Raises:
          UnfitCheckpoint: variables have other shapes or types.
          MissingCheckpoint: the checkpoint lacks variables, and has the others as they are.
        """
        differences = [*self._told_of_shapes(), *self._others]
        unfit = bool(differences)
        if self._missing:
            differences += self._told_of_missing()
        if not differences:
            return
        more = len(differences) - SHOWN
        doing = "Warm-starting" if self._warm_start else "Restoring"
        message = "\n".join(
            [
                f"{doing} from checkpoint failed: '{self._path}' does not fit the program:",
                *(f"  {one}" for one in differences[:SHOWN]),
                *([f"  and {more} more"] if more > 0 else []),
                *(f"What to do: {one}." for one in self._remedies),
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
        table, _, weights = self._owner(name)
        if table is None:
            return f"variable {name}"
        return f"table {table.name!r}: {'variable' if name == weights else 'slot'} {name}"

    def _owner(self, name: str) -> tuple[Table | None, str, str]:
        """Returns the table of a variable, its optimizer, and the name of its weights."""
        for table, optimizer in self._tables:
            weights = _weights(table, name)
            if weights:
                return table, optimizer, weights
        return None, "", ""

    def _told_of_shapes(self) -> list[str]:
        told: list[tuple[bool, str]] = []
        rows: list[str] = []
        columns: list[str] = []
        dense: list[str] = []
        for name, shapes in self._other_shapes.items():
            table, _, weights = self._owner(name)
            if name != weights and self._other_shapes.get(weights) == shapes:
                continue  # Told with its table.
            here, there = shapes
            slots = [
                one
                for one, of_one in self._other_shapes.items()
                if table is not None and of_one == shapes
                if one != name == weights == self._owner(one)[2]
            ]
            text = self._described(name)
            text += f" and {', '.join(slots)} are" if slots else " is"
            text += f" {_list(here)} here and {_list(there)} in the checkpoint"
            told.append((table is None, text))
            if table is None or here.rank != 2 or there.rank != 2:
                dense.append(name)
            else:
                (rows if here[1] == there[1] else columns).append(name)
        self._advise_on_shapes(rows, columns, dense)
        return [text for _, text in sorted(told)]

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

    def _told_of_missing(self) -> list[str]:
        saved = {one.name: one for one in checkpoint.inspect(self._path)}
        tables, others = [], []
        renamed: dict[str, str] = {}
        told = set()
        for name, key in self._missing.items():
            table, optimizer, weights = self._owner(name)
            if table is None:
                others.append(self._told_of_name(name, key, None, saved.values(), renamed))
            elif name == weights:
                tables.append(self._told_of_name(name, key, table, saved.values(), renamed))
            elif weights not in self._missing and weights not in told:
                # Once for all slots of a table; a table that is missing tells of itself.
                told.add(weights)
                slots = [
                    key for one, key in self._missing.items() if self._owner(one)[2] == weights
                ]
                tables.append(self._told_of_slots(table, optimizer, slots, saved.get(weights)))
        self._advise_on_names(renamed)
        return [*tables, *others]

    def _advise_on_names(self, renamed: Mapping[str, str]) -> None:
        if not renamed:
            return
        pairs = [f"'{name}': '{old}'" for name, old in renamed.items()]
        old_names = f"var_name_to_prev_var_name={{{', '.join(pairs[:2])}"
        old_names += ", ...}" if pairs[2:] else "}"
        if self._warm_start:
            self._advise(f"if it was renamed, give {old_names}")
        else:
            self._advise(
                "if it was renamed, give it its old name, or train in another model_dir with "
                f"warm_start_from=WarmStartSettings('{self._path}', ['.*'], {old_names})"
            )

    def _told_of_slots(
        self,
        table: Table,
        optimizer: str,
        slots: Sequence[str],
        saved: checkpoint.SavedVariable | None,
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
            listed = _not_trainable([self._owner(slots[0])[2]]).removesuffix(", ")
            start = f"WarmStartSettings('{self._path}', {listed})" if listed else f"'{self._path}'"
            self._advise(
                f"{as_before}train in another model_dir with warm_start_from={start}, which takes "
                "the tables and begins their slots anew"
            )
        nor = f" (nor {', '.join(slots[1:])})" if slots[1:] else ""
        return (
            f"Key {slots[0]} not found in checkpoint{nor}: table {table.name!r} trains with "
            f"{optimizer} here, and {there}"
        )

    def _told_of_name(
        self,
        name: str,
        key: str,
        table: Table | None,
        saved: Iterable[checkpoint.SavedVariable],
        renamed: dict[str, str],
    ) -> str:
        """Tells of a variable; adds what it may have been called before to `renamed`."""
        shape = self._here[name].shape
        alike = [
            one.name
            for one in saved
            if one.name not in self._here and shape.rank and shape.is_compatible_with(one.shape)
        ]
        alike.sort(key=lambda one: -difflib.SequenceMatcher(None, name, one).ratio())
        text = f"Key {key} not found in checkpoint"
        text += (
            f": it is {_list(shape)}"
            if table is None
            else (f": table {table.name!r} is {_list(shape)}")
        )
        if alike:
            renamed[name] = alike[0]
            more = f" and {len(alike) - 3} more" if len(alike) > 3 else ""
            return f"{text}, of which shape the checkpoint has {', '.join(alike[:3])}{more}"
        self._advise(f"build the model as it was when it was saved, or {self._elsewhere([name])}")
        return f"{text}, of which shape the checkpoint has no other"


def _not_trainable(names: Sequence[str]) -> str:
    """Patterns for a warm start, where it takes tables only if they are listed: on a TPU."""
    trainable = {saved_name(one) for one in tf.compat.v1.trainable_variables()}
    if trainable.issuperset(names):
        return ""
    patterns = ", ".join(f"'{name}/part_'" for name in names)
    return f"[{patterns}, ...], "


def _list(shape: tf.TensorShape) -> str:
    """Writes a shape as `[2, 3]`."""
    return str(shape.as_list()) if shape.rank is not None else str(shape)


def _weights(table: Table, name: str) -> str | None:
    """Returns the name of a table's weights, if `name` is theirs or that of one of their slots."""
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
