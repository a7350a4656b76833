"""Where and how a program runs, according to its TPUConfig or the environment."""

import functools
from collections.abc import Sequence
from typing import Any

from absl import flags

from estimator_emb.catalog import environment, slices
from estimator_emb.catalog.environment import EnvironmentVariable
from estimator_emb.catalog.generations import GENERATIONS
from estimator_emb.compat.internals.tpu_estimator import (
    InputPipelineConfig,
    StockRunConfig,
    StockTPUConfig,
)
from estimator_emb.reporting import console, suggestions
from estimator_emb.reporting.program_calls import method_of_program

SUMMARY_STEPS_APART = 100
"""Summaries of tables at shorter intervals are only written on request.

A summary takes about twice the time of a step's embedding work.
"""


class RunConfig(StockRunConfig):
    """tensorflow-estimator's `RunConfig`. The log of its construction is shown."""

    # By name, because `install` may replace the constructor that this calls.
    def __init__(
        self,
        tpu_config: Any = None,
        evaluation_master: str | None = None,
        master: str | None = None,
        cluster: Any = None,
        **kwargs: Any,
    ):
        super().__init__(tpu_config, evaluation_master, master, cluster, **kwargs)


method_of_program(RunConfig, "__init__")


class CannotEmulate(ValueError):
    """Raised for a program that may run on a TPU, but not on an emulated TPU."""


class CannotLower(ValueError):
    """Raised if a program's step cannot run on PJRT devices or be compiled for a TPU."""


