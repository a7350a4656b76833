"""Converts checkpoints to and from TensorFlow 2's TPUEmbedding."""

import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from estimator_emb.checkpoints.files.checkpoint_reader import CheckpointReader, counter
from estimator_emb.checkpoints.files.writer import Writer
from estimator_emb.checkpoints.formats import tf2
from estimator_emb.checkpoints.formats.exporting import new_folder, tables_to_write
from estimator_emb.checkpoints.formats.tf2 import WEIGHTS
from estimator_emb.checkpoints.reading import row_order, saved_tables, saved_variables
from estimator_emb.checkpoints.reading.saved_tables import SavedTable
from estimator_emb.checkpoints.reading.saved_variables import RECORD
from estimator_emb.embedding.specs import SpecTranslation, to_tensorflow
from estimator_emb.optimizers import TF2_OPTIMIZERS, OptimizationParameters, tf2_class
from estimator_emb.reporting import text_columns
from estimator_emb.spec import config
from estimator_emb.spec.resolved import Table, tables_of


@dataclasses.dataclass(frozen=True)
class Moved:
    """A converted checkpoint, with the old and new names of its variables.

    `print` shows the names as a table.

    Attributes:
      checkpoint: prefix of the new checkpoint.
      variables: a variable's name in the old checkpoint -> its name in the new checkpoint. A
        variable of TensorFlow 2 is named by the attributes that lead to it, such as
        `embedding/words/accumulators`.
      left_out: names of the slots in the old checkpoint that have no counterpart.
      translation: the program's spec in TensorFlow's objects, unless the old checkpoint is from
        TensorFlow 2.
    """

    checkpoint: str
    variables: dict[str, str]
    left_out: tuple[str, ...] = ()
    translation: SpecTranslation | None = None

    def __str__(self) -> str:
        rows = [("variable", f"in {self.checkpoint}"), *self.variables.items()]
        return text_columns.aligned([*rows, *((name, "left out") for name in self.left_out)])


def checkpoint_to_tensorflow(
    spec: config.EmbeddingConfigSpec,
    path: str,
    destination: str,
    variables: Mapping[str, str] | None = None,
    strict: bool = False,
    step: Any = None,
    batch_size: int | None = None,
    order: str | None = None,
    progress: Callable[[int, int], Any] | None = None,
) -> Moved:
    """Translates a spec, and writes its tables and slots for TensorFlow 2's TPUEmbedding.

        moved = embedding.checkpoint_to_tensorflow(spec, model_dir, "for_tf2")
        print(moved)
        layer = tf.tpu.experimental.embedding.TPUEmbedding(moved.translation.features, None)
        layer.build()
        step = tf.Variable(0, dtype=tf.int64)
        saver = tf.train.Checkpoint(embedding=layer, step=step)
        saver.restore(moved.checkpoint).assert_consumed()

    `TPUEmbedding` restores it on any number of hosts. On a CPU, use `TPUEmbeddingForServing`, or
    `TPUEmbedding` outside of a TPUStrategy. Rows are in id order, and values stay bit-identical.
    Tables are read and written in pieces of about 32 MB.

    Args:
      spec: the program's spec, of columns or of config dicts.
      path: prefix of the program's checkpoint, or its model_dir for the latest checkpoint.
      destination: path of a new folder. The checkpoint in it is `ckpt-1`.
      variables: name of a table in the spec ('tbl_' and the column's name for a column) -> name of
        its variable, if no variable or several variables have the table's name. None by default.
      strict: as in `to_tensorflow`.
      step: as in `to_tensorflow`.
      batch_size: as in `to_tensorflow`.
      order: as in `estimator_emb.checkpoint.table`.
      progress: function that is called with the bytes done and the total bytes. None by default.

    Raises:
      ValueError: `to_tensorflow` refuses the spec; `destination` exists; a table is missing in the
        checkpoint, has another shape there, or has no slots of its optimizer; or the checkpoint is
        damaged.
    """
    translation = to_tensorflow(spec, strict, step, batch_size)
    destination = tf.compat.path_to_str(destination).rstrip("/")
    if tf.io.gfile.exists(destination):
        raise ValueError(f"checkpoint_to_tensorflow: {destination!r} exists already.")
    theirs = {feature.table.name: feature.table for feature in translation.features.values()}
    tables = [table for table in tables_of(config.validated(spec)) if table.name in theirs]
    with CheckpointReader(saved_variables.prefix(path)) as values:
        names = _variables(values, tables, variables or {})
        chosen = tables_to_write(values, names, tf2.FORMAT, True, {}, order, progress)
        written: list[tf2.Written] = []
        for table, found in zip(tables, chosen, strict=True):
            optimizer = None
            if theirs[table.name].optimizer is not None:
                optimizer = _optimizer_to_write(table, found)
            written.append((table.name, found, optimizer))
        for found in chosen:
            found.check()
        counted = tf2.step_in(values)
        with new_folder(destination) as folder:
            keys = tf2.write(f"{folder}/{tf2.FILE}", written, counted)
    moved = {name: tf2.shown(key) for one in written for name, key in tf2.moved(one, keys).items()}
    if counted is not None:
        moved["global_step"] = "step"
    left_out = tuple(slot for one in written for slot in tf2.left_out(one))
    return Moved(f"{destination}/{tf2.FILE}", moved, left_out, translation)


