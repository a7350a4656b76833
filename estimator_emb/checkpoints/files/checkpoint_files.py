"""Finds the latest checkpoint of a folder, and checks whether its files are whole.

If the `checkpoint` file of a model directory is missing, damaged or outdated, TensorFlow treats the
directory as empty. It reports a data file that is too short as the end of the input. Here both
cases raise errors that name the files and say what to do.
"""

import contextlib
import os
import re
import time

import tensorflow as tf

from estimator_emb.checkpoints.files import bundle_index
from estimator_emb.reporting.console import logger
from estimator_emb.reporting.text_columns import escaped

_ENDS = r"\.(index|meta|data-\d+-of-\d+)$"

TRIES, PAUSE = 4, 0.25
"""How many times to look for a missing checkpoint, and the seconds between two attempts.

Another process may be writing the checkpoint.
"""


class CheckpointError(tf.errors.OpError, ValueError):
    """Base class of checkpoint errors: a TensorFlow OpError without an op, and a ValueError.

    TensorFlow raises an OpError in some functions, and a ValueError in the others.
    """

    def __init__(self, message: str):
        super().__init__(None, None, message)


class MissingCheckpoint(CheckpointError, tf.errors.NotFoundError):  # type: ignore[misc]
    """Raised if a checkpoint, or a file of it, is missing."""


class DamagedCheckpoint(CheckpointError, tf.errors.DataLossError):  # type: ignore[misc]
    """Raised if a checkpoint does not hold the values that were written."""


def latest(model_dir: str) -> str | None:
    """Returns a folder's latest checkpoint, if any, or raises MissingCheckpoint."""
    for attempt in range(TRIES):
        if attempt:
            time.sleep(PAUSE)
        path = _named(model_dir)
        names = checkpoints(model_dir)
        if exists(path):
            _warn_of_other_folder(model_dir, path, names)
            return path
        if not path and not names:
            return None
    file, (_, _, name) = os.path.join(model_dir, "checkpoint"), path.rpartition("/")
    if path:
        problem = f"file '{file}' names '{path}', which is gone"
    else:
        problem = f"file '{file}', which says which checkpoint is the latest, is {_state(file)}"
    message = f"Could not find trained model in model_dir: {problem}.\n"
    if not names:
        raise MissingCheckpoint(
            f"{message}There is no other checkpoint in '{model_dir}'.\n"
            f"What to do: restore the checkpoint, or, to start anew, delete '{file}'."
        )
    whole = [
        other for other in names if find_problem(os.path.join(model_dir, other)) is None
    ] or names
    raise MissingCheckpoint(
        f"{message}Checkpoints in '{model_dir}': {', '.join(names)}.\n"
        f"What to do: {_how_to_go_on(model_dir, name if name in whole else whole[-1])}; to read "
        "one of them as it is, give its path as checkpoint_path; to start anew, use another "
        "model_dir."
    )


def _named(model_dir: str) -> str:
    try:
        state = tf.train.get_checkpoint_state(model_dir)
    except ValueError:  # The file is empty.
        return ""
    return state.model_checkpoint_path if state else ""


def _warn_of_other_folder(model_dir: str, path: str, names: list[str]) -> None:
    folder, _, name = path.rpartition("/")
    if name in names and os.path.realpath(folder) != os.path.realpath(model_dir):
        logger.warning(
            "File '%s' names '%s', of another folder, although there is a %s beside it. "
            'If the folder is a copy, write  model_checkpoint_path: "%s"  into that file.',
            os.path.join(model_dir, "checkpoint"),
            path,
            name,
            name,
        )


def given(path: str) -> str:
    """Returns a program's `checkpoint_path` as a string, or raises MissingCheckpoint."""
    path = tf.compat.path_to_str(path)
    if exists(path):
        return path
    folder = path if tf.io.gfile.isdir(path) else path.rpartition("/")[0] or "."
    names = checkpoints(folder)
    prefix = re.sub(_ENDS, "", path)
    if exists(prefix):
        what_to_do = f"give '{prefix}', without the end of the file's name"
    elif not names:
        what_to_do = "give the path of a checkpoint without the ends of its files' names"
    else:
        what_to_do = f"give one of those in '{folder}': {', '.join(names)}"
    raise MissingCheckpoint(
        "checkpoint_path: The passed save_path is not a valid checkpoint: "
        f"'{path}'.\nWhat to do: {what_to_do}."
    )


def exists(path: str) -> bool:
    """Returns whether a checkpoint with this prefix exists, in format V2 or V1."""
    if not path:
        return False
    if tf.io.gfile.exists(f"{path}.index"):
        return True
    if re.search(_ENDS, path) or tf.io.gfile.isdir(path):
        return False
    return bool(tf.io.gfile.glob(path))


def checkpoints(folder: str) -> list[str]:
    """Returns the names `model.ckpt-<step>` of a folder's checkpoints, sorted by step."""
    if not tf.io.gfile.isdir(folder):
        return []
    matches = (
        re.fullmatch(r"(model\.ckpt-(\d+))(\.index)?", name) for name in tf.io.gfile.listdir(folder)
    )
    steps = {match[1]: int(match[2]) for match in matches if match}
    return sorted(steps, key=steps.__getitem__)


def _state(path: str) -> str:
    if not tf.io.gfile.exists(path):
        return "missing"
    return "damaged" if tf.io.gfile.stat(path).length else "empty"


def _how_to_go_on(folder: str, name: str) -> str:
    return (
        f"to go on from '{name}', write the line  model_checkpoint_path: \"{name}\"  into "
        f"'{os.path.join(folder, 'checkpoint')}'"
    )


