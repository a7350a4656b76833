"""Errors of this package, for programs that catch them.

Each is also the error that tensorflow-estimator or TensorFlow raises in such a case. Other errors
are theirs, or a ValueError or TypeError about an argument. `preflight` has its own, `CannotCheck`.
"""

from estimator_emb.checkpoints.files.checkpoint_files import DamagedCheckpoint, MissingCheckpoint
from estimator_emb.checkpoints.restoring.mismatch_report import UnfitCheckpoint
from estimator_emb.guards.input_fn import InputEndedError
from estimator_emb.guards.numbers import NanLossError
from estimator_emb.spec.options import CannotEmulate, CannotLower

__all__ = [
    "CannotEmulate",
    "CannotLower",
    "DamagedCheckpoint",
    "InputEndedError",
    "MissingCheckpoint",
    "NanLossError",
    "UnfitCheckpoint",
]
