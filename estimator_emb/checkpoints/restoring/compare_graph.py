"""Compares a graph with the checkpoint that it is about to restore.

TensorFlow lets a variable take its shape from the checkpoint. It reports a missing variable only
when the session is open, in a message that begins with the names of all variables. Here both raise
errors before a session opens. The errors name variables and tables, and say what to do.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

import tensorflow as tf

from estimator_emb.checkpoints.files import checkpoint_files, checkpoint_reader
from estimator_emb.checkpoints.restoring import mismatch_report
from estimator_emb.checkpoints.restoring.mismatch_report import Form, Misfit, Misfits
from estimator_emb.checkpoints.restoring.saver import PartsSaver
from estimator_emb.compat.internals.graphs import (
    BulkSaverBuilder,
    SaveableObject,
    object_graph_key_mapping,
)
from estimator_emb.engine.tables.storage import saved_name
from estimator_emb.spec.resolved import Table

_ANY = tf.TensorShape(None)
_OBJECT_GRAPH = "_CHECKPOINTABLE_OBJECT_GRAPH"


def check_restored(path: str, scaffold: Any, tables: Sequence[Table]) -> None:
    """Raises a CheckpointError if the default graph does not fit the checkpoint that it restores.

    Savers of an unusual kind are not checked.
    """
    saver = getattr(scaffold, "saver", None)
    if saver is None:
        savers = tf.compat.v1.get_collection(tf.compat.v1.GraphKeys.SAVERS)
        saver = savers[0] if len(savers) == 1 else None
    here = _restored_by(saver)
    if here is None:
        return
    there = _in_checkpoint(path)
    keys = object_graph_key_mapping(path) if _OBJECT_GRAPH in there else {}
    any_shape = bool(getattr(saver, "_reshape", False))
    found = [
        misfit
        for name, form in here.items()
        for misfit in _misfits(name, form, keys.get(name, name), there, any_shape)
    ]
    mismatch_report.raise_error(path, tables, here, found)


def check_warm_start(settings: Any, tables: Sequence[Table]) -> set[str] | None:
    """Raises a CheckpointError if the default graph does not fit `WarmStartSettings`.

    Returns the names of the variables that take their values from the checkpoint, if known.
    """
    given = path = tf.compat.path_to_str(settings.ckpt_to_initialize_from)
    is_folder = tf.io.gfile.isdir(path)
    if is_folder:
        path = checkpoint_files.latest(path)
    if path is None or not checkpoint_files.exists(path):
        what = "folder has no checkpoint" if is_folder else "checkpoint does not exist"
        raise checkpoint_files.MissingCheckpoint(
            f"warm_start_from: this {what}: '{given}'.\nWhat to do: give the model_dir of a "
            "finished training, or one of its checkpoints, such as 'model_dir/model.ckpt-1000'; to "
            "train from initial values, leave warm_start_from out."
        )
    checkpoint_files.check_whole(path)
    there = _in_checkpoint(path)
    if _OBJECT_GRAPH in there:
        return None
    here = _warm_started(settings.vars_to_warm_start)
    infos = settings.var_name_to_vocab_info or {}
    old_names = settings.var_name_to_prev_var_name or {}
    started = here if settings.vars_to_warm_start is not None else here.keys() & infos.keys()
    found: list[Misfit] = []
    for name, form in here.items():
        old_name = old_names.get(name) or name
        if name in infos:
            found += _misfits_of_rows(name, form, old_name, infos[name], there)
        elif name in started:
            found += _misfits(name, form, old_name, there)
    mismatch_report.raise_error(path, tables, here, found, warm_start=True)
    return set(started)


def names_in(path: str) -> Collection[str]:
    """Returns the names of a checkpoint's variables, also if `tf.train.Checkpoint` saved it."""
    names = checkpoint_reader.load(path).get_variable_to_shape_map()
    return object_graph_key_mapping(path) if _OBJECT_GRAPH in names else names


