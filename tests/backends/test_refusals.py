# SPDX-License-Identifier: Apache-2.0
"""What a TPU refuses, an emulated one refuses, by the same exception and phrase.

The judge is tensorflow-estimator on a TPU that is only described: every program below is built
there too, as far as a session, and must fail there as it fails here.
"""

import logging
import re

import harness
import numpy as np
import pytest
import tensorflow as tf
import tpu_described
from tensorflow.python.ops import control_flow_util
from tensorflow_estimator.python.estimator.tpu import tpu_estimator

import estimator_emb as ee
import feature_columns as fc

v1 = tf.compat.v1
PIPELINES = ee.InputPipelineConfig
CORES = tpu_described.CORES_PER_HOST
BATCH = 4 * CORES


@pytest.fixture(autouse=True)
def loops_of_the_v1_kind(monkeypatch):
    """In which a TPU's errors have the phrases that people know."""
    monkeypatch.setattr(control_flow_util, "ENABLE_CONTROL_FLOW_V2", False)


def sparse(values, size, width=2):
    """`width` values in each of `size` samples."""
    places = [[sample, column] for sample in range(size) for column in range(width)]
    flat = tf.tile(tf.constant(values), [size])[: size * width]
    return tf.SparseTensor(places, flat, [size, width])


class Program:
    """A small program, of which each case changes something.

    Args:
      spec: its EmbeddingConfigSpec, or None.
      columns: those that model_fn uses; None uses activations by their keys.
      layer: 'DenseFeatures' or 'input_layer'.
      features: of a batch size, the features besides 'x'.
      in_model: called in model_fn with the loss; returns fields of its TPUEstimatorSpec.
      in_input: called in input_fn.
      as_tensors: whether input_fn returns tensors, not a dataset.
      labels: whether there are any.
      **tpu: of TPUConfig.
    """

    def __init__(
        self,
        spec=None,
        columns=None,
        layer="DenseFeatures",
        features=lambda size: {},
        in_model=lambda loss: {},
        in_input=lambda: None,
        as_tensors=False,
        labels=True,
        topology=None,
        replicas=CORES,
        **tpu,
    ):
        self.spec, self.columns, self.layer, self.features = spec, columns, layer, features
        self.in_model, self.in_input, self.as_tensors = in_model, in_input, as_tensors
        self.labels, self.topology, self.replicas, self.tpu = labels, topology, replicas, tpu

    def input_fn(self, params):
        size = params["batch_size"]
        self.in_input()

        def batch(_):
            features = {"x": tf.ones([size, 3]), **self.features(size)}
            return (features, tf.ones([size, 1])) if self.labels else features

        dataset = tf.data.Dataset.range(100).map(batch)
        return v1.data.make_one_shot_iterator(dataset).get_next() if self.as_tensors else dataset

    def model_fn(self, features, labels, mode, params):
        x = [tf.reshape(features["x"], [-1, 3])]
        if self.columns is not None and self.layer == "input_layer":
            x.append(fc.input_layer(features, self.columns))
        elif self.columns is not None:
            x.append(fc.DenseFeatures(self.columns)(features))
        elif self.spec is not None:
            x += [features[key] for key in sorted(self.spec.feature_to_config_dict)]
        w = v1.get_variable("w", initializer=1.0)
        loss = tf.add_n([tf.reduce_sum(part) for part in x]) * w
        optimizer = v1.tpu.CrossShardOptimizer(v1.train.GradientDescentOptimizer(0.1))
        train_op = optimizer.minimize(loss, v1.train.get_global_step())
        more = self.in_model(loss)
        fields = {"loss": loss, "predictions": {"x": features["x"] * w}, **more}
        return ee.TPUEstimatorSpec(mode, train_op=train_op, **fields)

    def emulated(self, model_dir):
        """Its estimator: emulated, or with `use_tpu=False` where `replicas` is None."""
        of_tpu = {"iterations_per_loop": 2, "num_shards": self.replicas, **self.tpu}
        tpu_config = ee.TPUConfig(**of_tpu, device="host")
        config = ee.RunConfig(model_dir=str(model_dir), tpu_config=tpu_config)
        use_tpu = self.replicas is not None
        return harness.configured(self.model_fn, self.spec, config, BATCH, use_tpu=use_tpu)

    def described(self, model_dir):
        topology = None
        if self.tpu.get("num_cores_per_replica"):
            topology = tf.tpu.experimental.Topology(
                mesh_shape=[1, 1, 1, 2], device_coordinates=[[[0, 0, 0, 0], [0, 0, 0, 1]]]
            )
        return tpu_described.estimator(
            self.model_fn,
            self.spec,
            model_dir,
            batch=BATCH,
            topology=topology,
            tpu_config=ee.TPUConfig(2, **self.tpu),
        )


