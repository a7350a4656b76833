"""Builds shared libraries with the machine's C++ compiler, once, and keeps them in a cache.

The file name of a library contains a digest of its sources, flags, machine and TensorFlow build,
and a digest of its compiler. Neither these digests nor the library depend on the folder of the
Python environment, so environments share libraries. An environment without a compiler takes a
library of any compiler. Processes that need a library wait for the process that builds it. A failed
build leaves a file that says why, and is not tried again while that file exists.
"""

import contextlib
import dataclasses
import functools
import hashlib
import os
import pathlib
import platform
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence

from estimator_emb.catalog import environment
from estimator_emb.native import cache
from estimator_emb.native.cache import BuildError
from estimator_emb.reporting.console import logger

HERE = pathlib.Path(__file__).parent

_COMPILERS = ("g++", "c++", "clang++")
_FLAGS = ("-std=c++17", "-DNDEBUG", "-fPIC", "-fvisibility=hidden")
# Some names are deprecated in the newest TensorFlow, but the oldest has no others.
_WARNINGS = ("-Wall", "-Wextra", "-Wno-deprecated-declarations")
# Products and sums are rounded separately, so that every instruction set gives the same numbers.
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
_NO_COMPILER = (
    f"there is no C++ compiler ({', '.join(_COMPILERS)}) on PATH; install one, or a wheel that "
    "contains the kernels"
)
_TIMEOUT = 240.0  # Seconds. A build usually takes 15.
_PROGRESS = 30.0  # Seconds between two log lines.
_AT_ONCE = 8  # Compilers in parallel.


class _Lasting(BuildError):
    """Raised if a build would fail again in the same way."""


@dataclasses.dataclass(frozen=True)
class Unit:
    """A C++ translation unit: a file or generated text, with flags that other units do not have."""

    source: pathlib.Path | str
    flags: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True)
class TensorFlow:
    """A TensorFlow that a library is built for: its folder, and an `identity` of its build."""

    folder: pathlib.Path
    identity: str
    link: tuple[str, ...]


def compile_flags(unit: Unit, tensorflow: TensorFlow | None = None) -> list[str]:
    """Returns the compiler's arguments for a unit, without its source and its output."""
    flags = [*unit.flags, *_FLAGS, *_WARNINGS, f"-I{HERE}"]
    flags.append(f"-ffile-prefix-map={HERE}=estimator_emb/native")
    if tensorflow:
        include = tensorflow.folder / "include"
        flags += ["-isystem", str(include), f"-ffile-prefix-map={include}=tensorflow/include"]
    return flags


def sanitizes() -> bool:
    """Returns whether to build with sanitizers, which this process must have loaded."""
    return environment.NATIVE_SANITIZE.value() == "1"


def x86() -> bool:
    """Returns whether this machine may have AVX2."""
    return platform.machine().lower() in ("x86_64", "amd64")


def arithmetic_units(source: pathlib.Path | str, name: str, x86: bool) -> list[Unit]:
    """Returns the units that define `<name>_any` and, on x86, `<name>_avx2` from a source."""
    units = [Unit(source, (*_NUMERIC, f"-DESTIMATOR_EMB_NAME={name}_any"))]
    if x86:
        units.append(Unit(source, ("-mavx2", *_NUMERIC, f"-DESTIMATOR_EMB_NAME={name}_avx2")))
    return units


def sources() -> str:
    """Returns a digest of all C++ sources of this folder."""
    files = sorted((*HERE.glob("*.h"), *HERE.glob("*.cc")))
    return hashlib.sha256("".join(file.read_text() for file in files).encode()).hexdigest()[:24]


def library(
    name: str,
    units: Sequence[Unit],
    symbols: Sequence[str] = (),
    tensorflow: TensorFlow | None = None,
    about: str = "",
) -> str:
    """Returns the path of the library made from `units`. Builds it if the cache has no sound copy.

    A cached library must have `symbols`. `about` is its name in the log. Raises BuildError.
    """
    sanitize = _SANITIZE if sanitizes() else ()
    made_from = (
        [(getattr(unit.source, "name", unit.source), unit.flags) for unit in units],
        sources(),
        (tensorflow.identity, tensorflow.link) if tensorflow else None,
        sanitize,
        _FLAGS,
        cache.SEAL,
        platform.machine(),
    )
    stem = f"{name}-{_digest(made_from)}"
    directory, flaw = cache.directory() / "kernels", ""
    compiler = _compiler()
    if compiler is None and not directory.is_dir():
        raise BuildError(_NO_COMPILER)
    try:
        cache.private("kernels")
        if compiler is None:
            return _library_in_cache(directory, stem, symbols)
        path = directory / f"{stem}-{_digest(_identity(compiler))}.so"
        flaw = cache.flaw(path, symbols)
        if not flaw:
            return str(path)
        with cache.locked(directory, 2 * _TIMEOUT):
            flaw = cache.flaw(path, symbols)
            if flaw:  # Else another process has built it meanwhile.
                made = functools.partial(_made, about, compiler, units, sanitize, tensorflow)
                _put(path, flaw, made)
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
    tensorflow: TensorFlow | None = None,
    compiler: str | None = None,
) -> None:
    """Builds a shared library at `path` without the cache, optionally by a cross compiler."""
    compiler = compiler or _compiler()
    if compiler is None:
        raise BuildError(_NO_COMPILER)
    with tempfile.TemporaryDirectory() as name:
        shutil.copyfile(_made("", compiler, units, (), tensorflow, pathlib.Path(name)), path)


def _digest(made_from: object) -> str:
    return hashlib.sha256(repr(made_from).encode()).hexdigest()[:24]


