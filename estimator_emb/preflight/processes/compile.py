"""Compiles a lowered step with libtpu: python compile.py FOLDER.

It imports only jax, NumPy, `backends/xla/devices.py` and `device_tables.py`, because its
interpreter may have neither TensorFlow nor this package. It reads step.hlo, step.json, tables.json
and targets.json, and writes compiled.json. For a TPU it compiles the same step that `device="pjrt"`
runs there.
"""

import importlib.metadata
import json
import os
import pathlib
import re
import sys
from typing import Any

# Without these, libtpu would wait for the metadata server of a TPU machine.
os.environ.update(
    JAX_PLATFORMS="cpu",
    TPU_SKIP_MDS_QUERY="1",
    TPU_ACCELERATOR_TYPE="v4-8",
    TPU_WORKER_HOSTNAMES="localhost",
    ALLOW_MULTIPLE_LIBTPU_LOAD="1",  # Two checks may run at a time.
)
sys.path.insert(0, str(pathlib.Path(__file__).parents[2] / "backends" / "xla"))

import device_tables  # type: ignore[import-not-found]  # noqa: E402
import devices  # type: ignore[import-not-found]  # noqa: E402
import jax  # noqa: E402
import jax.numpy as jnp  # noqa: E402
import numpy as np  # noqa: E402
from jax.experimental import topologies  # noqa: E402
from jax.sharding import Mesh, NamedSharding, PartitionSpec  # noqa: E402

_NO_TENSORS = ("stablehlo.broadcast_in_dim", "stablehlo.constant", "stablehlo.iota")
"""Operations whose values are computed where they are used."""


def largest(module: devices.LoweredModule, count: int = 3) -> list[dict]:
    """Returns the largest values of a step, with the ops of the graph that make them."""
    sizes: dict[tuple[str, str], int] = {}
    with devices.mlir.make_ir_context():
        parsed = module.parsed(1)  # The operations do not keep it alive.
        for op in devices.operations(parsed):
            name = re.findall(r'fused\["([^"]+)"', str(op.location))
            kinds = [one.type for one in op.results if getattr(one.type, "has_static_shape", False)]
            for kind in kinds if name and op.name not in _NO_TENSORS else ():
                dtype, shape = str(kind.element_type), list(kind.shape)
                made = f"{dtype}[{','.join(map(str, shape))}]", name[-1].split(";")[-1]
                size = np.dtype(devices.DTYPES.get(dtype, np.int8)).itemsize
                sizes.setdefault(made, int(np.prod(shape, dtype=object)) * size)
    ranked = sorted(sizes.items(), key=lambda item: -item[1])[:count]
    return [{"type": key[0], "op_name": key[1], "bytes": size} for key, size in ranked]


def compiled(
    module: devices.LoweredModule, topology: str, replicas: int, of_tables: dict | None
) -> dict:
    described = topologies.get_topology_desc(platform="tpu", topology_name=topology)
    cores = list(described.devices)[:replicas]
    step = devices.JittedStep(module, cores)
    try:
        executable = step.ahead_of_time()
    except jax.errors.JaxRuntimeError as error:
        words = str(error)
        answer = {"ok": False, "error": words}
        if "memory" in words:
            answer["largest"] = largest(module)
        return answer
    memory = executable.memory_analysis()
    needed = None
    if of_tables is not None and of_tables["cores"] == replicas:
        needed = table_step_bytes(of_tables, cores)
    return {
        "ok": True,
        "flops": executable.cost_analysis().get("flops"),
        "argument_bytes": memory.argument_size_in_bytes,
        "temporary_bytes": memory.temp_size_in_bytes,
        "table_step_bytes": needed,
        "all_reduces": len(re.findall(r" all-reduce(?:-start)?\(", executable.as_text())),
    }


def table_step_bytes(of_tables: dict, cores: list) -> int:
    """Returns the bytes that lookup and update need on a core besides the tables."""
    try:
        memory = table_step(of_tables, cores, most_rows=None).memory_analysis()
    except jax.errors.JaxRuntimeError:  # Out of memory: compile with small tables.
        memory = table_step(of_tables, cores, most_rows=1000).memory_analysis()
    tables = memory.alias_size_in_bytes
    return memory.temp_size_in_bytes + memory.argument_size_in_bytes - tables


def table_step(of_tables: dict, cores: list, most_rows: int | None) -> Any:
    """Compiles lookup and update for devices that are only described.

    A simple update rule replaces the optimizer's rule, because this process cannot import it.
    """

    def rule(rate: Any, gradients: Any, weights: Any, slots: Any) -> Any:
        new = [slot + gradients * gradients for slot in slots]
        return weights - rate * gradients / sum(new, 1.0), *new

    tables = []
    for table in of_tables["tables"]:
        rows = min(table["rows"], most_rows or table["rows"])
        initial = tuple(table["initial"])
        tables.append(
            device_tables.DeviceTable(**{**table, "rows": rows, "initial": initial, "step": rule})
        )
    features = [
        device_tables.DeviceFeature(one["key"], one["table"], one["segments"])
        for one in of_tables["features"]
    ]
    batch = of_tables["batch"]
    made = device_tables.DeviceTables(tables, features, batch, len(cores), packs=True)

    def step(arrays: Any, ids: Any, gradients: Any, rates: Any) -> Any:
        activations, kept = made.look_up(arrays, ids)
        return made.update(arrays, kept, gradients, rates), activations

    mesh = Mesh(np.array(cores), (device_tables.AXIS,))
    by_core, same = PartitionSpec(device_tables.AXIS), PartitionSpec()
    places = by_core, by_core, by_core, same
    sharded = jax.shard_map(
        step, mesh=mesh, in_specs=places, out_specs=(by_core, by_core), check_vma=False
    )
    shardings = tuple(NamedSharding(mesh, place) for place in places)
    jitted = jax.jit(sharded, in_shardings=shardings, donate_argnums=0)
    dimensions = {one.name: one.dimension for one in tables}
    arrays = [
        [jax.ShapeDtypeStruct((len(cores) * one.packed, one.lanes), jnp.float32) for _ in one.fills]
        for one in made.stacks
    ]
    ids, gradients = {}, {}
    for one in of_tables["features"]:
        size, names = one["ids"] or batch, {"ids": jnp.int32}
        names |= {"segments": jnp.int32} if one["ids"] else {}
        names |= {"gains": jnp.float32} if one["gains"] else {}
        ids[one["key"]] = {
            name: jax.ShapeDtypeStruct((size,), dtype) for name, dtype in names.items()
        }
        width = one["segments"] * dimensions[one["table"]]
        gradients[one["key"]] = jax.ShapeDtypeStruct((batch, width), jnp.float32)
    rates = jax.ShapeDtypeStruct((len(tables),), jnp.float32)
    return jitted.lower(arrays, ids, gradients, rates).compile()


def main(folder: pathlib.Path) -> None:
    arguments = len(json.loads((folder / "step.json").read_text())["arguments"])
    of_tables = json.loads((folder / "tables.json").read_text())
    result: dict = {"libtpu": importlib.metadata.version("libtpu")}
    try:
        module = devices.LoweredModule((folder / "step.hlo").read_bytes(), arguments)
        result["targets"] = [
            compiled(module, topology, replicas, of_tables)
            for topology, replicas in json.loads((folder / "targets.json").read_text())
        ]
    except Exception as error:  # Not the compiler's verdict, so the parent says 'not compiled'.
        result["error"] = f"{type(error).__name__}: {error}"
    (folder / "compiled.json").write_text(json.dumps(result))


if __name__ == "__main__":
    main(pathlib.Path(sys.argv[1]))
