"""Gives TensorFlow folders of this machine in place of paths such as gs://bucket/data.

The program sees its own paths; they are changed on their way to TensorFlow (`tensorflow_files`).
Where an op's path is known only when it runs, other ops change it first.
"""

import os
import re
from collections.abc import Callable
from typing import Any

import tensorflow as tf

from estimator_emb.private import files, tensorflow_files
from estimator_emb.private.patches import Changes

_REFUSED = "/dev/null/estimator-emb has no --map for gs:/"
"""Replaces, in a graph, a path without a folder: nothing can exist there."""

_installed = Changes()
_paths: "_Paths | None" = None


def map_paths(folders: dict[str, str], refuses_gs: bool) -> None:
    """Makes TensorFlow use these folders in place of paths, and drops those of an earlier call.

    `folders` maps a prefix of paths to a folder, or to itself for paths to leave alone; the longest
    prefix that fits counts. `refuses_gs` makes other paths that begin with gs:// an error.
    """
    global _installed, _paths
    unmap_paths()
    if not (folders or refuses_gs):
        return
    paths = _Paths(folders, refuses_gs)
    with Changes() as changes:
        tensorflow_files.redirect(files, changes.set_attribute, paths)
        _installed, _paths = changes.pop_all(), paths


def unmap_paths() -> None:
    """Undoes `map_paths`."""
    global _paths
    _installed.close()
    _paths = None


def local(path: str) -> str:
    """Returns the path on this machine for a path of the program."""
    return path if _paths is None else _paths.read(path)


class _Paths:
    def __init__(self, folders: dict[str, str], refuses_gs: bool):
        self._folders = sorted(folders.items(), key=lambda one: -len(one[0]))
        self._refuses_gs = refuses_gs

    def read(self, path: Any) -> Any:
        """Returns the path on this machine, as str or bytes like `path`; other values unchanged."""
        if not isinstance(path, (str, bytes)):
            return path
        text = os.fsdecode(path)
        for prefix, folder in self._folders:
            if text == prefix or text.startswith(prefix + "/"):
                text = folder + text[len(prefix) :]
                return text if isinstance(path, str) else os.fsencode(text)
        if self._refuses_gs and text.startswith("gs://"):
            bucket = "/".join(text.split("/")[:3])
            raise ValueError(
                f"{text!r}: nothing is read from or written to Google Cloud Storage while a TPU is "
                f"emulated. Name a folder for it: estimator-emb run --map {bucket}=DIR (or --map "
                f"{bucket}={bucket} for the bucket itself)."
            )
        return path

    def written(self, path: Any) -> Any:
        """Returns the same as `read`, and makes the folder: the program's bucket needs none."""
        found = self.read(path)
        if found != path:
            os.makedirs(os.path.dirname(os.fsdecode(found)), exist_ok=True)
        return found

    changed = saved = written
    moved = removed = restored = read

    def listed(self, pattern: Any) -> list[Any]:
        return [self.read(pattern)]

    def children(self, names_in: Callable[[Any], list[Any]], path: Any) -> list[Any]:
        return names_in(self.read(path))

    def matching(self, match: Callable[[Any], list[Any]], pattern: Any) -> list[Any]:
        """Returns the files that match a pattern, with the prefix of the pattern."""
        found, text = match(self.read(pattern)), os.fsdecode(pattern)
        for prefix, folder in self._folders:
            if text == prefix or text.startswith(prefix + "/"):
                begin = os.fsencode(folder) if found and isinstance(found[0], bytes) else folder
                put = os.fsencode(prefix) if isinstance(begin, bytes) else prefix
                return [put + path[len(begin) :] for path in found]
        return found

    def when_it_runs(self, how: str, paths: Any) -> Any:
        # Without folders, graphs stay as they are.
        if not self._folders:
            return paths
        with tf.name_scope("map_path"):
            for prefix, folder in self._folders:
                if folder != prefix:
                    put = folder.replace("\\", "\\\\") + r"\1"
                    paths = tf.strings.regex_replace(
                        paths, f"^{re.escape(prefix)}(/|$)", put, replace_global=False
                    )
            left = "|".join(re.escape(p) for p, folder in self._folders if p == folder)
            if self._refuses_gs and not left:
                paths = tf.strings.regex_replace(paths, "^gs:/", _REFUSED, replace_global=False)
        return paths
