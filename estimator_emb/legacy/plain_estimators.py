"""Gives `tf.estimator.Estimator` and the canned Estimators the safeguards of `TPUEstimator`.

`install` replaces methods of their base class.
"""

import functools
import inspect
from collections.abc import Callable, Iterator
from typing import Any

import tensorflow as tf

from estimator_emb.backends import driver
from estimator_emb.checkpoints.files import checkpoint_files, unfinished_exports
from estimator_emb.checkpoints.restoring.model_directory import ModelDirectory
from estimator_emb.checkpoints.restoring.warm_starts import without_global_step
from estimator_emb.compat.internals.estimators import (
    Estimator,
    ModeKeys,
)
from estimator_emb.compat.internals.graphs import not_converted
from estimator_emb.compat.internals.patches import Changes
from estimator_emb.compat.internals.tpu_estimator import StockTPUEstimator
from estimator_emb.engine.ordering import structure
from estimator_emb.guards import watching
from estimator_emb.guards.call import Call, Runs
from estimator_emb.guards.checks import program_checks
from estimator_emb.guards.watching import Watch
from estimator_emb.reporting.program_calls import called_by_program

_DIRECTORY = "_estimator_emb_directory"
"""The estimator's attribute that holds its `ModelDirectory`."""

_Method = Callable[..., Any]


def replace_methods(changes: Changes) -> None:
    """Replaces methods of `Estimator`. `changes` can undo it."""
    methods: dict[str, _Method] = {
        "train": _train,
        "evaluate": _evaluate,
        "predict": _predict,
        "export_saved_model": _unchanged,
        "experimental_export_all_saved_models": _unchanged,
        "_evaluate_run": _evaluate_run,
        "_call_input_fn": _call_input_fn,
        "_call_model_fn": _call_model_fn,
        "_export_all_saved_models": _export_all_saved_models,
        "_add_meta_graph_for_mode": _add_meta_graph_for_mode,
    }
    for name, method in methods.items():
        changes.set_attribute(Estimator, name, _unless_tpu(name, method))
    changes.wrap(Estimator, "_validate_features_in_predict_input", _validate_features)


def _unless_tpu(name: str, method: _Method) -> _Method:
    """Returns a method for all Estimators but TPUEstimators. `method` gets arguments by name."""
    original = getattr(Estimator, name)
    signature = inspect.signature(original)

    @functools.wraps(original)
    def unless_tpu(self: Any, *args: Any, **kwargs: Any) -> Any:
        if not _is_plain(self):
            return original(self, *args, **kwargs)
        try:
            given = signature.bind(self, *args, **kwargs)
        except TypeError:
            return original(self, *args, **kwargs)  # Python's own error names the method.
        given.apply_defaults()
        return method(original, **given.arguments)

    if name.startswith("_"):
        return not_converted(unless_tpu)
    return not_converted(called_by_program(unless_tpu, applies=_is_plain))


def _is_plain(estimator: Any = None, *args: Any) -> bool:
    return not isinstance(estimator, StockTPUEstimator)


def _directory(estimator: Any) -> ModelDirectory:
    attributes: dict[str, Any] = vars(estimator)
    if _DIRECTORY not in attributes:
        attributes[_DIRECTORY] = ModelDirectory(estimator.model_dir)
    found: ModelDirectory = attributes[_DIRECTORY]
    return found


def _unchanged(original: Any, **given: Any) -> Any:
    return original(**given)


def _train(original: Any, self: Any, **given: Any) -> Any:
    for name in ("hooks", "saving_listeners"):
        given[name] = program_checks.listed(name, given[name])
    asked = {name: given[name] for name in ("hooks", "steps", "max_steps", "saving_listeners")}
    watch = _watch(self, "train", **asked)
    with watch.surround() as own_hooks, watch.building(self):
        hooks = [*(given.pop("hooks") or ()), *own_hooks]
        return original(self, hooks=hooks, **given)


