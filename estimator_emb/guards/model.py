"""Checks a model_fn: its arguments, its optimizers, its errors, its value and its ops."""

import contextlib
import contextvars
import gc
import inspect
import linecache
import logging
import re
import sys
import traceback
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import tensorflow as tf

from estimator_emb.compat.internals import patches
from estimator_emb.compat.internals.estimators import AnyTPUEstimatorSpec, EstimatorSpec, ModeKeys
from estimator_emb.compat.internals.graphs import fn_args
from estimator_emb.engine.tables.functions import name_of
from estimator_emb.guards.call import Call
from estimator_emb.guards.checks import tpu_ops
from estimator_emb.guards.events import Event, Facts, on
from estimator_emb.optimizers import OptimizationParameters
from estimator_emb.reporting import console, frames
from estimator_emb.reporting.suggestions import suggestion
from estimator_emb.spec.config import EmbeddingConfigSpec

_ADVICE = (
    "A Keras optimizer does not train in a model_fn: use an optimizer of tf.compat.v1.train, such "
    "as tf.compat.v1.train.AdamOptimizer, or estimator_emb.keras.Adagrad."
)
_SCALING = tf.compat.v1.mixed_precision.MixedPrecisionLossScaleOptimizer
_has_tables: contextvars.ContextVar[bool | None] = contextvars.ContextVar("tables", default=None)
"""Whether the model_fn that this thread runs has tables. None outside of a model_fn."""

_METHODS = ("minimize", "apply_gradients", "compute_gradients")
_OF_TENSORS = re.compile(r"\b(d?types?|shapes?|dimensions?|rank)\b", re.IGNORECASE)
"""Matches an error about the types or shapes of tensors."""
_OF_COLUMN = re.compile(r"Feature (.+) is not in features dictionary")

_COMBINE = frozenset(
    ("Add", "AddV2", "Maximum", "Minimum", "Mul", "Pow", "RealDiv", "SquaredDifference", "Sub")
)
_SIZES = frozenset(("Rank", "Shape", "ShapeN", "Size"))
"""Ops with outputs that do not depend on the values of their inputs."""


@on(
    Event.GRAPH_BEGINS,
    when=lambda call: call.ours and not call.exporting and call.batch_size is not None,
)
def takes_params(call: Call) -> None:
    """Rejects a model_fn that cannot receive the batch size."""
    if "params" not in fn_args(call.model_fn):
        raise ValueError(
            f"model_fn ({name_of(call.model_fn)}) does not include params argument, required by "
            "TPUEstimator to pass batch size as params['batch_size']."
        )


@on(Event.MODEL_RUNS, when=lambda call: call.ours)
@contextlib.contextmanager
def wrong_optimizers(facts: Facts) -> Iterator[None]:
    """Makes optimizers raise ValueError if they would train nothing, or train tables wrongly.

    In a v1 graph, Keras's `apply_gradients` returns no op that runs the update. A program that
    groups its result with an increment of the global step would train to the end without changing
    a variable.

    For float16, some optimizers scale the loss and unscale only the gradients of their own
    variables. Tables would then train by the scaled loss.
    """
    _wrap(tf.keras.optimizers.experimental.Optimizer, "minimize", _is_keras)
    _wrap(tf.keras.optimizers.experimental.Optimizer, "apply_gradients", _is_keras)
    # A legacy optimizer works with given gradients, and with a function as the loss.
    _wrap(tf.keras.optimizers.legacy.Optimizer, "minimize", _is_keras_without_tape)
    third = sys.modules.get("keras")
    if getattr(third, "__version__", "").startswith("3."):
        base = getattr(third, "optimizers").Optimizer  # noqa: B009 - unknown to mypy.
        _wrap(base, "apply", _is_keras)
        _wrap(base, "apply_gradients", _is_keras)
    _wrap(_SCALING, "compute_gradients", _scales_loss_of_tables)
    before = _has_tables.set(facts.call.has_spec)
    try:
        yield
    finally:
        _has_tables.reset(before)


def _wrap(cls: Any, name: str, problem: Callable[..., str | None]) -> None:
    # Keras splits its base class in two, and only the derived class is public.
    cls = next((base for base in cls.__mro__ if name in vars(base)), cls)
    if name not in vars(cls):
        return

    def make(function: Callable[..., Any]) -> Callable[..., Any]:
        def watched(self: Any, *args: Any, **kwargs: Any) -> Any:
            wrong = problem(self, *args, **kwargs) if _has_tables.get() is not None else None
            if wrong:
                raise ValueError(wrong.format(optimizer=type(self).__name__, method=name))
            return function(self, *args, **kwargs)

        return watched

    patches.LASTING.wrap(cls, name, make)


def _is_keras(optimizer: Any, *args: Any, **kwargs: Any) -> str | None:
    from estimator_emb import keras

    trains = isinstance(optimizer, keras.Adagrad)
    if trains or not keras._in_v1_graph() or not keras._unordered():
        return None
    return f"{{optimizer}}.{{method}}: {_ADVICE}"


