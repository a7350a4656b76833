"""Translates a whole `EmbeddingConfigSpec` to TensorFlow's own objects."""

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import tensorflow as tf

from estimator_emb.optimizers import (
    FtrlParameters,
    OptimizationParameters,
    clipvalue_of,
    gradient_limits,
    tf2_class,
)
from estimator_emb.reporting.console import logger
from estimator_emb.spec import config
from estimator_emb.spec.resolved import Table, tables_of

_theirs = tf.tpu.experimental.embedding


@dataclasses.dataclass(frozen=True)
class Loss:
    """A setting of a spec that has no counterpart in TensorFlow 2.

    Attributes:
      owner: the spec, the table or the feature that has the setting, by its name.
      setting: the setting and its value.
      effect: how training differs without it.
      instead: advice on what to do about it.
    """

    owner: str
    setting: str
    effect: str
    instead: str

    def __str__(self) -> str:
        return f"{self.owner}: {self.setting}: {self.effect} {self.instead}"


@dataclasses.dataclass(frozen=True)
class SpecTranslation:
    """An `EmbeddingConfigSpec` in TensorFlow's own objects.

    Attributes:
      features: feature key -> `tf.tpu.experimental.embedding.FeatureConfig`, for `TPUEmbedding` or
        `TPUEmbeddingForServing`. Features of a table share its `TableConfig`. The `TableConfig` has
        the table's name in the spec and the table's own optimizer.
      weight_keys: feature key -> key of its weights in the input, for features with weights.
        TensorFlow's `lookup` and `enqueue` take the weights beside the ids, as `weights`.
      pipeline_execution_with_tensor_core: the spec's value, for `TPUEmbedding`.
      losses: the settings that have no counterpart.
    """

    features: dict[str, Any]
    weight_keys: dict[str, str]
    pipeline_execution_with_tensor_core: bool
    losses: tuple[Loss, ...]

    def weights(self, inputs: Mapping[str, Any]) -> dict[str, Any] | None:
        """Returns a batch's weights in the form that TensorFlow's `lookup` takes.

        Args:
          inputs: the features of a batch, with the weights under their keys.

        Returns:
          Feature key -> its weights or None. The result is None if no feature has weights.
        """
        if not self.weight_keys:
            return None
        return {
            key: inputs[self.weight_keys[key]] if key in self.weight_keys else None
            for key in self.features
        }


def to_tensorflow(
    spec: config.EmbeddingConfigSpec,
    strict: bool = False,
    step: Any = None,
    batch_size: int | None = None,
) -> SpecTranslation:
    """Translates a spec to TensorFlow's own objects, for TPUEmbedding.

    A table's own learning rate and the spec's `clipping_limit` move into the table's optimizer.
    `combiner=None` becomes 'sum', with the same result for a single id per sample. Settings without
    a counterpart, such as `experimental_gradient_multiplier_fn` and the vocabulary of a column, are
    left out, logged, and listed in `losses` with their effects. A table gets no optimizer (None) if
    TensorFlow 2 does not have its optimizer.

    Args:
      spec: an `EmbeddingConfigSpec` of columns or of config dicts.
      strict: True refuses a setting that would be left out. False by default.
      step: the variable that counts training steps, or a function without arguments that returns
        the step. Needed for a spec with a `learning_rate_fn`, which gets it as an int64 scalar.
      batch_size: the number of samples of a batch on one replica, for the `output_shape` of every
        feature. None, the default, leaves the shape open.

    Raises:
      ValueError: `step` is missing, or `strict` is True and a setting would be left out.
    """
    if batch_size is not None:
        config.check_integer("to_tensorflow", "batch_size", batch_size, 1)
    spec = config.validated(spec)
    translator = _Translator(spec, step, batch_size)
    features = translator.features()
    if translator.losses and strict:
        listed = "\n".join(f"* {loss}" for loss in translator.losses)
        raise ValueError(
            f"to_tensorflow: TensorFlow 2 has no counterpart of these settings.\n{listed}"
        )
    for loss in translator.losses:
        logger.warning("%s", loss)
    return SpecTranslation(
        features,
        translator.weight_keys,
        spec.pipeline_execution_with_tensor_core,
        tuple(translator.losses),
    )


