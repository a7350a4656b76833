# SPDX-License-Identifier: Apache-2.0
"""The libraries in a platform wheel, with which nothing is compiled on the user's machine.

Its folder `prebuilt`, which `.ci/build_wheel` creates, holds

    arithmetic.so       the kernels, and the rules of all optimizers of this package
    ops-<release>.so    the ops for one release of TensorFlow, e.g. 2.21
    made_from           a digest of the sources of these libraries, and the machine

A checkout and an sdist have no such folder, and build on first use.
"""

import inspect
import itertools
import pathlib
import platform

import tensorflow as tf

from estimator_emb import optimizers
from estimator_emb.native import build, rules

FOLDER = build.HERE / "prebuilt"
TENSORFLOW_FLAGS = ("-D_GLIBCXX_USE_CXX11_ABI=1", "--std=c++17", "-DEIGEN_MAX_ALIGN_BYTES=64")
"""The compile flags of every supported TensorFlow, without the path of its headers."""
TENSORFLOW_LINK = ("-l:libtensorflow_framework.so.2",)
"""The link flags of every supported TensorFlow, without the path of its library."""


def libraries() -> tuple[str, str] | None:
    """Returns the paths of the arithmetic and the ops for this machine; None if not prebuilt."""
    arithmetic, ops = FOLDER / "arithmetic.so", ops_of(FOLDER, tf.version.VERSION)
    made = FOLDER / "made_from"
    if build.sanitizes() or not all(file.is_file() for file in (arithmetic, ops, made)):
        return None
    if made.read_text() != made_from(platform.machine()):
        return None
    return str(arithmetic), str(ops)


def ops_of(folder: pathlib.Path, tensorflow: str) -> pathlib.Path:
    """Returns the path of the ops for a version of TensorFlow such as '2.15.1'."""
    return folder / f"ops-{'.'.join(tensorflow.split('.')[:2])}.so"


def made_from(machine: str) -> str:
    """Returns the content of the file `made_from` for the present sources."""
    return f"{build.sources()} {machine}\n"


def all_rules() -> list[rules.Rule]:
    """Returns every distinct rule of the optimizers of this package."""
    found = {}
    for ours in optimizers.PARAMETERS:
        arguments = inspect.signature(ours).parameters.values()
        required = {one.name: 0.5 for one in arguments if one.default is one.empty}
        for values in itertools.product(*ours.forms.values()):
            kind = ours(**required | dict(zip(ours.forms, values, strict=True)))
            rule = rules.trace(kind, None)
            found[rule.name] = rule
    return list(found.values())
