"""Runs the example programs as a person does, each in its own process."""

import pathlib

import numpy as np
import processes

ROOT = processes.ROOT

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
"""Serves from a SavedModel in a process that cannot import this project."""


def run(*arguments, **environment):
    """Returns a Python process's standard output, or fails with what it wrote."""
    environment = {"CUDA_VISIBLE_DEVICES": "", "ESTIMATOR_EMB_NATIVE": "0", **environment}
    return processes.run_python(*arguments, status=0, **environment).stdout


def example(name, **flags):
    values = [f"--{key}={value}" for key, value in flags.items()]
    return run(ROOT / "examples" / f"{name}.py", *values)


def served(model_dir, inputs, folder):
    """Returns the exported model's outputs for a file of inputs."""
    (saved_model,) = pathlib.Path(model_dir, "export").iterdir()
    run("-c", LOAD_SAVED_MODEL, saved_model, inputs, folder / "served.npz")
    with np.load(folder / "served.npz", allow_pickle=True) as outputs:
        return dict(outputs)
