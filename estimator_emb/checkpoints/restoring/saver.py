"""Saves checkpoints of `TPUEstimator`, large checkpoints as several files."""

import functools
import os
import threading
import weakref
from collections.abc import Callable, Iterable
from typing import Any

import tensorflow as tf

from estimator_emb.compat.internals.graphs import BulkSaverBuilder
from estimator_emb.engine.alone import ALONE, Alone

FILE_BYTES = 64 << 20
"""Minimum average size of a device's data files if there are several."""
MOST_FILES = 8


def savers_of_program(spec: Any, scaffold: Any = None) -> list[tf.compat.v1.train.Saver]:
    """Returns the savers that a model_fn gives a session in a scaffold, hooks or a collection.

    `scaffold` is the result of the `scaffold_fn` of a TPUEstimatorSpec.
    """
    savers = [getattr(scaffold or getattr(spec, "scaffold", None), "saver", None)]
    savers += tf.compat.v1.get_collection(tf.compat.v1.GraphKeys.SAVERS)
    for name in ("training_hooks", "training_chief_hooks", "evaluation_hooks", "prediction_hooks"):
        for hook in getattr(spec, name, None) or ():
            if isinstance(hook, tf.compat.v1.train.CheckpointSaverHook):
                savers.append(hook._saver)
    return list({id(one): one for one in savers if one is not None}.values())


def complete(
    savers: Iterable[Any],
    variables: Iterable[tf.Variable],
    without: str,
    *,
    on_tpu: bool,
    training: bool,
) -> None:
    """Adds the embedding variables to savers that model_fn made before these variables.

    Variables with `without` in their names are removed from the savers. A saver that a scaffold_fn
    made later must have all variables only in `training`, because only training saves. Raises
    ValueError if variables are missing in a saver that was made on a TPU, because a scaffold_fn can
    make it later, or by a SaverDef, because it cannot be changed.
    """
    variables = list(variables)
    for saver in savers:
        # A saver has no public list of its variables. None means all when the session begins.
        listed = getattr(saver, "_var_list", None)
        by_definition = listed is None and saver.saver_def is not None
        if listed is None and not by_definition:
            continue
        listed = listed or ()
        kept = _without(listed, without)
        saved = {one.name for one in _flat(kept) if isinstance(one, tf.Variable)}
        missing = [
            one
            for one in variables
            if one.name not in saved and (training or _is_older(saver, one))
        ]
        if missing and (on_tpu or by_definition):
            raise ValueError(
                f"The saver of model_fn's Scaffold leaves out the embedding variables "
                f"{sorted(one.name for one in missing)}: it was made before them, or with a list "
                "that lacks them. Make it in the scaffold_fn of a TPUEstimatorSpec, which runs "
                "when all variables exist, and give it all of them."
            )
        if missing or len(kept) != len(listed):
            saver._var_list = _with(kept, missing)
            saver.saver_def, saver._is_built = None, False
            saver.build()


def _is_older(saver: Any, variable: tf.Variable) -> bool:
    """Returns whether a saver was made before a variable, or is empty and so not built yet."""
    if saver.saver_def is None:
        return True
    restore = variable.graph.get_operation_by_name(saver.saver_def.restore_op_name)
    return bool(restore._id < variable.op._id)


def _without(listed: Any, name: str) -> Any:
    if isinstance(listed, dict):
        return {key: one for key, one in listed.items() if name not in _name(one)}
    return [one for one in listed if name not in _name(one)]


def _name(saved: Any) -> str:
    return str(getattr(saved, "name", ""))


def _flat(listed: Any) -> list[Any]:
    values = listed.values() if isinstance(listed, dict) else listed
    return [
        one for value in values for one in (value if isinstance(value, (list, tuple)) else [value])
    ]


def _with(listed: Any, variables: list[tf.Variable]) -> Any:
    if not isinstance(listed, dict):
        return [*listed, *variables]
    by_name: dict[str, Any] = {}
    for variable in variables:
        part = variable._get_save_slice_info()
        if part is None:
            by_name[variable.op.name] = variable
        else:
            by_name.setdefault(part.full_name, []).append(variable)
    return {**listed, **by_name}