PARAMETERS = ee.StochasticGradientDescentParameters(0.1)


def weighted(keys, weight_keys, of=lambda key: fc.categorical_column_with_identity(key, 5)):
    columns = [
        fc.embedding_column(fc.weighted_categorical_column(of(key), weights), 2)
        for key, weights in zip(keys, weight_keys, strict=True)
    ]
    return ee.EmbeddingConfigSpec(columns, PARAMETERS), columns


def by_dicts(combiner="mean", **features):
    return ee.EmbeddingConfigSpec(
        feature_to_config_dict={
            key: ee.FeatureConfig("t", **config) for key, config in features.items()
        },
        table_to_config_dict={"t": ee.TableConfig(5, 2, combiner=combiner)},
        optimization_parameters=PARAMETERS,
    )


def ids_and_weights(*keys, of=(1, 2), weights=("w",)):
    return lambda size: {
        **{key: sparse(list(of), size) for key in keys},
        **{key: sparse([0.5, 1.5], size) for key in weights},
    }


def vocabulary(key):
    return fc.categorical_column_with_vocabulary_list(key, ["ant", "bee", "cat"])


def of_columns(made, layer="DenseFeatures", **kwargs):
    spec, columns = made
    return Program(spec, columns, layer, **kwargs)


class Fetches(v1.train.SessionRunHook):
    """Asks the session for a tensor, and may make ops of it when the session begins."""

    def __init__(self, tensor, makes=False):
        self.tensor, self.makes = tensor, makes

    def begin(self):
        if self.makes:
            self.tensor = self.tensor * 2.0

    def before_run(self, run_context):
        return v1.train.SessionRunArgs(self.tensor)


def queue():
    v1.train.input_producer(tf.constant([1, 2, 3]))


def summary(loss):
    v1.summary.scalar("mine", loss)
    return {}


def fixed_table(loss):
    table = tf.lookup.StaticHashTable(
        tf.lookup.KeyValueTensorInitializer([1, 2], [3.0, 4.0], tf.int64, tf.float32), 0.0
    )
    return {"loss": loss + table.lookup(tf.constant(1, tf.int64))}


def table_that_grows(loss):
    table = tf.lookup.experimental.MutableHashTable(tf.int64, tf.float32, 0.0)
    return {"loss": loss + table.lookup(tf.constant(1, tf.int64))}


def of_type(dtype):
    """A program with a feature of a type that no table looks up."""
    value = "a" if dtype == tf.string else 1
    return Program(features=lambda size: {"b": tf.cast(tf.fill([size], value), dtype)})


def loss_of_type(dtype):
    return Program(in_model=lambda loss: {"loss": tf.cast(loss, dtype)})


def reference_variable(loss):
    variable = v1.get_variable("r", initializer=1.0, use_resource=False)
    return {"loss": loss + v1.assign_add(variable, 1.0)}


def finalize_reads(loss):
    scaffold = v1.train.Scaffold()
    finalize = scaffold.finalize

    def reading():
        tf.identity(loss)
        return finalize()

    def scaffold_fn():
        scaffold.finalize = reading
        return scaffold

    return {"scaffold_fn": scaffold_fn}


IN_LOOP = "because 'mul' is in a while loop"
SHARED = "weight-sharing among weighted_categorical_column is not supported on TPU"
STRINGS = "SparseTensor with string as values are not supported"
TWO_WEIGHTED = {"features": ids_and_weights("a", "b")}
WORDS = {"features": ids_and_weights("a", of=("ant", "bee"))}
DIMS = {"num_cores_per_replica": 2, "per_host_input_for_training": PIPELINES.PER_HOST_V2}


