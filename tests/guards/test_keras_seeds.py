"""`RunConfig(tf_random_seed=...)` and `run --seed` repeat a training with Keras's layers."""

import importlib
import random
import types

import harness
import numpy as np
import processes
import pytest
import tensorflow as tf

v1 = tf.compat.v1
X = np.array([[1.0, 2, 3], [4, 6, 5], [2, 0, 1], [1, 1, 9]], np.float32)
SLOW = [pytest.param(kind, marks=pytest.mark.slow) for kind in ("local", "emulated")]
keras_backend = importlib.import_module(
    f"{tf.keras.Model.__module__.partition('.')[0]}.src.backend"
)
LAYERS = {
    "Keras": lambda x: tf.keras.layers.Dropout(0.5)(tf.keras.layers.Dense(2)(x)),
    "tf.layers": lambda x: v1.layers.dropout(v1.layers.dense(x, 2), training=True),
    "TensorFlow": lambda x: tf.nn.dropout(x @ v1.get_variable("w", [3, 2]), 0.5),
}


def input_fn(params=None):
    return tf.data.Dataset.from_tensors(({"x": X}, X[:, :1])).repeat()


def trained(kind, layers, model_dir, seed):
    """Returns the variables after three steps, in a single array."""

    def model(features, labels, mode, spec):
        loss = tf.reduce_mean(tf.square(layers(features["x"]) - labels))
        step = v1.train.get_global_step()
        train_op = v1.train.GradientDescentOptimizer(0.01).minimize(loss, step)
        return spec(mode, loss=loss, train_op=train_op)

    run = {"tf_random_seed": seed}
    estimator = harness.of_kind(kind, model, model_dir, run=run)
    estimator.train(input_fn, max_steps=3)
    names = estimator.get_variable_names()
    return np.concatenate([np.ravel(estimator.get_variable_value(name)) for name in names])


@pytest.mark.fast(1)
@pytest.mark.usefixtures("installed")
@pytest.mark.parametrize("layers", LAYERS)
@pytest.mark.parametrize("kind", ["plain", *SLOW])
def test_a_seed_repeats_a_training(kind, layers, tmp_path):
    first, second, other = [
        trained(kind, LAYERS[layers], tmp_path / str(number), seed)
        for number, seed in enumerate((1, 1, 2))
    ]
    np.testing.assert_array_equal(first, second)
    assert np.abs(first - other).max() > 1e-3


@pytest.mark.usefixtures("installed")
def test_random_states_of_the_program_are_kept(tmp_path, monkeypatch):
    """Training keeps Python's random state, and uses a generator that Keras was given."""
    before = random.getstate()
    first = trained("plain", LAYERS["Keras"], tmp_path / "1", 1)
    assert random.getstate() == before
    kernel = tf.keras.initializers.GlorotUniform()([3, 2])
    random.setstate(before)
    np.testing.assert_array_equal(kernel, tf.keras.initializers.GlorotUniform()([3, 2]))
    monkeypatch.setattr(keras_backend, "_SEED_GENERATOR", types.SimpleNamespace())
    keras_backend._SEED_GENERATOR.generator = random.Random(5)
    given = trained("plain", LAYERS["Keras"], tmp_path / "2", 1)
    assert np.abs(first - given).max() > 1e-3


PROGRAM = """
import random
import numpy as np
import tensorflow as tf

def model_fn(features, labels, mode, params):
    net = tf.compat.v1.layers.dense(tf.keras.layers.Dense(2)(features), 1)
    loss = tf.reduce_mean(tf.square(net * random.random() - np.random.random()))
    step = tf.compat.v1.train.get_global_step()
    train_op = tf.compat.v1.train.GradientDescentOptimizer(0.1).minimize(loss, step)
    return tf.estimator.EstimatorSpec(mode, loss=loss, train_op=train_op)

def input_fn():
    rows = tf.data.Dataset.range(64).shuffle(64).repeat().batch(4)
    return rows.map(lambda row: (tf.cast(row, tf.float32)[:, None], row))

estimator = tf.estimator.Estimator(model_fn{config})
estimator.train(input_fn, steps=3)
values = [estimator.get_variable_value(name) for name in estimator.get_variable_names()]
print(estimator.config.tf_random_seed, [value.tolist() for value in values], random.random())
"""


@pytest.mark.slow
def test_run_with_a_seed_repeats_a_program(tmp_path):
    def said(*options, config=""):
        (tmp_path / "program.py").write_text(PROGRAM.format(config=config))
        return processes.run_command("run", *options, "program.py", cwd=tmp_path).stdout

    first, second, other = [said(f"--seed={seed}") for seed in (7, 7, 8)]
    assert first == second != other
    assert first.startswith("7 ") and other.startswith("8 ")
    assert said() != said()
    assert said("--seed=7", config=", config=tf.estimator.RunConfig(tf_random_seed=3)")[:2] == "3 "
