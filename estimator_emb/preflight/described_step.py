"""Builds the dense step of a program as a TPU core runs it, without a TPU.

An emulated TPU reads the input and calls model_fn. Here TensorFlow's own
`tpu.split_compile_and_replicate` surrounds model_fn, so shards, variables, control flow and outside
compilation are as on a TPU. Control flow has its v2 form, because TensorFlow converts v1 control
flow before it compiles for a TPU. The arguments of the step are the features, the labels and the
activations of embedding tables. The gradients of the activations are results. Refusals of the
emulated TPU are collected, so that the rest of the step is checked too.
"""

import contextlib
import copy
import dataclasses
import logging
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import tensorflow as tf

from estimator_emb.backends import driver, tpu_checks
from estimator_emb.backends.base import EstimatorRequest, Function
from estimator_emb.backends.emulated.backend import EmulatedTPU
from estimator_emb.backends.emulated.copies import CoreCopies
from estimator_emb.backends.emulated.emulated_step import CoresOfTPU
from estimator_emb.backends.xla import core_step
from estimator_emb.catalog import limits
from estimator_emb.catalog.slices import CORES_PER_HOST, Slice
from estimator_emb.compat import custom_gradients
from estimator_emb.compat.internals.estimators import ModeKeys
from estimator_emb.compat.internals.graphs import data_nest, fn_args, not_converted
from estimator_emb.compat.internals.tpu import split_compile_and_replicate
from estimator_emb.compat.internals.tpu_estimator import (
    OutfeedHostCall,
    TPUEstimatorReplicaContext,
)
from estimator_emb.engine.engine import PendingLookup, TableStep
from estimator_emb.estimator import TPUEstimator
from estimator_emb.guards.call import Runs
from estimator_emb.guards.checks.program_checks import takes
from estimator_emb.guards.events import ModelBatch
from estimator_emb.preflight import described, program_lines
from estimator_emb.preflight.report import CannotCheck, Finding
from estimator_emb.reporting import error_notes
from estimator_emb.spec.options import CannotEmulate

MODES = (ModeKeys.TRAIN, ModeKeys.EVAL, ModeKeys.PREDICT)
_NEEDED = {
    ModeKeys.TRAIN: ("loss", "train_op"),
    ModeKeys.EVAL: ("loss",),
    ModeKeys.PREDICT: ("predictions",),
}
CLUSTER = "_tpu_replicate"
"""The attribute of the ops that run on a TPU."""


@dataclasses.dataclass
class Step:
    """The graph of a step, in a TPU cluster. `complete` is False if it could not be built.

    Attributes:
      ids: the type specs of the ids and weights that tables look up, by feature.
      of_host: the ops that the functions of host_call and eval_metrics make.
    """

    graph: tf.Graph
    mode: str
    replicas: int
    batch: int = 0
    arguments: list[tf.Tensor] = dataclasses.field(default_factory=list)
    results: list[tuple[str, tf.Tensor]] = dataclasses.field(default_factory=list)
    train_op: tf.Operation | None = None
    of_host: list[tf.Operation] = dataclasses.field(default_factory=list)
    findings: list[Finding] = dataclasses.field(default_factory=list)
    complete: bool = False
    ids: dict[str, Any] = dataclasses.field(default_factory=dict)


def build(
    estimator: TPUEstimator, input_fn: Callable[..., Any], mode: str, replicas: int = CORES_PER_HOST
) -> Step:
    """Builds a step by calling input_fn as often as a TPU does, and model_fn once."""
    step = Step(tf.Graph(), mode, replicas)
    with limits.collected() as refusals, described.silent():
        try:
            _build(estimator, input_fn, step)
        except Exception as error:
            # A function of the program may fail because of a finding about its input. It may also
            # assign a reference variable. TensorFlow refuses that, and `static` reports it.
            reference = "Non-resource Variables are not supported" in str(error.__cause__)
            if not (refusals or reference):
                if isinstance(error, (CannotCheck, CannotEmulate)):
                    raise
                step.findings.append(program_lines.refusal(error))
    step.findings[:0] = dict.fromkeys(map(program_lines.broken, refusals))
    return step


