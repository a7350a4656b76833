"""Completes what every graph needs around its model, whichever backend builds it.

`TPUEstimator` calls these functions for all backends. A check, hook, saver or summary for every
graph is added here, and nowhere else.
"""

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from estimator_emb.backends.base import Backend, Call
from estimator_emb.checkpoints.restoring import live_servers, saver
from estimator_emb.checks import batch_sizes, nan_inputs, nan_loss, program_checks, tpu_ops
from estimator_emb.ordering.reads_first import ReadsFirstHook
from estimator_emb.private.estimator import ModeKeys
from estimator_emb.step import summaries

_HOOKS_OF = {
    ModeKeys.TRAIN: "training_hooks",
    ModeKeys.EVAL: "evaluation_hooks",
    ModeKeys.PREDICT: "prediction_hooks",
}


def before_model_fn(backend: Backend, mode: str, call: Call) -> None:
    """Checks a call before model_fn builds the graph of a mode."""
    call.lookup = None
    if backend.in_session and not call.exporting:
        size = getattr(backend.request, program_checks.BATCH_SIZES[mode])
        program_checks.check_takes_params(backend.request.model_fn, size is not None)


def after_model_fn(backend: Backend, spec: Any, call: Call) -> Any:
    """Checks the graph of a mode, and returns its `EstimatorSpec` with the hooks that it needs."""
    lookup = call.lookup
    training = spec.mode == ModeKeys.TRAIN
    hooks: list[Any] = []
    if lookup is not None:
        lookup.complete_savers(spec, on_tpu=backend.emulates_tpu)
        if training and lookup.step.summarizes:
            summaries.add_loss(spec.loss)
    if training and backend.in_session:
        of_program = map(type, (*spec.training_hooks, *spec.training_chief_hooks))
        program_checks.check_global_step(call.counts_steps, (*call.hooks, *of_program))
        tables = lookup.tables if lookup else ()
        hooks.append(nan_loss.NanReportHook(spec.loss, tables, backend.emulates_tpu))
    if not call.exporting:
        ahead, dropped = (lookup.step.next_step, lookup.step.dropped) if lookup else (None, None)
        if backend.in_session:  # An export does before a TPU's graph is added.
            tpu_ops.check_kernels()
            spec = nan_inputs.checked(spec, ahead.kept if ahead else None)
        # With a lookup ahead, the batch whose sizes were noted is not the one of this step.
        hooks += [ahead] if ahead else batch_sizes.hooks()
        hooks += [dropped] if dropped else []
        spec = _with_hooks(spec, hooks)
        if backend.in_session and spec.mode == ModeKeys.EVAL:
            spec = _with_hooks(spec, [ReadsFirstHook(spec, spec.evaluation_hooks)])
    backend.finish_graph()
    return spec


def before_training(
    backend: Backend, spec: Any, worker_hooks: Sequence[Any], hooks: Sequence[Any], config: Any
) -> tuple[Any, Sequence[Any]]:
    """Returns the spec and the hooks of a training, just before its session."""
    if backend.in_session:
        if backend.request.spec is not None:
            spec = _with_saver(spec, config)
        spec, hooks = nan_loss.first(spec, hooks)
        of_program = [*spec.training_hooks, *spec.training_chief_hooks]
        reads_first = ReadsFirstHook(spec, [*worker_hooks, *hooks, *of_program])
        spec = _with_hooks(spec, [reads_first])
    saver.take_turns([*worker_hooks, *hooks, *spec.training_hooks, *spec.training_chief_hooks])
    return spec, hooks


def _with_saver(spec: Any, config: Any) -> Any:
    savers = tf.compat.v1.GraphKeys.SAVERS
    has_saver = spec.scaffold.saver or tf.compat.v1.get_collection(savers)
    made: saver.PartsSaver | None = None
    if config.num_ps_replicas:
        seen = live_servers.StepsSeen()
        spec = _with_hooks(spec, [seen])
        if config.is_chief:
            made = live_servers.LiveServersSaver(config, seen)
    if not has_saver:
        tf.compat.v1.add_to_collection(savers, made or saver.PartsSaver(config))
    return spec


def _with_hooks(spec: Any, hooks: Sequence[Any]) -> Any:
    name = _HOOKS_OF[spec.mode]
    return spec._replace(**{name: (*(getattr(spec, name) or ()), *hooks)}) if hooks else spec