def _library_in_cache(directory: pathlib.Path, stem: str, symbols: Sequence[str]) -> str:
    """Returns the path of a sound library. Raises BuildError if the cache does not have it."""
    for path in sorted(directory.glob(f"{stem}-*.so")):
        if not cache.flaw(path, symbols):
            return str(path)
    raise BuildError(_NO_COMPILER)


def _put(path: pathlib.Path, flaw: str, made: Callable[[pathlib.Path], pathlib.Path]) -> None:
    """Moves the library that `made` builds to `path`, or keeps the reason if the build fails."""
    failed = path.with_suffix(".failed")
    with contextlib.suppress(FileNotFoundError):
        if reason := failed.read_text(errors="replace").strip():
            raise BuildError(reason)
    with tempfile.TemporaryDirectory(prefix=cache.SCRATCH, dir=path.parent) as name:
        scratch = pathlib.Path(name)
        if os.path.lexists(path):
            logger.warning("%s %s: rebuilding it.", path, flaw)
            os.rename(path, scratch / "damaged")
        try:
            cache.put(made(scratch), path)
        except _Lasting as error:
            reason = f"{error} (not tried again while {failed} exists)"
            failed.write_text(reason + "\n")
            raise BuildError(reason) from None


def _compiler() -> str | None:
    return next(filter(None, map(shutil.which, _COMPILERS)), None)


def _identity(compiler: str) -> tuple[str, int, int]:
    """Returns what changes with the compiler. Asking for its version would take longer."""
    real = os.path.realpath(compiler)
    try:
        status = os.stat(real)
    except OSError as error:
        raise BuildError(f"{compiler} cannot be read ({error.strerror})") from error
    return real, status.st_size, int(status.st_mtime)


def _made(
    about: str,
    compiler: str,
    units: Sequence[Unit],
    flags: Sequence[str],
    tensorflow: TensorFlow | None,
    scratch: pathlib.Path,
) -> pathlib.Path:
    """Compiles units with additional `flags`, links them, and returns the library.

    The library contains no path of this machine, so that it is the same wherever it was built.
    """
    started = time.monotonic()
    if about:
        text = "Building %s once, with %s, into %s. This takes about 15 s."
        logger.info(text, about, compiler, scratch.parent)
    objects = [scratch / f"{number}.o" for number in range(len(units))]
    for first in range(0, len(units), _AT_ONCE):
        commands = {}
        for made, unit in list(zip(objects, units, strict=True))[first : first + _AT_ONCE]:
            source = unit.source
            if isinstance(source, str):
                text, source = source, made.with_suffix(".cc")
                source.write_text(text)
            # The last -O counts, so the sanitizers' flags come last.
            command = [*compile_flags(unit, tensorflow), f"-ffile-prefix-map={scratch}=.", *flags]
            commands[made] = [*command, "-c", str(source)]
        _run_all(compiler, commands)
    library = scratch / "library.so"
    link = [f"-L{tensorflow.folder}", *tensorflow.link] if tensorflow else []
    _run_all(compiler, {library: ["-shared", *map(str, objects), *flags, *link]})
    if about:
        logger.info("Built %s in %.1f s.", about, time.monotonic() - started)
    return library


def _run_all(compiler: str, commands: Mapping[pathlib.Path, Sequence[str]]) -> None:
    """Runs a compiler process for each output file, in parallel, with the given arguments."""
    started = time.monotonic()
    running: dict[pathlib.Path, subprocess.Popen] = {}
    try:
        for made, arguments in commands.items():
            running[made] = _start([compiler, *arguments, "-o", str(made)])
        for made, process in running.items():
            errors = _errors_of(process, compiler, started).decode(errors="replace")
            lines = errors.strip().splitlines()
            first = next((line for line in lines if "error:" in line), lines[-1] if lines else "")
            reason = f"the compiler failed with code {process.returncode}: {first.strip()}"
            if process.returncode < 0 or "Killed" in errors or "No space left" in errors:
                raise BuildError(reason)  # Another attempt may succeed.
            if process.returncode:
                raise _Lasting(reason)
            if not made.is_file() or not made.stat().st_size:
                raise _Lasting(f"{compiler} reports success, but made no {made.suffix} file")
    finally:
        for process in running.values():
            with process:
                if process.poll() is None:
                    os.killpg(process.pid, signal.SIGKILL)


def _start(command: Sequence[str]) -> subprocess.Popen:
    """Starts the compiler in its own process group, so that its children can be killed too."""
    environment = dict(os.environ)
    if sanitizes():
        environment.pop("LD_PRELOAD", None)  # It would load the sanitizers into the compiler.
    try:
        return subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            env=environment,
            start_new_session=True,
        )
    except OSError as error:
        raise BuildError(f"{command[0]} cannot be run ({error.strerror})") from error


def _errors_of(process: subprocess.Popen, compiler: str, started: float) -> bytes:
    """Waits for the compiler until `_TIMEOUT` after `started`. Returns its error output."""
    while (left := started + _TIMEOUT - time.monotonic()) > 0:
        with contextlib.suppress(subprocess.TimeoutExpired):
            return process.communicate(timeout=min(_PROGRESS, left))[1]
        if left > _PROGRESS:
            logger.info(
                "%s is still running after %.0f s (limit: %.0f s). ESTIMATOR_EMB_NATIVE=0 trains "
                "without the kernels.",
                compiler,
                time.monotonic() - started,
                _TIMEOUT,
            )
    raise _Lasting(f"the compiler took more than {_TIMEOUT:.0f} s")
