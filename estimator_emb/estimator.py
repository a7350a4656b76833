"""tensorflow-estimator's `TPUEstimator`, with embedding tables that also train without a TPU.

Everything that depends on where the program runs is in a backend. `backends.choose` makes it once.
"""

import copy
import dataclasses
import functools
from collections.abc import Callable
from typing import Any

from estimator_emb.backends import driver
from estimator_emb.backends.base import Backend, EstimatorRequest
from estimator_emb.backends.choose import choose
from estimator_emb.checkpoints.files import checkpoint_files, unfinished_exports
from estimator_emb.checkpoints.restoring.model_directory import ModelDirectory
from estimator_emb.checkpoints.restoring.warm_starts import without_global_step
from estimator_emb.compat.internals.estimators import ModeKeys
from estimator_emb.compat.internals.graphs import fn_args, not_converted
from estimator_emb.compat.internals.tpu_estimator import (
    ExportSavedModelApiVersion,
    StockTPUEstimator,
)
from estimator_emb.guards import watching
from estimator_emb.guards.call import Call
from estimator_emb.guards.checks import program_checks
from estimator_emb.guards.watching import Watch, WatchedGraph
from estimator_emb.reporting.program_calls import method_of_program
from estimator_emb.spec import config as config_lib
from estimator_emb.spec.resolved import tables_of

_ASKED = {field.name for field in dataclasses.fields(EstimatorRequest)}


