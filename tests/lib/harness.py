"""Helpers that build and run a whole TPUEstimator on given batches."""

import functools

import numpy as np
import pytest
import tensorflow as tf
from inputs import dataset, endless, input_fn_of, lists, matrix, ones, sparse  # noqa: F401

import estimator_emb as ee

v1 = tf.compat.v1
slow = functools.partial(pytest.param, marks=pytest.mark.slow)
"""Makes a case of `pytest.mark.parametrize` slow."""
IS_2_15 = tf.__version__.startswith("2.15.")
"""Whether TensorFlow still has the modules that later versions removed."""


def normal(rng, *shape):
    """Random float32 numbers. `rng` is a generator or a seed, here and in the functions below."""
    return np.random.default_rng(rng).normal(size=shape).astype(np.float32)


def random_ids(rng, rows, samples, longest):
    """Returns a list of 0 to `longest` random ids of a table for each sample."""
    return [rng.integers(0, rows, rng.integers(0, longest + 1)) for _ in range(samples)]


def random_gradients(rng, spec, samples):
    """Returns random gradients of the activations, by feature."""
    made = {}
    for key, feature in spec.feature_to_config_dict.items():
        length, table = feature.max_sequence_length, spec.table_to_config_dict[feature.table_id]
        made[key] = normal(rng, samples, *([length] if length else []), table.dimension)
    return made


def random_batches(rng, spec, samples, steps, ids=None):
    """Returns (features, gradients of the activations) of each step.

    `ids(rng, key, rows)` returns the ids of a feature. By default each sample has a single id.
    """
    rng, made = np.random.default_rng(rng), []
    ids = ids or (lambda rng, key, rows: rng.integers(0, rows, samples))
    for _ in range(steps):
        features = {}
        for key, feature in spec.feature_to_config_dict.items():
            rows = spec.table_to_config_dict[feature.table_id].vocabulary_size
            features[key] = ids(rng, key, rows)
        made.append((features, random_gradients(rng, spec, samples)))
    return made


def minimized(mode, loss, rate=1.0, optimizer=None, reduction=None, **fields):
    """Returns the TPUEstimatorSpec of a model that minimizes `loss`, averaged over cores.

    Args:
      mode: of model_fn.
      loss: of a core.
      rate: of gradient descent, used if `optimizer` is None.
      optimizer: of the model's variables.
      reduction: of the cores' gradients, instead of the mean.
      **fields: other fields of the TPUEstimatorSpec.
    """
    train_op = None
    if mode == ee.ModeKeys.TRAIN:
        optimizer = optimizer or v1.train.GradientDescentOptimizer(rate)
        optimizer = v1.tpu.CrossShardOptimizer(optimizer, reduction or v1.losses.Reduction.MEAN)
        train_op = optimizer.minimize(loss, v1.train.get_global_step())
    return ee.TPUEstimatorSpec(mode, loss=loss, train_op=train_op, **fields)


def served(mode, spec=ee.TPUEstimatorSpec, /, **predictions):
    """Returns the `spec` of a model that predicts, and exports the same outputs."""
    exported = {"serving_default": ee.export.PredictOutput(predictions)}
    return spec(mode, predictions=predictions, export_outputs=exported)


def gradient_model_fn(keys):
    """Returns a model_fn that predicts activations. Its labels are the activations' gradients."""

    def model_fn(features, labels, mode, params):
        activations = {key: tf.identity(features[key]) for key in keys}
        if mode == ee.ModeKeys.PREDICT:
            return ee.TPUEstimatorSpec(mode, predictions=activations)
        loss = tf.add_n([tf.reduce_sum(activations[key] * labels[key]) for key in keys])
        # Summed, so that the gradients equal the labels for any number of cores.
        return minimized(mode, loss, reduction=v1.losses.Reduction.SUM)

    return model_fn


