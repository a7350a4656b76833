"""Says what to install where TensorFlow, or a package that it needs, is missing or does not fit.

Installing estimator_emb brings no TensorFlow: to pip, 'tensorflow-cpu' and 'tensorflow-tpu' are
other packages than 'tensorflow', which would replace or double them. So versions are compared here,
when estimator_emb is imported.
"""

import importlib.util
from importlib import metadata
from types import ModuleType

SUPPORTED = ">=2.15.1,<2.22"
_IN_WORDS = "2.15.1 to 2.21"
_OURS = "estimator-emb[tensorflow]"


def tensorflow() -> ModuleType:
    """Imports TensorFlow, or raises ImportError, where there is none that works, for pip."""
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
        there = distribution.version
        if _is_supported(there):
            needs = "; ".join(f"it needs {one}, and {found}" for one, found in unfit.items())
            line = " ".join(f"'{one}'" for one in unfit)
            raise ImportError(
                f"TensorFlow {there} does not work here: {needs}: pip install {line}"
            ) from error
    else:
        there = tf.__version__
        if _is_supported(there):
            return tf
    raise ImportError(f"{needed} {there} is installed: {_line()}")


def check_beside(tensorflow_version: str, needs_tf_keras: bool) -> None:
    """Checks the versions of tf-keras and protobuf, which pip does not.

    Raises ImportError, with a line for pip, where TensorFlow < 2.21 has protobuf 7, with which it
    cannot write a graph, or `needs_tf_keras` (Keras 2 for TensorFlow >= 2.16) and tf-keras is
    missing or of another minor version.
    """
    release = _release(tensorflow_version)
    problems, wanted = [], []
    protobuf = version("protobuf")
    if protobuf and release != "2.21" and int(protobuf.split(".")[0]) >= 7:
        problems.append(f"TensorFlow {tensorflow_version} does not work with protobuf {protobuf}")
        wanted.append("protobuf<7")
    tf_keras = version("tf-keras")
    # It may have been installed without pip.
    missing = not tf_keras and not importlib.util.find_spec("tf_keras")
    if needs_tf_keras and (missing or (tf_keras and _release(tf_keras) != release)):
        problems.append(
            "estimator_emb needs Keras 2, and the package tf-keras, which brings it to TensorFlow "
            f"{tensorflow_version}, is {tf_keras or 'not installed'}"
        )
        wanted.append(f"tf-keras=={release}.*")
    if not wanted:
        return
    # tf-keras asks pip for a package called tensorflow, whatever TensorFlow there is.
    distribution = _distribution()
    alone = "" if distribution and distribution.name == "tensorflow" else "--no-deps "
    line = " ".join(f"'{one}'" for one in wanted)
    raise ImportError(f"{'. And '.join(problems)}: pip install {alone}{line}")


def _release(version: str) -> str:
    return ".".join(version.split(".")[:2])


def version(name: str) -> str | None:
    """Returns the version of an installed package; None where it is missing."""
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def _is_supported(version: str) -> bool:
    from packaging import specifiers  # TensorFlow needs it too.

    return specifiers.SpecifierSet(SUPPORTED).contains(version, prereleases=True)


def _line() -> str:
    distribution = _distribution()
    if distribution is None or distribution.name == "tensorflow":
        return f"pip install '{_OURS}'"
    if distribution.name in ("tf-nightly", "tf_nightly"):  # Has no releases of its own.
        return f"pip uninstall -y tf-nightly && pip install '{_OURS}'"
    return f"pip install '{distribution.name}{SUPPORTED}'"


def _distribution() -> metadata.Distribution | None:
    names = metadata.packages_distributions().get("tensorflow")
    return metadata.distribution(names[0]) if names else None


def _unfit(distribution: metadata.Distribution) -> dict[str, str]:
    from packaging import requirements

    unfit = {}
    for text in distribution.requires or ():
        needed = requirements.Requirement(text)
        if needed.marker is not None and not needed.marker.evaluate({"extra": ""}):
            continue
        found = version(needed.name)
        if found is None or not needed.specifier.contains(found, prereleases=True):
            there = f"{found} is installed" if found else "it is not installed"
            unfit[f"{needed.name}{needed.specifier}"] = there
    return unfit