class TPUConfig(StockTPUConfig):
    """tensorflow-estimator's `TPUConfig`, plus options for where and how a program runs.

    Args:
      iterations_per_loop: number of steps in one session call. Hooks fire after each call. On a TPU
        also a duration, a str such as '60s', '5m' or '1h'.
      num_shards: number of cores of an emulated TPU (None means 1), or number of PJRT devices (None
        means all). The environment variable ESTIMATOR_EMB_SHARDS takes precedence. More than 8
        emulated cores must be a multiple of 8, on hosts of 8 cores each. The number must match the
        TPU, or the emulated TPU named by the environment variable ESTIMATOR_EMB_TOPOLOGY.
      num_cores_per_replica: number of TPU cores that share one replica of the model. None does not
        divide the model.
      per_host_input_for_training: how input_fn is called. True or `InputPipelineConfig.PER_HOST_V1`
        calls it once for each host. `PER_HOST_V2` does the same, with a batch for each core. False
        or `PER_SHARD_V1` calls it once for each core. `BROADCAST` calls it once in all.
      tpu_job_name: the TPU's job in a cluster, if it cannot be inferred.
      initial_infeed_sleep_secs: seconds that the infeed of a TPU waits before its first batch.
      input_partition_dims: how the tensors of a batch are divided over the cores of one replica.
      eval_training_input_configuration: `InputPipelineConfig.PER_HOST_V1`, or `SLICED` to call
        input_fn once and give each core a slice.
      experimental_host_call_every_n_steps: how often a host_call runs in a loop of steps.
      experimental_allow_per_host_v2_parallel_get_next: lets the cores of a host read their batches
        in any order.
      experimental_feed_hook: a class that replaces tensorflow-estimator's hook of the infeed.
      device: where a program with `use_tpu=True` runs. 'tpu' is a TPU. 'emulate', or its older name
        'host', is an emulated TPU. 'pjrt' runs the model on the PJRT devices of this machine (CPUs,
        GPUs, or TPUs from v2 to v6e) while the host trains the tables: see docs/pjrt.md. None uses
        the environment variable ESTIMATOR_EMB_DEVICE, or 'tpu' if it is unset.
      tables: where device 'pjrt' trains the tables: 'host', or 'device' for the memory of the
        devices: see docs/pjrt.md. None uses the environment variable ESTIMATOR_EMB_TABLES, or
        'host' if it is unset. 'device' is an error with any other device.
      bad_ids: what happens on the host when an id is outside [0, vocabulary size). 'error' stops
        before any update of that step. 'drop' leaves the id out, with its weight, and counts it in
        the scalar `bad_ids/<table>` of the summaries. None uses the environment variable
        ESTIMATOR_EMB_BAD_IDS, or 'error' if it is unset.
      tpu_generation: the TPU on which the program will run: 'v2', 'v3' or 'v4'. TensorFlow cannot
        run a TPUEstimator on 'v5e', 'v5p' or 'v6e', so the constructor raises an error for them.
        None asks the TPU when training begins. It has no effect with device 'emulate' or 'pjrt'.
      table_summaries: whether TensorBoard shows how each table trains on the host, at every
        `save_summary_steps`-th step: see docs/tensorboard.md. None uses the environment variable
        ESTIMATOR_EMB_TABLE_SUMMARIES, 1 or 0. If that is unset too, summaries are written when
        `save_summary_steps` is at least 100, because more frequent summaries could take more than
        3 % of the time. True is an error on a TPU.

    Raises:
      ValueError: `device`, `tables`, `bad_ids`, `tpu_generation` or `table_summaries` has
        another value; `iterations_per_loop` or `num_shards` is not positive;
        `num_cores_per_replica` is not a power of 2 up to 128; or `input_partition_dims` is given
        without `num_cores_per_replica` and `PER_HOST_V2`.
    """

    device: str | None
    tables: str | None
    bad_ids: str | None
    tpu_generation: str | None
    table_summaries: bool | None

    def __new__(
        cls,
        iterations_per_loop: int | str = 2,
        num_shards: int | None = None,
        num_cores_per_replica: int | None = None,
        per_host_input_for_training: bool | int = True,
        tpu_job_name: str | None = None,
        initial_infeed_sleep_secs: int | None = None,
        input_partition_dims: Sequence[Any] | None = None,
        eval_training_input_configuration: int = InputPipelineConfig.PER_HOST_V1,
        experimental_host_call_every_n_steps: int = 1,
        experimental_allow_per_host_v2_parallel_get_next: bool = False,
        experimental_feed_hook: type | None = None,
        *,
        device: str | None = None,
        tables: str | None = None,
        bad_ids: str | None = None,
        tpu_generation: str | None = None,
        table_summaries: bool | None = None,
    ) -> "TPUConfig":
        fields = locals()
        self: TPUConfig = super().__new__(cls, **{name: fields[name] for name in cls._fields})
        check = functools.partial(suggestions.check_argument, "TPUConfig")
        for name, value, choices in (
            ("device", environment.DEVICE.today(device), environment.DEVICE.choices),
            ("tables", tables, environment.TABLES.choices),
            ("bad_ids", bad_ids, environment.BAD_IDS.choices),
        ):
            check(value in (None, *choices), name, " or ".join(map(repr, choices)), value)
        known, allowed = tpu_generation in (None, *GENERATIONS), f"one of {', '.join(GENERATIONS)}"
        check(known, "tpu_generation", f"{allowed}, or None", tpu_generation)
        known = table_summaries in (None, True, False)
        check(known, "table_summaries", "True or False", table_summaries)
        for name in TPUConfig.__annotations__:
            setattr(self, name, fields[name])
        return self

    def _replace(self, **kwargs: Any) -> "TPUConfig":
        return type(self)(**{**self._asdict(), **additions(self), **kwargs})


def additions(tpu_config: Any) -> dict[str, Any]:
    """Returns the fields that `TPUConfig` adds. All are None for tensorflow-estimator's class."""
    return {name: getattr(tpu_config, name, None) for name in TPUConfig.__annotations__}


method_of_program(TPUConfig, "__new__")


def asked(config: Any) -> str:
    """Returns the `device` of a program with `use_tpu=True` and this RunConfig."""
    return _asked(config, "device", environment.DEVICE, "tpu")


def asked_hosts() -> tuple[int | None, int | None, str | None] | None:
    """Returns the environment's (number of hosts, number of this host, address of host 0), if set.

    A part is None if jax finds it. Raises ValueError for incomplete or wrong values.
    """
    asked = environment.HOSTS.value()
    number, address = environment.HOST.value(), environment.COORDINATOR.value()
    if not asked:
        return None
    if asked == "auto":
        return None, None, None
    if not asked.isdecimal() or int(asked) < 1:
        raise ValueError(
            f"Environment variable {environment.HOSTS} must be a number of hosts, at least 1, or "
            f"'auto' for jax to find them; got {asked!r}."
        )
    if not number or not number.isdecimal() or int(number) >= int(asked):
        raise ValueError(
            f"Environment variable {environment.HOST} must be the number of this host, from 0 to "
            f"{int(asked) - 1}, as {environment.HOSTS} is {asked}; got {number!r}."
        )
    if not address or not address.rpartition(":")[2].isdecimal():
        raise ValueError(
            f"Environment variable {environment.COORDINATOR} must be ADDRESS:PORT of host 0, as "
            f"{environment.HOSTS} is {asked}; got {address!r}."
        )
    return int(asked), int(number), address


