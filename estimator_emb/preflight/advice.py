# SPDX-License-Identifier: Apache-2.0
"""Advice on what to use instead of ops and types without a TPU kernel."""

_INPUT = "an input of input_fn: the infeed feeds a TPU's step"
_HOST = "do it in input_fn, or give its tensors to host_call"
_STRINGS = "keep strings on the host: turn them into numbers in input_fn"
_PYTHON = "what it computes, in input_fn or host_call; or TensorFlow's own ops"
_COUNTS = "tf.unique, or tf.math.bincount with a static size"
_PRINT = "print in host_call, or wrap it in tf.compat.v1.tpu.outside_compilation"
_SUMMARY = "tf.summary in the function of host_call"
_TABLES = "look ids up in input_fn, or through the EmbeddingConfigSpec"
_SEGMENTS = "tf.gather and tf.math.unsorted_segment_sum (or _mean, _sqrt_n) over dense tensors"
_SPARSE = "dense tensors: tf.sparse.to_dense in input_fn, or the EmbeddingConfigSpec for lookups"
_RANDOM = "tf.random.stateless_* or the tf.random ops that have a kernel (uniform, normal)"
_STATE = "a resource variable: tf.compat.v1.get_variable without use_resource=False makes one"
_SPARSE_STEP = "an optimizer that updates with dense gradients, or the EmbeddingConfigSpec"

_OPS = {
    **dict.fromkeys(
        "AsString EncodeBase64 ReduceJoin RegexFullMatch RegexReplace StaticRegexFullMatch "
        "StaticRegexReplace Substr UnicodeDecode UnicodeEncode".split(),
        _STRINGS,
    ),
    **dict.fromkeys(("EagerPyFunc", "PyFunc", "PyFuncStateless"), _PYTHON),
    **dict.fromkeys(("Print", "PrintV2"), _PRINT),
    **dict.fromkeys(("RandomGamma", "RandomPoisson", "RandomPoissonV2"), _RANDOM),
    **dict.fromkeys(("TemporaryVariable", "Variable", "VariableV2"), _STATE),
    **dict.fromkeys(("UniqueWithCounts", "UniqueWithCountsV2"), _COUNTS),
    "BoostedTreesBucketize": _HOST,
    "FIFOQueueV2": "input_fn, which feeds the infeed",
    "MatrixLogarithm": _HOST,
    "Placeholder": "an input of input_fn: nothing is fed to a TPU's step",
    "OneShotIterator": _INPUT,
    "SegmentMean": "tf.math.unsorted_segment_mean with a static number of segments",
    "StringFormat": "format on the host: host_call, or tf.compat.v1.tpu.outside_compilation",
}

_PREFIXES = {
    "Decode": _HOST,
    "FixedLength": _HOST,
    "HashTable": _TABLES,
    "Iterator": _INPUT,
    "LookupTable": _TABLES,
    "MutableHashTable": _TABLES,
    "Ragged": _SPARSE,
    "ReadFile": _HOST,
    "ResourceSparseApply": _SPARSE_STEP,
    "SparseSegment": _SEGMENTS,
    "Sparse": _SPARSE,
    "String": _STRINGS,
    "WriteFile": _HOST,
}

_SUFFIXES = {"Dataset": _INPUT, "DatasetV2": _INPUT, "Summary": _SUMMARY, "SummaryV2": _SUMMARY}

_TYPES = {
    "complex128": "complex64",
    "float64": "float32",
    "string": _STRINGS,
    **dict.fromkeys(("uint16", "uint8", "int8", "int16"), "int32"),
    "resource": "tables and queues stay on the host; only variables can be in a TPU's step",
}


def instead_of_op(op_type: str) -> str:
    """Returns what to use instead of an op that has no kernel."""
    if op_type in _OPS:
        return _OPS[op_type]
    found = [advice for suffix, advice in _SUFFIXES.items() if op_type.endswith(suffix)]
    found += [advice for prefix, advice in _PREFIXES.items() if op_type.startswith(prefix)]
    other = "other ops; or move it to input_fn, host_call or tf.compat.v1.tpu.outside_compilation"
    return found[0] if found else other


def instead_of_type(dtype: str) -> str:
    """Returns what to use instead of a type that an op's kernels do not take."""
    return _TYPES.get(dtype, "float32, bfloat16 or int32")
