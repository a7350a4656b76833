"""Lists the backends, and is the only branch on where a program runs."""

from collections.abc import Callable, Mapping

from estimator_emb.backends.base import Backend, EstimatorRequest
from estimator_emb.backends.emulated.backend import EmulatedTPU
from estimator_emb.backends.emulated.copies import CoreCopies
from estimator_emb.backends.local import LocalBackend
from estimator_emb.backends.pjrt.backend import PjrtDevices
from estimator_emb.backends.tpu.backend import TPUBackend
from estimator_emb.spec import options

BACKENDS: Mapping[str, Callable[[EstimatorRequest], Backend]] = {
    "emulate": lambda request: EmulatedTPU(request, CoreCopies()),
    "pjrt": lambda request: EmulatedTPU(request, PjrtDevices(request)),
    "tpu": TPUBackend,
}
"""The `device` of a TPUConfig or of the environment, with `use_tpu=True` -> its backend."""


def choose(request: EstimatorRequest) -> Backend:
    """Makes the backend that a program asked for; raises ValueError if the request does not fit."""
    if not request.use_tpu:
        return LocalBackend(request)
    options.check_tables(request.config)
    return BACKENDS[options.asked(request.config)](request)
