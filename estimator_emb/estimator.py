# SPDX-License-Identifier: Apache-2.0
"""`TPUEstimator`: tensorflow-estimator's, with embedding tables that also train off a TPU.

Where it runs is said, never guessed:

* `use_tpu=False`: on the host.
* `use_tpu=True` and a request to emulate (`TPUConfig(device='host')`, or the environment variable
  ESTIMATOR_EMB_DEVICE=host): on the host, and the program sees what a TPU would show it.
* `use_tpu=True` otherwise: on a TPU, by tensorflow-estimator's own machinery. The tables are in its
  embedding hardware, or on its host where `TPUConfig(tables='host')` or the environment variable
  ESTIMATOR_EMB_TABLES=host says so.
"""

import inspect
import logging
from collections.abc import Callable, Iterable
from typing import Any

import tensorflow as tf
from tensorflow.python.util import function_utils
from tensorflow_estimator.python.estimator import model_fn as model_fn_lib
from tensorflow_estimator.python.estimator.tpu import tpu_config, tpu_estimator

from estimator_emb import config as config_lib
from estimator_emb import device, saver
from estimator_emb.engines import tpu_fed, tpu_generations, tpu_system
from estimator_emb.engines.context import HostContext
from estimator_emb.engines.cores import Cores
from estimator_emb.engines.emulation import EmulatedStep, EmulatedTPU, Reporting
from estimator_emb.engines.host import HostEngine, tables_of
from estimator_emb.tables import pipeline
from estimator_emb.tables.dropped import DroppedIds

logger = logging.getLogger("estimator_emb")


