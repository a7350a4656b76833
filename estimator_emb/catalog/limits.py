"""Lists the limits of a TPU: what it refuses, in TensorFlow's words, and what to do instead.

Backends raise the error of the first limit that a program breaks. `check` collects all of them.
`backends/tpu_checks.py` finds such programs.
"""

import contextlib
import contextvars
import dataclasses
from collections.abc import Iterator
from typing import Any

from estimator_emb.catalog import environment

HOW_TO_OUTFEED = (
    "On a TPU, hooks, scaffold_fn and summaries cannot read what model_fn computes: give the "
    "tensor to a function on the host, by host_call or eval_metrics of the TPUEstimatorSpec."
)
"""Advice about a tensor that only a real or an emulated TPU can read."""

HOW_TO_EMULATE = (
    f"To run this program without a TPU, set the environment variable {environment.DEVICE}=emulate,"
    " or pass TPUConfig(device='emulate'). 'pjrt' runs it on GPUs and other devices of PJRT."
)

_NO_WEIGHTS = (
    "{owner}: Cannot find weights {weights} for weighted_categorical_column. Please check if the "
    "weights are present in feature dict. Also note weight-sharing among "
    "weighted_categorical_column is not supported on TPU"
)


@dataclasses.dataclass(frozen=True)
class Limit:
    """A rule of a TPU.

    Attributes:
      seen: where a program breaks the rule: 'spec', its configuration; 'input'; 'model'; or
        'outside', its code that runs on the host.
      kind: the class of TensorFlow's error.
      phrase: what is wrong, with the phrase of TensorFlow's error, without a full stop.
      remedy: what to do instead, as a sentence.
    """

    seen: str
    kind: type[Exception]
    phrase: str
    remedy: str = ""