def divided(*dims, **kwargs):
    return Program(input_partition_dims=list(dims), replicas=1, **DIMS, **kwargs)


# What is refused -> (a program, the exception, the phrase that a TPU's error has, how far the
# described TPU must go to refuse it: 'train', or 'begin' for what it refuses as a session begins).
CASES = {
    "shared weights, columns": (
        lambda: of_columns(weighted("ab", "ww"), **TWO_WEIGHTED), ValueError, SHARED, "train",
    ),
    "shared weights, input_layer": (
        lambda: of_columns(weighted("ab", "ww"), "input_layer", **TWO_WEIGHTED),
        ValueError, SHARED, "train",
    ),
    "shared weights, config dicts": (
        lambda: Program(
            by_dicts(a={"weight_key": "w"}, b={"weight_key": "w"}), **TWO_WEIGHTED
        ),
        ValueError, SHARED, "train",
    ),
    "shared weights, PER_HOST_V2": (
        lambda: of_columns(
            weighted("ab", "ww"),
            per_host_input_for_training=PIPELINES.PER_HOST_V2,
            **TWO_WEIGHTED,
        ),
        ValueError, SHARED, "train",
    ),
    "a weighted vocabulary column": (
        lambda: of_columns(weighted("a", "w", vocabulary), **WORDS), ValueError, STRINGS, "train",
    ),
    "a weighted vocabulary column, input_layer": (
        lambda: of_columns(weighted("a", "w", vocabulary), "input_layer", **WORDS),
        ValueError, STRINGS, "train",
    ),
    "a vocabulary column": (
        lambda: of_columns(
            (
                ee.EmbeddingConfigSpec([fc.embedding_column(vocabulary("a"), 2)], PARAMETERS),
                [fc.embedding_column(vocabulary("a"), 2)],
            ),
            features=ids_and_weights("a", of=("ant", "bee"), weights=()),
        ),
        ValueError, STRINGS, "train",
    ),
    "strings, config dicts": (
        lambda: Program(
            by_dicts(a={}), features=ids_and_weights("a", of=("ant", "bee"), weights=())
        ),
        ValueError, STRINGS, "train",
    ),
    "weights of dense ids, one for each sample": (
        lambda: Program(
            by_dicts(None, a={"weight_key": "w"}),
            features=lambda size: {"a": tf.ones([size], tf.int64), "w": tf.ones([size])},
        ),
        ValueError, "Found weights w for weighted_categorical_column, which is not", "train",
    ),
    "missing weights": (
        lambda: of_columns(weighted("a", "w"), features=ids_and_weights("a", weights=())),
        ValueError, "weights w", "train",
    ),
    "dense weights of sparse ids": (
        lambda: of_columns(
            weighted("a", "w"),
            features=lambda size: {"a": sparse([1, 2], size), "w": tf.ones([size, 2])},
        ),
        ValueError,
        "weighted_categorical_column with weight key name w has dense weights", "train",
    ),
    **{
        f"a feature of {dtype.name}": (
            lambda dtype=dtype: of_type(dtype), TypeError,
            f"{dtype} is not a supported TPU infeed type. Supported types are: ", "train",
        )
        for dtype in (tf.string, tf.float64, tf.float16, tf.int16, tf.uint16, tf.complex128)
    },
    "a sparse feature": (
        lambda: Program(
            features=lambda size: {"b": sparse([1, 2], size)},
            per_host_input_for_training=PIPELINES.PER_HOST_V2,
        ),
        TypeError, "Can not convert a SparseTensor into a Tensor", "train",
    ),
    "a scalar feature": (
        lambda: Program(features=lambda size: {"b": tf.constant(1.0)}), ValueError,
        "Shape [] does not contain shard_dimension 0", "train",
    ),
    "a scalar feature, PER_HOST_V2": (
        lambda: Program(
            features=lambda size: {"b": tf.constant(1.0)},
            per_host_input_for_training=PIPELINES.PER_HOST_V2,
        ),
        ValueError, "Shape [] does not contain shard_dimension 0", "train",
    ),
    **{
        f"a loss of {dtype.name}": (
            lambda dtype=dtype: loss_of_type(dtype), TypeError,
            "Mismatch between input types and output types for training loop body: "
            f"[tf.int32, tf.float32] vs [tf.int32, {dtype!r}]", "train",
        )
        for dtype in (tf.float64, tf.float16, tf.bfloat16)
    },
    "a reference variable": (
        lambda: Program(in_model=reference_variable), NotImplementedError,
        "Non-resource Variables are not supported inside TPU computations (operator name: ",
        "train",
    ),
    "a lookup table": (
        lambda: Program(in_model=fixed_table), ValueError, "must be from the same graph as",
        "begin, v2",
    ),
    "a lookup table that grows": (
        lambda: Program(in_model=table_that_grows), ValueError, "must be from the same graph as",
        "begin, v2",
    ),
    "input_partition_dims: negative": (
        lambda: divided({"x": [-1, 2]}), ValueError,
        "All input partition dims must be >= 1.", "train",
    ),
    "input_partition_dims: another product": (
        lambda: divided({"x": [4, 1]}), ValueError,
        "The product of each input partition dim should equal to num_cores_per_replica.", "train",
    ),
    "input_partition_dims: another rank": (
        lambda: divided({"x": [2]}), ValueError,
        "Input partition dims must have the same number of dimensions as the `Tensor` to be "
        "partitioned.", "train",
    ),
    "input_partition_dims: other keys": (
        lambda: divided({"y": [2, 1]}), ValueError,
        "TPUConfig.input_partition_dims[0] mismatched feature keys. Expected ['x'], got ['y']",
        "train",
    ),
    "input_partition_dims: no keys": (
        lambda: divided([2, 1]), ValueError,
        "TPUConfig.input_partition_dims[0] mismatched feature keys. Expected ['x'], got []",
        "train",
    ),
    "input_partition_dims: labels of other keys": (
        lambda: divided({"x": [2, 1]}, {"y": [2, 1]}), ValueError,
        "TPUConfig.input_partition_dims[1] mismatched label keys. Expected [], got ['y']", "train",
    ),
    "input_partition_dims: labels of another rank": (
        lambda: divided({"x": [2, 1]}, [2, 1, 1]), ValueError,
        "Input partition dims must have the same number of dimensions", "train",
    ),
    "a summary of model_fn": (
        lambda: Program(in_model=summary), ValueError,
        "Cannot use 'mine' as input to 'Merge/MergeSummary' because 'mine' is in a while loop",
        "begin",
    ),
    "scaffold_fn with a tensor of the TPU": (
        lambda: Program(in_model=lambda loss: {"scaffold_fn": lambda: loss + 1.0}), ValueError,
        IN_LOOP, "train",
    ),
    "Scaffold.finalize with a tensor of the TPU": (
        lambda: Program(in_model=finalize_reads), ValueError, IN_LOOP, "begin",
    ),
    "a hook that makes an op of a tensor of the TPU": (
        lambda: Program(in_model=lambda loss: {"training_hooks": [Fetches(loss, makes=True)]}),
        ValueError, IN_LOOP, "begin",
    ),
    "a hook that fetches a tensor of the TPU": (
        lambda: Program(in_model=lambda loss: {"training_hooks": [Fetches(loss)]}), ValueError,
        "has been marked as not fetchable", "run",
    ),
    "LoggingTensorHook of the loss": (
        lambda: Program(
            in_model=lambda loss: {
                "training_hooks": [v1.train.LoggingTensorHook({"mine": loss}, every_n_iter=1)]
            }
        ),
        ValueError, "has been marked as not fetchable", "run",
    ),
    "PER_HOST_V2 without a Dataset": (
        lambda: Program(as_tensors=True, per_host_input_for_training=PIPELINES.PER_HOST_V2),
        TypeError, "`input_fn` must return a `Dataset` for the PER_HOST_V2", "train",
    ),
    "PER_SHARD_V1 with a Dataset": (
        lambda: Program(per_host_input_for_training=PIPELINES.PER_SHARD_V1), TypeError,
        "not yet supported in per-Core input pipeline deployment", "train",
    ),
    "a scalar host_call": (
        lambda: Program(in_model=lambda loss: {"host_call": (lambda loss: [loss], [loss])}),
        RuntimeError, "All tensors outfed from TPU should preserve batch size dimension", "train",
    ),
    "a scaffold_fn that returns None": (
        lambda: Program(in_model=lambda loss: {"scaffold_fn": lambda: None}), ValueError,
        "TPUEstimatorSpec.scaffold_fn returns None, which is not allowed", "train",
    ),
}  # fmt: skip


