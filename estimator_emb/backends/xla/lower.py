"""Lowers a step to XLA's HLO with TensorFlow, without a TPU.

This module imports only TensorFlow. `preflight.compiler` writes a step into a folder and
runs `python lower.py FOLDER` in a separate process, which writes step.hlo and lowered.json.
"""

import json
import math
import mmap
import pathlib
import sys

import numpy as np
import tensorflow as tf

_WORDS = {1: np.uint8, 2: np.uint16, 4: np.uint32, 8: np.uint64}
_UNRESERVED = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | getattr(mmap, "MAP_NORESERVE", 0)


class Refused(Exception):
    """Raised if XLA rejects a step, with XLA's message."""


def _without_memory(shape: list[int], dtype: str) -> tf.Tensor:
    """Returns zeros that reserve only address space, and use memory when they are read."""
    size = tf.as_dtype(dtype).size
    if dtype == "bool" or tf.as_dtype(dtype).is_quantized or size not in _WORDS:
        return tf.zeros(shape, dtype)  # Small, and integers cannot be bitcast to them.
    count = math.prod(shape)
    pages = mmap.mmap(-1, max(count, 1) * size, flags=_UNRESERVED)
    words = np.frombuffer(pages, _WORDS[size], count).reshape(shape)
    return tf.bitcast(tf.experimental.dlpack.from_dlpack(words.__dlpack__()), dtype)


def lowered(graph: tf.compat.v1.GraphDef, interface: dict, **platform: str) -> bytes:
    """Returns XLA's serialized module. Its parameters are the arguments, then the variables."""
    # XLA reads each variable's shape, so each variable needs a value. It takes no memory of a GPU.
    with tf.device("CPU:0"):
        variables = {
            variable["name"]: tf.Variable(_without_memory(variable["shape"], variable["dtype"]))
            for variable in interface["variables"]
        }
    specs = [
        tf.TensorSpec(argument["shape"], argument["dtype"]) for argument in interface["arguments"]
    ]

    def step(*arguments):
        inside = tf.compat.v1.get_default_graph()
        inputs = {
            argument["name"]: value
            for argument, value in zip(interface["arguments"], arguments, strict=True)
        }
        inputs.update(
            {name: inside.capture(variable.handle) for name, variable in variables.items()}
        )
        computed = [name for name in interface["results"] if name not in inputs]
        names = [*computed, *filter(None, [interface["train_op"]])]
        read = {name for node in graph.node for name in node.input}
        read_inputs = {name: value for name, value in inputs.items() if name in read}
        found = tf.graph_util.import_graph_def(graph, read_inputs, names, name="")
        results = {**inputs, **dict(zip(computed, found, strict=False))}
        with tf.control_dependencies(found[len(computed) :]):
            return [tf.identity(results[name]) for name in interface["results"]]

    wrapped = tf.compat.v1.wrap_function(step, specs)
    compiled = tf.function(
        lambda *arguments: wrapped(*arguments),
        input_signature=specs,
        jit_compile=True,
        autograph=False,
    )
    try:
        lowering = compiled.experimental_get_compiler_ir(*specs)
        module: bytes = lowering(stage="hlo_serialized", **platform)
    except (ValueError, tf.errors.OpError) as error:
        raise Refused(str(error)) from error
    return module


def _has_loops(graph: tf.compat.v1.GraphDef) -> bool:
    functions = [node for function in graph.library.function for node in function.node_def]
    return any(node.op.endswith(("While", "Enter")) for node in (*graph.node, *functions))


def main(folder: pathlib.Path) -> None:
    """Lowers the step in `folder`, and writes the result there."""
    interface = json.loads((folder / "step.json").read_text())
    graph = tf.compat.v1.GraphDef.FromString((folder / "graph.pb").read_bytes())
    result: dict
    try:
        (folder / "step.hlo").write_bytes(lowered(graph, interface))
        result = {"ok": True, "loops": _has_loops(graph)}
    except Refused as error:
        result = {"ok": False, "error": str(error)}
    (folder / "lowered.json").write_text(json.dumps(result))


if __name__ == "__main__":
    main(pathlib.Path(sys.argv[1]))
