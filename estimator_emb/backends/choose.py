"""Lists the backends, and chooses the backend of a program."""

from collections.abc import Callable, Mapping
from typing import Any

from estimator_emb.backends.base import Backend, EstimatorRequest
from estimator_emb.backends.emulated.backend import EmulatedTPU
from estimator_emb.backends.emulated.copies import CoreCopies
from estimator_emb.backends.local import LocalBackend
from estimator_emb.backends.tpu.backend import TPUBackend
from estimator_emb.catalog import extras
from estimator_emb.spec import options

BACKENDS: Mapping[str, Callable[[EstimatorRequest], Backend]] = {
    "emulate": lambda request: EmulatedTPU(request, CoreCopies()),
    "pjrt": lambda request: EmulatedTPU(request, devices().PjrtDevices(request)),
    "tpu": TPUBackend,
}
"""The `device` in a TPUConfig or the environment -> the backend used with `use_tpu=True`."""


def choose(request: EstimatorRequest) -> Backend:
    """Returns the backend for a request. Raises ValueError if the backend cannot run it."""
    if not request.use_tpu:
        options.say_unused(request.config)
        return LocalBackend(request)
    options.check_tables(request.config)
    return BACKENDS[options.asked(request.config)](request)


def devices() -> Any:
    """Imports the module of PJRT devices. Raises MissingExtra if it was deleted."""
    return extras.load("devices", "backends.pjrt.backend")
