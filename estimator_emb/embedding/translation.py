"""Translates between the TF2 vocabulary, the legacy vocabulary and TensorFlow's own objects."""

import dataclasses
from collections.abc import Callable
from typing import Any

import tensorflow as tf

from estimator_emb import optimizers
from estimator_emb.embedding.configs import (
    OPTIMIZER_NAMES,
    FeatureConfig,
    QuantizationConfig,
    TableConfig,
)
from estimator_emb.optimizers import PARAMETERS, TF2_OPTIMIZERS
from estimator_emb.reporting.console import logger
from estimator_emb.spec import config
from estimator_emb.spec.resolved import tables_of


def from_tensorflow(structure: Any) -> Any:
    """Translates TensorFlow's own objects to ours.

    Args:
      structure: an object of a class of `tf.tpu.experimental.embedding` that this package has too,
        or nested dicts, lists and tuples of such objects. Our own objects stay unchanged.

    Returns:
      The same structure of our objects. Features that shared a table share its translation.

    Raises:
      ValueError: an object is of another class, or has an unsupported value: in later TensorFlow
        versions a `layout`, a `dtype` other than float32, or a combiner that is a function.
    """
    tables: dict[int, TableConfig] = {}
    return tf.nest.map_structure(lambda value: _from_tensorflow(value, tables), structure)


def objects_to_tensorflow(structure: Any, check: Callable[[Any], None] | None = None) -> Any:
    """Translates our objects to TensorFlow's. Checks and translates each object once."""
    done: dict[int, Any] = {}

    def translated(value: Any) -> Any:
        if value is None:
            return None
        if id(value) not in done:
            if check:
                check(value)
            is_optimizer = isinstance(value, TF2_OPTIMIZERS)
            arguments = value.arguments() if is_optimizer else _fields(value, value)
            for name in ("table", "optimizer", "quantization_config"):
                if name in arguments:
                    arguments[name] = translated(arguments[name])
            if _PACKING in arguments:  # It becomes an enum field, and protobuf 7 refuses a bool.
                arguments[_PACKING] = int(arguments[_PACKING])
            theirs = getattr(tf.tpu.experimental.embedding, type(value).__name__)
            done[id(value)] = theirs(**arguments)
        return done[id(value)]

    return tf.nest.map_structure(translated, structure)


_PACKING = "low_dimensional_packing_status"

IGNORED_BY_SPARSE_CORE = {
    "lazy_adam": True,
    "use_gradient_accumulation": True,
    "clipvalue": None,
    "clip_weight_min": None,
    "clip_weight_max": None,
    _PACKING: False,
    "allow_zero_accumulator": False,
}
"""Optimizer argument that TPUEmbeddingV2 never reads -> the value that it uses instead."""


def check_for_sparse_core(value: Any, strict: bool) -> None:
    """Raises ValueError for settings unknown to TPUEmbeddingV2. Warns about ignored settings."""
    if isinstance(value, FeatureConfig) and value.max_sequence_length:
        raise ValueError(
            "FeatureConfig: TPUEmbeddingV2 combines the ids of every sample; it has no "
            f"counterpart of max_sequence_length={value.max_sequence_length}."
        )
    if not isinstance(value, TF2_OPTIMIZERS):
        return
    decay = _changed(
        value, weight_decay_factor=None, multiply_weight_decay_factor_by_learning_rate=None
    )
    _refuse(value, "TPUEmbeddingV2", decay, "It has no weight decay; set them to None.")
    known = value.arguments()
    acted_by = {name: fixed for name, fixed in IGNORED_BY_SPARSE_CORE.items() if name in known}
    ignored = _changed(value, **acted_by)
    if strict:
        _refuse(value, "TPUEmbeddingV2", ignored, "Leave them at their defaults.")
    if ignored:
        logger.warning(
            "%s: TPUEmbeddingV2 ignores %s.",
            type(value).__name__,
            ", ".join(f"{name}={setting!r}" for name, setting in ignored.items()),
        )


