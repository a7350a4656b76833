"""Describes tables and features in the TF2 vocabulary."""

import dataclasses
import functools
import numbers
from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from estimator_emb import optimizers
from estimator_emb.optimizers import TF2_OPTIMIZERS, OptimizationParameters
from estimator_emb.reporting import suggestions
from estimator_emb.spec.config import check_bool, check_integer, initializer_of

_COMBINERS = ("mean", "sum", "sqrtn")
OPTIMIZER_NAMES = ", ".join(optimizer.__name__ for optimizer in TF2_OPTIMIZERS)


@dataclasses.dataclass(frozen=True)
class QuantizationConfig:
    """Simulates quantization of the rows that a lookup gathers, before the combiner.

    With x one element of a row, float32, and q = (upper - lower) / (num_buckets - 1):

        x <- clamp(x, lower, upper)
        x <- floor((x - lower) / q + 0.5) * q + lower

    The table keeps its float32 values. Only TPU hardware quantizes. `to_legacy` refuses a table
    with a quantization.

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
        check_integer("QuantizationConfig", "num_buckets", self.num_buckets, 2)
        numeric = all(isinstance(end, numbers.Real) for end in (self.lower, self.upper))
        if not (numeric and self.lower < self.upper):
            raise ValueError(
                "QuantizationConfig: lower and upper must be numbers, lower below upper; got "
                f"{self.lower!r} and {self.upper!r}."
            )


@dataclasses.dataclass(eq=False)
class TableConfig:
    """An embedding table, float32 [vocabulary_size, dim].

    Features that name the same object share the table. Two objects never compare equal.

    Args:
      vocabulary_size: number of rows, an int >= 1. Ids are in [0, vocabulary_size).
      dim: number of columns, an int >= 1. The legacy `TableConfig` calls it `dimension`.
      initializer: function that returns the initial table for a shape and a dtype. None means a
        truncated normal of mean 0 and standard deviation 1/sqrt(dim), as in the legacy class.
      optimizer: this table's own optimizer: SGD, Adagrad, AdagradMomentum, Adam or FTRL, or
        TensorFlow's class of that name. None means the global optimizer. The legacy class calls it
        `optimization_parameters`.
      combiner: how the rows of a sample's ids are combined into one activation: 'mean', the
        default, 'sum' or 'sqrtn'. The legacy class takes None too.
      name: the table's name. The legacy vocabulary has it as the key in `table_to_config_dict`.
      quantization_config: a `QuantizationConfig` or None.

    Two arguments of TensorFlow 2.21 are missing: `layout`, for the SparseCore of newer TPUs, and
    `dtype`, because every table is float32 here.

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
        check = functools.partial(suggestions.check_argument, "TableConfig")
        check_integer("TableConfig", "vocabulary_size", self.vocabulary_size, 1)
        check_integer("TableConfig", "dim", self.dim, 1)
        self.initializer = initializer_of(self.initializer, self.dim)
        if self.optimizer is not None:
            translated = optimizers.from_tensorflow(self.optimizer)
            if not isinstance(translated, TF2_OPTIMIZERS):
                raise ValueError(
                    f"TableConfig: optimizer must be one of {OPTIMIZER_NAMES}, or None; got "
                    f"{self.optimizer!r}. from_legacy translates a legacy one."
                )
            self.optimizer = translated
        combiner, quantization = self.combiner, self.quantization_config
        check(combiner in _COMBINERS, "combiner", "'mean', 'sum' or 'sqrtn'", combiner)
        _check_name("TableConfig", self.name)
        is_config = isinstance(quantization, QuantizationConfig | None)
        check(is_config, "quantization_config", "a QuantizationConfig or None", quantization)


@dataclasses.dataclass(eq=False)
class FeatureConfig:
    """A feature that looks up a table.

    Args:
      table: a `TableConfig` of this package. The legacy `FeatureConfig` names it by its key,
        `table_id`.
      max_sequence_length: 0 combines the rows of a sample's ids into one activation, float32
        [batch, dim]. A positive int keeps them apart, float32 [batch, max_sequence_length, dim].
        Longer samples are truncated, and shorter samples are padded with zeros. 0 by default, as in
        the legacy class.
      validate_weights_and_indices: True makes a serving lookup ignore negative ids and weights that
        are not positive.
      output_shape: shape of the activation without its last dimension, or None if unknown. It is
        kept as a `tf.TensorShape`.
      name: the feature's name. The legacy vocabulary has it as the key in `feature_to_config_dict`.

    Weights of ids are not supported. The legacy class has `weight_key` for them.

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
        check_integer("FeatureConfig", "max_sequence_length", self.max_sequence_length, 0)
        validates = self.validate_weights_and_indices
        check_bool("FeatureConfig", "validate_weights_and_indices", validates)
        try:
            self.output_shape = tf.TensorShape(self.output_shape)
        except (TypeError, ValueError):
            raise ValueError(
                "FeatureConfig: output_shape must be a list of ints, a tf.TensorShape or None; got "
                f"{self.output_shape!r}."
            ) from None
        _check_name("FeatureConfig", self.name)


def _check_name(owner: str, name: object) -> None:
    suggestions.check_argument(
        owner, isinstance(name, str | None), "name", "a string or None", name
    )
