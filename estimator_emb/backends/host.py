# SPDX-License-Identifier: Apache-2.0
"""The model and its tables on the host, alone or in a cluster: what `use_tpu=False` runs.

A program that runs on a TPU predicts and exports in this way where the TPU has no part in it.
"""

from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from estimator_emb import console
from estimator_emb.backends.host_context import HostContext
from estimator_emb.checks import batch_sizes, nan_loss
from estimator_emb.compat.internals.estimator import ModeKeys
from estimator_emb.compat.internals.tpu_estimator import add_item_to_params
from estimator_emb.config import EmbeddingConfigSpec
from estimator_emb.spec import Table
from estimator_emb.step.cores import Cores
from estimator_emb.step.engine import Lookup, TableStep
from estimator_emb.tables.dropped import DroppedIds


class HostStep:
    """The graph of one mode, in which the model is one core that sees the whole batch.

    Args:
      spec: checked.
      tables: those of the spec.
      mode: a `ModeKeys`.
      model_dir: the program's, of which the log tells once.
      shards: how many parameter servers hold the tables.
      dropped: leaves bad ids out; None makes them errors.
      exporting: True for a graph that others will run.
    """

    def __init__(
        self,
        spec: EmbeddingConfigSpec,
        tables: Sequence[Table],
        mode: str,
        model_dir: str,
        shards: int,
        dropped: DroppedIds | None,
        exporting: bool,
    ):
        self._training = mode == ModeKeys.TRAIN
        self._dropped = dropped
        self._exporting = exporting
        self._model_dir = model_dir
        self._cores = Cores()
        self._lookup: Lookup | None = None
        self._tables = TableStep(
            spec,
            tables,
            self._training,
            self._cores,
            shards=shards,
            dropped=dropped,
            native=not exporting,
            look_up_integers=True,
        )

    def build(self, model_fn: Callable[..., Any], features: Any, kwargs: dict[str, Any]) -> Any:
        """Returns the `EstimatorSpec` of model_fn, with what its tables need.

        Args:
          model_fn: the program's.
          features: of the whole batch.
          kwargs: the other arguments of model_fn.
        """
        params = kwargs.get("params")
        if params is not None and not self._exporting:
            context = HostContext(call_from_input_fn=False)
            add_item_to_params(params, "context", context)
        if self._training:
            console.say_once(self._tables.describe(), self._model_dir)
        tap = self._tables.enqueue(features)
        kept = {key: value for key, value in features.items() if key not in self._tables.consumed}
        if kwargs.get("labels") is not None:
            kept, labels = self._tables.from_previous_step((kept, kwargs["labels"]))
            kwargs = {**kwargs, "labels": labels}
        else:
            kept = self._tables.from_previous_step(kept)
        with (
            batch_sizes.explained(kept, kwargs.get("labels"), tap.reading.static_batch),
            self._cores.running(),
        ):
            spec = model_fn(features={**kept, **tap.features}, **kwargs)
        self._lookup = tap.create_tables(spec)
        spec = self._lookup.after_checks(spec)
        if self._training and getattr(spec, "train_op", None) is not None:
            self._lookup.check_saver(getattr(spec, "scaffold", None))
            spec = spec._replace(train_op=tf.group(spec.train_op, self._lookup.apply_gradients()))
            report = nan_loss.NanReportHook(spec.loss, self._lookup.tables_on_host())
            spec = spec._replace(training_hooks=(*spec.training_hooks, report))
        if self._tables.next_step:
            spec = spec._replace(training_hooks=(*spec.training_hooks, self._tables.next_step))
        return self._dropped.added_to(spec) if self._dropped else spec

    def warm_start(self, settings: Any) -> Any:
        """Returns `WarmStartSettings` for what was built; see `Lookup.warm_start`."""
        return self._lookup.warm_start(settings) if self._lookup else settings