def from_spec(spec: config.EmbeddingConfigSpec) -> dict[str, FeatureConfig]:
    """Translates the features of an `EmbeddingConfigSpec`, with their tables and optimizers.

    The result is in the vocabulary of this package, and nothing is left out. `to_tensorflow`
    translates a spec to TensorFlow's own objects, and reports settings without a counterpart there.

    Args:
      spec: a spec of columns or of config dicts. Three of its fields say how TPUEstimator runs, and
        are not translated: `pipeline_execution_with_tensor_core` (an argument of `TPUEmbedding`),
        `partition_strategy` and `profile_data_directory`.

    Returns:
      Feature key -> `FeatureConfig`. Features of a table share its `TableConfig`.

    Raises:
      ValueError: `from_legacy` refuses a table or a feature, a table has no optimizer, or the spec
        has settings without a counterpart: `clipping_limit` or
        `experimental_gradient_multiplier_fn`.
    """
    spec = config.validated(spec)
    _refuse(
        spec,
        "the TF2 vocabulary",
        _changed(spec, clipping_limit=None, experimental_gradient_multiplier_fn=None),
        "Limits of gradients belong in the optimizer's clipvalue, factors in the training step.",
    )
    features = {}
    for table in tables_of(spec):
        legacy_table = table.config._replace(optimization_parameters=table.trained_by)
        translated = from_legacy(legacy_table, table.name)
        for feature in table.features:
            legacy_feature = config.FeatureConfig(
                table.name, feature.max_sequence_length, feature.weight_key
            )
            features[feature.key] = from_legacy(legacy_feature, feature.key, translated)
    return features


def to_legacy(value: Any) -> Any:
    """Translates an object of the TF2 vocabulary to the legacy vocabulary.

    Args:
      value: an optimizer, a `TableConfig` or a `FeatureConfig`, of this package or of TensorFlow. A
        config's name is not translated. Use it as the key of the result in `table_to_config_dict`
        or `feature_to_config_dict`.

    Returns:
      An `...Parameters` object, a `TableConfig` or a `FeatureConfig` of the legacy vocabulary, with
      the value of every field. Initializers and combiners stay the same objects.

    Raises:
      ValueError: a field without a counterpart is not at its default. An optimizer's are a function
        as `learning_rate`, `slot_variable_creation_fn` and `low_dimensional_packing_status`. A
        table's is `quantization_config`. A feature's are `validate_weights_and_indices` and
        `output_shape`. Also if the table of a feature has no name.
    """
    value = _from_tensorflow(value, {})
    if isinstance(value, TableConfig):
        _refuse(
            value,
            "the legacy vocabulary",
            _changed(value, quantization_config=None),
            "Only TPU hardware quantizes; set it to None.",
        )
        return config.TableConfig(
            value.vocabulary_size,
            value.dim,
            initializer=value.initializer,
            combiner=value.combiner,
            optimization_parameters=value.optimizer and to_legacy(value.optimizer),
        )
    if isinstance(value, FeatureConfig):
        lost = _changed(value, validate_weights_and_indices=True)
        if value.output_shape.rank is not None:  # type: ignore[union-attr]
            lost["output_shape"] = value.output_shape
        _refuse(value, "the legacy vocabulary", lost, "Leave them at their defaults.")
        if value.table.name is None:
            raise ValueError(
                "FeatureConfig: its table has no name, and the legacy FeatureConfig needs one for "
                "table_id; give the TableConfig a name."
            )
        return config.FeatureConfig(value.table.name, value.max_sequence_length)
    if isinstance(value, TF2_OPTIMIZERS):
        lost = {"learning_rate": value.learning_rate} if callable(value.learning_rate) else {}
        lost |= _changed(value, slot_variable_creation_fn=None)
        lost |= _changed(value, low_dimensional_packing_status=False)
        _refuse(
            value,
            "the legacy vocabulary",
            lost,
            "Give the optimizer itself as optimization_parameters, which takes it as it is.",
        )
        return optimizers.translate(
            value, next(legacy for legacy in PARAMETERS if isinstance(value, legacy))
        )
    raise ValueError(f"to_legacy: the legacy vocabulary has no counterpart of {value!r}.")


