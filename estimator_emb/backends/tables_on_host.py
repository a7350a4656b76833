# SPDX-License-Identifier: Apache-2.0
"""Tables on the host of a TPU whose cores run the model: `TPUConfig(tables='host')`.

For TPUs without embedding hardware that TPUEstimator can drive. The host engine does what the
hardware would; activations and gradients travel with the other inputs and outputs of the model.
A training step runs in three session calls, in threads of tensorflow-estimator's own:

1. Infeed: reads the batch of all cores, takes the token, looks the ids up, hands over to 3. what
   the update must know of them, and gives each core its part, activations in place of ids.
2. The cores: run model_fn, and send out the gradients of the activations and the learning rates
   of the step beside what the program's own host_call wants.
3. Outfeed: updates the tables, and puts the token back.

So no lookup runs beside an update, and step N+1 sees what step N has written. The session call in
which the cores run a loop of steps ends when the token of the last update is back.

tensorflow-estimator builds its inputs before model_fn, so activations are stand-ins at first; see
`step.engine`. A loop in the graph could not be completed afterwards: each step's input is a session
call, as where input_fn is called for every core, and that deployment is what it is shown.
"""

import contextlib
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import tensorflow as tf

from estimator_emb.backends.emulated import input as emulated_input
from estimator_emb.checks import unsummed
from estimator_emb.checks.program_checks import takes
from estimator_emb.compat.internals.estimator import AnyTPUEstimatorSpec, EstimatorSpec, ModeKeys
from estimator_emb.compat.internals.graphs import data_nest, fn_args
from estimator_emb.compat.internals.tpu_estimator import (
    TPU_TRAIN_OP,
    InputPipelineConfig,
    InternalTPUContext,
    ModelFnWrapper,
    MultiHostDatasetInitializerHook,
    RunConfig,
    TPUContext,
    TPUEstimatorSpec,
)
from estimator_emb.config import EmbeddingConfigSpec
from estimator_emb.spec import Table
from estimator_emb.step.cores import Cores, wire
from estimator_emb.step.engine import GradientTap, Lookup, Reading, TableStep
from estimator_emb.step.transfer import Transfer

logger = logging.getLogger("estimator_emb")


def check(config: Any, spec: EmbeddingConfigSpec) -> None:
    """Whether the tables of a spec can feed a TPU from its host.

    Raises:
      ValueError: something does not go with it.
    """
    if not isinstance(config, RunConfig):
        return  # tensorflow-estimator says what is wrong.
    tpu, deployments = config.tpu_config, InputPipelineConfig
    deployment = tpu.per_host_input_for_training
    if deployment not in (deployments.PER_HOST_V1, deployments.PER_HOST_V2):
        raise ValueError(
            "TPUConfig: with tables='host', per_host_input_for_training must be PER_HOST_V1 or "
            f"PER_HOST_V2; got {deployment}."
        )
    if tpu.num_cores_per_replica:
        raise ValueError(
            "TPUConfig: with tables='host', each core runs the whole model, and "
            f"num_cores_per_replica must be None; got {tpu.num_cores_per_replica}."
        )
    if tpu.experimental_host_call_every_n_steps != 1:
        raise ValueError(
            "TPUConfig: with tables='host', gradients come out of the TPU in every step, and "
            "experimental_host_call_every_n_steps must be 1; got "
            f"{tpu.experimental_host_call_every_n_steps}."
        )
    if spec.pipeline_execution_with_tensor_core:
        raise ValueError(
            "EmbeddingConfigSpec: with TPUConfig(tables='host'), the lookup of a step waits for "
            "the update of the step before, and pipeline_execution_with_tensor_core must be False."
        )


