"""Builds the dense step of a program as a TPU core runs it, without a TPU.

TensorFlow's own `tpu.split_compile_and_replicate` builds it, so shards, variables, control flow and
outside compilation are as on a TPU. Control flow has its v2 form, because TensorFlow converts v1
control flow before it compiles for a TPU. The training loop around the step is left out. Infeed
tensors and the activations of embedding tables are arguments of the step. The gradients of the
activations are results.
"""

import contextlib
import copy
import dataclasses
import functools
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import tensorflow as tf

from estimator_emb.backends import driver
from estimator_emb.backends.base import EstimatorRequest
from estimator_emb.backends.xla import core_step
from estimator_emb.catalog.slices import CORES_PER_HOST
from estimator_emb.compat import custom_gradients
from estimator_emb.compat.internals.estimators import AnyTPUEstimatorSpec, ModeKeys
from estimator_emb.compat.internals.tpu import split_compile_and_replicate
from estimator_emb.compat.internals.tpu_estimator import (
    InternalTPUContext,
    ModelFnWrapper,
    OutfeedHostCall,
    TPUEstimatorReplicaContext,
)
from estimator_emb.engine.cores import Cores
from estimator_emb.engine.engine import PendingLookup, TableStep
from estimator_emb.engine.gradient_capture import GradientCapture
from estimator_emb.engine.rates import DynamicRates
from estimator_emb.engine.tables import functions
from estimator_emb.estimator import TPUEstimator
from estimator_emb.guards import watching
from estimator_emb.guards.guard import Call, ModelBatch, Runs
from estimator_emb.guards.watching import GraphGuards
from estimator_emb.preflight import described, program_lines
from estimator_emb.preflight.core_input import CoreInputs
from estimator_emb.preflight.report import CannotCheck, Finding
from estimator_emb.reporting import error_notes

MODES = (ModeKeys.TRAIN, ModeKeys.EVAL, ModeKeys.PREDICT)


@dataclasses.dataclass
class Step:
    """The graph of a step, in a TPU cluster. `complete` is False if model_fn did not finish.

    `ids` are the specs of the ids that tables look up, by feature.
    """

    graph: tf.Graph
    mode: str
    replicas: int
    batch: int
    arguments: list[tf.Tensor] = dataclasses.field(default_factory=list)
    results: list[tuple[str, tf.Tensor]] = dataclasses.field(default_factory=list)
    train_op: tf.Operation | None = None
    host_call: tuple[Callable[..., Any], Any] | None = None
    findings: list[Finding] = dataclasses.field(default_factory=list)
    complete: bool = True
    ids: dict[str, Any] = dataclasses.field(default_factory=dict)


def build(
    estimator: TPUEstimator, input_fn: Callable[..., Any], mode: str, replicas: int = CORES_PER_HOST
) -> Step:
    """Builds a step by calling input_fn and model_fn once each, as for a TPU core."""
    config = copy.deepcopy(estimator.config)
    config = config.replace(tpu_config=config.tpu_config._replace(num_shards=replicas))
    with (
        error_notes.explained(program_lines.unfollowed),
        _context(estimator, config, replicas).with_mode(mode) as context,
    ):
        step = Step(tf.Graph(), mode, replicas, context.batch_size_for_model_fn)
        inputs = CoreInputs(estimator, context, input_fn)
        step.findings += inputs.findings
        step.complete, step.ids = inputs.complete, inputs.ids
        if step.complete:
            _build(estimator, config, context, inputs, step)
    return step


def _context(estimator: TPUEstimator, config: Any, replicas: int) -> InternalTPUContext:
    asked = estimator.backend.request
    sizes = (asked.train_batch_size, asked.eval_batch_size, asked.predict_batch_size)
    context = InternalTPUContext(config, *sizes, use_tpu=True, eval_on_tpu=True)
    cores = replicas * (config.tpu_config.num_cores_per_replica or 1)
    context._get_tpu_system_metadata = functools.partial(described.metadata, cores)
    for mode, size in zip(MODES, sizes, strict=True):
        context._lazy_validation_dict[mode] = size is None
    return context


def _build(
    estimator: TPUEstimator,
    config: Any,
    context: InternalTPUContext,
    inputs: CoreInputs,
    step: Step,
) -> None:
    has_labels = inputs.labels is not None
    structure = (inputs.features, inputs.labels if has_labels else (), inputs.activations)
    specs = tf.nest.flatten(structure)
    request = estimator.backend.request
    call = Call(Runs.DESCRIBED, mode=step.mode, model_fn=request.model_fn)

    def computation(replica: tf.Tensor, *tensors: tf.Tensor) -> tf.Tensor:
        step.arguments[:] = [replica, *tensors]
        features, labels, activations = tf.nest.pack_sequence_as(structure, tensors)
        labels = labels if has_labels else None
        wrapper = ModelFnWrapper(request.model_fn, config, estimator.params, context)
        core = _Core(watching.guards_of(call), wrapper, step, features, labels, activations)
        driver.drive(core, tables=None)
        if step.mode == ModeKeys.TRAIN:
            step.results.extend(_table_outputs(request))
        return tf.zeros([])

    with step.graph.as_default(), custom_gradients.ending_with_graph(), core_step.control_flow_v2():
        tf.compat.v1.set_random_seed(config.tf_random_seed)
        estimator._create_and_assert_global_step(step.graph)
        placeholders = [tf.compat.v1.placeholder(spec.dtype, spec.shape) for spec in specs]
        replica = tf.compat.v1.placeholder(tf.int32, [])
        try:
            split_compile_and_replicate(computation, [[replica, *placeholders]] * step.replicas)
        except program_lines.ProgramError as error:
            # model_fn may fail because of a finding about its inputs. It may also assign a
            # reference variable. TensorFlow refuses that, and `static` reports it.
            reference = "Non-resource Variables are not supported" in str(error.__cause__)
            if not (reference or step.findings):
                raise
            step.complete = False


