# SPDX-License-Identifier: Apache-2.0
"""Builds shared libraries with the machine's C++ compiler, once, and keeps them in a cache.

The file name of a library contains a hash of its sources, flags, compiler and TensorFlow version.
Processes that need the same library wait for the one that builds it. A failed build leaves a file
that says why, and is not tried again while that file exists.
"""

import contextlib
import dataclasses
import hashlib
import os
import pathlib
import platform
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence

import tensorflow as tf

from estimator_emb.messages.console import logger
from estimator_emb.names import environment
from estimator_emb.native import cache
from estimator_emb.native.cache import BuildError

HERE = pathlib.Path(__file__).parent

_COMPILERS = ("g++", "c++", "clang++")
_FLAGS = ("-std=c++17", "-DNDEBUG", "-fPIC", "-fvisibility=hidden", "-w")
# Products and sums are rounded one by one, so that every instruction set gives the same numbers.
_NUMERIC = ("-O3", "-fno-math-errno", "-fno-trapping-math", "-ffp-contract=off")
_SANITIZE = (
    "-fsanitize=address,undefined",
    # With these, g++ would not accept the address of a function as a constant in TensorFlow's
    # headers.
    "-fno-sanitize=null,nonnull-attribute,returns-nonnull-attribute",
    "-fno-sanitize-recover=undefined",
    "-g",
    "-O1",
)
_TIMEOUT = 240.0  # Seconds; a build usually takes 15.
_PROGRESS = 30.0  # Seconds between two log lines.
_AT_ONCE = 8  # Compilers in parallel.


class _Lasting(BuildError):
    """A build that would fail again in the same way."""


@dataclasses.dataclass(frozen=True)
class Unit:
    """A C++ translation unit, and its flags besides those of every unit."""

    source: str
    flags: tuple[str, ...] = ()


def sanitizes() -> bool:
    """Returns whether to build with sanitizers, which this process must have loaded."""
    return environment.NATIVE_SANITIZE.value() == "1"


def x86() -> bool:
    """Returns whether this machine may have AVX2."""
    return platform.machine().lower() in ("x86_64", "amd64")


def arithmetic_units(source: str, name: str, x86: bool) -> list[Unit]:
    """Returns the units of `<name>_any` and, on x86, `<name>_avx2`: ESTIMATOR_EMB_NAME there."""
    units = [Unit(source, (*_NUMERIC, f"-DESTIMATOR_EMB_NAME={name}_any"))]
    if x86:
        units.append(Unit(source, ("-mavx2", *_NUMERIC, f"-DESTIMATOR_EMB_NAME={name}_avx2")))
    return units


def read_source(name: str) -> str:
    """Returns the content of a source file of this folder."""
    return (HERE / name).read_text()


def sources() -> str:
    """Returns a digest of all C++ sources of this folder."""
    files = sorted((*HERE.glob("*.h"), *HERE.glob("*.cc")))
    return hashlib.sha256("".join(file.read_text() for file in files).encode()).hexdigest()[:24]


