"""Lists all guards, in the order in which they run."""

from estimator_emb.guards.activations import Activations
from estimator_emb.guards.checkpoint_fit import CheckpointFit
from estimator_emb.guards.chief_hooks import ChiefHooks
from estimator_emb.guards.directory_lock import DirectoryLock
from estimator_emb.guards.frozen_layers import FrozenLayers
from estimator_emb.guards.given_weights import GivenWeights
from estimator_emb.guards.global_step import GlobalStep
from estimator_emb.guards.gradient_sums import GradientSums
from estimator_emb.guards.guard import Guard
from estimator_emb.guards.input_ends import InputEnds
from estimator_emb.guards.input_values import InputValues
from estimator_emb.guards.known_ops import KnownOps
from estimator_emb.guards.late_predictions import LatePredictions
from estimator_emb.guards.learning_phase import LearningPhase
from estimator_emb.guards.made_outside import MadeOutside
from estimator_emb.guards.missing_labels import MissingLabels
from estimator_emb.guards.missing_train_ops import MissingTrainOps
from estimator_emb.guards.model_errors import ModelErrors
from estimator_emb.guards.model_values import ModelValues
from estimator_emb.guards.numbers import Numbers
from estimator_emb.guards.patient_closes import PatientCloses
from estimator_emb.guards.reached_steps import ReachedSteps
from estimator_emb.guards.reads_first import ReadsFirst
from estimator_emb.guards.same_vocabularies import SameVocabularies
from estimator_emb.guards.sample_counts import SampleCounts
from estimator_emb.guards.save_turns import SaveTurns
from estimator_emb.guards.savers import Savers
from estimator_emb.guards.session_errors import SessionErrors
from estimator_emb.guards.shown_progress import ShownProgress
from estimator_emb.guards.spread_labels import SpreadLabels
from estimator_emb.guards.stop_signals import StopSignals
from estimator_emb.guards.synchronous_workers import SynchronousWorkers
from estimator_emb.guards.table_hooks import TableHooks
from estimator_emb.guards.takes_params import TakesParams
from estimator_emb.guards.training_place import TrainingPlace
from estimator_emb.guards.unknown_columns import UnknownColumns
from estimator_emb.guards.unrun_updates import UnrunUpdates
from estimator_emb.guards.unshown_calls import UnshownCalls
from estimator_emb.guards.wrong_optimizers import WrongOptimizers

GUARDS: tuple[type[Guard], ...] = (
    ReachedSteps,
    ShownProgress,
    SessionErrors,
    InputEnds,
    StopSignals,
    DirectoryLock,
    TrainingPlace,
    MadeOutside,
    TakesParams,
    InputValues,
    LatePredictions,
    Savers,
    GlobalStep,
    Numbers,
    TableHooks,
    SampleCounts,
    WrongOptimizers,
    MissingTrainOps,
    LearningPhase,
    Activations,
    ModelErrors,
    UnknownColumns,
    MissingLabels,
    ModelValues,
    SynchronousWorkers,
    GradientSums,
    GivenWeights,
    UnrunUpdates,
    FrozenLayers,
    UnshownCalls,
    KnownOps,
    SpreadLabels,
    PatientCloses,
    ReadsFirst,  # After all guards that add ops or hooks.
    ChiefHooks,
    SaveTurns,
    CheckpointFit,
    SameVocabularies,  # After CheckpointFit: it explains a grown vocabulary better.
)
"""All guards. Each method is called in this order, and the first context is the outermost."""
