# SPDX-License-Identifier: Apache-2.0
"""Puts our engine where tensorflow-estimator's TPUEstimator looks for the embedding hardware.

TPUEstimator asks its context for an `EmbeddingConfig`, and that for a `TPUEmbedding` for each mode.
tensorflow-estimator's own makes one of `tensorflow.python.tpu.tpu_embedding`, names the slots of
seven optimizers and, from TensorFlow 2.16 on, fails on feature columns. Ours stands in its place,
in the context of one estimator; nothing is changed in tensorflow-estimator itself.
"""

from collections.abc import Mapping
from typing import Any

import tensorflow as tf
from tensorflow_estimator.python.estimator import model_fn as model_fn_lib

from estimator_emb.config import EmbeddingConfigSpec, FeatureConfig, Table
from estimator_emb.engines import tpu_generations
from estimator_emb.engines.tpu import INFERENCE, TRAINING, TPUEmbedding, VariablesAndOps
from estimator_emb.tables import names


def install(estimator: Any, spec: EmbeddingConfigSpec, tables: list[Table]) -> None:
    """Gives a TPUEstimator the engine for the tables of its spec.

    Args:
      estimator: constructed, with `use_tpu=True`.
      spec: checked.
      tables: those of the spec, not empty.
    """
    context = estimator._ctx
    embedding_config = EmbeddingConfig(spec, tables, context)
    for master in {estimator.config.master, estimator.config.evaluation_master}:
        context._lazy_embedding_config_dict[master] = embedding_config
    # Our engine finds the names of the variables itself, for every optimizer.
    estimator._embedding_from_feature_columns = False


class EmbeddingConfig:
    """Stands for tensorflow-estimator's `EmbeddingConfig`: the engines of one estimator, by mode.

    Args:
      spec: checked.
      tables: those of the spec.
      context: the estimator's `_InternalTPUContext`.

    Source: tensorflow_estimator/python/estimator/tpu/_tpu_estimator_embedding.py, 2.15.0.
    """

    def __init__(self, spec: EmbeddingConfigSpec, tables: list[Table], context: Any):
        self._spec = spec
        self._tables = tables
        self._context = context
        self._of_mode: dict[str, TPUEmbedding] = {}
        # tensorflow-estimator sets these two.
        self.dummy_table_variables: Any = None
        self.tpu_embedding: TPUEmbedding | None = None

    def has_embedding_tables(self) -> bool:
        return bool(self._tables)

    def get_grad_multiplier(self) -> tf.Tensor | None:
        """The factor of all gradients in this step, a float32 scalar; None without one."""
        function = self._spec.experimental_gradient_multiplier_fn
        if function is None:
            return None
        step = tf.compat.v1.train.get_global_step()
        return tf.convert_to_tensor(tf.cast(function(step), tf.float32))

    def get_tpu_embedding(self, mode: str) -> TPUEmbedding:
        """The engine of a mode."""
        if mode not in self._of_mode:
            self._of_mode[mode] = self._create(mode)
        return self._of_mode[mode]

    def _create(self, mode: str) -> TPUEmbedding:
        training = mode == model_fn_lib.ModeKeys.TRAIN
        with self._context.with_mode(mode) as context:
            metadata = context._get_tpu_system_metadata()
            tpu_generations.check_system(metadata, context.config.cluster)
            return _Engine(
                self._tables,
                context._train_batch_size if training else context._eval_batch_size,
                TRAINING if training else INFERENCE,
                master=context._get_master_address(),
                optimization_parameters=self._spec.optimization_parameters if training else None,
                pipeline_execution_with_tensor_core=(
                    self._spec.pipeline_execution_with_tensor_core
                ),
                partition_strategy=self._spec.partition_strategy,
                profile_data_directory=self._spec.profile_data_directory,
                master_job_name=context.master_job,
                system_metadata=metadata,
                clipping_limit=self._spec.clipping_limit if training else None,
            )


class _Engine(TPUEmbedding):
    """The engine for the tables of a spec, which names their variables as the model's columns do.

    Args:
      tables: those of a spec.
      batch_size, mode, **kwargs: as in `TPUEmbedding`.
    """

    def __init__(self, tables: list[Table], batch_size: int, mode: int, **kwargs: Any):
        self._tables = tables
        features = {
            feature.key: FeatureConfig(table.name, feature.max_sequence_length, feature.weight_key)
            for table in tables
            for feature in table.features
        }
        super().__init__(
            {table.name: table.config for table in tables}, features, batch_size, mode, **kwargs
        )

    def create_variables_and_ops(
        self,
        embedding_variable_name_by_table: Mapping[str, str] | None = None,
        slot_variable_names_by_table: Mapping[str, Any] | None = None,
    ) -> VariablesAndOps:
        scopes = names.captured_scopes()
        return super().create_variables_and_ops(
            {table.name: names.variable_name(table, scopes) for table in self._tables}
        )
