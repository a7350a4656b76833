# SPDX-License-Identifier: Apache-2.0
"""Keeps what a program writes away from the user's files: it goes to a folder of the comparison.

What the program reads is read there if it was written there, else where it is. A model directory
is empty at first, and so is what the program removes. `redirect` covers Python's `open` and `os`,
`tf.io.gfile`, the summary writers, the savers and the exports of estimators. What neither goes
through these nor is forbidden by Python's audit events is written where the program says: by
programs that it starts, and by C++ that opens files itself, such as `Dataset.cache(filename)`.
"""

import builtins
import contextlib
import functools
import importlib
import inspect
import io
import os
import pathlib
import shutil
import sys
import types

_WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND


class Files:
    """The files that a program writes, each in a folder under its own absolute name.

    Args:
      folder: of the side. What is in it is left where it is, and so are caches.
    """

    def __init__(self, folder):
        self._free = [os.path.realpath(folder), folder, "/dev", "/proc"]
        self._free.append(os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache"))
        if os.environ.get("ESTIMATOR_EMB_CACHE"):
            self._free.append(os.path.abspath(os.environ["ESTIMATOR_EMB_CACHE"]))
        self._copies = os.path.join(folder, "files")
        self._hidden = set()
        """What is there for the user, and not for the program."""

    def written(self, path):
        """Returns where that goes which the program writes to a path."""
        name = _absolute(path)
        if name is None or self.is_free(name):
            return path
        copy = self._copy(name)
        _system.makedirs(os.path.dirname(copy))
        return _like(path, copy)

    def read(self, path):
        """Returns where that is which the program reads from a path."""
        name = _absolute(path)
        if name is None or self.is_free(name):
            return path
        copy = self._copy(name)
        return _like(path, copy) if _system.exists(copy) or self._is_hidden(name) else path

    def listed(self, path):
        """Returns the folder, or pattern, to list in place of a path: one of both, not their sum.

        The user's, where there is one that is not hidden: beside the copy of a model directory
        there is nothing, but beside the directory itself may be the data.
        """
        name = _absolute(path)
        if name is None or self.is_free(name):
            return path
        is_pattern = any(sign in name for sign in "*?[")
        folder = os.path.dirname(name) if is_pattern else name
        users = _system.exists(folder) and not self._is_hidden(name)
        return path if users else _like(path, self._copy(name))

    def moved(self, path):
        """Returns where a file is that the program renames; it is gone from where it was."""
        place = self.changed(path)
        self.hide(path)
        return place

    def changed(self, path):
        """Returns where a file is that the program changes in place, with a copy of it there."""
        name = _absolute(path)
        place = self.written(path)
        if place is not path and not _system.exists(place) and not self._is_hidden(name):
            _system.copy(name, place)
        return place

    def hide(self, path):
        """Makes the user's own file or folder look as if it were not there; returns its copy."""
        name = _absolute(path)
        if name is not None and not self.is_free(name):
            self._hidden.add(name)
        return self.written(path)

    def is_free(self, name):
        """Returns whether an absolute name may be written as it is."""
        return any(name == root or name.startswith(root + "/") for root in self._free)

    def _copy(self, name):
        return os.path.join(self._copies, name.replace("://", "/").lstrip("/"))

    def _is_hidden(self, name):
        return any(name == root or name.startswith(root + "/") for root in self._hidden)


def redirect(files):
    """Redirects what this process writes; `tensorflow` must be imported."""
    _redirect_python(files)
    _redirect_tensorflow(files)
    sys.addaudithook(functools.partial(_refuse, files))


class _System:
    """Python's own functions, as they were before `redirect`."""

    def __init__(self):
        self.mkdir, self.stat = os.mkdir, os.stat
        self.open = builtins.open

    def exists(self, path):
        try:
            self.stat(path)
        except (OSError, ValueError):
            return False
        return True

    def makedirs(self, path):
        if path and not self.exists(path):
            self.makedirs(os.path.dirname(path))
            with contextlib.suppress(FileExistsError):
                self.mkdir(path)

    def copy(self, source, destination):
        if self.exists(source):
            with self.open(source, "rb") as old, self.open(destination, "wb") as new:
                shutil.copyfileobj(old, new)


_system = _System()


def _absolute(path):
    """Returns the absolute name of a path; None for what is no path, such as a descriptor."""
    if isinstance(path, os.PathLike):
        path = os.fspath(path)
    if isinstance(path, bytes):
        path = os.fsdecode(path)
    if not isinstance(path, str) or not path:
        return None
    return path if "://" in path else os.path.abspath(path)


def _like(path, name):
    """Returns a name as bytes where a path is bytes, as what is made of it is too."""
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
    for name in ("stat", "lstat", "access"):
        _wrap(os, name, files.read)
    for name in ("listdir", "scandir"):
        _wrap(os, name, files.listed)
    for name in ("chmod", "utime", "truncate"):
        _wrap(os, name, files.changed)
    for name in ("mkdir", "mkfifo"):
        _wrap(os, name, files.written)
    for name in ("remove", "unlink", "rmdir"):
        _wrap(os, name, functools.partial(_removed, files))
    for name in ("rename", "replace"):
        _wrap(os, name, files.moved, files.written)
    for name in ("symlink", "link"):
        _wrap(os, name, files.read, files.written)
    real_rmtree = shutil.rmtree

    def rmtree(path, *args, **kwargs):
        copy = _removed(files, path)
        if copy is not None:
            real_rmtree(copy, *args, **kwargs)

    shutil.rmtree = rmtree
    # Until Python 3.11, pathlib keeps the functions that it found when it was imported.
    kept = getattr(pathlib, "_NormalAccessor", None)
    for name in set(dir(kept)) & {*dir(os)} if kept else ():
        if hasattr(getattr(os, name), "__wrapped__"):
            setattr(kept, name, staticmethod(getattr(os, name)))
    if kept is not None:
        kept.open = staticmethod(open_)


def _removed(files, path):
    """Returns what is to be removed in place of a path; None if only the user has it."""
    name = _absolute(path)
    if name is None or files.is_free(name):
        return path
    was_there = _system.exists(files.read(path))
    copy = files.hide(path)
    return None if was_there and not _system.exists(copy) else copy


def _wrap(module, name, *places):
    """Has a function's first arguments be what `places` say; None leaves the call out."""
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


def _redirect_tensorflow(files):
    file_io = importlib.import_module("tensorflow.python.lib.io.file_io")
    # Every function of tf.io.gfile calls one of this module, by its attribute.
    real = file_io._pywrap_file_io
    removed = functools.partial(_removed, files)
    places = {
        **dict.fromkeys(
            "FileExists ReadFileToString IsDirectory Stat BufferedInputStream "
            "HasAtomicMove".split(),
            (files.read,),
        ),
        **dict.fromkeys(("GetChildren", "GetMatchingFiles"), (files.listed,)),
        **dict.fromkeys(
            "WriteStringToFile CreateDir RecursivelyCreateDir".split(), (files.written,)
        ),
        "DeleteFile": (removed,),
        "DeleteRecursively": (removed,),
        "CopyFile": (files.read, files.written),
        "RenameFile": (files.moved, files.written),
    }
    proxy = types.SimpleNamespace(**{n: getattr(real, n) for n in dir(real) if n[0] != "_"})
    for name, of_arguments in places.items():
        if hasattr(real, name):
            _wrap(proxy, name, *of_arguments)

    def writable_file(path, mode, *args):
        place = files.changed(path) if mode[:1] in ("a", b"a") else files.written(path)
        return real.WritableFile(place, mode, *args)

    proxy.WritableFile = writable_file
    file_io._pywrap_file_io = proxy

    summary_ops = importlib.import_module("tensorflow.python.ops.gen_summary_ops")
    create = summary_ops.create_summary_file_writer

    def create_summary_file_writer(writer, logdir, *args, **kwargs):
        return create(writer, _to_write(files, logdir), *args, **kwargs)

    summary_ops.create_summary_file_writer = create_summary_file_writer
    events = importlib.import_module("tensorflow.python.summary.writer.event_file_writer")
    saver = importlib.import_module("tensorflow.python.training.saver")
    estimator = importlib.import_module("tensorflow_estimator.python.estimator.estimator")
    _redirect_method(files, events.EventFileWriter, "__init__", "logdir")
    _redirect_method(files, saver.Saver, "save", "save_path")
    for name in (
        "export_saved_model",
        "export_savedmodel",
        "experimental_export_all_saved_models",
    ):
        if name in vars(estimator.Estimator):
            _redirect_method(files, estimator.Estimator, name, "export_dir_base")


def _redirect_method(files, owner, name, argument):
    real = getattr(owner, name)
    position = list(inspect.signature(real).parameters).index(argument)

    @functools.wraps(real)
    def method(*args, **kwargs):
        if argument in kwargs:
            kwargs[argument] = _to_write(files, kwargs[argument])
        elif len(args) > position:
            place = _to_write(files, args[position])
            args = (*args[:position], place, *args[position + 1 :])
        return real(*args, **kwargs)

    setattr(owner, name, method)


def _to_write(files, path):
    return files.written(path) if isinstance(path, (str, bytes, os.PathLike)) else path


def _refuse(files, event, args):
    """Raises PermissionError where something writes to the user's files nevertheless."""
    if event == "open":
        paths = args[:1] if isinstance(args[2], int) and args[2] & _WRITES else ()
    elif event in ("os.mkdir", "os.rmdir", "os.remove", "os.truncate"):
        paths = args[:1] if args[-1] == -1 or event == "os.truncate" else ()
    elif event in ("os.rename", "os.link", "os.symlink"):
        paths = args[:2] if event == "os.rename" and args[2] == args[3] == -1 else args[1:2]
    else:
        return
    for path in paths:
        name = _absolute(path)
        if name is not None and not files.is_free(name):
            raise PermissionError(f"estimator-emb compare does not let a program write {name!r}.")