def as_a_session_would(made, program):
    """Trains on the described TPU, and begins and asks its session as TensorFlow would."""
    reached = tpu_described.train(made, program.input_fn)
    with reached.graph.as_default():
        for hook in reached.hooks:
            if isinstance(hook, Fetches):
                hook.begin()
        (reached.scaffold or v1.train.Scaffold()).finalize()
    return reached


@pytest.mark.parametrize("case", CASES)
def test_as_a_tpu(case, tmp_path):
    make, kind, phrase, _ = CASES[case]
    program = make()
    with pytest.raises(kind) as error:
        program.emulated(tmp_path).train(program.input_fn, steps=2)
    assert phrase is None or phrase in str(error.value)
    assert not list(tmp_path.glob("model.ckpt-[1-9]*"))


@pytest.mark.parametrize("case", CASES)
def test_a_tpu_does(case, tmp_path, monkeypatch):
    make, kind, phrase, until = CASES[case]
    monkeypatch.setattr(control_flow_util, "ENABLE_CONTROL_FLOW_V2", until.endswith("v2"))
    program = make()
    made = program.described(tmp_path)
    if until == "train":
        with pytest.raises(kind) as error:
            tpu_described.train(made, program.input_fn)
    elif until.startswith("begin"):
        with pytest.raises(kind) as error:
            as_a_session_would(made, program)
    else:
        reached = as_a_session_would(made, program)
        tensors = [one.tensor for one in reached.hooks if isinstance(one, Fetches)] + [
            one._tensors["mine"]
            for one in reached.hooks
            if isinstance(one, v1.train.LoggingTensorHook) and "mine" in one._tensors
        ]
        with v1.Session(graph=reached.graph) as session, pytest.raises(kind) as error:
            session.run(tensors)
    # A name may have a number behind it on the TPU, which counts its own ops too.
    assert phrase in re.sub(r"Merge_\d+/", "Merge/", str(error.value))


