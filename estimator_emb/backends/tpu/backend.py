"""Lets tensorflow-estimator drive a TPU, with the tables in the TPU's embedding hardware.

TPUEstimator asks its context for an `EmbeddingConfig`, which creates a `TPUEmbedding` per mode.
tensorflow-estimator's `EmbeddingConfig` uses `tensorflow.python.tpu.tpu_embedding`. It names the
slots of only seven optimizers, and fails on feature columns from TensorFlow 2.16 on. This module
puts its own `EmbeddingConfig` into one estimator's context. tensorflow-estimator stays unchanged.
"""

from collections.abc import Mapping
from typing import Any

import tensorflow as tf

from estimator_emb.backends import driver, tpu_checks
from estimator_emb.backends.base import Backend, EstimatorRequest, Function
from estimator_emb.backends.tpu.embedding import INFERENCE, TRAINING, TPUEmbedding, VariablesAndOps
from estimator_emb.catalog.limits import refuse
from estimator_emb.compat.internals.estimators import ModeKeys
from estimator_emb.compat.internals.graphs import fn_args, not_converted
from estimator_emb.engine.inputs import PADDING_ID
from estimator_emb.engine.tables import functions, helper_variable, scopes, variable_names
from estimator_emb.engine.tables.sizes import describe
from estimator_emb.guards.call import Runs
from estimator_emb.guards.checks import clusters
from estimator_emb.guards.checks.program_checks import takes
from estimator_emb.guards.watching import WatchedGraph
from estimator_emb.reporting.console import logger
from estimator_emb.reporting.text_columns import counted
from estimator_emb.spec import tpu_generations
from estimator_emb.spec.config import EmbeddingConfigSpec, FeatureConfig
from estimator_emb.spec.resolved import Table


class TPUBackend(Backend):
    """Runs a program on a TPU v2, v3 or v4."""

    runs = Runs.TPU

    def __init__(self, request: EstimatorRequest):
        tpu_config = getattr(request.config, "tpu_config", None)
        tpu_generations.check_runtime(getattr(tpu_config, "tpu_generation", None))
        tpu_checks.check_config(request.config)
        clusters.check_no_strategy(request.config, request.spec is not None, emulated=False)
        super().__init__(request)

    def attach(self, estimator: Any) -> None:
        spec, tables = self.request.spec, list(self.request.tables)
        if spec is not None and tables:
            embedding_config = EmbeddingConfig(spec, tables, estimator._ctx)
            for master in {estimator.config.master, estimator.config.evaluation_master}:
                estimator._ctx._lazy_embedding_config_dict[master] = embedding_config
            # `EmbeddingConfig` finds the variables' names itself, for every optimizer.
            estimator._embedding_from_feature_columns = False

    def check_prediction(self) -> None:
        if self.request.tables:
            refuse("prediction")

    def input_fn(self, input_fn: Function, graph: WatchedGraph, context: Any) -> Function:
        tables = list(self.request.tables)
        if not tables:
            return input_fn

        def in_forms_of_hardware(**kwargs: Any) -> Any:
            return as_hardware_reads(input_fn(**kwargs), tables)

        return takes(in_forms_of_hardware, fn_args(input_fn))

    def model_fn(self, estimator: Any, augment: Function) -> Function:
        model_fn = self.request.model_fn

        def run(features: Any, mode: str, kwargs: dict[str, Any]) -> Any:
            # tensorflow-estimator has already put the tables' activations into the features.
            runner = driver.ThisGraph(estimator.watched(mode), model_fn, features, kwargs)
            return driver.drive(runner, tables=None)

        augmented = augment(driver.driven(model_fn, run), self.request.batch_axis)

        def finished(features: Any, labels: Any, mode: str, config: Any, params: Any) -> Any:
            spec = augmented(features, labels, mode, config, params)
            if self.request.tables:
                # tensorflow-estimator gets gradients through a helper variable for each table.
                # It keeps these variables out of checkpoints, but not their slots.
                helper_variable.hide(keep_trainable=True)
            return spec

        return finished


def as_hardware_reads(made: Any, tables: list[Table]) -> Any:
    """Converts the ids of an input_fn's dataset or element to the forms that a TPU reads.

    tensorflow-estimator expects SparseTensors, and drops id 0 from dense ids. This function first
    converts dense and ragged ids and weights to SparseTensors. As on the host, `PADDING_ID` marks
    padding and 0 is an id. If a table has no combiner, its dense ids stay dense, with a single id
    per sample. An element is the features dict, or a tuple that begins with the dict.
    """
    if not isinstance(made, tf.data.Dataset):
        return _element(made, tables)
    element = tf.nest.map_structure(lambda spec: spec.value_type, made.element_spec)
    features = element[0] if isinstance(element, tuple) else element
    if not isinstance(features, Mapping) or not any(
        key in features and not issubclass(features[key], tf.SparseTensor)
        for table in tables
        for feature in table.features
        for key in (feature.key, feature.weight_key)
    ):
        return made
    is_tuple = isinstance(element, tuple)
    return made.map(not_converted(lambda *parts: _element(parts if is_tuple else parts[0], tables)))


