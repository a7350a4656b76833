"""Redirects what a program writes from the user's files to a folder of the comparison.

The program reads its own copy where it has written one, and the user's file elsewhere; a folder
lists both. A model directory is empty at first, and what the program removes looks removed.
`redirect` covers Python's `open` and `os`, and the functions of TensorFlow in
`private.tensorflow_files`; Python's audit events forbid other writes. Child processes are not
redirected, nor is C++ that opens files itself, as in h5py and TensorFlow's profiler.
"""

import builtins
import collections.abc
import contextlib
import functools
import importlib
import inspect
import io
import os
import pathlib
import re
import shutil
import sys

_stat = os.stat  # As it is before `redirect`.
_WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND


class Files:
    """The files that a program writes, each in a folder under its own absolute name.

    Paths in `folder`, which is that of the side, are not redirected, and neither are caches. `maps`
    has prefixes of paths and their folders, as `--map` has them.
    """

    def __init__(self, folder, maps=()):
        self._maps = sorted(maps, key=lambda one: -len(one[0]))
        self._free = [os.path.realpath(folder), folder, "/dev", "/proc"]
        self._free.append(os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache"))
        if os.environ.get("ESTIMATOR_EMB_CACHE"):
            self._free.append(os.path.abspath(os.environ["ESTIMATOR_EMB_CACHE"]))
        self._copies = os.path.join(folder, "files")
        self._hidden = set()
        """The user's files that the program must not see."""
        self.match = None
        """TensorFlow's own function that finds the files of a pattern."""

    def written(self, path):
        if (name := self.redirected(path)) is None:
            return path
        copy = self._copy(name)
        os.makedirs(os.path.dirname(copy), exist_ok=True)
        return _like(path, copy)

    def read(self, path):
        if (name := self.redirected(path)) is None:
            return path
        copy = self._copy(name)
        return _like(path, copy) if _exists(copy) or self._is_hidden(name) else path

    def restored(self, path):
        if (name := self.redirected(path)) is None:
            return path
        copy = self._copy(name)
        return _like(path, copy) if _exists(f"{copy}.index") else self.read(path)

    saved = written

    def children(self, names_in, path):
        """Returns the names in a folder: the user's that are not hidden, and the program's."""
        if (name := self.redirected(path)) is None:
            return names_in(path)
        copy = self._copy(name)
        written = _exists(copy)
        found = names_in(_like(path, copy)) if written or self._is_hidden(name) else []
        if not self._is_hidden(name) and (_exists(name) or not written):
            # TensorFlow lists folders with a '/' at their ends.
            there = {os.fsdecode(one).rstrip("/") for one in found}
            for one in names_in(path):
                leaf = os.fsdecode(one).rstrip("/")
                if leaf not in there and not self._is_hidden(os.path.join(name, leaf)):
                    found.append(one)
        return found

    def matching(self, match, pattern):
        """Returns the user's and the program's paths of a pattern, as the program knows them."""
        if (name := self.redirected(pattern)) is None:
            return match(pattern)
        found = {os.fsdecode(one) for one in match(pattern)}
        found = {one for one in found if not self._is_hidden(_absolute(one))}
        for one in match(self._copy(name)):
            one = os.fsdecode(one)[len(self._copies) :]
            scheme, mark, _ = name.partition("://")
            if mark:
                one = scheme + mark + one[len(scheme) + 2 :]
            elif not os.path.isabs(os.fsdecode(pattern)):
                one = os.path.relpath(one)
            found.add(one)
        return sorted(found)

    def listed(self, pattern):
        """Returns the patterns of an op instead of `pattern`: the places that it matches now."""
        if (name := self.redirected(pattern)) is None:
            return [pattern]
        found = [
            re.sub(r"([*?\[\]\\])", r"\\\1", self.read(one))
            for one in self.matching(self.match, pattern)
        ]
        return [_like(pattern, one) for one in found] or [_like(pattern, self._copy(name))]

    def when_it_runs(self, how, paths):
        """Returns a tensor of the places, by the method `how`, of paths known only in a session."""
        import numpy as np
        import tensorflow as tf

        if how in ("saved", "restored"):
            return paths  # The savers have been told, and their graphs may be exported.

        def changed(given):
            given = np.asarray(given, object)
            places = [getattr(self, how)(path) for path in given.flat]
            if how == "listed":
                return np.array([place for found in places for place in found], object)
            return np.array(places, object).reshape(given.shape)

        result = tf.numpy_function(changed, [paths], tf.string, stateful=False)
        result.set_shape([None] if how == "listed" else paths.shape)
        return result

    def mapped(self, path):
        text = os.fsdecode(path)
        for prefix, folder in self._maps:
            if f"{text}/".startswith(f"{prefix}/"):
                return _like(path, folder + text[len(prefix) :])
        return path

    def moved(self, path):
        """Returns the place of a file that the program renames, and hides its old name."""
        place = self.changed(path)
        self.hide(path)
        return place

    def changed(self, path):
        """Returns the place of a file that the program changes, with a copy of it there."""
        name = _absolute(path)
        place = self.written(path)
        if place is not path and not _exists(place) and not self._is_hidden(name):
            if os.path.isdir(name):
                shutil.copytree(name, os.fsdecode(place))
            elif _exists(name):
                shutil.copyfile(name, os.fsdecode(place))
        return place

    def removed(self, path):
        """Returns the path to remove instead of `path`; None if only the user has it."""
        if self.redirected(path) is None:
            return path
        was_there = _exists(self.read(path))
        copy = self.hide(path)
        return None if was_there and not _exists(copy) else copy

    def hide(self, path):
        """Hides the user's own file or folder from the program; returns the place of its copy."""
        if (name := self.redirected(path)) is not None:
            self._hidden.add(name)
        return self.written(path)

    def redirected(self, path):
        """Returns the absolute name of a path; None for one that may be written as it is."""
        name = _absolute(path)
        return None if name is None or _is_below(name, self._free) else name

    def _copy(self, name):
        return os.path.join(self._copies, name.replace("://", "/").lstrip("/"))

    def _is_hidden(self, name):
        return _is_below(name, self._hidden)


def redirect(files, redirect_tensorflow):
    """Redirects what this process writes; `tensorflow` must be imported."""
    _redirect_python(files)
    file_io = importlib.import_module("tensorflow.python.lib.io.file_io")
    files.match = file_io._pywrap_file_io.GetMatchingFiles
    redirect_tensorflow(setattr, files)
    _redirect_savers(files)
    sys.addaudithook(functools.partial(_refuse, files))


def _exists(path):
    try:
        _stat(path)
    except (OSError, ValueError):
        return False
    return True


def _is_below(name, roots):
    return any(name == root or name.startswith(root + "/") for root in roots)


def _absolute(path):
    if isinstance(path, os.PathLike):
        path = os.fspath(path)
    if isinstance(path, bytes):
        path = os.fsdecode(path)
    if not isinstance(path, str) or not path:
        return None
    return path if "://" in path else os.path.abspath(path)


def _like(path, name):
    return os.fsencode(name) if isinstance(path, bytes) else name


def _redirect_python(files):
    real_open, real_os_open = builtins.open, os.open

    def open_(file, mode="r", *args, **kwargs):
        if set(mode) & set("wx"):
            file = files.written(file)
        elif set(mode) & set("a+"):
            file = files.changed(file)
        else:
            file = files.read(file)
        return real_open(file, mode, *args, **kwargs)

    def os_open(path, flags, *args, **kwargs):
        if kwargs.get("dir_fd") is None:
            path = files.changed(path) if flags & _WRITES else files.read(path)
        return real_os_open(path, flags, *args, **kwargs)

    builtins.open = io.open = open_
    os.open = os_open
    names_in, entries_in = os.listdir, os.scandir

    def listdir(path="."):
        return names_in(path) if isinstance(path, int) else files.children(names_in, path)

    os.listdir = listdir
    os.scandir = lambda path=".": _Entries(files, entries_in, path)
    for names, *places in (
        ("stat lstat access", files.read),
        ("chmod utime truncate", files.changed),
        ("mkdir mkfifo", files.written),
        ("remove unlink rmdir", files.removed),
        ("rename replace", files.moved, files.written),
        ("symlink link", files.read, files.written),
    ):
        for name in names.split():
            _wrap(os, name, *places)
    _wrap(shutil, "rmtree", files.removed)
    # Until Python 3.11, pathlib keeps the functions that it found when it was imported.
    kept = getattr(pathlib, "_NormalAccessor", None)
    for name in set(dir(kept)) & {*dir(os)} if kept else ():
        if hasattr(getattr(os, name), "__wrapped__"):
            setattr(kept, name, staticmethod(getattr(os, name)))
    if kept is not None:
        kept.open = staticmethod(open_)


class _Entries(collections.abc.Iterator, contextlib.AbstractContextManager):
    """The result of `os.scandir` for a folder that the program may have written to."""

    def __init__(self, files, entries_in, path):
        entries = {}

        def names_in(folder):
            with entries_in(folder) as found:
                new = {one.name: one for one in found}
            entries.update({**new, **entries})
            return list(new)

        names = names_in(path) if isinstance(path, int) else files.children(names_in, path)
        self._entries = iter([entries[name] for name in names])

    def __next__(self):
        return next(self._entries)

    def __exit__(self, *error):
        self.close()

    def close(self):
        self._entries = iter(())


def _wrap(module, name, *places):
    """Replaces the first arguments of a function by `places`; a place of None skips the call."""
    real = getattr(module, name)

    @functools.wraps(real)
    def wrapped(*args, **kwargs):
        if kwargs.get("dir_fd") is not None:
            return real(*args, **kwargs)
        paths = [place(path) for place, path in zip(places, args)]  # noqa: B905 - paths by name.
        if None in paths:
            return None
        return real(*paths, *args[len(paths) :], **kwargs)

    setattr(module, name, wrapped)


def _redirect_savers(files):
    """Gives savers the places of checkpoints and SavedModels, which C++ reads and writes."""
    for place, module, name, argument in (
        (files.saved, "training.saver", "Saver.save", "save_path"),
        (files.restored, "training.saver", "Saver.restore", "save_path"),
        (files.saved, "checkpoint.checkpoint", "TrackableSaver.save", "file_prefix"),
        (files.restored, "checkpoint.checkpoint", "TrackableSaver.restore", "save_path"),
        (files.written, "saved_model.save", "save_and_return_nodes", "export_dir"),
        (files.read, "saved_model.load", "load_partial", "export_dir"),
        (files.read, "saved_model.loader_impl", "SavedModelLoader.__init__", "export_dir"),
    ):
        owner = importlib.import_module(f"tensorflow.python.{module}")
        *classes, name = name.split(".")
        for one in classes:
            owner = getattr(owner, one)
        _redirect_call(files, place, owner, name, argument)


def _redirect_call(files, place, owner, name, argument):
    real = getattr(owner, name)
    signature = inspect.signature(real)

    @functools.wraps(real)
    def redirected(*args, **kwargs):
        given = signature.bind(*args, **kwargs)
        path = given.arguments[argument]
        if not isinstance(path, (str, bytes, os.PathLike)):
            return real(*args, **kwargs)
        new = given.arguments[argument] = place(files.mapped(path))
        result = real(*given.args, **given.kwargs)
        # What a saver returns begins with the path, and the program goes on with it.
        text = result.numpy() if hasattr(result, "numpy") else result
        if isinstance(text, (str, bytes)) and os.fsdecode(text).startswith(os.fsdecode(new)):
            return os.fsdecode(path) + os.fsdecode(text)[len(os.fsdecode(new)) :]
        return result

    setattr(owner, name, redirected)


def _refuse(files, event, args):
    if event == "open":
        paths = args[:1] if isinstance(args[2], int) and args[2] & _WRITES else ()
    elif event in ("os.mkdir", "os.rmdir", "os.remove", "os.truncate"):
        paths = args[:1] if args[-1] == -1 or event == "os.truncate" else ()
    elif event in ("os.rename", "os.link", "os.symlink"):
        paths = args[:2] if event == "os.rename" and args[2] == args[3] == -1 else args[1:2]
    else:
        return
    for path in paths:
        if (name := files.redirected(path)) is not None:
            raise PermissionError(f"estimator-emb compare does not let a program write {name!r}.")
