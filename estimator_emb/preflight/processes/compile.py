# SPDX-License-Identifier: Apache-2.0
"""Gives a lowered step to libtpu: python compile.py FOLDER.

This program imports only jax: its interpreter may have neither TensorFlow nor this package. It
reads step.hlo and targets.json, and writes compiled.json. It uses private parts of jax and jaxlib,
of the versions that the extra `[preflight]` names.
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

import jax  # noqa: E402
import numpy as np  # noqa: E402
from jax._src.interpreters import mlir  # noqa: E402
from jax._src.lib.mlir import ir  # noqa: E402
from jax.experimental import topologies  # noqa: E402
from jaxlib import _hlo, _jax, xla_client  # noqa: E402

_SUM = re.compile(
    r"(?P<shape>= (?P<dtype>\w+)\[[^=\n]*) custom-call\((?P<operand>[^)]*)\), "
    r'custom_call_target="estimator_emb\.cross_replica_sum"'
    r'[^\n]*?backend_config="?(?P<groups>\{\{[\d,{}]*\}\})"?'
)
"""The custom call `lowering.CROSS_REPLICA_SUM` in the text of a module."""

_COPY = re.compile(r"(= \S+ )copy\(")
"""A copy of a variable, which TensorFlow's module has and StableHLO lacks."""

_INSTRUCTION = re.compile(
    r"= (?P<dtype>[a-z]+\d+\w*)\[(?P<shape>[\d,]*)\]\S* (?P<op>[\w-]+)\("
    r'[^\n]*op_name="(?P<name>[^"]+)"'
)
_NO_TENSORS = ("parameter", "broadcast", "constant", "iota")
"""Instructions whose results are arguments, or are computed where they are used."""


def stablehlo(module: bytes, replicas: int) -> bytes:
    """Returns the module as the compiler takes it, with sums over `replicas` cores."""
    text = _text(module)
    text = _COPY.sub(r"\1reshape(", text)
    if replicas == 1:
        text = _SUM.sub(r"\g<shape> reshape(\g<operand>)", text)
    else:
        text = _with_all_reduce(text)
    if "estimator_emb.cross_replica_sum" in text:
        raise RuntimeError("A sum over cores was not found in XLA's text of the module.")
    proto = _hlo.hlo_module_from_text(text).as_serialized_hlo_module_proto()
    return _jax.mlir.hlo_to_stablehlo(proto)


def _text(module: bytes) -> str:
    """Returns XLA's text of a module, in which each instruction has the name of its op."""
    options = _hlo.HloPrintOptions()
    options.print_metadata = options.print_large_constants = True
    return _hlo.XlaComputation(module).get_hlo_module().to_string(options)


def largest(module: bytes, count: int = 3) -> list[dict]:
    sizes: dict[tuple[str, str], int] = {}
    for match in _INSTRUCTION.finditer(_text(module)):
        bits = re.search(r"\d+", match["dtype"])
        if bits and match["op"] not in _NO_TENSORS:
            shape = [int(size) for size in match["shape"].split(",") if size]
            name = match["name"].split(";")[-1]
            size = int(np.prod(shape, dtype=object)) * int(bits[0]) // 8
            sizes.setdefault((f"{match['dtype']}[{match['shape']}]", name), size)
    ranked = sorted(sizes.items(), key=lambda item: -item[1])[:count]
    return [{"type": key[0], "op_name": key[1], "bytes": size} for key, size in ranked]


def _with_all_reduce(text: str) -> str:
    dtypes = sorted({match["dtype"] for match in _SUM.finditer(text)})
    channels = iter(range(1, 1 + len(_SUM.findall(text))))
    text = _SUM.sub(
        lambda match: (
            f"{match['shape']} all-reduce({match['operand']}), channel_id={next(channels)}, "
            f"replica_groups={match['groups']}, to_apply=%sum_over_cores_{match['dtype']}"
        ),
        text,
    )
    sums = "".join(
        f"%sum_over_cores_{dtype} (a: {dtype}[], b: {dtype}[]) -> {dtype}[] {{\n"
        f"  %a = {dtype}[] parameter(0)\n  %b = {dtype}[] parameter(1)\n"
        f"  ROOT %sum = {dtype}[] add(%a, %b)\n}}\n\n"
        for dtype in dtypes
    )
    entry = text.index("\nENTRY ") + 1
    return text[:entry] + sums + text[entry:]


def target(topology: str, replicas: int) -> tuple[list, xla_client.CompileOptions]:
    described = topologies.get_topology_desc(platform="tpu", topology_name=topology)
    devices = list(described.devices)[:replicas]
    options = xla_client.CompileOptions()
    for part in (options, options.executable_build_options):
        part.num_replicas, part.num_partitions = replicas, 1
        part.device_assignment = xla_client.DeviceAssignment.create(
            np.array([[device.id] for device in devices])
        )
    return devices, options


def compiled(module: bytes, topology: str, replicas: int) -> dict:
    devices, options = target(topology, replicas)
    code = stablehlo(module, replicas)
    with mlir.make_ir_context():
        parsed = ir.Module.parse(code)
        try:
            executable = devices[0].client.compile(parsed, _jax.DeviceList(tuple(devices)), options)
        except jax.errors.JaxRuntimeError as error:
            words = str(error)
            answer = {"ok": False, "error": words}
            if "memory" in words:
                answer["largest"] = largest(module)
            return answer
    memory = executable.get_compiled_memory_stats()
    cost = executable.cost_analysis()
    cost = cost[0] if isinstance(cost, (list, tuple)) else cost
    return {
        "ok": True,
        "flops": cost.get("flops"),
        "argument_bytes": memory.argument_size_in_bytes,
        "temporary_bytes": memory.temp_size_in_bytes,
        "all_reduces": len(
            re.findall(r" all-reduce(?:-start)?\(", executable.hlo_modules()[0].to_string())
        ),
    }


def main(folder: pathlib.Path) -> None:
    module = (folder / "step.hlo").read_bytes()
    result: dict = {"libtpu": importlib.metadata.version("libtpu")}
    try:
        result["targets"] = [
            compiled(module, topology, replicas)
            for topology, replicas in json.loads((folder / "targets.json").read_text())
        ]
    except Exception as error:  # This is not the compiler's verdict, and the parent says so.
        result["error"] = f"{type(error).__name__}: {error}"
    (folder / "compiled.json").write_text(json.dumps(result))


if __name__ == "__main__":
    main(pathlib.Path(sys.argv[1]))