def from_legacy(value: Any, name: str | None = None, table: TableConfig | None = None) -> Any:
    """Translates a legacy object to the TF2 vocabulary of this package.

    Args:
      value: an `...Parameters` object, a `TableConfig` or a `FeatureConfig` of the legacy
        vocabulary. TensorFlow 2.15's own `...Parameters` are accepted too.
      name: for a config, the name of the result: the config's key in the legacy vocabulary. None by
        default.
      table: for a `FeatureConfig`, its translated table. The table's name must be the `table_id`.

    Returns:
      An optimizer, a `TableConfig` or a `FeatureConfig` of this package, with the value of every
      field. Initializers and combiners stay the same objects.

    Raises:
      ValueError: a field without a counterpart is not at its default. A table's are
        `hot_id_replication`, `learning_rate` and `learning_rate_fn`. A feature's is `weight_key`.
        Also if the combiner of a table is None, the `table_id` of a feature is not the name of
        `table`, the TF2 vocabulary does not have the optimizer, or `FtrlParameters` has initial
        accumulators of 0.
    """
    if isinstance(value, config.TableConfig):
        lost = _changed(value, hot_id_replication=False, learning_rate=None, learning_rate_fn=None)
        if value.combiner is None:
            lost["combiner"] = None
        _refuse(
            value,
            "the TF2 vocabulary",
            lost,
            "A rate belongs in the table's optimizer, and a table of one id per sample may as well "
            "have the combiner 'sum'.",
        )
        return TableConfig(
            value.vocabulary_size,
            value.dimension,
            initializer=value.initializer,
            optimizer=value.optimization_parameters and from_legacy(value.optimization_parameters),
            combiner=value.combiner,
            name=name,
        )
    if isinstance(value, config.FeatureConfig):
        _refuse(
            value,
            "the TF2 vocabulary",
            _changed(value, weight_key=None),
            "There, weights go into the lookup beside the ids.",
        )
        if table is None or table.name != value.table_id:
            raise ValueError(
                "from_legacy: a FeatureConfig needs its table, a TableConfig whose name is the "
                f"table_id {value.table_id!r}; got {table!r}."
            )
        return FeatureConfig(table, value.max_sequence_length, name=name)
    parameters = optimizers.from_tensorflow(value)
    if isinstance(parameters, TF2_OPTIMIZERS):
        return parameters
    if parameters is not None and (ours := optimizers.tf2_class(type(parameters))):
        fields = {ours.renamed.get(n, n): field for n, field in parameters.arguments().items()}
        fields["clipvalue"] = optimizers.clipvalue_of(
            fields.pop("clip_gradient_min"), fields.pop("clip_gradient_max")
        )
        return ours(**fields)
    raise ValueError(
        f"from_legacy: the TF2 vocabulary has no counterpart of {value!r}; it has "
        f"{OPTIMIZER_NAMES}, TableConfig and FeatureConfig."
    )


def _from_tensorflow(value: Any, tables: dict[int, TableConfig]) -> Any:
    """Translates an object of TensorFlow. `tables` caches translated tables by `id()`."""
    if isinstance(value, (QuantizationConfig, TableConfig, FeatureConfig)):
        return value
    if isinstance(optimizer := optimizers.from_tensorflow(value), TF2_OPTIMIZERS):
        return optimizer
    kind = optimizers.name_in_tensorflow(value)
    if kind == "QuantizationConfig":
        return QuantizationConfig(value.num_buckets, value.lower, value.upper)
    if kind == "TableConfig":
        if id(value) not in tables:
            lost = {
                name: getattr(value, name)
                for name, default in (("layout", None), ("dtype", tf.float32))
                if getattr(value, name, default) != default
            }
            _refuse(value, "estimator_emb.embedding", lost, "Leave them at their defaults.")
            fields = _fields(value, TableConfig)
            if value.quantization_config is not None:
                fields["quantization_config"] = _from_tensorflow(value.quantization_config, tables)
            tables[id(value)] = TableConfig(**fields)
        return tables[id(value)]
    if kind == "FeatureConfig":
        fields = _fields(value, FeatureConfig)
        return FeatureConfig(**{**fields, "table": _from_tensorflow(value.table, tables)})
    raise ValueError(
        f"Expected one of {OPTIMIZER_NAMES}, TableConfig, FeatureConfig, QuantizationConfig of "
        f"estimator_emb.embedding or tf.tpu.experimental.embedding; got {value!r}."
    )


def _fields(value: Any, ours: Any) -> dict[str, Any]:
    return {field.name: getattr(value, field.name) for field in dataclasses.fields(ours)}


def _changed(value: Any, **defaults: Any) -> dict[str, Any]:
    return {
        name: getattr(value, name)
        for name, default in defaults.items()
        if getattr(value, name) != default
    }


def _refuse(value: Any, where: str, lost: dict[str, Any], advice: str) -> None:
    if lost:
        fields = ", ".join(f"{name}={field!r}" for name, field in lost.items())
        raise ValueError(
            f"{type(value).__name__}: {where} has no counterpart of {fields}. {advice}"
        )
