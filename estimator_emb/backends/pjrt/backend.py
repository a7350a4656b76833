# SPDX-License-Identifier: Apache-2.0
"""PJRT devices that run a program's TPU step: `use_tpu=True` and `device='pjrt'`."""

from estimator_emb.backends.emulated.backend import EmulatedBackend
from estimator_emb.backends.pjrt.step import PjrtStep


class PjrtBackend(EmulatedBackend):
    """This process, whose PJRT devices are the cores of the program's TPU."""

    step_class = PjrtStep
