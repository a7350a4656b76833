"""Checks early what a program passes to a TPUEstimator.

tensorflow-estimator would accept most mistakes, and fail later or never.
"""

import contextlib
import inspect
import numbers
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np
import tensorflow as tf

from estimator_emb.checks import activations, input_errors, optimizers
from estimator_emb.messages import console, errors
from estimator_emb.messages.arguments import suggest, suggestion
from estimator_emb.messages.console import logger
from estimator_emb.optimizers import OptimizationParameters
from estimator_emb.private.estimator import AnyTPUEstimatorSpec, EstimatorSpec, ModeKeys
from estimator_emb.private.graphs import fn_args, has_kwargs
from estimator_emb.private.tpu_estimator import TPUEstimatorSpec
from estimator_emb.spec import config
from estimator_emb.tables import scopes
from estimator_emb.tables.functions import name_of

BATCH_SIZES = {
    ModeKeys.TRAIN: "train_batch_size",
    ModeKeys.EVAL: "eval_batch_size",
    ModeKeys.PREDICT: "predict_batch_size",
}
"""Mode -> the argument of `TPUEstimator` with its batch size."""

_INPUT_ARGUMENTS = ("params", "config", "mode", "input_context")
_MODEL_ARGUMENTS = ("features", "labels", "mode", "params", "config", "self")
_METHODS = ("minimize", "apply_gradients", "compute_gradients")
_READS = {"Identity", "IsVariableInitialized", "ReadVariableOp", "VarIsInitializedOp"}
_WITHOUT_COUNTERS = ("estimator_emb", "tensorflow", "tensorflow_estimator")
_OF_TENSORS = re.compile(r"\b(d?types?|shapes?|dimensions?|rank)\b", re.IGNORECASE)
"""In an error: it is about the types or shapes of tensors."""
_DATASETS = (tf.data.Dataset, tf.compat.v1.data.Dataset)


class Params(dict):
    """A program's `params`, whose errors name a missing key or a bad batch size."""

    mode: str | None = None

    def __getitem__(self, key: Any) -> Any:
        value = super().__getitem__(key)
        if key == "batch_size" and self.mode in BATCH_SIZES:
            check_batch_sizes(**{BATCH_SIZES[self.mode]: value})
        return value

    def __missing__(self, key: Any) -> Any:
        if key == "batch_size" and self.mode in BATCH_SIZES:
            raise KeyError(
                f"params has no 'batch_size' in mode {self.mode!r}: TPUEstimator was given no "
                f"{BATCH_SIZES[self.mode]}."
            )
        advice = suggestion(key, self)
        raise KeyError(f"params has no {key!r}; it has {sorted(map(str, self))}.{advice}")


def checked_params(params: Any) -> Any:
    """Returns the `params` of a program; a dict becomes `Params`."""
    if type(params) is dict:
        return Params(params)
    if not isinstance(params, (Mapping, type(None))) and not hasattr(params, "set_hparam"):
        raise TypeError(f"TPUEstimator: params must be a dict; got {params!r}.")
    return params


def check_batch_sizes(**sizes: Any) -> None:
    """Raises TypeError or ValueError unless all batch sizes are positive integers or None."""
    for name, size in sizes.items():
        if size is None:
            continue
        if not isinstance(size, numbers.Integral) or isinstance(size, bool):
            raise TypeError(f"TPUEstimator: {name} must be int, got {type(size)}: {size!r}.")
        if size < 1:
            raise ValueError(f"TPUEstimator: {name} must be positive, got {size!r}.")


def is_batch_size(size: Any) -> bool:
    """Returns whether a batch can have this size: off a TPU, bad sizes may be given and unused."""
    try:
        check_batch_sizes(size=size)
    except (TypeError, ValueError):
        return False
    return size is not None


def checked_callable(model_fn: Any) -> Callable[..., Any]:
    """Returns `model_fn` if it is a function with the arguments of a model_fn."""
    if model_fn is None:
        raise ValueError("model_fn must be provided to Estimator.")
    if not callable(model_fn):
        raise TypeError(f"TPUEstimator: model_fn must be a function; got {model_fn!r}.")
    owner = f"model_fn ({name_of(model_fn)})"
    arguments = fn_args(model_fn)
    if "features" not in arguments:
        raise ValueError(f"{owner} must include features argument; it takes {list(arguments)}.")
    unknown = [name for name in arguments if name not in _MODEL_ARGUMENTS]
    if unknown:
        close = suggestion(unknown[0], _MODEL_ARGUMENTS[:-1])
        raise ValueError(
            f"{owner} has following not expected args: {unknown}. A model_fn takes features, "
            "labels, mode, params and config; give it other values by params, or by "
            f"functools.partial.{close}"
        )
    return model_fn


