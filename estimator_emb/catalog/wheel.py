"""The wheel of TensorFlow 1.15, which has all of `tf.contrib`."""

import dataclasses
import glob
import importlib.machinery
import importlib.metadata
import os
import zipfile

WHEEL = "tensorflow-1.15.5-cp37-cp37m-manylinux2010_x86_64.whl"
DOWNLOAD = (
    "pip download --no-deps --only-binary=:all: --python-version 37 "
    "--platform manylinux2010_x86_64 tensorflow==1.15.5 tensorflow-estimator==1.15.1"
)
"""A command that downloads `WHEEL`, with any Python."""


@dataclasses.dataclass(frozen=True)
class Wheel:
    """A wheel of TensorFlow 1.15, or a folder with its files.

    `packages` has the search path of each package that is imported from it.
    """

    path: str
    version: str
    packages: dict[str, list[str]]


def opened(path: str) -> Wheel:
    """Returns the wheel or folder at `path`, with the wheel of tensorflow-estimator beside it.

    Raises ValueError if it does not have the `tf.contrib` of TensorFlow 1.15.
    """
    core = os.path.join(path, "tensorflow_core")
    version = next(
        (one.version for one in importlib.metadata.distributions(name="tensorflow", path=[path])),
        "missing",
    )
    if not os.path.exists(path):
        fault = "there is no such file or folder"
    elif os.path.isfile(path) and not zipfile.is_zipfile(path):
        fault = "the file is damaged, or is not a wheel"
    elif version == "missing" or version.startswith("1.15."):
        found = importlib.machinery.PathFinder.find_spec("contrib", [core])
        fault = "it lacks tensorflow_core/contrib" if found is None else ""
        fault = fault or ("it lacks TensorFlow's metadata" if version == "missing" else "")
    else:
        fault = f"its version is {version}"
    if fault:
        raise ValueError(
            "contrib must be the wheel of TensorFlow 1.15, or a folder with its files; got "
            f"{path!r}: {fault}."
        )
    beside = [path]
    if os.path.isfile(path):
        folder = glob.escape(os.path.dirname(path))
        beside = glob.glob(os.path.join(folder, "tensorflow_estimator-1.15.*.whl"))
    packages = {
        "tensorflow.contrib": [core],
        "tensorflow.examples": [core],
        # Distributions of contrib derive from it.
        "tensorflow.python.ops.distributions.transformed_distribution": [
            os.path.join(core, "python", "ops", "distributions")
        ],
        "tensorflow_estimator.contrib": [
            os.path.join(one, "tensorflow_estimator") for one in beside
        ],
    }
    return Wheel(path, version, packages)
