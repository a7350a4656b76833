"""Builds the step of an emulated TPU, in place of the loop that a TPU runs.

`CoresOfTPU` reads the input of all cores and calls the program's model_fn once, as core 0. An
executor runs this step on all cores. The result is the `EstimatorSpec` that tensorflow-estimator
needs to train, evaluate or predict.

Source: `TPUEstimator._augment_model_fn` of tensorflow_estimator/python/estimator/tpu, 2.15.0.
"""

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import tensorflow as tf

from estimator_emb.backends import driver, tpu_checks
from estimator_emb.backends.base import EstimatorRequest
from estimator_emb.backends.emulated import input as emulated_input
from estimator_emb.backends.emulated.computation import Computation
from estimator_emb.backends.emulated.copies import Executor
from estimator_emb.backends.emulated.loop import LoopHook
from estimator_emb.backends.emulated.topology import EmulatedContext
from estimator_emb.catalog.limits import refuse
from estimator_emb.checkpoints.restoring import saver
from estimator_emb.compat.internals.estimators import (
    LOSS_METRIC_KEY,
    EstimatorSpec,
    ModeKeys,
)
from estimator_emb.compat.internals.graphs import summary_writer_initializers
from estimator_emb.compat.internals.tpu_estimator import (
    CatchInvalidHostcallFunctions,
    ExamplesPerSecondHook,
    InputPipeline,
    InputPipelineConfig,
    ModelFnWrapper,
    MultiHostDatasetInitializerHook,
    create_or_get_iterations_per_loop,
    increase_eval_step_op,
)
from estimator_emb.engine.cores import Cores
from estimator_emb.engine.engine import PendingLookup, TablePlace, TableStep
from estimator_emb.engine.ordering import accesses, structure
from estimator_emb.guards.events import ModelBatch
from estimator_emb.guards.watching import WatchedGraph


