# SPDX-License-Identifier: Apache-2.0
"""`TPUEstimator`: tensorflow-estimator's, with embedding tables that also train off a TPU.

Where it runs is said, never guessed:

* `use_tpu=False`: on the host.
* `use_tpu=True` and a request to emulate (`TPUConfig(device='host')`, or the environment variable
  ESTIMATOR_EMB_DEVICE=host): on the host, and the program sees what a TPU would show it.
* `use_tpu=True` otherwise: on a TPU, by tensorflow-estimator's own machinery.
"""

import contextlib
import inspect
import logging
import os
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import tensorflow as tf
from tensorflow.python.util import function_utils
from tensorflow_estimator.python.estimator import model_fn as model_fn_lib
from tensorflow_estimator.python.estimator.tpu import tpu_config, tpu_estimator
from tensorflow_estimator.python.estimator.tpu import util as tpu_util

from estimator_emb import config as config_lib
from estimator_emb.engines import core, tpu_generations, tpu_system
from estimator_emb.engines.host import HostEngine, tables_of
from estimator_emb.tables.pipeline import DrainBeforeSaving

logger = logging.getLogger("estimator_emb")

DEVICE_VARIABLE = "ESTIMATOR_EMB_DEVICE"
DEVICES = ("host", "tpu")
_HOW_TO_EMULATE = (
    f" To run this program without a TPU, set the environment variable {DEVICE_VARIABLE}=host, or "
    "pass TPUConfig(device='host')."
)


class TPUConfig(tpu_config.TPUConfig):
    """tensorflow-estimator's `TPUConfig` with a choice of device, and a name for the hardware.

    Args:
      *args, **kwargs: as in tensorflow-estimator.
      device: where a program with `use_tpu=True` runs: 'tpu', or 'host' to emulate a TPU. None
        leaves it to the environment variable ESTIMATOR_EMB_DEVICE, and that to 'tpu'.
      tpu_generation: the TPU that it will run on: 'v2', 'v3', 'v4', 'v5e', 'v5p' or 'v6e'. A
        TPUEstimator whose tables cannot run there is refused when it is constructed. None leaves
        it to what the TPU says of itself when training begins. It has no effect on the host.

    Raises:
      ValueError: `device` or `tpu_generation` is something else.
    """

    device: str | None
    tpu_generation: str | None

    def __new__(
        cls,
        *args: Any,
        device: str | None = None,
        tpu_generation: str | None = None,
        **kwargs: Any,
    ) -> "TPUConfig":
        self = super().__new__(cls, *args, **kwargs)
        if device is not None:
            _check_device("TPUConfig: device", device)
        if tpu_generation is not None:
            tpu_generations.check_generation(tpu_generation)
        self.device = device
        self.tpu_generation = tpu_generation
        return self

    def _replace(self, **kwargs: Any) -> "TPUConfig":
        ours = {"device": self.device, "tpu_generation": self.tpu_generation}
        return type(self)(**{**self._asdict(), **ours, **kwargs})


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
        self._on_host = not use_tpu or _asked_device(config) == "host"
        self._emulated = use_tpu and self._on_host
        self._spec = embedding_config_spec
        self._exporting = False
        self._asked_export_to_tpu = False
        if self._on_host:
            if self._emulated:
                _check_emulated(config, train_batch_size, eval_batch_size, predict_batch_size)
            if embedding_config_spec is not None:
                _check_host_spec(embedding_config_spec)
            if self._emulated or embedding_config_spec is not None:
                # The metagraph for TPU holds ops that only a TPU's graph can have.
                self._asked_export_to_tpu = export_to_tpu
                export_to_tpu, export_to_cpu = False, export_to_cpu or export_to_tpu
            if train_batch_size is None and isinstance(config, tpu_config.RunConfig):
                # tensorflow-estimator's log of examples per second multiplies by it.
                config = config.replace(log_step_count_steps=None)
            if callable(model_fn):
                model_fn = self._on_one_core(model_fn)
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
            use_tpu=use_tpu and not self._on_host,
            train_batch_size=train_batch_size,
            eval_batch_size=eval_batch_size,
            predict_batch_size=predict_batch_size,
            batch_axis=batch_axis,
            eval_on_tpu=eval_on_tpu and not self._on_host,
            export_to_tpu=export_to_tpu,
            export_to_cpu=export_to_cpu,
            warm_start_from=warm_start_from,
            embedding_config_spec=None if self._on_host else embedding_config_spec,
            export_saved_model_api_version=export_saved_model_api_version,
        )
        self._tables_on_tpu: list[config_lib.Table] = []
        if embedding_config_spec is not None and not self._on_host:
            self._tables_on_tpu = tables_of(embedding_config_spec)
            if self._tables_on_tpu:
                tpu_system.install(self, embedding_config_spec, self._tables_on_tpu)

    def train(
        self,
        input_fn: Any,
        hooks: Any = None,
        steps: int | None = None,
        max_steps: int | None = None,
        saving_listeners: Any = None,
    ) -> Any:
        if self._on_host and self._spec and self._spec.pipeline_execution_with_tensor_core:
            if self.config.save_checkpoints_steps or self.config.save_checkpoints_secs:
                saving_listeners = [*(saving_listeners or ()), DrainBeforeSaving()]
        with _explained():
            return super().train(input_fn, hooks, steps, max_steps, saving_listeners)

    def evaluate(self, *args: Any, **kwargs: Any) -> Any:
        with _explained():
            return super().evaluate(*args, **kwargs)

    def predict(self, *args: Any, **kwargs: Any) -> Any:
        if self._tables_on_tpu:
            raise NotImplementedError(
                "predict: tensorflow-estimator looks up no embedding tables when it predicts on a "
                "TPU. Predict on the host, with a TPUEstimator of the same model_dir that has "
                "use_tpu=False or TPUConfig(device='host')."
            )
        with _explained():
            yield from super().predict(*args, **kwargs)

    def _add_meta_graph_for_mode(self, *args: Any, **kwargs: Any) -> Any:
        if self._on_host and self._asked_export_to_tpu:
            logger.info("export_to_tpu: off a TPU, only the metagraph for CPU is written.")
        self._exporting = True
        try:
            return super()._add_meta_graph_for_mode(*args, **kwargs)
        finally:
            self._exporting = False

    def _call_input_fn(self, input_fn: Any, mode: str, input_context: Any = None) -> Any:
        if self._on_host and (self._emulated or self._spec is not None):
            input_fn = _with_context(input_fn)
        if self._tables_on_tpu:
            input_fn = self._for_hardware(input_fn)
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

    def _convert_train_steps_to_hooks(self, steps: int | None, max_steps: int | None) -> Any:
        if self._emulated:
            if steps is None and max_steps is None:
                raise ValueError(
                    "For TPU training, one of `steps` or `max_steps` must be set. Cannot be both "
                    "`None`."
                )
        return super()._convert_train_steps_to_hooks(steps, max_steps)

    def _convert_eval_steps_to_hooks(self, steps: int | None) -> Any:
        if self._emulated and steps is None:
            raise ValueError("Evaluate `steps` must be set on TPU. Cannot be `None`.")
        return super()._convert_eval_steps_to_hooks(steps)

    def _on_one_core(self, model_fn: Callable[..., Any]) -> Callable[..., Any]:
        """`model_fn` as tensorflow-estimator calls it on CPU, run as on a TPU core."""
        names = list(function_utils.fn_args(model_fn))

        def on_one_core(features: Any, mode: str, **kwargs: Any) -> Any:
            if "mode" in names:
                kwargs["mode"] = mode
            params = kwargs.get("params")
            if params is not None and not self._exporting:
                if self._emulated:
                    tpu_estimator._add_item_to_params(params, "use_tpu", True)
                if self._emulated or self._spec is not None:
                    context = core.HostContext(call_from_input_fn=False)
                    tpu_estimator._add_item_to_params(params, "context", context)
            if self._spec is None:
                with core.one_core(shard_context=self._emulated):
                    return model_fn(features=features, **kwargs)
            return self._with_tables(model_fn, features, mode, kwargs)

        return _takes(on_one_core, dict.fromkeys([*names, "mode"]))

    def _with_tables(
        self, model_fn: Callable[..., Any], features: Any, mode: str, kwargs: dict[str, Any]
    ) -> Any:
        assert self._spec is not None
        training = mode == model_fn_lib.ModeKeys.TRAIN
        engine = HostEngine(
            self._spec,
            training,
            num_cores=(self._emulated and self.config.tpu_config.num_shards) or 1,
            as_parts=self._emulated and not self._exporting,
        )
        if training:
            logger.info(engine.describe())
            if engine.num_cores > 1:
                logger.info(
                    "%d cores are emulated as one: model_fn sees the whole batch.",
                    engine.num_cores,
                )
        with core.one_core(shard_context=True):
            spec = model_fn(features=engine.enqueue(features), **kwargs)
        engine.connect()
        if training and getattr(spec, "train_op", None) is not None:
            engine.check_saver(getattr(spec, "scaffold", None))
            spec = spec._replace(train_op=tf.group(spec.train_op, engine.apply_gradients()))
            engine.hide_helper()
        return spec


