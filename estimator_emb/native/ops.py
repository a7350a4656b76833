"""Loads the native ops, the arithmetic that they call, and the rules of optimizers.

The arithmetic (kernels.cc) does not depend on TensorFlow. The ops (in the other .cc files) depend
on its release. A checkout and an sdist build both as a single library, on first use. A platform
wheel contains them, so that nothing is compiled on the user's machine. The wheel's folder
`prebuilt`, created by `.ci/build_wheel`, has these files:

    arithmetic.so       the kernels, and the rules of all optimizers of this package
    ops-<release>.so    the ops for one release of TensorFlow, e.g. 2.21
    made_from           a digest of the sources of these libraries, and the machine
"""

import ctypes
import dataclasses
import functools
import hashlib
import pathlib
import platform
from typing import Any

import tensorflow as tf

from estimator_emb.native import build, rules
from estimator_emb.native.build import Unit
from estimator_emb.optimizers import OptimizationParameters

PREBUILT = build.HERE / "prebuilt"
_TAKE, _REGISTER = "estimator_emb_take_kernels", "estimator_emb_register_rule"


@dataclasses.dataclass(frozen=True, eq=False)
class Library:
    """The loaded libraries. `register` takes a rule's name, its function and its AVX2 function."""

    ops: Any
    arithmetic: ctypes.CDLL
    register: Any

    def rule(self, parameters: OptimizationParameters, clipping_limit: float | None) -> rules.Rule:
        """Returns an optimizer's rule, registered with the ops. Builds the rule if not prebuilt."""
        rule = rules.trace(parameters, clipping_limit)
        _register(self, rule)
        return rule


@functools.cache
def _register(library: Library, rule: rules.Rule) -> None:
    loaded = library.arithmetic
    if not hasattr(loaded, f"{rule.name}_any"):
        units = build.arithmetic_units(rule.source, rule.name, build.x86())
        loaded = _open(build.library(rule.name, units, _symbols(rule.name)))
    library.register(rule.name.encode(), *_addresses(loaded, rule.name))


def _symbols(name: str) -> list[str]:
    return [f"{name}_any", *([f"{name}_avx2"] if build.x86() else [])]


def kernel_units(x86: bool) -> list[Unit]:
    """Returns the units that define `kernels_any` and, on x86, `kernels_avx2`."""
    return build.arithmetic_units(build.HERE / "kernels.cc", "kernels", x86)


def op_unit(flags: tuple[str, ...], x86: bool) -> Unit:
    """Returns the unit of the ops. `flags` are TensorFlow's compile flags without its folder."""
    # -O1 is enough, because the arithmetic is elsewhere.
    flags = ("-O1", *flags, *(["-DESTIMATOR_EMB_X86"] if x86 else []))
    sources = f'-DESTIMATOR_EMB_SOURCES="{build.sources()}"'
    return Unit(build.HERE / "all_ops.cc", (*flags, sources))


def units() -> list[Unit]:
    """Returns the units of the ops and kernels, for the TensorFlow and machine of this process."""
    flags = [flag for flag in tf.sysconfig.get_compile_flags() if not flag.startswith("-I")]
    return [op_unit(tuple(flags), build.x86()), *kernel_units(build.x86())]


def prebuilt_libraries() -> tuple[str, str] | None:
    """Returns the paths of the prebuilt arithmetic and ops for this machine, or None."""
    arithmetic, ops = PREBUILT / "arithmetic.so", prebuilt_ops(PREBUILT, tf.version.VERSION)
    made = PREBUILT / "made_from"
    there = not build.sanitizes() and all(file.is_file() for file in (arithmetic, ops, made))
    if there and made.read_text() == made_from(platform.machine()):
        return str(arithmetic), str(ops)
    return None


def prebuilt_ops(folder: pathlib.Path, tensorflow: str) -> pathlib.Path:
    """Returns the path of the ops for a version of TensorFlow such as '2.15.1'."""
    return folder / f"ops-{'.'.join(tensorflow.split('.')[:2])}.so"


def made_from(machine: str) -> str:
    """Returns the content of the file `made_from` for the present sources."""
    return f"{build.sources()} {machine}\n"


def load() -> Library:
    """Loads the prebuilt libraries, or builds them. Raises build.BuildError."""
    found = prebuilt_libraries()
    if found is None:
        symbols = [_TAKE, _REGISTER, *_symbols("kernels")]
        path = build.library("ops", units(), symbols, installed_tensorflow(), "native kernels")
        found = path, path
    return _load(*found)


@functools.cache
def installed_tensorflow() -> build.TensorFlow:
    """Returns the TensorFlow of this environment, with the content of its files as identity."""
    folder = pathlib.Path(tf.sysconfig.get_lib())
    link = [flag for flag in tf.sysconfig.get_link_flags() if not flag.startswith("-L")]
    return build.TensorFlow(folder, tensorflow_identity(folder), tuple(link))


def tensorflow_identity(folder: pathlib.Path) -> str:
    """Returns a digest of the headers and the library of the TensorFlow in a folder.

    The digest is of pip's record, which has the hash of each file. If these files do not have a
    single record, the folder and the version stand for their content.
    """
    ours = ("tensorflow/include/", "tensorflow/libtensorflow_framework.")
    records = [*folder.parent.glob("*tensorflow*.dist-info/RECORD")]
    records += folder.parent.glob("tf_nightly*.dist-info/RECORD")
    found = []
    for record in records:
        files = [line for line in record.read_text().splitlines() if line.startswith(ours)]
        if files:
            found.append(hashlib.sha256("\n".join(sorted(files)).encode()).hexdigest())
    if len(found) == 1:
        return found[0]
    return f"{folder} {tf.version.VERSION} {tf.version.GIT_VERSION}"


@functools.cache
def _load(arithmetic_path: str, ops_path: str) -> Library:
    try:
        # Loaded before ctypes opens it: TensorFlow finds only ops that register while it loads.
        ops = tf.load_op_library(ops_path)
    except tf.errors.OpError as error:
        raise build.BuildError(f"{ops_path} cannot be loaded: {error.message}") from error
    opened, arithmetic = _open(ops_path), _open(arithmetic_path)
    take = opened[_TAKE]
    take.argtypes = [ctypes.c_void_p, ctypes.c_void_p]
    take.restype = None
    take(*_addresses(arithmetic, "kernels"))
    register = opened[_REGISTER]
    register.argtypes = [ctypes.c_char_p, ctypes.c_void_p, ctypes.c_void_p]
    register.restype = None
    return Library(ops, arithmetic, register)


def _addresses(library: ctypes.CDLL, name: str) -> tuple[int, int | None]:
    """Returns the addresses of `<name>_any` and, on x86, `<name>_avx2`."""
    found = [ctypes.addressof(ctypes.c_char.in_dll(library, symbol)) for symbol in _symbols(name)]
    return found[0], found[1] if build.x86() else None


def _open(path: str) -> ctypes.CDLL:
    try:
        return ctypes.CDLL(path)
    except OSError as error:
        raise build.BuildError(f"{path} cannot be loaded: {error}") from error
