#!/usr/bin/env python3
"""Builds a wheel with prebuilt native kernels, so that nothing is compiled where it is installed.

    python3 .ci/build_wheel.py FOLDER [--machine MACHINE] [--tensorflow VERSION ...]

The wheel contains the committed files. It is for Linux and any Python, on machines like this one or
as --machine says: x86_64 or aarch64. It has a library of ops for each given release of TensorFlow,
by default all supported releases, and a library of arithmetic with the rules of all optimizers.
With another release, or for an optimizer that a program defines, missing kernels are compiled on
first use, as without this wheel.

Headers come from TensorFlow's own wheels. Everything else is installed into a temporary
environment. A C++ compiler must be installed. For another machine than this one, install the cross
compiler, in Debian from g++-aarch64-linux-gnu or g++-x86-64-linux-gnu.
"""

import argparse
import inspect
import itertools
import os
import pathlib
import platform
import re
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterator, Sequence

REPOSITORY = pathlib.Path(__file__).resolve().parent.parent
RELEASES = ("2.15.1", "2.16.2", "2.17.1", "2.18.1", "2.19.1", "2.20.0", "2.21.0")
# Any Python will do, but the oldest TensorFlow has no wheel for the newest Python.
HEADERS_OF_PYTHON = "3.11"
MACHINES = ("x86_64", "aarch64")
# The oldest and the newest glibc, 2.x, in the tags of TensorFlow's wheels.
OLDEST_LIBRARY, NEWEST_LIBRARY = 17, 40
# The wheel's tag allows no newer symbols. RHEL 8, Debian 10 and Ubuntu 20.04 have these.
POLICY = "manylinux_2_28"
NEWEST_SYMBOLS = {"GLIBC": (2, 28), "GLIBCXX": (3, 4, 25), "CXXABI": (1, 3, 11), "GCC": (8,)}
# Newer headers use these two symbols of newer libraries, so the wheel's libraries define them.
OWN_SYMBOLS = """
#include <new>
#define OWN __attribute__((visibility("hidden")))
extern "C" OWN char __libc_single_threaded = 0;
OWN void throw_bad_array_new_length() asm("_ZSt28__throw_bad_array_new_lengthv");
void throw_bad_array_new_length() { throw std::bad_array_new_length(); }
"""
# Of all supported TensorFlow releases, without the path of the headers and of the library.
TENSORFLOW_FLAGS = ("-D_GLIBCXX_USE_CXX11_ABI=1", "--std=c++17", "-DEIGEN_MAX_ALIGN_BYTES=64")
TENSORFLOW_LINK = ("-l:libtensorflow_framework.so.2",)
# Here the wheel named tensorflow is empty, and depends on this distribution.
DISTRIBUTIONS = {("2.15.1", "aarch64"): "tensorflow-cpu-aws"}


def run(*command: object, **kwargs: object) -> str:
    """Runs a command, and returns its output."""
    texts = [str(one) for one in command]
    return subprocess.run(texts, check=True, stdout=subprocess.PIPE, text=True, **kwargs).stdout


def cross_compiler(machine: str) -> str | None:
    """Returns the path of the cross compiler for `machine`, or None if it is this machine.

    Raises:
      FileNotFoundError: the cross compiler is not installed.
    """
    if machine == platform.machine():
        return None
    name = f"{machine}-linux-gnu-g++"
    path = shutil.which(name)
    if path is None:
        package = f"g++-{machine.replace('_', '-')}-linux-gnu"
        raise FileNotFoundError(
            f"a wheel for {machine} made on {platform.machine()} needs the cross compiler {name}, "
            f"which is not on PATH; in Debian and Ubuntu, install {package}"
        )
    return path


def make(folder: pathlib.Path, releases: Sequence[str], machine: str) -> None:
    """Builds the wheel, in a temporary environment."""
    with tempfile.TemporaryDirectory() as name:
        work = pathlib.Path(name)
        source, python = work / "source", work / "env" / "bin" / "python"
        run("git", "clone", "--quiet", REPOSITORY, source)
        run(sys.executable, "-m", "venv", work / "env")
        run(python, "-m", "pip", "install", "--quiet", f"{source}[tensorflow]", "build", "wheel")
        built = source / "estimator_emb" / "native" / "prebuilt"
        asked = [*releases, "--machine", machine]
        # In another folder, because Python looks for packages where it is started.
        run(python, source / ".ci" / "build_wheel.py", built, "--compile", *asked, cwd=work)
        run(python, "-m", "build", "--wheel", "--outdir", work / "dist", source, cwd=work)
        (wheel,) = (work / "dist").glob("*.whl")
        tags = ["--platform-tag", platform_of(built, machine), "--remove", wheel]
        run(python, "-m", "wheel", "tags", *tags, cwd=work)
        (wheel,) = (work / "dist").glob("*.whl")
        folder.mkdir(parents=True, exist_ok=True)
        (folder / wheel.name).write_bytes(wheel.read_bytes())
        print(f"{folder / wheel.name}: {wheel.stat().st_size / 1e6:.1f} MB")


