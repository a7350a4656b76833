# SPDX-License-Identifier: Apache-2.0
"""Runs the example programs the way a person does, each in a process of its own."""

import os
import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]

LOAD_SAVED_MODEL = """
import sys
sys.modules["estimator_emb"] = sys.modules["feature_columns"] = None
import numpy as np, tensorflow as tf
model_path, inputs_path, outputs_path = sys.argv[1:]
serve = tf.saved_model.load(model_path).signatures["serving_default"]
inputs = np.load(inputs_path)
outputs = serve(**{key: tf.constant(inputs[key].tolist() if inputs[key].dtype.kind == "U"
                                    else inputs[key]) for key in inputs})
np.savez(outputs_path, **{key: value.numpy() for key, value in outputs.items()})
"""
"""Serves from a SavedModel where the project cannot be imported."""


def run(arguments, **environment):
    """Standard output of a Python process; where it fails, an error with what it wrote."""
    paths = [str(ROOT), os.environ.get("PYTHONPATH", "")]
    done = subprocess.run(
        [sys.executable, *map(str, arguments)],
        env={
            **os.environ,
            "PYTHONPATH": os.pathsep.join(path for path in paths if path),
            "CUDA_VISIBLE_DEVICES": "",
            **environment,
        },
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def example(name, **flags):
    """Output of the example program `name`."""
    values = [f"--{key}={value}" for key, value in flags.items()]
    return run([ROOT / "examples" / f"{name}.py", *values])


def saved_model_in(model_dir):
    (saved_model,) = pathlib.Path(model_dir, "export").iterdir()
    return saved_model
