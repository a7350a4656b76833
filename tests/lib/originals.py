"""TensorFlow 1.15 for tests of `tf.contrib`: its wheel, its interpreter, and a small imitation."""

import os

import processes
import pytest

from estimator_emb.catalog import wheel

WHEEL = os.environ.get("ESTIMATOR_EMB_TF1_WHEEL")
PYTHON = os.environ.get("ESTIMATOR_EMB_TF1_PYTHON")
OPTIONS = [f"--contrib={WHEEL}"]

needs_wheel = pytest.mark.skipif(
    not WHEEL, reason=f"ESTIMATOR_EMB_TF1_WHEEL names no wheel. Download it: {wheel.DOWNLOAD}"
)
needs_python = pytest.mark.skipif(
    not PYTHON, reason="ESTIMATOR_EMB_TF1_PYTHON names no Python 3.7 with TensorFlow 1.15.5"
)


def run(script, *arguments):
    """Runs a script of tests/legacy by the interpreter with TensorFlow 1.15, to its end."""
    command = [PYTHON, processes.ROOT / "tests" / "legacy" / script, *arguments]
    environment = processes.users_environment(PYTHONPATH=None, TF2_BEHAVIOR=None)
    return processes.ended(command, 0, None, processes.HANGS, environment)


def small(folder, files=None, version="1.15.5"):
    """Makes a folder with the layout of TensorFlow 1.15 and these files of tf.contrib."""
    metadata = folder / f"tensorflow-{version}.dist-info" / "METADATA"
    metadata.parent.mkdir()
    metadata.write_text(f"Metadata-Version: 2.1\nName: tensorflow\nVersion: {version}\n")
    for name, text in {"__init__.py": "", **(files or {})}.items():
        path = folder / "tensorflow_core" / "contrib" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return folder
