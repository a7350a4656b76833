"""Translates a whole `EmbeddingConfigSpec` to TensorFlow's own objects."""

import dataclasses
import functools
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import tensorflow as tf

from estimator_emb.embedding import translation
from estimator_emb.embedding.configs import FeatureConfig, TableConfig
from estimator_emb.optimizers import FtrlParameters, OptimizationParameters, gradient_limits
from estimator_emb.reporting.console import logger
from estimator_emb.spec import config
from estimator_emb.spec.column_ids import without_wrappers
from estimator_emb.spec.resolved import Table, tables_of


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
    structure: Any,
    sparse_core: bool = False,
    strict: bool = False,
    step: Any = None,
    batch_size: int | None = None,
) -> Any:
    """Translates our objects, or a spec, to TensorFlow's own, for TPUEmbedding or TPUEmbeddingV2.

    In a spec, a table's own learning rate and the spec's `clipping_limit` move into the table's
    optimizer. `combiner=None` becomes 'sum', with the same result for a single id per sample.
    Settings without a counterpart, such as `experimental_gradient_multiplier_fn` and the vocabulary
    of a column, are left out, logged, and listed in `losses` with their effects. A table gets no
    optimizer (None) if TensorFlow 2 does not have its optimizer.

    Args:
      structure: an `EmbeddingConfigSpec` of columns or of config dicts; or an object of this
        package, or nested dicts, lists and tuples of such objects. TensorFlow's own objects are
        accepted too.
      sparse_core: True translates for `TPUEmbeddingV2`, which drives the SparseCore of TPU v5p and
        v6e. It ignores some settings of optimizers, and a logged warning names those that are set.
        False, the default, translates for `TPUEmbedding`, which drives TPU v2 to v4 and ignores no
        setting.
      strict: True refuses a setting that would be left out or ignored. False by default.
      step: the variable that counts training steps, or a function without arguments that returns
        the step. Needed for a spec with a `learning_rate_fn`, which gets it as an int64 scalar.
      batch_size: for a spec, the number of samples of a batch on one replica. `TPUEmbeddingV2`
        needs it as the `output_shape` of every feature. None, the default, leaves the shape open,
        as `TPUEmbedding` allows.

    Returns:
      For a spec, a `SpecTranslation`. Otherwise the same structure of objects of
      `tf.tpu.experimental.embedding`, with every field's value. Features that share a table share
      its translation.

    Raises:
      ValueError: an object is of another class; `step` is missing; `strict` is True and a setting
        would be left out; or, with `sparse_core`, this TensorFlow has no TPUEmbeddingV2, or an
        object outside a spec has weight decay or is a sequence feature.

    Source: `TPUEmbeddingV2` of tensorflow/python/tpu/tpu_embedding_v3.py, TF 2.21.0.
    """
    if sparse_core and not hasattr(tf.tpu.experimental.embedding, "TPUEmbeddingV2"):
        raise ValueError(
            f"to_tensorflow: TensorFlow {tf.__version__} has no TPUEmbeddingV2, which "
            "sparse_core=True is for."
        )
    if type(structure).__name__ != "EmbeddingConfigSpec":
        check = functools.partial(translation.check_for_sparse_core, strict=strict)
        ours = translation.from_tensorflow(structure)
        return translation.objects_to_tensorflow(ours, check if sparse_core else None)
    if batch_size is not None:
        config.check_integer("to_tensorflow", "batch_size", batch_size, 1)
    spec = config.validated(structure)
    translator = _Translator(spec, sparse_core, step, batch_size)
    features = translator.features()
    if translator.losses and strict:
        listed = "\n".join(f"* {loss}" for loss in translator.losses)
        raise ValueError(
            f"to_tensorflow: TensorFlow 2 has no counterpart of these settings.\n{listed}"
        )
    for loss in translator.losses:
        logger.warning("%s", loss)
    return SpecTranslation(
        translation.objects_to_tensorflow(features),
        translator.weight_keys,
        spec.pipeline_execution_with_tensor_core,
        tuple(translator.losses),
    )


