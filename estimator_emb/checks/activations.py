# SPDX-License-Identifier: Apache-2.0
"""Finds a model_fn that takes activations of embedding tables for ids.

Off a TPU, stock tensorflow-estimator gives a model_fn the ids. Here it gets activations, as on a
TPU, and columns find the ids.
"""

import logging
import re
from collections.abc import Mapping, Sequence
from typing import Any

import tensorflow as tf

from estimator_emb.messages import console
from estimator_emb.spec.resolved import Table

_WANTS_IDS = re.compile(
    "DataType float32 not in|type float32 that does not match expected|"
    "received: <dtype: 'float32'>|SparseTensor"
)
"""In a TypeError: an op was given floats for ids, or a dense tensor for a sparse one."""
_RESHAPES = frozenset(("ExpandDims", "Identity", "Reshape", "Squeeze", "StridedSlice"))


def explain(error: Exception, features: Any, tables: Sequence[Table]) -> None:
    """Adds to an error that features are activations, where one was taken for ids."""
    if not isinstance(features, Mapping):
        return
    keys = {feature.key for table in tables for feature in table.features}.intersection(features)
    if isinstance(error, AttributeError):
        owner = getattr(error, "obj", None)
        keys = {key for key in keys if features[key] is owner}
    elif not (isinstance(error, TypeError) and _WANTS_IDS.search(str(error))):
        keys = {key for key in keys if re.search(rf"\bkey: {re.escape(key)}(,| |$)", str(error))}
    if keys:
        error.args = (
            f"{error} In model_fn, features {sorted(keys)} are activations of embedding tables, "
            "not the ids that input_fn yields. To read ids too, copy them under a second key in "
            "input_fn.",
        )


def warn_of_ids(features: Any, tables: Sequence[Table]) -> None:
    """Warns of an activation that a model_fn compares, or makes integers of, as one does of ids."""
    if not isinstance(features, Mapping):
        return
    for key in sorted({feature.key for table in tables for feature in table.features}):
        waiting = [features[key]] if isinstance(features.get(key), tf.Tensor) else []
        while waiting:
            for op in waiting.pop().consumers():
                if op.type in _RESHAPES:
                    waiting += op.outputs
                elif op.type in ("Equal", "NotEqual") or (
                    op.type == "Cast" and op.outputs[0].dtype.is_integer
                ):
                    console.say_once(
                        f"model_fn reads features[{key!r}] as ids (op {op.name}), and in model_fn "
                        "it is the activation of an embedding table. To read ids too, copy them "
                        "under a second key in input_fn.",
                        level=logging.WARNING,
                    )
