"""Drives the embedding hardware of TPU v2 to v4 through TensorFlow's ops.

`TPUEmbedding` replaces the class in TensorFlow 2.15's `tensorflow.python.tpu.tpu_embedding`. It has
the same constructor, properties, methods, variable names and ops, and supports every optimizer of
the hardware. tensorflow-estimator's TPUEstimator runs on it.

The graph of a training uses the class in this order:

1. `create_variables_and_ops` creates the variables on the hosts. `load_ops` copy them to the
   hardware.
2. `generate_enqueue_ops`, on each host, sends the ids of each core's batch.
3. `get_activations`, on each core, receives the activations.
4. `generate_send_gradients_op`, on each core, sends gradients and learning rates. The hardware then
   updates the tables.
5. `retrieve_ops` copy the tables back into the variables.

docs/differences.md lists the differences from TensorFlow 2.15's class.
"""

import collections
import copy
import dataclasses
import functools
from collections.abc import Mapping, Sequence
from typing import Any

import tensorflow as tf

from estimator_emb.backends.tpu import enqueue, variables
from estimator_emb.backends.tpu.configuration import write_optimizer
from estimator_emb.catalog.limits import refuse
from estimator_emb.compat.internals.protos import TPUEmbeddingConfiguration
from estimator_emb.compat.internals.tpu import tpu_system_metadata
from estimator_emb.engine.rates import DynamicRates
from estimator_emb.engine.tables import variable_names
from estimator_emb.engine.tables.partition import Partition
from estimator_emb.optimizers import (
    OptimizationParameters,
    StochasticGradientDescentParameters,
    as_parameters,
)
from estimator_emb.reporting import suggestions
from estimator_emb.spec.config import FeatureConfig, TableConfig, check_strategy
from estimator_emb.spec.resolved import Table, tables_of_dicts

_check = functools.partial(suggestions.check_argument, "TPUEmbedding")

TRAINING = TPUEmbeddingConfiguration.TRAINING
INFERENCE = TPUEmbeddingConfiguration.INFERENCE

DeviceConfig = collections.namedtuple("DeviceConfig", ["num_hosts", "num_cores", "job_name"])
"""Describes a TPU without querying it: its numbers of hosts and cores, and its hosts' job name."""

VariablesAndOps = collections.namedtuple(
    "VariablesAndOps",
    ["embedding_variables_by_table", "slot_variables_by_table", "load_ops", "retrieve_ops"],
)