class _Translator:
    def __init__(
        self, spec: config.EmbeddingConfigSpec, sparse_core: bool, step: Any, batch_size: int | None
    ):
        self._spec = spec
        self._sparse_core = sparse_core
        self._step = step
        self._output_shape = None if batch_size is None else [batch_size]
        self._rates: dict[Any, Callable[[], Any]] = {}
        self.losses: list[Loss] = []
        self.weight_keys: dict[str, str] = {}

    def features(self) -> dict[str, FeatureConfig]:
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
        found: dict[str, FeatureConfig] = {}
        for table in tables_of(spec):
            translated = self._table(table)
            for feature in table.features:
                owner = f"Feature {feature.key!r}"
                if feature.weight_key is not None:
                    self.weight_keys[feature.key] = feature.weight_key
                if self._sparse_core and feature.max_sequence_length:
                    self._lose(
                        owner,
                        f"max_sequence_length={feature.max_sequence_length}",
                        "TPUEmbeddingV2 combines the rows of a sample's ids into one activation.",
                        "Give it every id as a sample of its own, and reshape the activations.",
                    )
                found[feature.key] = FeatureConfig(
                    translated,
                    feature.max_sequence_length,
                    output_shape=self._output_shape,
                    name=feature.key,
                )
        for column in spec.feature_columns or ():
            if recipe := _recipe(column.categorical_column):
                kind, code = recipe
                self._lose(
                    f"Feature {column.get_feature_key_name()!r}",
                    f"the {kind} of column {column.name!r}",
                    "TPUEmbedding takes the ids of rows, and looks nothing up.",
                    f"Make them in the input: {code}.",
                )
        for column in spec.tensor_core_feature_columns or ():
            self._lose(
                f"Column {column.name!r}",
                "embedding_lookup_device",
                "its table is a variable of the model, and is not moved.",
                "Make a layer of the model, and export the table by itself.",
            )
        return found

    def _table(self, table: Table) -> TableConfig:
        legacy = table.config
        if legacy.hot_id_replication:
            self._lose(
                f"Table {table.name!r}",
                "hot_id_replication=True",
                "the hardware keeps no copies of its most used rows. No number changes.",
                "Nothing needs to be done.",
            )
        return TableConfig(
            legacy.vocabulary_size,
            legacy.dimension,
            initializer=legacy.initializer,
            optimizer=None if table.optimizer is None else self._optimizer(table),
            combiner=legacy.combiner or "sum",
            name=table.name,
        )

    def _optimizer(self, table: Table) -> OptimizationParameters | None:
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
        try:
            translated = translation.from_legacy(parameters)
        except ValueError:
            self._lose(
                owner,
                f"the optimizer {parameters!r}",
                "tf.tpu.experimental.embedding has no such optimizer, so the table gets no "
                "optimizer, and its slots are left behind.",
                "Give TPUEmbedding another optimizer, which starts with new slots.",
            )
            return None
        arguments = translated.arguments()
        self._rate(table, arguments)
        if limit is not None and self._sparse_core:
            self._lose(
                owner,
                f"clipping_limit={limit!r}",
                "TPUEmbeddingV2 clips no gradient of a row.",
                "Clip the gradients of activations.",
            )
        elif limit is not None and not translated.use_gradient_accumulation:
            self._lose(
                owner,
                f"clipping_limit={limit!r}",
                "without gradient accumulation no gradient can be clipped.",
                "Set use_gradient_accumulation=True, or clip the gradients of activations.",
            )
        elif limit is not None:
            arguments["clipvalue"] = gradient_limits(translated, limit)
        if arguments.get("slot_variable_creation_fn") is not None:
            self._lose(
                owner,
                "slot_variable_creation_fn",
                "TPUEmbedding creates the slots, under its own names.",
                "Nothing needs to be done.",
            )
            arguments["slot_variable_creation_fn"] = None
        if self._sparse_core:
            self._for_sparse_core(owner, arguments)
        finished: OptimizationParameters = type(translated)(**arguments)
        return finished

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

    def _for_sparse_core(self, owner: str, arguments: dict[str, Any]) -> None:
        if arguments["weight_decay_factor"]:
            self._lose(
                owner,
                f"weight_decay_factor={arguments['weight_decay_factor']!r}",
                "TPUEmbeddingV2 has no weight decay: weights do not decay.",
                "Compare a training with and without it before you leave.",
            )
        arguments["weight_decay_factor"] = None
        arguments["multiply_weight_decay_factor_by_learning_rate"] = None
        for name, acted_by in translation.IGNORED_BY_SPARSE_CORE.items():
            if name in arguments and arguments[name] != acted_by:
                self._lose(
                    owner,
                    f"{name}={arguments[name]!r}",
                    f"TPUEmbeddingV2 ignores it, and acts by {acted_by!r}.",
                    "Compare a training with and without it before you leave.",
                )
                arguments[name] = acted_by

    def _lose(self, owner: str, setting: str, effect: str, instead: str) -> None:
        self.losses.append(Loss(owner, setting, effect, instead))


def _recipe(categorical_column: Any) -> tuple[str, str] | None:
    """Returns a column's kind and the code that makes its ids, or None if values are the ids.

    The code is an expression in `values`, the tensor of the feature, and `column`, the categorical
    column. It evaluates to int64 ids, with -1 for a value that is left out.
    """
    column = without_wrappers(categorical_column)
    kind = type(column).__name__
    if kind == "HashedCategoricalColumn":
        text = "values" if column.dtype == tf.string else "tf.strings.as_string(values)"
        code = f"tf.strings.to_hash_bucket_fast({text}, {column.hash_bucket_size})"
        return "hash buckets", code
    if kind == "VocabularyListCategoricalColumn":
        key = "string" if column.dtype == tf.string else "int64"
        values = "values" if key == "string" else "tf.cast(values, tf.int64)"
        table = (
            f"tf.lookup.KeyValueTensorInitializer(column.vocabulary_list, "
            f"range({len(column.vocabulary_list)}), tf.{key}, tf.int64)"
        )
        return "vocabulary list", _lookup(column, table, values)
    if kind == "VocabularyFileCategoricalColumn" and not getattr(column, "file_format", None):
        table = (
            "tf.lookup.TextFileInitializer(column.vocabulary_file, tf.string, "
            "tf.lookup.TextFileIndex.WHOLE_LINE, tf.int64, tf.lookup.TextFileIndex.LINE_NUMBER, "
            f"vocab_size={column.vocabulary_size})"
        )
        text = "values" if column.dtype == tf.string else "tf.strings.as_string(values)"
        return "vocabulary file", _lookup(column, table, text)
    if kind == "IdentityCategoricalColumn":
        if column.default_value is None:
            return None
        size = column.number_buckets
        return "default value", (
            f"tf.where((values >= 0) & (values < {size}), tf.cast(values, tf.int64), "
            f"{column.default_value})"
        )
    return kind, "by what this column computes"


def _lookup(column: Any, table: str, values: str) -> str:
    if column.num_oov_buckets:
        return (
            f"tf.lookup.StaticVocabularyTable({table}, {column.num_oov_buckets}).lookup({values})"
        )
    return f"tf.lookup.StaticHashTable({table}, {column.default_value}).lookup({values})"
