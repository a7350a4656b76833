"""Lists the backends, and is the only branch on where a program runs."""

from collections.abc import Mapping

from estimator_emb.backends.base import Backend, EstimatorRequest
from estimator_emb.backends.emulated.backend import EmulatedBackend
from estimator_emb.backends.host import HostBackend
from estimator_emb.backends.pjrt.backend import PjrtBackend
from estimator_emb.backends.tpu.backend import TPUBackend
from estimator_emb.spec import options

BACKENDS: Mapping[str, type[Backend]] = {
    "host": EmulatedBackend,
    "pjrt": PjrtBackend,
    "tpu": TPUBackend,
}
"""The `device` of a TPUConfig or of the environment, with `use_tpu=True` -> its backend."""


def choose(request: EstimatorRequest) -> Backend:
    """Makes the backend that a program asked for; raises ValueError if the request does not fit."""
    asked = BACKENDS[options.asked(request.config)] if request.use_tpu else HostBackend
    return asked(request)
