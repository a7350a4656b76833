# SPDX-License-Identifier: Apache-2.0
"""The TF2 vocabulary: what `tf.tpu.experimental.embedding` calls tables, features and optimizers.

The five optimizers train wherever the legacy ones do: an `EmbeddingConfigSpec` and its tables take
them as `optimization_parameters`, and TensorFlow's own of the same name too. Tables and features
say the same as the legacy `TableConfig` and `FeatureConfig`; `to_legacy` and `from_legacy`
translate, `from_tensorflow` makes TensorFlow's own objects ours, and `to_tensorflow` hands ours to
`tf.tpu.experimental.embedding.TPUEmbedding` and `TPUEmbeddingV2`.
"""

import dataclasses
import inspect
import logging
import math
import numbers
from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from estimator_emb import config, optimizers
from estimator_emb.optimizers import (
    FTRL,
    PARAMETERS,
    SGD,
    TF2_OPTIMIZERS,
    Adagrad,
    AdagradMomentum,
    Adam,
    OptimizationParameters,
)
from feature_columns.tables import tables_of_columns

logger = logging.getLogger("estimator_emb")

_COMBINERS = ("mean", "sum", "sqrtn")
_OPTIMIZER_NAMES = ", ".join(one.__name__ for one in TF2_OPTIMIZERS)


@dataclasses.dataclass(frozen=True)
class QuantizationConfig:
    """Simulated quantization of the rows that a lookup gathers, before the combiner.

    With x one element of a row, float32, and q = (upper - lower) / (num_buckets - 1):

        x <- clamp(x, lower, upper)
        x <- floor((x - lower) / q + 0.5) * q + lower

    The table keeps its float32 values. Only TPU hardware does this; `to_legacy` refuses a table
    that asks for it.

    Args:
      num_buckets: number of values that x can take, an int >= 2.
      lower: lower end of the range, a number.
      upper: upper end, above `lower`.

    Raises:
      ValueError: an argument is out of its range.

    Source: `QuantizationConfig` of tensorflow/python/tpu/tpu_embedding_v2_utils.py, TF 2.15.1.
    """

    num_buckets: int
    lower: float
    upper: float

    def __post_init__(self) -> None:
        _check_integer("QuantizationConfig", "num_buckets", self.num_buckets, 2)
        numeric = all(isinstance(x, numbers.Real) for x in (self.lower, self.upper))
        if not (numeric and self.lower < self.upper):
            raise ValueError(
                "QuantizationConfig: lower and upper must be numbers, lower below upper; got "
                f"{self.lower!r} and {self.upper!r}."
            )


@dataclasses.dataclass(eq=False)
class TableConfig:
    """One embedding table, float32 [vocabulary_size, dim].

    Features that name the same object share the table; two objects never compare equal.

    Args:
      vocabulary_size: number of rows, an int >= 1. Ids are in [0, vocabulary_size).
      dim: number of columns, an int >= 1. The legacy `TableConfig` calls it `dimension`.
      initializer: callable that makes the initial table from a shape and dtype; None means a
        truncated normal of mean 0 and standard deviation 1/sqrt(dim), as in the legacy class.
      optimizer: this table's own optimizer, one of SGD, Adagrad, AdagradMomentum, Adam, FTRL, or
        TensorFlow's of that name; None means the global one. The legacy class calls it
        `optimization_parameters`.
      combiner: how the ids of one sample become one activation: 'mean', 'sum' or 'sqrtn'; 'mean' by
        default, as in the legacy class, which takes None too.
      name: the table's name; in the legacy vocabulary the key in `table_to_config_dict`.
      quantization_config: a `QuantizationConfig` or None.

    TensorFlow 2.21's further arguments `layout` and `dtype` are absent: they are about the
    hardware's SparseCore, and every table here is float32.

    Raises:
      ValueError: an argument is out of its range.

    Source: `TableConfig` of tensorflow/python/tpu/tpu_embedding_v2_utils.py, TF 2.15.1.
    """

    vocabulary_size: int
    dim: int
    initializer: Callable[..., Any] | None = None
    optimizer: OptimizationParameters | None = None
    combiner: str = "mean"
    name: str | None = None
    quantization_config: QuantizationConfig | None = None

    def __post_init__(self) -> None:
        _check_integer("TableConfig", "vocabulary_size", self.vocabulary_size, 1)
        _check_integer("TableConfig", "dim", self.dim, 1)
        if self.initializer is None:
            self.initializer = tf.compat.v1.truncated_normal_initializer(
                mean=0.0, stddev=1 / math.sqrt(self.dim)
            )
        if not callable(self.initializer):
            raise ValueError(
                f"TableConfig: initializer must be callable or None; got {self.initializer!r}."
            )
        if self.optimizer is not None and not isinstance(self.optimizer, TF2_OPTIMIZERS):
            translated = optimizers.from_tensorflow(self.optimizer)
            if not isinstance(translated, TF2_OPTIMIZERS):
                raise ValueError(
                    f"TableConfig: optimizer must be one of {_OPTIMIZER_NAMES}, or None; got "
                    f"{self.optimizer!r}. from_legacy translates a legacy one."
                )
            self.optimizer = translated
        if self.combiner not in _COMBINERS:
            raise ValueError(
                f"TableConfig: combiner must be 'mean', 'sum' or 'sqrtn'; got {self.combiner!r}."
            )
        _check_name("TableConfig", self.name)
        if not isinstance(self.quantization_config, (QuantizationConfig, type(None))):
            raise ValueError(
                "TableConfig: quantization_config must be a QuantizationConfig or None; got "
                f"{self.quantization_config!r}."
            )