def library(
    name: str,
    units: Sequence[Unit],
    symbols: Sequence[str] = (),
    link: Sequence[str] = (),
    about: str = "",
) -> str:
    """Returns the path of the library made from `units`, which is built if no sound one is cached.

    A cached one must have `symbols`. `about` is its name in the log. Raises BuildError.
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
    flaw = ""
    try:
        cache.check_folder(directory)
        flaw = cache.flaw(path, symbols)
        if not flaw:
            cache.clean(directory)
            return str(path)
        with cache.locked(directory, 2 * _TIMEOUT):
            flaw = cache.flaw(path, symbols)
            if flaw:  # Else another process has built it meanwhile.
                _check_not_failed(path)
                with _remembering(path, directory) as scratch:
                    _remove_damaged(path, flaw, scratch)
                    run = _Run(compiler, about, directory)
                    objects = _compiled(run, units, (*_FLAGS, *sanitize), scratch)
                    built = _linked(run, objects, (*sanitize, *link), scratch)
                    run.done()
                    cache.put(built, path)
    except OSError as error:
        damaged = f"{path} {flaw}, and " if flaw and os.path.lexists(path) else ""
        raise BuildError(
            f"{damaged}the cache {directory} cannot be written ({error.strerror}); set "
            "ESTIMATOR_EMB_CACHE to another folder"
        ) from error
    return str(path)


def compile_to(
    path: pathlib.Path,
    units: Sequence[Unit],
    link: Sequence[str] = (),
    compiler: str | None = None,
) -> None:
    """Builds a shared library at `path` without the cache, perhaps by a cross compiler."""
    compiler, objects = compiler or _compiler(), []
    with tempfile.TemporaryDirectory() as name:
        scratch = pathlib.Path(name)
        for first in range(0, len(units), _AT_ONCE):
            folder = scratch / str(first)
            folder.mkdir()
            some = units[first : first + _AT_ONCE]
            objects += _compiled(_Run(compiler, "", path.parent), some, _FLAGS, folder)
        shutil.copyfile(_linked(_Run(compiler, "", path.parent), objects, link, scratch), path)


def _failed(path: pathlib.Path) -> pathlib.Path:
    return path.with_suffix(".failed")


def _check_not_failed(path: pathlib.Path) -> None:
    try:
        reason = cache.read_safely(_failed(path)).decode(errors="replace").strip()
    except (FileNotFoundError, cache.UnsafeError):
        return
    if reason:
        raise BuildError(reason)


@contextlib.contextmanager
def _remembering(path: pathlib.Path, folder: pathlib.Path) -> Iterator[pathlib.Path]:
    """Makes a temporary folder for a build of `path`, and keeps the reason if it fails."""
    with tempfile.TemporaryDirectory(prefix=cache.SCRATCH, dir=folder) as name:
        scratch = pathlib.Path(name)
        try:
            yield scratch
        except _Lasting as error:
            reason = f"{error} (not tried again while {_failed(path)} exists)"
            (scratch / "failed").write_text(reason + "\n")
            cache.put_as_it_is(scratch / "failed", _failed(path))
            raise BuildError(reason) from None


def _remove_damaged(path: pathlib.Path, flaw: str, scratch: pathlib.Path) -> None:
    if os.path.lexists(path):
        logger.warning("%s %s: it is built again.", path, flaw)
        os.rename(path, scratch / "damaged")


def _compiler() -> str:
    for name in _COMPILERS:
        path = shutil.which(name)
        if path:
            return path
    raise BuildError(
        f"there is no C++ compiler ({', '.join(_COMPILERS)}) on PATH; install one, or a wheel that "
        "brings the kernels"
    )


def _identity(compiler: str) -> tuple[str, int, int]:
    """Returns what changes with the compiler: its version would take longer to find out."""
    real = os.path.realpath(compiler)
    try:
        status = os.stat(real)
    except OSError as error:
        raise BuildError(f"{compiler} cannot be read ({error.strerror})") from error
    return real, status.st_size, int(status.st_mtime)


@dataclasses.dataclass
class _Run:
    compiler: str
    about: str
    directory: pathlib.Path

    def __post_init__(self) -> None:
        if self.about:
            logger.info(
                "Building %s with %s, once, into %s: this takes some 15 s.",
                self.about,
                self.compiler,
                self.directory,
            )
        self._started = time.monotonic()

    def _seconds(self) -> float:
        return time.monotonic() - self._started

    def done(self) -> None:
        if self.about:
            logger.info("Built %s in %.1f s.", self.about, self._seconds())

    def start(self, arguments: Sequence[str]) -> subprocess.Popen:
        """Starts the compiler in its own process group, so that its children can be killed too."""
        environment = dict(os.environ)
        if sanitizes():
            environment.pop("LD_PRELOAD", None)  # It would load the sanitizers into the compiler.
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

    def finish(self, process: subprocess.Popen, output: pathlib.Path) -> None:
        errors = self._wait(process).decode(errors="replace")
        lines = errors.strip().splitlines()
        first = next((line for line in lines if "error" in line), lines[-1] if lines else "")
        reason = f"the compiler failed with code {process.returncode}: {first.strip()}"
        if process.returncode < 0 or "Killed" in errors or "No space left" in errors:
            raise BuildError(reason)  # Another attempt may succeed.
        if process.returncode:
            raise _Lasting(reason)
        if not output.is_file() or not output.stat().st_size:
            raise _Lasting(f"{self.compiler} reports success, but made no {output.suffix} file")

    def _wait(self, process: subprocess.Popen) -> bytes:
        limit = max(_TIMEOUT, self._seconds() + _PROGRESS)  # A link may begin late.
        while (left := limit - self._seconds()) > 0:
            with contextlib.suppress(subprocess.TimeoutExpired):
                return process.communicate(timeout=min(_PROGRESS, left))[1]
            if left > _PROGRESS:
                logger.info(
                    "%s is still at work after %.0f s, of %.0f at most. ESTIMATOR_EMB_NATIVE=0 "
                    "trains without the kernels.",
                    self.compiler,
                    self._seconds(),
                    _TIMEOUT,
                )
        raise _Lasting(f"the compiler took more than {_TIMEOUT:.0f} s")


def _compiled(
    run: _Run, units: Sequence[Unit], flags: Sequence[str], scratch: pathlib.Path
) -> list[pathlib.Path]:
    running: list[tuple[pathlib.Path, subprocess.Popen]] = []
    try:
        for number, unit in enumerate(units):
            source, output = scratch / f"{number}.cc", scratch / f"{number}.o"
            source.write_text(unit.source)
            # The last -O counts, so that of the sanitizers comes last.
            arguments = [*unit.flags, *flags, f"-I{HERE}", "-c", str(source), "-o", str(output)]
            running.append((output, run.start(arguments)))
        for output, process in running:
            run.finish(process, output)
        return [output for output, _ in running]
    finally:
        for _, process in running:
            _end(process)


def _linked(
    run: _Run, objects: Sequence[pathlib.Path], flags: Sequence[str], scratch: pathlib.Path
) -> pathlib.Path:
    path = scratch / "library.so"
    linking = run.start(["-shared", *map(str, objects), *flags, "-o", str(path)])
    try:
        run.finish(linking, path)
        return path
    finally:
        _end(linking)


def _end(process: subprocess.Popen) -> None:
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    if process.stderr:
        process.stderr.close()