def every_kind() -> Iterator:
    """Yields optimizers that together have all rules of this package. Some rules repeat."""
    from estimator_emb import optimizers

    for ours in optimizers.PARAMETERS:
        arguments = inspect.signature(ours).parameters.values()
        required = {one.name: 0.5 for one in arguments if one.default is one.empty}
        for values in itertools.product(*ours.forms.values()):
            yield ours(**required | dict(zip(ours.forms, values, strict=True)))


def compile_all(folder: pathlib.Path, releases: Sequence[str], machine: str) -> None:
    """Compiles the libraries, in an environment that has this package."""
    from estimator_emb.native import build, ops, rules

    compiler = cross_compiler(machine)
    folder.mkdir()
    # Every aarch64 has NEON without a flag, so a single set of instructions is enough.
    x86 = machine == "x86_64"
    own = build.Unit(OWN_SYMBOLS)
    units = [own, *ops.kernel_units(x86)]
    every = (rules.trace(kind, None) for kind in every_kind())
    for rule in {rule.name: rule for rule in every}.values():
        units += build.arithmetic_units(rule.source, rule.name, x86)
    print(f"arithmetic: {len(units)} units", flush=True)
    build.compile_to(folder / "arithmetic.so", units, compiler=compiler)
    for release in releases:
        print(f"ops of TensorFlow {release}", flush=True)
        with tempfile.TemporaryDirectory() as name:
            tensorflow = _unpacked(release, machine, pathlib.Path(name))
            found = build.TensorFlow(tensorflow, release, TENSORFLOW_LINK)
            units = [own, ops.op_unit(TENSORFLOW_FLAGS, x86)]
            build.compile_to(ops.prebuilt_ops(folder, release), units, found, compiler)
    (folder / "made_from").write_text(ops.made_from(machine))


def _unpacked(release: str, machine: str, folder: pathlib.Path) -> pathlib.Path:
    """Downloads the headers and the library of a TensorFlow for a machine. Returns their folder."""
    options = ["--quiet", "--no-deps", "--only-binary=:all:", "--dest", folder]
    tags = [f"manylinux2014_{machine}"]
    tags += [f"manylinux_2_{k}_{machine}" for k in range(OLDEST_LIBRARY, NEWEST_LIBRARY + 1)]
    for tag in tags:
        options += ["--platform", tag]
    distribution = DISTRIBUTIONS.get((release, machine), "tensorflow")
    asked = ["--python-version", HEADERS_OF_PYTHON, f"{distribution}=={release}"]
    environment = {name: value for name, value in os.environ.items() if name != "PIP_CONSTRAINT"}
    run(sys.executable, "-m", "pip", "download", *options, *asked, env=environment)
    (wheel,) = folder.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        for name in archive.namelist():
            if re.match(r"tensorflow/(include/|libtensorflow_framework\.so\.2$)", name):
                archive.extract(name, folder)
    wheel.unlink()
    return folder / "tensorflow"


def platform_of(built: pathlib.Path, machine: str) -> str:
    """Returns the platform tag of a wheel.

    Raises:
      ValueError: a library needs a newer C or C++ library than the tag promises.
    """
    for library in sorted(built.glob("*.so")):
        # Unlike objdump, readelf reads libraries of every machine.
        needed = run("readelf", "--wide", "--version-info", library)
        for name, version in set(re.findall(r"\b([A-Z]+)_(\d[.\d]*)", needed)):
            newest = NEWEST_SYMBOLS.get(name)
            if newest and tuple(map(int, version.split("."))) > newest:
                raise ValueError(
                    f"{library.name} needs {name}_{version}, and {POLICY} has "
                    f"{name}_{'.'.join(map(str, newest))} at most"
                )
    return f"{POLICY}_{machine}"


def main() -> None:
    """Reads the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=pathlib.Path, help="where the wheel is put")
    # One version of each release, because a second version would replace the first.
    parser.add_argument("--tensorflow", nargs="+", default=RELEASES, choices=RELEASES)
    parser.add_argument(
        "--machine",
        default=platform.machine(),
        choices=MACHINES,
        help="whose processors it is for; by default those of this machine",
    )
    parser.add_argument("--compile", nargs="+", choices=RELEASES, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    folder = arguments.folder.resolve()
    try:
        cross_compiler(arguments.machine)
    except FileNotFoundError as missing:
        parser.error(str(missing))
    if arguments.compile:
        compile_all(folder, arguments.compile, arguments.machine)
    else:
        make(folder, arguments.tensorflow, arguments.machine)


if __name__ == "__main__":
    main()
