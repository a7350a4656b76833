"""A program with its own copy of tpu_estimator.py gets advice."""

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

# The start of TensorFlow 1.12's file, and an outline of the rest.
OLD = textwrap.dedent(
    """
    from tensorflow.contrib.tpu.python.ops import tpu_ops
    from tensorflow.contrib.tpu.python.tpu import keras_support

    class TPUInfeedOutfeedSessionHook(object):
      pass

    class TPUEstimator(object):
      def __init__(self, *args, **kwargs):
        keras_support.KerasCrossShardOptimizer
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


def run(folder, *options):
    (folder / "program.py").write_text(PROGRAM)
    done = processes.run_command("run", *options, "program.py", cwd=folder)
    return done.returncode, done.stderr.splitlines()


@pytest.mark.slow
def test_a_copy_that_needs_a_missing_module_gets_advice(tmp_path):
    (tmp_path / "my_tpu_estimator.py").write_text(OLD)
    status, lines = run(tmp_path, "--tf-v1")
    assert status == 1 and "Traceback (most recent call last):" in lines
    assert lines[-1] == f"estimator-emb: my_tpu_estimator.py, line 8: {WHY}"


@pytest.mark.slow
def test_a_running_copy_gets_a_warning(tmp_path):
    source = (ORIGINAL / "tpu_estimator.py").read_text()
    (tmp_path / "my_tpu_estimator.py").write_text(source)
    status, lines = run(tmp_path)
    assert status == 0, lines
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
        "class TPUEstimator:\n    pass\n1 / 0",  # The program's own class.
        "class _ModelFnWrapper:\n    pass\n1 / 0",
    ],
)
def test_other_errors_get_no_advice_about_copies(source, tmp_path):
    (tmp_path / "other.py").write_text(source)
    try:
        exec(compile(source, str(tmp_path / "other.py"), "exec"), {})
    except ZeroDivisionError as error:
        assert forks.advice_about_copy(error) is None
    assert forks._line_of_copy(str(ORIGINAL / "tpu_estimator.py")) is None
