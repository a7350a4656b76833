"""Checks how a model uses its embedding tables, and gives a session the hooks of its tables."""

import logging
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import tensorflow as tf

from estimator_emb.engine.tables import scopes
from estimator_emb.guards.call import Call
from estimator_emb.guards.checks import clusters
from estimator_emb.guards.events import Event, Facts, on
from estimator_emb.reporting import console
from estimator_emb.spec.resolved import Table

_WANTS_IDS = re.compile(
    "DataType float32 not in|type float32 that does not match expected|"
    "received: <dtype: 'float32'>|SparseTensor"
)
"""Matches a TypeError of an op that got floats for ids, or a dense for a sparse tensor."""
_RESHAPES = frozenset(("ExpandDims", "Identity", "Reshape", "Squeeze", "StridedSlice"))


def hooks(facts: Facts) -> Iterable[Any]:
    """Returns the hooks of a graph's tables: lookups a step ahead, and the count of bad ids."""
    if facts.lookup is None or facts.call.exporting:
        return []
    step = facts.lookup.step
    return [hook for hook in (step.next_step, step.dropped) if hook]


def check_workers(call: Call) -> None:
    """Rejects a SyncReplicasOptimizer, because each worker updates the tables on its own."""
    beside_servers = call.config is not None and call.config.num_ps_replicas
    if call.ours and call.training and call.has_spec and beside_servers:
        clusters.check_asynchronous()


@on(Event.MODEL_FAILED, when=lambda call: call.ours)
@on(Event.MODEL_RETURNED, when=lambda call: call.ours)
def unknown_columns(facts: Facts, result: Any) -> None:
    """Rejects embedding columns in model_fn that are not in the EmbeddingConfigSpec.

    A column with another dimension than in the spec is rejected, too. `result` is what model_fn
    returned or raised.
    """
    if isinstance(result, Exception) and not isinstance(result, (TypeError, ValueError)):
        return
    call = facts.call
    unknown = sorted(set(scopes.recorded()) - {table.scope_key for table in call.tables})
    if unknown:
        missing = (
            "which are not in the EmbeddingConfigSpec: add them to its feature_columns. It has "
            f"the tables {sorted(table.name for table in call.tables)}."
            if call.has_spec
            else "but TPUEstimator was given no embedding_config_spec: give it one with these "
            "columns."
        )
        raise ValueError(f"model_fn uses the TPU embedding columns of tables {unknown}, {missing}")
    used = scopes.dimensions()
    for table in call.tables:
        dimension = used.get(table.scope_key or "", table.config.dimension)
        if dimension != table.config.dimension:
            raise ValueError(
                f"model_fn uses a column of table {table.name!r} with dimension {dimension}, "
                "and the EmbeddingConfigSpec has it with dimension "
                f"{table.config.dimension}. Use the spec's own columns in model_fn."
            )


@on(Event.MODEL_FAILED, when=lambda call: call.ours and bool(call.tables))
def activations_as_ids(facts: Facts, error: Exception) -> None:
    """Names the activations in an error that occurs because model_fn used them as ids.

    Without a TPU, tensorflow-estimator passes ids to a model_fn. Here model_fn receives
    activations, as on a TPU, and only feature columns can read the ids.
    """
    if not isinstance(error, (AttributeError, TypeError, ValueError)):
        return
    assert facts.batch is not None
    features = facts.batch.seen
    keys = _activations(features, facts.call.tables)
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


@on(Event.MODEL_RETURNED, when=lambda call: call.ours and bool(call.tables))
def compared_activations(facts: Facts, spec: Any) -> None:
    """Warns if model_fn compares activations or casts them to integers, as if they were ids."""
    assert facts.batch is not None
    features = facts.batch.seen
    for key in sorted(_activations(features, facts.call.tables)):
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


def _activations(features: Any, tables: Sequence[Table]) -> set[str]:
    given = features if isinstance(features, Mapping) else ()
    return {feature.key for table in tables for feature in table.features}.intersection(given)