def table_spec(rows, dimension, optimizer, initial=None, combiner="sum", feature=None, **fields):
    """Returns the spec of a table 't' for a feature 'x'.

    Args:
      rows: of the table.
      dimension: of the table.
      optimizer: of the table.
      initial: initializer of the table, or an array of its initial values.
      combiner: of the table.
      feature: other arguments of the FeatureConfig.
      **fields: other fields of the EmbeddingConfigSpec.
    """
    if isinstance(initial, np.ndarray):
        initial = initializer(initial)
    tables = {"t": ee.TableConfig(rows, dimension, initial, combiner)}
    features = {"x": ee.FeatureConfig("t", **(feature or {}))}
    dicts = {"feature_to_config_dict": features, "table_to_config_dict": tables}
    return ee.EmbeddingConfigSpec(optimization_parameters=optimizer, **dicts, **fields)


def tables_spec(tables, optimizer=None, **fields):
    """Returns the spec of tables {name: TableConfig}, each with a feature of the same name."""
    features = {name: ee.FeatureConfig(name) for name in tables}
    dicts = {"feature_to_config_dict": features, "table_to_config_dict": tables}
    return ee.EmbeddingConfigSpec(optimization_parameters=optimizer, **dicts, **fields)


SILENT = {"tf_random_seed": 1, "save_summary_steps": None, "log_step_count_steps": None}
EACH_STEP = {**SILENT, "save_checkpoints_steps": 1, "keep_checkpoint_max": None}


def estimator(
    model_fn,
    spec,
    model_dir,
    batch_size=4,
    device=None,
    num_shards=None,
    run=EACH_STEP,
    tpu=None,
    **kwargs,
):
    """Returns a TPUEstimator that saves each step and logs nothing. `device` turns use_tpu on.

    Args:
      model_fn: of the TPUEstimator.
      spec: its EmbeddingConfigSpec, or None.
      model_dir: of its RunConfig.
      batch_size: in all modes.
      device: of its TPUConfig. Default: "host", an emulated TPU, if `num_shards` is given.
        "pjrt+tables" is "pjrt" with the tables on the devices.
      num_shards: the number of cores.
      run: other arguments of its RunConfig.
      tpu: other arguments of its TPUConfig.
      **kwargs: other arguments of the TPUEstimator.
    """
    device = device or ("host" if num_shards else None)
    of_tpu = {"iterations_per_loop": 1, "device": device, "num_shards": num_shards, **(tpu or {})}
    if of_tpu["device"] == "pjrt+tables":
        of_tpu |= {"device": "pjrt", "tables": "device"}
    config = ee.RunConfig(model_dir=str(model_dir), tpu_config=ee.TPUConfig(**of_tpu), **run)
    kwargs.setdefault("use_tpu", device is not None)
    return configured(model_fn, spec, config, batch_size, **kwargs)


def of_kind(kind, model, model_dir, batch_size=4, run=EACH_STEP, **kwargs):
    """Returns an estimator for `model(features, labels, mode, spec)`, which returns a `spec`.

    Args:
      kind: "plain" for an Estimator, which only `install` guards. "local" for a TPUEstimator with
        use_tpu=False, "emulated" for one core of an emulated TPU.
      model: the model_fn; its last argument is the class of its return value.
      model_dir: of its RunConfig.
      batch_size: of a TPUEstimator, in all modes.
      run: other arguments of its RunConfig.
      **kwargs: other arguments of the estimator.
    """
    if kind == "plain":

        def model_fn(features, labels, mode):
            return model(features, labels, mode, tf.estimator.EstimatorSpec)

        config = tf.estimator.RunConfig(model_dir=str(model_dir), **run)
        return tf.estimator.Estimator(model_fn, config=config, **kwargs)
    return estimator(
        lambda features, labels, mode, params: model(features, labels, mode, ee.TPUEstimatorSpec),
        None,
        model_dir,
        batch_size,
        num_shards=1 if kind == "emulated" else None,
        run=run,
        **kwargs,
    )


