# SPDX-License-Identifier: Apache-2.0
"""Lists the backends, and is the only branch on where a program runs.

The program names the place, and nothing guesses it: `BACKENDS` has the words for each.
"""

import dataclasses
from collections.abc import Callable

from estimator_emb.backends.base import Backend, EstimatorRequest
from estimator_emb.backends.emulated.backend import EmulatedBackend
from estimator_emb.backends.host import HostBackend
from estimator_emb.backends.pjrt.backend import PjrtBackend
from estimator_emb.backends.tpu.backend import TPUBackend
from estimator_emb.names import environment
from estimator_emb.spec import options


@dataclasses.dataclass(frozen=True)
class Choice:
    """A backend, and the settings by which a program asks for it, as messages name them."""

    backend: type[Backend]
    said: str
    is_asked: Callable[[EstimatorRequest], bool]


BACKENDS = (
    Choice(HostBackend, "use_tpu=False", lambda request: not request.use_tpu),
    Choice(
        EmulatedBackend,
        "use_tpu=True, and TPUConfig(device='host') or the environment variable "
        f"{environment.DEVICE}=host",
        lambda request: options.asked(request.config) == "host",
    ),
    Choice(
        PjrtBackend,
        "use_tpu=True, and TPUConfig(device='pjrt') or the environment variable "
        f"{environment.DEVICE}=pjrt",
        lambda request: options.asked(request.config) == "pjrt",
    ),
    Choice(TPUBackend, "use_tpu=True", lambda request: True),
)
"""All backends; the first that is asked for runs the program."""


def choose(request: EstimatorRequest) -> Backend:
    """Makes the backend that a program asked for; raises ValueError if the request does not fit."""
    return next(choice.backend(request) for choice in BACKENDS if choice.is_asked(request))