def _asked_device(config: Any) -> str:
    device = getattr(getattr(config, "tpu_config", None), "device", None)
    if device is not None:
        return device
    return _check_device(
        f"Environment variable {DEVICE_VARIABLE}", os.environ.get(DEVICE_VARIABLE) or "tpu"
    )


def _check_device(owner: str, device: str) -> str:
    if device not in DEVICES:
        raise ValueError(f"{owner} must be 'host' or 'tpu'; got {device!r}.")
    return device


def _check_emulated(config: Any, train: Any, evaluation: Any, prediction: Any) -> None:
    """What tensorflow-estimator checks only where it runs on a TPU itself."""
    if train is None:
        raise ValueError("`train_batch_size` cannot be `None`")
    for name, size in (
        ("train_batch_size", train),
        ("eval_batch_size", evaluation),
        ("predict_batch_size", prediction),
    ):
        if size is not None:
            tpu_util.check_positive_integer(size, name)
            shards = getattr(getattr(config, "tpu_config", None), "num_shards", None) or 1
            if size % shards:
                raise ValueError(
                    f"{name} {size} must be divisible by number of replicas {shards}"
                )


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
            context = core.HostContext(call_from_input_fn=True)
            tpu_estimator._add_item_to_params(kwargs["params"], "context", context)
        return input_fn(**kwargs)

    return _takes(with_context, function_utils.fn_args(input_fn))


def _takes(function: Callable[..., Any], names: Iterable[str]) -> Callable[..., Any]:
    """`function`, for tensorflow-estimator, which passes what a signature names."""
    kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
    function.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
        [inspect.Parameter(name, kind) for name in names]
    )
    return function


@contextlib.contextmanager
def _explained() -> Iterator[None]:
    """Adds to the error about a missing TPU how to do without one."""
    try:
        yield
    except RuntimeError as error:
        if "Cannot find any TPU cores" in str(error) and _HOW_TO_EMULATE not in str(error):
            raise RuntimeError(str(error) + _HOW_TO_EMULATE) from error
        raise
