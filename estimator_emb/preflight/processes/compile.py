"""Compiles a lowered step with libtpu: python compile.py FOLDER.

It imports only jax, NumPy and `backends/xla/devices.py`, because its interpreter may have neither
TensorFlow nor this package. It reads step.hlo, step.json and targets.json, and writes
compiled.json. For a TPU it compiles the same step that `device="pjrt"` runs there.
"""

import importlib.metadata
import json
import os
import pathlib
import re
import sys

# Without these, libtpu would wait for the metadata server of a TPU machine.
os.environ.update(
    JAX_PLATFORMS="cpu",
    TPU_SKIP_MDS_QUERY="1",
    TPU_ACCELERATOR_TYPE="v4-8",
    TPU_WORKER_HOSTNAMES="localhost",
    ALLOW_MULTIPLE_LIBTPU_LOAD="1",  # Two checks may run at a time.
)
sys.path.insert(0, str(pathlib.Path(__file__).parents[2] / "backends" / "xla"))

import devices  # type: ignore[import-not-found]  # noqa: E402
import jax  # noqa: E402
import numpy as np  # noqa: E402
from jax.experimental import topologies  # noqa: E402

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


def compiled(module: devices.LoweredModule, topology: str, replicas: int) -> dict:
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
    return {
        "ok": True,
        "flops": executable.cost_analysis().get("flops"),
        "argument_bytes": memory.argument_size_in_bytes,
        "temporary_bytes": memory.temp_size_in_bytes,
        "all_reduces": len(re.findall(r" all-reduce(?:-start)?\(", executable.as_text())),
    }


def main(folder: pathlib.Path) -> None:
    arguments = len(json.loads((folder / "step.json").read_text())["arguments"])
    result: dict = {"libtpu": importlib.metadata.version("libtpu")}
    try:
        module = devices.LoweredModule((folder / "step.hlo").read_bytes(), arguments)
        result["targets"] = [
            compiled(module, topology, replicas)
            for topology, replicas in json.loads((folder / "targets.json").read_text())
        ]
    except Exception as error:  # Not the compiler's verdict, so the parent says 'not compiled'.
        result["error"] = f"{type(error).__name__}: {error}"
    (folder / "compiled.json").write_text(json.dumps(result))


if __name__ == "__main__":
    main(pathlib.Path(sys.argv[1]))
