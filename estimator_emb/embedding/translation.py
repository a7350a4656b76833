# SPDX-License-Identifier: Apache-2.0
"""Translation between the TF2 vocabulary, the legacy one, and TensorFlow's own objects."""

import dataclasses
import inspect
import logging
from typing import Any

import tensorflow as tf

from estimator_emb import config, optimizers
from estimator_emb.embedding.configs import (
    OPTIMIZER_NAMES,
    FeatureConfig,
    QuantizationConfig,
    TableConfig,
)
from estimator_emb.optimizers import PARAMETERS, TF2_OPTIMIZERS, OptimizationParameters
from estimator_emb.spec import optimizer_of, tables_of

logger = logging.getLogger("estimator_emb")


def from_tensorflow(structure: Any) -> Any:
    """TensorFlow's own objects as ours.

    Args:
      structure: an object of a class of `tf.tpu.experimental.embedding` that this package has too,
        or dicts, lists and tuples of such objects, nested at will. Objects of ours pass untouched.

    Returns:
      The same structure. Features that shared a table share its translation.

    Raises:
      ValueError: an object is of another class, or holds something that ours cannot, such as
        `layout`, a `dtype` other than float32 and a custom combiner of later TensorFlow versions.
    """
    tables: dict[int, TableConfig] = {}
    return tf.nest.map_structure(lambda one: _from_tensorflow(one, tables), structure)


def to_tensorflow(structure: Any, sparse_core: bool = False) -> Any:
    """Our objects as TensorFlow's own, for a TF2 program with TPUEmbedding or TPUEmbeddingV2.

    Args:
      structure: an object of this package, or dicts, lists and tuples of such objects, nested at
        will. TensorFlow's own are accepted too.
      sparse_core: True for `TPUEmbeddingV2`, which drives the SparseCore of TPU v5p and v6e. It
        ignores some settings of optimizers: one warning of the log names those that are set. False
        for `TPUEmbedding`, of TPU v2 to v4, which ignores none.

    Returns:
      The same structure of objects of `tf.tpu.experimental.embedding`, with the value of every
      field. Features that share a table share its translation.

    Raises:
      ValueError: an object is of another class; or, with `sparse_core`, an optimizer has weight
        decay, a feature is a sequence, or this TensorFlow has no TPUEmbeddingV2.

    Source: `TPUEmbeddingV2` of tensorflow/python/tpu/tpu_embedding_v3.py, TF 2.21.0.
    """
    if sparse_core and not hasattr(tf.tpu.experimental.embedding, "TPUEmbeddingV2"):
        raise ValueError(
            f"to_tensorflow: TensorFlow {tf.__version__} has no TPUEmbeddingV2, which "
            "sparse_core=True is for."
        )
    ours = from_tensorflow(structure)
    translated: dict[int, Any] = {}
    return tf.nest.map_structure(lambda one: _to_tensorflow(one, sparse_core, translated), ours)


IGNORED_BY_SPARSE_CORE = {
    "lazy_adam": True,
    "use_gradient_accumulation": True,
    "clipvalue": None,
    "clip_weight_min": None,
    "clip_weight_max": None,
    "low_dimensional_packing_status": False,
    "allow_zero_accumulator": False,
}
"""Argument of an optimizer that TPUEmbeddingV2 never reads -> what it does instead, its default."""


def _to_tensorflow(value: Any, sparse_core: bool, translated: dict[int, Any]) -> Any:
    """`translated` holds the translations made so far, by the id of ours."""
    if value is None:
        return None
    if id(value) in translated:
        return translated[id(value)]
    if sparse_core and isinstance(value, TF2_OPTIMIZERS):
        _check_for_sparse_core(value)
    if sparse_core and isinstance(value, FeatureConfig) and value.max_sequence_length:
        raise ValueError(
            "FeatureConfig: TPUEmbeddingV2 combines the ids of every sample; it has no counterpart "
            f"of max_sequence_length={value.max_sequence_length}."
        )
    if isinstance(value, TF2_OPTIMIZERS):
        arguments = value.arguments()
    else:
        arguments = {one.name: getattr(value, one.name) for one in dataclasses.fields(value)}
        for name in ("table", "optimizer", "quantization_config"):
            if name in arguments:
                arguments[name] = _to_tensorflow(arguments[name], sparse_core, translated)
    theirs = getattr(tf.tpu.experimental.embedding, type(value).__name__)
    translated[id(value)] = theirs(**arguments)
    return translated[id(value)]


def _check_for_sparse_core(value: OptimizationParameters) -> None:
    decay = _changed(
        value, weight_decay_factor=None, multiply_weight_decay_factor_by_learning_rate=None
    )
    _refuse(value, "TPUEmbeddingV2", decay, "It has no weight decay; set them to None.")
    taken = inspect.signature(type(value).__init__).parameters
    ignored = _changed(
        value, **{name: one for name, one in IGNORED_BY_SPARSE_CORE.items() if name in taken}
    )
    if ignored:
        logger.warning(
            "%s: TPUEmbeddingV2 ignores %s.",
            type(value).__name__,
            ", ".join(f"{name}={one!r}" for name, one in ignored.items()),
        )