@pytest.mark.parametrize("replicas", [1, CORES, 8])
@pytest.mark.parametrize("mode", ["train", "evaluate", "predict"])
@pytest.mark.parametrize(
    "case",
    [
        "shared weights, columns",
        "a weighted vocabulary column",
        "dense weights of sparse ids",
        "a feature of float64",
        "a lookup table",
    ],
)
def test_in_every_mode(case, mode, replicas, tmp_path):
    """And on any number of cores; a SavedModel, which runs on a host, has all of it."""
    make, kind, phrase, _ = CASES[case]
    program = make()
    program.replicas = replicas
    made = program.emulated(tmp_path)
    with pytest.raises(kind) as error:
        if mode == "predict":
            next(made.predict(program.input_fn))
        elif mode == "evaluate":
            made.evaluate(program.input_fn, steps=1)
        else:
            made.train(program.input_fn, steps=1)
    assert phrase in str(error.value)


@pytest.mark.parametrize("dtype", [tf.float64, tf.float16, tf.bfloat16])
def test_the_loss_of_an_evaluation(dtype, tmp_path):
    """A prediction ignores it."""
    program = loss_of_type(dtype)
    words = f"Input 'y' of 'AddV2' Op has type {dtype.name} that does not match type float32 of"
    made = program.emulated(tmp_path / "here")
    assert harness.refusal(TypeError, made.evaluate, program.input_fn, steps=1) == (
        f"{words} argument 'x': the loss of model_fn is {dtype.name}. Return tf.cast(loss, "
        "tf.float32)."
    )
    described = program.described(tmp_path / "there")
    described._directory.to_read = lambda *_: None
    with pytest.raises(TypeError, match=re.escape(words)):
        tpu_described.evaluate(described, program.input_fn)
    assert next(made.predict(program.input_fn))["x"].tolist() == [1.0, 1.0, 1.0]


