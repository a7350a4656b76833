"""Errors for a checkpoint of another optimizer or another model."""

import harness
import numpy as np
import pytest
import tensorflow as tf

from estimator_emb.checkpoints.files.checkpoint_files import MissingCheckpoint

v1 = tf.compat.v1
pytestmark = pytest.mark.usefixtures("installed")
OPTIMIZERS = {
    "sgd": lambda: v1.train.GradientDescentOptimizer(0.1),
    "adagrad": lambda: v1.train.AdagradOptimizer(0.1),
    "adam": lambda: v1.train.AdamOptimizer(0.1),
    "momentum": lambda: v1.train.MomentumOptimizer(0.1, 0.9),
    "rmsprop": lambda: v1.train.RMSPropOptimizer(0.1),
}
MODEL_DIR = "train in another model_dir"
KINDS = ["plain", *(harness.slow(kind) for kind in ("local", "emulated"))]


def make(kind, model_dir, optimizer, first="first", layer="dense", start=None):
    """Returns an estimator with two layers, each with a kernel [3, 3]."""

    def model(features, labels, mode, spec):
        hidden = v1.layers.dense(features["x"], 3, name=first)
        y = v1.layers.dense(hidden, 3, name=layer)
        loss = tf.reduce_mean(tf.square(y - labels))
        of_model = OPTIMIZERS[optimizer]()
        if kind == "emulated":
            of_model = v1.tpu.CrossShardOptimizer(of_model)
        return spec(mode, loss=loss, train_op=of_model.minimize(loss, v1.train.get_global_step()))

    return harness.of_kind(kind, model, model_dir, warm_start_from=start)


def input_fn(params=None):
    x = np.arange(12, dtype=np.float32).reshape(4, 3)
    return harness.dataset([({"x": x}, x)]).repeat()


def refusal(estimator, steps=2):
    with pytest.raises(MissingCheckpoint) as caught:
        estimator.train(input_fn, max_steps=steps)
    return caught.value.message


@pytest.mark.fast(1)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    "before, now, old, new, others",  # others: the missing variables beyond the first.
    [
        ("adam", "adagrad", "Adam", "Adagrad", 3),  # A slot for each of four variables.
        ("sgd", "adam", None, "Adam", 9),  # Two slots for each, and two beta powers.
        harness.slow("adagrad", "adam", "Adagrad", "Adam", 9),
        harness.slow("adagrad", "momentum", "Adagrad", "Momentum", 3),
        harness.slow("momentum", "rmsprop", "Momentum", "RMSProp", 7),
    ],
)
def test_refuses_a_checkpoint_of_another_optimizer(kind, before, now, old, new, others, tmp_path):
    make(kind, tmp_path / "old", before).train(input_fn, max_steps=1)
    path = f"{tmp_path}/old/model.ckpt-1"
    there = f"with {old} there" if old else "without slots there"
    begin, line, remedy = refusal(make(kind, tmp_path / "old", now)).split("\n")
    assert begin == f"Restoring from checkpoint failed: '{path}' does not fit the program:"
    key = line.removeprefix("  Key ").split(" ")[0]  # The first variable that is missing.
    assert key.startswith("beta") or key.rpartition("/")[2].startswith(new)
    assert f"(nor {others} more): the model trains with {new} here, and {there}" in line
    assert (f"train the model with {old} again, or " in remedy) == bool(old)
    assert f"{MODEL_DIR} with warm_start_from='{path}'" in remedy
    # Do as the message says.
    make(kind, tmp_path / "new", now, start=path).train(input_fn, max_steps=1)
    want, got = harness.saved(tmp_path / "old", 1), harness.saved(tmp_path / "new", 0)
    for name in ("first/kernel", "dense/kernel"):
        np.testing.assert_array_equal(got[name], want[name])
    assert all(np.isfinite(value).all() for value in harness.saved(tmp_path / "new", 1).values())


def test_advice_for_missing_slots_renamed_layers_and_other_models(tmp_path, assert_recorded):
    """`assert_recorded` compares the whole advice with tests/messages.json."""
    make("plain", tmp_path / "old", "adagrad").train(input_fn, max_steps=1)
    path = f"{tmp_path}/old/model.ckpt-1"
    start = tf.estimator.WarmStartSettings(path, [".*"])
    message = refusal(make("plain", tmp_path / "new", "momentum", start=start))
    assert "Key first/kernel/Momentum not found in checkpoint (nor 3 more)" in message
    assert_recorded(message)
    message = refusal(make("plain", tmp_path / "old", "adagrad", layer="last"))
    assert "{'last/kernel': 'dense/kernel', 'last/bias': 'dense/bias', ...}" in message
    assert_recorded(message)
    # With another optimizer, too, whose slots are in the checkpoint under no name.
    message = refusal(make("plain", tmp_path / "old", "momentum", layer="last"))
    assert "Momentum': '" not in message
    assert_recorded(message)
    # Layers of another model have the same shapes, and nothing else in common.
    for now in ("adagrad", "adam"):
        message = refusal(make("plain", tmp_path / "old", now, first="a", layer="b"))
        assert "var_name_to_prev_var_name" not in message
        remedy = message[message.index("What to do") :]
        assert remedy == f"What to do: build the model as it was when it was saved, or {MODEL_DIR}."


@pytest.mark.slow
@pytest.mark.parametrize("before, now", [("Adagrad", "Adam"), ("Adam", "Adagrad")])
def test_refuses_a_canned_estimator_with_another_optimizer(before, now, tmp_path):
    columns = [tf.feature_column.numeric_column("x", 3)]

    def canned(optimizer, folder, **start):
        arguments = {"label_dimension": 3, "optimizer": optimizer, **start}
        return tf.estimator.DNNRegressor([3], columns, f"{tmp_path}/{folder}", **arguments)

    canned(before, "old").train(input_fn, max_steps=1)
    message = refusal(canned(now, "old"))
    assert f": the model trains with {now} here, and with {before} there\n" in message
    start = {"warm_start_from": f"{tmp_path}/old/model.ckpt-1"}
    canned(now, "new", **start).train(input_fn, max_steps=1)