def _variables(
    values: CheckpointReader, tables: Sequence[Table], variables: Mapping[str, str]
) -> list[str]:
    unknown = sorted(set(variables) - {table.name for table in tables})
    if unknown:
        raise ValueError(
            f"checkpoint_to_tensorflow: variables names {unknown}, and the tables of the spec are "
            f"{[table.name for table in tables]}."
        )
    owners: dict[str, str] = {}
    for table in tables:
        name = _variable(values, table, variables.get(table.name))
        first = owners.setdefault(name, table.name)
        if first != table.name:
            raise ValueError(
                f"Tables {first!r} and {table.name!r} would both be {name!r} of {values.path!r}; "
                "name the variable of each by variables."
            )
    return list(owners)


def _variable(values: CheckpointReader, table: Table, name: str | None) -> str:
    column = table.features[0].column_name
    own = column if column == f"{table.scope_key}_embedding" else table.scope_key
    try:
        found = saved_tables.find(values, name or own or table.name)
    except ValueError as error:
        advice = "" if name else f" Name it by variables={{{table.name!r}: ...}}."
        text = str(error).removeprefix("table: ")
        raise ValueError(f"Table {table.name!r}: {text}{advice}") from None
    wanted = table.config.vocabulary_size, table.config.dimension
    if found.shape != wanted:
        raise ValueError(
            f"Table {table.name!r} is {list(wanted)}, and {found.name!r} in {values.path!r} is "
            f"{list(found.shape)}."
        )
    return found.name


def _optimizer_to_write(table: Table, found: SavedTable) -> type[OptimizationParameters] | None:
    """Returns the TF2 class of a table's optimizer. Raises ValueError if slots are missing."""
    optimizer = type(table.trained_by)
    missing = [
        found.name + slot.suffix
        for slot in optimizer.slots
        if found.name + slot.suffix not in found.variables
    ]
    if missing:
        raise ValueError(
            f"Table {table.name!r}: checkpoint {found.values.path!r} has no {missing[0]!r}, the "
            f"slot of its {optimizer.__name__}; it has {list(found.variables[1:])}. "
            "estimator_emb.checkpoint.export(..., to='tf2') writes tables without slots."
        )
    return tf2_class(optimizer)


