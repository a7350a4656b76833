# SPDX-License-Identifier: Apache-2.0
"""The model and its tables on the host, alone or in a cluster: what `use_tpu=False` runs.

Every program whose tables are on the host exports in this way, and predicts so where the model is
on a TPU.
"""

import logging
from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from estimator_emb.backends.base import Backend, Call, Function, Request
from estimator_emb.backends.host_context import HostContext
from estimator_emb.checkpoints.restoring import live_servers, saver
from estimator_emb.checks import batch_sizes, clusters, nan_loss, program_checks, tpu_ops
from estimator_emb.checks.program_checks import takes
from estimator_emb.messages import console
from estimator_emb.native import serving
from estimator_emb.ordering import hook as ordering
from estimator_emb.private.estimator import ModeKeys
from estimator_emb.private.graphs import fn_args
from estimator_emb.private.tpu_estimator import StockRunConfig, add_item_to_params
from estimator_emb.spec import options
from estimator_emb.spec.config import EmbeddingConfigSpec
from estimator_emb.spec.resolved import Table, check_for_host, with_own_keys
from estimator_emb.step import summaries, transfer
from estimator_emb.step.cores import Cores
from estimator_emb.step.dropped import DroppedIds
from estimator_emb.step.engine import Lookup, TableStep
from estimator_emb.tables.column_reads import ColumnReads

logger = logging.getLogger("estimator_emb")


