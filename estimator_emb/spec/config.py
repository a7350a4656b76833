"""Legacy classes that describe a program's embedding tables.

The classes are namedtuples because programs unpack and `_replace` them. `_replace` bypasses the
constructor, so `validated` repeats the constructor's checks before a spec is used.
"""

import collections
import copy
import functools
import math
import numbers
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import tensorflow as tf

from estimator_emb.compat.internals.column_classes import (
    EmbeddingColumn,
    EmbeddingDevice,
    LegacyEmbeddingColumn,
    LegacyNumericColumn,
    LegacySharedEmbeddingColumn,
    LegacyTPUEmbeddingColumn,
    LegacyTPUSharedEmbeddingColumn,
    NumericColumn,
    SharedEmbeddingColumn,
    TPUEmbeddingColumn,
    TPUSharedEmbeddingColumn,
)
from estimator_emb.optimizers import OptimizationParameters, as_parameters, name_in_tensorflow
from estimator_emb.optimizers._parameters import check_finite, check_not_negative, is_number
from estimator_emb.reporting import suggestions
from estimator_emb.reporting.program_calls import method_of_program

TABLE_COLUMNS = (
    TPUEmbeddingColumn,
    TPUSharedEmbeddingColumn,
    LegacyTPUEmbeddingColumn,
    LegacyTPUSharedEmbeddingColumn,
)
"""Classes of columns with a table on a TPU."""
COMBINERS = ("mean", "sum", "sqrtn", None)
PARTITION_STRATEGIES = ("div", "mod")


class TableConfig(
    collections.namedtuple(
        "TableConfig",
        [
            "vocabulary_size",
            "dimension",
            "initializer",
            "combiner",
            "hot_id_replication",
            "learning_rate",
            "learning_rate_fn",
            "optimization_parameters",
        ],
    )
):
    """An embedding table, float32 [vocabulary_size, dimension].

    Args:
      vocabulary_size: number of rows, an int >= 1. Ids are in [0, vocabulary_size).
      dimension: number of columns, an int >= 1.
      initializer: function that returns the initial table for a shape and a dtype; None means a
        truncated normal of mean 0 and standard deviation 1/sqrt(dimension).
      combiner: how the rows of a sample's ids are combined into one activation: 'mean', the
        default, 'sum', 'sqrtn', or None for dense input of one id per sample.
      hot_id_replication: speed hint for the hardware, False by default. Results do not change.
      learning_rate: constant rate of this table, a finite number >= 0. None means the optimizer's
        rate.
      learning_rate_fn: function of the global step, an int64 scalar, that returns the rate of this
        table as a number or a scalar tensor. Cannot be combined with `learning_rate`.
      optimization_parameters: this table's own optimizer. None means the spec's optimizer.

    Raises:
      ValueError: an argument is out of its range, or both rates are given.

    Source: `TableConfig` of tensorflow/python/tpu/tpu_embedding.py, TF 2.15.1.
    """

    def __new__(
        cls,
        vocabulary_size: int,
        dimension: int,
        initializer: Callable[..., Any] | None = None,
        combiner: str | None = "mean",
        hot_id_replication: bool = False,
        learning_rate: float | None = None,
        learning_rate_fn: Callable[[Any], Any] | None = None,
        optimization_parameters: OptimizationParameters | None = None,
    ) -> "TableConfig":
        check = functools.partial(suggestions.check_argument, "TableConfig")
        check_integer("TableConfig", "vocabulary_size", vocabulary_size, 1)
        check_integer("TableConfig", "dimension", dimension, 1)
        check_bool("TableConfig", "hot_id_replication", hot_id_replication)
        is_function = initializer is None or callable(initializer)
        check(is_function, "initializer", "callable or None", initializer)
        if initializer is None:
            initializer = tf.compat.v1.truncated_normal_initializer(
                mean=0.0, stddev=1 / math.sqrt(dimension)
            )
        check(combiner in COMBINERS, "combiner", "'mean', 'sum', 'sqrtn' or None", combiner)
        if learning_rate is not None and learning_rate_fn is not None:
            raise ValueError(
                "TableConfig: at most one of learning_rate and learning_rate_fn may be given; got "
                f"{learning_rate!r} and {learning_rate_fn!r}."
            )
        if learning_rate is not None:
            check(is_number(learning_rate), "learning_rate", "a number", learning_rate)
            check_finite("TableConfig: learning_rate", learning_rate)
            check_not_negative("TableConfig: learning_rate", learning_rate)
        is_function = learning_rate_fn is None or callable(learning_rate_fn)
        check(is_function, "learning_rate_fn", "a function of the global step", learning_rate_fn)
        if optimization_parameters is not None:
            optimization_parameters = as_parameters(optimization_parameters, "TableConfig")
        fields = locals()
        return super().__new__(cls, *(fields[name] for name in cls._fields))

    def __deepcopy__(self, memo: dict[int, Any]) -> "TableConfig":
        # Initializers and functions are not copied because a copy would compare unequal.
        return type(self)(
            *(field if callable(field) else copy.deepcopy(field, memo) for field in self)
        )