class ChecksBeforeSaving(tf.compat.v1.train.SessionRunHook):
    """Calls `check` with the session before each save by a saver of the graph or of `savers`.

    It calls `after` with the session after each save, whether the save succeeded or failed.
    """

    def __init__(
        self,
        check: Callable[[Any], None],
        savers: Iterable[Any] = (),
        after: Callable[[Any], None] = lambda session: None,
    ):
        self._check, self._after = check, after
        self._savers = list(savers)

    def after_create_session(self, session: Any, coord: Any) -> None:
        of_graph = session.graph.get_collection(tf.compat.v1.GraphKeys.SAVERS)
        for saver in dict.fromkeys([*self._savers, *of_graph]):
            if self not in getattr(saver.save, "checks", ()):
                saver.save = self._checked(saver.save)

    def _checked(self, save: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(save)  # This keeps the attributes of other wrappers.
        def checked(sess: Any, *args: Any, **kwargs: Any) -> Any:
            self._check(sess)
            try:
                return save(sess, *args, **kwargs)
            finally:
                self._after(sess)

        checked.checks = (*getattr(save, "checks", ()), self)  # type: ignore[attr-defined]
        return checked


def take_turns(hooks: Iterable[Any], training_waits: bool) -> None:
    """Makes the `CheckpointSaverHook`s of a training write one after the other.

    An asynchronous hook writes in its own thread, into the same temporary files as another hook.
    TensorFlow 2.15's asynchronous hook also does not find the graph in that thread.

    `training_waits` makes the training wait for that thread. The session has values of variables
    only during a save then.
    """
    turn = threading.Lock()
    for hook in hooks:
        if isinstance(hook, tf.compat.v1.train.CheckpointSaverHook):
            hook._get_saver = lambda hook=hook: _InTurn(type(hook)._get_saver(hook), turn)
            if training_waits:
                hook._save = functools.partial(_save_and_wait, hook)


def _save_and_wait(hook: Any, session: Any, step: int) -> Any:
    saved = type(hook)._save(hook, session, step)
    for thread in list(vars(hook).values()):  # The thread may set others.
        if isinstance(thread, threading.Thread):
            thread.join()
    return saved


class _InTurn:
    """A saver that waits until no other hook of the training writes."""

    def __init__(self, saver: Any, turn: threading.Lock):
        self._saver = saver
        self._turn = turn

    def __getattr__(self, name: str) -> Any:
        return getattr(self._saver, name)

    def save(self, sess: Any, *args: Any, **kwargs: Any) -> Any:
        with self._turn, sess.graph.as_default():
            return self._saver.save(sess, *args, **kwargs)


class PartsSaver(tf.compat.v1.train.Saver):
    """The saver that tensorflow-estimator would create, with two differences.

    It writes several data files to use all cores, because TensorFlow writes a file on a single
    core. It skips a `CheckpointSaverHook`'s save of the checkpoint that its session has just
    restored, because a process that is killed meanwhile might leave no readable checkpoint.
    """

    _restored: tuple[Any, str] | None = None
    """A weak reference to a session, and the checkpoint that the session restored."""

    def __init__(self, config: Any, host: Alone = ALONE):
        super().__init__(
            sharded=True,
            max_to_keep=config.keep_checkpoint_max,
            keep_checkpoint_every_n_hours=config.keep_checkpoint_every_n_hours,
            builder=_Builder(host),
            defer_build=True,
            save_relative_paths=True,
        )

    def restore(self, sess: Any, save_path: str) -> None:
        super().restore(sess, save_path)
        self._restored = weakref.ref(sess), save_path

    def save(
        self, sess: Any, save_path: str, global_step: Any = None, *args: Any, **kwargs: Any
    ) -> Any:
        restored, self._restored = self._restored, None
        if restored is not None and restored[0]() is sess:
            path = f"{save_path}-{global_step}"
            if os.path.normpath(path) == os.path.normpath(restored[1]):
                return restored[1]
        return super().save(sess, save_path, global_step, *args, **kwargs)


class _Builder(BulkSaverBuilder):
    """Divides a device's variables by size over several files, at most a file per core."""

    def __init__(self, host: Alone) -> None:
        super().__init__()
        self._host = host

    def _AddShardedSaveOpsForV2(  # noqa: N802
        self, checkpoint_prefix: tf.Tensor, per_device: list[Any]
    ) -> tf.Tensor:
        saved = super()._AddShardedSaveOpsForV2(checkpoint_prefix, per_device)
        return self._host.with_parts(saved)

    def _GroupByDevices(  # noqa: N802 - TensorFlow calls it by this name.
        self, saveables: list[Any]
    ) -> list[tuple[str, list[Any]]]:
        return [
            (device, group)
            for device, device_saveables in super()._GroupByDevices(saveables)
            for group in _groups(device_saveables)
        ]


def _groups(saveables: list[Any]) -> list[list[Any]]:
    sizes = [_bytes(one) for one in saveables]
    count = max(1, min(os.cpu_count() or 1, MOST_FILES, sum(sizes) // FILE_BYTES))
    groups: list[list[Any]] = [[] for _ in range(count)]
    filled = [0] * count
    for index in sorted(range(len(saveables)), key=lambda index: -sizes[index]):
        smallest = filled.index(min(filled))
        groups[smallest].append(saveables[index])
        filled[smallest] += sizes[index]
    return [group for group in groups if group]


def _bytes(saveable: Any) -> int:
    # A read of `spec.tensor` adds four ops to the graph.
    one = isinstance(saveable.op, tf.Variable)
    shaped = [saveable.op] if one else [spec.tensor for spec in saveable.specs]
    return sum((one.shape.num_elements() or 0) * one.dtype.base_dtype.size for one in shaped)