class TPUEstimator(tpu_estimator.TPUEstimator):
    """tensorflow-estimator's `TPUEstimator`, whose embedding tables train anywhere.

    With an `embedding_config_spec` on the host, `features[key]` is the activation of feature `key`
    in model_fn, as on a TPU core; the spec's optimizer trains the tables, and the program's own
    optimizer trains the rest. `params` holds 'batch_size', 'use_tpu' and 'context'.

    Args:
      See tensorflow-estimator's `TPUEstimator`; every argument keeps its name, order and default.

    Raises:
      ValueError, TypeError: as there, and for a bad `embedding_config_spec`.

    Source: `TPUEstimator` of tensorflow_estimator/python/estimator/tpu/tpu_estimator.py, 2.15.0.
    """

    def __init__(
        self,
        model_fn: Callable[..., Any] | None = None,
        model_dir: str | None = None,
        config: Any = None,
        params: dict[str, Any] | None = None,
        use_tpu: bool = True,
        train_batch_size: int | None = None,
        eval_batch_size: int | None = None,
        predict_batch_size: int | None = None,
        batch_axis: Any = None,
        eval_on_tpu: bool = True,
        export_to_tpu: bool = True,
        export_to_cpu: bool = True,
        warm_start_from: Any = None,
        embedding_config_spec: config_lib.EmbeddingConfigSpec | None = None,
        export_saved_model_api_version: Any = tpu_estimator.ExportSavedModelApiVersion.V1,
    ):
        if embedding_config_spec is not None:
            embedding_config_spec = config_lib.validated(embedding_config_spec)
        self._on_host = not use_tpu or device.asked(config) == "host"
        self._bad_ids = device.asked_bad_ids(config)
        if self._bad_ids == "drop" and not self._on_host:
            raise ValueError("bad_ids='drop' works on the host only: a TPU does not check ids.")
        self._emulated = use_tpu and self._on_host
        # Whether the model runs on a TPU and the tables on its host.
        self._fed = (
            not self._on_host
            and embedding_config_spec is not None
            and bool(tables_of(embedding_config_spec))
            and device.asked_tables(config) == "host"
        )
        self._spec = embedding_config_spec
        # As the program gave them, for `preflight`.
        self._program_model_fn, self._batch_axis = model_fn, batch_axis
        self._exporting = False
        self._asked_export_to_tpu = False
        if self._on_host or self._fed:
            if embedding_config_spec is not None:
                _check_host_spec(embedding_config_spec)
                if self._fed:
                    tpu_fed.check(config, embedding_config_spec)
            if self._emulated:
                config = device.emulated_config(config, embedding_config_spec)
            if self._emulated or embedding_config_spec is not None:
                # The metagraph for TPU holds ops that only a TPU's graph can have.
                self._asked_export_to_tpu = export_to_tpu
                export_to_tpu, export_to_cpu = False, export_to_cpu or export_to_tpu
            if train_batch_size is None and isinstance(config, tpu_config.RunConfig):
                # tensorflow-estimator's log of examples per second multiplies by it.
                config = config.replace(log_step_count_steps=None)
        elif embedding_config_spec is not None:
            tpu_generations.check_spec(
                embedding_config_spec,
                getattr(getattr(config, "tpu_config", None), "tpu_generation", None),
            )
        super().__init__(
            model_fn=model_fn,
            model_dir=model_dir,
            config=config,
            params=params,
            use_tpu=use_tpu,
            train_batch_size=train_batch_size,
            eval_batch_size=eval_batch_size,
            predict_batch_size=predict_batch_size,
            batch_axis=batch_axis,
            eval_on_tpu=eval_on_tpu and use_tpu,
            export_to_tpu=export_to_tpu,
            export_to_cpu=export_to_cpu,
            warm_start_from=warm_start_from,
            embedding_config_spec=None if self._on_host or self._fed else embedding_config_spec,
            export_saved_model_api_version=export_saved_model_api_version,
        )
        described: dict[str, Any] = {
            "config": self._config,
            "train_batch_size": train_batch_size,
            "eval_batch_size": eval_batch_size,
            "predict_batch_size": predict_batch_size,
            "eval_on_tpu": eval_on_tpu,
        }
        if self._emulated:
            tpu = self._config.tpu_config
            cores = (tpu.num_shards or 1) * (tpu.num_cores_per_replica or 1)
            self._ctx = EmulatedTPU(cores, **described)
        elif self._fed:
            self._ctx = tpu_fed.FedTPU(**described)
        self._tables_on_tpu: list[config_lib.Table] = []
        if embedding_config_spec is not None and not self._on_host and not self._fed:
            self._tables_on_tpu = tables_of(embedding_config_spec)
            if self._tables_on_tpu:
                tpu_system.install(self, embedding_config_spec, self._tables_on_tpu)
        self._asked_warm_start: Any = self._warm_start_settings  # type: ignore[has-type]

    def train(self, *args: Any, **kwargs: Any) -> Any:
        with device.explained():
            return super().train(*args, **kwargs)

    def evaluate(self, *args: Any, **kwargs: Any) -> Any:
        with device.explained():
            return super().evaluate(*args, **kwargs)

    def predict(self, *args: Any, **kwargs: Any) -> Any:
        if self._tables_on_tpu:
            raise NotImplementedError(
                "predict: tensorflow-estimator looks up no embedding tables when it predicts on a "
                "TPU. Predict on the host, with a TPUEstimator of the same model_dir that has "
                "use_tpu=False or TPUConfig(device='host')."
            )
        with device.explained():
            yield from super().predict(*args, **kwargs)

    def _add_meta_graph_for_mode(self, *args: Any, **kwargs: Any) -> Any:
        if self._asked_export_to_tpu:
            why = "with tables on the host" if self._fed else "off a TPU"
            logger.info("export_to_tpu: %s, only the metagraph for CPU is written.", why)
        self._exporting = True
        try:
            return super()._add_meta_graph_for_mode(*args, **kwargs)
        finally:
            self._exporting = False

    def _call_input_fn(self, input_fn: Any, mode: str, input_context: Any = None) -> Any:
        if self._fed:
            with self._ctx.with_mode(mode) as ctx:
                on_cpu = ctx.is_running_on_cpu()
        else:
            on_cpu = self._on_host and not self._emulated and self._spec is not None
        if on_cpu:
            input_fn = _with_context(input_fn)
        if self._tables_on_tpu:
            input_fn = self._for_hardware(input_fn)
        ahead = self._spec is not None and self._spec.pipeline_execution_with_tensor_core
        if ahead and self._on_host and mode == model_fn_lib.ModeKeys.TRAIN:
            input_fn = _with_one_more(input_fn, self.config.tpu_config.num_shards or 1)
        return super()._call_input_fn(input_fn, mode, input_context)

    def _call_model_fn(self, *args: Any, **kwargs: Any) -> Any:
        spec = super()._call_model_fn(*args, **kwargs)
        if self._tables_on_tpu:
            tpu_system.hide_helpers()
        return spec

    def _for_hardware(self, input_fn: Callable[..., Any]) -> Callable[..., Any]:
        def for_hardware(**kwargs: Any) -> Any:
            return tpu_system.as_hardware_reads(input_fn(**kwargs), self._tables_on_tpu)

        return _takes(for_hardware, function_utils.fn_args(input_fn))

    def _augment_model_fn(self, model_fn: Callable[..., Any], batch_axis: Any) -> Any:
        augment = super()._augment_model_fn
        if not self._on_host and not self._fed:
            return augment(model_fn, batch_axis)
        on_cpu = augment(self._on_one_core(model_fn), batch_axis)

        def fed(features: Any, labels: Any, mode: str, config: Any, params: Any) -> Any:
            assert self._spec is not None
            exporting = not self._is_input_fn_invoked
            with self._ctx.with_mode(mode) as ctx:
                if exporting or ctx.is_running_on_cpu():
                    return on_cpu(features, labels, mode, config, params)
                step = tpu_fed.FedStep(ctx, self._spec, model_fn, features, batch_axis)

                def on_core(features: Any, **kwargs: Any) -> Any:
                    return step.on_core(features, **kwargs)

                on_tpu = augment(_takes(on_core, function_utils.fn_args(model_fn)), None)
                with self._ctx.by_core():
                    built = on_tpu(step.input_fn, labels, mode, config, params)
                if mode == model_fn_lib.ModeKeys.TRAIN:
                    self._warm_start_settings = step.engine.warm_start(self._asked_warm_start)
                return step.completed(built)

        def emulated(features: Any, labels: Any, mode: str, config: Any, params: Any) -> Any:
            exporting = not self._is_input_fn_invoked
            with self._ctx.with_mode(mode) as ctx:
                if exporting or ctx.is_running_on_cpu():
                    return on_cpu(features, labels, mode, config, params)
                # As tensorflow-estimator does: set by `_call_input_fn`, for this call only.
                self._is_input_fn_invoked: bool | None = None
                step = EmulatedStep(
                    ctx,
                    model_fn,
                    features,
                    self._spec,
                    batch_axis,
                    config,
                    params,
                    self._dropped(),
                )
                counted = self._iterations_per_training_loop
                spec = step.build(
                    Reporting(
                        self._log_every_n_steps,
                        self._log_every_n_secs,
                        counted.value if counted.unit == "count" else None,
                    )
                )
                if step.engine and mode == model_fn_lib.ModeKeys.TRAIN:
                    self._warm_start_settings = step.engine.warm_start(self._asked_warm_start)
                return spec

        if self._fed:
            return fed
        return emulated if self._emulated else on_cpu

    def _on_one_core(self, model_fn: Callable[..., Any]) -> Callable[..., Any]:
        """`model_fn` as tensorflow-estimator calls it on CPU, run as on a TPU core."""
        names = list(function_utils.fn_args(model_fn))

        def on_one_core(features: Any, mode: str, **kwargs: Any) -> Any:
            if "mode" in names:
                kwargs["mode"] = mode
            if self._spec is None:
                with Cores().running(shard_context=False):
                    return model_fn(features=features, **kwargs)
            params = kwargs.get("params")
            if params is not None and not self._exporting:
                context = HostContext(call_from_input_fn=False)
                tpu_estimator._add_item_to_params(params, "context", context)
            return self._with_tables(model_fn, features, mode, kwargs)

        return _takes(on_one_core, dict.fromkeys([*names, "mode"]))

    def _with_tables(
        self, model_fn: Callable[..., Any], features: Any, mode: str, kwargs: dict[str, Any]
    ) -> Any:
        assert self._spec is not None
        training = mode == model_fn_lib.ModeKeys.TRAIN
        cores = Cores()
        dropped = self._dropped()
        engine = HostEngine(
            self._spec,
            training,
            cores,
            shards=1 if self._exporting else max(self.config.num_ps_replicas, 1),
            dropped=dropped,
            native=not self._exporting,
        )
        if training:
            logger.info(engine.describe())
        looked_up = engine.enqueue(features)
        kept = {key: value for key, value in features.items() if key not in engine.consumed}
        if kwargs.get("labels") is not None:
            kept, kwargs["labels"] = engine.late((kept, kwargs["labels"]))
        else:
            kept = engine.late(kept)
        with cores.running():
            spec = model_fn(features={**kept, **looked_up}, **kwargs)
        engine.connect()
        if training:
            self._warm_start_settings = engine.warm_start(self._asked_warm_start)
        if training and getattr(spec, "train_op", None) is not None:
            engine.check_saver(getattr(spec, "scaffold", None))
            spec = spec._replace(train_op=tf.group(spec.train_op, engine.apply_gradients()))
            engine.hide_helper()
        if engine.next_step:
            spec = spec._replace(training_hooks=(*spec.training_hooks, engine.next_step))
        if dropped:
            spec = dropped.added_to(spec)
        return spec

    def _train_with_estimator_spec(self, estimator_spec: Any, *args: Any, **kwargs: Any) -> Any:
        savers = tf.compat.v1.GraphKeys.SAVERS
        if self._on_host and self._spec is not None:
            if not (estimator_spec.scaffold.saver or tf.compat.v1.get_collection(savers)):
                tf.compat.v1.add_to_collection(savers, saver.saver(self.config))
        return super()._train_with_estimator_spec(estimator_spec, *args, **kwargs)

    def _dropped(self) -> DroppedIds | None:
        return DroppedIds(count=not self._exporting) if self._bad_ids == "drop" else None


