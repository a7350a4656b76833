"""Programs that a TPU refuses, with the exception and a phrase of its message."""

import harness
import tensorflow as tf
from tpu_described import Program, sparse_of

import estimator_emb as ee
import feature_columns as fc

v1 = tf.compat.v1
PIPELINES = ee.InputPipelineConfig
PARAMETERS = ee.StochasticGradientDescentParameters(0.1)


def weighted(*keys, of=lambda key: fc.categorical_column_with_identity(key, 5)):
    columns = [fc.embedding_column(fc.weighted_categorical_column(of(key), "w"), 2) for key in keys]
    return ee.EmbeddingConfigSpec(columns, PARAMETERS)


def by_dicts(combiner="mean", **features):
    of_keys = {key: ee.FeatureConfig("t", **config) for key, config in features.items()}
    spec = harness.table_spec(5, 2, PARAMETERS, combiner=combiner)
    return spec._replace(feature_to_config_dict=of_keys)


def ids_and_weights(*keys, of=(1, 2), weights=("w",)):
    return {
        **dict.fromkeys(keys, sparse_of(of, None)),
        **dict.fromkeys(weights, sparse_of([0.5, 1.5], tf.float32)),
    }


def vocabulary(key):
    return fc.categorical_column_with_vocabulary_list(key, ["ant", "bee", "cat"])


class Fetches(v1.train.SessionRunHook):
    """Fetches a tensor with each step. If `makes`, makes an op of it when the session begins."""

    def __init__(self, tensor, makes=False):
        self.tensor, self.makes = tensor, makes

    def begin(self):
        if self.makes:
            self.tensor = self.tensor * 2.0

    def before_run(self, run_context):
        return v1.train.SessionRunArgs(self.tensor)


def summary(loss):
    v1.summary.scalar("mine", loss)
    return {}


def fixed_table(loss):
    values = tf.lookup.KeyValueTensorInitializer([1, 2], [3.0, 4.0], tf.int64, tf.float32)
    table = tf.lookup.StaticHashTable(values, 0.0)
    return {"loss": loss + table.lookup(tf.constant(1, tf.int64))}


def table_that_grows(loss):
    table = tf.lookup.experimental.MutableHashTable(tf.int64, tf.float32, 0.0)
    return {"loss": loss + table.lookup(tf.constant(1, tf.int64))}


def of_type(dtype):
    """A program with a feature of this type that no table looks up."""
    value = "a" if dtype == tf.string else 1
    return Program(features={"b": lambda size: tf.cast(tf.fill([size], value), dtype)})


def loss_of_type(dtype):
    return Program(loss=lambda loss, features: tf.cast(loss, dtype))


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
NO_WEIGHTS = (
    "Cannot find weights w for weighted_categorical_column. Please check if the weights are "
    "present in feature dict. Also note weight-sharing among weighted_categorical_column is not "
    "supported on TPU."
)
STRINGS = "SparseTensor with string as values are not supported"
NO_INFEED = "{} is not a supported TPU infeed type. Supported types are: "
OTHER_GRAPH = "must be from the same graph as"
TWO_WEIGHTED = {"features": ids_and_weights("a", "b")}
WORDS = {"features": ids_and_weights("a", of=("ant", "bee"))}
ONLY_WORDS = {"features": ids_and_weights("a", of=("ant", "bee"), weights=())}
SCALAR = {"features": {"b": lambda size: tf.constant(1.0)}}
BY_CORE = {"tpu": {"per_host_input_for_training": PIPELINES.PER_HOST_V2}}


def divided(*dims):
    tpu = {**BY_CORE["tpu"], "input_partition_dims": list(dims), "num_cores_per_replica": 2}
    return Program(replicas=1, tpu=tpu)


def with_hook(make):
    return Program(fields=lambda loss: {"training_hooks": [make(loss)]})


