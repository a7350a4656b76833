"""With `install`, estimators without a TPU get the safeguards of TPUEstimator."""

import functools
import logging
import os
import re
import shutil
import signal

import harness
import numpy as np
import pytest
import tensorflow as tf
from saved_values import save
from tensorflow_estimator.python.estimator.canned.saved_model_estimator import SavedModelEstimator

import estimator_emb as ee
from estimator_emb.checkpoints.files.checkpoint_files import MissingCheckpoint
from estimator_emb.checkpoints.restoring import training_lock
from estimator_emb.checkpoints.restoring.mismatch_report import UnfitCheckpoint

v1 = tf.compat.v1
pytestmark = pytest.mark.usefixtures("installed")


def input_fn(batches=4):
    x = np.linspace(-1, 1, 2 * batches * 3, dtype=np.float32).reshape(-1, 3)
    y = np.float32(x.sum(1, keepdims=True) > 0)
    return tf.data.Dataset.from_tensor_slices(({"x": x}, y)).batch(2)


def make(kind, model_dir, width=4, name="w", strategy=None):
    """Returns an estimator with a layer of a width. `name` names the variable of kind 'own'."""
    config = tf.estimator.RunConfig(str(model_dir), train_distribute=strategy, **harness.SILENT)
    if kind == "canned":
        columns = [tf.feature_column.numeric_column("x", [3])]
        return tf.estimator.DNNClassifier([width], columns, config=config)
    if kind == "keras":
        tf.keras.backend.clear_session()
        given = tf.keras.Input([3], name="x")
        logits = tf.keras.layers.Dense(1)(tf.keras.layers.Dense(width)(given))
        model = tf.keras.Model(given, logits)
        model.compile(tf.keras.optimizers.legacy.SGD(), "mse")
        return tf.keras.estimator.model_to_estimator(model, config=config)

    spec = tf.estimator.EstimatorSpec  # A test calls model_fn after `uninstall`.

    def model_fn(features, labels, mode):
        w = v1.get_variable(name, [3, width], initializer=v1.ones_initializer())
        y = tf.reduce_sum(features["x"] @ w, 1, keepdims=True)
        if labels is None:
            return spec(mode, predictions={"y": y})
        loss = tf.reduce_mean(tf.square(y - labels))
        step = v1.train.GradientDescentOptimizer(0.1).minimize(loss, v1.train.get_global_step())
        return spec(mode, loss=loss, train_op=step)

    return tf.estimator.Estimator(model_fn, config=config)


@pytest.fixture(scope="module")
def trained_folder(tmp_path_factory):
    """Returns a function of a kind. It trains an estimator once, and returns its model_dir."""

    @functools.cache
    def trained(kind):
        return make(kind, tmp_path_factory.mktemp(kind)).train(input_fn, max_steps=1).model_dir

    return trained


receiver = harness.receiver_of(x=(tf.float32, [None, 3]))


def input_that_sends_sigterm():
    """Returns an input_fn that sends this process SIGTERM when it reads the fifth batch."""
    read = []

    def send(x):
        read.append(0)
        if len(read) == 5:
            os.kill(os.getpid(), signal.SIGTERM)
        return x

    def through(features, labels):
        x = tf.ensure_shape(tf.numpy_function(send, [features["x"]], tf.float32), [None, 3])
        return {"x": x}, labels

    options = tf.data.Options()
    options.experimental_optimization.inject_prefetch = False
    return lambda: input_fn().repeat().map(through).with_options(options)


NAMES = {"own": "Estimator", "canned": "DNNClassifier", "keras": "Estimator"}
"""Kind of an estimator, as `make` takes it -> name of its class."""
SIZES = {"own": (1, 3 * 4), "canned": (4, 3 * 4 + 4 + 4 + 1), "keras": (4, 3 * 4 + 4 + 4 + 1)}
"""The number of trainable variables and their total size, counted by hand."""
SLOW = [harness.slow(kind) for kind in NAMES]
of_each_kind = pytest.mark.parametrize("kind", ["own", *SLOW[1:]])


