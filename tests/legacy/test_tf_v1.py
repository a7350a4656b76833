"""--tf-v1 binds each public module of TensorFlow 1.15, for every form of import."""

import processes
import pytest

import estimator_emb as ee

MODULES = processes.data("tensorflow_1_15.json")["modules"]
GONE = (
    "keras.mixed_precision.experimental keras.wrappers keras.wrappers.scikit_learn "
    "lite.experimental.nn"
).split()
"""Modules that tf.compat.v1 itself has removed."""

EVERY_FORM = f"""
    MODULES = {[name for name in MODULES if name not in GONE]}
    import importlib, pytest, sys, types
    from operator import attrgetter

    for path in MODULES:
        expected = attrgetter(path)(V1)
        assert isinstance(expected, types.ModuleType), path
        for root in ("tensorflow", "tensorflow.compat.v1"):
            name = f"{{root}}.{{path}}"
            parent, _, leaf = name.rpartition(".")
            names = {{}}
            exec(f"import {{name}}", names)
            assert attrgetter(name.partition(".")[2])(names["tensorflow"]) is expected, name
            exec(f"import {{name}} as module", names)
            assert names["module"] is expected, name
            exec(f"from {{parent}} import {{leaf}}", names)
            assert names[leaf] is expected, name
            assert importlib.import_module(name) is expected, name
            assert sys.modules[name] is expected, name
            some = next((one for one in dir(expected) if not one.startswith("_")), None)
            if some is not None:
                exec(f"from {{name}} import {{some}} as value", names)
                assert names["value"] is getattr(expected, some), (name, some)

    import tensorflow as tf
    from tensorflow.train import AdamOptimizer
    assert AdamOptimizer is tf.train.AdamOptimizer is tf.compat.v1.train.AdamOptimizer
    import tensorflow.lite.python.interpreter as interpreter
    from tensorflow.lite.python import lite
    from tensorflow.lite.python.lite import Interpreter
    from tensorflow.python.framework import ops
    from tensorflow.core.protobuf import config_pb2
    import tensorflow.python.framework.ops as again
    assert Interpreter is tf.lite.Interpreter is interpreter.Interpreter and ops is again
    assert config_pb2.ConfigProto is tf.ConfigProto
    from tensorflow.python.ops import array_ops, control_flow_ops, variables
    from tensorflow.python.layers import normalization
    assert ops.Tensor is tf.Tensor and array_ops.stack is tf.stack
    assert control_flow_ops.cond is tf.cond and variables.VariableV1
    assert normalization.BatchNormalization.__call__
    import tensorflow.compat.v2 as tf2
    assert not hasattr(tf2.train, "AdamOptimizer") and tf2.keras.optimizers.Adam
    for name in ("tensorflow.train.nonsense", "tensorflow.nonsense", "tensorflow.nn.nonsense.x"):
        with pytest.raises(ModuleNotFoundError):
            importlib.import_module(name)
"""


@pytest.mark.slow
def test_install_of_tensorflow_1_warns_if_tensorflow_2_is_imported():
    program = "import {}estimator_emb\nestimator_emb.install(tf_v1=True)"
    late = processes.run_python("-c", program.format("tensorflow as tf, "), status=0).stderr
    assert "<string>:2: UserWarning: install(tf_v1=True) comes after the import of Tens" in late
    done = processes.run_python("-c", program.format(""), status=0)
    assert "UserWarning" not in done.stderr and "deprecated" not in done.stderr


@pytest.mark.slow
def test_every_tf_v1_module_imports_before_tensorflow():
    processes.run(
        f"""
    import estimator_emb
    import tensorflow
    estimator_emb.install(tf_v1=True)
    V1 = tensorflow.compat.v1
    {EVERY_FORM}
        """
    )


@pytest.mark.slow
def test_every_tf_v1_module_imports_after_tensorflow():
    """`install` alone leaves TensorFlow 2's modules. `tf_v1=True` replaces earlier imports too."""
    processes.run(
        f"""
    import pytest
    import tensorflow as tf
    import tensorflow.compat.v1 as tf1
    tensorflow_2, train, train_1, names = tf, tf.train, tf1.train, set(dir(tf.train))
    import estimator_emb
    estimator_emb.install()
    import tensorflow.train, tensorflow.nn, tensorflow.keras.layers, tensorflow.summary
    assert set(dir(tf.train)) >= names and tf.train.Checkpoint is train.Checkpoint
    assert not hasattr(tf.train, "AdamOptimizer") and tf1.train is train_1
    assert tf1.train.AdamOptimizer and tf.compat.v1.nn.rnn_cell and tf1.keras.layers
    with pytest.raises(ModuleNotFoundError, match="'tensorflow.losses'$"):
        import tensorflow.losses  # It is not of TensorFlow 2.
    estimator_emb.uninstall()

    import tensorflow.io.gfile, tensorflow.compat.v1.train, tensorflow.lite
    from tensorflow.keras import backend
    estimator_emb.install()
    estimator_emb.install(tf_v1=True)
    estimator_emb.install(tf_v1=True)
    V1 = tensorflow_2.compat.v1
    {EVERY_FORM}
        """
    )


def test_install_prefers_the_wheel_of_its_argument_to_the_variables(installed, monkeypatch):
    monkeypatch.setenv("ESTIMATOR_EMB_CONTRIB", "/nowhere/variable")
    with pytest.raises(ValueError, match="got '/nowhere/argument': there is no such file"):
        ee.install(tf_v1=True, contrib="/nowhere/argument")