def _build(estimator: TPUEstimator, input_fn: Callable[..., Any], step: Step) -> None:
    backend = _DescribedTPU(estimator.backend.request, step.replicas)
    made = copy.copy(estimator)
    made.backend, made._config = backend, backend.constructor_arguments()["config"]
    backend.attach(made)
    with (
        made._ctx.with_mode(step.mode) as context,
        step.graph.as_default(),
        custom_gradients.ending_with_graph(),
        core_step.control_flow_v2(),
    ):
        step.batch = context.batch_size_for_model_fn
        tf.compat.v1.set_random_seed(made.config.tf_random_seed)
        made._create_and_assert_global_step(step.graph)
        graph, config, params = made.watched(step.mode), made.config, made.params
        core = _Core(step, graph, backend.executor, made, context, config, params, input_fn)
        driver.drive(core, backend.tables(core, context))


class _Cores(CoreCopies):
    runs = Runs.DESCRIBED
    takes_out = True

    def __init__(self, replicas: int):
        self._replicas = replicas

    def shape(self, tpu_config: Any, has_tables: bool) -> Slice:
        return described.slice_of(self._replicas, tpu_config.num_cores_per_replica)


class _DescribedTPU(EmulatedTPU):
    """An emulated TPU that is only described, so its step can be built for any number of cores."""

    def __init__(self, request: EstimatorRequest, replicas: int):
        self.executor = _Cores(replicas)
        super().__init__(request, self.executor)
        tpu_config = self._config.tpu_config._replace(num_shards=replicas)
        self._config = self._config.replace(tpu_config=tpu_config)

    def tables(self, core: CoresOfTPU, context: Any) -> TableStep | None:
        return self._local.tables.step(core, core.place, context.own_batch_size)


def _acceptable(input_fn: Function, taken: set[str], context: Any, step: Step) -> Function:
    """Returns input_fn without the values that a TPU refuses, and with static shapes.

    `taken` are the features that tables look up. Their specs are added to the step.
    """

    def on_core(element: Any) -> Any:
        features, *rest = element if isinstance(element, tuple) else (element,)
        ids: dict[str, Any] = {}
        if isinstance(features, Mapping):
            ids = _wide({key: one for key, one in features.items() if key in taken})
            step.ids.update({key: tf.type_spec_from_value(one) for key, one in ids.items()})
            features = {key: one for key, one in features.items() if key not in taken}
        batch = {"features": features, **dict(zip(("labels",), rest, strict=False))}
        tpu_checks.check_infeed(batch, context.num_replicas)
        tpu_checks.check_static(batch, whole=context.mode == ModeKeys.PREDICT)
        for value in data_nest.flatten(batch):
            if isinstance(value, tf.Tensor) and value.shape.rank:
                size = context.batch_size_for_input_fn if value.shape[0] is None else None
                value.set_shape([size, *[None] * (value.shape.rank - 1)])
        if isinstance(features, Mapping):
            dense = {key: one for key, one in features.items() if not _is_sparse(one)}
            features = {**dense, **ids}
        return (features, *rest) if isinstance(element, tuple) else features

    def for_core(**kwargs: Any) -> Any:
        with error_notes.explained(program_lines.failed, "input_fn"):
            made = input_fn(**kwargs)
        if not isinstance(made, tf.data.Dataset):
            return on_core(made)
        is_tuple = isinstance(made.element_spec, tuple)
        return made.map(not_converted(lambda *parts: on_core(parts if is_tuple else parts[0])))

    return takes(for_core, fn_args(input_fn))


def _is_sparse(value: Any) -> bool:
    return isinstance(value, (tf.RaggedTensor, tf.SparseTensor))


def _wide(features: dict[str, Any]) -> dict[str, Any]:
    """Casts small integers as a TPU's host does if another feature has int32 or int64."""
    types = {one.dtype for one in features.values()}
    if not types & {tf.int32, tf.int64}:
        return features
    return {
        key: tf.cast(one, tf.int64) if one.dtype.is_integer else one
        for key, one in features.items()
    }