class FedTPU(InternalTPUContext):
    """What tensorflow-estimator asks about a TPU that is fed from the tables of its host.

    Args:
      **kwargs: of `_InternalTPUContext`.
    """

    _by_core = False

    def __init__(self, **kwargs: Any):
        super().__init__(use_tpu=True, embedding_config_spec=None, **kwargs)

    @contextlib.contextmanager
    def by_core(self) -> Iterator[None]:
        """Makes the contexts of modes that are taken from this one say: input_fn by core."""
        self._by_core = True
        try:
            yield
        finally:
            self._by_core = False

    def is_input_sharded_per_core(self) -> bool:
        return self._by_core or super().is_input_sharded_per_core()

    def _is_running_on_cpu(self, is_export_mode: bool) -> bool:
        # Prediction is one session call, a loop in the graph that could not be completed.
        predicting = self._assert_mode() == ModeKeys.PREDICT
        return predicting or super()._is_running_on_cpu(is_export_mode)


class FedStep:
    """The graph of one mode, for tensorflow-estimator to build around.

    Args:
      ctx: the TPU, in a mode.
      spec: checked.
      tables: those of the spec.
      model_fn, input_fn: the program's; input_fn takes the `TPUContext` of an input.
      batch_axis: of the estimator.

    Raises:
      ValueError: the TPU has several hosts.
    """

    def __init__(
        self,
        ctx: FedTPU,
        spec: EmbeddingConfigSpec,
        tables: Sequence[Table],
        model_fn: Callable[..., Any],
        input_fn: Callable[..., Any],
        batch_axis: Sequence[int] | None,
    ):
        if ctx.num_hosts != 1:
            raise ValueError(
                f"TPUConfig: tables='host' feeds a TPU of one host; this one has {ctx.num_hosts}."
            )
        self._ctx = ctx
        self._model_fn, self._input_fn, self._batch_axis = model_fn, input_fn, batch_axis
        self._training = ctx.mode == ModeKeys.TRAIN
        self._cores = Cores(ctx.num_replicas)
        host = ctx.tpu_host_placement_function(host_id=0)
        self._tables = FedTables(
            spec, tables, self._training, self._cores, ctx.global_batch_size, host
        )
        self._of_cores: list[tuple[Any, Any]] = []
        self._hooks: list[Any] = []

    def build(
        self, augment: Callable[..., Any], labels: Any, mode: str, config: Any, params: Any
    ) -> EstimatorSpec:
        """Returns what tensorflow-estimator builds around the model, with what the tables need.

        Args:
          augment: tensorflow-estimator's `_augment_model_fn`.
          labels: as tensorflow-estimator calls a model_fn.
          mode: as tensorflow-estimator calls a model_fn.
          config: as tensorflow-estimator calls a model_fn.
          params: as tensorflow-estimator calls a model_fn.
        """

        def on_core(features: Any, **kwargs: Any) -> Any:
            return self._on_core(features, **kwargs)

        on_tpu = augment(takes(on_core, fn_args(self._model_fn)), None)
        return self._completed(on_tpu(self._next_core, labels, mode, config, params))

    def _next_core(self, context: TPUContext) -> tuple[Any, Any]:
        """Features and labels of the next core; called once for each, in their order."""
        if not self._of_cores:
            self._of_cores = self._read()
        return self._of_cores.pop(0)

    def _read(self) -> list[tuple[Any, Any]]:
        batch = emulated_input.read(
            self._ctx,
            self._input_fn,
            self._batch_axis,
            self._cores,
            self._tables.consumed,
            lambda tensors: tensors,
        )
        self._hooks.append(MultiHostDatasetInitializerHook(batch.initializers))
        whole = {**batch.features, **self._tables.read(batch.looked_up)}, batch.labels

        def of_core(core: int) -> tuple[Any, Any]:
            return data_nest.map_structure(
                lambda mine: None if mine is None else self._cores.of_each(mine)[core], whole
            )

        return [of_core(core) for core in range(self._cores.count)]

    def _on_core(self, features: Any, **kwargs: Any) -> Any:
        """The program's model_fn, in the computation of a core."""
        seen = self._tables.tap(features)
        spec = self._model_fn(features={**features, **seen}, **kwargs)
        if self._training:
            given = tf.nest.flatten([features, kwargs.get("labels")])
            inputs = [one for one in given if tf.is_tensor(one)]
            unsummed.warn(self._cores.count, spec.train_op, inputs)
            spec = self._sending(spec)
        with tf.init_scope():
            self._tables.create(spec)
            if self._training:
                logger.info(self._tables.describe())
        return spec

    def _sending(self, spec: Any) -> Any:
        """`spec` of the model, whose host_call updates the tables as well."""
        if not isinstance(spec, AnyTPUEstimatorSpec):
            spec = ModelFnWrapper._verify_estimator_spec(None, spec)
            spec = TPUEstimatorSpec(
                spec.mode,
                loss=spec.loss,
                train_op=spec.train_op,
                training_hooks=spec.training_hooks,
            )
        function: Any
        function, structure = spec.host_call or (None, [])
        of_program = tf.nest.flatten(structure)

        def host_call(*received: tf.Tensor) -> list[Any]:
            results = []
            if of_program:  # As tensorflow-estimator does: none is called without tensors.
                given = tf.nest.pack_sequence_as(structure, received[: len(of_program)])
                dictionary = isinstance(given, dict)
                results.append(function(**given) if dictionary else function(*given))
            return [*results, self._tables.update(received[len(of_program) :])]

        return spec._replace(host_call=(host_call, [*of_program, *self._tables.sent()]))

    def warm_start(self, settings: Any) -> Any:
        """Returns `WarmStartSettings` for what was built; see `Lookup.warm_start`."""
        return self._tables.lookup.warm_start(settings)

    def _completed(self, spec: EstimatorSpec) -> EstimatorSpec:
        """What tensorflow-estimator has built, with what the tables need."""
        self._tables.show_tables()
        if not self._training:
            return spec._replace(evaluation_hooks=[*spec.evaluation_hooks, *self._hooks])
        self._tables.lookup.check_saver(spec.scaffold)
        train_op = tf.group(spec.train_op, self._tables.last_update(spec.loss))
        tf.compat.v1.get_collection_ref(TPU_TRAIN_OP)[:] = [train_op]
        return spec._replace(
            train_op=train_op,
            training_hooks=[*spec.training_hooks, *self._hooks, self._tables.first_turn],
        )