# Name of a case -> (a program, the exception, the phrase of a TPU's error). A fourth value has the
# words of `check` where they differ, or None if only a session refuses it.
CASES = {
    "shared weights, columns": (
        Program(weighted("a", "b"), **TWO_WEIGHTED), ValueError, NO_WEIGHTS,
    ),
    "shared weights, config dicts": (
        Program(by_dicts(a={"weight_key": "w"}, b={"weight_key": "w"}), **TWO_WEIGHTED),
        ValueError, NO_WEIGHTS,
    ),
    "a weighted vocabulary column": (
        Program(weighted("a", of=vocabulary), **WORDS), ValueError, STRINGS,
    ),
    "strings, config dicts": (Program(by_dicts(a={}), **ONLY_WORDS), ValueError, STRINGS),
    "weights of dense ids, one for each sample": (
        Program(
            by_dicts(None, a={"weight_key": "w"}),
            features={"a": lambda size: tf.ones([size], tf.int64), "w": lambda n: tf.ones([n])},
        ),
        ValueError, "Found weights w for weighted_categorical_column, which is not",
    ),
    "missing weights": (
        Program(weighted("a"), features=ids_and_weights("a", weights=())),
        ValueError, NO_WEIGHTS,
    ),
    "dense weights of sparse ids": (
        Program(
            weighted("a"),
            features={"a": sparse_of([1, 2], tf.int32), "w": lambda size: tf.ones([size, 2])},
        ),
        ValueError, "weighted_categorical_column with weight key name w has dense weights. Dense "
        "weights are not supported on TPU. Please use sparse weights instead",
    ),
    **{
        f"a feature of {dtype.name}": (of_type(dtype), TypeError, NO_INFEED.format(dtype))
        for dtype in (tf.string, tf.float64, tf.float16, tf.int16, tf.uint16, tf.complex128)
    },
    "a sparse feature": (
        Program(features={"b": sparse_of([1, 2], tf.int32)}, **BY_CORE),
        TypeError, "Can not convert a SparseTensor into a Tensor",
    ),
    "a scalar feature": (
        Program(**SCALAR), ValueError, "Shape [] does not contain shard_dimension 0",
    ),
    **{
        f"a loss of {dtype.name}": (
            loss_of_type(dtype), TypeError,
            "Mismatch between input types and output types for training loop body: "
            f"[tf.int32, tf.float32] vs [tf.int32, {dtype!r}]",
        )
        for dtype in (tf.float64, tf.float16, tf.bfloat16)
    },
    "a reference variable": (
        Program(fields=reference_variable), NotImplementedError,
        "Non-resource Variables are not supported inside TPU computations (operator name: ",
        "a reference variable cannot be part of a TPU's step",
    ),
    "a lookup table": (Program(fields=fixed_table), ValueError, OTHER_GRAPH, "LookupTableFindV2"),
    "a lookup table that grows": (
        Program(fields=table_that_grows), ValueError, OTHER_GRAPH, "MutableHashTableV2",
    ),
    "input_partition_dims: negative": (
        divided({"x": [-1, 2]}), ValueError, "All input partition dims must be >= 1.",
    ),
    "input_partition_dims: other keys": (
        divided({"y": [2, 1]}), ValueError,
        "TPUConfig.input_partition_dims[0] mismatched feature keys. Expected ['x'], got ['y']",
    ),
    "input_partition_dims: labels of another rank": (
        divided({"x": [2, 1]}, [2, 1, 1]), ValueError,
        "Input partition dims must have the same number of dimensions as the `Tensor` to be ",
    ),
    "a summary of model_fn": (
        Program(fields=summary), ValueError,
        "Cannot use 'mine' as input to 'Merge/MergeSummary' because 'mine' is in a while loop",
        "tf.summary in the function of host_call",
    ),
    "scaffold_fn with a tensor of the TPU": (
        Program(fields=lambda loss: {"scaffold_fn": lambda: loss + 1.0}), ValueError, IN_LOOP,
    ),
    "Scaffold.finalize with a tensor of the TPU": (
        Program(fields=finalize_reads), ValueError, IN_LOOP, None,
    ),
    "a hook that makes an op of a tensor of the TPU": (
        with_hook(lambda loss: Fetches(loss, makes=True)), ValueError, IN_LOOP, None,
    ),
    "a hook that fetches a tensor of the TPU": (
        with_hook(Fetches), ValueError, "has been marked as not fetchable", None,
    ),
    "PER_HOST_V2 without a Dataset": (
        Program(as_tensors=True, **BY_CORE), TypeError,
        "`input_fn` must return a `Dataset` for the PER_HOST_V2",
    ),
    "PER_SHARD_V1 with a Dataset": (
        Program(tpu={"per_host_input_for_training": PIPELINES.PER_SHARD_V1}), TypeError,
        "not yet supported in per-Core input pipeline deployment",
    ),
    "a scalar host_call": (
        Program(fields=lambda loss: {"host_call": (lambda loss: [loss], [loss])}), RuntimeError,
        "All tensors outfed from TPU should preserve batch size dimension",
    ),
    "a scaffold_fn that returns None": (
        Program(fields=lambda loss: {"scaffold_fn": lambda: None}), ValueError,
        "TPUEstimatorSpec.scaffold_fn returns None, which is not allowed",
    ),
}  # fmt: skip
