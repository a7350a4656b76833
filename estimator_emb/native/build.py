# SPDX-License-Identifier: Apache-2.0
"""Builds shared libraries with the machine's C++ compiler, once, and keeps them in a cache.

The cache is the directory that ESTIMATOR_EMB_CACHE names, else `estimator_emb` in XDG_CACHE_HOME or
~/.cache. A library's file name is a hash of all it was made from: sources, flags, compiler and
TensorFlow's version. Processes that need the same library wait for the one that builds it. A build
that failed is not tried again while the file that says so, beside the library's place, exists.
"""

import contextlib
import dataclasses
import hashlib
import logging
import os
import pathlib
import platform
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator, Sequence

import tensorflow as tf

from estimator_emb.native import cache
from estimator_emb.native.cache import BuildError

logger = logging.getLogger("estimator_emb")

HERE = pathlib.Path(__file__).parent

_COMPILERS = ("g++", "c++", "clang++")
_FLAGS = ("-std=c++17", "-O3", "-DNDEBUG", "-fPIC", "-fvisibility=hidden", "-w")
# Products and sums are rounded one by one, so that every instruction set gives the same numbers.
_NUMERIC = ("-fno-math-errno", "-fno-trapping-math", "-ffp-contract=off")
_SANITIZE = (
    "-fsanitize=address,undefined",
    # With these, g++ takes no function's address for a constant, as TensorFlow's headers need it.
    "-fno-sanitize=null,nonnull-attribute,returns-nonnull-attribute",
    "-fno-sanitize-recover=undefined",
    "-g",
    "-O1",
)
_TIMEOUT = 240.0  # Seconds for a build, which takes some 15.
_PROGRESS = 30.0  # Seconds between two lines about a build that takes longer.


class _Lasting(BuildError):
    """What would fail again in the same way."""


@dataclasses.dataclass(frozen=True)
class Unit:
    """One run of the compiler.

    Attributes:
      source: C++.
      flags: what it needs beyond the flags of every unit.
    """

    source: str
    flags: tuple[str, ...] = ()


def sanitizes() -> bool:
    """Returns whether libraries are built with sanitizers, which this process has loaded."""
    return os.environ.get("ESTIMATOR_EMB_NATIVE_SANITIZE") == "1"


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
    sanitize = _SANITIZE if sanitizes() else ()
    headers = "".join(header.read_text() for header in sorted(HERE.glob("*.h")))
    made_from = (
        units,
        link,
        sanitize,
        headers,
        _FLAGS,
        cache.SEAL,
        platform.machine(),
        tf.version.VERSION,
        _identity(compiler),
    )
    digest = hashlib.sha256(repr(made_from).encode()).hexdigest()[:24]
    directory = cache.directory()
    path = directory / f"{name}-{digest}.so"
    try:
        if cache.is_whole(path):
            cache.clean(directory)
            return str(path)
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        with cache.locked(directory, 2 * _TIMEOUT):
            if not cache.is_whole(path):  # Else another process was faster.
                _check_not_failed(path)
                with cache.scratch(directory) as scratch, _remembering(path):
                    _remove_damaged(path, scratch)
                    run = _Run(compiler, about, directory)
                    cache.put(_build(run, units, (*_FLAGS, *sanitize), link, scratch), path)
    except OSError as error:
        damaged = f"{path} is damaged, and " if os.path.lexists(path) else ""
        raise BuildError(
            f"{damaged}the cache {directory} cannot be written ({error.strerror})"
        ) from error
    return str(path)


def _failed(path: pathlib.Path) -> pathlib.Path:
    return path.with_suffix(".failed")


def _check_not_failed(path: pathlib.Path) -> None:
    try:
        reason = _failed(path).read_text(errors="replace").strip()
    except FileNotFoundError:
        return
    if reason:
        raise BuildError(reason)


@contextlib.contextmanager
def _remembering(path: pathlib.Path) -> Iterator[None]:
    """Leaves word of a build that would fail again, for the next start."""
    try:
        yield
    except _Lasting as error:
        reason = f"{error} (not tried again while {_failed(path)} exists)"
        _failed(path).write_text(reason + "\n")
        raise BuildError(reason) from None


def _remove_damaged(path: pathlib.Path, scratch: pathlib.Path) -> None:
    """Moves what stands in the place of a library to where it is removed, whatever it is."""
    if os.path.lexists(path):
        logger.warning("%s is damaged: it is built again.", path)
        os.rename(path, scratch / "damaged")


