# SPDX-License-Identifier: Apache-2.0
"""Tables on the host of a TPU whose cores run the model: `TPUConfig(tables='host')`.

This is for TPUs whose embedding hardware TPUEstimator cannot drive. The host does the work of the
hardware; activations and gradients travel with the other inputs and outputs of the model. Each
training step runs in three session calls, in threads of tensorflow-estimator's own:

1. Infeed: reads the batch of all cores, takes the token, looks the ids up, hands over to 3. what
   the update needs, and gives each core its part, with activations in place of ids.
2. The cores: run model_fn, and send out the gradients of the activations and the learning rates
   of the step beside the outputs for the program's own host_call.
3. Outfeed: updates the tables, and puts the token back.

So no lookup runs beside an update, and step N+1 sees what step N has written. The session call in
which the cores run a loop of steps ends when the token of the last update is back.

tensorflow-estimator builds its inputs before model_fn, so activations are stand-ins at first; see
`step.engine`. It would put the input into a loop in the graph, which could not be completed
afterwards. Told that input_fn is called for every core, it reads each step's input in a session
call of its own.
"""

import logging
from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from estimator_emb.backends.emulated import input as emulated_input
from estimator_emb.backends.tables_on_host.context import TPUWithoutTables
from estimator_emb.backends.tables_on_host.tables import HostedLookup, HostedTables
from estimator_emb.checks import unsummed
from estimator_emb.checks.program_checks import takes
from estimator_emb.private.estimator import AnyTPUEstimatorSpec, EstimatorSpec, ModeKeys
from estimator_emb.private.graphs import data_nest, fn_args
from estimator_emb.private.tpu_estimator import (
    TPU_TRAIN_OP,
    ModelFnWrapper,
    MultiHostDatasetInitializerHook,
    TPUContext,
    TPUEstimatorSpec,
)
from estimator_emb.spec.config import EmbeddingConfigSpec
from estimator_emb.spec.resolved import Table
from estimator_emb.step.cores import Cores
from estimator_emb.step.engine import GradientTap, Reading

logger = logging.getLogger("estimator_emb")


class TablesOnHostStep:
    """The graph of one mode, for tensorflow-estimator to build around.

    The program's input_fn takes the `TPUContext` of an input. Raises ValueError for several hosts.
    """

    def __init__(
        self,
        ctx: TPUWithoutTables,
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
        self._tables = HostedTables(
            spec, tables, self._training, self._cores, ctx.global_batch_size, host
        )
        # One of tensorflow-estimator's calls of input and model leaves these for the next.
        self._reading: Reading | None = None
        self._lookup: HostedLookup | None = None
        self._of_cores: list[tuple[Any, Any]] = []
        self._hooks: list[Any] = []

    def build(
        self, augment: Callable[..., Any], labels: Any, mode: str, config: Any, params: Any
    ) -> EstimatorSpec:
        """Builds the spec with tensorflow-estimator's `augment`, and completes it for tables."""

        def on_core(features: Any, **kwargs: Any) -> Any:
            return self._on_core(features, **kwargs)

        on_tpu = augment(takes(on_core, fn_args(self._model_fn)), None)
        return self._completed(on_tpu(self._next_core, labels, mode, config, params))

    def _next_core(self, context: TPUContext) -> tuple[Any, Any]:
        """Returns features and labels of the next core; called once for each, in their order."""
        if not self._of_cores:
            self._of_cores = self._read()
        return self._of_cores.pop(0)

    def _read(self) -> list[tuple[Any, Any]]:
        batch = emulated_input.read_cores(
            self._ctx,
            self._input_fn,
            self._batch_axis,
            self._cores,
            self._tables.step.consumed,
            lambda tensors: tensors,
        )
        self._hooks.append(MultiHostDatasetInitializerHook(batch.initializers))
        self._reading = self._tables.step.read_batch(batch.looked_up)
        given = {**self._reading.activations, **self._reading.others}
        whole = {**batch.features, **given}, batch.labels

        def of_core(core: int) -> tuple[Any, Any]:
            return data_nest.map_structure(
                lambda mine: None if mine is None else self._cores.of_each(mine)[core], whole
            )

        return [of_core(core) for core in range(self._cores.count)]

    def _on_core(self, features: Any, **kwargs: Any) -> Any:
        assert self._reading is not None  # tensorflow-estimator builds inputs before models.
        tap = self._tables.tap(self._reading, features)
        spec = self._model_fn(features={**features, **tap.activations}, **kwargs)
        if self._training:
            given = tf.nest.flatten([features, kwargs.get("labels")])
            inputs = [tensor for tensor in given if tf.is_tensor(tensor)]
            unsummed.warn(self._cores.count, spec.train_op, inputs)
            spec = self._sending(spec, tap)
        with tf.init_scope():
            self._lookup = self._tables.create_tables(tap, spec)
            if self._training:
                logger.info(self._tables.step.describe())
        return spec

    def _sending(self, spec: Any, tap: GradientTap) -> Any:
        """Returns the model's `spec`, whose host_call also updates the tables."""
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
            return [*results, self.lookup.update(received[len(of_program) :])]

        return spec._replace(host_call=(host_call, [*of_program, *self._tables.sent(tap)]))

    @property
    def lookup(self) -> HostedLookup:
        """The tables, once the model has been built."""
        assert self._lookup is not None
        return self._lookup

    def _completed(self, spec: EstimatorSpec) -> EstimatorSpec:
        self.lookup.show_tables()
        if not self._training:
            return spec._replace(evaluation_hooks=[*spec.evaluation_hooks, *self._hooks])
        train_op = tf.group(spec.train_op, self.lookup.last_update(spec.loss))
        tf.compat.v1.get_collection_ref(TPU_TRAIN_OP)[:] = [train_op]
        return spec._replace(
            train_op=train_op,
            training_hooks=[*spec.training_hooks, *self._hooks, self._tables.turns],
        )
