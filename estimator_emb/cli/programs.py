# SPDX-License-Identifier: Apache-2.0
"""Says, before anything else happens, why a program that a subcommand names cannot run."""

from __future__ import annotations

import argparse
import importlib.machinery
import io
import os
import re
import sys
import tokenize
import warnings

from estimator_emb.legacy import old_python

_SOURCES = (".py", ".pyw")


def refusal(options: argparse.Namespace, by_this_python: bool = True) -> str | None:
    """Returns why the program that `options` name is none that Python can run, in one line.

    Args:
      options: of a subcommand.
      by_this_python: False where another one may run it, which knows other modules and syntax.
    """
    prefixes = [prefix for prefix, _ in options.map]
    for prefix in prefixes:
        if prefixes.count(prefix) > 1:
            return f"argument --map: {prefix} is given twice"
    if options.module:
        return _module_refusal(options.module[0]) if by_this_python else None
    script = options.script
    if os.path.isdir(script):
        return f"{script!r} is a folder: name the program in it, or run a package by -m"
    if not os.path.isfile(script):
        return f"there is no file {script!r}"
    return source_refusal(script) if by_this_python else None


def mapping(text: str) -> tuple[str, str]:
    """Returns the prefix and the folder of `--map PREFIX=DIR`.

    Raises:
      argparse.ArgumentTypeError: it is written otherwise, or there is no such folder.
    """
    prefix, equals, folder = text.partition("=")
    prefix = prefix.rstrip("/")
    if not equals or not folder or not re.fullmatch(r"[a-z][a-z0-9+.-]*://[^/].*", prefix):
        raise argparse.ArgumentTypeError(f"must be like gs://bucket=DIR; got {text!r}")
    if folder.rstrip("/") == prefix:
        return prefix, prefix
    if not os.path.isdir(folder):
        raise argparse.ArgumentTypeError(f"there is no folder {folder!r} for {prefix}")
    return prefix, os.path.abspath(folder)


def source_refusal(file: str) -> str | None:
    """Returns why `file` is not source code that this Python can compile."""
    try:
        with open(file, "rb") as opened:
            source = opened.read()
    except OSError as error:
        return f"{file!r} cannot be read: {error.strerror}"
    if b"\0" in source:
        return f"{file!r} is not a Python program: it has bytes that text does not have"
    try:
        # A file whose first lines name no encoding, or the wrong one, is often no text at all.
        encoding, _ = tokenize.detect_encoding(io.BytesIO(source).readline)
        source.decode(encoding)
    except (SyntaxError, UnicodeDecodeError, LookupError) as error:
        return f"{file!r} is no text that Python can read: {error}"
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # They come when the program runs.
            compile(source, file, "exec", dont_inherit=True)
    except SyntaxError as error:
        return old_python.explained_syntax_error(error)
    except (ValueError, RecursionError, MemoryError) as error:
        return f"{file!r} is not a Python program: {error}"
    return None


def _module_refusal(name: str) -> str | None:
    """Returns why `python -m name` would find nothing to run. It imports nothing."""
    path: list[str] | None = [os.getcwd(), *sys.path[1:]]
    if getattr(sys.flags, "safe_path", False):
        path = list(sys.path)
    spec = None
    parts = name.split(".")
    if "" in parts:
        return f"there is no module {name!r}"
    for i in range(len(parts)):
        found = ".".join(parts[: i + 1])
        spec = _find(found, path)
        if spec is None:
            return f"there is no module {found!r}"
        is_package = spec.submodule_search_locations is not None
        path = list(spec.submodule_search_locations or ())
        if i + 1 < len(parts) and not is_package:
            return f"there is no module {'.'.join(parts[: i + 2])!r}: {found!r} is no package"
    assert spec is not None
    if spec.submodule_search_locations is not None:
        main = _find(f"{name}.__main__", path)
        if main is None:
            return f"the package {name!r} cannot run: it has no module '__main__'"
        spec = main
    if spec.origin is not None and spec.origin.endswith(_SOURCES) and os.path.isfile(spec.origin):
        return source_refusal(spec.origin)
    if isinstance(spec.loader, importlib.machinery.ExtensionFileLoader):
        return f"the module {name!r} is not a Python program: it is {spec.origin!r}"
    return None


def _find(name: str, path: list[str] | None) -> importlib.machinery.ModuleSpec | None:
    for finder in sys.meta_path:
        find = getattr(finder, "find_spec", None)
        # A folder without __init__.py asks for the package that it is in, which nothing has
        # imported: it is looked for under its last name, which has none.
        by_path = finder is importlib.machinery.PathFinder
        spec = (
            find(name.rpartition(".")[2] if by_path else name, path) if find is not None else None
        )
        if spec is not None:
            return spec
    return None