def _compiler() -> str:
    for name in _COMPILERS:
        found = shutil.which(name)
        if found:
            return found
    raise BuildError(f"there is no C++ compiler ({', '.join(_COMPILERS)}) on PATH")


def _identity(compiler: str) -> tuple[str, int, int]:
    """Changes with the compiler; asking it for its version would take longer."""
    real = os.path.realpath(compiler)
    try:
        status = os.stat(real)
    except OSError as error:
        raise BuildError(f"{compiler} cannot be read ({error.strerror})") from error
    return real, status.st_size, int(status.st_mtime)


@dataclasses.dataclass
class _Run:
    """A build under way.

    Attributes:
      compiler: its path.
      about: see `library`.
      directory: for the log.
    """

    compiler: str
    about: str
    directory: pathlib.Path

    def __post_init__(self) -> None:
        if self.about:
            logger.info(
                "Building %s with %s, once, into %s: some 15 s.",
                self.about,
                self.compiler,
                self.directory,
            )
        self.started = time.monotonic()
        self._next_line = _PROGRESS

    @property
    def seconds(self) -> float:
        return time.monotonic() - self.started

    def done(self) -> None:
        if self.about:
            logger.info("Built %s in %.1f s.", self.about, self.seconds)

    def start(self, arguments: Sequence[str]) -> subprocess.Popen:
        """Runs the compiler in a process group of its own, with all that it starts."""
        environment = dict(os.environ)
        if sanitizes():
            environment.pop("LD_PRELOAD", None)  # Of this process: they would watch the compiler.
        try:
            return subprocess.Popen(
                [self.compiler, *arguments],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                env=environment,
                start_new_session=True,
            )
        except OSError as error:
            raise BuildError(f"{self.compiler} cannot be run ({error.strerror})") from error

    def finish(self, process: subprocess.Popen, made: pathlib.Path) -> None:
        """Waits for the compiler, which must have made something."""
        errors = self._wait(process).decode(errors="replace")
        lines = errors.strip().splitlines()
        first = next((line for line in lines if "error" in line), lines[-1] if lines else "")
        reason = f"the compiler failed with code {process.returncode}: {first.strip()}"
        if process.returncode < 0 or "Killed" in errors or "No space left" in errors:
            raise BuildError(reason)  # Of this machine at this time.
        if process.returncode:
            raise _Lasting(reason)
        if not made.is_file() or not made.stat().st_size:
            raise _Lasting(f"{self.compiler} reports success, but made no {made.suffix} file")

    def _wait(self, process: subprocess.Popen) -> bytes:
        while True:
            left = min(self._next_line, _TIMEOUT) - self.seconds
            try:
                return process.communicate(timeout=max(left, 0.01))[1]
            except subprocess.TimeoutExpired:
                if self.seconds >= _TIMEOUT:
                    raise _Lasting(f"the compiler took more than {_TIMEOUT:.0f} s") from None
                if self.seconds >= self._next_line:
                    self._next_line += _PROGRESS
                    logger.info(
                        "%s is still at work after %.0f s, of %.0f at most. ESTIMATOR_EMB_NATIVE=0 "
                        "does without it.",
                        self.compiler,
                        self.seconds,
                        _TIMEOUT,
                    )


def _build(
    run: _Run,
    units: Sequence[Unit],
    flags: Sequence[str],
    link: Sequence[str],
    scratch: pathlib.Path,
) -> pathlib.Path:
    running: list[tuple[pathlib.Path, subprocess.Popen]] = []
    library_path = scratch / "library.so"
    sanitizers = [flag for flag in flags if flag.startswith(("-fsanitize", "-fno-sanitize"))]
    try:
        for number, unit in enumerate(units):
            source, made = scratch / f"{number}.cc", scratch / f"{number}.o"
            source.write_text(unit.source)
            # A sanitizer's -O1 comes last and wins.
            arguments = [*unit.flags, *flags, f"-I{HERE}", "-c", str(source), "-o", str(made)]
            running.append((made, run.start(arguments)))
        for made, process in running:
            run.finish(process, made)
        objects = [str(made) for made, _ in running]
        linking = run.start(["-shared", *sanitizers, *objects, *link, "-o", str(library_path)])
        running.append((library_path, linking))
        run.finish(linking, library_path)
    finally:
        for _, process in running:
            _end(process)
    run.done()
    return library_path


def _end(process: subprocess.Popen) -> None:
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    if process.stderr:
        process.stderr.close()
