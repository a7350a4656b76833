# SPDX-License-Identifier: Apache-2.0
"""Gives programs for SparseCore to libtpu: python compile_tables.py FOLDER.

Like `compile.py`, it imports only jax. It reads tables.json, which names the topology, the number
of replicas, and the files of the programs. It writes compiled.json anew after each program, because
some programs make libtpu end the process.
"""

import importlib.metadata
import json
import pathlib
import sys

from compile import target  # type: ignore[import-not-found]  # First: it sets up the environment.

# isort: split
import jax
from jax._src.interpreters import mlir
from jax._src.lib.mlir import ir
from jaxlib import _jax


def compiled(program: str, topology: str, replicas: int) -> dict:
    devices, options = target(topology, replicas)
    with mlir.make_ir_context():
        parsed = ir.Module.parse(program)
        try:
            executable = devices[0].client.compile(parsed, _jax.DeviceList(tuple(devices)), options)
        except jax.errors.JaxRuntimeError as error:
            return {"ok": False, "error": str(error)}
    memory = executable.get_compiled_memory_stats()
    return {
        "ok": True,
        "argument_bytes": memory.argument_size_in_bytes,
        "temporary_bytes": memory.temp_size_in_bytes,
    }


def main(folder: pathlib.Path) -> None:
    asked = json.loads((folder / "tables.json").read_text())
    result: dict = {"libtpu": importlib.metadata.version("libtpu"), "programs": []}
    for name in asked["programs"]:
        program = (folder / name).read_text()
        result["programs"].append(compiled(program, asked["topology"], asked["replicas"]))
        written = folder / "compiled.json.part"
        written.write_text(json.dumps(result))
        written.rename(folder / "compiled.json")


if __name__ == "__main__":
    main(pathlib.Path(sys.argv[1]))
