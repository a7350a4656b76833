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

_INSTRUCTION = re.compile(
    r"= (?P<dtype>[a-z]+\d+\w*)\[(?P<shape>[\d,]*)\]\S* (?P<op>[\w-]+)\("
    r'[^\n]*op_name="(?P<name>[^"]+)"'
)
_NO_TENSORS = ("parameter", "broadcast", "constant", "iota")
"""Instructions whose results are arguments, or are computed where they are used."""


def largest(module: devices.LoweredModule, count: int = 3) -> list[dict]:
    sizes: dict[tuple[str, str], int] = {}
    for match in _INSTRUCTION.finditer(module.text):
        bits = re.search(r"\d+", match["dtype"])
        if bits and match["op"] not in _NO_TENSORS:
            shape = [int(size) for size in match["shape"].split(",") if size]
            name = match["name"].split(";")[-1]
            size = int(np.prod(shape, dtype=object)) * int(bits[0]) // 8
            sizes.setdefault((f"{match['dtype']}[{match['shape']}]", name), size)
    ranked = sorted(sizes.items(), key=lambda item: -item[1])[:count]
    return [{"type": key[0], "op_name": key[1], "bytes": size} for key, size in ranked]


def compiled(module: devices.LoweredModule, topology: str, replicas: int) -> dict:
    described = topologies.get_topology_desc(platform="tpu", topology_name=topology)
    step = devices.JittedStep(module, list(described.devices)[:replicas])
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