class TPUEmbedding:
    """The tables of one program on the embedding hardware of a TPU.

    Args:
      table_to_config_dict: table name -> `TableConfig`.
      feature_to_config_dict: feature name -> `FeatureConfig`. It must use each table.
      batch_size: number of samples in the batch of all cores.
      mode: `TRAINING` or `INFERENCE`.
      master: address of the TPU's master, '' for the local one.
      optimization_parameters: the default optimizer, for tables that set no optimizer. None in
        inference.
      cluster_def: the `ClusterDef` of the TPU, or None.
      pipeline_execution_with_tensor_core, partition_strategy, profile_data_directory: as in
        `EmbeddingConfigSpec`.
      device_config: a `DeviceConfig`. Replaces `master` and `cluster_def`.
      master_job_name: job of the hosts. Needed if `master` and `cluster_def` do not determine it.
      system_metadata: a known `tf.tpu.experimental.TPUSystemMetadata`. None queries `master`. An
        addition to the legacy class.
      clipping_limit: as in `EmbeddingConfigSpec`. An addition to the legacy class.

    Attributes:
      num_cores, num_cores_per_host, batch_size_per_core: ints.
      config_proto: for `tf.compat.v1.tpu.initialize_system(embedding_config=...)`.
      optimization_parameters: the given parameters, or SGD with rate 1 in inference.

    Raises:
      ValueError: an argument is out of its range, or the system has no TPU.
    """

    def __init__(
        self,
        table_to_config_dict: Mapping[str, TableConfig],
        feature_to_config_dict: Mapping[str, FeatureConfig],
        batch_size: int,
        mode: int,
        master: str | None = None,
        optimization_parameters: OptimizationParameters | None = None,
        cluster_def: Any = None,
        pipeline_execution_with_tensor_core: bool = False,
        partition_strategy: str = "div",
        profile_data_directory: str | None = None,
        device_config: DeviceConfig | None = None,
        master_job_name: str | None = None,
        *,
        system_metadata: Any = None,
        clipping_limit: float | None = None,
    ):
        check_strategy("TPUEmbedding", partition_strategy)
        _check_configs(table_to_config_dict, feature_to_config_dict)
        # tensorflow-estimator reads these private attributes.
        self._table_to_config_dict = collections.OrderedDict(sorted(table_to_config_dict.items()))
        self._feature_to_config_dict = collections.OrderedDict(
            sorted(feature_to_config_dict.items())
        )
        self._partition_strategy = partition_strategy
        self._find_system(master, cluster_def, device_config, master_job_name, system_metadata)
        allowed = f"a multiple of the {self.num_cores} TPU cores"
        _check(batch_size % self.num_cores == 0, "batch_size", allowed, batch_size)
        self.batch_size_per_core = batch_size // self.num_cores
        self._mode = mode
        self.optimization_parameters = _global_optimizer(mode, optimization_parameters)
        dicts = feature_to_config_dict, table_to_config_dict
        resolved = tables_of_dicts(*dicts, self.optimization_parameters)
        self._tables = [_checked(table, clipping_limit) for table in resolved]
        self._rates = DynamicRates(self._tables)
        self.config_proto = self._configuration(
            pipeline_execution_with_tensor_core, profile_data_directory
        )

    def _configuration(self, pipelined: bool, directory: str | None) -> TPUEmbeddingConfiguration:
        """Returns the hardware's configuration. It numbers the tables by position."""
        divides = self._partition_strategy == "div"
        result = TPUEmbeddingConfiguration(
            mode=self._mode,
            num_hosts=self._num_hosts,
            num_tensor_cores=self.num_cores,
            sharding_strategy="DIV_DEFAULT" if divides else "MOD",
            pipeline_execution_with_tensor_core=pipelined,
            profile_data_directory=directory or "",
        )
        for number, table in enumerate(self._tables):
            descriptor = result.table_descriptor.add(
                name=table.name,
                # If a table has fewer rows than hosts, each host without a row has a padding row.
                vocabulary_size=max(table.config.vocabulary_size, self._num_hosts),
                dimension=table.config.dimension,
            )
            tag = self._rates.tag(table.name)
            write_optimizer(table, tag, descriptor.optimization_parameters)
            for feature in table.features:
                length = feature.max_sequence_length
                shape = [self.batch_size_per_core, *([length] if length else ())]
                result.feature_descriptor.add(table_id=number, input_shape=shape)
        return result

    def _find_system(
        self,
        master: str | None,
        cluster_def: Any,
        device_config: DeviceConfig | None,
        job: str | None,
        metadata: Any,
    ) -> None:
        if metadata is None and master is None and cluster_def is None:
            if device_config is None:
                raise ValueError(
                    "TPUEmbedding: one of master, cluster_def and device_config must be given."
                )
            self._num_hosts, self.num_cores = device_config.num_hosts, device_config.num_cores
            if self.num_cores % self._num_hosts:
                raise ValueError(
                    "TPUEmbedding: num_cores of device_config must be a multiple of num_hosts; got "
                    f"{self.num_cores} cores and {self._num_hosts} hosts."
                )
            self._hosts = [
                f"{device_config.job_name}/replica:0/task:{task}/device:CPU:0"
                for task in range(self._num_hosts)
            ]
        else:
            if metadata is None:
                metadata = tpu_system_metadata._query_tpu_system_metadata(
                    master, cluster_def=cluster_def
                )
            if not metadata.num_cores:
                raise ValueError(f"TPUEmbedding: master {master!r} has no TPU cores.")
            if job is None:
                try:
                    job = tpu_system_metadata.master_job(master, cluster_def)
                except ValueError as error:
                    raise ValueError(
                        f"TPUEmbedding: {error} Give it as master_job_name."
                    ) from error
            self._num_hosts, self.num_cores = metadata.num_hosts, metadata.num_cores
            self._hosts = [
                device.name
                for device in metadata.devices
                if "device:CPU:" in device.name and (job is None or job in device.name)
            ]
            if len(self._hosts) < self._num_hosts:
                raise ValueError(
                    f"TPUEmbedding: the TPU cores have {self._num_hosts} hosts, but the job "
                    f"{job!r} has the CPU devices {self._hosts} only; master_job_name must be the "
                    "job of those hosts."
                )
        self.num_cores_per_host = self.num_cores // self._num_hosts

    @property
    def hosts(self) -> list[str]:
        return list(self._hosts)

    @property
    def table_to_config_dict(self) -> Mapping[str, TableConfig]:
        """Table name -> config, sorted by name. The position is the table's number."""
        return copy.copy(self._table_to_config_dict)

    @property
    def feature_to_config_dict(self) -> Mapping[str, FeatureConfig]:
        return copy.copy(self._feature_to_config_dict)

    @property
    def table_to_features_dict(self) -> Mapping[str, list[str]]:
        """Table name -> its feature names, both sorted. Activations have the same order."""
        return collections.OrderedDict(
            (table.name, [feature.key for feature in table.features]) for table in self._tables
        )

    def _features(self) -> list[str]:
        return [feature.key for table in self._tables for feature in table.features]

    def create_variables_and_ops(
        self,
        embedding_variable_name_by_table: Mapping[str, str] | None = None,
        slot_variable_names_by_table: Mapping[str, Any] | None = None,
    ) -> VariablesAndOps:
        """Creates the variables of all tables on the hosts.

        Args:
          embedding_variable_name_by_table: table name -> name of the table's variable. None uses
            the table name.
          slot_variable_names_by_table: table name -> a `...SlotVariableNames` tuple, in the order
            of the optimizer's slots. None uses the variable's name plus the legacy suffixes.

        Returns:
          A `VariablesAndOps`. `embedding_variables_by_table` maps a table name to the list of its
          parts, one per host. `slot_variables_by_table` maps it to a `...SlotVariables` tuple of
          such lists. `load_ops()` and `retrieve_ops()` create and return ops that copy the tables
          to the hardware and back.
        """
        weights: dict[str, list[tf.Variable]] = {}
        slots: dict[str, Any] = {}
        called: dict[str, list[str]] = {}
        for table in self._tables:
            variable = (embedding_variable_name_by_table or {}).get(table.name, table.name)
            of_slots = (slot_variable_names_by_table or {}).get(table.name) or [
                variable + slot.suffix for slot in table.trained_by.slots
            ]
            called[table.name] = [variable, *of_slots]
        variable_names.check_free(called)
        with tf.compat.v1.device(variables.device_of_part(self._hosts)):
            for table in self._tables:
                config, parameters = table.config, table.trained_by
                partition = self._partition(config)
                variable, *of_slots = called[table.name]
                weights[table.name] = variables.create_parts(
                    variable, partition, config.dimension, config.initializer
                )
                slots[table.name] = variables.slot_tuple(
                    parameters,
                    [
                        variables.create_parts(
                            slot_name,
                            partition,
                            config.dimension,
                            tf.compat.v1.constant_initializer(parameters.initial_value(slot)),
                        )
                        for slot_name, slot in zip(of_slots, parameters.slots, strict=True)
                    ],
                )

        def ops_of(create: Any) -> list[tf.Operation]:
            config = self.config_proto.SerializeToString()
            operations = []
            for number, table in enumerate(self._tables):
                operations += create(
                    table.name,
                    table.trained_by,
                    [weights[table.name], *(slots[table.name] or ())],
                    self._partition(table.config),
                    # Only the first table's op carries the configuration.
                    b"" if number else config,
                )
            return operations

        return VariablesAndOps(
            weights,
            slots,
            lambda: ops_of(variables.load_ops),
            lambda: ops_of(variables.retrieve_ops),
        )

    def _partition(self, table: TableConfig) -> Partition:
        return Partition(table.vocabulary_size, self._num_hosts, self._partition_strategy)

    def generate_enqueue_ops(
        self,
        enqueue_datas_list: Sequence[Mapping[str, Any]],
        mode_override: str | None = None,
        ragged: bool = False,
    ) -> list[tf.Operation]:
        """Returns ops that send ids to the hardware, one for each core.

        Args:
          enqueue_datas_list: {feature name: `EnqueueData`} for each core, host after host.
          mode_override: 'inference', 'training' or 'backward_pass_only' replaces the mode of the
            configuration. 'unspecified' or None keeps it.
          ragged: whether the data is `RaggedEnqueueData`.

        Raises:
          ValueError: features are missing or unknown, of the wrong class, or on several devices.
        """
        combiners = {
            feature: self._table_to_config_dict[config.table_id].combiner
            for feature, config in self._feature_to_config_dict.items()
        }
        enqueue.check_data(enqueue_datas_list, combiners, self.num_cores_per_host, ragged)
        features = {
            # Without a combiner each sample has a single id, and 'sum' returns its row.
            name: (combiners[name] or "sum", self._feature_to_config_dict[name].max_sequence_length)
            for name in self._features()
        }
        return [
            enqueue.enqueue_op(
                data, features, core % self.num_cores_per_host, mode_override, ragged
            )
            for core, data in enumerate(enqueue_datas_list)
        ]

    def get_activations(self) -> dict[str, tf.Tensor]:
        """Returns feature name -> activation of this core. Call it in the replicated computation.

        Activations are float32 [batch_size_per_core, dimension], or for sequences
        [batch_size_per_core, max_sequence_length, dimension].
        """
        received = tf.raw_ops.RecvTPUEmbeddingActivations(
            num_outputs=len(self._feature_to_config_dict),
            config=self.config_proto.SerializeToString(),
        )
        return collections.OrderedDict(zip(self._features(), received, strict=True))

    def generate_send_gradients_op(
        self, feature_to_gradient_dict: Mapping[str, tf.Tensor], step: Any = None
    ) -> tf.Operation:
        """Returns the op that sends this core's gradients and the step's learning rates.

        Args:
          feature_to_gradient_dict: feature name -> gradient of its activation.
          step: the global step. Tables with a `learning_rate_fn` need it.

        Raises:
          RuntimeError: the mode is not `TRAINING`.
          ValueError: `step` is None and a table has a `learning_rate_fn`.
        """
        if self._mode != TRAINING:
            raise RuntimeError(
                "TPUEmbedding: gradients are sent in TRAINING mode only; the mode is INFERENCE."
            )
        return tf.raw_ops.SendTPUEmbeddingGradients(
            inputs=[feature_to_gradient_dict[feature] for feature in self._features()],
            learning_rates=self._rates.values(step),
            config=self.config_proto.SerializeToString(),
        )


