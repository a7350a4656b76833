"""Checks the paths of checkpoints. Local paths are checked without TensorFlow.

The argument `files` is `tf.io.gfile`, or `Local` for local paths.
"""

import os
import re
from typing import Any


class Local:
    """The functions of `tf.io.gfile` for local files, without TensorFlow."""

    exists = staticmethod(os.path.exists)
    isdir = staticmethod(os.path.isdir)
    listdir = staticmethod(os.listdir)


def is_local(path: str) -> bool:
    """Returns whether a path is on this machine."""
    return "://" not in path


def check_prefix(path: str, files: Any) -> None:
    """Raises a ValueError unless a path is the prefix of a checkpoint."""
    if files.exists(f"{path}.index"):
        return
    bare = re.sub(r"\.(index|meta|data-\d+-of-\d+)$", "", path)
    if bare != path and files.exists(f"{bare}.index"):
        raise ValueError(
            f"There is no checkpoint {path!r}: give {bare!r}, without the end of the file's name."
        )
    raise ValueError(f"There is no checkpoint {path!r}.")


def none_in(folder: str) -> ValueError:
    """Returns the error for a folder without a checkpoint."""
    return ValueError(f"Folder {folder!r} holds no checkpoint.")


def local_prefix(path: str) -> str | None:
    """Returns the prefix of a local checkpoint, or of a local folder's latest checkpoint.

    Returns None if TensorFlow must find it. Raises ValueError if there is no checkpoint.
    """
    if not is_local(path):
        return None
    if not os.path.isdir(path):
        check_prefix(path, Local)
        return path
    names = os.listdir(path)
    if "checkpoint" not in names:
        if not any(name.endswith(".index") for name in names):
            raise none_in(path)
        return None
    with open(os.path.join(path, "checkpoint"), errors="replace") as state:
        named = re.search(r'^model_checkpoint_path: *"(.*)"', state.read(), re.M)
    found = os.path.join(path, named[1]) if named else ""
    return found if os.path.isfile(f"{found}.index") else None


def new_prefix(source: str, destination: str, files: Any) -> str:
    """Returns the new checkpoint's prefix for `convert`. Raises ValueError if it exists."""
    name = destination.rpartition("/")[2]
    if files.isdir(destination) or not re.search(r"\.ckpt|-\d+$", name):
        destination = f"{destination.rstrip('/')}/{source.rpartition('/')[2]}"
    folder, _, name = destination.rpartition("/")
    folder = folder or ("/" if destination.startswith("/") else ".")
    if files.isdir(folder):
        for other in files.listdir(folder):
            if re.fullmatch(rf"{re.escape(name)}\.(index|data-\d+-of-\d+)", other):
                raise ValueError(f"Checkpoint {destination!r} exists already.")
    above = folder
    while above and not files.isdir(above):
        if os.path.isfile(above):
            raise ValueError(f"{above!r} is a file; it must be a folder for {destination!r}.")
        above = above.rpartition("/")[0]
    return destination