class FedTables:
    """The tables on the host, whose lookups and updates run in different session calls.

    Its methods are called in the order in which they stand.

    Args:
      spec, tables, training, cores, batch_size: as in `TableStep`.
      host: the device of the host.

    Attributes:
      first_turn: in training, a hook of the session; else None.
    """

    def __init__(
        self,
        spec: EmbeddingConfigSpec,
        tables: Sequence[Table],
        training: bool,
        cores: Cores,
        batch_size: int,
        host: str,
    ):
        self._host = host
        self._shown: list[tf.Variable] = []
        self._reading: Reading | None = None
        self._tap: GradientTap | None = None
        self._lookup: Lookup | None = None
        self.first_turn: _FirstTurn | None = None
        self._handover: _Handover | None = None
        if training:
            with tf.device(host):
                self._token = tf.queue.FIFOQueue(1, [tf.bool], [[]], name="embedding_token")
                self.first_turn = _FirstTurn(self._put_back())
            self._handover = _Handover()
        self._step = TableStep(
            spec,
            tables,
            training,
            cores,
            batch_size,
            as_parts=True,
            transfer=self._handover,
            where="on the TPU's host",
        )

    @property
    def consumed(self) -> set[str]:
        """Keys of the batch that the tables read, and that no core sees: ids and weights."""
        return self._step.consumed

    def describe(self) -> str:
        """Returns one line: what runs where, and how large it is."""
        return self._step.describe()

    def read(self, features: Any) -> dict[str, tf.Tensor]:
        """Returns what core 0 is given in place of what is `consumed`."""
        self._reading = self._step.read(features)
        return {**self._reading.activations, **self._reading.others}

    def tap(self, features: Mapping[str, tf.Tensor]) -> dict[str, tf.Tensor]:
        """Returns the activations for the model on a core, from the features that it received."""
        assert self._reading is not None
        self._tap = self._reading.tap({key: features[key] for key in self._reading.activations})
        return self._tap.activations

    def sent(self) -> list[tf.Tensor]:
        """Returns what a core sends to `update`: gradients of activations, and the rates [1, n]."""
        assert self._tap is not None
        gradients = self._tap.gradients()
        self._tap.warn_of_zeros(gradients)
        multiplier, rates = self._tap.multiplier(), self._tap.rates()
        for key, activation in self._tap.activations.items():
            if key not in gradients:
                gradients[key] = tf.zeros_like(activation)
        multiplied = [
            gradients[key] if multiplier is None else gradients[key] * multiplier
            for key in self._tap.activations
        ]
        return [*multiplied, tf.stack(rates)[None]]

    def create(self, returned: Any) -> None:
        """Creates the tables and wires their activations into what the cores are fed.

        Args:
          returned: what model_fn returned.
        """
        assert self._reading is not None and self._tap is not None
        # tensorflow-estimator reads every trainable variable after each loop, which would copy it.
        trainable = tf.compat.v1.get_collection_ref(tf.compat.v1.GraphKeys.TRAINABLE_VARIABLES)
        before = {id(variable) for variable in trainable}
        with tf.device(self._host):
            self._lookup = self._tap.create_tables(returned, self._turn)
            self._shown = [one for one in trainable if id(one) not in before]
            trainable[:] = [one for one in trainable if id(one) in before]
            kept = [self._handover.kept] if self._handover else []
            for key, stand_ins in self._reading.stand_ins.items():
                for stand_in in stand_ins:
                    stand_in.op._add_control_inputs(kept)
                    if key not in self._lookup.activations:
                        # Evaluation does not use the feature, and its table need not exist.
                        wire(stand_in, tf.zeros(stand_in.shape))

    @property
    def lookup(self) -> Lookup:
        """The tables, created."""
        assert self._lookup is not None
        return self._lookup

    def update(self, received: Sequence[tf.Tensor]) -> tf.Operation:
        """Updates every table with what the cores have sent, that of all cores in one tensor."""
        *gradients, rates = received
        # Outside of the context in which a host_call runs.
        with tf.control_dependencies(None), tf.device(self._host):
            with tf.name_scope("embedding_update"):
                # Every core sends the same rates.
                updated = self.lookup.update(gradients, tf.unstack(rates[0]))
            with tf.control_dependencies([updated]):
                return self._put_back()

    def show_tables(self) -> None:
        """Puts the tables among the trainable variables, where warm starts look for them."""
        for variable in self._shown:
            tf.compat.v1.add_to_collection(tf.compat.v1.GraphKeys.TRAINABLE_VARIABLES, variable)

    def last_update(self, loss: tf.Tensor) -> tf.Operation:
        """Waits for the last update of the loop that computes `loss`."""
        with (
            tf.device(self._host),
            tf.control_dependencies([loss]),
            tf.control_dependencies([self._token.dequeue()]),
        ):
            return self._put_back()

    def _turn(self) -> list[tf.Operation]:
        """Returns what the lookup waits for."""
        return [self._token.dequeue().op] if self._handover else []

    def _put_back(self) -> tf.Operation:
        return self._token.enqueue(True)


class _FirstTurn(tf.compat.v1.train.SessionRunHook):
    """Lets the first lookup of a session run."""

    def __init__(self, put: tf.Operation):
        self._put = put

    def after_create_session(self, session: tf.compat.v1.Session, coord: Any) -> None:
        session.run(self._put)


class _Handover(Transfer):
    """Keeps what one session call computes for another one that runs at the same time."""

    in_one_call = False

    def _through(self, tensors: list[tf.Tensor]) -> list[tf.Tensor]:
        # Unlike `Unstage`, a waiting queue ends with its session.
        queue = tf.queue.FIFOQueue(1, [tensor.dtype for tensor in tensors])
        self._kept.append(queue.enqueue(tensors))
        with tf.control_dependencies(None):
            received = queue.dequeue()
        return [received] if len(tensors) == 1 else received