LIMITS = {
    "bad_ids": Limit(
        "spec", ValueError, "bad_ids='drop' works on the host only: a TPU does not check ids"
    ),
    "table_summaries": Limit(
        "spec",
        ValueError,
        "table_summaries=True works on the host only, where the tables train beside the summaries; "
        f"leave it out of TPUConfig, and {environment.TABLE_SUMMARIES} out of the environment",
    ),
    "slot_variable_creation_fn": Limit(
        "spec",
        ValueError,
        "Table {table!r}: slot_variable_creation_fn of {kind} works on the host only; on a TPU the "
        "slots are parts on its hosts, which the engine creates",
    ),
    "clipping_limit": Limit(
        "spec",
        ValueError,
        "Table {table!r}: the EmbeddingConfigSpec has clipping_limit={limit}, which on a TPU needs "
        "use_gradient_accumulation=True; its {kind} has use_gradient_accumulation=False",
    ),
    "prediction": Limit(
        "spec",
        NotImplementedError,
        "predict: tensorflow-estimator looks up no embedding tables when it predicts on a TPU",
        "Predict on the host, with a TPUEstimator of the same model_dir that has use_tpu=False or "
        "TPUConfig(device='emulate').",
    ),
    "shared weights": Limit(
        "input",
        ValueError,
        f"{_NO_WEIGHTS}. {{other}} takes them",
        "Copy the weights in input_fn, under a key for each feature; or run with use_tpu=False.",
    ),
    "missing weights": Limit(
        "input",
        ValueError,
        f"{_NO_WEIGHTS}. input_fn returns {{found}}",
        "Return the weights under their key, one for each id.",
    ),
    "string ids": Limit(
        "input",
        ValueError,
        "{owner}: SparseTensor with string as values are not supported on a TPU, and neither are "
        "other strings",
        "Turn them into ids in input_fn, for example with a tf.lookup.StaticHashTable or "
        "tf.strings.to_hash_bucket_fast{elsewhere}. feature_key = {key}.",
    ),
    "weights of single ids": Limit(
        "input",
        ValueError,
        "{owner}: Found weights {weights} for weighted_categorical_column, which is not compatible "
        "with sparse feature {key} enqueued as dense tensor: its table has combiner None",
        "Give ids and weights as SparseTensors, or leave the weights out.",
    ),
    "dense weights": Limit(
        "input",
        ValueError,
        "{owner}: weighted_categorical_column with weight key name {weights} has dense weights. "
        "Dense weights are not supported on TPU. Please use sparse weights instead: the ids are "
        "not dense",
        "Give weights in the form of the ids, one for each id.",
    ),
    "sparse infeed": Limit(
        "input",
        TypeError,
        "{owner}: Can not convert a {kind} into a Tensor: only dense tensors reach the model on a "
        "TPU",
        "Make it dense in input_fn, or look it up through the EmbeddingConfigSpec.",
    ),
    "infeed dtype": Limit(
        "input",
        TypeError,
        "{owner}: {dtype} is not a supported TPU infeed type. Supported types are: {supported}",
        "Cast it in input_fn, or leave it out of what input_fn returns.",
    ),
    "scalar infeed": Limit(
        "input",
        ValueError,
        "{owner}: Shape [] does not contain shard_dimension 0, which {replicas} cores divide "
        "between them",
        "Give each sample a value of its own in input_fn.",
    ),
    "dynamic infeed": Limit(
        "input",
        ValueError,
        "{owner} ({dtype}) has the dynamic shape {shape}",
        "Give it a static shape, by batch(..., drop_remainder=True), padded_batch or set_shape.",
    ),
    "input_partition_dims": Limit(
        "input",
        ValueError,
        "TPUConfig.input_partition_dims: {error} They are {dims} for {tensor}",
    ),
    "EstimatorSpec": Limit(
        "model",
        RuntimeError,
        "estimator_spec used by TPU {mode} must have type`TPUEstimatorSpec`. Got {kind}",
        "Return a TPUEstimatorSpec, with eval_metrics=(metric_fn, tensors) for metrics.",
    ),
    "loss of a training": Limit(
        "model",
        TypeError,
        "Mismatch between input types and output types for training loop body: [tf.int32, "
        "tf.float32] vs [tf.int32, {dtype!r}]: the loss of model_fn is {dtype.name}",
        "Return tf.cast(loss, tf.float32).",
    ),
    "loss of an evaluation": Limit(
        "model",
        TypeError,
        "Input 'y' of 'AddV2' Op has type {dtype.name} that does not match type float32 of "
        "argument 'x': the loss of model_fn is {dtype.name}",
        "Return tf.cast(loss, tf.float32).",
    ),
    "scalar outfeed": Limit(
        "model",
        RuntimeError,
        "All tensors outfed from TPU should preserve batch size dimension, but got scalar "
        "{tensor}, one of {owner}",
        "Give each sample a value, or a scalar a batch of 1: tf.reshape(loss, [1]).",
    ),
    "dynamic outfeed": Limit(
        "model",
        ValueError,
        "{owner} gets a tensor of the dynamic shape {shape}",
        "Give it a static shape, by tf.reshape or tensor.set_shape.",
    ),
    "lookup table": Limit(
        "model",
        ValueError,
        "model_fn makes a lookup table on the TPU: {name!r} must be from the same graph as "
        "'init_all_tables' and the saver, which run on the host",
        "Look up in input_fn, and return what was found as a feature.",
    ),
    "reference variable": Limit(
        "model",
        NotImplementedError,
        "Non-resource Variables are not supported inside TPU computations (operator name: {name})",
        "Make the variable of {variable!r} without use_resource=False.",
    ),
    "summary": Limit(
        "model",
        ValueError,
        "Cannot use {name!r} as input to 'Merge/MergeSummary' because {name!r} is in a while loop: "
        "model_fn makes this summary on the TPU",
        HOW_TO_OUTFEED,
    ),
    "read from outside": Limit(
        "outside",
        ValueError,
        "{place}: Op {op} depends on TPU computation {tensor}, which is not allowed. Cannot use "
        "{tensor.op.name!r} as input to {op.name!r} because {tensor.op.name!r} is in a while loop",
        HOW_TO_OUTFEED,
    ),
    "no scaffold": Limit(
        "outside",
        ValueError,
        "TPUEstimatorSpec.scaffold_fn returns None, which is not allowed",
        "Return a tf.compat.v1.train.Scaffold.",
    ),
}
"""Rule -> its `Limit`, in the order in which a program meets the rules."""


@dataclasses.dataclass(frozen=True)
class Refusal:
    """A limit that a program breaks, and the value that breaks it, if any."""

    kind: type[Exception]
    problem: str
    remedy: str
    value: Any = None

    def error(self) -> Exception:
        return self.kind(f"{self.problem}. {self.remedy}".rstrip())


_collected: contextvars.ContextVar[list[Refusal] | None] = contextvars.ContextVar(
    "collected", default=None
)


@contextlib.contextmanager
def collected() -> Iterator[list[Refusal]]:
    """Yields a list that gets the refusals of this context, which raise no error."""
    refusals: list[Refusal] = []
    before = _collected.set(refusals)
    try:
        yield refusals
    finally:
        _collected.reset(before)


def refuse(limit: str, value: Any = None, /, **fields: Any) -> None:
    """Raises the error of a limit that the program breaks, or collects the refusal."""
    rule = LIMITS[limit]
    refusal = Refusal(rule.kind, rule.phrase.format(**fields), rule.remedy.format(**fields), value)
    refusals = _collected.get()
    if refusals is None:
        raise refusal.error()
    refusals.append(refusal)