def _element(element: Any, tables: list[Table]) -> Any:
    if isinstance(element, tuple):
        return (_element(element[0], tables), *element[1:])
    if not isinstance(element, Mapping):
        return element
    features: dict[str, Any] = dict(element)
    for table in tables:
        for feature in table.features:
            if feature.key in features:
                ids = features[feature.key]
                one_for_each = table.config.combiner is None and not feature.max_sequence_length
                features[feature.key] = _ids(ids, one_for_each)
                if feature.weight_key in features:
                    features[feature.weight_key] = _weights(features[feature.weight_key], ids)
    return features


def _ids(ids: Any, one_for_each: bool) -> Any:
    if isinstance(ids, tf.RaggedTensor):
        return ids.to_sparse()
    if isinstance(ids, tf.SparseTensor) or not ids.dtype.is_integer:
        return ids  # tensorflow-estimator reports unsupported ids.
    if one_for_each:
        return ids if ids.shape.rank == 1 else tf.reshape(ids, [-1])
    return _sparse(ids, ids)


def _weights(weights: Any, ids: Any) -> Any:
    if isinstance(weights, tf.RaggedTensor):
        return weights.to_sparse()
    dense = not isinstance(weights, tf.SparseTensor) and isinstance(ids, tf.Tensor)
    return _sparse(weights, ids) if dense else weights


def _sparse(values: Any, ids: Any) -> tf.SparseTensor:
    """Returns dense values [batch] or [batch, n] as a SparseTensor without the padding of `ids`."""
    if ids.shape.rank == 1:
        values, ids = values[:, None], ids[:, None]
    places = tf.where(tf.not_equal(ids, PADDING_ID))
    return tf.SparseTensor(places, tf.gather_nd(values, places), tf.shape(ids, out_type=tf.int64))


class EmbeddingConfig:
    """Replaces tensorflow-estimator's `EmbeddingConfig`: creates a `TPUEmbedding` per mode.

    Source: tensorflow_estimator/python/estimator/tpu/_tpu_estimator_embedding.py, 2.15.0.
    """

    def __init__(self, spec: EmbeddingConfigSpec, tables: list[Table], context: Any):
        self._spec = spec
        self._tables = tables
        self._context = context
        self._of_mode: dict[str, TPUEmbedding] = {}
        # tensorflow-estimator sets these attributes.
        self.dummy_table_variables: Any = None
        self.tpu_embedding: TPUEmbedding | None = None

    def has_embedding_tables(self) -> bool:
        return bool(self._tables)

    def get_grad_multiplier(self) -> tf.Tensor | None:
        """Returns this step's gradient multiplier, float32 [], or None if the spec omits it."""
        function = self._spec.experimental_gradient_multiplier_fn
        if function is None:
            return None
        step = tf.compat.v1.train.get_global_step()
        return functions.multiplier(function, step)

    def get_tpu_embedding(self, mode: str) -> TPUEmbedding:
        if mode not in self._of_mode:
            with self._context.with_mode(mode) as context:
                self._of_mode[mode] = _TablesOfSpec(self._spec, self._tables, mode, context)
        return self._of_mode[mode]


class _TablesOfSpec(TPUEmbedding):
    """A `TPUEmbedding` for a spec's tables, with the variable names of the model's columns."""

    def __init__(self, spec: EmbeddingConfigSpec, tables: list[Table], mode: str, context: Any):
        training = mode == ModeKeys.TRAIN
        metadata = context._get_tpu_system_metadata()
        self._tables_of_spec = tables
        features = {
            feature.key: FeatureConfig(table.name, feature.max_sequence_length, feature.weight_key)
            for table in tables
            for feature in table.features
        }
        super().__init__(
            {table.name: table.config for table in tables},
            features,
            context._train_batch_size if training else context._eval_batch_size,
            TRAINING if training else INFERENCE,
            master=context._get_master_address(),
            optimization_parameters=spec.optimization_parameters if training else None,
            pipeline_execution_with_tensor_core=spec.pipeline_execution_with_tensor_core,
            partition_strategy=spec.partition_strategy,
            profile_data_directory=spec.profile_data_directory,
            master_job_name=context.master_job,
            system_metadata=metadata,
            clipping_limit=spec.clipping_limit if training else None,
        )
        if training:
            over = counted(self._num_hosts, "host")
            logger.info(describe(tables, f"on the TPU's embedding hardware, over {over}"))

    def create_variables_and_ops(
        self,
        embedding_variable_name_by_table: Mapping[str, str] | None = None,
        slot_variable_names_by_table: Mapping[str, Any] | None = None,
    ) -> VariablesAndOps:
        return super().create_variables_and_ops(
            variable_names.variable_names(self._tables_of_spec, scopes.taken())
        )
