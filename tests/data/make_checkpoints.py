"""Writes tests/data/checkpoints: three training steps, and their results.

    PYTHONPATH=.:tests/lib python tests/data/make_checkpoints.py

Under TensorFlow 2.15.1 it writes `stock-2.15.1` with stock tensorflow-estimator, `use_tpu=False`
and `AdagradOptimizer` for both tables and model, and `host-2.15.1` with this project. Under another
version it writes only `host-<version>`. Each folder holds the checkpoint of step 3, predictions
from that checkpoint, and the variables after step 4.
"""

import pathlib
import shutil
import tempfile
from unittest import mock

import columns_program
import harness
import numpy as np
import tensorflow as tf
from tensorflow_estimator.python.estimator.tpu import tpu_config, tpu_estimator

FOLDER = pathlib.Path(__file__).parent / "checkpoints"


# Without a TPU, stock tensorflow-estimator does not truncate sequences to max_sequence_length.
DATA = columns_program.batches(4, seed=5, longest_history=2)


def stock(model_dir):
    model_fn = columns_program.model_fn_of(columns_program.columns())
    run = {"tf_random_seed": 1, "save_checkpoints_steps": 1}
    config = tpu_config.RunConfig(model_dir=model_dir, **run)
    of_stock = {"of_class": tpu_estimator.TPUEstimator, "use_tpu": False}
    return harness.configured(model_fn, None, config, **of_stock)


def write(name, make):
    with tempfile.TemporaryDirectory() as model_dir:
        estimator = make(model_dir)
        estimator.train(harness.input_fn_of(DATA), steps=3)
        predictions = list(estimator.predict(harness.input_fn_of(DATA)))
        folder = FOLDER / name
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        for file in pathlib.Path(model_dir).glob("model.ckpt-3.*"):
            if file.suffix != ".meta":
                shutil.copy(file, folder)
        (folder / "checkpoint").write_text('model_checkpoint_path: "model.ckpt-3"\n')
        estimator.train(harness.input_fn_of(DATA[3:]), steps=1)
        expected = {"output": [one["output"] for one in predictions]}
        saved = harness.saved(model_dir, 4)
        expected |= {f"step4/{key}": value for key, value in saved.items()}
        np.savez(folder / "expected.npz", **expected)


if __name__ == "__main__":
    if tf.__version__ == "2.15.1":
        # CrossShardOptimizer sums over cores, but without a TPU stock code has no cores.
        with mock.patch.object(tf.compat.v1.tpu, "CrossShardOptimizer", lambda one, *_: one):
            write("stock-2.15.1", stock)
    write(f"host-{tf.__version__}", columns_program.make)
