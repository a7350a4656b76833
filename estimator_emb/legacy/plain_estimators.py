# SPDX-License-Identifier: Apache-2.0
"""Gives `tf.estimator.Estimator`, and the canned ones, the safeguards of `TPUEstimator`.

`install` changes the methods of the class from which all of them are derived. Trainings of
`TPUEstimator`, which has them anyway, are left as they are.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import Any

import tensorflow as tf

from estimator_emb.backends.errors import explain
from estimator_emb.checkpoints.files import checkpoint_files
from estimator_emb.checkpoints.restoring.model_directory import ModelDirectory
from estimator_emb.messages import console
from estimator_emb.messages.calls import called_by_program
from estimator_emb.private.estimator import Estimator
from estimator_emb.private.patches import Changes
from estimator_emb.private.tpu_estimator import StockTPUEstimator
from estimator_emb.training import safeguards

_DIRECTORY = "_estimator_emb_directory"
"""The attribute of an estimator that holds its `ModelDirectory`."""

_explain = functools.partial(explain, emulates_tpu=False)


def replace_methods(changes: Changes) -> None:
    """Replaces the methods by changes that can be undone."""
    called: dict[str, Callable[..., Any]] = {
        "train": _train,
        "evaluate": _evaluate,
        "predict": _predict,
        "export_saved_model": _unchanged,
        "experimental_export_all_saved_models": _unchanged,
    }
    inner: dict[str, Callable[..., Any]] = {
        "_evaluate_run": _evaluate_run,
        "_call_model_fn": _call_model_fn,
        "_export_all_saved_models": _export_all_saved_models,
        "_add_meta_graph_for_mode": _add_meta_graph_for_mode,
    }
    for name, method in {**called, **inner}.items():
        of_any = _of_any(method, getattr(Estimator, name), is_called=name in called)
        changes.set_attribute(Estimator, name, of_any)


def _of_any(
    method: Callable[..., Any], original: Callable[..., Any], is_called: bool
) -> Callable[..., Any]:
    """Returns what calls `original` of a TPUEstimator, and `method`, which gets it, of others."""
    of_plain: Callable[..., Any] = functools.partial(method, original)
    if is_called:
        of_plain = called_by_program(functools.wraps(original)(of_plain))

    @functools.wraps(original)
    def of_any(self: Any, *args: Any, **kwargs: Any) -> Any:
        chosen = original if isinstance(self, StockTPUEstimator) else of_plain
        return chosen(self, *args, **kwargs)

    return of_any


def _unchanged(original: Any, self: Any, *args: Any, **kwargs: Any) -> Any:
    return original(self, *args, **kwargs)


def _directory(estimator: Any) -> ModelDirectory:
    attributes = vars(estimator)
    if _DIRECTORY not in attributes:
        attributes[_DIRECTORY] = ModelDirectory(estimator.model_dir)
    directory: ModelDirectory = attributes[_DIRECTORY]
    return directory


def _train(
    original: Any,
    self: Any,
    input_fn: Any,
    hooks: Any = None,
    steps: Any = None,
    max_steps: Any = None,
    saving_listeners: Any = None,
) -> Any:
    with safeguards.training(
        self, _directory(self), _explain, hooks, steps, max_steps, needs_input=False
    ) as hooks:
        hooks = [*hooks, _PlaceLog(self)]
        return original(self, input_fn, hooks, steps, max_steps, saving_listeners)


def _evaluate(
    original: Any,
    self: Any,
    input_fn: Any,
    steps: Any = None,
    hooks: Any = None,
    checkpoint_path: Any = None,
    name: Any = None,
) -> Any:
    path = _path_to_read(self, "evaluate", checkpoint_path)
    with safeguards.evaluation(_directory(self), _explain, path):
        return original(self, input_fn, steps, hooks, path, name)


def _evaluate_run(
    original: Any,
    self: Any,
    checkpoint_path: Any,
    scaffold: Any,
    update_op: Any,
    eval_dict: Any,
    all_hooks: Any,
    output_dir: Any,
) -> Any:
    hooks = safeguards.evaluation_hooks(all_hooks)
    return original(self, checkpoint_path, scaffold, update_op, eval_dict, hooks, output_dir)


def _predict(
    original: Any,
    self: Any,
    input_fn: Any,
    predict_keys: Any = None,
    hooks: Any = None,
    checkpoint_path: Any = None,
    yield_single_examples: bool = True,
) -> Iterator[Any]:
    path = _path_to_read(self, "predict", checkpoint_path)
    values = original(self, input_fn, predict_keys, hooks, path, yield_single_examples)
    yield from safeguards.predictions(_directory(self), _explain, path, values)


def _path_to_read(estimator: Any, call: str, checkpoint_path: Any) -> str | None:
    if type(estimator).latest_checkpoint is not Estimator.latest_checkpoint:
        return checkpoint_path  # A SavedModelEstimator begins with the weights of its SavedModel.
    return _directory(estimator).to_read(call, checkpoint_path, estimator._warm_start_settings)


def _call_model_fn(original: Any, self: Any, *args: Any, **kwargs: Any) -> Any:
    spec = original(self, *args, **kwargs)
    _directory(self).check(spec.scaffold, self._warm_start_settings, tables=())
    return spec


def _export_all_saved_models(original: Any, self: Any, *args: Any, **kwargs: Any) -> Any:
    if kwargs.get("checkpoint_path"):
        checkpoint_files.given(kwargs["checkpoint_path"])
    return original(self, *args, **kwargs)


def _add_meta_graph_for_mode(
    original: Any,
    self: Any,
    builder: Any,
    receivers: Any,
    checkpoint_path: Any,
    *args: Any,
    **kwargs: Any,
) -> Any:
    try:
        with _directory(self).restoring(checkpoint_path):
            return original(self, builder, receivers, checkpoint_path, *args, **kwargs)
    except checkpoint_files.MissingCheckpoint as error:
        # tensorflow-estimator's own sentence, which programs may look for.
        raise checkpoint_files.MissingCheckpoint(
            f"Could not load all requested variables from checkpoint. {error.message}"
        ) from None


class _PlaceLog(tf.compat.v1.train.SessionRunHook):
    """A hook that logs where an estimator trains, once for each model directory."""

    def __init__(self, estimator: Any):
        self._estimator = estimator

    def begin(self) -> None:
        variables = tf.compat.v1.trainable_variables()
        size = sum(variable.shape.num_elements() or 0 for variable in variables)
        name = type(self._estimator).__name__.removesuffix("V2")
        console.say_once(
            f"{name} trains on {_place(self._estimator)}: {_counted(len(variables), 'variable')}, "
            f"{_counted(size, 'parameter')}.",
            self._estimator.model_dir,
        )


def _place(estimator: Any) -> str:
    strategy = estimator._train_distribution
    if strategy is not None:
        replicas = _counted(strategy.num_replicas_in_sync, "replica")
        return f"{replicas} of a {type(strategy).__name__}"
    place = "a GPU" if tf.config.list_physical_devices("GPU") else "the CPU"
    servers = estimator.config.num_ps_replicas
    return f"{place}, beside {_counted(servers, 'parameter server')}" if servers else place


def _counted(count: int, noun: str) -> str:
    return f"{count:,} {noun}{'' if count == 1 else 's'}"