class _Translator:
    def __init__(self, spec: config.EmbeddingConfigSpec, step: Any, batch_size: int | None):
        self._spec = spec
        self._step = step
        self._output_shape = None if batch_size is None else [batch_size]
        self._rates: dict[Any, Callable[[], Any]] = {}
        self.losses: list[Loss] = []
        self.weight_keys: dict[str, str] = {}

    def features(self) -> dict[str, Any]:
        spec = self._spec
        if spec.experimental_gradient_multiplier_fn is not None:
            self._lose(
                "EmbeddingConfigSpec",
                "experimental_gradient_multiplier_fn",
                "gradients reach the tables as they are.",
                "Multiply them by its value before TPUEmbedding.apply_gradients.",
            )
        if spec.profile_data_directory:
            self._lose(
                "EmbeddingConfigSpec",
                f"profile_data_directory={spec.profile_data_directory!r}",
                "the hardware stores no lookup statistics. No number changes.",
                "Profile the program by tf.profiler.",
            )
        found: dict[str, Any] = {}
        for table in tables_of(spec):
            translated = self._table(table)
            for feature in table.features:
                if feature.weight_key is not None:
                    self.weight_keys[feature.key] = feature.weight_key
                if feature.to_ids or feature.integers_to_ids:
                    self._lose(
                        f"Feature {feature.key!r}",
                        f"the vocabulary, hash or default of column {feature.column_name!r}",
                        "TPUEmbedding takes the ids of rows, and looks nothing up.",
                        "Look the ids up in the input.",
                    )
                found[feature.key] = _theirs.FeatureConfig(
                    translated,
                    feature.max_sequence_length,
                    output_shape=self._output_shape,
                    name=feature.key,
                )
        for column in spec.tensor_core_feature_columns or ():
            self._lose(
                f"Column {column.name!r}",
                "embedding_lookup_device",
                "its table is a variable of the model, and is not moved.",
                "Make a layer of the model, and export the table by itself.",
            )
        return found

    def _table(self, table: Table) -> Any:
        legacy = table.config
        if legacy.hot_id_replication:
            self._lose(
                f"Table {table.name!r}",
                "hot_id_replication=True",
                "the hardware keeps no copies of its most used rows. No number changes.",
                "Nothing needs to be done.",
            )
        return _theirs.TableConfig(
            legacy.vocabulary_size,
            legacy.dimension,
            initializer=legacy.initializer,
            optimizer=None if table.optimizer is None else self._optimizer(table),
            combiner=legacy.combiner or "sum",
            name=table.name,
        )

    def _optimizer(self, table: Table) -> Any:
        owner = f"Table {table.name!r}"
        parameters = table.trained_by
        limit = table.clipping_limit
        if isinstance(parameters, FtrlParameters) and parameters.initial_accumulator_value == 0:
            smallest = float(np.finfo(np.float32).tiny)
            self._lose(
                owner,
                "initial_accumulator_value=0",
                f"FTRL of TensorFlow 2 must start above 0: it starts from {smallest:.2g}, the "
                "smallest float.",
                "Nothing needs to be done: it vanishes beside any square of a gradient.",
            )
            arguments = {**parameters.arguments(), "initial_accumulator_value": smallest}
            parameters = type(parameters)(**arguments)
        ours = tf2_class(type(parameters))
        if ours is None:
            self._lose(
                owner,
                f"the optimizer {parameters!r}",
                "tf.tpu.experimental.embedding has no such optimizer, so the table gets no "
                "optimizer, and its slots are left behind.",
                "Give TPUEmbedding another optimizer, which starts with new slots.",
            )
            return None
        arguments = _arguments(parameters, ours)
        self._rate(table, arguments)
        if limit is not None and not parameters.use_gradient_accumulation:
            self._lose(
                owner,
                f"clipping_limit={limit!r}",
                "without gradient accumulation no gradient can be clipped.",
                "Set use_gradient_accumulation=True, or clip the gradients of activations.",
            )
        elif limit is not None:
            arguments["clipvalue"] = gradient_limits(parameters, limit)
        if arguments.get("slot_variable_creation_fn") is not None:
            self._lose(
                owner,
                "slot_variable_creation_fn",
                "TPUEmbedding creates the slots, under its own names.",
                "Nothing needs to be done.",
            )
            arguments["slot_variable_creation_fn"] = None
        return getattr(_theirs, ours.__name__)(**arguments)

    def _rate(self, table: Table, arguments: dict[str, Any]) -> None:
        if table.config.learning_rate is not None:
            arguments["learning_rate"] = table.config.learning_rate
        function = table.config.learning_rate_fn
        if function is None:
            return
        if self._step is None:
            raise ValueError(
                f"Table {table.name!r}: its learning_rate_fn is a function of the global step; "
                "give to_tensorflow the variable that counts steps, as step."
            )

        def rate() -> Any:
            step = self._step() if callable(self._step) else self._step
            value = function(tf.cast(tf.convert_to_tensor(step), tf.int64))
            # In eager mode, the schedules of tf.compat.v1.train return a function.
            return value() if callable(value) else value

        # Tables share an object per function, because TPUEmbedding sends each object to the TPU.
        arguments["learning_rate"] = self._rates.setdefault(function, rate)

    def _lose(self, owner: str, setting: str, effect: str, instead: str) -> None:
        self.losses.append(Loss(owner, setting, effect, instead))


def _arguments(
    parameters: OptimizationParameters, ours: type[OptimizationParameters]
) -> dict[str, Any]:
    """Returns the arguments of an optimizer for `ours`, its class in the TF2 vocabulary."""
    arguments = {ours.renamed.get(n, n): value for n, value in parameters.arguments().items()}
    if "clipvalue" not in arguments:
        limits = arguments.pop("clip_gradient_min"), arguments.pop("clip_gradient_max")
        arguments["clipvalue"] = clipvalue_of(*limits)
    packing = "low_dimensional_packing_status"
    if packing in arguments:  # It becomes an enum field, and protobuf 7 refuses a bool.
        arguments[packing] = int(arguments[packing])
    return arguments