def _evaluate(original: Any, self: Any, checkpoint_path: Any, **given: Any) -> Any:
    given["hooks"] = program_checks.listed("hooks", given["hooks"])
    asked = {name: given[name] for name in ("hooks", "steps")}
    watch = _watch(self, "evaluate", checkpoint_path=checkpoint_path, **asked)
    with watch.surround(), watch.building(self):
        return original(self, checkpoint_path=watch.call.checkpoint, **given)


def _evaluate_run(original: Any, self: Any, all_hooks: Any, output_dir: Any, **given: Any) -> Any:
    run = functools.partial(original, self, output_dir=output_dir, **given)
    watch = watching.watch_of(self, _base_call(self), ModeKeys.EVAL)
    return watch.evaluate(run, all_hooks, output_dir)


def _predict(original: Any, self: Any, checkpoint_path: Any, **given: Any) -> Iterator[Any]:
    given["hooks"] = program_checks.listed("hooks", given["hooks"])
    watch = _watch(self, "predict", checkpoint_path=checkpoint_path)
    values = original(self, checkpoint_path=watch.call.checkpoint, **given)
    yield from watch.predictions(self, values)


def _validate_features(original: _Method) -> _Method:
    """Returns the method that warns if predict yields forever. It takes all kinds of features."""

    def validate(self: Any, features: Any) -> None:
        tensors = tf.nest.flatten(features, expand_composites=True)
        given = [one.op for one in tensors if tf.is_tensor(one)]
        ops = structure.reached(given, structure.before_of)
        original(self, next((op.outputs for op in ops if op.type == "IteratorGetNext"), features))

    return validate


def _watch(estimator: Any, method: str, **given: Any) -> Watch:
    return Watch.begun(_base_call(estimator), method, **given)


def _call_input_fn(original: Any, self: Any, mode: str, **given: Any) -> Any:
    program_checks.check_is_function(given["input_fn"])
    value = original(self, mode=mode, **given)
    if tf.distribute.has_strategy():
        return value
    return watching.graph_of(self, _base_call(self), mode).input_returned("input_fn", value)


def _call_model_fn(
    original: Any, self: Any, features: Any, labels: Any, mode: Any, config: Any
) -> Any:
    graph = watching.graph_of(self, _base_call(self), mode)
    run = functools.partial(original, self, mode=mode, config=config)
    runner = driver.ThisGraph(graph, run, features, {"labels": labels})
    spec = driver.build(graph, lambda: driver.drive(runner, tables=None))
    self._warm_start_settings = graph.warm_start()
    return spec


def _base_call(estimator: Any) -> Call:
    return Call(
        Runs.PLAIN,
        estimator=type(estimator).__name__,
        model_fn=estimator._model_fn,
        model_dir=estimator.model_dir,
        config=estimator._config,
        directory=_directory(estimator),
        # A SavedModelEstimator starts with the weights of its SavedModel.
        restores=type(estimator).latest_checkpoint is Estimator.latest_checkpoint,
        warm_start=without_global_step(estimator._warm_start_settings),
    )


def _export_all_saved_models(original: Any, self: Any, checkpoint_path: Any, **given: Any) -> Any:
    if checkpoint_path:
        checkpoint_files.given(checkpoint_path)
    with unfinished_exports.removed_after_error(self):
        return original(self, checkpoint_path=checkpoint_path, **given)


def _add_meta_graph_for_mode(original: Any, self: Any, checkpoint_path: Any, **given: Any) -> Any:
    unfinished_exports.note(self, given["builder"])
    try:
        with _watch(self, "export", checkpoint_path=checkpoint_path).building(self):
            return original(self, checkpoint_path=checkpoint_path, **given)
    except checkpoint_files.MissingCheckpoint as error:
        # Programs may look for tensorflow-estimator's own sentence.
        raise checkpoint_files.MissingCheckpoint(
            f"Could not load all requested variables from checkpoint. {error.message}"
        ) from None