@pytest.mark.parametrize("kind", [*SLOW, "train_and_evaluate"])
def test_sigterm_ends_a_training_with_a_checkpoint(kind, tmp_path, caplog):
    """The training can be resumed. It runs in `train`, or in `train_and_evaluate`."""
    evaluates = kind == "train_and_evaluate"
    estimator = make("own" if evaluates else kind, tmp_path)
    train = input_that_sends_sigterm()
    with pytest.raises(SystemExit) as ended:
        if evaluates:
            specs = tf.estimator.TrainSpec(train, max_steps=50), tf.estimator.EvalSpec(input_fn)
            tf.estimator.train_and_evaluate(estimator, *specs)
        else:
            estimator.train(train, max_steps=50)
    assert ended.value.code == 128 + signal.SIGTERM
    saved = estimator.latest_checkpoint()
    step = int(saved.rpartition("-")[2])
    assert 4 <= step <= 6  # The signal comes while the fifth batch is read, maybe a step ahead.
    at = "" if evaluates else f" at step {step}"  # The last evaluation is abandoned.
    first, *_, last = harness.said(caplog)
    assert first == "SIGTERM: training ends with this step. Another signal ends it at once."
    assert last.startswith(f"SIGTERM ended the training{at}. The model is saved in {saved}: run")
    estimator.train(lambda: input_fn().repeat(), max_steps=step + 2)
    assert estimator.latest_checkpoint() == f"{tmp_path}/model.ckpt-{step + 2}"


@of_each_kind
def test_an_evaluation_without_input_is_an_error(kind, tmp_path):
    nothing = tf.estimator.EvalSpec(lambda: input_fn(0))
    trains = tf.estimator.TrainSpec(input_fn, max_steps=1)
    with pytest.raises(tf.errors.OutOfRangeError, match="^evaluate: input_fn yielded no batch"):
        tf.estimator.train_and_evaluate(make(kind, tmp_path), trains, nothing)


def test_a_training_without_input_is_a_warning(tmp_path, caplog, assert_recorded):
    estimator = make("own", tmp_path).train(lambda: input_fn(0))
    (said,) = harness.said(caplog)
    assert said.startswith("train: input_fn yielded no batch: the input ended before the first")
    assert_recorded(said)
    assert estimator.get_variable_value("global_step") == 0


@of_each_kind
def test_a_training_logs_its_device_and_speed(kind, tmp_path, caplog):
    losses = harness.Fetches(lambda: v1.get_collection(v1.GraphKeys.LOSSES)[-1])
    with caplog.at_level(logging.INFO, "estimator_emb"):
        make(kind, tmp_path).train(input_fn, hooks=[losses], max_steps=3)
    count, size = SIZES[kind]
    said = harness.said(caplog)
    counts = f"{count} trainable variable{'s' * (count > 1)}, {size} parameters"
    assert said[0] == f"{NAMES[kind]} trains on the CPU: {counts}."
    assert len(said) == 2 and len(losses.values) == 3
    loss = f"{np.mean(losses.values):.4f}"
    assert re.fullmatch(rf"step 3 of 3, mean loss {loss}, [\d,]+\.\d steps/s", said[1])


def test_the_parameters_of_unknown_shapes_are_not_counted(tmp_path, caplog):
    def model_fn(features, labels, mode):
        of_any_shape = v1.placeholder_with_default(tf.ones([2]), None)
        v1.get_variable("w", initializer=of_any_shape, validate_shape=False)
        step = v1.assign_add(v1.train.get_global_step(), 1)
        return tf.estimator.EstimatorSpec(mode, loss=tf.reduce_sum(labels), train_op=step)

    with caplog.at_level(logging.INFO, "estimator_emb"):
        tf.estimator.Estimator(model_fn, tmp_path).train(input_fn, steps=1)
    assert harness.said(caplog)[0] == "Estimator trains on the CPU: 1 trainable variable."


