# SPDX-License-Identifier: Apache-2.0
"""Builds the dense step of a program as one TPU core runs it, without a TPU.

TensorFlow's own `tpu.split_compile_and_replicate` builds it, so that shards, variables, control
flow and outside compilation are as on a TPU. Control flow is built in its v2 form, into which
TensorFlow turns the v1 form before it compiles for a TPU. The step lacks the training loop around
it, the infeed, whose tensors are arguments, and the embedding tables, whose activations are
arguments and whose gradients are results.
"""

import contextlib
import copy
import dataclasses
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import tensorflow as tf

from estimator_emb.backends.host_context import HOST_DEVICE
from estimator_emb.compat import custom_gradients
from estimator_emb.compat.internals.columns import TENSOR_CORE_MASK_KEY_SUFFIX, sequence_length_key
from estimator_emb.compat.internals.estimator import AnyTPUEstimatorSpec, ModeKeys
from estimator_emb.compat.internals.graphs import NoneTensorSpec, fn_args
from estimator_emb.compat.internals.tpu import split_compile_and_replicate
from estimator_emb.compat.internals.tpu_estimator import (
    InternalTPUContext,
    ModelFnWrapper,
    OutfeedHostCall,
    TPUContext,
    TPUEstimatorReplicaContext,
    add_item_to_params,
)
from estimator_emb.estimator import TPUEstimator
from estimator_emb.preflight import program
from estimator_emb.preflight.report import CannotCheck, Finding
from estimator_emb.spec import tables_of
from estimator_emb.step.tap import Tap

CORES_PER_HOST = 8
STATIC_SHAPE = "a static shape, by batch(..., drop_remainder=True), padded_batch or set_shape"


@dataclasses.dataclass
class Step:
    """The graph of a step.

    Attributes:
      graph: the graph, with the step inside a TPU cluster and its variables outside.
      mode: 'train', 'eval' or 'infer'.
      replicas: number of cores.
      batch: number of samples per core.
      arguments: the tensors in the cluster that the step reads.
      results: the tensors that leave the core, each with what messages call it.
      train_op: the op that the step must run besides; None if there is none.
      findings: findings about inputs and outputs.
      complete: False if model_fn could not be called to its end.
    """

    graph: tf.Graph
    mode: str
    replicas: int
    batch: int
    arguments: list[tf.Tensor] = dataclasses.field(default_factory=list)
    results: list[tuple[str, tf.Tensor]] = dataclasses.field(default_factory=list)
    train_op: tf.Operation | None = None
    findings: list[Finding] = dataclasses.field(default_factory=list)
    complete: bool = True


def build(
    estimator: TPUEstimator, input_fn: Callable[..., Any], mode: str, replicas: int | None = None
) -> Step:
    """Builds a step, by a call of input_fn and one of model_fn as for a TPU core.

    Args:
      estimator: the estimator of the program.
      input_fn: function that returns a dataset, or features, or (features, labels).
      mode: a `ModeKeys`.
      replicas: number of cores; None means `TPUConfig.num_shards`, or 8 if that is None.

    Raises:
      CannotCheck: a function of the program failed, or its configuration is not one for a TPU.
    """
    if not isinstance(estimator, TPUEstimator):
        raise CannotCheck(
            f"Only a TPUEstimator of estimator_emb can be checked; got {type(estimator).__name__} "
            f"of {type(estimator).__module__}."
        )
    config = copy.deepcopy(estimator.config)
    replicas = replicas or config.tpu_config.num_shards or CORES_PER_HOST
    config = config.replace(tpu_config=config.tpu_config._replace(num_shards=replicas))
    try:
        with _context(estimator, config, replicas).with_mode(mode) as context:
            step = Step(tf.Graph(), mode, replicas, context.batch_size_for_model_fn)
            inputs = _Inputs(estimator, context, step, input_fn)
            if step.complete:
                _build(estimator, config, context, inputs, step)
    except (ValueError, TypeError) as error:
        raise CannotCheck(f"{type(error).__name__}: {error}") from error
    return step