def _check_configs(tables: Mapping[str, Any], features: Mapping[str, Any]) -> None:
    for what, configs, expected in (
        ("table", tables, TableConfig),
        ("feature", features, FeatureConfig),
    ):
        for name, config in configs.items():
            owner, allowed = f"the config of {what} {name!r}", f"a {expected.__name__}"
            _check(isinstance(config, expected), owner, allowed, config)
    used = {config.table_id for config in features.values()}
    if used != set(tables):
        raise ValueError(
            "TPUEmbedding: each table of table_to_config_dict must be used in "
            f"feature_to_config_dict, and no other; unused are {sorted(set(tables) - used)}, "
            f"unknown are {sorted(used - set(tables))}."
        )


def _checked(table: Table, clipping_limit: float | None) -> Table:
    """Returns a table with a resolved optimizer. Raises ValueError if a TPU cannot train it."""
    if table.optimizer is None:
        raise ValueError(
            f"Table {table.name!r} has no optimizer: give it optimization_parameters in its "
            "TableConfig, or give them to all tables."
        )
    parameters = as_parameters(table.optimizer, f"table {table.name!r}")
    table = dataclasses.replace(table, optimizer=parameters, clipping_limit=clipping_limit)
    if table.trained_by.slot_variable_creation_fn is not None:
        refuse("slot_variable_creation_fn", table=table.name, kind=type(parameters).__name__)
    return table


def _global_optimizer(
    mode: int, parameters: OptimizationParameters | None
) -> OptimizationParameters | None:
    if mode == TRAINING:
        return parameters and as_parameters(parameters, "TPUEmbedding")
    _check(mode == INFERENCE, "mode", f"TRAINING ({TRAINING}) or INFERENCE ({INFERENCE})", mode)
    nothing = parameters is None
    _check(nothing, "optimization_parameters", "None in INFERENCE mode", parameters)
    # The hardware requires an optimizer even in inference. SGD needs no slots.
    return StochasticGradientDescentParameters(1.0)
