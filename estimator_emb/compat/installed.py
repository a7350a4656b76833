"""Raises errors that say what to install if TensorFlow or a package it needs is missing or unfit.

Installing estimator_emb does not install TensorFlow. To pip, 'tensorflow-cpu' and 'tensorflow-tpu'
are other packages than 'tensorflow', and installing 'tensorflow' would replace or duplicate them.
So this module compares versions when estimator_emb is imported.
"""

import importlib
import importlib.util
import pkgutil
from collections.abc import Iterator
from importlib import metadata
from types import ModuleType

from estimator_emb.catalog import installing

_SUPPORTED = ">=2.15.1"
_NEWEST_TRIED = (2, 22)
ENDS_WITH_2_23 = ("Python 3.10: its last nightly build is 2.22.0.dev20260302",)
"""What is known to end with the next TensorFlow. `.ci/run nightly` prints it."""


def tensorflow() -> ModuleType:
    """Imports TensorFlow. Raises ImportError with a pip command if no usable one is installed."""
    needed = "estimator_emb needs TensorFlow 2.15.1 or newer, and"
    spec = importlib.util.find_spec("tensorflow")
    if spec is None or spec.origin is None:  # An uninstall can leave a bare folder.
        raise ImportError(f"{needed} none is installed: {installing.extra('tensorflow')}")
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
    """Checks the versions of tf-keras and protobuf, because pip does not.

    Raises ImportError with a pip command for TensorFlow < 2.21 with protobuf 7, because it cannot
    write a graph. Also if `needs_tf_keras` (Keras 2 for TensorFlow >= 2.16) and tf-keras is missing
    or unfit. TensorFlow up to 2.21 needs the tf-keras of its own minor version. A newer TensorFlow
    accepts any from 2.21 up to its own, because each tf-keras is released weeks later.
    """
    newest = release(tensorflow_version)
    problems, wanted = [], []
    protobuf = version("protobuf")
    if protobuf and newest < (2, 21) and int(protobuf.split(".")[0]) >= 7:
        problems.append(f"TensorFlow {tensorflow_version} does not work with protobuf {protobuf}")
        wanted.append("protobuf<7")
    tf_keras = version("tf-keras")
    # tf_keras may have been installed without pip.
    missing = not tf_keras and not importlib.util.find_spec("tf_keras")
    oldest = min(newest, (2, 21))
    if needs_tf_keras and (missing or (tf_keras and not oldest <= release(tf_keras) <= newest)):
        problems.append(
            "estimator_emb needs Keras 2, and the package tf-keras, which brings it to TensorFlow "
            f"{tensorflow_version}, is {tf_keras or 'not installed'}"
        )
        own = f"=={newest[0]}.{newest[1]}.*"
        wanted.append(f"tf-keras{own if oldest == newest else f'>=2.21,<{_after(newest)}'}")
    if not wanted:
        return
    # tf-keras requires the package 'tensorflow' of its own minor version.
    distribution = _distribution()
    alone = "--no-deps "
    if distribution and distribution.name == "tensorflow" and oldest == newest:
        alone = ""
    line = " ".join(f"'{one}'" for one in wanted)
    raise ImportError(f"{'. And '.join(problems)}: pip install {alone}{line}")


def newer_than_tried(tensorflow_version: str, private: ModuleType) -> str | None:
    """Returns a warning if this TensorFlow is newer than any that was tried.

    Raises ImportError if a newer TensorFlow does not have a name that a module of the package
    `private` imports from it.
    """
    if release(tensorflow_version) <= _NEWEST_TRIED:
        return None
    newest = ".".join(map(str, _NEWEST_TRIED))
    untried = f"TensorFlow {tensorflow_version} is newer than any that estimator_emb was tried with"
    if problems := list(_failures(private)):
        raise ImportError(
            f"{untried}, and lacks names that estimator_emb needs: {'; '.join(problems)}. Look "
            f"for a newer estimator_emb, or: {_line(_after(_NEWEST_TRIED))}"
        )
    return (
        f"{untried}, which is {newest}. All private names that estimator_emb needs are there; "
        "compare the results with an older TensorFlow."
    )


def _failures(package: ModuleType) -> Iterator[str]:
    for module in pkgutil.iter_modules(package.__path__):
        try:
            importlib.import_module(f"{package.__name__}.{module.name}")
        except (ImportError, AttributeError) as error:
            yield str(error)


def release(version: str) -> tuple[int, int]:
    """Returns the major and the minor number of a version."""
    major, minor = version.split(".")[:2]
    return int(major), int(minor)


def _after(release: tuple[int, int]) -> str:
    return f"{release[0]}.{release[1] + 1}"


def version(name: str) -> str | None:
    """Returns the version of a package, or None if it is not installed."""
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def _is_supported(version: str) -> bool:
    from packaging import specifiers  # TensorFlow needs it too.

    return specifiers.SpecifierSet(_SUPPORTED).contains(version, prereleases=True)


def _line(below: str = "") -> str:
    """Returns the pip command that installs a supported TensorFlow, older than `below`."""
    distribution = _distribution()
    name = distribution.name if distribution else "tensorflow"
    ours = installing.extra("tensorflow", *([f"tensorflow<{below}"] if below else ()))
    if name == "tensorflow":
        return ours
    if name in ("tf-nightly", "tf_nightly"):  # tf-nightly has no releases to choose from.
        return f"pip uninstall -y tf-nightly && {ours}"
    return f"pip install '{name}{_SUPPORTED}{below and ',<' + below}'"


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