CALLS = {
    "evaluate": lambda estimator, folder: estimator.evaluate(input_fn, steps=1),
    "predict": lambda estimator, folder: next(estimator.predict(input_fn)),
    "export": lambda estimator, folder: estimator.export_saved_model(str(folder / "out"), receiver),
    "train": lambda estimator, folder: estimator.train(input_fn, steps=1),
}
MISFITS = {
    "own": "w is [3, 5] here and [3, 4]",
    "canned": "dnn/hiddenlayer_0/kernel is [3, 5] here and [3, 4]",
    "keras": "layer_with_weights-0/kernel/.ATTRIBUTES/VARIABLE_VALUE is [3, 5] here and [3, 4]",
}
"""What a model of width 5 says of a checkpoint of width 4, the default of `make`."""


@of_each_kind
def test_every_call_names_a_variable_of_another_shape(kind, trained_folder, tmp_path):
    folder = trained_folder(kind)
    for call in CALLS.values():
        with pytest.raises(UnfitCheckpoint) as raised:
            call(make(kind, folder, width=5), tmp_path)
        first, *lines, _ = raised.value.message.splitlines()
        assert first.endswith(f"'{folder}/model.ckpt-1' does not fit the program:")
        assert f"  variable {MISFITS[kind]} in the checkpoint" in lines


def test_a_renamed_variable_is_named_with_similar_variables(tmp_path, assert_recorded):
    """The model has a variable "weights". Of the checkpoint's u, v and w, "w" is most similar."""
    values = dict.fromkeys("uvw", np.ones([3, 4], np.float32))
    save(f"{tmp_path}/model.ckpt-1", {**values, "global_step": np.int64(1)})
    for call in (CALLS["export"], CALLS["train"]):
        with pytest.raises(MissingCheckpoint) as raised:
            call(make("own", tmp_path, name="weights"), tmp_path)
        said = "Key weights not found in checkpoint: it is [3, 4], and of that shape the checkpoint"
        assert f"{said} has w, u, v" in raised.value.message
        assert_recorded(raised.value.message)


def test_the_evaluation_of_an_untrained_model_is_a_warning(tmp_path, caplog):
    make("own", tmp_path).evaluate(input_fn)
    assert harness.said(caplog)[0].startswith(
        f"evaluate: Could not find trained model in model_dir: {tmp_path}. Weights that the "
        "program does not load itself have initial values"
    )


def test_checkpoints_without_the_file_that_names_the_latest_are_an_error(tmp_path, trained_folder):
    shutil.copytree(trained_folder("own"), tmp_path, dirs_exist_ok=True)
    (tmp_path / "checkpoint").unlink()
    with pytest.raises(MissingCheckpoint, match="which says which checkpoint is the latest"):
        make("own", tmp_path).evaluate(input_fn)


def warm_started(folder, patterns, tmp_path):
    start = tf.estimator.WarmStartSettings(folder, patterns)
    like, new = make("own", tmp_path), f"{tmp_path}/new"
    return tf.estimator.Estimator(like.model_fn, new, warm_start_from=start)


def test_a_warm_start_refuses_a_pattern_that_fits_no_variable(trained_folder, tmp_path):
    estimator = warm_started(trained_folder("own"), ["nothing"], tmp_path)
    message = harness.refusal(ValueError, estimator.train, input_fn)
    assert "vars_to_warm_start has the pattern 'nothing', which fits no variable" in message
    assert estimator.latest_checkpoint() is None


def test_a_warm_start_begins_at_step_0_with_the_old_values(trained_folder, tmp_path, caplog):
    folder = trained_folder("own")
    old = harness.saved(folder, 1)
    del old["global_step"]
    with caplog.at_level(logging.INFO, "estimator_emb"):
        warm_started(folder, [".*"], tmp_path).train(input_fn, steps=1)
    said = f"Warm start from {folder}: {', '.join(sorted(old))}; initialized: global_step."
    assert said in caplog.messages
    new = harness.saved(tmp_path / "new", 0)
    harness.assert_same({name: new[name] for name in old}, old, 0, 0)