class CoresOfTPU(driver.Runner):
    """Runs a model_fn on the cores of an emulated TPU, in the graph of a single mode.

    `input_fn` takes the `TPUContext` of the core or host that it feeds.
    """

    divides = True

    def __init__(
        self,
        graph: WatchedGraph,
        executor: Executor,
        estimator: Any,
        ctx: EmulatedContext,
        config: Any,
        params: Any,
        input_fn: Callable[..., Any],
    ):
        super().__init__(graph, Cores(ctx.num_replicas, executor.takes_out, ctx.own_cores))
        self._executor = executor
        self._estimator = estimator
        self._ctx = ctx
        self._request: EstimatorRequest = estimator.backend.request
        self._config = config
        self._input_fn = input_fn
        self._wrapper = ModelFnWrapper(self._request.model_fn, config, params, ctx)
        self._computation = Computation()
        self._execution = executor.begin(self.cores, self._computation, ctx.mode)
        self._values: dict[str, Any] = {}

    @property
    def place(self) -> TablePlace:
        return self._execution.place

    def says(self) -> str:
        return self._executor.says(self.cores.count, self._ctx.num_hosts)

    def feed(self, tables: TableStep | None) -> ModelBatch:
        # tensorflow-estimator uses this name scope on a TPU.
        with tf.name_scope("input_pipeline_task0"):
            self._input = emulated_input.read_cores(
                self._ctx,
                self._input_fn,
                self._request.batch_axis,
                self.cores,
                self.graph.call.tables,
                tables.consumed if tables else set(),
                tables.from_previous_step if tables else lambda tensors: tensors,
            )
        InputPipeline._validate_input_pipeline(None)  # Refuses or warns about queues.
        if tables:
            tpu_checks.check_features(self._request.tables, self._input.looked_up)
        return ModelBatch(
            self._input.features,
            self._input.labels,
            looked_up=self._input.looked_up,
            samples=self._ctx.batch_size_for_model_fn,
        )

    def check(self, batch: ModelBatch, pending: PendingLookup | None) -> None:
        fed = {**batch.features, **pending.others} if pending else batch.features
        tpu_checks.check_partition_dims(self._ctx, fed, batch.labels)

    @contextlib.contextmanager
    def running(self) -> Iterator[None]:
        with (
            self._execution.running(),
            self._computation.recording(),
            self.cores.running(numbered=True),
            _variables_of_loop(),
        ):
            yield

    def call(self, batch: ModelBatch) -> Any:
        return self._wrapper._call_model_fn(batch.seen, batch.labels)

    def replicate(self, spec: Any, pending: PendingLookup | None) -> driver.Replicas:
        self._computation.check()
        spec = self._verified(spec)
        mode, of_host_call = self._ctx.mode, getattr(spec, "host_call", None)
        wanted = {"host_call": _tensors(of_host_call)}
        if mode == ModeKeys.PREDICT:
            wanted["predictions"] = spec.predictions
        else:
            wanted["loss"] = spec.loss
        if mode == ModeKeys.EVAL:
            wanted["eval_metrics"] = _tensors(spec.eval_metrics)
        if mode == ModeKeys.TRAIN:
            wanted["gradients"] = pending.gradients() if pending else {}
        self._values, spec = self._execution.on_cores(wanted, spec, pending)
        if mode == ModeKeys.TRAIN:
            self._check_replicated()
        losses = self._values.get("loss", ())
        return driver.Replicas(spec, losses, self._values.get("gradients"))

    def _verified(self, returned: Any) -> Any:
        """Returns the spec that model_fn returned, or raises the errors of a TPU."""
        if self._ctx.mode == ModeKeys.TRAIN:
            spec = self._wrapper._verify_estimator_spec(returned)
            tpu_checks.check_loss(spec.loss, training=True)
            return spec
        predicting = self._ctx.mode == ModeKeys.PREDICT
        tpu_checks.check_spec(returned, "prediction" if predicting else "evaluation")
        if predicting:
            self._wrapper._verify_tpu_spec_predictions(returned.predictions)
        else:
            tpu_checks.check_loss(returned.loss, training=False)
        return returned

    def _check_replicated(self) -> None:
        if self.cores.count == 1 or self.cores.collectives:
            return
        if not tf.compat.v1.control_flow_v2_enabled():
            raise ValueError("CrossShardOptimizer must be used for model training on TPUs.")

    def step(self, spec: Any, after: Any) -> EstimatorSpec:
        if self._ctx.mode == ModeKeys.TRAIN:
            spec = self._train(spec, after)
        elif self._ctx.mode == ModeKeys.EVAL:
            spec = self._evaluate(spec, after)
        else:
            spec = self._predict(spec)
        self._computation.close()
        return spec

    def _train(self, spec: Any, update: tf.Operation | None) -> EstimatorSpec:
        step = self._execution.whole_step([spec.train_op, *([] if update is None else [update])])
        create_or_get_iterations_per_loop()  # An op of scaffold_fn may initialize local variables.
        scaffold = self._scaffold(getattr(spec, "scaffold_fn", None))
        host_call = getattr(spec, "host_call", None) if self.graph.call.is_chief else None
        host_ops = self._on_host("host_call", host_call, after=step)
        with tf.control_dependencies([self._execution.last_step(step)]):
            global_step = tf.identity(tf.compat.v1.train.get_global_step())
            train_op = tf.no_op()
        saves = any(
            isinstance(hook, tf.compat.v1.train.CheckpointSaverHook) for hook in spec.training_hooks
        )
        tf.compat.v1.summary.scalar(LOSS_METRIC_KEY, spec.loss)
        return EstimatorSpec(
            self._ctx.mode,
            loss=self._computation.readable(spec.loss),
            train_op=train_op,
            scaffold=scaffold,
            training_chief_hooks=[
                *self._execution.session_hooks(saver.savers_of_program(spec, scaffold)),
                *([] if saves else self._saver_hooks(scaffold)),
            ],
            training_hooks=[
                *self._input_hooks(),
                *self._logging_hooks(spec.loss, global_step),
                *self._computation.guarded(spec.training_hooks),
                LoopHook(
                    step,
                    tf.nest.flatten(host_ops),
                    self._config.tpu_config.experimental_host_call_every_n_steps,
                    self._execution.load,
                ),
            ],
        )

    def _evaluate(self, spec: Any, checked: tf.Tensor | None) -> EstimatorSpec:
        scaffold = self._scaffold(spec.scaffold_fn)
        total = tf.compat.v1.Variable(
            tf.zeros([], spec.loss.dtype),
            name="total_loss",
            trainable=False,
            collections=[tf.compat.v1.GraphKeys.LOCAL_VARIABLES],
            use_resource=True,
        )
        metrics = self._on_host("eval_metrics", spec.eval_metrics) or {}
        with tf.control_dependencies([] if checked is None else [checked]):
            updated = total.assign_add(spec.loss, read_value=False)
        step = tf.group(updated, *(update for _, update in metrics.values()))
        host_ops = self._on_host("host_call", spec.host_call, after=step)
        iterations = create_or_get_iterations_per_loop()
        with tf.control_dependencies([self._execution.last_step(step)]):
            mean = total.read_value() / tf.cast(iterations, total.dtype)
        with tf.control_dependencies([mean]):
            done = tf.group(increase_eval_step_op(iterations))
        with tf.control_dependencies([done]):
            loss = tf.identity(mean)
        return EstimatorSpec(
            self._ctx.mode,
            loss=loss,
            eval_metric_ops={name: (value, done) for name, (value, _) in metrics.items()},
            scaffold=scaffold,
            evaluation_hooks=[
                *self._input_hooks(),
                *self._computation.guarded(spec.evaluation_hooks),
                LoopHook(step, tf.nest.flatten(host_ops), first=self._execution.load),
            ],
        )

    def _predict(self, spec: Any) -> EstimatorSpec:
        scaffold = self._scaffold(spec.scaffold_fn)
        host_ops = self._on_host("host_call", spec.host_call)
        step = tf.group(*tf.nest.flatten([self._values, host_ops]))
        with tf.control_dependencies([self._execution.last_step(step)]):
            predictions = {
                name: _real(self._whole_batch(of_cores), self._input.real)
                for name, of_cores in self._values["predictions"].items()
            }
        return EstimatorSpec(
            self._ctx.mode,
            predictions=predictions,
            scaffold=scaffold,
            prediction_hooks=[
                *self._input_hooks(),
                *self._execution.session_hooks([]),
                *self._computation.guarded(spec.prediction_hooks),
            ],
        )

    def _whole_batch(self, of_cores: list[tf.Tensor], owner: str = "predictions") -> tf.Tensor:
        if self._config.tpu_config.per_host_input_for_training is InputPipelineConfig.BROADCAST:
            return of_cores[0]
        tpu_checks.check_outfed(of_cores[0], owner)
        return of_cores[0] if len(of_cores) == 1 else tf.concat(of_cores, axis=0)

    def _on_host(self, name: str, call: Any, after: tf.Operation | None = None) -> Any:
        if not call:
            return []
        function, tensors = call
        given = [self._whole_batch(of_cores, name) for of_cores in self._values[name].values()]
        context = CatchInvalidHostcallFunctions()
        before = _initial_ops()
        with tf.control_dependencies([after] if after is not None else []):
            by_name = dict(zip(tensors, given, strict=True)) if isinstance(tensors, dict) else {}
            context.Enter()
            result = function(**by_name) if by_name else function(*given)
            context.Exit()
        context.ExitResult(result)
        # A session starts with these ops. If they waited for the step, they would run it.
        if after is not None:
            _let_run_without(after, [op for op in _initial_ops() if op not in before])
        return self._computation.readable(result)

    def _scaffold(self, scaffold_fn: Callable[[], Any] | None) -> Any:
        if scaffold_fn is None:
            return None
        with self._computation.outside("Inside scaffold_fn"):
            scaffold = scaffold_fn()
        if scaffold is None:
            refuse("no scaffold")
        return self._computation.checked_scaffold(scaffold)

    def _input_hooks(self) -> list[Any]:
        return [MultiHostDatasetInitializerHook(self._input.initializers)]

    def _saver_hooks(self, scaffold: Any) -> list[Any]:
        config = self._config
        if not (config.save_checkpoints_secs or config.save_checkpoints_steps):
            return []
        hook = tf.compat.v1.train.CheckpointSaverHook(
            config.model_dir,
            save_secs=config.save_checkpoints_secs,
            save_steps=config.save_checkpoints_steps,
            scaffold=scaffold,
            save_graph_def=config.checkpoint_save_graph_def,
        )
        return [_with_steps_per_call(hook, self._estimator)]

    def _logging_hooks(self, loss: tf.Tensor, global_step: tf.Tensor) -> list[Any]:
        estimator = self._estimator
        steps, seconds = estimator._log_every_n_steps, estimator._log_every_n_secs
        if steps is None and seconds is None:
            return []
        examples = ExamplesPerSecondHook(
            self._ctx.global_batch_size,
            every_n_steps=steps,
            every_n_secs=seconds,
            output_dir=self._config.model_dir if self._config.save_summary_steps else None,
        )
        log = tf.compat.v1.train.LoggingTensorHook(
            {"loss": tf.identity(loss), "step": global_step},
            every_n_iter=steps,
            every_n_secs=seconds,
        )
        return [log, _with_steps_per_call(examples, estimator)]