def _check_host_spec(spec: config_lib.EmbeddingConfigSpec) -> None:
    """Refuses what the host cannot do, before anything is built."""
    for table in tables_of(spec):
        parameters = table.config.optimization_parameters or spec.optimization_parameters
        if parameters is not None and parameters.only_on_hardware:
            raise ValueError(
                f"Table {table.name!r}: the update rule of {type(parameters).__name__} was never "
                "published, so only TPU hardware can train with it; on the host, choose another "
                "optimizer."
            )
    if spec.profile_data_directory:
        logger.warning(
            "profile_data_directory: lookup statistics are the hardware's own; none are written on "
            "the host."
        )


def _with_context(input_fn: Callable[..., Any]) -> Callable[..., Any]:
    def with_context(**kwargs: Any) -> Any:
        if "params" in kwargs:
            context = HostContext(call_from_input_fn=True)
            tpu_estimator._add_item_to_params(kwargs["params"], "context", context)
        return input_fn(**kwargs)

    return _takes(with_context, function_utils.fn_args(input_fn))


def _with_one_more(input_fn: Callable[..., Any], batches: int) -> Callable[..., Any]:
    def with_one_more(**kwargs: Any) -> Any:
        return pipeline.with_one_more(input_fn(**kwargs), batches)

    return _takes(with_one_more, function_utils.fn_args(input_fn))


def _takes(function: Callable[..., Any], names: Iterable[str]) -> Callable[..., Any]:
    """`function`, for tensorflow-estimator, which passes what a signature names."""
    kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
    function.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
        [inspect.Parameter(name, kind) for name in names]
    )
    return function