class FeatureConfig(
    collections.namedtuple("FeatureConfig", ["table_id", "max_sequence_length", "weight_key"])
):
    """A feature that looks up a table.

    Args:
      table_id: the table's key in `table_to_config_dict`.
      max_sequence_length: 0, the default, combines the rows of a sample's ids into one activation,
        float32 [batch, dimension]. A positive int keeps them separate, float32
        [batch, max_sequence_length, dimension]. Longer samples are truncated, and shorter samples
        are padded with zeros.
      weight_key: key of the feature that holds the weights of the ids, in the same shape. None
        means that each weight is 1.

    Raises:
      ValueError: `max_sequence_length` is not an int >= 0.

    Source: `FeatureConfig` of tensorflow/python/tpu/tpu_embedding.py, TF 2.15.1.
    """

    def __new__(
        cls, table_id: str, max_sequence_length: int = 0, weight_key: str | None = None
    ) -> "FeatureConfig":
        check_integer("FeatureConfig", "max_sequence_length", max_sequence_length, 0)
        return super().__new__(cls, table_id, max_sequence_length, weight_key)


class EmbeddingConfigSpec(
    collections.namedtuple(
        "EmbeddingConfigSpec",
        [
            "feature_columns",
            "tensor_core_feature_columns",
            "optimization_parameters",
            "clipping_limit",
            "pipeline_execution_with_tensor_core",
            "experimental_gradient_multiplier_fn",
            "feature_to_config_dict",
            "table_to_config_dict",
            "partition_strategy",
            "profile_data_directory",
        ],
    )
):
    """A program's embedding tables and how they train, an argument of `TPUEstimator`.

    Give either `feature_columns` or both dicts.

    Args:
      feature_columns: list of columns created by `feature_columns.embedding_column` and
        `feature_columns.shared_embedding_columns`, or of TensorFlow's own TPU columns. With
        `use_tpu=False` it may also hold numeric and embedding columns of `tf.feature_column`.
        They belong to the model, and the model's own optimizer trains them.
      optimization_parameters: the optimizer of every table without its own optimizer. Required
        with `feature_columns`.
      clipping_limit: positive number: the gradient of a row, summed over the batch, is clipped to
        [-clipping_limit, clipping_limit]. None means no limit.
      pipeline_execution_with_tensor_core: True delays each update by one lookup, so that the lookup
        of step N+1 sees the updates up to step N-1. False by default.
      experimental_gradient_multiplier_fn: function of the global step, an int64 scalar, that
        returns a number or a scalar tensor. The gradients of all activations are multiplied by the
        result before they are summed and clipped. None means 1.
      feature_to_config_dict: feature key -> `FeatureConfig`.
      table_to_config_dict: table key -> `TableConfig`.
      partition_strategy: 'div', the default, or 'mod': how rows are divided over the hosts of a
        TPU. Results and checkpoints do not change.
      profile_data_directory: folder for the hardware's lookup statistics. None disables them.

    Raises:
      ValueError: tables are given both ways or neither way, a feature names an unknown table, or a
        field is out of its range.
      TypeError: a column or a config is of an unsupported class.

    Source: `EmbeddingConfigSpec` of
    tensorflow_estimator/python/estimator/tpu/_tpu_estimator_embedding.py, 2.15.0.
    """

    def __new__(
        cls,
        feature_columns: Sequence[Any] | None = None,
        optimization_parameters: OptimizationParameters | None = None,
        clipping_limit: float | None = None,
        pipeline_execution_with_tensor_core: bool = False,
        experimental_gradient_multiplier_fn: Callable[[Any], Any] | None = None,
        feature_to_config_dict: Mapping[str, FeatureConfig] | None = None,
        table_to_config_dict: Mapping[str, TableConfig] | None = None,
        partition_strategy: str = "div",
        profile_data_directory: str | None = None,
    ) -> "EmbeddingConfigSpec":
        dicts = [bool(feature_to_config_dict), bool(table_to_config_dict)]
        if dicts != [not feature_columns] * 2:
            raise ValueError(
                "EmbeddingConfigSpec: exactly one of `feature_columns` and the pair "
                "`feature_to_config_dict` and `table_to_config_dict` must be specified."
            )
        check_strategy("EmbeddingConfigSpec", partition_strategy)
        check = functools.partial(suggestions.check_argument, "EmbeddingConfigSpec")
        limit, directory = clipping_limit, profile_data_directory
        positive = limit is None or (is_number(limit) and limit > 0)
        check(positive, "clipping_limit", "a positive number or None", limit)
        pipelined = pipeline_execution_with_tensor_core
        check_bool("EmbeddingConfigSpec", "pipeline_execution_with_tensor_core", pipelined)
        is_path = isinstance(directory, str | None)
        check(is_path, "profile_data_directory", "a str or None", directory)
        multiplier = experimental_gradient_multiplier_fn
        check(
            multiplier is None or callable(multiplier),
            "experimental_gradient_multiplier_fn",
            "a function of the global step or None",
            multiplier,
        )
        tensor_core_feature_columns: list[Any] | None = None
        if feature_columns:
            feature_columns, tensor_core_feature_columns = _split_columns(feature_columns)
            if optimization_parameters is None:
                raise ValueError(
                    "EmbeddingConfigSpec: optimization_parameters must be given with "
                    "feature_columns."
                )
        else:
            feature_columns = None
            assert feature_to_config_dict and table_to_config_dict
            table_to_config_dict = {
                table: _as_config(config, TableConfig, f"table {table!r}")
                for table, config in table_to_config_dict.items()
            }
            feature_to_config_dict = {
                feature: _as_config(config, FeatureConfig, f"feature {feature!r}")
                for feature, config in feature_to_config_dict.items()
            }
            _check_dicts(feature_to_config_dict, table_to_config_dict)
        if optimization_parameters is not None:
            optimization_parameters = as_parameters(optimization_parameters, "EmbeddingConfigSpec")
        fields = locals()
        return super().__new__(cls, *(fields[name] for name in cls._fields))

    def __reduce__(self) -> Any:
        # The fields are not the constructor's arguments, because columns are split into two lists.
        return _spec_of, (type(self), self._asdict())

    def __deepcopy__(self, memo: dict[int, Any]) -> "EmbeddingConfigSpec":
        # model_fn holds the original columns, and copies would compare unequal to them.
        return _spec_of(
            type(self),
            {
                name: field
                if callable(field) or name in ("feature_columns", "tensor_core_feature_columns")
                else copy.deepcopy(field, memo)
                for name, field in self._asdict().items()
            },
        )


