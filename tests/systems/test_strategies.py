"""Several replicas or trainings in a process train right, or are refused with the reason."""

import multiprocessing.pool

import harness
import numpy as np
import processes
import pytest
import reference
import tensorflow as tf

import estimator_emb as ee
from estimator_emb.spec import options

STRATEGIES = {
    "MirroredStrategy": lambda: tf.distribute.MirroredStrategy(["/cpu:0"]),
    "MirroredStrategyV1": lambda: tf.compat.v1.distribute.MirroredStrategy(["/cpu:0"]),
    "OneDeviceStrategy": lambda: tf.distribute.OneDeviceStrategy("/cpu:0"),
    "CentralStorageStrategy": lambda: tf.distribute.experimental.CentralStorageStrategy(["/cpu:0"]),
    "CollectiveAllReduceStrategy": lambda: tf.distribute.MultiWorkerMirroredStrategy(),
    "ParameterServerStrategyV1": lambda: (
        tf.compat.v1.distribute.experimental.ParameterServerStrategy()
    ),
}
CALLS = ("train", "eval")


def spec_of(start):
    return harness.table_spec(*start.shape, ee.AdagradParameters(0.1), start)


@pytest.mark.parametrize(
    "name, option, device, tables",
    [
        *((name, f"{call}_distribute", None, True) for name in STRATEGIES for call in CALLS),
        ("MirroredStrategy", "train_distribute", "tpu", True),
        ("MirroredStrategy", "train_distribute", "emulate", True),
        ("MirroredStrategy", "train_distribute", "emulate", False),
    ],
)
def test_tables_and_an_emulated_tpu_refuse_a_strategy(name, option, device, tables, tmp_path):
    config = ee.RunConfig(
        model_dir=str(tmp_path),
        tpu_config=ee.TPUConfig(device=device, num_shards=2) if device else None,
        **{option: STRATEGIES[name]()},
    )
    spec = spec_of(np.zeros([5, 2], np.float32)) if tables else None
    model_fn = harness.gradient_model_fn(["x"])
    given = type(getattr(config, option)).__name__
    what = "an EmbeddingConfigSpec" if tables else "an emulated TPU"
    error = ValueError if tables else options.CannotEmulate
    said = harness.refusal(error, harness.configured, model_fn, spec, config, use_tpu=bool(device))
    assert said.startswith(f"RunConfig: {option} must be None with {what}; got a {given}.")


MIRRORED = """
import sys
import harness
import estimator_emb as ee
import tensorflow as tf

(cpu,) = tf.config.list_physical_devices("CPU")
tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 2)

def model_fn(features, labels, mode, params):
    weight = tf.compat.v1.get_variable("weight", initializer=1.0)
    return harness.minimized(mode, tf.reduce_mean(weight * features["x"]), 0.5)

def input_fn(params):
    batches = tf.data.Dataset.from_tensor_slices({"x": [1.0, 3.0, 5.0, 7.0]})
    return batches.batch(params["batch_size"])

# The default reduction of two CPUs hangs by itself where there are two processors.
strategy = tf.distribute.MirroredStrategy(
    ["/cpu:0", "/cpu:1"], cross_device_ops=tf.distribute.ReductionToOneDevice()
)
config = ee.RunConfig(model_dir=sys.argv[1], train_distribute=strategy, eval_distribute=strategy)
one = harness.configured(model_fn, None, config, 1, use_tpu=False)
one.train(input_fn, steps=2)
print("weight", one.get_variable_value("weight"))
print("loss", one.evaluate(input_fn, steps=2)["loss"])
"""


@pytest.mark.slow
def test_mirrored_replicas_without_tables_train(tmp_path):
    """Stock tensorflow-estimator takes the same steps: 0.5 x mean(1, 3) and 0.5 x mean(5, 7).

    So the weight is 1 - 0.5 * 2 - 0.5 * 6 = -3. The loss is -3 x mean(1, 3, 5, 7).
    """
    done = processes.run(MIRRORED, tmp_path)
    assert done.stdout.split() == ["weight", "-3.0", "loss", "-12.0"]


def branching_model(features, labels, mode, spec):
    """Branches on a tensor, which AutoGraph supports under a strategy, as in stock."""
    weight = tf.compat.v1.get_variable("weight", initializer=1.0)
    if tf.reduce_sum(features["x"]) > 0:  # noqa: SIM108
        sign = 1.0
    else:
        sign = -1.0
    loss = sign * tf.reduce_mean(weight * features["x"])
    optimizer = tf.compat.v1.train.GradientDescentOptimizer(0.5)
    train_op = optimizer.minimize(loss, tf.compat.v1.train.get_or_create_global_step())
    return spec(mode, loss=loss, train_op=train_op)


@pytest.mark.parametrize("kind", ["plain", "local"])
def test_a_strategys_model_branches_and_causes_no_warning(kind, installed, tmp_path, caplog):
    """The log has no line of AutoGraph, and no warning of TensorFlow about the global step.

    TensorFlow warns if two reads of the step are equal. Under a strategy, the reads race with the
    update, so the warning may be wrong and must be hidden. Here a hook logs it in any case.
    """
    text = "It seems that global step (tf.train.get_global_step) has not been increased."
    warns = harness.AfterStep(lambda *_: tf.compat.v1.logging.warning(text))
    run = {**harness.SILENT, "train_distribute": STRATEGIES["MirroredStrategy"]()}
    estimator = harness.of_kind(kind, branching_model, tmp_path, run=run)
    batch = {"x": [-1.0, -3.0]}, [0.0, 0.0]
    batches = lambda params=None: tf.data.Dataset.from_tensors(batch).repeat(2)  # noqa: E731
    estimator.train(batches, hooks=[warns])
    # Two steps at rate 0.5. The loss is -weight * mean(-1, -3), so its gradient is 2.
    assert estimator.get_variable_value("weight") == 1.0 - 2 * 0.5 * 2.0
    assert estimator.get_variable_value("global_step") == 2
    assert text not in caplog.messages and "AutoGraph" not in caplog.text


@pytest.mark.parametrize(
    "shards",
    [(2, None), *(harness.slow(both) for both in [(None, None), (2, 2)])],
    ids=str,
)
def test_two_threads_train_their_own_tables_at_once(shards, tmp_path):
    """Each thread's checkpoint equals two Adagrad steps by NumPy. `shards` has None for no TPU."""

    def trained_and_expected(number):
        start = np.arange(10, dtype=np.float32).reshape(5, 2) * (number + 1)
        gradient = np.full([4, 2], number + 0.5, np.float32)
        batch = {"x": np.array([1, 3, number, 4])}, {"x": gradient}
        model_fn, model_dir = harness.gradient_model_fn(["x"]), tmp_path / str(number)
        where = {"num_shards": shards[number], "run": harness.SILENT}
        one = harness.estimator(model_fn, spec_of(start), model_dir, **where)
        one.train(harness.input_fn_of([batch] * 2), steps=2)
        sums = np.zeros([5, 2])
        np.add.at(sums, batch[0]["x"], gradient)
        once = reference.adagrad(0.1, sums, start, 0.1)
        return harness.saved(model_dir, 2), dict(
            zip(("t", "t/Adagrad"), reference.adagrad(0.1, sums, *once), strict=True), global_step=2
        )

    with multiprocessing.pool.ThreadPool(2) as pool:
        for got, want in pool.map_async(trained_and_expected, (0, 1)).get(processes.HANGS):
            harness.assert_same(got, want, 1e-6, 1e-6)