def test_a_second_training_in_a_folder_is_refused(tmp_path):
    begun = f"model_dir '{tmp_path}' is held by this process"
    with training_lock.held(str(tmp_path)), pytest.raises(RuntimeError, match=begun):
        make("own", tmp_path).train(input_fn, steps=1)


@pytest.mark.slow
@pytest.mark.parametrize("kind", NAMES)
def test_a_plain_estimator_computes_the_same_as_stock(kind, tmp_path):
    estimators = []
    for folder in ("ours", "stock"):
        tf.keras.utils.set_random_seed(1)  # Seeds the initial values of Keras.
        estimators.append(make(kind, tmp_path / folder))
    results = []
    for estimator in estimators:
        tf.keras.utils.set_random_seed(1)
        estimator.train(input_fn, steps=3)
        names = [name for name in estimator.get_variable_names() if not name.startswith("_")]
        values = {name: estimator.get_variable_value(name) for name in names}
        results.append([values, estimator.evaluate(input_fn), *estimator.predict(input_fn)])
        ee.uninstall()  # So the second estimator runs as stock does.
    tf.nest.map_structure(np.testing.assert_array_equal, *results)


@pytest.mark.slow
def test_a_saved_model_estimator_causes_no_warning(tmp_path, caplog):
    """Its model_dir has no checkpoint, but its weights are not initial: the SavedModel has them."""
    modes = tf.estimator.ModeKeys
    estimator = make("own", tmp_path / "own").train(input_fn, steps=1)
    with tf.Graph().as_default():
        supervised = tf.estimator.experimental.build_raw_supervised_input_receiver_fn(
            receiver().features, v1.placeholder(tf.float32, [None, 1])
        )
        path = estimator.experimental_export_all_saved_models(
            str(tmp_path / "all"), {modes.TRAIN: supervised, modes.EVAL: supervised}
        )
    again = SavedModelEstimator(path.decode(), str(tmp_path / "again"))
    assert again.evaluate(input_fn)["loss"] == estimator.evaluate(input_fn)["loss"]
    again.train(input_fn, max_steps=3)
    assert again.evaluate(input_fn)["global_step"] == 3
    assert harness.said(caplog) == []


@pytest.mark.slow
def test_a_strategys_replicas_are_logged(tmp_path, caplog):
    strategy = tf.distribute.MirroredStrategy(["/cpu:0"])
    with caplog.at_level(logging.INFO, "estimator_emb"):
        estimator = make("own", tmp_path, strategy=strategy).train(input_fn, max_steps=3)
    said = harness.said(caplog)
    assert said[0] == (
        "Estimator trains on 1 replica of a MirroredStrategy: 1 trainable variable, 12 parameters."
    )
    assert said[1].startswith("step 3 of 3, mean loss ")
    # The safeguards of an evaluation remain, too.
    with pytest.raises(tf.errors.OutOfRangeError, match="there is nothing to evaluate"):
        estimator.evaluate(lambda: input_fn(0))


@pytest.mark.parametrize("kind", ["plain", "local", harness.slow("emulated")])
def test_failed_exports_leave_no_folder(kind, tmp_path):
    """An export may fail at its start, or at its end when it copies a missing file."""

    def model(features, labels, mode, spec):
        y = {"y": tf.reduce_sum(features["x"], 1)}
        outputs = {"serving_default": ee.export.PredictOutput(y)}
        return spec(mode, predictions=y, export_outputs=outputs)

    save(f"{tmp_path}/model/model.ckpt-0", {"global_step": np.int64(0)})
    estimator, folder = harness.of_kind(kind, model, tmp_path / "model"), str(tmp_path / "export")
    with pytest.raises(ZeroDivisionError):
        estimator.export_saved_model(folder, lambda: 1 // 0)
    with pytest.raises(tf.errors.NotFoundError):
        estimator.export_saved_model(folder, receiver, {"a": f"{folder}/missing"})
    assert os.listdir(folder) == []
    path = estimator.export_saved_model(folder, receiver).decode()
    assert os.listdir(folder) == [os.path.basename(path)]