@dataclasses.dataclass(eq=False)
class FeatureConfig:
    """One feature that looks up a table.

    Args:
      table: a `TableConfig` of this module. The legacy `FeatureConfig` names it by its key,
        `table_id`.
      max_sequence_length: 0 combines the ids of a sample into one activation, float32 [batch, dim];
        a positive int keeps them apart, [batch, max_sequence_length, dim], cut off there and filled
        up with zeros. 0 by default, as in the legacy class.
      validate_weights_and_indices: True makes a serving lookup ignore negative ids and weights that
        are not positive.
      output_shape: shape of the activation without its last dimension, or None; kept as a
        `tf.TensorShape`.
      name: the feature's name; in the legacy vocabulary the key in `feature_to_config_dict`.

    The weights of ids are no part of it: the legacy class has `weight_key`.

    Raises:
      ValueError: an argument is out of its range.

    Source: `FeatureConfig` of tensorflow/python/tpu/tpu_embedding_v2_utils.py, TF 2.15.1.
    """

    table: TableConfig
    max_sequence_length: int = 0
    validate_weights_and_indices: bool = True
    output_shape: Sequence[int | None] | tf.TensorShape | None = None
    name: str | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.table, TableConfig):
            raise ValueError(
                "FeatureConfig: table must be a TableConfig of estimator_emb.embedding; got "
                f"{self.table!r}. from_tensorflow translates TensorFlow's features with their "
                "tables."
            )
        _check_integer("FeatureConfig", "max_sequence_length", self.max_sequence_length, 0)
        if not isinstance(self.validate_weights_and_indices, bool):
            raise ValueError(
                "FeatureConfig: validate_weights_and_indices must be True or False; got "
                f"{self.validate_weights_and_indices!r}."
            )
        try:
            self.output_shape = tf.TensorShape(self.output_shape)
        except (TypeError, ValueError):
            raise ValueError(
                "FeatureConfig: output_shape must be a list of ints, a tf.TensorShape or None; got "
                f"{self.output_shape!r}."
            ) from None
        _check_name("FeatureConfig", self.name)


def from_tensorflow(structure: Any) -> Any:
    """TensorFlow's own objects as ours.

    Args:
      structure: an object of a class of `tf.tpu.experimental.embedding` that this module has too,
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
      structure: an object of this module, or dicts, lists and tuples of such objects, nested at
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


_IGNORED_BY_SPARSE_CORE = {
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
        value, **{name: one for name, one in _IGNORED_BY_SPARSE_CORE.items() if name in taken}
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
    tables = (
        config.tables_of_dicts(spec)
        if spec.table_to_config_dict
        else tables_of_columns(spec.feature_columns or ())
    )
    for one in tables:
        parameters = one.config.optimization_parameters or spec.optimization_parameters
        if parameters is None:
            raise ValueError(
                f"Table {one.name!r} has no optimizer: give it optimization_parameters in its "
                "TableConfig, or in the EmbeddingConfigSpec."
            )
        table = from_legacy(one.config._replace(optimization_parameters=parameters), one.name)
        for feature in one.features:
            legacy = config.FeatureConfig(
                one.name, feature.max_sequence_length, feature.weight_key
            )
            features[feature.key] = from_legacy(legacy, feature.key, table)
    return features


def to_legacy(value: Any) -> Any:
    """The legacy counterpart of an object of this module, or of TensorFlow's own.

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
    """The counterpart in this module of a legacy object.

    Args:
      value: an `...Parameters` object, a `TableConfig` or a `FeatureConfig` of the legacy
        vocabulary. TensorFlow 2.15's own `...Parameters` are accepted too.
      name: of a config: the name of the result; legacy configs are named by their key.
      table: of a `FeatureConfig`: the translation of its table, named `table_id`.

    Returns:
      An optimizer, a `TableConfig` or a `FeatureConfig` of this module, with the value of every
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
        f"{_OPTIMIZER_NAMES}, TableConfig and FeatureConfig."
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
        f"Expected one of {_OPTIMIZER_NAMES}, TableConfig, FeatureConfig, QuantizationConfig of "
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


def _check_integer(owner: str, name: str, value: object, least: int) -> None:
    if not isinstance(value, numbers.Integral) or isinstance(value, bool) or value < least:
        raise ValueError(f"{owner}: {name} must be an int >= {least}; got {value!r}.")


def _check_name(owner: str, name: object) -> None:
    if not isinstance(name, (str, type(None))):
        raise ValueError(f"{owner}: name must be a string or None; got {name!r}.")


__all__ = [
    "Adagrad",
    "AdagradMomentum",
    "Adam",
    "FTRL",
    "FeatureConfig",
    "QuantizationConfig",
    "SGD",
    "TableConfig",
    "from_legacy",
    "from_spec",
    "from_tensorflow",
    "to_legacy",
    "to_tensorflow",
]