def from_spec(spec: config.EmbeddingConfigSpec) -> dict[str, FeatureConfig]:
    """The features of an `EmbeddingConfigSpec` with their tables, each with its optimizer.

    Args:
      spec: of columns or of config dicts. `pipeline_execution_with_tensor_core`,
        `partition_strategy` and `profile_data_directory` are about TPUEstimator's engine and no
        part of the result; `TPUEmbedding` takes the first of them itself.

    Returns:
      Feature key -> `FeatureConfig`. Features of one table share its `TableConfig`.

    Raises:
      ValueError: what `from_legacy` refuses, a table without optimizer, and `clipping_limit` and
        `experimental_gradient_multiplier_fn`, which the TF2 vocabulary has no counterpart of.
    """
    spec = config.validated(spec)
    _refuse(
        spec,
        "the TF2 vocabulary",
        _changed(spec, clipping_limit=None, experimental_gradient_multiplier_fn=None),
        "Limits of gradients belong in the optimizer's clipvalue, factors in the training step.",
    )
    features = {}
    for one in tables_of(spec):
        parameters = optimizer_of(one)
        table = from_legacy(one.config._replace(optimization_parameters=parameters), one.name)
        for feature in one.features:
            legacy = config.FeatureConfig(one.name, feature.max_sequence_length, feature.weight_key)
            features[feature.key] = from_legacy(legacy, feature.key, table)
    return features


def to_legacy(value: Any) -> Any:
    """The legacy counterpart of an object of this package, or of TensorFlow's own.

    Args:
      value: an optimizer, a `TableConfig` or a `FeatureConfig`. The name of a config is not part of
        the result: it is the key for it in `table_to_config_dict` or `feature_to_config_dict`.

    Returns:
      An `...Parameters` object, a `TableConfig` or a `FeatureConfig` of the legacy vocabulary, with
      the value of every field. Initializers and combiners stay the same objects.

    Raises:
      ValueError: a field has no counterpart and is not at its default: of an optimizer, a function
        as `learning_rate`, `slot_variable_creation_fn` and `low_dimensional_packing_status`; of a
        table, `quantization_config`; of a feature, `validate_weights_and_indices`, `output_shape`,
        and a table without name.
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
    """The counterpart in this package of a legacy object.

    Args:
      value: an `...Parameters` object, a `TableConfig` or a `FeatureConfig` of the legacy
        vocabulary. TensorFlow 2.15's own `...Parameters` are accepted too.
      name: of a config: the name of the result; legacy configs are named by their key.
      table: of a `FeatureConfig`: the translation of its table, named `table_id`.

    Returns:
      An optimizer, a `TableConfig` or a `FeatureConfig` of this package, with the value of every
      field. Initializers and combiners stay the same objects.

    Raises:
      ValueError: a field has no counterpart and is not at its default: of a table,
        `hot_id_replication`, `learning_rate`, `learning_rate_fn` and the combiner None; of a
        feature, `weight_key` and a `table_id` that is not the name of `table`. An optimizer that
        the TF2 vocabulary does not have, or `FtrlParameters` with initial accumulators of 0.
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
    parameters = optimizers.from_tensorflow(value) or value
    if isinstance(parameters, TF2_OPTIMIZERS):
        return parameters
    for ours in TF2_OPTIMIZERS:
        if type(parameters) in PARAMETERS and issubclass(ours, type(parameters)):
            fields = {ours.renamed.get(k, k): v for k, v in parameters.arguments().items()}
            fields["clipvalue"] = fields.pop("clip_gradient_min"), fields.pop("clip_gradient_max")
            return ours(**fields)
    raise ValueError(
        f"from_legacy: the TF2 vocabulary has no counterpart of {value!r}; it has "
        f"{OPTIMIZER_NAMES}, TableConfig and FeatureConfig."
    )


def _from_tensorflow(value: Any, tables: dict[int, TableConfig]) -> Any:
    """`tables` holds the translations made so far, by the id of TensorFlow's table."""
    if isinstance(value, (*TF2_OPTIMIZERS, QuantizationConfig, TableConfig, FeatureConfig)):
        return value
    if isinstance(optimizer := optimizers.from_tensorflow(value), TF2_OPTIMIZERS):
        return optimizer
    is_theirs = type(value).__module__ == "tensorflow.python.tpu.tpu_embedding_v2_utils"
    kind = type(value).__name__ if is_theirs else None
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
            fields = {one.name: getattr(value, one.name) for one in dataclasses.fields(TableConfig)}
            if value.quantization_config is not None:
                fields["quantization_config"] = _from_tensorflow(value.quantization_config, tables)
            tables[id(value)] = TableConfig(**fields)
        return tables[id(value)]
    if kind == "FeatureConfig":
        fields = {one.name: getattr(value, one.name) for one in dataclasses.fields(FeatureConfig)}
        return FeatureConfig(**{**fields, "table": _from_tensorflow(value.table, tables)})
    raise ValueError(
        f"Expected one of {OPTIMIZER_NAMES}, TableConfig, FeatureConfig, QuantizationConfig of "
        f"estimator_emb.embedding or tf.tpu.experimental.embedding; got {value!r}."
    )


def _changed(value: Any, **defaults: Any) -> dict[str, Any]:
    """The named fields of `value` that are not at their defaults."""
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