class HostStep:
    """The graph of one mode, in which the model is one core that sees the whole batch.

    Args:
      spec: checked.
      tables: those of the spec.
      mode: a `ModeKeys`.
      model_dir: the program's, of which the log tells once.
      servers: host:port of each parameter server that holds the tables.
      dropped: leaves bad ids out; None makes them errors.
      exporting: True for a graph that others will run.
      summarizes: True adds figures of the tables to the summaries of a training.
    """

    def __init__(
        self,
        spec: EmbeddingConfigSpec,
        tables: Sequence[Table],
        mode: str,
        model_dir: str,
        servers: Sequence[str],
        dropped: DroppedIds | None,
        exporting: bool,
        summarizes: bool = False,
    ):
        self._training = mode == ModeKeys.TRAIN
        self._dropped = dropped
        self._servers = servers
        self._exporting = exporting
        self._model_dir = model_dir
        self._cores = Cores()
        self._lookup: Lookup | None = None
        self._tables = TableStep(
            spec,
            tables,
            self._training,
            self._cores,
            shards=max(len(servers), 1),
            servers=servers,
            dropped=dropped,
            native=not exporting,
            look_up_integers=True,
            summarizes=summarizes,
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
        features = with_own_keys(self._tables.tables, features)
        tap = self._tables.enqueue(features)
        kept = {key: value for key, value in features.items() if key not in self._tables.replaced}
        if not self._exporting:
            samples = tap.reading.batch.samples
            kept, labels = batch_sizes.watched(kept, kwargs.get("labels"), samples)
            kwargs = {**kwargs, "labels": labels} if "labels" in kwargs else kwargs
        if kwargs.get("labels") is not None:
            kept, labels = self._tables.from_previous_step((kept, kwargs["labels"]))
            kwargs = {**kwargs, "labels": labels}
        else:
            kept = self._tables.from_previous_step(kept)
        reads = ColumnReads(
            self._tables.tables,
            tap.features,
            features,
            tap.again,
            self._tables.from_previous_step,
        )
        with (
            batch_sizes.compared(kept, kwargs.get("labels"), tap.reading.static_batch),
            self._cores.running(),
            reads.running(),
        ):
            spec = model_fn(features={**kept, **reads.features}, **kwargs)
        if self._servers and self._training:
            clusters.check_asynchronous()
        self._lookup = tap.create_tables(spec)
        spec = self._lookup.after_checks(spec)
        if self._training and getattr(spec, "train_op", None) is not None:
            self._lookup.check_saver(getattr(spec, "scaffold", None))
            spec = spec._replace(train_op=tf.group(spec.train_op, self._lookup.apply_gradients()))
            if self._tables.summarizes:
                summaries.add_loss(spec.loss)
            report = nan_loss.NanReportHook(spec.loss, self._lookup.tables_on_host())
            spec = spec._replace(training_hooks=(*spec.training_hooks, report))
        if self._tables.next_step:
            spec = spec._replace(training_hooks=(*spec.training_hooks, self._tables.next_step))
        else:
            spec = batch_sizes.added_to(spec)
        return self._dropped.added_to(spec) if self._dropped else spec

    def warm_start(self, settings: Any) -> Any:
        """Returns `WarmStartSettings` for what was built; see `Lookup.warm_start`."""
        return self._lookup.warm_start(settings) if self._lookup else settings


class HostTables(Backend):
    """What the backends have in common whose tables this machine, or its cluster, trains."""

    why_not_for_tpus = "off a TPU"
    """Why a SavedModel has no graph for TPUs, as the log says it."""

    def __init__(self, request: Request):
        super().__init__(request)
        self._drops_ids = options.asked_bad_ids(request.config) == "drop"
        self._summarizes = options.table_summaries_on_host(request.config)
        if request.spec is not None:
            check_for_host(request.spec, request.tables)

    @property
    def _without_tpu_graph(self) -> bool:
        """True where a graph for TPUs would hold ops that only a TPU's own graph can have."""
        return self.emulates_tpu or self.request.spec is not None

    def constructor_arguments(self) -> dict[str, Any]:
        request = self.request
        arguments = {
            **super().constructor_arguments(),
            "config": self._config(),
            "embedding_config_spec": None,
        }
        if self._without_tpu_graph:
            arguments["export_to_tpu"] = False
            arguments["export_to_cpu"] = request.export_to_cpu or request.export_to_tpu
        return arguments

    def _config(self) -> Any:
        """Returns the `RunConfig` that the program's becomes."""
        config = self.request.config
        size = self.request.train_batch_size
        if not program_checks.is_batch_size(size) and isinstance(config, StockRunConfig):
            # tensorflow-estimator's log of examples per second multiplies by it.
            config = config.replace(log_step_count_steps=None)
        return config

    def log_export(self) -> None:
        if self.request.export_to_tpu and self._without_tpu_graph:
            logger.info(
                "export_to_tpu: %s, only the metagraph for CPU is written.", self.why_not_for_tpus
            )

    def _checked_model_fn(self, estimator: Any) -> Function:
        """Returns the program's model_fn, with what it returns checked."""

        def needs_batch(name: str) -> bool:
            call: Call = estimator.current_call
            by_example = call.predict_keys is None or name in call.predict_keys
            # Emulated cores gather what they predict, whoever wants it.
            return not call.exporting and (self.emulates_tpu or by_example)

        return program_checks.checked_model_fn(
            self._recorded_model_fn(),
            list(self.request.tables),
            self.request.spec is not None,
            needs_batch,
        )

    def _on_one_core(self, estimator: Any, model_fn: Function) -> Function:
        """Returns `model_fn` as tensorflow-estimator calls it on CPU, run as on a TPU core."""
        names = list(fn_args(model_fn))
        spec = self.request.spec

        def on_one_core(features: Any, mode: str, **kwargs: Any) -> Any:
            if "mode" in names:
                kwargs["mode"] = mode
            exporting = estimator.current_call.exporting
            if spec is None:
                with Cores().running(shard_context=False):
                    built = model_fn(features=features, **kwargs)
                if exporting:
                    tpu_ops.check()
                return built
            step = HostStep(
                spec,
                self.request.tables,
                mode,
                estimator.model_dir,
                servers=() if exporting else serving.addresses(estimator.config),
                dropped=self._dropped(exporting),
                exporting=exporting,
                summarizes=self._summarizes,
            )
            built = step.build(model_fn, features, kwargs)
            if mode == ModeKeys.TRAIN:
                estimator.warm_start_with(step)
            if exporting:
                tpu_ops.check()
            return built

        return takes(on_one_core, dict.fromkeys([*names, "mode"]))

    def _for_tpu(self, estimator: Any, augment: Function, build: Function) -> Function:
        """Returns the program's model_fn for a TPU; what has no part in one runs on one core.

        Args:
          estimator: as in `model_fn`.
          augment: as in `model_fn`.
          build: called with the context of a mode, the checked model_fn, and what an `Estimator`
            gives a model_fn; returns what was built, and its `EstimatorSpec`.
        """
        model_fn = self._checked_model_fn(estimator)
        on_cpu = augment(self._on_one_core(estimator, model_fn), self.request.batch_axis)

        def for_tpu(features: Any, labels: Any, mode: str, config: Any, params: Any) -> Any:
            with estimator._ctx.with_mode(mode) as context:
                # Without an input, it is an export.
                if not estimator._is_input_fn_invoked or context.is_running_on_cpu():
                    return on_cpu(features, labels, mode, config, params)
                step, spec = build(context, model_fn, features, labels, mode, config, params)
                if mode == ModeKeys.TRAIN:
                    estimator.warm_start_with(step)
                return spec

        return for_tpu

    def _dropped(self, exporting: bool) -> DroppedIds | None:
        """Returns what leaves bad ids out of a graph; None where they are errors."""
        return DroppedIds(count=not exporting) if self._drops_ids else None


class HostBackend(HostTables):
    """This process, or the cluster that TF_CONFIG describes, without a TPU."""

    def _config(self) -> Any:
        return clusters.checked(super()._config(), self.request.spec is not None, self.emulates_tpu)

    def attach(self, estimator: Any) -> None:
        serving.load(estimator.config, self.request.tables, self.request.spec)

    def input_fn(self, input_fn: Function, mode: str, context: Any) -> Function:
        input_fn = self._checked_input_fn(input_fn, mode, batches_ahead=1)
        return input_fn if self.request.spec is None else with_context(input_fn)

    def _checked_input_fn(self, input_fn: Function, mode: str, batches_ahead: int) -> Function:
        spec = self.request.spec
        input_fn = program_checks.checked_input_fn(input_fn, spec is not None, self.emulates_tpu)
        if spec and spec.pipeline_execution_with_tensor_core and mode == ModeKeys.TRAIN:
            input_fn = with_one_more(input_fn, batches_ahead)
        return input_fn

    def model_fn(self, estimator: Any, augment: Function) -> Function:
        model_fn = self._checked_model_fn(estimator)
        return augment(self._on_one_core(estimator, model_fn), self.request.batch_axis)

    def before_model_fn(self, mode: str, call: Call) -> None:
        if not call.exporting:
            sizes = {
                ModeKeys.TRAIN: self.request.train_batch_size,
                ModeKeys.EVAL: self.request.eval_batch_size,
                ModeKeys.PREDICT: self.request.predict_batch_size,
            }
            program_checks.check_takes_params(self.request.model_fn, sizes.get(mode) is not None)

    def after_model_fn(self, spec: Any, call: Call) -> Any:
        if spec.mode == ModeKeys.TRAIN:
            hooks = map(type, (*spec.training_hooks, *spec.training_chief_hooks))
            program_checks.check_global_step(call.counts_steps, (*call.hooks, *hooks))
        if not call.exporting:  # `_on_one_core` does there: an export may have a TPU's graph too.
            tpu_ops.check()
        return ordering.added_to_evaluation(spec) if spec.mode == ModeKeys.EVAL else spec

    def before_training(
        self, spec: Any, worker_hooks: Sequence[Any], hooks: Sequence[Any], config: Any
    ) -> tuple[Any, Sequence[Any]]:
        savers = tf.compat.v1.GraphKeys.SAVERS
        has_saver = spec.scaffold.saver or tf.compat.v1.get_collection(savers)
        if self.request.spec is not None:
            made: saver.PartsSaver | None = None
            if config.num_ps_replicas:
                seen = live_servers.StepsSeen()
                spec = spec._replace(training_hooks=(*spec.training_hooks, seen))
                if config.is_chief:
                    made = live_servers.LiveServersSaver(config, seen)
            if not has_saver:
                tf.compat.v1.add_to_collection(savers, made or saver.PartsSaver(config))
        spec, hooks = nan_loss.first(spec, hooks, self.emulates_tpu)
        return ordering.added_to_training(spec, [*worker_hooks, *hooks]), hooks


def with_context(input_fn: Function) -> Function:
    """Returns an input_fn for the host, whose `params` have a 'context'."""

    def wrapped(**kwargs: Any) -> Any:
        if "params" in kwargs:
            context = HostContext(call_from_input_fn=True)
            add_item_to_params(kwargs["params"], "context", context)
        return input_fn(**kwargs)

    return takes(wrapped, fn_args(input_fn))


def with_one_more(input_fn: Function, batches: int) -> Function:
    """Returns an input_fn whose dataset ends some batches later; see `transfer.with_one_more`."""

    def wrapped(**kwargs: Any) -> Any:
        return transfer.with_one_more(input_fn(**kwargs), batches)

    return takes(wrapped, fn_args(input_fn))