def check_takes_params(model_fn: Any, has_batch_size: bool) -> None:
    """Raises tensorflow-estimator's ValueError if a model_fn cannot receive the batch size."""
    if has_batch_size and "params" not in fn_args(model_fn):
        raise ValueError(
            f"model_fn ({name_of(model_fn)}) does not include params argument, required by "
            "TPUEstimator to pass batch size as params['batch_size']."
        )


def checked_input_fn(input_fn: Any, needs_dict: bool, on_cores: bool) -> Callable[..., Any]:
    """Wraps a program's input_fn in a check of what it returns.

    `needs_dict` is for an `EmbeddingConfigSpec`, which looks features up by key, and `on_cores` for
    input that is divided over emulated cores. Raises TypeError if `input_fn` is not callable or has
    an unknown required argument, and ValueError if it does not take `params`.
    """
    if isinstance(input_fn, _DATASETS) or not callable(input_fn):
        got = "a Dataset" if isinstance(input_fn, _DATASETS) else repr(input_fn)
        raise TypeError(
            "input_fn must be a function of params that returns a Dataset, or features and labels; "
            f"got {got}. Give the function itself, and make the Dataset inside of it."
        )
    owner = f"input_fn ({name_of(input_fn)})"
    arguments = fn_args(input_fn)
    takes_any = has_kwargs(input_fn)
    if "params" not in arguments and not takes_any:
        raise ValueError(
            f"{owner} does not include params argument, required by TPUEstimator to pass batch "
            'size as params["batch_size"].'
        )
    for name in _required(input_fn):
        if name not in _INPUT_ARGUMENTS:
            raise TypeError(
                f"{owner} takes the argument {name!r}, which TPUEstimator does not give: it gives "
                f"params, config, mode and input_context. Give it a value by functools.partial."
            )

    def checked(**kwargs: Any) -> Any:
        returned = input_fn(**kwargs)
        _check_input(owner, returned, needs_dict, on_cores)
        if isinstance(returned, _DATASETS):
            input_errors.note_dataset(returned)
        return returned

    return takes(checked, arguments)


def _required(function: Callable[..., Any]) -> list[str]:
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return []
    kinds = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    return [
        parameter.name
        for parameter in parameters
        if parameter.kind in kinds and parameter.default is parameter.empty
    ]


def _check_input(owner: str, returned: Any, needs_dict: bool, on_cores: bool) -> None:
    must = f"{owner} must return a Dataset, or features and labels"
    if returned is None:
        raise ValueError(f"{must}; it returned None. Is its `return` missing?")
    structure = returned
    if isinstance(returned, _DATASETS):
        structure = returned.element_spec
    elif inspect.isgenerator(returned) or isinstance(returned, (str, bytes)):
        raise TypeError(
            f"{must}; it returned a {type(returned).__name__}. For Python's values, see "
            "tf.data.Dataset.from_generator."
        )
    elif hasattr(returned, "get_next"):
        raise TypeError(
            f"{must}; it returned an iterator, {type(returned).__name__}. Return the Dataset, or "
            "what get_next() returns."
        )
    features, labels = structure, None
    if isinstance(structure, (tuple, list)):
        if len(structure) != 2 and not hasattr(structure, "_fields"):
            raise ValueError(
                f"{owner}: input_fn should return (features, labels) as a len 2 tuple; got "
                f"{len(structure)} parts."
            )
        if len(structure) == 2:
            features, labels = structure
    if needs_dict and not isinstance(features, Mapping):
        swapped = " Are features and labels swapped?" if isinstance(labels, Mapping) else ""
        raise ValueError(
            "With an EmbeddingConfigSpec, input_fn must return its features as a dict; "
            f"{owner} returned {_kind(features)}.{swapped}"
        )
    if on_cores and not isinstance(returned, _DATASETS):
        leaves = tf.nest.flatten(returned)
        if any(isinstance(leaf, (np.ndarray, np.generic, int, float)) for leaf in leaves):
            raise TypeError(
                f"{owner} returned NumPy arrays or numbers, which cannot be divided over the cores "
                "of a TPU; return tensors, or a Dataset."
            )


