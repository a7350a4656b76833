# SPDX-License-Identifier: Apache-2.0
"""Advice on what to use instead of ops and types without a TPU kernel."""

import re

_STRINGS = "keep strings on the host: turn them into numbers in input_fn"
_OPS = {
    ".*Dataset(V2)?|Iterator.*|OneShotIterator": (
        "an input of input_fn: the infeed feeds a TPU's step"
    ),
    ".*Summary(V2)?": "tf.summary in the function of host_call",
    "StringFormat": "format on the host: host_call, or tf.compat.v1.tpu.outside_compilation",
    "AsString|EncodeBase64|ReduceJoin|String.*|Substr|Unicode(De|En)code": _STRINGS,
    "(Static)?Regex(FullMatch|Replace)": _STRINGS,
    "BoostedTreesBucketize|Decode.*|FixedLength.*|MatrixLogarithm|ReadFile.*|WriteFile.*": (
        "do it in input_fn, or give its tensors to host_call"
    ),
    "EagerPyFunc|PyFunc|PyFuncStateless": (
        "what it computes, in input_fn or host_call; or TensorFlow's own ops"
    ),
    "FIFOQueueV2": "input_fn, which feeds the infeed",
    "(Mutable)?HashTable.*|LookupTable.*": (
        "look ids up in input_fn, or through the EmbeddingConfigSpec"
    ),
    "Placeholder": "an input of input_fn: nothing is fed to a TPU's step",
    "Print(V2)?": "print in host_call, or wrap it in tf.compat.v1.tpu.outside_compilation",
    "RandomGamma|RandomPoisson(V2)?": (
        "tf.random.stateless_* or the tf.random ops that have a kernel (uniform, normal)"
    ),
    "ResourceSparseApply.*": (
        "an optimizer that updates with dense gradients, or the EmbeddingConfigSpec"
    ),
    "SegmentMean": "tf.math.unsorted_segment_mean with a static number of segments",
    "SparseSegment.*": (
        "tf.gather and tf.math.unsorted_segment_sum (or _mean, _sqrt_n) over dense tensors"
    ),
    "Ragged.*|Sparse.*": (
        "dense tensors: tf.sparse.to_dense in input_fn, or the EmbeddingConfigSpec for lookups"
    ),
    "TemporaryVariable|Variable(V2)?": (
        "a resource variable: tf.compat.v1.get_variable without use_resource=False makes one"
    ),
    "UniqueWithCounts(V2)?": "tf.unique, or tf.math.bincount with a static size",
    ".*": "other ops; or move it to input_fn, host_call or tf.compat.v1.tpu.outside_compilation",
}
"""Patterns of the types of ops, of which the first that fits counts, and what to use instead."""

_TYPES = {
    "complex128": "complex64",
    "float64": "float32",
    "string": _STRINGS,
    **dict.fromkeys(("uint16", "uint8", "int8", "int16"), "int32"),
    "resource": "tables and queues stay on the host; only variables can be in a TPU's step",
}


def instead_of_op(op_type: str) -> str:
    """Returns what to use instead of an op that has no kernel."""
    return next(advice for pattern, advice in _OPS.items() if re.fullmatch(pattern, op_type))


def instead_of_type(dtype: str) -> str:
    """Returns what to use instead of a type that an op's kernels do not take."""
    return _TYPES.get(dtype, "float32, bfloat16 or int32")
