# SPDX-License-Identifier: Apache-2.0
"""Checks, without a TPU, whether a TPU will accept a program.

`check_program` builds what `use_tpu=True` builds, on a TPU that is only described, and reports what
that raises. It builds the step that one TPU core would run, looks every op and type up among the
TPU's kernels, and, if the extra `[preflight]` is installed, asks the TPU's own compiler. It also
counts the memory that tables take. docs/preflight.md says what that shows, and what it cannot.
"""

from estimator_emb.names.generations import GENERATIONS
from estimator_emb.preflight.checking import check_program
from estimator_emb.preflight.report import CannotCheck, Compilation, Finding, Report, Tables

__all__ = [
    "GENERATIONS",
    "CannotCheck",
    "Compilation",
    "Finding",
    "Report",
    "Tables",
    "check_program",
]