def test_the_whole_messages(tmp_path):
    """What is refused, whose it is, and what to do."""

    def message(case):
        make, kind, _, _ = CASES[case]
        program = make()
        with pytest.raises(kind) as error:
            program.emulated(tmp_path).train(program.input_fn, steps=2)
        return re.sub(r"(?s)Op name: .*? depends", "Op ... depends", str(error.value))

    assert message("shared weights, columns") == (
        "Cannot find weights w for weighted_categorical_column of feature 'b' of table "
        "'tbl_b_weighted_by_w': feature 'a' of table 'tbl_a_weighted_by_w' takes them, and "
        "weight-sharing among weighted_categorical_column is not supported on TPU. Copy the "
        "weights in input_fn, under a key for each feature; or run with use_tpu=False."
    )
    assert message("a weighted vocabulary column") == (
        "Feature 'a' of table 'tbl_a_weighted_by_w': SparseTensor with string as values are not "
        "supported on a TPU, and neither are other strings. Turn them into ids in input_fn, for "
        "example with a tf.lookup.StaticHashTable or tf.strings.to_hash_bucket_fast; or run with "
        "use_tpu=False, where the column's own vocabulary or hash looks them up. feature_key = a."
    )
    assert message("weights of dense ids, one for each sample") == (
        "Feature 'a' of table 't': Found weights w for weighted_categorical_column, which is not "
        "compatible with sparse feature a enqueued as dense tensor: its table has combiner None. "
        "Give ids and weights as SparseTensors, or leave the weights out."
    )
    assert message("dense weights of sparse ids") == (
        "Feature 'a' of table 'tbl_a_weighted_by_w': weighted_categorical_column with weight key "
        "name w has dense weights, and its ids are not dense. Dense weights are not supported on "
        "TPU. Give weights in the form of the ids, one for each id."
    )
    assert message("a feature of float64") == (
        "features['b']: <dtype: 'float64'> is not a supported TPU infeed type. Supported types "
        "are: bfloat16, bool, complex64, float32, int32, int64, int8, uint32, uint8. Cast it in "
        "input_fn, or leave it out of what input_fn returns."
    )
    assert message("a sparse feature") == (
        "features['b']: Can not convert a SparseTensor into a Tensor: only dense tensors reach the "
        "model on a TPU. Make it dense in input_fn, or look it up through the EmbeddingConfigSpec."
    )
    assert message("a scalar feature") == (
        "features['b']: Shape [] does not contain shard_dimension 0, which 2 cores divide between "
        "them. Give each sample a value of its own in input_fn."
    )
    assert message("a loss of float64") == (
        "Mismatch between input types and output types for training loop body: [tf.int32, "
        "tf.float32] vs [tf.int32, tf.float64]: the loss of model_fn is float64. Return "
        "tf.cast(loss, tf.float32)."
    )
    assert message("a reference variable") == (
        "Non-resource Variables are not supported inside TPU computations (operator name: "
        "AssignAdd). Make the variable of 'r' without use_resource=False."
    )
    assert message("a lookup table") == (
        "model_fn makes a lookup table on the TPU: 'key_value_init/LookupTableImportV2' must be "
        "from the same graph as 'init_all_tables', which fills the tables of the host, and as its "
        "saver. Look up in input_fn, and return what was found as a feature."
    )
    assert message("input_partition_dims: negative") == (
        "TPUConfig.input_partition_dims: All input partition dims must be >= 1. They are [-1, 2] "
        'for Tensor("input_pipeline_task0/IteratorGetNext:0", shape=(8, 3), dtype=float32, '
        "device=/replica:0/task:0/device:CPU:0)."
    )
    outfeed = (
        " On a TPU nothing outside reads what model_fn computes, and so hooks, scaffold_fn and "
        "summaries cannot: give the tensor to a function on the host, by host_call or "
        "eval_metrics of the TPUEstimatorSpec."
    )
    assert message("a summary of model_fn") == (
        "Cannot use 'mine' as input to 'Merge/MergeSummary' because 'mine' is in a while loop: "
        f"model_fn makes this summary on the TPU.{outfeed}"
    )
    assert message("a hook that fetches a tensor of the TPU") == (
        "Operation mul has been marked as not fetchable. Typically this happens when it is "
        "defined in another function or code block. Use return values, explicit Python locals or "
        f"TensorFlow collections to access it.{outfeed}"
    )
    scaffold = message("scaffold_fn with a tensor of the TPU")
    assert scaffold.startswith("Inside scaffold_fn: Op ... depends on TPU computation Tensor(")
    begun = message("a hook that makes an op of a tensor of the TPU")
    assert begun.startswith("Inside a hook of model_fn: Op ... depends on TPU computation Tensor(")
    assert begun.endswith(f" because 'mul' is in a while loop.{outfeed}")


