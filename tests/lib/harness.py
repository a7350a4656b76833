"""Drives a whole TPUEstimator over given batches, for tests of the engine."""

import numpy as np
import pytest
import tensorflow as tf

import estimator_emb as ee

v1 = tf.compat.v1
IS_2_15 = tf.__version__.startswith("2.15.")
"""Whether TensorFlow itself has the modules that later ones dropped."""


def sparse(rows, dtype=np.int64):
    """Lists of values per sample as a SparseTensorValue [batch, longest]."""
    indices = [[i, j] for i, row in enumerate(rows) for j in range(len(row))]
    values = np.array([value for row in rows for value in row], dtype)
    shape = [len(rows), max([len(row) for row in rows] + [1])]
    return v1.SparseTensorValue(
        np.array(indices, np.int64).reshape(-1, 2), values, np.array(shape, np.int64)
    )


def lists(sparse):
    """The lists of values per sample of a SparseTensorValue."""
    found = [[] for _ in range(sparse.dense_shape[0])]
    for (row, _), value in zip(sparse.indices, sparse.values, strict=True):
        found[row].append(value)
    return found


def matrix(rows, width, dtype=np.int64, fill=-1):
    """Lists of values per sample as a matrix [batch, width]."""
    return np.array([[*row, *[fill] * (width - len(row))] for row in rows], dtype)


def ones(ids):
    """A weight 1 for each of lists of ids."""
    return [[1.0] * len(of_sample) for of_sample in ids]


def normal(rng, *shape):
    """Random float32 numbers; `rng` is a generator or a seed, as in the functions below."""
    return np.random.default_rng(rng).normal(size=shape).astype(np.float32)


def random_ids(rng, rows, samples, longest):
    """Lists of up to `longest` ids of a table with some rows, one for each sample."""
    return [rng.integers(0, rows, rng.integers(0, longest + 1)) for _ in range(samples)]


def random_gradients(rng, spec, samples):
    """Gradients of the activations, by feature."""
    made = {}
    for key, feature in spec.feature_to_config_dict.items():
        length, table = feature.max_sequence_length, spec.table_to_config_dict[feature.table_id]
        made[key] = normal(rng, samples, *([length] if length else []), table.dimension)
    return made


