# SPDX-License-Identifier: Apache-2.0
"""`TPUEstimator`: tensorflow-estimator's, with embedding tables that also train off a TPU.

Where it runs is said, never guessed:

* `use_tpu=False`: on the host.
* `use_tpu=True` and a request to emulate (`TPUConfig(device='host')`, or the environment variable
  ESTIMATOR_EMB_DEVICE=host): on the host, and the program sees what a TPU would show it.
* `use_tpu=True` otherwise: on a TPU, by tensorflow-estimator's own machinery. The tables are in its
  embedding hardware, or on its host where `TPUConfig(tables='host')` or the environment variable
  ESTIMATOR_EMB_TABLES=host says so.
"""

import contextlib
import copy
import itertools
import logging
from collections.abc import Callable
from typing import Any

import tensorflow as tf

from estimator_emb import config as config_lib
from estimator_emb import input_fns, options, progress, stopping
from estimator_emb.backends import tables_on_host
from estimator_emb.backends.emulated.step import EmulatedStep, EmulatedTPU, Reporting
from estimator_emb.backends.host import HostStep
from estimator_emb.backends.tpu import generations, system
from estimator_emb.checkpoints import checkpoint_files, saver
from estimator_emb.checkpoints.model_directory import ModelDirectory
from estimator_emb.checks import arguments, nan_loss, program_checks, run_checks, strategies
from estimator_emb.checks.program_checks import takes
from estimator_emb.compat import custom_gradients
from estimator_emb.compat.internals.estimator import ModeKeys
from estimator_emb.compat.internals.graphs import fn_args
from estimator_emb.compat.internals.tpu_estimator import (
    ExportSavedModelApiVersion,
    RunConfig,
    StockTPUEstimator,
)
from estimator_emb.ordering import hook as ordering
from estimator_emb.spec import check_for_host, tables_of
from estimator_emb.step.cores import Cores
from estimator_emb.tables import scopes
from estimator_emb.tables.dropped import DroppedIds

logger = logging.getLogger("estimator_emb")


