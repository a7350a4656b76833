"""`run --seed` repeats a training, with layers of Keras too."""

import processes
import pytest

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
