"""Runs a TPU program's model on PJRT devices. They can also train its tables."""

import gc
import importlib.util
import logging
from typing import Any

import tensorflow as tf

from estimator_emb.backends.base import EstimatorRequest
from estimator_emb.backends.emulated.computation import Computation
from estimator_emb.backends.emulated.copies import Execution
from estimator_emb.backends.pjrt.lowered_step import StepOnDevices, described
from estimator_emb.catalog import environment, extras, installing
from estimator_emb.catalog.slices import Slice
from estimator_emb.compat import installed
from estimator_emb.compat.internals.estimators import ModeKeys
from estimator_emb.engine.alone import ALONE, Alone
from estimator_emb.engine.cores import Cores
from estimator_emb.guards.call import Runs
from estimator_emb.native import cache
from estimator_emb.reporting import console
from estimator_emb.spec import options

_ASKED = "device='pjrt'"
_OLDEST = (2, 18)
"""The oldest TensorFlow that can be installed with the jax of the extra `[pjrt]`."""


class PjrtDevices:
    """PJRT devices that act as the cores of the program's TPU."""

    runs = Runs.PJRT
    takes_out = True

    def __init__(self, request: EstimatorRequest):
        self.host = ALONE
        self._has_tables = request.spec is not None
        keeps = request.spec is not None and options.asked_tables(request.config) == "device"
        self._keeps_tables = keeps
        if keeps:
            _check_tables(request)

    def shape(self, tpu_config: Any, has_tables: bool) -> Slice:
        self._devices, self.host = chosen(tpu_config)
        if self._has_tables and not self._keeps_tables and self.host.count > 1:
            raise ValueError(
                "TPUConfig: tables='host' trains the tables on one host, and "
                f"{self.host.count} have joined: choose tables='device' "
                f"({environment.TABLES}=device), or one host."
            )
        return shape_of(len(self._devices), self.host.count)

    def prepare_session(self, config: tf.compat.v1.ConfigProto) -> None:
        """Hides GPUs from TensorFlow's sessions if jax computes on them."""
        # Otherwise TensorFlow would reserve the memory that jax needs.
        if self._devices[0].platform == "gpu" and "GPU" not in config.device_count:
            config.device_count["GPU"] = 0
            if tf.config.list_physical_devices("GPU"):
                console.say_once("jax has the GPUs, and TensorFlow's sessions use none of them.")

    def says(self, cores: int, hosts: int) -> str:
        return f"The model runs on {described(self._devices, hosts)}."

    def begin(self, cores: Cores, computation: Computation, mode: str) -> Execution:
        training = mode == ModeKeys.TRAIN
        devices = self._devices if training else self.host.own(self._devices)
        host = self.host if training else ALONE
        keeps_tables = self._keeps_tables and training
        if keeps_tables:
            gc.collect()  # The graph of an ended training may still keep its tables on the devices.
        return StepOnDevices(devices, cores, computation, mode, keeps_tables, host)


def _check_tables(request: EstimatorRequest) -> None:
    """Raises ValueError for options that tables='device' does not support."""
    owner = "TPUConfig: tables='device' trains the tables in the memory of the devices"
    assert request.spec is not None
    if request.spec.pipeline_execution_with_tensor_core:
        raise ValueError(
            f"{owner}, where no lookup runs ahead: leave pipeline_execution_with_tensor_core=True "
            "out of the EmbeddingConfigSpec, or choose tables='host'."
        )
    if options.asked_table_summaries(request.config):
        raise ValueError(
            f"{owner}, and table_summaries=True needs them on the host: leave it out of TPUConfig, "
            f"and {environment.TABLE_SUMMARIES} out of the environment, or choose tables='host'."
        )


def shape_of(count: int, hosts: int = 1) -> Slice:
    """Returns the shape of a TPU with `count` cores."""
    return Slice((count, 1, 1, 1), (count // hosts, 1, 1, 1))


def _plugin(platform: str | None) -> str:
    """Returns how to install jax's plugin for a platform, or ''."""
    extra = {"gpu": "cuda12", "tpu": "tpu"}.get(platform or "")
    version = installed.version("jax")
    return f". If its plugin is missing: pip install 'jax[{extra}]=={version}'." if extra else ""


def check_config(tpu_config: Any) -> None:
    """Raises ValueError for a configuration that no PJRT devices support."""
    if tpu_config.num_cores_per_replica:
        raise ValueError(
            f"TPUConfig: with {_ASKED}, each device runs the whole model, and "
            "num_cores_per_replica must be None; got "
            f"{tpu_config.num_cores_per_replica}."
        )
    if environment.TOPOLOGY.value():
        raise ValueError(
            f"Environment variable {environment.TOPOLOGY} names an emulated TPU, and {_ASKED} "
            "takes the devices that are there: unset it, or choose a number of them with "
            f"TPUConfig(num_shards=N) or {environment.SHARDS}."
        )


def chosen(tpu_config: Any) -> tuple[list[Any], Alone]:
    """Returns the devices that a `TPUConfig` asks for, and the host that this process is.

    Raises ValueError if the devices are missing, or the configuration is unsupported.
    """
    if tuple(map(int, tf.__version__.split(".")[:2])) < _OLDEST:
        oldest = ".".join(map(str, _OLDEST))
        raise ValueError(
            f"TPUConfig: {_ASKED} needs TensorFlow {oldest} or newer, as jax does not go with "
            f"older ones; this is {tf.__version__}."
        )
    if importlib.util.find_spec("jax") is None:
        raise ValueError(
            f"TPUConfig: {_ASKED} needs jax, which is not installed: {installing.extra('pjrt')}. "
            "For GPUs or TPUs, also install jax's plugin for them, in the version of jax."
        )
    check_config(tpu_config)
    from estimator_emb.backends.xla import devices

    platform, asked_hosts = environment.PJRT_PLATFORM.choice(), options.asked_hosts()
    host: Any = ALONE
    try:
        if asked_hosts is not None:
            extras.load("hosts", "backends.hosts.joining").join(*asked_hosts)
        found = devices.devices(platform, _folder_of_programs())
    except RuntimeError as error:
        raise ValueError(
            f"TPUConfig: {_ASKED} cannot take devices"
            f"{f' of platform {platform!r} ({environment.PJRT_PLATFORM})' if platform else ''}: "
            f"{error}{_plugin(platform)}"
        ) from error
    if devices.joined():
        hosts = extras.load("hosts", "backends.hosts.joining").Hosts(platform)
        host = extras.load("hosts", "backends.hosts.agreement").Agreement(hosts)
        found = hosts.devices
    count = options.asked_shards() or tpu_config.num_shards or len(found)
    if count > len(found):
        raise ValueError(
            f"TPUConfig: num_shards asks for {count} devices, and there are {len(found)}: "
            f"{', '.join(map(str, found))}. For more devices that are cores of the CPU, set "
            f"XLA_FLAGS=--xla_force_host_platform_device_count={count}."
        )
    if host.count > 1 and count < len(found):
        raise ValueError(
            f"TPUConfig: num_shards asks for {count} devices, and {host.count} hosts train on all "
            f"of theirs, {len(found)}: leave num_shards out, or give each host fewer devices."
        )
    return found[:count], host


def _folder_of_programs() -> str | None:
    """Returns the folder that caches compiled programs, or None if no folder is safe."""
    try:
        return str(cache.private("programs"))
    except (cache.BuildError, OSError) as error:
        text = f"Programs that XLA compiles are not cached: {error}."
        console.say_once(text, level=logging.WARNING)
        return None