def check_folder(model_dir: str) -> None:
    """Raises a ValueError if TensorFlow reads the path as a pattern that does not match it."""
    folder = model_dir.replace(os.sep, "/")
    if re.search(r"\\|\[[^/]+\]", folder):
        raise ValueError(
            f"TPUEstimator: model_dir '{model_dir}' cannot hold checkpoints: TensorFlow reads "
            "[...] and \\ in a path as a pattern, and so would not find what it saves there.\n"
            "What to do: give a folder whose path has no [ and no \\."
        )
    if re.search(r"[*?]", folder):
        logger.warning(
            "model_dir '%s': TensorFlow reads * and ? in a path as a pattern. It finds what it "
            "saves there, but when it deletes old checkpoints, it deletes those of other folders "
            "that the pattern fits too.",
            model_dir,
        )


def make_folder(model_dir: str) -> None:
    """Makes a model_dir. If that fails, raises TensorFlow's error with advice."""
    try:
        tf.io.gfile.makedirs(model_dir)
    except tf.errors.OpError as error:
        error._message = (
            f"train: model_dir '{model_dir}' cannot be made: {error.message}.\n"
            "What to do: give a folder below a folder in which this user may write. No part of the "
            "path can be a file."
        )
        raise


def write_whole(file: str, contents: bytes) -> None:
    """Writes a file atomically, so that no process sees, or leaves, a part of it."""
    written = f"{file}.{os.getpid()}"
    with tf.io.gfile.GFile(written, "wb") as out:
        out.write(contents)
    tf.io.gfile.rename(written, file, overwrite=True)


def check_whole(path: str) -> None:
    """Raises an error if a file is missing or short. It names the newest whole checkpoint."""
    if not exists(path):
        raise _gone(path)
    if not (tf.io.gfile.glob(f"{path}.index") or tf.io.gfile.glob(path)):
        raise MissingCheckpoint(
            f"Restoring from checkpoint failed: checkpoint '{path}' is there, but TensorFlow does "
            "not find it: it reads [...] and \\ in a path as a pattern.\n"
            "What to do: rename the folder so that its path has no [ and no \\."
        )
    problem = find_problem(path)
    if problem:
        raise _error(path, *problem)


def explain(error: Exception, path: str | None) -> Exception | None:
    """Returns a clearer error if the checkpoint at `path` caused `error`."""
    if path is None or isinstance(error, (MissingCheckpoint, DamagedCheckpoint)):
        return None
    if isinstance(error, (tf.errors.NotFoundError, ValueError)):
        return None if exists(path) else _gone(path)
    reads = isinstance(error, (tf.errors.DataLossError, tf.errors.OutOfRangeError))
    if not reads or getattr(getattr(error, "op", None), "type", None) != "RestoreV2":
        return None
    problem = find_problem(path, thorough=True)
    return _error(path, *problem) if problem else None


def _gone(path: str) -> MissingCheckpoint:
    return MissingCheckpoint(
        f"Restoring from checkpoint failed: checkpoint '{path}' was there and is gone: a training "
        "may have replaced it by a newer one.\n"
        "What to do: do it again with the newer one, or let the training keep more checkpoints "
        "with RunConfig(keep_checkpoint_max=...)."
    )


def _error(path: str, problem: str, missing: bool) -> Exception:
    parent, _, name = path.rpartition("/")
    folder = parent or "."
    others = [other for other in checkpoints(folder) if other != name]
    message = f"Restoring from checkpoint failed: checkpoint '{path}' is damaged: {problem}.\n"
    if others:
        logger.info("Looking for the newest checkpoint in %s that is whole.", folder)
    for other in reversed(others):
        if find_problem(os.path.join(folder, other), thorough=True) is None:
            message += (
                f"The newest checkpoint that is whole is '{other}'.\n"
                f"What to do: {_how_to_go_on(folder, other)}, or restore the file."
            )
            break
    else:
        message += (
            "No other checkpoint of its folder is whole.\nWhat to do: restore the file, or start "
            "anew in another model_dir."
        )
    return MissingCheckpoint(message) if missing else DamagedCheckpoint(message)


def find_problem(path: str, thorough: bool = False) -> tuple[str, bool] | None:
    """Returns (problem, whether a file is missing) or None. `thorough` reads all variables."""
    index = None
    with contextlib.suppress(bundle_index.UnknownFormat):
        index = bundle_index.Index(path) if tf.io.gfile.exists(f"{path}.index") else None
    for file, size in index.data_files() if index else ():
        if not tf.io.gfile.exists(file):
            return f"'{file}' is missing", True
        length = tf.io.gfile.stat(file).length
        if length < size:
            return f"'{file}' has {length:,} bytes of {size:,}", False
    try:
        reader = tf.train.load_checkpoint(path)
        names = sorted(reader.get_variable_to_shape_map())  # Raises if a name is not text.
    except (tf.errors.OpError, IndexError, ValueError) as error:
        return f"'{path}.index' cannot be read ({error})", False
    if thorough:
        for name in names:
            try:
                reader.get_tensor(name)
            except (tf.errors.OpError, IndexError) as error:
                file = file_of(path, name)
                return f"variable {escaped(name)} cannot be read from '{file}' ({error})", False
    return None


def file_of(path: str, name: str) -> str:
    """Returns the data file of a variable, or a pattern for all data files if unknown."""
    with contextlib.suppress(bundle_index.UnknownFormat):
        files = {part.file for part in bundle_index.Index(path).parts(name)}
        return files.pop() if len(files) == 1 else f"{path}.data-*"
    return f"{path}.data-*"