def _restored_by(saver: Any) -> dict[str, Form] | None:
    """Returns name in the checkpoint -> form of each variable that a saver restores, if known."""
    listed: Any = None
    if saver is not None:
        if not isinstance(saver, tf.compat.v1.train.Saver) or _restores_its_own_way(saver):
            return None
        listed = saver._var_list
        if listed is None and saver.saver_def is not None:
            return None
    if listed is None:
        keys = tf.compat.v1.GraphKeys
        listed = [
            *tf.compat.v1.get_collection(keys.GLOBAL_VARIABLES),
            *tf.compat.v1.get_collection(keys.SAVEABLE_OBJECTS),
        ]
    named = listed.items() if isinstance(listed, dict) else ((None, saved) for saved in listed)
    return dict(form for name, saved in named for form in _forms(name, saved))


def _restores_its_own_way(saver: Any) -> bool:
    builder = getattr(saver, "_builder", None)
    plain = BulkSaverBuilder
    as_tensorflow = (tf.compat.v1.train.Saver.restore, PartsSaver.restore)
    return type(saver).restore not in as_tensorflow or any(
        builder is not None and getattr(type(builder), method) is not getattr(plain, method)
        for method in ("restore_op", "bulk_restore", "_AddRestoreOps", "_AddShardedRestoreOps")
    )


def _forms(name: str | None, saved: Any) -> Iterator[tuple[str, Form]]:
    """Yields (name in the checkpoint, form) of an item that a saver was given."""
    if isinstance(saved, SaveableObject) and isinstance(saved.op, tf.Variable):
        # The Estimator of a Keras model saves its variables under the names of their objects.
        yield from _forms(saved.specs[0].name, saved.op)
    elif isinstance(saved, SaveableObject):
        for spec in saved.specs:
            yield spec.name, Form(_ANY, None)
    elif isinstance(saved, Iterable) and not isinstance(saved, tf.Variable):
        for part in saved:
            yield from _forms(name, part)
    elif isinstance(saved, tf.Variable):
        part = saved._get_save_slice_info()
        shape = tf.TensorShape(part.full_shape) if part else saved.shape
        yield name or saved_name(saved), Form(shape, saved.dtype.base_dtype, bool(part))


def _warm_started(patterns: Any) -> dict[str, Form]:
    keys = tf.compat.v1.GraphKeys
    listed: list[Any] = []
    if isinstance(patterns, list):
        for entry in patterns:
            if isinstance(entry, str):
                listed += tf.compat.v1.get_collection(keys.GLOBAL_VARIABLES, entry)
            else:
                listed.append(entry)
    elif patterns is None or isinstance(patterns, str):
        listed = tf.compat.v1.get_collection(keys.TRAINABLE_VARIABLES, patterns)
    return dict(form for entry in listed for form in _forms(None, entry))


def _in_checkpoint(path: str) -> dict[str, Form]:
    reader = tf.train.load_checkpoint(path)
    dtypes = reader.get_variable_to_dtype_map()
    return {
        name: Form(tf.TensorShape(shape), dtypes[name])
        for name, shape in reader.get_variable_to_shape_map().items()
    }


def _misfits(
    name: str, here: Form, key: str, there: Mapping[str, Form], any_shape: bool = False
) -> Iterator[Misfit]:
    if key not in there:
        yield Misfits.missing, name, key
        return
    if here.dtype not in (None, there[key].dtype):
        yield Misfits.add_type, name, here.dtype, there[key].dtype
    if here.shape.is_compatible_with(there[key].shape):
        return
    reshaped = any_shape and not here.in_parts
    if not reshaped or here.shape.num_elements() != there[key].shape.num_elements():
        yield Misfits.add_shape, name, here.shape, there[key].shape


def _misfits_of_rows(
    name: str, here: Form, key: str, info: Any, there: Mapping[str, Form]
) -> Iterator[Misfit]:
    """Yields the misfits of a variable if a warm start moves its rows by a `VocabInfo`."""
    yield from _misfits(name, Form(_ANY, here.dtype), key, there)
    if key not in there or here.shape.rank != 2 or there[key].shape.rank != 2:
        return
    old = there[key].shape
    if here.shape[1 - info.axis] != old[1 - info.axis]:
        yield Misfits.add_shape, name, here.shape, old
    elif info.old_vocab_size is not None and info.old_vocab_size > old[info.axis]:
        yield Misfits.add_old_vocabulary, name, info.old_vocab_size, old