class TPUEstimator(StockTPUEstimator):
    """tensorflow-estimator's `TPUEstimator`, whose embedding tables train anywhere.

    With an `embedding_config_spec` on the host, `features[key]` is the activation of feature `key`
    in model_fn, as on a TPU core; the spec's optimizer trains the tables, and the program's own
    optimizer trains the rest. `params` holds 'batch_size', 'use_tpu' and 'context'.

    Every argument has the name, the place and the default that it has in tensorflow-estimator.

    Args:
      model_fn: called with some of `features`, `labels`, `mode`, `params` and `config`, by name, to
        build the graph of a step; returns a `TPUEstimatorSpec` (an `EstimatorSpec` will do). Where
        a TPU is emulated it is called for the batch of one core.
      model_dir: the folder of checkpoints and summaries. None takes that of `config`, or a new
        temporary folder.
      config: a `RunConfig`, which must be given; its `tpu_config` says how a program with
        `use_tpu=True` runs.
      params: a dict that model_fn and input_fn are given, with 'batch_size', 'use_tpu' and
        'context' added, which it must not hold itself.
      use_tpu: True runs on a TPU, or on an emulated one; False on the host's CPU or GPU.
      train_batch_size: samples of a step of training, over all cores. With `use_tpu=True` it must
        be given, and be a multiple of the number of cores.
      eval_batch_size: likewise for `evaluate`, which needs it where the program evaluates on a TPU.
      predict_batch_size: likewise for `predict`.
      batch_axis: for each input the axis that holds samples, where input_fn is called once for each
        core; None means axis 0.
      eval_on_tpu: False evaluates on the host.
      export_to_tpu: adds a graph for TPUs to SavedModels; where no TPU is, it has no effect.
      export_to_cpu: adds a graph for CPU and GPU to SavedModels.
      warm_start_from: a checkpoint, a folder of checkpoints or SavedModel, or
        `WarmStartSettings`, from which the variables start.
      embedding_config_spec: the embedding tables. None, for a model without.
      export_saved_model_api_version: an `ExportSavedModelApiVersion`, which says how
        `export_saved_model` builds the graph for TPUs.

    Raises:
      TypeError: `model_fn` is no function, or a batch size no integer.
      ValueError: `config` is no `RunConfig`, an argument of model_fn is unknown, a batch size is
        missing or not positive, `params` holds a key of the estimator's own, or the spec is not one
        that can train where the program runs.

    Source: `TPUEstimator` of tensorflow_estimator/python/estimator/tpu/tpu_estimator.py, 2.15.0.
    """

    def __init__(
        self,
        model_fn: Callable[..., Any] | None = None,
        model_dir: str | None = None,
        config: Any = None,
        params: dict[str, Any] | None = None,
        use_tpu: bool = True,
        train_batch_size: int | None = None,
        eval_batch_size: int | None = None,
        predict_batch_size: int | None = None,
        batch_axis: Any = None,
        eval_on_tpu: bool = True,
        export_to_tpu: bool = True,
        export_to_cpu: bool = True,
        warm_start_from: Any = None,
        embedding_config_spec: config_lib.EmbeddingConfigSpec | None = None,
        export_saved_model_api_version: Any = ExportSavedModelApiVersion.V1,
    ):
        program_checks.check_model_fn(model_fn)
        program_checks.check_batch_sizes(
            train_batch_size=train_batch_size,
            eval_batch_size=eval_batch_size,
            predict_batch_size=predict_batch_size,
        )
        if embedding_config_spec is not None:
            embedding_config_spec = config_lib.validated(embedding_config_spec)
        self._on_host = not use_tpu or options.asked(config) == "host"
        self._bad_ids = options.asked_bad_ids(config)
        if self._bad_ids == "drop" and not self._on_host:
            raise ValueError("bad_ids='drop' works on the host only: a TPU does not check ids.")
        self._emulated = use_tpu and self._on_host
        strategies.check(config, embedding_config_spec is not None, self._emulated)
        self._tables = tables_of(embedding_config_spec)
        # Whether the model runs on a TPU and the tables on its host.
        self._fed = (
            not self._on_host and bool(self._tables) and options.asked_tables(config) == "host"
        )
        self._spec = embedding_config_spec
        # As the program gave them, for `preflight`.
        self._program_model_fn, self._batch_axis = model_fn, batch_axis
        self._exporting = False
        self._predict_keys: Any = ()
        self._batch_sizes = {
            ModeKeys.TRAIN: train_batch_size,
            ModeKeys.EVAL: eval_batch_size,
            ModeKeys.PREDICT: predict_batch_size,
        }
        self._must_count_steps = False
        self._asked_export_to_tpu = False
        if self._on_host or self._fed:
            if embedding_config_spec is not None:
                check_for_host(embedding_config_spec, self._tables)
                if self._fed:
                    tables_on_host.check(config, embedding_config_spec)
            if self._emulated:
                config = options.emulated_config(config, embedding_config_spec)
            if self._emulated or embedding_config_spec is not None:
                # The metagraph for TPU holds ops that only a TPU's graph can have.
                self._asked_export_to_tpu = export_to_tpu
                export_to_tpu, export_to_cpu = False, export_to_cpu or export_to_tpu
            if train_batch_size is None and isinstance(config, RunConfig):
                # tensorflow-estimator's log of examples per second multiplies by it.
                config = config.replace(log_step_count_steps=None)
        elif embedding_config_spec is not None:
            generations.check_spec(
                embedding_config_spec,
                getattr(getattr(config, "tpu_config", None), "tpu_generation", None),
            )
        if params is None and "params" in fn_args(model_fn):
            params = {}  # tensorflow-estimator warns of none, though it adds 'batch_size' itself.
        super().__init__(
            model_fn=model_fn,
            model_dir=model_dir,
            config=config,
            params=program_checks.checked_params(params),
            use_tpu=use_tpu,
            train_batch_size=train_batch_size,
            eval_batch_size=eval_batch_size,
            predict_batch_size=predict_batch_size,
            batch_axis=batch_axis,
            eval_on_tpu=eval_on_tpu and use_tpu,
            export_to_tpu=export_to_tpu,
            export_to_cpu=export_to_cpu,
            warm_start_from=warm_start_from,
            embedding_config_spec=None if self._on_host or self._fed else embedding_config_spec,
            export_saved_model_api_version=export_saved_model_api_version,
        )
        described: dict[str, Any] = {
            "config": self._config,
            "train_batch_size": train_batch_size,
            "eval_batch_size": eval_batch_size,
            "predict_batch_size": predict_batch_size,
            "eval_on_tpu": eval_on_tpu,
        }
        if self._emulated:
            self._ctx = EmulatedTPU(**described)
        elif self._fed:
            self._ctx = tables_on_host.FedTPU(**described)
        self._tables_on_tpu = [] if self._on_host or self._fed else self._tables
        if embedding_config_spec is not None and self._tables_on_tpu:
            system.install(self, embedding_config_spec, self._tables_on_tpu)
        self._directory = ModelDirectory(self.model_dir, self.config.is_chief)
        # Now a dict, where none were given.
        self._params: Any = program_checks.checked_params(self._params)  # type: ignore[has-type]
        self._asked_warm_start: Any = self._warm_start_settings  # type: ignore[has-type]

    def __deepcopy__(self, memo: dict[int, Any]) -> "TPUEstimator":
        copied = memo[id(self)] = type(self).__new__(type(self))
        of_self = ("_model_fn", "_program_model_fn")  # The first refers to this estimator.
        for name, value in vars(self).items():
            setattr(copied, name, value if name in of_self else copy.deepcopy(value, memo))
        assert self._program_model_fn is not None
        copied._model_fn = copied._augment_model_fn(self._program_model_fn, self._batch_axis)
        return copied

    def train(
        self,
        input_fn: Any,
        hooks: Any = None,
        steps: Any = None,
        max_steps: Any = None,
        saving_listeners: Any = None,
    ) -> Any:
        """Trains the model, from the latest checkpoint of `model_dir` if there is one.

        Args:
          input_fn: called with some of `params`, `mode` and `config`, by name; returns a Dataset of
            (features, labels) whose batches have `params["batch_size"]` samples.
          hooks: `SessionRunHook`s, which fire once in a session call.
          steps: how many steps to train, from where training begins.
          max_steps: the global step at which training ends. Without `steps` and `max_steps` it ends
            with its input, where `use_tpu=False`.
          saving_listeners: `CheckpointSaverListener`s.

        Returns:
          This estimator.

        Raises:
          ValueError: both `steps` and `max_steps` are given, or neither with `use_tpu=True`; or
            there is a checkpoint that does not fit the program.
          tf.errors.InvalidArgumentError: a batch is bad; the message names the feature, the table
            and the value.
          SystemExit: a SIGTERM ended training, after a checkpoint.
        """
        self._must_count_steps = steps is not None or max_steps is not None
        run_checks.say_if_reached(self.model_dir, max_steps)
        with (
            options.explained(),
            stopping.at_end_of_step(self.model_dir, self.config.is_chief) as end_hooks,
            run_checks.training(hooks) as check,
            self._directory.continuing(),
        ):
            batch_size = self._batch_sizes[ModeKeys.TRAIN]
            log = progress.log_beside(hooks, steps, max_steps, batch_size, self.model_dir)
            hooks = [*(hooks or ()), *log, check, *end_hooks]
            return super().train(input_fn, hooks, steps, max_steps, saving_listeners)

    def evaluate(
        self,
        input_fn: Any,
        steps: Any = None,
        hooks: Any = None,
        checkpoint_path: Any = None,
        name: Any = None,
    ) -> Any:
        """Computes the loss and the metrics of a checkpoint.

        Args:
          input_fn: as of `train`.
          steps: how many batches. With `use_tpu=True` it must be given; None reads the input to its
            end.
          hooks: `SessionRunHook`s.
          checkpoint_path: the checkpoint; None for the latest of `model_dir`.
          name: of this evaluation, where there are several: its summaries go to `eval_<name>`.

        Returns:
          {name of a metric: its value}, with 'loss' and 'global_step'.

        Raises:
          ValueError: the checkpoint is missing, damaged or does not fit the program; or there is no
            batch.
        """
        path = self._directory.to_read("evaluate", checkpoint_path, self._asked_warm_start)
        with stopping.at_once(), options.explained(), self._directory.restoring(path):
            return super().evaluate(input_fn, steps, hooks, path, name)

    def _evaluate_run(
        self,
        checkpoint_path: Any,
        scaffold: Any,
        update_op: Any,
        eval_dict: Any,
        all_hooks: Any,
        output_dir: Any,
    ) -> Any:
        # Last: of a loop that the end of the input cuts short, its own hook says more.
        hooks = [*all_hooks, run_checks.Evaluated(), stopping.EndEvaluation()]
        return super()._evaluate_run(
            checkpoint_path, scaffold, update_op, eval_dict, hooks, output_dir
        )

    def predict(
        self,
        input_fn: Any,
        predict_keys: Any = None,
        hooks: Any = None,
        checkpoint_path: Any = None,
        yield_single_examples: bool = True,
    ) -> Any:
        """Yields the predictions of a checkpoint.

        Args:
          input_fn: as of `train`; labels are ignored.
          predict_keys: names of the predictions that are wanted; None for all.
          hooks: `SessionRunHook`s.
          checkpoint_path: the checkpoint; None for the latest of `model_dir`.
          yield_single_examples: False yields the predictions of a batch as they are.

        Yields:
          {name: array} for each sample, or for each batch.

        Raises:
          NotImplementedError: the tables are on a TPU's embedding hardware.
          ValueError: the checkpoint is missing, damaged or does not fit the program.
        """
        if self._tables_on_tpu:
            raise NotImplementedError(system.NO_PREDICTION)
        path = self._directory.to_read("predict", checkpoint_path, self._asked_warm_start)
        self._predict_keys = predict_keys if yield_single_examples else ()
        predictions = super().predict(input_fn, predict_keys, hooks, path, yield_single_examples)
        with stopping.at_once(), options.explained(), contextlib.closing(predictions):
            # The graph is built for the first one. This estimator may then do something else.
            with self._directory.restoring(path):
                first = list(itertools.islice(predictions, 1))
            yield from first
            yield from predictions

    def latest_checkpoint(self) -> str | None:
        """Returns the path of the latest checkpoint in `model_dir`; None where there is none."""
        return self._directory.latest()

    def _export_all_saved_models(self, *args: Any, **kwargs: Any) -> Any:
        if kwargs.get("checkpoint_path"):
            checkpoint_files.given(kwargs["checkpoint_path"])
        return super()._export_all_saved_models(*args, **kwargs)

    def _add_meta_graph_for_mode(
        self, builder: Any, receivers: Any, checkpoint_path: str, *args: Any, **kwargs: Any
    ) -> Any:
        receivers = {
            mode: program_checks.checked_receiver_fn(receiver_fn)
            for mode, receiver_fn in receivers.items()
        }
        if self._asked_export_to_tpu:
            why = "with tables on the host" if self._fed else "off a TPU"
            logger.info("export_to_tpu: %s, only the metagraph for CPU is written.", why)
        self._exporting = True
        try:
            with self._directory.restoring(checkpoint_path):
                return super()._add_meta_graph_for_mode(
                    builder, receivers, checkpoint_path, *args, **kwargs
                )
        finally:
            self._exporting = False

    def _call_input_fn(self, input_fn: Any, mode: str, input_context: Any = None) -> Any:
        if isinstance(self._params, program_checks.Params):
            self._params.mode = mode
        if self._on_host:
            input_fn = program_checks.checked_input_fn(
                input_fn, self._spec is not None, self._emulated
            )
        if self._fed:
            with self._ctx.with_mode(mode) as ctx:
                on_cpu = ctx.is_running_on_cpu()
        else:
            on_cpu = self._on_host and not self._emulated and self._spec is not None
        if on_cpu:
            input_fn = input_fns.with_context(input_fn)
        if self._tables_on_tpu:
            input_fn = input_fns.for_hardware(input_fn, self._tables_on_tpu)
        ahead = self._spec is not None and self._spec.pipeline_execution_with_tensor_core
        if ahead and self._on_host and mode == ModeKeys.TRAIN:
            input_fn = input_fns.with_one_more(input_fn, self.config.tpu_config.num_shards or 1)
        return super()._call_input_fn(input_fn, mode, input_context)

    def _call_model_fn(self, features: Any, labels: Any, mode: str, config: Any) -> Any:
        if self._on_host and not self._exporting:
            program_checks.check_takes_params(
                self._program_model_fn, self._batch_sizes.get(mode) is not None
            )
        with custom_gradients.ending_with_graph():
            spec = super()._call_model_fn(features, labels, mode, config)
        if self._tables_on_tpu:
            system.hide_helpers()
        if self._on_host and spec.mode == ModeKeys.TRAIN:
            program_checks.check_global_step(self._must_count_steps)
        if self._on_host and spec.mode == ModeKeys.EVAL:
            spec = ordering.added_to_evaluation(spec)
        scaffold = getattr(spec, "scaffold", None)
        self._directory.check(scaffold, self._warm_start_settings, self._tables)
        return spec

    def _needs_batch(self, name: str) -> bool:
        """Whether predictions of a name are handed out by example, or gathered from cores."""
        keys = self._predict_keys
        return not self._exporting and (self._emulated or keys is None or name in keys)

    def _augment_model_fn(self, model_fn: Callable[..., Any], batch_axis: Any) -> Any:
        augment = super()._augment_model_fn
        if self._spec is not None:
            model_fn = takes(scopes.recording(model_fn), fn_args(model_fn))
        if not self._on_host and not self._fed:
            return augment(model_fn, batch_axis)
        model_fn = program_checks.checked_model_fn(
            model_fn, self._tables, self._spec is not None, self._needs_batch
        )
        on_cpu = augment(self._on_one_core(model_fn), batch_axis)

        def on_tpu(features: Any, labels: Any, mode: str, config: Any, params: Any) -> Any:
            with self._ctx.with_mode(mode) as ctx:
                if not self._is_input_fn_invoked or ctx.is_running_on_cpu():  # No input: an export.
                    return on_cpu(features, labels, mode, config, params)
                step: tables_on_host.FedStep | EmulatedStep
                if self._fed:
                    assert self._spec is not None
                    step = tables_on_host.FedStep(
                        ctx, self._spec, self._tables, model_fn, features, batch_axis
                    )
                    with self._ctx.by_core():
                        built = step.build(augment, labels, mode, config, params)
                else:
                    # As tensorflow-estimator does: set by `_call_input_fn`, for this call only.
                    self._is_input_fn_invoked: bool | None = None
                    step = EmulatedStep(
                        ctx,
                        model_fn,
                        features,
                        self._spec,
                        self._tables,
                        batch_axis,
                        config,
                        params,
                        self._dropped(),
                    )
                    built = step.build(self._reporting())
                if mode == ModeKeys.TRAIN:
                    self._warm_start_settings = step.warm_start(self._asked_warm_start)
                return built

        return on_tpu if self._fed or self._emulated else on_cpu

    def _reporting(self) -> Reporting:
        """Returns what tensorflow-estimator logs while this estimator trains."""
        counted = self._iterations_per_training_loop
        steps_per_call = counted.value if counted.unit == "count" else None
        return Reporting(self._log_every_n_steps, self._log_every_n_secs, steps_per_call)

    def _on_one_core(self, model_fn: Callable[..., Any]) -> Callable[..., Any]:
        """`model_fn` as tensorflow-estimator calls it on CPU, run as on a TPU core."""
        names = list(fn_args(model_fn))

        def on_one_core(features: Any, mode: str, **kwargs: Any) -> Any:
            if "mode" in names:
                kwargs["mode"] = mode
            if self._spec is None:
                with Cores().running(shard_context=False):
                    return model_fn(features=features, **kwargs)
            step = HostStep(
                self._spec,
                self._tables,
                mode,
                self.model_dir,
                shards=1 if self._exporting else max(self.config.num_ps_replicas, 1),
                dropped=self._dropped(),
                exporting=self._exporting,
            )
            spec = step.build(model_fn, features, kwargs)
            if mode == ModeKeys.TRAIN:
                self._warm_start_settings = step.warm_start(self._asked_warm_start)
            return spec

        return takes(on_one_core, dict.fromkeys([*names, "mode"]))

    def _train_with_estimator_spec(
        self, estimator_spec: Any, worker_hooks: Any, hooks: Any, *args: Any, **kwargs: Any
    ) -> Any:
        savers = tf.compat.v1.GraphKeys.SAVERS
        has_saver = estimator_spec.scaffold.saver or tf.compat.v1.get_collection(savers)
        if self._on_host and self._spec is not None and not has_saver:
            tf.compat.v1.add_to_collection(savers, saver.saver(self.config))
        if self._on_host:
            estimator_spec, hooks = nan_loss.first(estimator_spec, hooks, self._emulated)
            estimator_spec = ordering.added_to_training(estimator_spec, [*worker_hooks, *hooks])
        progress.show_loss(hooks, estimator_spec.loss)
        return super()._train_with_estimator_spec(
            estimator_spec, worker_hooks, hooks, *args, **kwargs
        )

    def _dropped(self) -> DroppedIds | None:
        return DroppedIds(count=not self._exporting) if self._bad_ids == "drop" else None


for _method in ("__init__", "train", "evaluate", "predict"):
    arguments.suggest_in(TPUEstimator, _method)