# Queues


@pytest.mark.parametrize("as_tensors", [True, False])
@pytest.mark.parametrize("in_loop", [True, False])
def test_queues(in_loop, as_tensors, tmp_path, monkeypatch, caplog):
    """They are refused where input_fn's ops are in a loop, and warned of elsewhere."""
    monkeypatch.setattr(tpu_estimator, "_WRAP_INPUT_FN_INTO_WHILE_LOOP", in_loop)
    program = Program(in_input=queue, as_tensors=as_tensors)
    message = (
        "Input pipeline contains one or more QueueRunners. It could be slow and not scalable. "
        "Please consider converting your input pipeline to use `tf.data` instead (see "
        "https://www.tensorflow.org/guide/datasets for instructions."
    )

    def here():
        program.emulated(tmp_path / "here").train(program.input_fn, steps=1)

    def there():
        tpu_described.train(program.described(tmp_path / "there"), program.input_fn)

    for train in (here, there):
        caplog.clear()
        if in_loop:
            assert harness.refusal(RuntimeError, train) == message
        else:
            train()
            assert message in [one.getMessage() for one in caplog.records]


# What is taken


def reads(loss):
    """Reads of variables, and ops lifted out of the loop, are nobody's computation."""
    w = v1.global_variables()[-1]
    with tf.init_scope():
        lifted = tf.constant(2.0) + 1.0
    with tf.control_dependencies(None):
        free = tf.constant(3.0) + 1.0

    def scaffold_fn():
        tf.identity(w) + lifted + free
        return v1.train.Scaffold()

    hooks = [Fetches(lifted), Fetches(free, makes=True)]
    return {"scaffold_fn": scaffold_fn, "training_hooks": hooks}


def outfed(loss):
    return {"host_call": (lambda given: given, [loss[None]])}


TAKEN = {
    **{
        dtype.name: lambda dtype=dtype: of_type(dtype)
        for dtype in (tf.bool, tf.int8, tf.uint8, tf.uint32, tf.bfloat16)
    },
    "input_partition_dims that fit": lambda: divided({"x": [2, 1]}, [1, 1]),
}


@pytest.mark.parametrize("case", TAKEN)
def test_what_is_taken(case, tmp_path):
    program = TAKEN[case]()
    made = program.emulated(tmp_path / "here")
    made.train(program.input_fn, steps=1)
    assert made.get_variable_value("global_step") == 1
    reached = tpu_described.train(program.described(tmp_path / "there"), program.input_fn)
    (replicated,) = reached.ops("TPUReplicateMetadata")
    assert replicated.get_attr("num_replicas") == (program.replicas)


def test_one_core_takes_scalars(tmp_path):
    program = Program(features=lambda size: {"b": tf.constant(1.0)}, replicas=1)
    made = program.emulated(tmp_path)
    made.train(program.input_fn, steps=1)
    assert made.get_variable_value("global_step") == 1


@pytest.mark.parametrize("in_model", [reads, outfed])
@pytest.mark.parametrize("replicas", [1, 2])
def test_what_is_outside_of_the_loop(in_model, replicas, tmp_path):
    program = Program(in_model=in_model, replicas=replicas)
    program.emulated(tmp_path / "here").train(program.input_fn, steps=3)
    reached = as_a_session_would(program.described(tmp_path / "there"), program)
    for hook in reached.hooks:
        if isinstance(hook, Fetches) and tf.is_tensor(hook.tensor):
            assert reached.graph.is_fetchable(hook.tensor)


