"""Rejects programs that cannot run, before anything is imported or written."""

import argparse
import importlib.machinery
import io
import os
import sys
import tokenize
import warnings

from estimator_emb.cli.parsing import WrongArguments

_SOURCES = (".py", ".pyw")


def check_program(options: argparse.Namespace) -> None:
    """Raises WrongArguments if the program is missing or is not Python, or --contrib has no use."""
    if not options.program or options.program == ["-m"]:
        raise WrongArguments("name one program: SCRIPT.py or -m MODULE")
    script = options.program[0]
    refusal = None
    if script == "-m":
        refusal = _module_refusal(options.program[1])
    elif os.path.isdir(script):
        refusal = f"{script!r} is a folder: name the program in it, or run a package by -m"
    elif not os.path.isfile(script):
        refusal = f"there is no file {script!r}"
    else:
        refusal = source_refusal(script)
    if refusal is None and options.contrib is not None and not options.tf_v1:
        refusal = "--contrib needs --tf-v1"
    if refusal is not None:
        raise WrongArguments(refusal)


def source_refusal(file: str) -> str | None:
    """Returns why this Python cannot compile `file`, or None if it can."""
    try:
        with open(file, "rb") as opened:
            source = opened.read()
        decoded(source)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # The program shows them when it runs.
            compile(source, file, "exec", dont_inherit=True)
    except OSError as error:
        return f"{file!r} cannot be read: {error.strerror}"
    except SyntaxError as error:
        shown = os.path.relpath(file)
        shown = file if shown.startswith(os.pardir) else shown
        return f"{shown}, line {error.lineno}: {what_is_wrong(error)}"
    except (ValueError, RecursionError, MemoryError) as error:
        return f"{file!r} is not a Python program: {error}"
    return None


def what_is_wrong(error: SyntaxError) -> str:
    """Returns a syntax error's message and line."""
    line = (error.text or "").strip()
    return f"{error.msg}: {line}" if line else str(error.msg)


def decoded(source: bytes) -> tuple[str, str]:
    """Returns (text, encoding) of source code, or raises ValueError if it is not source code."""
    if b"\0" in source:
        raise ValueError("it has null bytes")
    try:
        # Binary files often fail here, because their first lines declare no valid encoding.
        encoding, _ = tokenize.detect_encoding(io.BytesIO(source).readline)
        return source.decode(encoding), encoding
    except (SyntaxError, LookupError) as error:
        raise ValueError(str(error)) from error


def _module_refusal(name: str) -> str | None:
    path: list[str] | None = [os.getcwd(), *sys.path[1:]]
    if getattr(sys.flags, "safe_path", False):
        path = list(sys.path)
    spec = None
    parts = name.split(".")
    for i in range(len(parts)):
        spec = None if "" in parts else _find(".".join(parts[: i + 1]), path)
        if spec is None:
            return f"there is no module {name!r}"
        path = list(spec.submodule_search_locations or ())
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
        find = getattr(finder, "find_spec", None)  # Python skips finders without it.
        # Given its full name, a namespace package would look up its parent in sys.modules, but
        # the parent was not imported.
        by_path = finder is importlib.machinery.PathFinder
        spec = find and find(name.rpartition(".")[2] if by_path else name, path)
        if spec is not None:
            return spec
    return None