def _kind(value: Any) -> str:
    if tf.is_tensor(value) or isinstance(value, tf.TypeSpec):
        return "a tensor"
    return f"a {type(value).__name__}"


def checked_model_fn(
    model_fn: Callable[..., Any],
    tables: list[Any],
    has_spec: bool,
    needs_batch: Callable[[str], bool],
) -> Callable[..., Any]:
    """Checks what model_fn returns; `needs_batch` tells which predictions have a row a sample."""
    arguments = list(fn_args(model_fn))
    owner = f"model_fn ({name_of(model_fn)})"

    def checked(features: Any, mode: str, **kwargs: Any) -> Any:
        if "mode" in arguments:
            kwargs["mode"] = mode
        with (
            optimizers.watched(has_spec),
            errors.explained(_explain, features, tables, has_spec),
            errors.explained(input_errors.explain_labels, mode, kwargs.get("labels")),
        ):
            returned = model_fn(features=features, **kwargs)
        _check_columns(tables, has_spec)
        activations.warn_of_ids(features, tables)
        return _checked_spec(owner, returned, mode, needs_batch)

    return takes(checked, dict.fromkeys([*arguments, "mode"]))


def _checked_spec(owner: str, returned: Any, mode: str, needs_batch: Callable[[str], bool]) -> Any:
    if not isinstance(returned, (EstimatorSpec, AnyTPUEstimatorSpec)):
        got = "None. Is its `return` missing?" if returned is None else f"{_short(returned)}."
        raise ValueError(
            f"model_fn should return an EstimatorSpec. In mode {mode!r}, {owner} returned {got}"
        )
    if returned.mode != mode:
        raise ValueError(
            f"{owner} was called with mode {mode!r}, and returned a {type(returned).__name__} of "
            f"mode {returned.mode!r}. Pass it the mode that model_fn is given."
        )
    if mode == ModeKeys.PREDICT:
        _check_predictions(owner, returned, needs_batch)
    metrics = getattr(returned, "eval_metrics", None)
    if mode == ModeKeys.EVAL and isinstance(metrics, (tuple, list)) and callable(metrics[0]):
        function, *tensors = metrics
        # The constructor sets fields that `_replace` would leave out.
        fields = {**returned._asdict(), "eval_metrics": (_checked_metrics(function), *tensors)}
        returned = type(returned)(**fields)
    return returned


def _check_predictions(owner: str, spec: Any, needs_batch: Callable[[str], bool]) -> None:
    predictions = spec.predictions
    by_name = predictions if isinstance(predictions, Mapping) else {"": predictions}
    for name, tensor in by_name.items():
        if getattr(getattr(tensor, "shape", None), "rank", None) == 0 and needs_batch(name):
            what = f"predictions[{name!r}]" if name else "predictions"
            raise ValueError(
                f"{owner}: {what} is a scalar, {tensor.name}; it must have the batch as its first "
                "dimension, for predict hands it out one example at a time."
            )


def _checked_metrics(function: Callable[..., Any]) -> Callable[..., Any]:
    def checked(*args: Any, **kwargs: Any) -> Any:
        metrics = function(*args, **kwargs)
        if not isinstance(metrics, Mapping):
            missing = " Is its `return` missing?" if metrics is None else ""
            raise TypeError(
                f"eval_metrics: metric_fn ({name_of(function)}) must return a dict of metrics; it "
                f"returned {_short(metrics)}.{missing}"
            )
        return metrics

    with contextlib.suppress(TypeError, ValueError):  # Some functions written in C have none.
        checked.__signature__ = inspect.signature(function)  # type: ignore[attr-defined]
    return checked