def two_tables(kind):
    """A spec with a feature and a table 'b' that nothing need use; its columns, if it has any."""
    parameters = ee.FtrlParameters(0.1)
    if kind == "dicts":
        tables = {name: ee.TableConfig(5, 2, initializer=tf.ones_initializer()) for name in "ab"}
        features = {name: ee.FeatureConfig(name) for name in "ab"}
        spec = ee.EmbeddingConfigSpec(
            feature_to_config_dict=features,
            table_to_config_dict=tables,
            optimization_parameters=parameters,
        )
        return spec, None
    columns = [
        fc.embedding_column(
            fc.categorical_column_with_identity(name, 5), 2, initializer=tf.ones_initializer()
        )
        for name in "ab"
    ]
    return ee.EmbeddingConfigSpec(columns, parameters), columns


@pytest.mark.parametrize(
    ("kind", "replicas"),
    [
        ("dicts", None),
        ("input_layer", 2),
        pytest.param("DenseFeatures", 1, marks=pytest.mark.slow),
        pytest.param("dicts", 8, marks=pytest.mark.slow),
        pytest.param("DenseFeatures", None, marks=pytest.mark.slow),
        pytest.param("DenseFeatures", 8, marks=pytest.mark.slow),
    ],
)
def test_a_feature_that_model_fn_does_not_use(kind, replicas, tmp_path, caplog):
    """It trains with gradients of zero, which FTRL answers: as one that the loss has 0 times of."""
    caplog.set_level(logging.WARNING, logger="estimator_emb")

    def train(model_dir, uses_b):
        spec, columns = two_tables(kind)

        def model_fn(features, labels, mode, params):
            if kind == "dicts":
                of = {name: features[name] for name in ("ab" if uses_b else "a")}
            else:
                layer = fc.input_layer if kind == "input_layer" else None
                of = {
                    name: (
                        layer({name: features[name]}, [column])
                        if layer
                        else fc.DenseFeatures([column], name=f"of_{name}")(features)
                    )
                    for name, column in zip("ab" if uses_b else "a", columns, strict=False)
                }
            w = v1.get_variable("w", initializer=1.0)
            loss = w * tf.reduce_sum(of["a"])
            if uses_b:
                loss += 0.0 * tf.reduce_sum(of["b"])
            return harness.minimized(mode, loss, 0.1)

        program = Program(spec, columns, features=ids_and_weights("a", "b", weights=()))
        program.model_fn, program.replicas = model_fn, replicas
        made = program.emulated(model_dir)
        made.train(program.input_fn, steps=2)
        metrics = made.evaluate(program.input_fn, steps=1)
        if replicas and not uses_b:
            tpu_described.train(program.described(model_dir / "described"), program.input_fn)
        return harness.saved(model_dir, 2), metrics

    used, used_metrics = train(tmp_path / "used", True)
    assert not harness.said(caplog)
    unused, metrics = train(tmp_path / "unused", False)
    assert any("No gradient reaches features ['b']" in line for line in harness.said(caplog))
    assert metrics == used_metrics

    for name in "ab":
        got, want = of_table(unused, name, kind), of_table(used, name, kind)
        assert set(got) == set(want) == {"", "/Ftrl", "/Ftrl_1"}
        for slot, value in want.items():
            np.testing.assert_array_equal(got[slot], value)
    # Rows 1 and 2 were looked up, and FTRL computes them anew from a linear slot of 0.
    weights = of_table(unused, "b", kind)[""]
    assert not weights[1:3].any() and weights[[0, 3, 4]].all()


def of_table(variables, name, kind):
    """The weights, as '', and the slots of a table, whatever scope its column is used in."""
    found = re.compile(
        rf"{name}(/Ftrl.*)?" if kind == "dicts" else rf".*{name}_embedding/.*?(/Ftrl.*)?"
    )
    matches = {key: found.fullmatch(key) for key in variables}
    return {match[1] or "": variables[key] for key, match in matches.items() if match}