def configured(model_fn, spec, config, batch_size=4, of_class=ee.TPUEstimator, **kwargs):
    """Returns a TPUEstimator with the same batch size in all modes."""
    sizes = ("train_batch_size", "eval_batch_size", "predict_batch_size")
    arguments = {**dict.fromkeys(sizes, batch_size), **kwargs}
    return of_class(model_fn, config=config, embedding_config_spec=spec, **arguments)


def initializer(values):
    """Returns a table initializer that gives `values`: a callable, as legacy programs pass it."""

    def initial(shape, dtype=tf.float32, partition_info=None):
        # Each host of a TPU asks for its own part of the table.
        start = partition_info.var_offset[0] if partition_info else 0
        part = values[start : start + shape[0]]
        assert list(shape) == list(np.shape(part))
        return tf.constant(part, dtype)

    return initial


def saved(model_dir, step):
    """Returns the variables of a checkpoint, by name."""
    reader = tf.train.load_checkpoint(f"{model_dir}/model.ckpt-{step}")
    return {name: reader.get_tensor(name) for name in reader.get_variable_to_shape_map()}


def last_step(model_dir):
    """Returns the step of the latest checkpoint, or 0."""
    return int((tf.train.latest_checkpoint(str(model_dir)) or "-0").rpartition("-")[2])


def receiver_of(**inputs):
    """Returns a serving_input_receiver_fn of placeholders, given the dtype and shape of each."""

    def receive():
        given = {key: v1.placeholder(*one, name=key) for key, one in inputs.items()}
        return ee.export.ServingInputReceiver(given, dict(given))

    return receive


def exported(estimator, folder, receive):
    """Exports a SavedModel and returns its serving function."""
    path = estimator.export_saved_model(str(folder), receive).decode()
    return tf.saved_model.load(path).signatures["serving_default"]


def run(call, estimator, input_fn, **kwargs):
    """Trains, evaluates or predicts to the end, and returns the call's result."""
    done = getattr(estimator, call)(input_fn, **kwargs)
    return list(done) if call == "predict" else done


class AfterStep(v1.train.SessionRunHook):
    """Calls a function after each step."""

    def __init__(self, function):
        self._function = function

    def after_run(self, run_context, run_values):
        self._function()


class Reads(v1.train.SessionRunHook):
    """Calls `function` for a tensor when the session begins. Reads the tensor after each step."""

    def __init__(self, function, seen=None):
        self._function = function
        self.seen = [] if seen is None else seen

    def begin(self):
        self._read = self._function()

    def after_run(self, run_context, run_values):
        self.seen.append(run_context.session.run(self._read))


class Fetches(v1.train.SessionRunHook):
    """Fetches the tensor that `function` returns together with each step."""

    def __init__(self, function):
        self._function = function
        self.values = []

    def before_run(self, run_context):
        return v1.train.SessionRunArgs(self._function())

    def after_run(self, run_context, run_values):
        self.values.append(run_values.results.tolist())


def assert_same(got, want, rtol=1e-5, atol=1e-5):
    """Asserts that two dicts hold the same arrays, up to rounding."""
    assert want and got.keys() == want.keys()
    for name, value in want.items():
        given = np.float64(got[name]), np.float64(value)
        np.testing.assert_allclose(*given, rtol, atol, err_msg=name)


def summaries(model_dir):
    """Returns the scalars {step: {tag: value}} of a directory's event files."""
    found = {}
    for path in sorted(tf.io.gfile.glob(f"{model_dir}/events.out.*")):
        for event in v1.train.summary_iterator(path):
            for value in event.summary.value:
                of_step = found.setdefault(event.step, {})
                assert value.tag not in of_step, value.tag
                of_step[value.tag] = value.simple_value
    return found


def said(caplog):
    """Returns the messages of our own log. TensorFlow's may be about objects of other tests."""
    return [one.getMessage() for one in caplog.records if one.name == "estimator_emb"]


def refusal(error, call, *args, **kwargs):
    """Asserts that a call raises exactly class `error`, and returns the message."""
    with pytest.raises(error) as caught:
        call(*args, **kwargs)
    assert caught.type is error
    return str(caught.value)
