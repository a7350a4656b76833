"""Chooses where a program's tables live: in this process, on servers or on devices."""

import contextlib
import functools
import logging
from collections.abc import Sequence
from typing import Any

from estimator_emb.backends.base import EstimatorRequest
from estimator_emb.backends.driver import Runner
from estimator_emb.catalog import environment, extras
from estimator_emb.engine.dropped import DroppedIds
from estimator_emb.engine.engine import TablePlace, TableStep
from estimator_emb.engine.kernels import Kernels, TensorFlowKernels
from estimator_emb.guards.call import Call
from estimator_emb.reporting import console
from estimator_emb.reporting.console import logger
from estimator_emb.spec import options, tf_config


class HostTables:
    """Makes a `TableStep` for each graph, or returns None if the program has no tables."""

    def __init__(self, request: EstimatorRequest):
        self._request = request
        self._drops_ids = options.asked_bad_ids(request.config) == "drop"
        self._summarizes = options.table_summaries_on_host(request.config)
        if request.spec is not None and request.spec.profile_data_directory:
            logger.warning(
                "profile_data_directory: lookup statistics come from TPU hardware; none are "
                "written on the host."
            )

    def in_process(self, call: Call, config: Any) -> TablePlace:
        """Returns the place of tables in this process or on its parameter servers."""
        servers = () if call.exporting else tf_config.servers(config)
        choose = functools.partial(kernels_for, servers=servers)
        return TablePlace(
            TensorFlowKernels if call.exporting else choose,
            in_this_process=not servers,
            shards=max(len(servers), 1),
        )

    def step(
        self, runner: Runner, place: TablePlace, batch_size: int | None = None
    ) -> TableStep | None:
        """Returns the `TableStep` that all cores of a runner share. None without a spec."""
        if self._request.spec is None:
            return None
        call = runner.graph.call
        return TableStep(
            self._request.spec,
            self._request.tables,
            call.training,
            place,
            runner.cores,
            batch_size,
            DroppedIds(count=not call.exporting) if self._drops_ids else None,
            self._summarizes,
        )


def kernels_for(*step: Any, servers: Sequence[str] = ()) -> Kernels:
    """Returns native kernels if the tables of a step can use them, else TensorFlow's ops.

    The arguments are those of `TensorFlowKernels`, and the addresses of the parameter servers.
    """
    try:
        native = extras.load("native", "native.select_kernels")
    except extras.MissingExtra as missing:
        asked = environment.NATIVE.choice() == "1"
        level = logging.WARNING if asked else logging.INFO
        console.say_once(f"Tables use TensorFlow's ops. {missing}.", level=level)
        return TensorFlowKernels(*step)
    chosen: Kernels = native.kernels_for(*step, servers=servers)
    return chosen


def serve(config: Any, request: EstimatorRequest) -> None:
    """Loads native kernels for a request's tables if this process is a parameter server."""
    if request.spec is not None and config.task_type == tf_config.SERVER_JOB:
        with contextlib.suppress(extras.MissingExtra):  # A training says it.
            extras.load("native", "native.serving").load(config, request.tables)