def _with_steps_per_call(hook: Any, estimator: Any) -> Any:
    counted = estimator._iterations_per_training_loop
    if counted.unit == "count" and counted.value:
        hook._set_steps_per_run(counted.value)
    return hook


@contextlib.contextmanager
def _variables_of_loop() -> Iterator[None]:
    """Enters a context that creates variables as in a TPU's loop: resources, read at each use."""
    scope = tf.compat.v1.get_variable_scope()
    default = scope.use_resource
    scope.set_use_resource(True)
    try:
        with tf.variable_creator_scope(_uncached):
            yield
    finally:
        scope.set_use_resource(default)


def _uncached(create: Callable[..., Any], **kwargs: Any) -> Any:
    # `dynamic_rnn` sets a caching device, except in a loop. A cached value misses later writes.
    return create(**{**kwargs, "caching_device": None})


def _real(prediction: tf.Tensor, real: Any) -> tf.Tensor:
    """Returns a prediction without the rows of samples that only pad the last batch."""
    if prediction.shape[0] == real.shape[0]:
        return tf.boolean_mask(prediction, real)
    # Rows may be cores, for example. tensorflow-estimator cuts them as if they were samples.
    count = tf.math.count_nonzero(real)
    return tf.cond(tf.reduce_all(real), lambda: prediction, lambda: prediction[:count])


def _initial_ops() -> list[tf.Operation]:
    """Returns the ops of the default graph that run when a session starts."""
    tables = tf.compat.v1.get_collection(tf.compat.v1.GraphKeys.TABLE_INITIALIZERS)
    return [*summary_writer_initializers(), *accesses.initial_writes(), *tables]


def _let_run_without(step: tf.Operation, ops: Sequence[tf.Operation]) -> None:
    """Removes the dependency on a step from ops and from the ops they read."""
    for op in structure.reached(ops, lambda op: [tensor.op for tensor in op.inputs]):
        if step in op.control_inputs:
            others = [one for one in op.control_inputs if one is not step]
            op._remove_all_control_inputs()
            op._add_control_inputs(others)


def _tensors(call: Any) -> dict[Any, Any]:
    if not call:
        return {}
    tensors = call[1]
    return dict(tensors) if isinstance(tensors, dict) else dict(enumerate(tensors))
