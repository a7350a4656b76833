"""Builds the output of `estimator-emb --version` for bug reports, without importing TensorFlow."""

import os
import pathlib
import platform
import runpy
import shutil
from importlib import metadata

from estimator_emb.catalog import environment
from estimator_emb.compat import installed

_PACKAGE = pathlib.Path(__file__).resolve().parents[1]
_BESIDE = ("tf-keras", "tensorflow-estimator", "numpy", "protobuf")
_COMPILERS = ("g++", "c++", "clang++")


def text() -> str:
    """Returns the versions of this package and its dependencies, the machine and the kernels."""
    own = runpy.run_path(str(_PACKAGE / "version.py"))["__version__"]
    brings = metadata.packages_distributions().get("tensorflow", ["tensorflow"])
    return "\n".join(
        (
            f"estimator-emb {own}",
            ", ".join(
                f"{name} {installed.version(name) or 'not installed'}"
                for name in (*brings, *_BESIDE)
            ),
            f"Python {platform.python_version()}, {platform.platform()}, {os.cpu_count()} cores",
            f"native kernels: {_kernels()}",
        )
    )


def _kernels() -> str:
    if environment.NATIVE.value() == "0":
        return f"off, {environment.NATIVE} is 0"
    brought = sorted((_PACKAGE / "native" / "prebuilt").glob("ops-*.so"))
    if brought:
        releases = ", ".join(library.stem.removeprefix("ops-") for library in brought)
        return f"brought for TensorFlow {releases}"
    compilers = [path for path in map(shutil.which, _COMPILERS) if path]
    return f"built by {compilers[0]}" if compilers else "none, there is no C++ compiler"
