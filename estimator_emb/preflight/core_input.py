"""Determines the input of a core, and finds the parts of it that no TPU takes."""

import copy
from collections.abc import Callable, Mapping
from typing import Any

import tensorflow as tf

from estimator_emb.backends.local import HOST_DEVICE
from estimator_emb.compat.internals.column_classes import (
    TENSOR_CORE_MASK_KEY_SUFFIX,
    sequence_length_key,
)
from estimator_emb.compat.internals.estimators import ModeKeys
from estimator_emb.compat.internals.graphs import NoneTensorSpec, fn_args
from estimator_emb.compat.internals.tpu_estimator import (
    InternalTPUContext,
    TPUContext,
    add_item_to_params,
)
from estimator_emb.estimator import TPUEstimator
from estimator_emb.guards.checks import ids_on_tpus
from estimator_emb.preflight import program_lines
from estimator_emb.preflight.report import CannotCheck, Finding
from estimator_emb.reporting import error_notes
from estimator_emb.spec import options
from estimator_emb.spec.resolved import Feature, Table, tables_of

STATIC_SHAPE = "a static shape, by batch(..., drop_remainder=True), padded_batch or set_shape"


class CoreInputs:
    """The specs of a core's inputs. `complete` is False if the shape of an input is unknown.

    Attributes:
      ids: the specs of the ids of the whole batch, by feature.
    """

    def __init__(
        self,
        estimator: TPUEstimator,
        context: InternalTPUContext,
        input_fn: Callable[..., Any],
    ):
        self.findings: list[Finding] = []
        self.complete = True
        self._context = context
        self._batch = context.batch_size_for_model_fn
        self._batch_axis = estimator.backend.request.batch_axis
        if context.global_batch_size is None:
            name = "predict" if context.mode == ModeKeys.PREDICT else context.mode
            raise CannotCheck(f"{name}_batch_size of the TPUEstimator is None; a TPU needs it.")
        spec = element_spec(estimator, context, input_fn)
        features, labels = spec if isinstance(spec, tuple) and len(spec) == 2 else (spec, None)
        if isinstance(labels, NoneTensorSpec):
            labels = None
        if isinstance(spec, tuple) and len(spec) != 2:
            raise CannotCheck(
                f"input_fn must give features or (features, labels); got a tuple of {len(spec)}."
            )
        self.activations: dict[str, tf.TensorSpec] = {}
        self.ids: dict[str, Any] = {}
        embedding_spec = estimator.backend.request.spec
        if embedding_spec is not None:
            if not isinstance(features, Mapping):
                raise CannotCheck("With an EmbeddingConfigSpec, features must be a dict.")
            on_host = options.asked(estimator.config) == "pjrt"
            features = self._without_ids(dict(features), embedding_spec, on_host)
        self.features = self._on_core(features, "features", 0)
        self.labels = None if labels is None else self._on_core(labels, "labels", 1)

    def _without_ids(self, features: dict[str, Any], spec: Any, on_host: bool) -> dict[str, Any]:
        batch = self._batch
        looked_up = [(table, feature) for table in tables_of(spec) for feature in table.features]
        self._check_ids(features, looked_up, on_host)
        for table, feature in looked_up:
            self.ids[feature.key] = features.pop(feature.key, None)
            shape = [batch, table.config.dimension]
            if feature.max_sequence_length:
                shape.insert(1, feature.max_sequence_length)
                lengths = sequence_length_key(feature.key)
                self.activations[lengths] = tf.TensorSpec([batch], tf.int64)
            self.activations[feature.key] = tf.TensorSpec(shape, tf.float32)
        for _, feature in looked_up:
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

    def _check_ids(
        self, features: Mapping[str, Any], looked_up: list[tuple[Table, Feature]], on_host: bool
    ) -> None:
        shared = ids_on_tpus.shared_weight_refusals([table for table, _ in looked_up])
        for table, feature in looked_up:
            owner = f"feature {feature.key!r} of table {table.name!r}"
            ids = features.get(feature.key)
            key = feature.weight_key
            weights = None if key is None else features.get(key)
            if ids is None:
                given = ", ".join(map(repr, sorted(map(str, features)))) or "none"
                self._found(
                    f"input_fn does not return {owner}; it returns {given}",
                    "return its ids under that key, or take the feature out of the "
                    "EmbeddingConfigSpec",
                )
            elif on_host:
                continue
            elif not ids.dtype.is_integer and ids.dtype != tf.string:
                self._found(
                    f"{owner} holds {ids.dtype.name}, and a TPU looks up integers",
                    "ids, made in input_fn",
                )
            elif refusal := (
                shared.get(feature.key) or ids_on_tpus.feature_refusal(table, feature, features)
            ):
                self._found(refusal.problem, refusal.instead)
            elif weights is not None and not (
                weights.dtype.is_floating or weights.dtype.is_integer
            ):
                self._found(
                    f"the weights {key!r} of {owner} are of type {weights.dtype.name}", "float32"
                )

    def _on_core(self, specs: Any, name: str, index: int) -> Any:
        """Returns the specs for a core. Inputs that the infeed cannot carry become findings."""
        if isinstance(specs, Mapping):
            on_core = {
                key: self._on_core(spec, f"{name}[{key!r}]", index) for key, spec in specs.items()
            }
            return {key: spec for key, spec in on_core.items() if spec is not None}
        if isinstance(specs, (list, tuple)):
            parts = [self._on_core(spec, f"{name}[{i}]", index) for i, spec in enumerate(specs)]
            return type(specs)(*parts) if hasattr(specs, "_fields") else type(specs)(parts)
        return self._tensor_spec(specs, name, index)

    def _tensor_spec(self, spec: Any, name: str, index: int) -> tf.TensorSpec | None:
        if not isinstance(spec, tf.TensorSpec):
            self._found(
                f"{name} is a {type(spec).__name__.removesuffix('Spec')}, and only dense tensors "
                "reach the model on a TPU",
                "make it dense in input_fn, or look it up through the EmbeddingConfigSpec",
            )
            return None
        shape = spec.shape
        if self._context.mode == ModeKeys.PREDICT and shape.rank:
            # tensorflow-estimator pads the last batch.
            shape = tf.TensorShape([self._context.batch_size_for_input_fn, *shape[1:]])
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
            return tf.TensorSpec([self._batch, *shape[1:]], spec.dtype)
        self.complete = False
        return None

    def _divided(self, shape: tf.TensorShape, index: int, name: str) -> list[int]:
        context = self._context
        sizes = shape.as_list()
        sliced = context.is_input_slice_broadcast_to_all_cores()
        if not sliced and (
            context.is_input_sharded_per_core()
            or context.is_input_per_host_with_iterators()
            or context.is_input_broadcast_with_iterators()
        ):
            return sizes
        axis = self._batch_axis[min(index, len(self._batch_axis) - 1)] if self._batch_axis else 0
        cores = context.num_replicas if sliced else context.num_of_replicas_per_host
        if not sizes or sizes[axis] % cores:
            raise CannotCheck(
                f"{name} has the shape {tuple(sizes)}, which {cores} cores cannot share evenly in "
                f"dimension {axis}."
            )
        sizes[axis] //= cores
        return sizes

    def _found(self, problem: str, instead: str) -> None:
        self.findings.append(Finding(problem, instead))


def element_spec(
    estimator: TPUEstimator, context: InternalTPUContext, input_fn: Callable[..., Any]
) -> Any:
    """Returns the nested type specs of input_fn's output, without reading a record."""
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
        with error_notes.explained(program_lines.failed, "input_fn"):
            returned = input_fn(**{key: value for key, value in kwargs.items() if key in names})
        if isinstance(returned, (tf.data.Dataset, tf.compat.v1.data.Dataset)):
            return returned.element_spec
        return tf.nest.map_structure(
            lambda value: NoneTensorSpec() if value is None else tf.type_spec_from_value(value),
            returned,
        )
