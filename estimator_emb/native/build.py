# SPDX-License-Identifier: Apache-2.0
"""Builds shared libraries with the machine's C++ compiler, once, and keeps them in a cache.

The cache is the directory that ESTIMATOR_EMB_CACHE names, else `estimator_emb` in XDG_CACHE_HOME or
~/.cache. A library's file name is a hash of all it was made from: sources, flags, compiler and
TensorFlow's version. Processes that need the same library wait for the one that builds it.
"""

import contextlib
import dataclasses
import fcntl
import hashlib
import logging
import os
import pathlib
import platform
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence

import tensorflow as tf

logger = logging.getLogger("estimator_emb")

HERE = pathlib.Path(__file__).parent

_COMPILERS = ("g++", "c++", "clang++")
_FLAGS = ("-std=c++17", "-O3", "-DNDEBUG", "-fPIC", "-fvisibility=hidden", "-w")
# Products and sums are rounded one by one, so that every instruction set gives the same numbers.
_NUMERIC = ("-fno-math-errno", "-fno-trapping-math", "-ffp-contract=off")
_SANITIZE = ("-fsanitize=address,undefined", "-fno-sanitize-recover=undefined", "-g", "-O1")
_TIMEOUT = 600  # Seconds for one run of the compiler.


class BuildError(Exception):
    """No library can be had; the message says why, in one line."""


@dataclasses.dataclass(frozen=True)
class Unit:
    """One run of the compiler.

    Attributes:
      source: C++.
      flags: what it needs beyond the flags of every unit.
    """

    source: str
    flags: tuple[str, ...] = ()


def x86() -> bool:
    """Whether this machine may have AVX2."""
    return platform.machine().lower() in ("x86_64", "amd64")


def avx2(unit: str, *flags: str) -> Unit:
    """A unit of arithmetic for processors with AVX2."""
    return Unit(unit, ("-mavx2", *_NUMERIC, *flags))


def numeric(unit: str, *flags: str) -> Unit:
    """A unit of arithmetic for any machine of this architecture."""
    return Unit(unit, (*_NUMERIC, *flags))


def read(name: str) -> str:
    """A source file of this folder."""
    return (HERE / name).read_text()


def cache_directory() -> pathlib.Path:
    """Where built kernels are kept."""
    own = os.environ.get("ESTIMATOR_EMB_CACHE")
    if own:
        return pathlib.Path(own)
    base = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    return pathlib.Path(base) / "estimator_emb"


def library(name: str, units: Sequence[Unit], link: Sequence[str] = (), about: str = "") -> str:
    """The path of the shared library made from `units`; builds it if the cache has it not.

    Args:
      name: begins the file's name.
      units: what is compiled, in parallel.
      link: flags of the linker.
      about: what is built, for the log; nothing is logged without.

    Raises:
      BuildError: there is no compiler, the cache cannot be written, or the compiler failed.
    """
    compiler = _compiler()
    sanitize = _SANITIZE if os.environ.get("ESTIMATOR_EMB_NATIVE_SANITIZE") == "1" else ()
    headers = "".join(header.read_text() for header in sorted(HERE.glob("*.h")))
    made_from = (units, link, sanitize, headers, _FLAGS, tf.version.VERSION, _identity(compiler))
    digest = hashlib.sha256(repr(made_from).encode()).hexdigest()[:24]
    directory = cache_directory()
    path = directory / f"{name}-{digest}.so"
    if path.exists():
        return str(path)
    try:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        with _lock(directory / "lock"):
            if path.exists():  # Another process was faster.
                return str(path)
            if about:
                logger.info(
                    "Building %s with %s, once, into %s: some 15 s.", about, compiler, directory
                )
            started = time.monotonic()
            with tempfile.TemporaryDirectory(dir=directory) as scratch:
                built = _build(compiler, units, (*_FLAGS, *sanitize), link, pathlib.Path(scratch))
                os.replace(built, path)
            if about:
                logger.info("Built %s in %.1f s.", about, time.monotonic() - started)
    except OSError as error:
        raise BuildError(f"the cache {directory} cannot be written ({error.strerror})") from error
    return str(path)


def _compiler() -> str:
    for name in _COMPILERS:
        found = shutil.which(name)
        if found:
            return found
    raise BuildError(f"there is no C++ compiler ({', '.join(_COMPILERS)}) on PATH")


def _identity(compiler: str) -> tuple[str, int, int]:
    """Changes with the compiler; asking it for its version would take longer."""
    real = os.path.realpath(compiler)
    status = os.stat(real)
    return real, status.st_size, int(status.st_mtime)


@contextlib.contextmanager
def _lock(path: pathlib.Path) -> Iterator[None]:
    with open(path, "w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _build(
    compiler: str,
    units: Sequence[Unit],
    flags: Sequence[str],
    link: Sequence[str],
    scratch: pathlib.Path,
) -> pathlib.Path:
    running = []
    for number, unit in enumerate(units):
        source, made = scratch / f"{number}.cc", scratch / f"{number}.o"
        source.write_text(unit.source)
        # A sanitizer's -O1 comes last and wins.
        arguments = [*unit.flags, *flags, f"-I{HERE}", "-c", str(source), "-o", str(made)]
        running.append((made, _start([compiler, *arguments])))
    objects = []
    try:
        for made, process in running:
            _finish(process)
            objects.append(str(made))
    finally:
        for _, process in running:
            process.kill()
            process.wait()
    library_path = scratch / "library.so"
    sanitizers = [flag for flag in flags if flag.startswith("-fsanitize")]
    _finish(
        _start([compiler, "-shared", *sanitizers, *objects, *link, "-o", str(library_path)])
    )
    return library_path


def _start(command: list[str]) -> subprocess.Popen:
    return subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
    )


def _finish(process: subprocess.Popen) -> None:
    try:
        _, errors = process.communicate(timeout=_TIMEOUT)
    except subprocess.TimeoutExpired:
        raise BuildError(f"the compiler took more than {_TIMEOUT} s") from None
    if process.returncode:
        lines = errors.decode(errors="replace").strip().splitlines()
        reason = next((line for line in lines if "error" in line), lines[-1] if lines else "")
        raise BuildError(f"the compiler failed with code {process.returncode}: {reason.strip()}")
