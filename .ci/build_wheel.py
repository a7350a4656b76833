#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Builds a wheel that brings the native kernels, so that none are compiled where it is installed.

    python3 .ci/build_wheel.py FOLDER [--tensorflow VERSION ...]

The wheel is of what is committed, for this machine's platform and any Python. It holds one library
of ops for each of the given releases of TensorFlow, by default all that are supported, and one
library of arithmetic with the rules of all optimizers. With another release, or for an optimizer of
a program's own, what it lacks is compiled on first use, as without it.

Headers come from TensorFlow's own wheels. All else that it needs is installed into an environment
of its own. A C++ compiler must be there.
"""

import argparse
import os
import pathlib
import platform
import re
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Sequence

REPOSITORY = pathlib.Path(__file__).resolve().parent.parent
RELEASES = ("2.15.1", "2.16.2", "2.17.1", "2.18.1", "2.19.1", "2.20.0", "2.21.0")
# For any Python: the oldest TensorFlow has no wheel for the newest Python.
HEADERS_OF_PYTHON = "3.11"


def run(*command: object, **kwargs: object) -> str:
    """Runs a command; returns what it printed."""
    texts = [str(one) for one in command]
    return subprocess.run(texts, check=True, stdout=subprocess.PIPE, text=True, **kwargs).stdout


def make(folder: pathlib.Path, releases: Sequence[str]) -> None:
    """Makes the wheel, in an environment of its own."""
    with tempfile.TemporaryDirectory() as name:
        work = pathlib.Path(name)
        source, python = work / "source", work / "env" / "bin" / "python"
        run("git", "clone", "--quiet", REPOSITORY, source)
        run(sys.executable, "-m", "venv", work / "env")
        run(python, "-m", "pip", "install", "--quiet", source, "build", "wheel")
        built = source / "estimator_emb" / "native" / "prebuilt"
        # From elsewhere: Python looks for packages where it is started.
        run(python, source / ".ci" / "build_wheel.py", built, "--compile", *releases, cwd=work)
        run(python, "-m", "build", "--wheel", "--outdir", work / "dist", source, cwd=work)
        (wheel,) = (work / "dist").glob("*.whl")
        tags = ["--platform-tag", _platform_of(built), "--remove", wheel]
        run(python, "-m", "wheel", "tags", *tags, cwd=work)
        (wheel,) = (work / "dist").glob("*.whl")
        folder.mkdir(parents=True, exist_ok=True)
        (folder / wheel.name).write_bytes(wheel.read_bytes())
        print(f"{folder / wheel.name}: {wheel.stat().st_size / 1e6:.1f} MB")


def compile_all(folder: pathlib.Path, releases: Sequence[str]) -> None:
    """Compiles the libraries, in an environment that has this package."""
    from estimator_emb.native import build, ops, prebuilt

    folder.mkdir()
    x86 = build.x86()
    units = [*ops.kernel_units(x86)]
    for rule in prebuilt.all_rules():
        units += ops.rule_units(rule, x86)
    print(f"arithmetic: {len(units)} units", flush=True)
    build.compile_to(folder / "arithmetic.so", units)
    for release in releases:
        print(f"ops of TensorFlow {release}", flush=True)
        with tempfile.TemporaryDirectory() as name:
            tensorflow = _unpacked(release, pathlib.Path(name))
            flags = (f"-I{tensorflow / 'include'}", *prebuilt.TENSORFLOW_FLAGS)
            link = (f"-L{tensorflow}", *prebuilt.TENSORFLOW_LINK)
            build.compile_to(prebuilt.ops_of(folder, release), ops.op_units(flags, x86), link)
    (folder / "made_from").write_text(prebuilt.made_from(platform.machine()))


def _unpacked(release: str, folder: pathlib.Path) -> pathlib.Path:
    """Returns the folder of what a library of ops needs of a TensorFlow."""
    options = ["--quiet", "--no-deps", "--only-binary=:all:", "--dest", folder]
    asked = ["--python-version", HEADERS_OF_PYTHON, f"tensorflow=={release}"]
    environment = {name: value for name, value in os.environ.items() if name != "PIP_CONSTRAINT"}
    run(sys.executable, "-m", "pip", "download", *options, *asked, env=environment)
    (wheel,) = folder.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        for name in archive.namelist():
            if re.match(r"tensorflow/(include/|libtensorflow_framework\.so\.2$)", name):
                archive.extract(name, folder)
    wheel.unlink()
    return folder / "tensorflow"


def _platform_of(built: pathlib.Path) -> str:
    """Returns the platform tag of the oldest C library that all libraries load with."""
    symbols = "".join(run("objdump", "-T", library) for library in built.glob("*.so"))
    newest = max((int(one), int(two)) for one, two in re.findall(r"GLIBC_(\d+)\.(\d+)", symbols))
    return f"manylinux_{newest[0]}_{newest[1]}_{platform.machine()}"


def main() -> None:
    """Reads the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=pathlib.Path, help="where the wheel is put")
    # One version of each release: a second would take the place of the first.
    parser.add_argument("--tensorflow", nargs="+", default=RELEASES, choices=RELEASES)
    parser.add_argument("--compile", nargs="+", choices=RELEASES, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    folder = arguments.folder.resolve()
    if arguments.compile:
        compile_all(folder, arguments.compile)
    else:
        make(folder, arguments.tensorflow)


if __name__ == "__main__":
    main()
