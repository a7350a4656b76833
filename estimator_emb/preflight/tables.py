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

import tensorflow as tf

from estimator_emb.backends.base import EstimatorRequest
from estimator_emb.catalog.generations import GENERATIONS, PJRT
from estimator_emb.catalog.slices import CORES_PER_HOST
from estimator_emb.compat.internals.estimators import ModeKeys
from estimator_emb.engine.tables.partition import Partition
from estimator_emb.engine.tables.sizes import bytes_of
from estimator_emb.preflight.described_step import Step
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

_MOST_CORES = 4096


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
    if training and _are_on_devices(request, config):
        return tuple(_on_devices(request.tables, name, cores, compilations) for name in names)
    if not _on_hardware(request, config):
        size = sum(bytes_of(table, training) for table in request.tables)
        where = f"on the host, where they need {size / 1e9:,.3g} GB of memory"
        return tuple(Tables(name, "accepted", where) for name in names)
    return tuple(_on_cores(request, mode, name, cores, compilations) for name in names)


def on_devices(request: EstimatorRequest, config: Any, step: Step) -> dict[str, Any] | None:
    """Describes the tables in the memory of the devices for `processes/compile.py`, if any.

    An unknown number of ids counts as a single id per sample.
    """
    if step.mode != ModeKeys.TRAIN or not _are_on_devices(request, config):
        return None
    tables = [
        {
            "name": table.name,
            "rows": table.config.vocabulary_size,
            "dimension": table.config.dimension,
            "rule": repr(table.trained_by),
            "initial": [0.0] * len(table.trained_by.slots),
            "all_rows": table.trained_by.updates_untouched_rows,
            "accumulates": table.trained_by.use_gradient_accumulation,
        }
        for table in request.tables
    ]
    batch = step.batch * step.replicas
    features = []
    for table in request.tables:
        for one in table.features:
            ids = _ids_of_sample(step.ids.get(one.key), one.max_sequence_length)
            size = None
            if ids is not None:  # `TablesOnDevices` starts with this size too, and doubles it.
                size = 8 * step.replicas
                while size < batch * ids:
                    size *= 2
            has_gains = ids is not None and table.config.combiner in ("mean", "sqrtn")
            features.append(
                {
                    "key": one.key,
                    "table": table.name,
                    "segments": one.max_sequence_length or 1,
                    "ids": size,
                    "gains": not one.max_sequence_length
                    and (has_gains or one.weight_key is not None),
                }
            )
    return {"tables": tables, "features": features, "batch": batch, "cores": step.replicas}


def _ids_of_sample(spec: Any, longest: int) -> int | None:
    """Returns the most ids per sample, or None if each sample has a single dense id."""
    shape = getattr(spec, "shape", tf.TensorShape(None))
    if isinstance(spec, tf.TensorSpec) and shape.rank == 1 and not longest:
        return None
    known = shape[1:].num_elements() if shape.rank else None
    return min(filter(None, (known, longest)), default=1)


def _are_on_devices(request: EstimatorRequest, config: Any) -> bool:
    return not _on_hardware(request, config) and options.asked_tables(config) == "device"


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
        f"has {memory / 2**30:g} GiB. {_largest(request.tables, training)}"
        f"{_what_fits(request.tables, cores, strategy, training, memory - (step or 0))}"
    )
    return Tables(name, "refused", words, cores, used, step, memory)


def _on_devices(
    tables: Sequence[Table], name: str, devices: int, compilations: Sequence[Compilation]
) -> Tables:
    memory, step = GENERATIONS[name].core_bytes, _step_bytes(name, compilations)
    of_tables = max(
        (
            one.table_step_bytes
            for one in compilations
            if one.generation == name and one.table_step_bytes is not None
        ),
        default=None,
    )
    used, beside = device_bytes(tables, devices), (of_tables or 0) + (step or 0)
    if used + beside <= memory:
        return Tables(name, "accepted", "", devices, used, step, memory, of_tables)
    more = devices
    while more <= _MOST_CORES and device_bytes(tables, more) + beside > memory:
        more *= 2
    looked_up = f", lookup and update {of_tables / 2**30:,.3g} GiB" if of_tables else ""
    words = (
        f"Tables and slots take {used / 2**30:,.3g} GiB of each of {devices} devices{looked_up}"
        f"{'' if step is None else f', the dense step {step / 2**30:,.3g} GiB'}, and a device has "
        f"{memory / 2**30:g} GiB. {_largest(tables, training=True)}"
        f"{f' They would fit on {more} devices.' if more <= _MOST_CORES else ''} "
        "TPUConfig(tables='host') keeps them in the memory of the host instead."
    )
    return Tables(name, "refused", words, devices, used, step, memory, of_tables)


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


def table_bytes(
    tables: Sequence[Table], cores: int, strategy: str, training: bool, divisor: int = 1
) -> int:
    """Returns the bytes on the fullest core, with dimensions divided by `divisor`."""
    hosts = -(-cores // CORES_PER_HOST)
    total = 0
    for table in tables:
        config, optimizer = table.config, table.optimizer
        # Every host has at least one row, a padding row if the table has too few.
        rows = max(Partition(max(config.vocabulary_size, hosts), hosts, strategy).sizes)
        rows = -(-rows // -(-cores // hosts))
        columns = max(1, config.dimension // divisor)
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


def _what_fits(
    tables: Sequence[Table], cores: int, strategy: str, training: bool, room: int
) -> str:
    more, divisor = cores, 1
    while more <= _MOST_CORES and table_bytes(tables, more, strategy, training) > room:
        more *= 2
    widest = max(table.config.dimension for table in tables)
    while divisor < widest and table_bytes(tables, cores, strategy, training, divisor) > room:
        divisor *= 2
    ways = []
    if more <= _MOST_CORES:
        ways.append(f"on {more} cores")
    if table_bytes(tables, cores, strategy, training, divisor) <= room:
        ways.append(f"with dimensions divided by {divisor}")
    fitting = f" They would fit {' or '.join(ways)}." if ways else ""
    return f"{fitting} TPUConfig(device='pjrt') keeps them in the memory of the host instead."
