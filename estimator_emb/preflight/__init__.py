# SPDX-License-Identifier: Apache-2.0
"""Whether a TPU will accept the step of a program, asked where there is no TPU.

`check` builds the step that one TPU core would run and looks at it in two ways: every op and type
against the TPU's kernels, and, where the extra `[preflight]` is installed, by the TPU's own
compiler. docs/preflight.md says what that shows, and what it cannot.
"""

from estimator_emb.preflight.checking import check
from estimator_emb.preflight.compiler import GENERATIONS
from estimator_emb.preflight.report import CannotCheck, Compilation, Finding, Report

__all__ = ["GENERATIONS", "CannotCheck", "Compilation", "Finding", "Report", "check"]
