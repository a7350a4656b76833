"""Describes how a checkpoint differs from the program that restores it."""

import collections
import dataclasses
import difflib
import functools
import itertools
from collections.abc import Mapping, Sequence
from typing import Any

import tensorflow as tf

from estimator_emb.checkpoints.files.checkpoint_files import CheckpointError, MissingCheckpoint
from estimator_emb.checkpoints.reading import saved_variables
from estimator_emb.checkpoints.reading.saved_variables import SavedVariable
from estimator_emb.engine.tables.storage import saved_name
from estimator_emb.reporting.suggestions import suggestion
from estimator_emb.reporting.text_columns import escaped
from estimator_emb.spec.resolved import Table

_SHOWN = 5

_OLD_MODEL = "build the model as it was when it was saved, or {elsewhere}"
_OLD_TYPES = "save the checkpoint again with the types of the program"
_OLD_VOCABULARY = "give the VocabInfo of the vocabulary that the checkpoint has"
_OLD_ROWS = (
    "give the table its old number of rows again, or {elsewhere} with "
    "warm_start_from=WarmStartSettings('{path}', {patterns}{infos}), which moves rows to their new "
    "ids"
)
_OLD_NAME = (
    "if it was renamed, give it its old name, or {elsewhere} with "
    "warm_start_from=WarmStartSettings('{path}', ['.*'], var_name_to_prev_var_name={{{names}}})"
)
_IN_WARM_START = {
    _OLD_ROWS: "give {infos}, which moves rows to their new ids, or {elsewhere}",
    _OLD_NAME: "if it was renamed, give var_name_to_prev_var_name={{{names}}}",
}
"""Remedy -> a different remedy if a warm start has failed."""


class UnfitCheckpoint(CheckpointError, tf.errors.InvalidArgumentError):  # type: ignore[misc]
    """Raised if a variable's shape or type differs between checkpoint and graph."""


@dataclasses.dataclass(frozen=True)
class Form:
    """A variable's shape and type. None means any type. No saver reshapes a variable `in_parts`."""

    shape: tf.TensorShape
    dtype: tf.DType | None
    in_parts: bool = False


Misfit = tuple[Any, ...]
"""A method of `Misfits`, the name of a variable, and the method's other arguments."""


def raise_error(
    path: str,
    tables: Sequence[Table],
    here: Mapping[str, Form],
    found: Sequence[Misfit],
    warm_start: bool = False,
) -> None:
    """Raises a CheckpointError about the misfits found, if any. Misfits of tables come first."""
    if found:
        misfits = Misfits(path, tables, here, warm_start)
        for note, *arguments in sorted(found, key=lambda one: misfits.is_dense(one[1])):
            note(misfits, *arguments)
        misfits.raise_error()


