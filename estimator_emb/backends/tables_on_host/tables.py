# SPDX-License-Identifier: Apache-2.0
"""The tables on the host of a TPU, whose lookups and updates run in different session calls.

The phases are those of `step.engine`: `HostedTables` reads a batch, taps it on a core and creates
the tables, and a `HostedLookup` updates them.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import tensorflow as tf

from estimator_emb.native import choice
from estimator_emb.spec.config import EmbeddingConfigSpec
from estimator_emb.spec.resolved import Table
from estimator_emb.step.cores import Cores, wire
from estimator_emb.step.engine import GradientTap, Lookup, Reading, TableStep
from estimator_emb.step.transfer import Transfer


class Turns(tf.compat.v1.train.SessionRunHook):
    """One token, by which lookups and updates take turns; the hook lets the first lookup run."""

    def __init__(self) -> None:
        self._token = tf.queue.FIFOQueue(1, [tf.bool], [[]], name="embedding_token")
        self._first = self.give()

    def take(self) -> tf.Tensor:
        """Waits for the token and returns it."""
        return self._token.dequeue()

    def give(self) -> tf.Operation:
        return self._token.enqueue(True)

    def after_create_session(self, session: tf.compat.v1.Session, coord: Any) -> None:
        session.run(self._first)


class HostedTables:
    """The tables of one graph on the device `host` before a batch is read; see `TableStep`.

    In training, `turns` is a hook of the session; else None.
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
        self.host = host
        self.turns: Turns | None = None
        self.handover: Handover | None = None
        if training:
            with tf.device(host):
                self.turns = Turns()
            self.handover = Handover()
        self.step = TableStep(
            spec,
            tables,
            training,
            cores,
            batch_size,
            as_parts=True,
            kernels=choice.kernels_for,
            transfer=self.handover,
            where="on the TPU's host",
            in_this_process=False,
        )

    def lookup_waits_for(self) -> list[tf.Operation]:
        """Makes the ops that must run before the lookup: in training, the previous update."""
        return [self.turns.take().op] if self.turns else []

    def tap(self, reading: Reading, features: Mapping[str, tf.Tensor]) -> GradientTap:
        """Gives a core's model its activations, which are among the features it received."""
        return reading.tap({key: features[key] for key in reading.activations})

    def sent(self, tap: GradientTap) -> list[tf.Tensor]:
        """Returns the input of `update`: gradients, then rates and any multiplier as one [1, n]."""
        gradients = tap.gradients()
        tap.warn_of_zeros(gradients)
        multiplier, rates = tap.multiplier(), tap.rates()
        for key, activation in tap.activations.items():
            if key not in gradients:
                gradients[key] = tf.zeros_like(activation)
        multiplied = [
            gradients[key] if multiplier is None else gradients[key] * multiplier
            for key in tap.activations
        ]
        factors = rates if multiplier is None else [*rates, multiplier]
        return [*multiplied, tf.stack(factors)[None]]

    def create_tables(self, tap: GradientTap, returned: Any) -> "HostedLookup":
        """Creates the tables and wires their activations into the input of the cores.

        An activation that stands unchanged in `returned`, the value of model_fn, counts as used.
        """
        # tensorflow-estimator reads every trainable variable after each loop, which would copy it.
        trainable = tf.compat.v1.get_collection_ref(tf.compat.v1.GraphKeys.TRAINABLE_VARIABLES)
        before = {id(variable) for variable in trainable}
        with tf.device(self.host):
            lookup = tap.create_tables(returned, self.lookup_waits_for)
            tables = [variable for variable in trainable if id(variable) not in before]
            trainable[:] = [variable for variable in trainable if id(variable) in before]
            kept = [self.handover.kept] if self.handover else []
            for key, stand_ins in tap.reading.stand_ins.items():
                for stand_in in stand_ins:
                    stand_in.op._add_control_inputs(kept)
                    if key not in lookup.activations:
                        # Evaluation does not use the feature, and its table need not exist.
                        wire(stand_in, tf.zeros(stand_in.shape))
        return HostedLookup(self, lookup, tables)


class HostedLookup:
    """Tables that were created and looked up.

    Their variables, `hidden`, were taken out of the trainable ones.
    """

    def __init__(self, tables: HostedTables, lookup: Lookup, hidden: Sequence[tf.Variable]):
        self._host, self._turns = tables.host, tables.turns
        self._lookup = lookup
        self._hidden = hidden
        self.warm_start = lookup.warm_start
        self.check_saver = lookup.check_saver

    def update(self, received: Sequence[tf.Tensor]) -> tf.Operation:
        """Updates every table with what the cores sent, each tensor for all cores."""
        assert self._turns is not None
        *gradients, factors = received
        # Outside of the context in which a host_call runs.
        with tf.control_dependencies(None), tf.device(self._host):
            with tf.name_scope("embedding_update"):
                # Every core sends the same factors.
                rates = tf.unstack(factors[0])
                multiplier = rates.pop() if len(rates) > len(self._lookup.tables) else None
                updated = self._lookup.update(gradients, rates, multiplier)
            with tf.control_dependencies([updated]):
                return self._turns.give()

    def show_tables(self) -> None:
        """Puts the tables among the trainable variables, where warm starts look for them."""
        for variable in self._hidden:
            tf.compat.v1.add_to_collection(tf.compat.v1.GraphKeys.TRAINABLE_VARIABLES, variable)

    def last_update(self, loss: tf.Tensor) -> tf.Operation:
        """Waits for the last update of the loop that computes `loss`."""
        assert self._turns is not None
        with (
            tf.device(self._host),
            tf.control_dependencies([loss]),
            tf.control_dependencies([self._turns.take()]),
        ):
            return self._turns.give()


class Handover(Transfer):
    """Keeps tensors of one session call for another that runs at the same time."""

    in_one_call = False

    def _through(self, tensors: list[tf.Tensor]) -> list[tf.Tensor]:
        # Unlike `Unstage`, a waiting queue ends with its session.
        queue = tf.queue.FIFOQueue(1, [tensor.dtype for tensor in tensors])
        self._kept.append(queue.enqueue(tensors))
        with tf.control_dependencies(None):
            received = queue.dequeue()
        return [received] if len(tensors) == 1 else received
