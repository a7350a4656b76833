"""Chooses where a program's tables live: in this process, on servers or on devices."""

import functools
from typing import Any

import tensorflow as tf

from estimator_emb.backends.base import EstimatorRequest
from estimator_emb.engine.dropped import DroppedIds
from estimator_emb.engine.engine import Place, TableStep
from estimator_emb.engine.kernels import TensorFlowKernels
from estimator_emb.guards.watching import GraphGuards
from estimator_emb.native import select_kernels, serving
from estimator_emb.spec import options
from estimator_emb.spec.resolved import check_for_host


class HostTables:
    """Makes a `TableStep` for each graph, or returns None if the program has no tables."""

    def __init__(self, request: EstimatorRequest):
        self._request = request
        self._drops_ids = options.asked_bad_ids(request.config) == "drop"
        self._summarizes = options.table_summaries_on_host(request.config)
        if request.spec is not None:
            check_for_host(request.spec, request.tables)

    def in_process(self, guards: GraphGuards, config: Any) -> TableStep | None:
        """Returns a `TableStep` with tables in this process or on its parameter servers."""
        call = guards.call
        if self._request.spec is None:
            return None
        if call.training and call.float16 is not None:
            raise ValueError(
                "TPUConfig: serving_tables='float16' exports no graph that trains: optimizers need "
                "float32 tables. Export without ModeKeys.TRAIN, or leave serving_tables out."
            )
        servers = () if call.exporting else serving.addresses(config)
        choose = functools.partial(select_kernels.kernels_for, servers=servers)
        return TableStep(
            self._request.spec,
            self._request.tables,
            call.training,
            Place(
                TensorFlowKernels if call.exporting else choose,
                in_this_process=not servers,
                shards=max(len(servers), 1),
                dtype=tf.float32 if call.float16 is None else tf.float16,
            ),
            guards.cores,
            dropped=self._dropped(call.exporting),
            look_up_integers=True,
            summarizes=self._summarizes,
        )

    def beside_cores(
        self, guards: GraphGuards, place: Place, batch_size: int | None
    ) -> TableStep | None:
        """Returns a `TableStep` that all cores of an emulated TPU share."""
        if self._request.spec is None:
            return None
        return TableStep(
            self._request.spec,
            self._request.tables,
            guards.call.training,
            place,
            guards.cores,
            batch_size=batch_size,
            dropped=self._dropped(exporting=False),
            summarizes=self._summarizes,
        )

    def _dropped(self, exporting: bool) -> DroppedIds | None:
        return DroppedIds(count=not exporting) if self._drops_ids else None