class _Core(driver.Runner):
    """A core of a described TPU that takes its batch and activations as arguments."""

    def __init__(
        self,
        guards: GraphGuards,
        wrapper: ModelFnWrapper,
        step: Step,
        features: Any,
        labels: Any,
        activations: dict[str, tf.Tensor],
    ):
        super().__init__(guards, Cores())
        self._wrapper = wrapper
        self._step = step
        self._given = features, labels, activations
        self._capture: GradientCapture | None = None

    def feed(self, tables: TableStep | None) -> ModelBatch:
        features, labels, activations = self._given
        if activations and self._step.mode == ModeKeys.TRAIN:
            # With a separate name scope, the program's ops keep their names.
            with tf.name_scope("embedding_input"):
                self._capture = capture = GradientCapture()
                activations = {
                    key: capture.through(key, activation)
                    if activation.dtype == tf.float32
                    else activation
                    for key, activation in activations.items()
                }
        return ModelBatch(features, labels, activations)

    @contextlib.contextmanager
    def running(self) -> Iterator[None]:
        replica = self._step.arguments[0]
        with (
            TPUEstimatorReplicaContext(tf.reshape(replica, [])),
            error_notes.explained(program_lines.failed, "model_fn"),
        ):
            yield

    def call(self, batch: ModelBatch) -> Any:
        return self._wrapper._call_model_fn(batch.seen, batch.labels)

    def replicate(self, spec: Any, pending: PendingLookup | None) -> driver.Replicas:
        _take(spec, self._step)
        if self._capture:
            gradients = self._capture.gradients.items()
            self._step.results.extend((f"gradient of {key}", one) for key, one in gradients)
        return driver.Replicas(spec)


def _table_outputs(request: EstimatorRequest) -> Iterator[tuple[str, tf.Tensor]]:
    step = tf.compat.v1.train.get_global_step()
    rates = DynamicRates([table for table in request.tables if table.optimizer is not None])
    for number, rate in enumerate(rates.values(step)):
        yield f"learning rate {number}", rate
    multiplier = request.spec and request.spec.experimental_gradient_multiplier_fn
    if multiplier:
        yield "gradient multiplier", functions.multiplier(multiplier, step)


def _take(spec: Any, step: Step) -> None:
    if step.mode == ModeKeys.TRAIN:
        if spec.train_op is None:
            raise CannotCheck("model_fn returned no train_op in mode 'train'.")
        step.train_op = getattr(spec.train_op, "op", spec.train_op)
    elif not isinstance(spec, AnyTPUEstimatorSpec):
        step.findings.append(
            Finding(
                f"model_fn returned a {type(spec).__name__} in mode {step.mode!r}, where a TPU "
                "needs a TPUEstimatorSpec",
                "TPUEstimatorSpec, with eval_metrics=(metric_fn, tensors) for metrics",
            )
        )
    if step.mode == ModeKeys.PREDICT:
        if not isinstance(spec.predictions, Mapping):
            raise CannotCheck("model_fn must return its predictions as a dict in mode 'infer'.")
        _outfed("predictions", spec.predictions, step)
    else:
        if spec.loss is None:
            raise CannotCheck(f"model_fn returned no loss in mode {step.mode!r}.")
        step.results.append(("loss", tf.convert_to_tensor(spec.loss)))
    calls = {"host_call": getattr(spec, "host_call", None)}
    if step.mode == ModeKeys.EVAL:
        calls["eval_metrics"] = getattr(spec, "eval_metrics", None)
    for name, call in calls.items():
        if call is not None:
            OutfeedHostCall.validate({name: call})
            if name == "host_call":
                step.host_call = call
            _outfed(name, call[1], step)


def _outfed(name: str, tensors: Any, step: Step) -> None:
    """Adds tensors that leave the core for the host. The host concatenates them over all cores."""
    for key, tensor in tensors.items() if isinstance(tensors, Mapping) else enumerate(tensors):
        tensor = tf.convert_to_tensor(tensor)
        step.results.append((f"{name}[{key!r}]", tensor))
        if tensor.shape.rank and tensor.shape.is_fully_defined():
            continue
        problem = f"has the dynamic shape {tensor.shape}"
        instead = "a static shape, by tf.reshape or tensor.set_shape"
        if tensor.shape.rank == 0:
            problem = (
                "is a scalar, but the host concatenates the tensors of all cores along the batch"
            )
            instead = "tf.reshape(tensor, [1])"
        step.findings.append(
            Finding(
                f"{name}[{key!r}] {problem}",
                instead,
                tensor.op.type,
                tensor.op.name,
                tensor.dtype.name,
                program_lines.line_of(tensor.op),
            )
        )