def checkpoint_from_tensorflow(
    path: str,
    destination: str,
    variables: Mapping[str, str] | None = None,
    slots: bool = True,
    progress: Callable[[int, int], Any] | None = None,
) -> Moved:
    """Converts a checkpoint of TensorFlow 2's TPUEmbedding to a TPUEstimator checkpoint.

    A program loads the tables with `WarmStartSettings`, and also the slots if `vars_to_warm_start`
    is a list of patterns. A program without other variables can load the checkpoint from its
    model_dir. Rows are in id order, and the checkpoint records that.

    Args:
      path: prefix of a checkpoint that `tf.train.Checkpoint` saved, with a `TPUEmbedding` or
        `TPUEmbeddingForServing` anywhere in it; or a folder, for its latest checkpoint.
      destination: prefix of the new checkpoint, such as `from_tf2/model.ckpt-0`.
      variables: table -> name of its variable in the program. Tables of columns need it, because
        their variables are named by scopes in model_fn. `estimator-emb inspect` lists the variables
        of a checkpoint. Any other table keeps its name. None by default.
      slots: False leaves the slots out. True by default.
      progress: function that is called with the bytes done and the total bytes. None by default.

    Returns:
      The new checkpoint. Its global step is the old checkpoint's variable `step`, and is missing if
      `step` is.

    Raises:
      ValueError: the checkpoint is missing, is damaged, or is not of `TPUEmbedding`, but for
        example of `TPUEmbeddingV2`; `destination` exists; `variables` names a missing table, or
        gives two variables the same name; or a table's slots match no optimizer.
    """
    destination = tf.compat.path_to_str(destination)
    for end in ("", ".index"):
        if tf.io.gfile.exists(destination + end):
            raise ValueError(f"checkpoint_from_tensorflow: {destination + end!r} exists already.")
    given = dict(variables or {})
    with CheckpointReader(_latest(path)) as values:
        tables = tf2.saved_tables(values)
        unknown = sorted(set(given) - set(tables))
        if unknown:
            raise ValueError(
                f"checkpoint_from_tensorflow: variables names {unknown}, and the tables of "
                f"{values.path!r} are {sorted(tables)}."
            )
        moved: dict[str, str] = {}
        left_out: list[str] = []
        for table, keys in tables.items():
            suffixes = tf2.suffixes(_optimizer_of(values, table, keys) if slots else None)
            for slot, key in keys.items():
                if slot in suffixes:
                    moved[key] = given.get(table, table) + suffixes[slot]
                else:
                    left_out.append(tf2.shown(key))
        for key, name in moved.items():
            if list(moved.values()).count(name) > 1:
                raise ValueError(
                    f"checkpoint_from_tensorflow: two variables would be called {name!r}; give the "
                    "tables other names by variables."
                )
            values.check(key)
        counted = tf2.step_in(values, tf2.STEP)
        _write(values, destination, moved, counted, progress)
    names = {tf2.shown(key): name for key, name in moved.items()}
    if counted is not None:
        names["step"] = "global_step"
    return Moved(destination, names, tuple(left_out))


def _latest(path: str) -> str:
    path = tf.compat.path_to_str(path)
    if tf.io.gfile.isdir(path):
        return tf.train.latest_checkpoint(path) or saved_variables.prefix(path)
    return saved_variables.prefix(path)


def _optimizer_of(
    values: CheckpointReader, table: str, keys: Mapping[str, str]
) -> type[OptimizationParameters] | None:
    names = set(keys) - {WEIGHTS}
    if not names:
        return None
    for optimizer in TF2_OPTIMIZERS:
        if names == {slot.name for slot in optimizer.slots}:
            return optimizer
    raise ValueError(
        f"checkpoint_from_tensorflow: table {table!r} in {values.path!r} has the slots "
        f"{sorted(names)}, which are those of no optimizer here; slots=False leaves them out."
    )


def _write(
    values: CheckpointReader,
    destination: str,
    moved: Mapping[str, str],
    step: int | None,
    progress: Callable[[int, int], Any] | None,
) -> None:
    advance = counter(progress, sum(values.size(key) for key in moved))

    def pieces(key: str) -> Iterator[np.ndarray]:
        for piece in values.pieces(key):
            yield piece
            advance(piece.nbytes)

    record = row_order.contents_of_record(dict.fromkeys(moved.values(), 1))
    with Writer(destination) as out:
        out.add(RECORD, tf.string, np.array(record, object))
        if step is not None:
            out.add("global_step", tf.int64, np.array(step, np.int64))
        for key, name in moved.items():
            out.add_rows(name, values.dtypes[key], values.shapes[key], pieces(key))
        out.finish()