for _config in (TableConfig, FeatureConfig, EmbeddingConfigSpec):
    method_of_program(_config, "__new__")


def validated(spec: Any) -> EmbeddingConfigSpec:
    """Checks a spec of this package or of tensorflow-estimator, and returns it as ours."""
    names = {base.__name__ for base in type(spec).__mro__}
    if not {"tuple", "EmbeddingConfigSpec"} <= names:
        raise TypeError(f"embedding_config_spec must be an EmbeddingConfigSpec; got {spec!r}.")
    return _spec_of(EmbeddingConfigSpec, spec._asdict())  # type: ignore[attr-defined]


def _spec_of(cls: type[EmbeddingConfigSpec], fields: dict[str, Any]) -> EmbeddingConfigSpec:
    arguments = dict(fields)
    columns = [
        *(arguments.pop("feature_columns") or ()),
        *(arguments.pop("tensor_core_feature_columns") or ()),
    ]
    return cls(feature_columns=columns or None, **arguments)


def _split_columns(columns: Sequence[Any]) -> tuple[list[Any], list[Any]]:
    """Returns (columns of TPU tables, columns with tables that are variables of the model)."""
    # The model computes these columns. On a TPU `tables_of_columns` rejects them, like
    # tensorflow-estimator.
    without_table = (
        LegacyNumericColumn,
        NumericColumn,
        LegacyEmbeddingColumn,
        EmbeddingColumn,
        LegacySharedEmbeddingColumn,
    )
    embedding_core: list[Any] = []
    tensor_core: list[Any] = []
    for column in columns:
        if not isinstance(column, (*TABLE_COLUMNS, *without_table)):
            allowed = (
                "EmbeddingConfigSpec: All feature columns must be supported types, made by "
                "feature_columns.embedding_column or feature_columns.shared_embedding_columns; "
            )
            if isinstance(column, SharedEmbeddingColumn):
                raise TypeError(
                    f"{allowed}column {column.name!r} is a {type(column).__name__}, which the "
                    "model computes by itself. Make it with one of the two, or leave it out of the "
                    "spec and use it in model_fn."
                )
            raise TypeError(f"{allowed}got {column!r}.")
        device = getattr(column, "_embedding_lookup_device", None)
        in_model = device == EmbeddingDevice.TPU_TENSOR_CORE
        (tensor_core if in_model else embedding_core).append(column)
    return embedding_core, tensor_core


