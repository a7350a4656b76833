"""Looks up and updates tables in shards, on parameter servers or in this process.

In a step, each server receives a message with the rows that the batch needs from its shards. It
returns the values of these rows, and receives their gradients. `ops.h` defines the format.
"""

import functools
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from estimator_emb.engine.inputs import Batch, Source
from estimator_emb.engine.pipelining import LookaheadBuffer, whole_step
from estimator_emb.engine.tables.storage import StoredTable, TableVariables
from estimator_emb.native import ops, rules
from estimator_emb.native.native_kernels import TENSORS, Checked, rule_arguments

_Server = list[tuple[TableVariables, int]]
"""A device's shards, each with the number of its table, in the order of messages."""


class ShardedKernels(Checked):
    """`engine.kernels.Kernels` with a lookup op and an update op on each server."""

    carried = (*TENSORS, "messages")

    def __init__(
        self,
        library: ops.Library,
        tables: Sequence[StoredTable],
        rules_of: Sequence[rules.Rule],
        next_step: LookaheadBuffer | None,
    ):
        super().__init__(library, tables, next_step)
        servers: dict[str, _Server] = {}
        server_of: list[int] = []
        self._ends: list[int] = []
        for number, table in enumerate(tables):
            for shard in table.variables:
                servers.setdefault(shard.weights.device, []).append((shard, number))
                server_of.append(list(servers).index(shard.weights.device))
            sizes = [shard.weights.shape[0] for shard in table.variables]
            self._ends += np.cumsum(sizes).tolist()
        self._servers = list(servers.values())
        self._tables, self._rules = tables, rules_of
        self._dimensions = [table.config.dimension for table in tables]
        self._shards: dict[str, Any] = {
            "shards_of": [len(table.variables) for table in tables],
            "server_of": server_of,
        }
        self._values: list[tf.Tensor] = []

    def lookup(self, batch: Batch, used: Sequence[Source]) -> Iterator[tf.Tensor]:
        layout = {"ends": self._ends, "dimensions": self._dimensions, **self._shards}
        features = self.check(batch, used, layout)
        with tf.control_dependencies([self.checked]):
            messages, positions = self._ops.host_tables_route(
                F=len(used), S=len(self._servers), ends=self._ends, **features, **self._shards
            )
        self._features = {
            **features,
            **self._shards,
            "ids": positions,
            "messages": messages,
            "dimensions": self._dimensions,
        }
        for server, message in zip(self._servers, messages, strict=True):
            handles = [shard.weights.handle for shard, _ in server]
            with server[0][0].device():
                values = self._ops.host_shards_lookup(tables=handles, message=message)
            self._values.append(values)
        yield from self._ops.host_tables_combine(F=len(used), values=self._values, **self._features)
        self.carry()

    def update(self, gradients: Iterator[tf.Tensor], rates: Sequence[tf.Tensor]) -> tf.Operation:
        sums = self._ops.host_tables_row_gradients(
            gradients=list(gradients), rates=tf.stack(rates), **self._features
        )
        done = []
        messages = self._features["messages"]
        of_servers = zip(self._servers, messages, sums, self._values, strict=True)
        for server, message, gradient, values in of_servers:
            step, (shard, _) = functools.partial(self._update, server), server[0]
            # The update must wait for the lookup, even if the gradients do not depend on it.
            with tf.control_dependencies([values]):
                done.append(shard.run(step, [message, gradient]))
        return whole_step(done, self._next_step)

    def _update(self, server: _Server, inputs: Sequence[tf.Tensor]) -> tf.Operation:
        message, sums = inputs
        variables = [(shard.weights, *shard.slots) for shard, _ in server]
        tables = [self._tables[number] for _, number in server]
        return self._ops.host_shards_update(
            variables=[one.handle for of_shard in variables for one in of_shard],
            message=message,
            sums=sums,
            every_row=[table.trained_by.updates_untouched_rows for table in tables],
            **rule_arguments([self._rules[number] for _, number in server]),
        )
