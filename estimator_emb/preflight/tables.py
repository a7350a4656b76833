"""Checks whether a spec's tables can run on a generation of TPUs and fit into its memory.

The embedding hardware of v2 to v4 keeps tables and slots in the memory of the chips. Each host has
the rows that `engine.tables.partition` gives it, as in the configuration of the hardware. The rest
is inferred from the little that is published, and has not been measured:

* A row takes whole units of 8 floats. With `low_dimensional_packing_status`, rows of 1, 2 and 4
  floats share a unit of 8 floats of the chip's memory, says `optimization_parameters.proto`.
* Each slot is as large as its table, like the variables that the hardware loads.
* The rows of a host are divided evenly over its cores. No document says so.
"""

from collections.abc import Sequence
from typing import Any

from estimator_emb.backends.base import EstimatorRequest
from estimator_emb.catalog.generations import GENERATIONS, PJRT
from estimator_emb.catalog.slices import CORES_PER_HOST
from estimator_emb.compat.internals.estimators import ModeKeys
from estimator_emb.engine.tables.partition import Partition
from estimator_emb.engine.tables.sizes import bytes_of
from estimator_emb.preflight.report import Compilation, Tables
from estimator_emb.reporting.text_columns import counted
from estimator_emb.spec import options
from estimator_emb.spec.resolved import Table
from estimator_emb.spec.tpu_generations import NO_ESTIMATOR

_UNIT = 8
"""The number of columns is rounded up to a multiple of this."""

_PACKED = (1, 2, 4)
"""Dimensions with several rows per unit, given `low_dimensional_packing_status`."""

_LANES = 128
"""Width of a row in a TPU's memory, in floats."""


def default_generations(request: EstimatorRequest, config: Any) -> tuple[str, ...]:
    """Returns the generation that the program names, or v4, and v6e if no table needs v4."""
    named = getattr(config.tpu_config, "tpu_generation", None)
    if named is not None:
        return (named,)
    return ("v4",) if _on_hardware(request, config) else ("v4", "v6e")


def check_tables(
    request: EstimatorRequest,
    config: Any,
    mode: str,
    names: Sequence[str],
    cores: int,
    compilations: Sequence[Compilation],
) -> tuple[Tables, ...]:
    """Returns the result for the tables on each generation in `names`, on `cores` cores in all."""
    if not request.tables:
        return ()
    training = mode == ModeKeys.TRAIN
    on_hardware = _on_hardware(request, config)
    if training and not on_hardware and options.asked_tables(config) == "device":
        return tuple(_on_devices(request.tables, name, cores, compilations) for name in names)
    if not on_hardware:
        size = sum(bytes_of(table, training) for table in request.tables)
        where = f"on the host, where they need {size / 1e9:,.3g} GB of memory"
        return tuple(Tables(name, "accepted", where) for name in names)
    return tuple(_on_cores(request, mode, name, cores, compilations) for name in names)


def _on_hardware(request: EstimatorRequest, config: Any) -> bool:
    return bool(request.tables) and options.asked(config) != "pjrt"


def _on_cores(
    request: EstimatorRequest, mode: str, name: str, cores: int, compilations: Sequence[Compilation]
) -> Tables:
    assert request.spec is not None
    if name in PJRT:
        hardware = GENERATIONS[name].embedding
        has = (
            "has no embedding hardware"
            if hardware == "none"
            else f"has {hardware}, which TPUEstimator cannot drive"
        )
        return Tables(name, "refused", f"TPU {name} {has}, and {NO_ESTIMATOR}")
    strategy, training = request.spec.partition_strategy, mode == ModeKeys.TRAIN
    memory = GENERATIONS[name].core_bytes
    used = table_bytes(request.tables, cores, strategy, training)
    step = _step_bytes(name, compilations)
    if used + (step or 0) <= memory:
        return Tables(name, "accepted", "", cores, used, step, memory)
    words = (
        f"Tables{' and slots' if training else ''} take {used / 2**30:,.3g} GiB of each of {cores} "
        f"cores{'' if step is None else f', the dense step {step / 2**30:,.3g} GiB'}, and a core "
        f"has {memory / 2**30:g} GiB. {_largest(request.tables, training)} "
        "TPUConfig(device='pjrt') keeps them in the memory of the host instead."
    )
    return Tables(name, "refused", words, cores, used, step, memory)


def _on_devices(
    tables: Sequence[Table], name: str, devices: int, compilations: Sequence[Compilation]
) -> Tables:
    memory, step = GENERATIONS[name].core_bytes, _step_bytes(name, compilations)
    used = device_bytes(tables, devices)
    if used + (step or 0) <= memory:
        return Tables(name, "accepted", "", devices, used, step, memory)
    words = (
        f"Tables and slots take {used / 2**30:,.3g} GiB of each of {devices} devices"
        f"{'' if step is None else f', the dense step {step / 2**30:,.3g} GiB'}, and a device has "
        f"{memory / 2**30:g} GiB. {_largest(tables, training=True)} "
        "TPUConfig(tables='host') keeps them in the memory of the host instead."
    )
    return Tables(name, "refused", words, devices, used, step, memory)


def device_bytes(tables: Sequence[Table], devices: int) -> int:
    """Returns the bytes of tables and slots on each device, as `device_tables` packs the rows.

    This includes the padding in the last packed row of a table.
    """
    total = 0
    for table in tables:
        dimension = table.config.dimension
        packed = dimension <= _LANES
        width = 1 << (dimension - 1).bit_length() if packed else -(-dimension // _LANES) * _LANES
        together = max(_LANES // width, 1)
        rows = -(-table.config.vocabulary_size // devices)
        rows = -(-rows // together) * together
        total += 4 * rows * width * (1 + len(table.trained_by.slots))
    return total


def _step_bytes(name: str, compilations: Sequence[Compilation]) -> int | None:
    steps = [
        compilation.argument_bytes + compilation.temporary_bytes
        for compilation in compilations
        if compilation.generation == name
        and compilation.argument_bytes is not None
        and compilation.temporary_bytes is not None
    ]
    return max(steps, default=None)


def table_bytes(tables: Sequence[Table], cores: int, strategy: str, training: bool) -> int:
    """Returns the bytes on the fullest core."""
    hosts = -(-cores // CORES_PER_HOST)
    total = 0
    for table in tables:
        config, optimizer = table.config, table.optimizer
        # Every host has at least one row, a padding row if the table has too few.
        rows = max(Partition(max(config.vocabulary_size, hosts), hosts, strategy).sizes)
        rows = -(-rows // -(-cores // hosts))
        columns = config.dimension
        packed = getattr(optimizer, "low_dimensional_packing_status", False)
        if not (packed and columns in _PACKED):
            columns = -(-columns // _UNIT) * _UNIT
        slots = len(optimizer.slots) if optimizer is not None and training else 0
        total += 4 * rows * columns * (1 + slots)
    return total


def _largest(tables: Sequence[Table], training: bool) -> str:
    table = max(tables, key=lambda table: bytes_of(table, training))
    slots = len(table.optimizer.slots) if table.optimizer is not None and training else 0
    own = f", and {counted(slots, 'slot')}" if slots else ""
    return (
        f"The largest is {table.name!r}: {table.config.vocabulary_size:,} rows of "
        f"{table.config.dimension}{own}."
    )