def random_batches(rng, spec, samples, steps, ids=None):
    """The (features, gradients of the activations) of each step.

    `ids(rng, key, rows)` returns the ids of a feature; without it, each sample has one id.
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


def dataset(batches):
    """A dataset of the given (features, labels) batches; sparse and ragged values stay so."""

    def tensors(value):
        if isinstance(value, v1.SparseTensorValue):
            return tf.SparseTensor(*value)
        if isinstance(value, v1.ragged.RaggedTensorValue):
            return tf.RaggedTensor.from_row_splits(value.values, value.row_splits)
        if tf.is_tensor(value):
            return value
        if isinstance(value, dict):
            return {key: tensors(one) for key, one in value.items()}
        return tf.constant(value)

    whole = None
    for features, labels in batches:
        one = tf.data.Dataset.from_tensors((tensors(features), tensors(labels)))
        whole = one if whole is None else whole.concatenate(one)
    return whole


def input_fn_of(batches):
    def input_fn(params):
        return dataset(batches)

    return input_fn


def minimized(mode, loss, rate=1.0, optimizer=None, reduction=None, **fields):
    """The TPUEstimatorSpec of a model that trains by the mean of the cores' gradients.

    Args:
      mode: of model_fn.
      loss: of a core.
      rate: of gradient descent, where no `optimizer` is given.
      optimizer: of the model's variables.
      reduction: another one of the cores' gradients.
      **fields: others of the TPUEstimatorSpec.
    """
    train_op = None
    if mode == ee.ModeKeys.TRAIN:
        optimizer = optimizer or v1.train.GradientDescentOptimizer(rate)
        optimizer = v1.tpu.CrossShardOptimizer(optimizer, reduction or v1.losses.Reduction.MEAN)
        train_op = optimizer.minimize(loss, v1.train.get_global_step())
    return ee.TPUEstimatorSpec(mode, loss=loss, train_op=train_op, **fields)


def served(mode, **predictions):
    """The TPUEstimatorSpec of a model that predicts, and serves the same when it is exported."""
    exported = {"serving_default": ee.export.PredictOutput(predictions)}
    return ee.TPUEstimatorSpec(mode, predictions=predictions, export_outputs=exported)


def gradient_model_fn(keys):
    """A model whose activation gradients are the labels, and whose predictions the activations."""

    def model_fn(features, labels, mode, params):
        activations = {key: tf.identity(features[key]) for key in keys}
        if mode == ee.ModeKeys.PREDICT:
            return ee.TPUEstimatorSpec(mode, predictions=activations)
        loss = tf.add_n([tf.reduce_sum(activations[key] * labels[key]) for key in keys])
        # A sum: the labels are the gradients, whatever the number of cores.
        return minimized(mode, loss, reduction=v1.losses.Reduction.SUM)

    return model_fn


def table_spec(rows, dimension, optimizer, initial=None, combiner="sum", feature=None, **fields):
    """The spec of one table, 't', which the feature 'x' looks up.

    Args:
      rows: of the table.
      dimension: of the table.
      optimizer: of the table.
      initial: its initializer; an array is the values that it begins with.
      combiner: of the table.
      feature: other arguments of the FeatureConfig.
      **fields: others of the EmbeddingConfigSpec.
    """
    if isinstance(initial, np.ndarray):
        initial = initializer(initial)
    return ee.EmbeddingConfigSpec(
        feature_to_config_dict={"x": ee.FeatureConfig("t", **(feature or {}))},
        table_to_config_dict={"t": ee.TableConfig(rows, dimension, initial, combiner)},
        optimization_parameters=optimizer,
        **fields,
    )


def tables_spec(tables, optimizer=None, **fields):
    """The spec of tables by their names, each with a feature of its name."""
    return ee.EmbeddingConfigSpec(
        feature_to_config_dict={name: ee.FeatureConfig(name) for name in tables},
        table_to_config_dict=tables,
        optimization_parameters=optimizer,
        **fields,
    )


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
    """A TPUEstimator that saves each step and logs nothing; on a TPU where there is a device.

    Args:
      model_fn: of the TPUEstimator.
      spec: its EmbeddingConfigSpec, or None.
      model_dir: of its RunConfig.
      batch_size: in all modes.
      device: of its TPUConfig; "host", an emulated TPU, where only `num_shards` is given;
        "pjrt+tables" has its tables on the devices too.
      num_shards: the number of cores.
      run: other arguments of its RunConfig.
      tpu: other arguments of its TPUConfig.
      **kwargs: others of the TPUEstimator.
    """
    device = device or ("host" if num_shards else None)
    of_tpu = {"iterations_per_loop": 1, "device": device, "num_shards": num_shards, **(tpu or {})}
    if of_tpu["device"] == "pjrt+tables":
        of_tpu |= {"device": "pjrt", "tables": "device"}
    config = ee.RunConfig(model_dir=str(model_dir), tpu_config=ee.TPUConfig(**of_tpu), **run)
    kwargs.setdefault("use_tpu", device is not None)
    return configured(model_fn, spec, config, batch_size, **kwargs)


def of_kind(kind, model, model_dir, batch_size=4, run=EACH_STEP, **kwargs):
    """An estimator of `model(features, labels, mode, spec)`, which returns a `spec`.

    Args:
      kind: "plain" for an Estimator, which only `install` guards; a TPUEstimator is "local", with
        use_tpu=False, or "emulated", of one core.
      model: the model_fn, with the class of its return value.
      model_dir: of its RunConfig.
      batch_size: of a TPUEstimator, in all modes.
      run: other arguments of its RunConfig.
      **kwargs: others of the estimator.
    """
    if kind == "plain":
        return tf.estimator.Estimator(
            lambda features, labels, mode: model(
                features, labels, mode, tf.estimator.EstimatorSpec
            ),
            config=tf.estimator.RunConfig(model_dir=str(model_dir), **run),
            **kwargs,
        )
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
    """A TPUEstimator whose batches have one size in all modes."""
    sizes = ("train_batch_size", "eval_batch_size", "predict_batch_size")
    return of_class(
        model_fn,
        config=config,
        embedding_config_spec=spec,
        **{**dict.fromkeys(sizes, batch_size), **kwargs},
    )


def initializer(values):
    """A table initializer that gives `values`, from a callable as legacy programs pass one."""

    def initial(shape, dtype=tf.float32, partition_info=None):
        # On the hosts of a TPU, a part of the table.
        start = partition_info.var_offset[0] if partition_info else 0
        part = values[start : start + shape[0]]
        assert list(shape) == list(np.shape(part))
        return tf.constant(part, dtype)

    return initial


def saved(model_dir, step):
    """The variables of a checkpoint, by name."""
    reader = tf.train.load_checkpoint(f"{model_dir}/model.ckpt-{step}")
    return {name: reader.get_tensor(name) for name in reader.get_variable_to_shape_map()}


def last_step(model_dir):
    """The step of the latest checkpoint, or 0."""
    return int((tf.train.latest_checkpoint(str(model_dir)) or "-0").rpartition("-")[2])


def receiver_of(**inputs):
    """A serving_input_receiver_fn of placeholders, by the dtype and shape of each."""

    def receive():
        given = {key: v1.placeholder(*one, name=key) for key, one in inputs.items()}
        return ee.export.ServingInputReceiver(given, dict(given))

    return receive


def exported(estimator, folder, receive):
    """Exports a SavedModel, and returns the function that serves it."""
    path = estimator.export_saved_model(str(folder), receive).decode()
    return tf.saved_model.load(path).signatures["serving_default"]


def run(call, estimator, input_fn, **kwargs):
    """Trains, evaluates or predicts, to the end; returns what the call does."""
    done = getattr(estimator, call)(input_fn, **kwargs)
    return list(done) if call == "predict" else done


class AfterStep(v1.train.SessionRunHook):
    """Calls a function after each step."""

    def __init__(self, function):
        self._function = function

    def after_run(self, run_context, run_values):
        self._function()


class Reads(v1.train.SessionRunHook):
    """After each step, keeps the value of what a function returned when the session began."""

    def __init__(self, function, seen=None):
        self._function = function
        self.seen = [] if seen is None else seen

    def begin(self):
        self._read = self._function()

    def after_run(self, run_context, run_values):
        self.seen.append(run_context.session.run(self._read))


class Fetches(v1.train.SessionRunHook):
    """Fetches beside each step the tensor that a function returns."""

    def __init__(self, function):
        self._function = function
        self.values = []

    def before_run(self, run_context):
        return v1.train.SessionRunArgs(self._function())

    def after_run(self, run_context, run_values):
        self.values.append(run_values.results.tolist())


def same(got, want, rtol=1e-5, atol=1e-5):
    """Asserts that dicts have the same arrays, but for rounding."""
    assert want and got.keys() == want.keys()
    for name, value in want.items():
        given = np.float64(got[name]), np.float64(value)
        np.testing.assert_allclose(*given, rtol, atol, err_msg=name)


def summaries(model_dir):
    """The scalars {step: {tag: value}} of the event files of a directory, each written once."""
    found = {}
    for path in sorted(tf.io.gfile.glob(f"{model_dir}/events.out.*")):
        for event in v1.train.summary_iterator(path):
            for value in event.summary.value:
                of_step = found.setdefault(event.step, {})
                assert value.tag not in of_step, value.tag
                of_step[value.tag] = value.simple_value
    return found


def said(caplog):
    """Returns the lines of our own log, without what TensorFlow says of another test's objects."""
    return [one.getMessage() for one in caplog.records if one.name == "estimator_emb"]


def refusal(error, call, *args, **kwargs):
    """Returns the message of the error, of exactly one class, that a call raises."""
    with pytest.raises(error) as caught:
        call(*args, **kwargs)
    assert caught.type is error
    return str(caught.value)