def _as_config(config: Any, ours: Any, owner: str) -> Any:
    theirs = isinstance(config, tuple) and name_in_tensorflow(config) == ours.__name__
    if isinstance(config, ours) or theirs:
        return ours(**config._asdict())
    raise TypeError(
        f"EmbeddingConfigSpec: the config of {owner} must be a {ours.__name__}; got {config!r}."
    )


def _check_dicts(features: Mapping[str, FeatureConfig], tables: Mapping[str, TableConfig]) -> None:
    for feature, config in features.items():
        if config.table_id not in tables:
            raise ValueError(
                f"EmbeddingConfigSpec: feature {feature!r} names table {config.table_id!r}, which "
                f"is not in table_to_config_dict; its tables are {sorted(tables)}."
                f"{suggestions.suggestion(config.table_id, tables)}"
            )
    unused = sorted(set(tables) - {config.table_id for config in features.values()})
    if unused:
        raise ValueError(
            f"EmbeddingConfigSpec: no feature uses the tables {unused} of table_to_config_dict."
        )


def check_strategy(owner: str, strategy: object) -> None:
    """Raises ValueError for an unknown partition strategy."""
    holds = strategy in PARTITION_STRATEGIES
    suggestions.check_argument(owner, holds, "partition_strategy", "'div' or 'mod'", strategy)


def check_bool(owner: str, name: str, value: object) -> None:
    """Raises ValueError for an argument that is not True or False."""
    suggestions.check_argument(owner, isinstance(value, bool), name, "True or False", value)


def check_integer(owner: str, name: str, value: Any, least: int) -> None:
    """Raises ValueError for an argument that is not an int of at least `least`."""
    is_integer = isinstance(value, numbers.Integral) and not isinstance(value, bool)
    suggestions.check_argument(
        owner, is_integer and value >= least, name, f"an int >= {least}", value
    )
