# SPDX-License-Identifier: Apache-2.0
"""The only branch on where a program runs.

It is said, never guessed:

* `use_tpu=False`: on the host.
* `use_tpu=True` and a request to emulate (`TPUConfig(device='host')`, or the environment variable
  ESTIMATOR_EMB_DEVICE=host): on the host, and the program sees what a TPU would show it.
* `use_tpu=True` otherwise: on a TPU, by tensorflow-estimator's own machinery. The tables are in its
  embedding hardware, or on its host where `TPUConfig(tables='host')` or the environment variable
  ESTIMATOR_EMB_TABLES=host says so.
"""

from estimator_emb.backends.base import Backend, Request
from estimator_emb.backends.emulated.backend import EmulatedBackend
from estimator_emb.backends.host import HostBackend
from estimator_emb.backends.tables_on_host.backend import TablesOnHostBackend
from estimator_emb.backends.tpu.backend import TPUBackend
from estimator_emb.spec import options


def choose(request: Request) -> Backend:
    """Makes the backend that a program asked for.

    Raises:
      ValueError: it does not go with the rest of what was asked for.
    """
    if not request.use_tpu:
        return HostBackend(request)
    if options.asked(request.config) == "host":
        return EmulatedBackend(request)
    if request.tables and options.asked_tables(request.config) == "host":
        return TablesOnHostBackend(request)
    return TPUBackend(request)