def _explain(error: Exception, features: Any, tables: list[Any], has_spec: bool) -> None:
    if isinstance(error, KeyError):
        key = error.args[0] if len(error.args) == 1 else None
        is_name = isinstance(key, str) and key.isidentifier()
        if isinstance(features, Mapping) and is_name and key not in features:
            error.args = (
                f"{key!r}. The features that model_fn is given are {sorted(features)}."
                f"{suggestion(key, features)}",
            )
    elif isinstance(error, AttributeError):
        owner = getattr(error, "obj", None)
        if error.name in _METHODS and isinstance(owner, OptimizationParameters):
            error.args = (
                f"{type(owner).__name__!r} object has no attribute {error.name!r}: it trains "
                "embedding tables, as optimization_parameters of an EmbeddingConfigSpec. For the "
                "other variables, use an optimizer of tf.compat.v1.train.",
            )
        elif error.name in _METHODS and type(owner).__module__.startswith("keras"):
            error.args = (
                f"{type(owner).__name__!r} object has no attribute {error.name!r}. "
                f"{optimizers.ADVICE}",
            )
        else:
            activations.explain(error, features, tables)
    elif isinstance(error, (TypeError, ValueError)):
        _check_columns(tables, has_spec)
        given = features if isinstance(features, Mapping) else ()
        ids = sorted(config.features_of_dicts.intersection(given))
        if ids and not has_spec and _OF_TENSORS.search(str(error)):
            error.args = (
                f"{error} TPUEstimator was given no embedding_config_spec, so that model_fn gets "
                f"features {ids} as input_fn yields them, not their activations: give it the "
                "EmbeddingConfigSpec whose feature_to_config_dict has them.",
            )
        else:
            suggest(error, TPUEstimatorSpec, EstimatorSpec)
            activations.explain(error, features, tables)


def _check_columns(tables: list[Any], has_spec: bool) -> None:
    unknown = sorted(set(scopes.recorded()) - {table.scope_key for table in tables})
    if unknown:
        missing = (
            "which are not in the EmbeddingConfigSpec: add them to its feature_columns. It has the "
            f"tables {sorted(table.name for table in tables)}."
            if has_spec
            else "but TPUEstimator was given no embedding_config_spec: give it one with these "
            "columns."
        )
        raise ValueError(f"model_fn uses the TPU embedding columns of tables {unknown}, {missing}")


def check_global_step(must_count: bool, hooks: Iterable[type]) -> None:
    """Warns if nothing in the default graph changes the global step.

    With `must_count`, where training would never end, it raises ValueError instead, unless one of
    the `hooks`, classes, is the program's own and may change the step.
    """
    if _has_counter():
        console.counts_steps(tf.compat.v1.get_default_graph())
        return
    others = [
        hook.__name__ for hook in hooks if hook.__module__.split(".")[0] not in _WITHOUT_COUNTERS
    ]
    unless = f", unless one of the hooks does ({', '.join(others)})" if others else ""
    wrong = (
        "The train_op of model_fn does not increase the global step, so that training would never "
        f"end{unless}: the global step (tf.train.get_global_step) has not been increased. Pass "
        "tf.compat.v1.train.get_global_step() as global_step to minimize or apply_gradients; give "
        "it to a Keras optimizer as its iterations."
    )
    if must_count and not others:
        raise ValueError(wrong)
    logger.warning(wrong)


def _has_counter() -> bool:
    step = tf.compat.v1.train.get_global_step()
    try:
        tensor = step.handle if hasattr(step, "handle") else step.op.outputs[0]
        initial = step.initializer
        return any(op is not initial and _may_assign(op) for op in tensor.consumers())
    except AttributeError:
        return True  # A variable of a distribution strategy.


def _may_assign(op: Any) -> bool:
    functions = [
        name for name in (attribute.func.name for attribute in op.node_def.attr.values()) if name
    ]
    if not functions:
        return op.type not in _READS
    for name in functions:
        definition = op.graph._get_function(name)
        nodes = getattr(getattr(definition, "definition", None), "node_def", None)
        # Functions that it calls may assign too; they are not searched.
        if nodes is None or any(
            "Assign" in node.op or any(attribute.func.name for attribute in node.attr.values())
            for node in nodes
        ):
            return True
    return False


def takes(function: Callable[..., Any], arguments: Any) -> Callable[..., Any]:
    """Sets the signature of `function` to these arguments, for tensorflow-estimator to read."""
    kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
    function.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
        [inspect.Parameter(name, kind) for name in arguments]
    )
    return function


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 80 else f"a {type(value).__name__}"