class TPUEstimator(StockTPUEstimator):
    """tensorflow-estimator's `TPUEstimator`, with embedding tables that train anywhere.

    With an `embedding_config_spec` on the host, `features[key]` in model_fn is the activation of
    feature `key`, as on a TPU core. The spec's optimizer trains the tables, and the program's own
    optimizer trains the other variables. With `use_tpu=False`, feature columns outside of the spec
    read the ids. `params` holds 'batch_size', 'use_tpu' and 'context'.

    The arguments have the names, order and defaults of tensorflow-estimator.

    Args:
      model_fn: called with some of `features`, `labels`, `mode`, `params` and `config`, by name, to
        build the graph of a step. Returns a `TPUEstimatorSpec` or an `EstimatorSpec`. On an
        emulated TPU it is called for the batch of a single core.
      model_dir: the folder of checkpoints and summaries. None takes the folder of `config`, or a
        new temporary folder.
      config: a `RunConfig`. None, the default of tensorflow-estimator, is refused. Its
        `tpu_config` says how a program with `use_tpu=True` runs.
      params: a dict for model_fn and input_fn. They get it with 'batch_size', 'use_tpu' and
        'context' added, so it must not hold these keys itself.
      use_tpu: True runs on a real or an emulated TPU, False on the host's CPU or GPU.
      train_batch_size: samples of a training step, over all cores. With `use_tpu=True` it is
        required, and must be a multiple of the number of cores.
      eval_batch_size: likewise for `evaluate`, if the program evaluates on a TPU.
      predict_batch_size: likewise for `predict`.
      batch_axis: the axis of the samples for each input, if input_fn is called once for each
        core. None means axis 0.
      eval_on_tpu: False evaluates on the host.
      export_to_tpu: adds a graph for TPUs to SavedModels. Unused with host tables or emulated TPUs.
      export_to_cpu: adds a graph for CPU and GPU to SavedModels.
      warm_start_from: where the variables start: a checkpoint, a folder of checkpoints or
        SavedModel, or `WarmStartSettings`.
      embedding_config_spec: the embedding tables. None for a model without tables.
      export_saved_model_api_version: an `ExportSavedModelApiVersion`. It says how
        `export_saved_model` builds the graph for TPUs.

    Raises:
      TypeError: `model_fn` is not a function, or a batch size is not an integer.
      ValueError: `config` is not a `RunConfig`, an argument of model_fn is unknown, a batch size is
        missing or not positive, `params` holds a key that the estimator adds, TensorFlow reads
        `model_dir` as a pattern, or the spec cannot train where the program runs.

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
        arguments = dict(locals())  # First, because a debugger adds to locals() line by line.
        del arguments["self"], arguments["__class__"]
        if embedding_config_spec is not None:
            arguments["embedding_config_spec"] = config_lib.validated(embedding_config_spec)
        if params is None and "params" in fn_args(model_fn):
            # Otherwise tensorflow-estimator warns, though it adds 'batch_size' itself.
            arguments["params"] = {}
        asked = {name: value for name, value in arguments.items() if name in _ASKED}
        spec = arguments["embedding_config_spec"]
        tables = tuple(tables_of(spec, off_tpu=not use_tpu))
        self.backend: Backend = choose(EstimatorRequest(spec=spec, tables=tables, **asked))
        super().__init__(**{**arguments, **self.backend.constructor_arguments()})
        self.backend.attach(self)
        self._directory = ModelDirectory(self.model_dir)
        if type(self._params) is dict:  # type: ignore[has-type]
            self._params: Any = program_checks.Params(self._params)  # type: ignore[has-type]
        self._warm_start_settings: Any = without_global_step(
            self._warm_start_settings  # type: ignore[has-type]
        )
        self._asked_warm_start = self._warm_start_settings

    def __deepcopy__(self, memo: dict[int, Any]) -> "TPUEstimator":
        copied = memo[id(self)] = type(self).__new__(type(self))
        request = self.backend.request
        for name, value in vars(self).items():
            if name not in ("_model_fn", watching.CURRENT):  # These belong to this estimator.
                setattr(copied, name, copy.deepcopy(value, memo))
        copied._model_fn = copied._augment_model_fn(request.model_fn, request.batch_axis)
        return copied

    def train(
        self,
        input_fn: Any,
        hooks: Any = None,
        steps: Any = None,
        max_steps: Any = None,
        saving_listeners: Any = None,
    ) -> Any:
        """Trains the model, starting from the latest checkpoint of `model_dir` if it exists.

        Args:
          input_fn: called with some of `params`, `mode` and `config`, by name. Returns a Dataset of
            (features, labels) with batches of `params["batch_size"]` samples.
          hooks: `SessionRunHook`s. They run once in each session call.
          steps: the number of steps to train, counted from where training begins.
          max_steps: the global step at which training ends. Without `steps` and `max_steps`, and
            with `use_tpu=False`, training ends with its input.
          saving_listeners: `CheckpointSaverListener`s.

        Returns:
          This estimator.

        Raises:
          ValueError: both `steps` and `max_steps` are given, or neither with `use_tpu=True`; or a
            checkpoint does not fit the program.
          RuntimeError: another training, in this process or another, saves in `model_dir`.
          tf.errors.InvalidArgumentError: a batch is bad. The message names the feature, the table
            and the value.
          SystemExit: SIGTERM or SIGHUP ended training, after a checkpoint.
        """
        hooks = program_checks.listed("hooks", hooks)
        saving_listeners = program_checks.listed("saving_listeners", saving_listeners)
        given = {"hooks": hooks, "saving_listeners": saving_listeners}
        watch = self._watch("train", **given, steps=steps, max_steps=max_steps)
        with (
            self.backend.host.training(self.model_dir),
            watch.surround() as own_hooks,
            watch.building(self),
        ):
            all_hooks = [*(hooks or ()), *own_hooks]
            listeners = None if self.backend.host.number else saving_listeners  # The chief saves.
            return super().train(input_fn, all_hooks, steps, max_steps, listeners)

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
          input_fn: as for `train`.
          steps: number of batches, required with `use_tpu=True`. None reads the input to its end.
          hooks: `SessionRunHook`s.
          checkpoint_path: the checkpoint. None for the latest of `model_dir`.
          name: name of this evaluation, if there are several. Its summaries go to `eval_<name>`.

        Returns:
          {name of a metric: its value}, with 'loss' and 'global_step'.

        Raises:
          ValueError: the checkpoint is missing, damaged or does not fit the program, or the input
            has no batch.
        """
        hooks = program_checks.listed("hooks", hooks)

        def by_chief() -> Any:
            given = {"hooks": hooks, "steps": steps, "checkpoint_path": checkpoint_path}
            watch = self._watch("evaluate", **given)
            with watch.surround(), watch.building(self):
                return evaluate(input_fn, steps, hooks, watch.call.checkpoint, name)

        evaluate = super().evaluate
        return self.backend.host.shared(by_chief)

    def _evaluate_run(self, *, all_hooks: Any, output_dir: Any, **given: Any) -> Any:
        run = functools.partial(super()._evaluate_run, output_dir=output_dir, **given)
        watch = watching.watch_of(self, self._base_call(), ModeKeys.EVAL)
        return watch.evaluate(run, all_hooks, output_dir)

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
          input_fn: as for `train`. Labels are ignored.
          predict_keys: names of the predictions to yield. None for all.
          hooks: `SessionRunHook`s.
          checkpoint_path: the checkpoint. None for the latest of `model_dir`.
          yield_single_examples: False yields the predictions of a whole batch at a time.

        Yields:
          {name: array} for each sample, or for each batch.

        Raises:
          NotImplementedError: the tables are on a TPU's embedding hardware.
          ValueError: the checkpoint is missing, damaged or does not fit the program.
        """
        self.backend.check_prediction()
        hooks = program_checks.listed("hooks", hooks)
        if self.backend.host.number:
            return
        by_example = predict_keys if yield_single_examples else ()
        watch = self._watch("predict", checkpoint_path=checkpoint_path, predict_keys=by_example)
        path = watch.call.checkpoint
        values = super().predict(input_fn, predict_keys, hooks, path, yield_single_examples)
        yield from watch.predictions(self, values)

    def export_saved_model(
        self,
        export_dir_base: str,
        serving_input_receiver_fn: Callable[[], Any],
        assets_extra: Any = None,
        as_text: bool = False,
        checkpoint_path: str | None = None,
        experimental_mode: Any = ModeKeys.PREDICT,
    ) -> bytes:
        """Writes a SavedModel with the weights of a checkpoint.

        Args:
          export_dir_base: the parent of the new folder. The new folder is named by the time.
          serving_input_receiver_fn: returns a `ServingInputReceiver`, with the tensors that a
            caller of the model feeds, and the features that model_fn gets.
          assets_extra: {path in `assets.extra` of the SavedModel: file to copy there}, or None.
          as_text: whether the SavedModel is written as text.
          checkpoint_path: the checkpoint. None for the latest of `model_dir`.
          experimental_mode: the mode for which model_fn builds the graph.

        Returns:
          The path of the new folder.

        Raises:
          ValueError: the checkpoint is missing, damaged or does not fit the program; or
            `serving_input_receiver_fn` returns None.
        """
        export = functools.partial(
            super().export_saved_model,
            export_dir_base,
            serving_input_receiver_fn,
            assets_extra,
            as_text,
            checkpoint_path,
            experimental_mode,
        )
        path: bytes = self.backend.host.shared(export)
        return path

    def latest_checkpoint(self) -> str | None:
        """Returns the path of the latest checkpoint in `model_dir`, or None."""
        return self._directory.latest()

    def _export_all_saved_models(self, *args: Any, **kwargs: Any) -> Any:
        if kwargs.get("checkpoint_path"):
            checkpoint_files.given(kwargs["checkpoint_path"])
        with unfinished_exports.removed_after_error(self):
            return super()._export_all_saved_models(*args, **kwargs)

    def _add_meta_graph_for_mode(
        self, builder: Any, receivers: Any, checkpoint_path: str, *args: Any, **kwargs: Any
    ) -> Any:
        unfinished_exports.note(self, builder)
        watch = self._watch("export", checkpoint_path=checkpoint_path)
        with watch.building(self):
            return super()._add_meta_graph_for_mode(
                builder, receivers, checkpoint_path, *args, **kwargs
            )

    def _watch(self, method: str, **given: Any) -> Watch:
        return Watch.begun(self._base_call(), method, **given)

    def _base_call(self) -> Call:
        """Returns the `Call` fields that all calls of this estimator share."""
        request = self.backend.request
        sizes = {mode: getattr(request, name) for mode, name in program_checks.BATCH_SIZES.items()}
        return Call(
            self.backend.runs,
            model_fn=request.model_fn,
            has_spec=request.spec is not None,
            tables=request.tables,
            batch_sizes=sizes,
            model_dir=self.model_dir,
            config=self._config,
            directory=self._directory,
            warm_start=self._asked_warm_start,
            host=self.backend.host.number,
            hosts=self.backend.host.count,
        )

    def watched(self, mode: str) -> WatchedGraph:
        """Returns what is known of the default graph, which is built for `mode`."""
        return watching.graph_of(self, self._base_call(), mode)

    def _call_input_fn(self, input_fn: Any, mode: str, input_context: Any = None) -> Any:
        if isinstance(self._params, program_checks.Params):
            self._params.mode = mode
        input_fn = self.backend.input_fn(input_fn, self.watched(mode), self._ctx)
        return super()._call_input_fn(input_fn, mode, input_context)

    def _call_model_fn(self, features: Any, labels: Any, mode: str, config: Any) -> Any:
        model_fn = functools.partial(super()._call_model_fn, features, labels, mode, config)
        graph = self.watched(mode)
        spec = driver.build(graph, model_fn)
        self._warm_start_settings = graph.warm_start()
        return spec

    def _augment_model_fn(self, model_fn: Callable[..., Any], batch_axis: Any) -> Any:
        return self.backend.model_fn(self, super()._augment_model_fn)

    def _train_with_estimator_spec(
        self, estimator_spec: Any, worker_hooks: Any, hooks: Any, *args: Any, **kwargs: Any
    ) -> Any:
        graph = self.watched(ModeKeys.TRAIN)
        estimator_spec, hooks = graph.training(estimator_spec, worker_hooks, hooks)
        estimator_spec, hooks = self.backend.host.without_chief_hooks(estimator_spec, hooks)
        return self._train_with_hooks(estimator_spec, worker_hooks, hooks, *args, **kwargs)

    def _train_with_hooks(self, *args: Any, **kwargs: Any) -> Any:
        return super()._train_with_estimator_spec(*args, **kwargs)


for _method in ("__init__", "train", "evaluate", "predict", "export_saved_model"):
    method_of_program(TPUEstimator, _method)
for _method in ("train", "evaluate", "predict", "_export_all_saved_models", "_call_model_fn"):
    not_converted(TPUEstimator.__dict__[_method])
