# SPDX-License-Identifier: Apache-2.0
"""Says what to install where TensorFlow, or a package that it needs, is missing or does not fit.

Installing estimator_emb brings no TensorFlow, as it would replace or double the one that is there:
'tensorflow-cpu', 'tensorflow-tpu' and others are packages of their own for pip. So what pip does
not compare is compared here, when estimator_emb is imported.
"""

import importlib.util
from importlib import metadata
from types import ModuleType

SUPPORTED = ">=2.15.1,<2.22"
_IN_WORDS = "2.15.1 to 2.21"
_OURS = "estimator-emb[tensorflow]"


def tensorflow() -> ModuleType:
    """Imports TensorFlow.

    Raises:
      ImportError: there is none, it is of a version that is not supported, or it does not work
        with a package that is beside it. The message ends with a line for pip.
    """
    needed = f"estimator_emb needs TensorFlow {_IN_WORDS}, and"
    spec = importlib.util.find_spec("tensorflow")
    if spec is None or spec.origin is None:  # A folder without a module remains of an old one.
        raise ImportError(f"{needed} none is installed: pip install '{_OURS}'")
    try:
        import tensorflow as tf
    except Exception as error:
        distribution = _distribution()
        unfit = _unfit(distribution) if distribution else {}
        if distribution is None or not unfit:
            raise
        version = distribution.version
        if _is_supported(version):
            raise _does_not_take(version, unfit) from error
    else:
        version = tf.__version__
        if _is_supported(version):
            _check_protobuf(version)
            return tf
    raise ImportError(f"{needed} {version} is installed: {_line()}")


def check_tf_keras(tensorflow_version: str) -> None:
    """Checks that tf-keras, which is Keras 2 for TensorFlow >= 2.16, is that of this TensorFlow.

    Raises:
      ImportError: it is missing, or of another minor version.
    """
    release, found = _release(tensorflow_version), _version("tf-keras")
    if found and _release(found) == release:
        return
    if not found and importlib.util.find_spec("tf_keras"):
        return  # By other means than pip's, which say no version.
    problem = f"is {found}" if found else "is not installed"
    # tf-keras asks pip for a package called tensorflow, whatever TensorFlow there is.
    distribution = _distribution()
    alone = "" if distribution and distribution.name == "tensorflow" else "--no-deps "
    raise ImportError(
        f"estimator_emb needs Keras 2, and the package tf-keras, which brings it to TensorFlow "
        f"{tensorflow_version}, {problem}: pip install {alone}'tf-keras=={release}.*'"
    )


def _check_protobuf(tensorflow_version: str) -> None:
    """Refuses what TensorFlow 2.20 lets pip install, and fails with when it writes a graph."""
    found = _version("protobuf")
    if found and _release(tensorflow_version) != "2.21" and int(found.split(".")[0]) >= 7:
        raise _does_not_take(tensorflow_version, {"protobuf<7": f"{found} is installed"})


def _does_not_take(version: str, unfit: dict[str, str]) -> ImportError:
    needs = "; ".join(f"it needs {one}, and {found}" for one, found in unfit.items())
    line = " ".join(f"'{one}'" for one in unfit)
    return ImportError(f"TensorFlow {version} does not work here: {needs}: pip install {line}")


def _release(version: str) -> str:
    return ".".join(version.split(".")[:2])


def _version(name: str) -> str | None:
    """Returns the version of a package that pip knows; None of one that it does not know."""
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def _is_supported(version: str) -> bool:
    from packaging import specifiers  # TensorFlow needs it too.

    return specifiers.SpecifierSet(SUPPORTED).contains(version, prereleases=True)


def _line() -> str:
    """Returns what brings a TensorFlow that is supported to the place of the one that is not."""
    distribution = _distribution()
    if distribution is None or distribution.name == "tensorflow":
        return f"pip install '{_OURS}'"
    if distribution.name in ("tf-nightly", "tf_nightly"):  # Has no releases of its own.
        return f"pip uninstall -y tf-nightly && pip install '{_OURS}'"
    return f"pip install '{distribution.name}{SUPPORTED}'"


def _distribution() -> metadata.Distribution | None:
    """Returns what pip knows of the TensorFlow that is installed; None if it knows of none."""
    names = metadata.packages_distributions().get("tensorflow")
    return metadata.distribution(names[0]) if names else None


def _unfit(distribution: metadata.Distribution) -> dict[str, str]:
    """Returns {what it needs and does not have: what there is}."""
    from packaging import requirements

    unfit = {}
    for text in distribution.requires or ():
        needed = requirements.Requirement(text)
        if needed.marker is not None and not needed.marker.evaluate({"extra": ""}):
            continue
        found = _version(needed.name)
        if found is None or not needed.specifier.contains(found, prereleases=True):
            there = f"{found} is installed" if found else "it is not installed"
            unfit[f"{needed.name}{needed.specifier}"] = there
    return unfit