class _Core(CoresOfTPU):
    """Core 0 of a described TPU. It builds the `Step`."""

    def __init__(self, step: Step, *args: Any):
        super().__init__(*args)
        self._taken = step

    def feed(self, tables: TableStep | None) -> ModelBatch:
        taken = tables.consumed if tables else set()
        input_fn = _acceptable(self._input_fn, taken, self._ctx, self._taken)
        self._input_fn = self._estimator._call_input_fn(input_fn, self._taken.mode)
        batch = super().feed(tables)
        parts = batch.features if batch.labels is None else (batch.features, batch.labels)
        parts = data_nest.map_structure(tf.identity, parts)
        self._taken.arguments += data_nest.flatten(parts)
        features, labels = (parts, None) if batch.labels is None else parts
        return dataclasses.replace(batch, features=features, labels=labels)

    def check(self, batch: ModelBatch, pending: PendingLookup | None) -> None:
        super().check(batch, pending)
        self._pending = pending
        if pending:
            stand_ins = [of_cores[0] for of_cores in pending.stand_ins.values()]
            self._taken.arguments[:0] = [*stand_ins, *pending.others.values()]

    @contextlib.contextmanager
    def running(self) -> Iterator[None]:
        yield  # `call` enters TensorFlow's own context.

    def call(self, batch: ModelBatch) -> Any:
        returned = []

        def computation(replica: tf.Tensor) -> tf.Tensor:
            with (
                TPUEstimatorReplicaContext(tf.reshape(replica, [])),
                error_notes.explained(program_lines.failed, "model_fn"),
                described.silent(logging.NOTSET),
            ):
                returned.append(super(_Core, self).call(batch))
            if self._pending and self._taken.mode == ModeKeys.TRAIN:
                rates, multiplier = self._pending.rates()
                self._results("learning rate", dict(enumerate(rates)))
                if multiplier is not None:
                    self._results("gradient multiplier", {"": multiplier})
            return tf.zeros([])

        replica = tf.compat.v1.placeholder(tf.int32, [])
        self._taken.arguments.append(replica)
        split_compile_and_replicate(computation, [[replica]] * self._taken.replicas)
        for op in self._taken.graph.get_operations():
            if CLUSTER in op.node_def.attr:
                self._computation.add(op)
        return returned[0]

    def _results(self, name: str, tensors: Mapping[Any, Any]) -> None:
        named = ((f"{name}[{key!r}]", tf.convert_to_tensor(one)) for key, one in tensors.items())
        self._taken.results.extend(named)

    def replicate(self, spec: Any, pending: PendingLookup | None) -> driver.Replicas:
        step, mode = self._taken, self._taken.mode
        for name in _NEEDED[mode]:
            if getattr(spec, name) is None:
                raise CannotCheck(f"model_fn returned no {name} in mode {mode!r}.")
        if mode == ModeKeys.TRAIN:
            step.train_op = getattr(spec.train_op, "op", spec.train_op)
        else:
            tpu_checks.check_spec(spec, "evaluation" if mode == ModeKeys.EVAL else "prediction")
        if mode == ModeKeys.PREDICT:
            self._wrapper._verify_tpu_spec_predictions(spec.predictions)
            self._outfed("predictions", spec.predictions)
        else:
            tpu_checks.check_loss(spec.loss, mode == ModeKeys.TRAIN)
            self._results("loss", {"": spec.loss})
        if pending and pending.capture:
            self._results("gradient of", pending.capture.gradients)
        step.complete = True
        calls = ("host_call", "eval_metrics") if mode == ModeKeys.EVAL else ("host_call",)
        for name in calls:
            call = getattr(spec, name, None)
            if call:
                OutfeedHostCall.validate({name: call})
                self._values = self._outfed(name, call[1])
                before = len(step.graph.get_operations())
                with tf.name_scope(name):
                    self._on_host(name, call)
                step.of_host += step.graph.get_operations()[before:]
        self._scaffold(getattr(spec, "scaffold_fn", None))
        return driver.Replicas(spec, losses=(), has_tables=False)

    def step(self, spec: Any, after: Any) -> Any:
        return spec

    def _outfed(self, name: str, tensors: Any) -> dict[str, dict[Any, list[tf.Tensor]]]:
        """Adds tensors that leave the core to the results. Returns them as the host gets them."""
        by_key = tensors if isinstance(tensors, Mapping) else dict(enumerate(tensors))
        self._results(name, by_key)
        whole = {}
        for key, tensor in by_key.items():
            tensor = tf.convert_to_tensor(tensor)
            tpu_checks.check_outfed(tensor, name)
            if not tensor.shape.is_fully_defined():
                limits.refuse("dynamic outfeed", tensor, owner=name, shape=tensor.shape)
            of_core = tensor.shape.as_list() if tensor.shape.rank else [1]
            batch = of_core[0] and of_core[0] * self._taken.replicas
            whole[key] = [tf.compat.v1.placeholder(tensor.dtype, [batch, *of_core[1:]])]
        return {name: whole}