class Misfits:
    """The differences between the variables `here` in a graph and a checkpoint's variables."""

    def __init__(
        self, path: str, tables: Sequence[Table], here: Mapping[str, Form], warm_start: bool
    ):
        self._path = path
        self._tables = tables
        self._here = here
        self._warm_start = warm_start
        self._lines: list[str] = []
        self._unfit = False
        self._shapes: dict[str, tuple[tf.TensorShape, tf.TensorShape]] = {}
        self._missing: list[str] = []
        self._missing_of_optimizers: dict[str, dict[str, tuple[str, str | None]]] = {}
        self._missing_slots: dict[str, tuple[Table, list[str]]] = {}
        self._remedies: dict[str, list[str]] = collections.defaultdict(list)

    def is_dense(self, name: str) -> bool:
        return self._owner(name)[0] is None

    def add_shape(self, name: str, here: tf.TensorShape, there: tf.TensorShape) -> None:
        """Notes a variable with different shapes. A slot that differs like its table is skipped."""
        table, weights = self._owner(name)
        self._shapes[name] = here, there
        if name != weights and self._shapes.get(weights) == (here, there):
            return
        has_rows = table is not None and here.rank == there.rank == 2 and here[1] == there[1]
        text = f"is {_list(here)} here and {_list(there)} in the checkpoint"
        self._note_unfit(name, text, _OLD_ROWS if has_rows else _OLD_MODEL)

    def add_type(self, name: str, here: tf.DType, there: tf.DType) -> None:
        text = f"is {here.name} here and {there.name} in the checkpoint"
        self._note_unfit(name, text, _OLD_TYPES)

    def add_old_vocabulary(self, name: str, size: int, there: tf.TensorShape) -> None:
        """Notes a table whose `VocabInfo` asks for more rows than the checkpoint has."""
        text = f"is {_list(there)} in the checkpoint, and its VocabInfo says old_vocab_size={size}"
        self._note_unfit(name, text, _OLD_VOCABULARY)

    def missing(self, name: str, key: str) -> None:
        """Notes a variable that the checkpoint should have under the name `key`."""
        table, weights = self._owner(name)
        if table is not None and name != weights:
            self._missing_slots.setdefault(weights, (table, []))[1].append(key)
            return
        if optimizer := saved_variables.optimizer_of(name, self._here):
            self._missing_of_optimizers.setdefault(optimizer[0], {})[name] = key, optimizer[1]
            return
        self._missing.append(name)
        shape, alike = self._here[name].shape, self._alike(name)
        others = escaped(", ".join(alike[:3])) or "no other"
        more = f" and {len(alike) - 3} more" if len(alike) > 3 else ""
        near = "" if alike else suggestion(key, self._saved)
        there = f".{near}" if near else f", and of that shape the checkpoint has {others}{more}"
        it = "it" if table is None else f"table {table.name!r}"
        self._lines.append(f"Key {key} not found in checkpoint: {it} is {_list(shape)}{there}")

    def _alike(self, name: str) -> list[str]:
        """Returns saved variables with a missing variable's shape, the most similar name first."""
        shape = self._here[name].shape
        alike = [
            variable.name
            for variable in self._saved.values()
            if variable.name not in self._here
            and shape.rank
            and shape.is_compatible_with(variable.shape)
            and not saved_variables.optimizer_of(variable.name, self._names_there)
        ]
        return sorted(alike, key=lambda old: -difflib.SequenceMatcher(None, name, old).ratio())

    def _new_names(self) -> dict[str, str]:
        """Returns the missing variables that may have been renamed, each with its old name.

        Returns {} for another model's checkpoint: it has no variable that fits this graph.
        """
        others = self._here.keys() & self._saved.keys() - self._shapes.keys()
        if not any(self._here[name].shape.rank for name in others):
            return {}
        pairs: dict[str, str] = {}
        for name in self._missing:
            alike = self._alike(name)
            same_end = [old for old in alike if old.split("/")[-1] == name.split("/")[-1]]
            for found in (same_end, alike):
                if len(found) == 1:
                    pairs.setdefault(name, found[0])
        old_names = collections.Counter(pairs.values())
        return {name: old for name, old in pairs.items() if old_names[old] == 1}

    def raise_error(self) -> None:
        new_names = self._new_names()
        self._remedies[_OLD_MODEL] += [one for one in self._missing if one not in new_names]
        for optimizer, missing in self._missing_of_optimizers.items():
            self._note_optimizer(optimizer, missing, new_names)
        self._remedies[_OLD_NAME] += [f"{name!r}: {old!r}" for name, old in new_names.items()]
        for weights, (table, slots) in self._missing_slots.items():
            if weights not in self._missing:  # A missing table has its own line.
                self._note_missing_slots(weights, table, slots)
        more = len(self._lines) - _SHOWN
        doing = "Warm-starting" if self._warm_start else "Restoring"
        message = "\n".join(
            [
                f"{doing} from checkpoint failed: '{self._path}' does not fit the program:",
                *(f"  {line}" for line in self._lines[:_SHOWN]),
                *([f"  and {more} more"] if more > 0 else []),
                *(f"What to do: {self._told(*one)}." for one in self._remedies.items() if one[1]),
            ]
        )
        raise UnfitCheckpoint(message) if self._unfit else MissingCheckpoint(message)

    @functools.cached_property
    def _saved(self) -> dict[str, SavedVariable]:
        return {variable.name: variable for variable in saved_variables.inspect(self._path)}

    @functools.cached_property
    def _names_there(self) -> set[str]:
        return {
            name for variable in self._saved.values() for name in (variable.name, *variable.slots)
        }

    def _note_unfit(self, name: str, text: str, remedy: str) -> None:
        table, weights = self._owner(name)
        kind = "variable" if name == weights or table is None else "slot"
        owner = "" if table is None else f"table {table.name!r}: "
        self._lines.append(f"{owner}{kind} {name} {text}")
        self._remedies[remedy].append(name)
        self._unfit = True

    def _note_missing_slots(self, weights: str, table: Table, slots: Sequence[str]) -> None:
        saved = self._saved.get(weights)
        there, as_before = "it has no slots in the checkpoint", ""
        if saved is not None and saved.slots:
            there = f"its slots in the checkpoint are {', '.join(saved.slots)}"
            if saved.optimizer:
                there += f" of {saved.optimizer}"
                as_before = f"train with {saved.optimizer}Parameters again, or "
        optimizer = type(table.optimizer).__name__.removesuffix("Parameters")
        nor = f" (nor {', '.join(slots[1:])})" if slots[1:] else ""
        self._lines.append(
            f"Key {slots[0]} not found in checkpoint{nor}: table {table.name!r} trains with "
            f"{optimizer} here, and {there}"
        )
        remedy = f"{as_before}{{elsewhere}}"
        if not self._warm_start:
            listed = _not_trainable([weights]).removesuffix(", ")
            start = f"WarmStartSettings('{{path}}', {listed})" if listed else "'{path}'"
            remedy += (
                f" with warm_start_from={start}, which takes the tables and begins their slots anew"
            )
        self._remedies[remedy] += slots

    def _note_optimizer(
        self,
        optimizer: str,
        missing: Mapping[str, tuple[str, str | None]],
        new_names: dict[str, str],
    ) -> None:
        """Notes an optimizer's missing variables. Adds renamed variables' slots to `new_names`."""
        keys = {}
        for name, (key, owner) in missing.items():
            if owner in self._missing:  # A missing variable has its own line.
                old = name.replace(owner, new_names.get(owner, owner))
                if old != name and old in self._names_there:
                    new_names[name] = old
            else:
                keys[name] = key
        if not keys:
            return
        there = {
            found[0]
            for name in self._names_there
            if (found := saved_variables.optimizer_of(name, self._names_there))
        }
        first, *others = keys.values()
        nor = f" (nor {len(others)} more)" if others else ""
        with_others = " and ".join(sorted(there - {optimizer}))
        as_before = ""
        if optimizer in there:
            text = f"{optimizer} has fewer slots in the checkpoint"
        elif with_others:
            text = f"the model trains with {optimizer} here, and with {with_others} there"
            as_before = f"train the model with {with_others} again, or "
        else:
            text = f"the model trains with {optimizer} here, and without slots there"
        self._lines.append(f"Key {first} not found in checkpoint{nor}: {text}")
        if self._remedies[_OLD_MODEL]:
            return  # A warm start would not find the variables of another model.
        remedy = f"{as_before}{{elsewhere}}"
        if not self._warm_start:
            remedy += (
                " with warm_start_from='{path}', which takes the trainable variables and begins "
                "the slots of the optimizer anew"
            )
        self._remedies[remedy] += keys

    def _told(self, remedy: str, names: Sequence[str]) -> str:
        """Returns a remedy's text. `names` are variables, or pairs of a new and an old name."""
        elsewhere = "train in another model_dir"
        if self._warm_start:
            elsewhere = f"leave {', '.join(names)} out of vars_to_warm_start"
            remedy = _IN_WARM_START.get(remedy, remedy)
        more = ", ..." if names[1:] else ""
        return remedy.format(
            elsewhere=elsewhere,
            path=self._path,
            infos=f"var_name_to_vocab_info={{'{names[0]}': VocabInfo(...){more}}}",
            names=", ".join([*names[:2], *(["..."] if names[2:] else [])]),
            patterns=_not_trainable(names),
        )

    def _owner(self, name: str) -> tuple[Table | None, str]:
        """Returns a variable's table, if any, and the name of the table's weights."""
        for table in self._tables:
            weights = _weights(table, name)
            if weights:
                return table, weights
        return None, ""


def _not_trainable(names: Sequence[str]) -> str:
    """Returns warm start patterns for tables that are not trainable, as on a TPU, else ''."""
    trainable = {saved_name(variable) for variable in tf.compat.v1.trainable_variables()}
    if trainable.issuperset(names):
        return ""
    patterns = ", ".join(f"'{name}/part_'" for name in names)
    return f"[{patterns}, ...], "


def _list(shape: tf.TensorShape) -> str:
    return str(shape.as_list()) if shape.rank is not None else str(shape)


def _weights(table: Table, name: str) -> str | None:
    """Returns the name of a table's weights if `name` is the weights or a slot of the table."""
    parts = name.split("/")
    if table.scope_key is None:
        own = name == table.name or name.startswith(f"{table.name}/")
        return table.name if own else None
    columns = {feature.column_name for feature in table.features}
    for end, (column, last) in enumerate(itertools.pairwise(parts), start=2):
        if column in columns and last == "embedding_weights":
            return "/".join(parts[:end])
    begin = f"/{name}/".find(f"/{table.scope_key}/")
    if begin >= 0 and all(str(column).endswith("_shared_embedding") for column in columns):
        return name[: begin + len(table.scope_key)]
    return None
