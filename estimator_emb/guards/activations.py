"""Finds a model_fn that uses activations of embedding tables as ids.

Without a TPU, tensorflow-estimator passes ids to a model_fn. Here model_fn receives activations, as
on a TPU, and only feature columns can read the ids.
"""

import contextlib
import logging
import re
from collections.abc import Mapping, Sequence
from typing import Any

import tensorflow as tf

from estimator_emb.guards.guard import Call, Guard, ModelBatch
from estimator_emb.reporting import console, error_notes
from estimator_emb.spec.resolved import Table

_WANTS_IDS = re.compile(
    "DataType float32 not in|type float32 that does not match expected|"
    "received: <dtype: 'float32'>|SparseTensor"
)
"""Matches a TypeError of an op that got floats for ids, or a dense for a sparse tensor."""
_RESHAPES = frozenset(("ExpandDims", "Identity", "Reshape", "Squeeze", "StridedSlice"))


class Activations(Guard):
    """Explains errors about activations. Warns if they are compared or cast to integers."""

    @classmethod
    def applies(cls, call: Call) -> bool:
        return call.ours and bool(call.tables)

    def around(self, batch: ModelBatch) -> contextlib.AbstractContextManager[Any]:
        return error_notes.explained(_explain, batch.seen, self.call.tables)

    def after(self, spec: Any) -> Any:
        _warn_of_ids(self.graph.seen, self.call.tables)
        return spec


def _activations(features: Any, tables: Sequence[Table]) -> set[str]:
    given = features if isinstance(features, Mapping) else ()
    return {feature.key for table in tables for feature in table.features}.intersection(given)


def _explain(error: Exception, features: Any, tables: Sequence[Table]) -> None:
    """Names the activations in an error that occurs because model_fn used them as ids."""
    if not isinstance(error, (AttributeError, TypeError, ValueError)):
        return
    keys = _activations(features, tables)
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


def _warn_of_ids(features: Any, tables: Sequence[Table]) -> None:
    """Warns if model_fn compares activations or casts them to integers, as if they were ids."""
    for key in sorted(_activations(features, tables)):
        waiting = [features[key]] if isinstance(features[key], tf.Tensor) else []
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
