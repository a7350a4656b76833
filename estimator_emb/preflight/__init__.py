"""Checks, without a TPU, whether a TPU will accept a program.

docs/preflight.md describes what the check can and cannot show.
"""

from estimator_emb.catalog.generations import GENERATIONS
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
