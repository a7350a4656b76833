# SPDX-License-Identifier: Apache-2.0
"""Names and starts the program that a subcommand is given, and shows how it failed."""

from __future__ import annotations

import argparse
import contextlib
import os
import runpy
import sys
from collections.abc import Iterator
from types import ModuleType

from estimator_emb.legacy import emulated_tpu, forks, old_python, tf_v1
from estimator_emb.private import file_paths


def name_of(options: argparse.Namespace) -> str:
    """Returns what messages call the program."""
    return options.script or options.module[0]


def run(options: argparse.Namespace) -> None:
    """Runs the program with the arguments, `__main__` and sys.path[0] that Python would give it.

    These stay afterwards as the program has left them; `restored` restores them.
    """
    file_paths.map_paths(dict(options.map), refuses_gs=emulated_tpu.is_emulated())
    if options.tf_v1:
        tf_v1.bind()
    if options.module:
        sys.argv[:] = options.module
        _set_first_path(os.getcwd())
        runpy.run_module(options.module[0], run_name="__main__", alter_sys=True)
        return
    sys.argv[:] = [options.script, *options.arguments]
    _set_first_path(os.path.dirname(os.path.realpath(options.script)))
    program = ModuleType("__main__")
    program.__file__ = os.path.abspath(options.script)
    sys.modules["__main__"] = program
    with open(options.script, "rb") as file:
        code = compile(file.read(), program.__file__, "exec", dont_inherit=True)
    exec(code, vars(program))


def show_failure(error: Exception, options: argparse.Namespace) -> None:
    """Prints the exception that ended the program as Python would, and what to do about it."""
    frames = error.__traceback__
    while frames is not None and _is_ours(frames.tb_frame.f_code.co_filename):
        frames = frames.tb_next
    sys.excepthook(type(error), error.with_traceback(frames), frames)
    advice = None if options.tf_v1 else tf_v1.advice_about_name(error)
    advice = forks.advice_about_copy(error) or advice or old_python.advice_about_python(error)
    if advice:
        print(f"estimator-emb: {advice}", file=sys.stderr)


@contextlib.contextmanager
def restored() -> Iterator[None]:
    """Restores `__main__`, sys.argv, sys.path and the paths of files at the end."""
    before = sys.modules["__main__"], list(sys.argv), list(sys.path)
    try:
        yield
    finally:
        sys.modules["__main__"], sys.argv[:], sys.path[:] = before
        file_paths.unmap_paths()


def _is_ours(file: str) -> bool:
    """Returns whether code in `file` only leads to the program."""
    return os.path.dirname(file) == os.path.dirname(__file__) or file in (
        "<frozen runpy>",
        runpy.__file__,
    )


def _set_first_path(directory: str) -> None:
    if not getattr(sys.flags, "safe_path", False):  # In that mode Python adds nothing.
        sys.path[0] = directory
