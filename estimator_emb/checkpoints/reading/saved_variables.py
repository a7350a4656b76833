"""Lists the variables of a checkpoint: which slots belong to which, and which are tables."""

import dataclasses
import re
from collections.abc import Container, Mapping, Sequence

import numpy as np
import tensorflow as tf

from estimator_emb.checkpoints.files import checkpoint_files, checkpoint_reader
from estimator_emb.checkpoints.files.checkpoint_reader import CheckpointReader
from estimator_emb.optimizers import PARAMETERS, OptimizationParameters
from estimator_emb.spec.resolved import TABLE_PREFIX

HELPER_PREFIX = "tpu_embedding_dummy_table_variable_"
"""Name prefix of the helper variables by which the legacy TPUEstimator found its gradients."""

RECORD = "estimator_emb/row_order"
"""Name of the variable, a scalar string, that records the row order of a checkpoint."""

_SUFFIXES = sorted({slot.suffix for optimizer in PARAMETERS for slot in optimizer.slots})

DENSE_TOO = {"/Adagrad", "/Ftrl", "/Ftrl_1", "/Momentum", "/ProximalAdagrad"}
"""Slot suffixes that optimizers of `tf.compat.v1.train` also give to dense variables."""

_CPU_SLOTS = {
    "Adam": ("/Adam", "/Adam_1"),
    "centered RMSProp": ("/RMSProp", "/RMSProp_1", "/RMSProp_2"),
    "RMSProp": ("/RMSProp", "/RMSProp_1"),
    "Adadelta": ("/Adadelta", "/Adadelta_1"),
}
"""Optimizer of `tf.compat.v1.train` -> its slots, if they differ from the embedding optimizer's."""

_OF_TENSORFLOW_1 = re.compile(r"(?P<owner>.+)/(?P<rule>[A-Z]\w*?)(_\d+)?")
"""Matches slots of optimizers of `tf.compat.v1.train`, such as `dense/kernel/Adam_1`."""

_OF_KERAS = re.compile(r"training(_\d+)?/(?P<rule>[A-Z]\w*?)(_\d+)?/((?P<owner>.+)/)?\w+")
"""Matches slots and rates of Keras optimizers, such as `training/Adam/dense/kernel/m`."""

_DENSE_NAMES = {"kernel", "recurrent_kernel", "depthwise_kernel", "pointwise_kernel", "bias"}
"""Last part of the variable names of dense layers."""

_COLUMN_NAMES = re.compile(r"(.*/)?(embedding_weights|[^/]*_shared_embedding)")
"""Matches names of tables that feature columns create."""


@dataclasses.dataclass(frozen=True)
class SavedVariable:
    """A variable of a checkpoint.

    Attributes:
      name: its name.
      shape: its shape.
      dtype: type of its values.
      slots: names of its slots. They are not listed as variables.
      optimizer: class name, without 'Parameters', of the embedding optimizer with exactly these
        slots, if any.
    """

    name: str
    shape: tuple[int, ...]
    dtype: tf.DType
    slots: tuple[str, ...] = ()
    optimizer: str | None = None

    @property
    def bytes(self) -> int:
        """Returns the size of the variable and its slots in bytes, or 0 for strings."""
        size = 0 if self.dtype == tf.string else self.dtype.size
        return int(np.prod(self.shape, dtype=np.int64)) * size * (1 + len(self.slots))


def inspect(path: str) -> list[SavedVariable]:
    """Returns the variables of a checkpoint, sorted by name, each with its slots.

    A slot is recognized by the suffix of its name, for example `/Adagrad`, and by its shape. Tables
    cannot be distinguished from other matrices, because Adagrad of `tf.compat.v1.train` names its
    slots like the embedding optimizer. Values are not read.

    Args:
      path: prefix of a checkpoint, or a model directory for its latest checkpoint.

    Raises:
      ValueError: there is no checkpoint.
    """
    reader = checkpoint_reader.load(prefix(path))
    shapes = {name: tuple(shape) for name, shape in reader.get_variable_to_shape_map().items()}
    return listed_variables(shapes, reader.get_variable_to_dtype_map())


def listed_variables(
    shapes: Mapping[str, tuple[int, ...]], dtypes: Mapping[str, tf.DType]
) -> list[SavedVariable]:
    """Returns the variables with these names, shapes and types, like `inspect`."""
    slots = {name: slots_of(name, shapes) for name in shapes}
    owned = {slot for own_slots in slots.values() for slot in own_slots}
    return [
        SavedVariable(name, shapes[name], dtypes[name], slots[name], _optimizer(name, slots[name]))
        for name in sorted(set(shapes) - owned)
    ]


def listed(values: CheckpointReader) -> list[SavedVariable]:
    """Returns the variables of an open checkpoint, like `inspect`."""
    return listed_variables(values.shapes, values.dtypes)


def has_helpers(values: CheckpointReader) -> bool:
    """Returns whether an open checkpoint has helper variables of the legacy TPUEstimator."""
    return any(is_helper(name) for name in values.shapes)