def _is_keras_without_tape(
    optimizer: Any, loss: Any = None, var_list: Any = None, *args: Any, **kwargs: Any
) -> str | None:
    if callable(loss) or kwargs.get("tape") is not None:
        return None
    return _is_keras(optimizer)


def _scales_loss_of_tables(optimizer: Any, *args: Any, **kwargs: Any) -> str | None:
    if not _has_tables.get():
        return None
    return (
        "{optimizer} scales the loss, and embedding tables would train by the scaled loss. Give "
        "the optimizer that it wraps, without enable_mixed_precision_graph_rewrite: compute in "
        "bfloat16, which needs no scale, or in float32."
    )


@on(Event.MODEL_FAILED, when=lambda call: call.in_session)
def model_errors(facts: Facts, error: Exception) -> None:
    """Explains a missing feature, a wrong optimizer, and a missing EmbeddingConfigSpec."""
    assert facts.batch is not None
    features = facts.batch.seen
    if isinstance(error, KeyError):
        key = error.args[0] if len(error.args) == 1 else None
        if isinstance(key, str) and key.isidentifier() and not _reads_params(error):
            given = _given_features(key, features)
            error.args = (f"{key!r}. {given}" if given else key,)
    elif isinstance(error, AttributeError):
        owner = getattr(error, "obj", None)
        if error.name in _METHODS and isinstance(owner, OptimizationParameters):
            error.args = (
                f"{type(owner).__name__!r} object has no attribute {error.name!r}: it trains "
                "embedding tables, as optimization_parameters of an EmbeddingConfigSpec. For "
                "the other variables, use an optimizer of tf.compat.v1.train.",
            )
        elif error.name in _METHODS and type(owner).__module__.startswith("keras"):
            error.args = (
                f"{type(owner).__name__!r} object has no attribute {error.name!r}. {_ADVICE}",
            )
    elif missing := _OF_COLUMN.search(str(error)):
        error.args = (f"{str(error).rstrip()} {_given_features(missing[1], features)}".rstrip(),)
    elif isinstance(error, (TypeError, ValueError)) and facts.call.ours:
        may_lack_spec = not facts.call.has_spec and _OF_TENSORS.search(str(error))
        if may_lack_spec and (ids := _looked_up_elsewhere(features)):
            error.args = (
                f"{error} TPUEstimator was given no embedding_config_spec, so that model_fn "
                f"gets features {ids} as input_fn yields them, not their activations: give it "
                "the EmbeddingConfigSpec whose feature_to_config_dict has them.",
            )


def _given_features(missing: str, features: Any) -> str:
    """Returns advice about a feature that is not in a batch, or ''."""
    if not isinstance(features, Mapping) or missing in features:
        return ""
    names = sorted(map(str, features))
    return f"The features that model_fn is given are {names}.{suggestion(missing, names)}"


def _reads_params(error: Exception) -> bool:
    """Returns whether the line that raised `error` names `params`, so that it is no feature's."""
    frame, line = list(traceback.walk_tb(error.__traceback__))[-1]
    return "params" in linecache.getline(frame.f_code.co_filename, line)


def _looked_up_elsewhere(features: Any) -> list[str]:
    """Returns the features that are also keys of an EmbeddingConfigSpec in the program."""
    if not isinstance(features, Mapping):
        return []
    made = (one for one in gc.get_objects() if issubclass(type(one), EmbeddingConfigSpec))
    keys = {key for spec in made for key in spec.feature_to_config_dict or ()}
    return sorted(keys.intersection(features))


@on(Event.MODEL_RETURNED, when=lambda call: call.ours)
def model_values(facts: Facts, spec: Any) -> Any:
    """Rejects a wrong type or mode, and predictions without a batch dimension."""
    call = facts.call

    def needs_batch(name: str) -> bool:
        keys = call.predict_keys
        # Emulated cores always gather their predictions.
        return not call.exporting and (call.on_cores or keys is None or name in keys)

    return _checked_spec(f"model_fn ({name_of(call.model_fn)})", spec, call, needs_batch)


def _checked_spec(owner: str, returned: Any, call: Call, needs_batch: Callable[[str], bool]) -> Any:
    mode = call.mode
    if not isinstance(returned, (EstimatorSpec, AnyTPUEstimatorSpec)):
        got = "None. Is its `return` missing?" if returned is None else f"{_short(returned)}."
        raise ValueError(
            f"model_fn should return an EstimatorSpec. In mode {mode!r}, {owner} returned {got}"
        )
    untrained = call.training and returned.train_op is None
    # Without a TPU, tensorflow-estimator does not read the mode.
    if returned.mode != mode and (call.on_cores or untrained):
        raise ValueError(
            f"{owner} was called with mode {mode!r}, and returned a {type(returned).__name__} of "
            f"mode {returned.mode!r}. Pass it the mode that model_fn is given."
        )
    if call.on_cores and untrained:
        raise ValueError("Missing train_op.")
    if mode == ModeKeys.PREDICT:
        _check_predictions(owner, returned, needs_batch)
    metrics = getattr(returned, "eval_metrics", None)
    if mode == ModeKeys.EVAL and isinstance(metrics, (tuple, list)) and callable(metrics[0]):
        function, *tensors = metrics
        metric_fn = _checked_metrics(function, takes_keras=not call.on_cores)
        # The constructor sets fields that `_replace` would leave out.
        returned = type(returned)(**{**returned._asdict(), "eval_metrics": (metric_fn, *tensors)})
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


