# SPDX-License-Identifier: Apache-2.0
"""A program with its own copy of tpu_estimator.py is told so."""

import pathlib
import textwrap

import processes
import pytest
import tensorflow_estimator

from estimator_emb.legacy import forks

ORIGINAL = pathlib.Path(tensorflow_estimator.__file__).parent / "python/estimator/tpu"

DO = (
    "Import ours in its place: from estimator_emb import TPUEstimator, TPUEstimatorSpec, "
    "TPUConfig, RunConfig (also tf.estimator.tpu in TensorFlow 1)."
)
WHY = (
    "this is the program's own copy of tpu_estimator.py, which needs private parts of the "
    f"TensorFlow that it was taken from. {DO}"
)

# What TensorFlow 1.12's file begins with, and the shape of what follows.
OLD = textwrap.dedent(
    """
    from tensorflow.contrib.tpu.python.ops import tpu_ops
    from tensorflow.contrib.tpu.python.tpu import keras_support

    class TPUInfeedOutfeedSessionHook(object):
      pass

    class TPUEstimator(object):
      pass
    """
)

PROGRAM = """
import tensorflow.compat.v1 as tf
from my_tpu_estimator import TPUEstimator
from tensorflow_estimator.python.estimator.tpu import tpu_config

def model_fn(features, labels, mode, params):
    loss = tf.get_variable("w", [], initializer=tf.ones_initializer())
    train_op = tf.assign_add(tf.train.get_global_step(), 1)
    return tf.estimator.EstimatorSpec(mode, loss=loss, train_op=train_op)

for _ in range(2):
    TPUEstimator(model_fn, config=tpu_config.RunConfig(model_dir="m"), use_tpu=False,
                 train_batch_size=2)
"""


def run(folder, *options, status=0):
    """The lines that the command writes when it runs program.py, and ends with a status."""
    (folder / "program.py").write_text(PROGRAM)
    command = "import runpy; runpy.run_module('estimator_emb', run_name='__main__', alter_sys=True)"
    arguments = ("run", *options, "program.py")
    done = processes.run(command, *arguments, status=status, cwd=folder, TF_CPP_MIN_LOG_LEVEL="3")
    return done.stderr.splitlines()


@pytest.mark.slow
def test_a_copy_that_does_not_import(tmp_path):
    (tmp_path / "my_tpu_estimator.py").write_text(OLD)
    lines = run(tmp_path, "--tf-v1", status=1)
    assert "Traceback (most recent call last):" in lines
    assert lines[-1] == f"estimator-emb: my_tpu_estimator.py, line 8: {WHY}"


@pytest.mark.slow
def test_a_copy_that_runs(tmp_path):
    source = (ORIGINAL / "tpu_estimator.py").read_text()
    (tmp_path / "my_tpu_estimator.py").write_text(source)
    lines = run(tmp_path)
    line = source[: source.index("\nclass TPUEstimator(")].count("\n") + 2
    message = (
        f"estimator_emb: my_tpu_estimator.py, line {line}: TPUEstimator is the program's own copy "
        "of tpu_estimator.py. It is not emulated, and the tables of an EmbeddingConfigSpec are not "
        f"trained as estimator_emb trains them. {DO}"
    )
    assert lines.count(message) == 1, lines


@pytest.mark.parametrize(
    "source",
    [
        "1 / 0",
        "class TPUEstimator:\n    pass\n1 / 0",  # A class of the program's own.
        "class _ModelFnWrapper:\n    pass\n1 / 0",
    ],
)
def test_other_programs_are_no_copies(source, tmp_path):
    (tmp_path / "other.py").write_text(source)
    try:
        exec(compile(source, str(tmp_path / "other.py"), "exec"), {})
    except ZeroDivisionError as error:
        assert forks.advice_about_copy(error) is None
    assert forks._line_of_copy(str(ORIGINAL / "tpu_estimator.py")) is None