def asked_tables(config: Any) -> str:
    """Returns where device 'pjrt' trains the tables: 'host' or 'device'."""
    return _asked(config, "tables", environment.TABLES, "host")


def check_tables(config: Any) -> None:
    """Raises ValueError for tables='device' without device='pjrt'."""
    device = asked(config)
    if asked_tables(config) == "device" and device != "pjrt":
        raise ValueError(
            f"TPUConfig: tables='device' needs device='pjrt'; the device is {device!r}. Choose "
            f"tables='host', or leave {environment.TABLES} out of the environment."
        )


def say_unused(config: Any) -> None:
    """Logs the choices of devices that have no effect, for a program with `use_tpu=False`.

    Defaults of flags do not count. `estimator-emb run` always sets a device in the environment,
    'emulate' by default.
    """
    unused = []
    for name, variable in (("device", environment.DEVICE), ("tables", environment.TABLES)):
        chosen, in_environment = _tpu_option(config, name), variable.value()
        if variable.today(chosen) in ("emulate", "pjrt", "device"):
            of_program = (flags.FLAGS[name] for name in flags.FLAGS)
            if not any(one.using_default_value and one.value == chosen for one in of_program):
                unused.append(f"TPUConfig({name}={chosen!r})")
        elif chosen is None and in_environment in ("pjrt", "device"):
            unused.append(f"{variable}={in_environment}")
    if unused:
        console.say_once(f"{' and '.join(unused)}: no effect, as use_tpu=False.")


def asked_shards() -> int | None:
    """Returns the number of cores in the environment, if set. It overrides `num_shards`."""
    shards = environment.SHARDS.value()
    if not shards:
        return None
    if not shards.isdecimal() or int(shards) < 1:
        raise ValueError(
            f"Environment variable {environment.SHARDS} must be a number of cores, at least 1; got "
            f"{shards!r}."
        )
    return int(shards)


def asked_topology() -> slices.Slice | None:
    """Returns the emulated slice that the environment names, if any."""
    name = environment.TOPOLOGY.value()
    if not name:
        return None
    if environment.SHARDS.value():
        raise ValueError(
            f"Environment variables {environment.TOPOLOGY} and {environment.SHARDS} both say how "
            f"many cores an emulated TPU has; got {name!r} and {environment.SHARDS.value()!r}. Set "
            "one of them."
        )
    try:
        return slices.named(name)
    except ValueError as error:
        raise ValueError(f"Environment variable {environment.TOPOLOGY} {error}") from None


def asked_bad_ids(config: Any) -> str:
    """Returns how the host treats a bad id: 'error' or 'drop'."""
    return _asked(config, "bad_ids", environment.BAD_IDS, "error")


def asked_table_summaries(config: Any) -> bool | None:
    """Returns whether the config or the environment asks for table summaries, if set."""
    chosen: bool | None = _tpu_option(config, "table_summaries")
    if chosen is None and (text := environment.TABLE_SUMMARIES.choice()):
        return text == "1"
    return chosen if chosen is None else bool(chosen)


def table_summaries_on_host(config: Any) -> bool:
    """Returns whether training on the host writes table summaries."""
    asked = asked_table_summaries(config)
    steps = getattr(config, "save_summary_steps", None)
    if not steps:
        return False
    return bool(steps >= SUMMARY_STEPS_APART if asked is None else asked)


def asked_wait_limit() -> float | None:
    """Returns how many seconds a cluster process waits for another, if there is a limit."""
    text = environment.WAIT_LIMIT.value()
    if not text:
        return None
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not 0 < seconds < float("inf"):
        raise ValueError(
            f"Environment variable {environment.WAIT_LIMIT} must be a positive number of seconds; "
            f"got {text!r}."
        )
    return seconds


def _asked(config: Any, name: str, variable: EnvironmentVariable, default: str) -> str:
    chosen: str | None = _tpu_option(config, name)
    if chosen is not None:
        return str(variable.today(chosen))
    return variable.choice() or default


def _tpu_option(config: Any, name: str) -> Any:
    return getattr(getattr(config, "tpu_config", None), name, None)