def slots_of(name: str, shapes: Mapping[str, tuple[int, ...]]) -> tuple[str, ...]:
    """Returns the names of the slots of a variable."""
    possible = [name + suffix for suffix in _SUFFIXES]
    return tuple(slot for slot in possible if shapes.get(slot) == shapes[name])


def cpu_slots(name: str, shapes: Mapping[str, tuple[int, ...]]) -> tuple[str, ...]:
    """Returns a variable's slots if only `tf.compat.v1.train` gives slots these names, else ()."""
    for suffixes in _CPU_SLOTS.values():
        slots = tuple(name + suffix for suffix in suffixes)
        if all(shapes.get(slot) == shapes[name] for slot in slots):
            return slots
    return ()


def optimizer_of(name: str, names: Container[str]) -> tuple[str, str | None] | None:
    """Returns the model's optimizer that makes a variable, if any, and the owner of a slot.

    `names` are the names of all variables.
    """
    if re.fullmatch(r"(.*/)?beta[12]_power(_\d+)?", name):
        return "Adam", None
    if found := _OF_KERAS.fullmatch(name):
        return found["rule"], found["owner"]
    found = _OF_TENSORFLOW_1.fullmatch(name)
    return (found["rule"], found["owner"]) if found and found["owner"] in names else None


def optimizer_class(name: str) -> type[OptimizationParameters]:
    """Returns the class that `SavedVariable.optimizer` names."""
    return next(one for one in PARAMETERS if one.__name__ == f"{name}Parameters")


def _optimizer(name: str, slots: Sequence[str]) -> str | None:
    suffixes = {slot.removeprefix(name) for slot in slots}
    for optimizer in PARAMETERS:
        if suffixes and suffixes == {slot.suffix for slot in optimizer.slots}:
            return optimizer.__name__.removesuffix("Parameters")
    return None


def prefix(path: str) -> str:
    """Returns the prefix of a checkpoint or of a folder's latest, or raises ValueError."""
    path = tf.compat.path_to_str(path)
    if tf.io.gfile.isdir(path):
        latest = checkpoint_files.latest(path)
        if latest is None:
            raise ValueError(f"Folder {path!r} holds no checkpoint.")
        return latest
    if tf.io.gfile.exists(f"{path}.index"):
        return path
    bare = re.sub(r"\.(index|meta|data-\d+-of-\d+)$", "", path)
    if tf.io.gfile.exists(f"{bare}.index"):
        raise ValueError(
            f"There is no checkpoint {path!r}: give {bare!r}, without the end of the file's name."
        )
    raise ValueError(f"There is no checkpoint {path!r}.")


def is_helper(name: str) -> bool:
    """Returns whether a variable is a helper of the legacy TPUEstimator, or a helper's slot."""
    return any(part.startswith(HELPER_PREFIX) for part in name.split("/"))


def is_matrix_of_rows(variable: SavedVariable) -> bool:
    """Returns whether a variable could be a table, or the slot of an unknown optimizer."""
    # A dense layer's variables have names such as `dense/kernel_1`.
    parts = (re.sub(r"_\d+$", "", part) for part in variable.name.split("/"))
    return (
        len(variable.shape) == 2
        and variable.dtype.is_floating
        and not is_helper(variable.name)
        and variable.name != RECORD
        and _DENSE_NAMES.isdisjoint(parts)
    )


def possible_tables(variables: Sequence[SavedVariable]) -> dict[str, SavedVariable]:
    """Returns name -> variable, for the variables that might be tables."""
    shapes = {variable.name: variable.shape for variable in variables}
    of_cpu = {slot for name in shapes for slot in cpu_slots(name, shapes)}
    return {
        variable.name: variable
        for variable in variables
        if is_matrix_of_rows(variable) and variable.name not in of_cpu
    }


def own_name(variable: str) -> str:
    """Returns the name of a variable's table in the legacy config and in TensorBoard.

    A column's table `.../words_embedding/embedding_weights` is `tbl_words`. A table that columns
    share is `tbl_a_b_shared_embedding`. Any other table has the name of its variable.
    """
    column = variable.removesuffix("/embedding_weights").rpartition("/")[2]
    if column.endswith("_shared_embedding"):
        return TABLE_PREFIX + column
    if variable.endswith("_embedding/embedding_weights"):
        return TABLE_PREFIX + column.removesuffix("_embedding")
    return variable


def tables(
    variables: Sequence[SavedVariable], also: Sequence[str] = ()
) -> dict[str, SavedVariable]:
    """Returns name -> variable of the tables, known by name, slots, a legacy helper or `also`."""
    helped = {
        part.removeprefix(HELPER_PREFIX)
        for variable in variables
        for part in variable.name.split("/")
        if part.startswith(HELPER_PREFIX)
    }
    found = {}
    for variable in variables:
        suffixes = {slot.removeprefix(variable.name) for slot in variable.slots}
        if is_matrix_of_rows(variable) and (
            _COLUMN_NAMES.fullmatch(variable.name)
            or suffixes - DENSE_TOO
            or variable.name in helped
            or variable.name in also
        ):
            found[variable.name] = variable
    return found