def _checked_metrics(function: Callable[..., Any], takes_keras: bool) -> Callable[..., Any]:
    def checked(*args: Any, **kwargs: Any) -> Any:
        metrics = function(*args, **kwargs)
        if not isinstance(metrics, Mapping):
            missing = " Is its `return` missing?" if metrics is None else ""
            raise TypeError(
                f"eval_metrics: metric_fn ({name_of(function)}) must return a dict of metrics; it "
                f"returned {_short(metrics)}.{missing}"
            )
        for name, metric in metrics.items():
            if not isinstance(name, str) or not _is_metric(metric):
                raise TypeError(
                    f"eval_metrics: metric_fn ({name_of(function)}) must return a dict of names "
                    "and pairs (value, update op), as functions of tf.compat.v1.metrics return, or "
                    f"Keras metrics; it returned {_short(metric)} for {name!r}."
                )
            if not takes_keras and not isinstance(metric, tuple):
                raise TypeError(
                    f"eval_metrics: metric_fn ({name_of(function)}) returned a Keras metric for "
                    f"{name!r}. A TPU takes only pairs (value, update op): use a function of "
                    "tf.compat.v1.metrics."
                )
        return metrics

    with contextlib.suppress(TypeError, ValueError):  # Some C functions have no signature.
        checked.__signature__ = inspect.signature(function)  # type: ignore[attr-defined]
    return checked


def _is_metric(metric: Any) -> bool:
    if hasattr(metric, "update_state"):  # Of any Keras.
        return True
    pair = isinstance(metric, tuple) and len(metric) == 2
    return pair and all(tf.is_tensor(one) or isinstance(one, tf.Operation) for one in metric)


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 80 else f"a {type(value).__name__}"


@on(Event.MODEL_RETURNED, when=lambda call: call.ours and call.exporting)
@on(Event.GRAPH_COMPLETED, when=lambda call: call.ours and not call.exporting)
def core_numbers(facts: Facts, spec: Any) -> None:
    """Rejects a model that asks for its core's number without a core.

    An export is checked earlier, before the graph for a TPU is added.
    """
    tpu_ops.check_core_numbers(facts.ops.by_type())


@on(Event.GRAPH_COMPLETED, when=lambda call: call.in_session and not call.exporting)
def spread_labels(facts: Facts, spec: Any) -> None:
    """Warns if labels [B] and predictions [B, 1] broadcast to a loss of all pairs [B, B].

    An intended loss of pairs is not warned about: both its sides come from labels or neither does,
    both have rank 2, or [B, 1] is made on the spot, by tf.expand_dims or [:, None].
    """
    losses = facts.losses_of(spec)
    if not losses:
        return
    ops = facts.ops.leading_to(losses[0])
    spreading = {op for op in ops if op.type in _COMBINE and _spreads(*op.inputs)}
    if not spreading:
        return
    tensors = [(name, value) for name, value in facts.inputs() if isinstance(value, tf.Tensor)]
    labels = {value.name for name, value in tensors if name.startswith("labels")}
    batch = {value.name for _, value in tensors}
    from_labels: set[tf.Operation] = set()
    from_batch: set[tf.Operation] = set()
    for op in ops:
        given = list(op.inputs)
        of_labels = [one.name in labels or one.op in from_labels for one in given]
        of_batch = [one.name in batch or one.op in from_batch for one in given]
        if op in spreading and all(of_batch) and any(of_labels) and not all(of_labels):
            label, other = given if of_labels[0] else given[::-1]
            _say_spread(op, label, other)
        if op.type in _SIZES:
            continue
        if any(of_labels):
            from_labels.add(op)
        if any(of_batch) or op.type == "IteratorGetNext":
            from_batch.add(op)


def _spreads(one: tf.Tensor, other: tf.Tensor) -> bool:
    flat, column = sorted((one, other), key=lambda tensor: tensor.shape.rank or 0)
    if flat.shape.rank != 1 or column.shape.rank != 2 or _is_made_in_place(column.op):
        return False
    (size,), (samples, width) = flat.shape.as_list(), column.shape.as_list()
    return width == 1 and size == samples != 1


def _is_made_in_place(op: tf.Operation) -> bool:
    return op.type == "ExpandDims" or (
        op.type == "StridedSlice" and op.get_attr("new_axis_mask") != 0
    )


def _say_spread(op: tf.Operation, label: tf.Tensor, other: tf.Tensor) -> None:
    console.say_once(
        f"The loss of model_fn is of all pairs of samples: {op.type} of {label.shape}, from labels,"
        f" and {other.shape} gives {op.outputs[0].shape}. Give both one shape, as by "
        f"tf.reshape(labels, [-1, 1]) or tf.squeeze(logits, 1). {frames.made_by(op)}",
        level=logging.WARNING,
    )
