"""Replaces the functions that look TPUs up by name or start them, if no real TPU is used.

An emulated TPU or PJRT devices take its place, as the environment variable ESTIMATOR_EMB_DEVICE
says. Each call reads it anew.
"""

import functools
import urllib.error
from collections.abc import Callable
from typing import Any

import tensorflow as tf

from estimator_emb.backends.choose import devices
from estimator_emb.backends.emulated import topology
from estimator_emb.catalog import environment
from estimator_emb.catalog.limits import HOW_TO_EMULATE
from estimator_emb.catalog.slices import Slice
from estimator_emb.compat.internals.estimators import Estimator
from estimator_emb.compat.internals.patches import Changes
from estimator_emb.compat.internals.tpu import tpu_strategy_util
from estimator_emb.compat.internals.tpu_estimator import StockRunConfig, StockTPUEstimator
from estimator_emb.engine.cores import Cores
from estimator_emb.reporting import error_notes
from estimator_emb.reporting.console import say_once
from estimator_emb.spec import options
from estimator_emb.spec.options import TPUConfig


def replace_lookups(changes: Changes) -> None:
    """Replaces the functions that look up or start a TPU. `changes` can undo it."""
    resolver = tf.distribute.cluster_resolver.TPUClusterResolver
    for owner, name, emulated in (
        (resolver, "__init__", _make_resolver),
        (resolver, "master", lambda original, *args, **kwargs: original(*args, **kwargs)),
        (resolver, "num_accelerators", lambda *_, **__: {"TPU": _shape().cores_per_host}),
        (resolver, "get_tpu_system_metadata", lambda *_: topology.metadata(_shape())),
        (StockRunConfig, "__init__", _make_run_config),
        (tpu_strategy_util, "initialize_tpu_system_impl", _initialize),
        (tpu_strategy_util, "shutdown_tpu_system_impl", _shut_down),
        (Estimator, "_call_model_fn", _call_model_fn),
    ):
        changes.wrap(owner, name, functools.partial(_choosing, emulated))


def is_emulated() -> bool:
    """Returns whether ESTIMATOR_EMB_DEVICE replaces the TPU by emulation or PJRT devices."""
    return environment.DEVICE.value() in ("emulate", "pjrt")


def _shape() -> Slice:
    if environment.DEVICE.value() == "emulate":
        return topology.emulated_slice()
    pjrt = devices()
    found, host = pjrt.chosen(TPUConfig(num_shards=options.asked_shards()))
    shape: Slice = pjrt.shape_of(len(found), host.count)
    return shape


def _choosing(emulated: Callable[..., Any], original: Callable[..., Any]) -> Callable[..., Any]:
    def choosing(*args: Any, **kwargs: Any) -> Any:
        if is_emulated():
            return emulated(original, *args, **kwargs)
        return original(*args, **kwargs)

    return choosing if emulated is _call_model_fn else error_notes.explained(_without_tpu)(choosing)


def _without_tpu(error: Exception) -> None:
    """Says in the error of a search for a TPU how a program runs without a TPU."""
    text = str(error)
    if type(error) is urllib.error.URLError:
        error.reason = f"{error.reason}. {HOW_TO_EMULATE}"
    elif text.endswith(("TPU Name to connect to.", "`pip install cloud-tpu-client` to fix.")):
        error.args = (f"{text} {HOW_TO_EMULATE}",)


def _make_resolver(
    original: Callable[..., Any],
    self: Any,
    tpu: str | None = None,
    zone: str | None = None,
    project: str | None = None,
    job_name: str = "worker",
    *args: Any,
    **kwargs: Any,
) -> None:
    # 'local' is a TPU in this machine, without an address or a cluster.
    original(self, tpu="local", job_name=job_name)
    say_once(f"TPUClusterResolver: {tpu!r} is the emulated TPU; no name is looked up.")


def _make_run_config(
    original: Callable[..., Any],
    self: Any,
    tpu_config: Any = None,
    evaluation_master: str | None = None,
    master: str | None = None,
    cluster: Any = None,
    **kwargs: Any,
) -> None:
    if getattr(tpu_config, "device", None) != "tpu":
        for address in (master, evaluation_master):
            if address:
                say_once(f"RunConfig: {address!r} is the emulated TPU; there is no connection.")
        master, evaluation_master = master and "", evaluation_master and ""
    original(self, tpu_config, evaluation_master, master, cluster, **kwargs)


def _initialize(original: Any, *args: Any, **kwargs: Any) -> Any:
    say_once("An emulated TPU needs no initialisation.")
    return topology.emulated(_shape())


def _shut_down(original: Any, *args: Any, **kwargs: Any) -> None:
    say_once("An emulated TPU needs no shutdown.")


def _call_model_fn(original: Any, self: Any, *args: Any, **kwargs: Any) -> Any:
    """Lets a plain Estimator's `CrossShardOptimizer` sum over a single core, but not replicas."""
    if isinstance(self, StockTPUEstimator) or tf.distribute.get_strategy().num_replicas_in_sync > 1:
        return original(self, *args, **kwargs)
    with Cores().running(shard_context=False, numbered=True):
        return original(self, *args, **kwargs)