class _Context(InternalTPUContext):
    """tensorflow-estimator's context, for a TPU that is described instead of asked."""

    def __init__(self, *args: Any, replicas: int, **kwargs: Any):
        super().__init__(*args, **kwargs)
        cores = replicas * (self._config.tpu_config.num_cores_per_replica or 1)
        self._metadata = tf.tpu.experimental.TPUSystemMetadata(
            num_cores=cores,
            num_hosts=-(-cores // CORES_PER_HOST),
            num_of_cores_per_host=min(cores, CORES_PER_HOST),
            topology=None,
            devices=[],
        )

    def _get_tpu_system_metadata(self) -> tf.tpu.experimental.TPUSystemMetadata:
        return self._metadata


def _context(estimator: TPUEstimator, config: Any, replicas: int) -> _Context:
    asked = estimator.backend.request
    context = _Context(
        config,
        asked.train_batch_size,
        asked.eval_batch_size,
        asked.predict_batch_size,
        use_tpu=True,
        eval_on_tpu=True,
        replicas=replicas,
    )
    for mode, size in (
        (ModeKeys.TRAIN, asked.train_batch_size),
        (ModeKeys.EVAL, asked.eval_batch_size),
        (ModeKeys.PREDICT, asked.predict_batch_size),
    ):
        context._lazy_validation_dict[mode] = size is None
    return context


class _Inputs:
    """The features, labels and activations of one core, as specs of placeholders.

    Attributes:
      features, labels: nested `tf.TensorSpec` of static shapes; None if there are no labels.
      activations: feature key -> `tf.TensorSpec`.
    """

    def __init__(
        self,
        estimator: TPUEstimator,
        context: _Context,
        step: Step,
        input_fn: Callable[..., Any],
    ):
        self._context = context
        self._step = step
        self._batch_axis = estimator.backend.request.batch_axis
        if context.global_batch_size is None:
            name = "predict" if step.mode == ModeKeys.PREDICT else step.mode
            raise CannotCheck(f"{name}_batch_size of the TPUEstimator is None; a TPU needs it.")
        spec = _element_spec(estimator, context, input_fn)
        features, labels = spec if isinstance(spec, tuple) and len(spec) == 2 else (spec, None)
        if isinstance(labels, NoneTensorSpec):
            labels = None
        if isinstance(spec, tuple) and len(spec) != 2:
            raise CannotCheck(
                f"input_fn must give features or (features, labels); got a tuple of {len(spec)}."
            )
        self.activations: dict[str, tf.TensorSpec] = {}
        embedding_spec = estimator.backend.request.spec
        if embedding_spec is not None:
            if not isinstance(features, Mapping):
                raise CannotCheck("With an EmbeddingConfigSpec, features must be a dict.")
            features = self._without_ids(dict(features), embedding_spec)
        self.features = self._on_core(features, "features", 0)
        self.labels = None if labels is None else self._on_core(labels, "labels", 1)

    def _without_ids(self, features: dict[str, Any], spec: Any) -> dict[str, Any]:
        batch = self._step.batch
        tables = tables_of(spec)
        for table in tables:
            for feature in table.features:
                features.pop(feature.key, None)
                shape = [batch, table.config.dimension]
                if feature.max_sequence_length:
                    shape.insert(1, feature.max_sequence_length)
                    lengths = sequence_length_key(feature.key)
                    self.activations[lengths] = tf.TensorSpec([batch], tf.int64)
                self.activations[feature.key] = tf.TensorSpec(shape, tf.float32)
        for table in tables:
            for feature in table.features:
                if feature.weight_key is not None:
                    features.pop(feature.weight_key, None)
        for column in spec.tensor_core_feature_columns or ():
            key = column.get_feature_key_name()
            features.pop(key, None)
            shape = [batch, column._tensor_core_shape[1]]
            mask = key + TENSOR_CORE_MASK_KEY_SUFFIX
            self.activations[key] = tf.TensorSpec(shape, tf.int32)
            self.activations[mask] = tf.TensorSpec(shape, tf.float32)
        return features

    def _on_core(self, specs: Any, name: str, index: int) -> Any:
        """Returns the specs of one core, without those that the infeed cannot carry: findings."""
        if isinstance(specs, Mapping):
            on_core = {
                key: self._on_core(spec, f"{name}[{key!r}]", index) for key, spec in specs.items()
            }
            return {key: spec for key, spec in on_core.items() if spec is not None}
        if isinstance(specs, (list, tuple)):
            parts = [self._on_core(spec, f"{name}[{i}]", index) for i, spec in enumerate(specs)]
            return type(specs)(*parts) if hasattr(specs, "_fields") else type(specs)(parts)
        return self._of_tensor(specs, name, index)

    def _of_tensor(self, spec: Any, name: str, index: int) -> tf.TensorSpec | None:
        if not isinstance(spec, tf.TensorSpec):
            self._found(
                f"{name} is a {type(spec).__name__.removesuffix('Spec')}, and only dense tensors "
                "reach the model on a TPU",
                "make it dense in input_fn, or look it up through the EmbeddingConfigSpec",
            )
            return None
        shape = spec.shape
        if spec.dtype == tf.string:
            self._found(
                f"{name} holds strings, and no string reaches a TPU",
                "turn it into numbers in input_fn, or leave it out of what input_fn returns",
            )
        elif not shape.is_fully_defined():
            text = "unknown" if shape.rank is None else str(tuple(shape.as_list()))
            self._found(f"{name} ({spec.dtype.name}) has the dynamic shape {text}", STATIC_SHAPE)
        if shape.is_fully_defined():
            return tf.TensorSpec(self._divided(shape, index, name), spec.dtype)
        if shape.rank and shape[1:].is_fully_defined():
            return tf.TensorSpec([self._step.batch, *shape[1:]], spec.dtype)
        self._step.complete = False
        return None

    def _divided(self, shape: tf.TensorShape, index: int, name: str) -> list[int]:
        """Returns the shape that a core gets of a tensor that its host reads for all its cores."""
        context = self._context
        sizes = shape.as_list()
        if (
            context.is_input_sharded_per_core()
            or context.is_input_per_host_with_iterators()
            or (
                context.is_input_broadcast_with_iterators()
                and not context.is_input_slice_broadcast_to_all_cores()
            )
        ):
            return sizes
        axis = self._batch_axis[min(index, len(self._batch_axis) - 1)] if self._batch_axis else 0
        cores = context.num_of_replicas_per_host
        if context.is_input_slice_broadcast_to_all_cores():
            cores = context.num_replicas
        if not sizes or sizes[axis] % cores:
            raise CannotCheck(
                f"{name} has the shape {tuple(sizes)}, which {cores} cores cannot share evenly in "
                f"dimension {axis}."
            )
        sizes[axis] //= cores
        return sizes

    def _found(self, problem: str, instead: str) -> None:
        self._step.findings.append(Finding(problem, instead))


def _element_spec(estimator: TPUEstimator, context: _Context, input_fn: Callable[..., Any]) -> Any:
    names = fn_args(input_fn)
    if "params" not in names:
        raise CannotCheck("input_fn must take `params`, by which it gets params['batch_size'].")
    params = copy.deepcopy(estimator.params)
    add_item_to_params(params, "batch_size", context.batch_size_for_input_fn)
    context_of_input_fn = TPUContext(
        internal_ctx=context,
        input_device=HOST_DEVICE,
        invocation_index=0,
        call_from_input_fn=True,
        host_id=0,
    )
    add_item_to_params(params, "context", context_of_input_fn)
    kwargs = {"params": params, "config": context.config, "mode": context.mode}
    with tf.Graph().as_default():
        with program.explained("input_fn"):
            returned = input_fn(**{key: value for key, value in kwargs.items() if key in names})
        if isinstance(returned, (tf.data.Dataset, tf.compat.v1.data.Dataset)):
            return returned.element_spec
        return tf.nest.map_structure(
            lambda value: NoneTensorSpec() if value is None else tf.type_spec_from_value(value),
            returned,
        )


def _build(
    estimator: TPUEstimator, config: Any, context: _Context, inputs: _Inputs, step: Step
) -> None:
    has_labels = inputs.labels is not None
    structure = (inputs.features, inputs.labels if has_labels else (), inputs.activations)
    specs = tf.nest.flatten(structure)

    def computation(replica: tf.Tensor, *tensors: tf.Tensor) -> tf.Tensor:
        step.arguments[:] = [replica, *tensors]
        gradients: dict[str, tf.Tensor] = {}
        features, labels, activations = tf.nest.pack_sequence_as(structure, tensors)
        if activations:
            if step.mode == ModeKeys.TRAIN:
                # A name scope of ours leaves the names of the program's ops as they are.
                with tf.name_scope("embedding_input"):
                    tap = Tap()
                    activations = {
                        key: tap.through(key, activation)
                        if activation.dtype == tf.float32
                        else activation
                        for key, activation in activations.items()
                    }
                gradients = tap.gradients
            features = {**features, **activations}
        model_fn = estimator.backend.request.model_fn
        wrapper = ModelFnWrapper(model_fn, config, estimator.params, context)
        with (
            TPUEstimatorReplicaContext(tf.reshape(replica, [])),
            program.explained("model_fn"),
        ):
            spec = wrapper._call_model_fn(features, labels if has_labels else None)
        _take(spec, step)
        step.results.extend((f"gradient of {key}", gradient) for key, gradient in gradients.items())
        return tf.zeros([])

    with step.graph.as_default(), custom_gradients.ending_with_graph(), _control_flow_v2():
        tf.compat.v1.set_random_seed(config.tf_random_seed)
        estimator._create_and_assert_global_step(step.graph)
        placeholders = [tf.compat.v1.placeholder(spec.dtype, spec.shape) for spec in specs]
        replica = tf.compat.v1.placeholder(tf.int32, [])
        try:
            split_compile_and_replicate(computation, [[replica, *placeholders]] * step.replicas)
        except program.ProgramError as error:
            # model_fn may fail because of a finding in the inputs, or because it assigns a
            # reference variable, which TensorFlow refuses and `static` names.
            reference = "Non-resource Variables are not supported" in str(error.__cause__)
            if not (reference or step.findings):
                raise
            step.complete = False


@contextlib.contextmanager
def _control_flow_v2() -> Iterator[None]:
    enabled = tf.compat.v1.control_flow_v2_enabled()
    tf.compat.v1.enable_control_flow_v2()
    try:
        yield
    finally:
        if not enabled:
            tf.compat.v1.disable_control_flow_v2()


def _take(spec: Any, step: Step) -> None:
    """Sets the results and the train_op of a step from what model_fn returned."""
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
            _outfed(name, call[1], step)


def _outfed(name: str, tensors: Any, step: Step) -> None:
    """Adds tensors that leave the core for the host, which concatenates those of all cores."""
    for key, tensor in _named(tensors):
        tensor = tf.convert_to_tensor(tensor)
        step.results.append((f"{name}[{key!r}]", tensor))
        problem = instead = ""
        if tensor.shape.rank == 0:
            problem = "is a scalar, and the host concatenates those of all cores along a batch"
            instead = "tf.reshape(tensor, [1])"
        elif not tensor.shape.is_fully_defined():
            problem = f"has the dynamic shape {tensor.shape}"
            instead = "a static shape, by tf.reshape or tensor.set_shape"
        if problem:
            step.findings.append(
                Finding(
                    f"{name}[{key!r}] {problem}",
                    instead,
                    tensor.op.type,
                    tensor.op.name,
                    tensor.dtype.name,
                    program.line_of(tensor.op),
                )
            )


def _named(tensors: Any) -> Iterator[tuple[Any, Any]]:
    return iter(tensors.items() if isinstance(tensors, Mapping) else enumerate(tensors))
