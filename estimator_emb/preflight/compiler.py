"""Compiles a step with the TPU's own compiler, ahead of time and without a TPU.

Two separate processes do this, so that their crashes and imports do not affect the program.
`backends/xla/lower.py` (TensorFlow) converts the graph of the step to XLA's HLO, and
`processes/compile.py` (jax, jaxlib, libtpu) gives the HLO to libtpu. They may run in different
interpreters, because a new jax and an old TensorFlow cannot be installed together.
"""

import contextlib
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from estimator_emb.backends.xla import core_step, lower
from estimator_emb.catalog import environment, installing
from estimator_emb.catalog.generations import GENERATIONS, PJRT
from estimator_emb.checkpoints.files.checkpoint_reader import counter
from estimator_emb.preflight import program_lines, static
from estimator_emb.preflight.described_step import Step
from estimator_emb.preflight.report import Compilation

REQUIRED = ("jax", "jaxlib", "libtpu")
_COMPILE = str(pathlib.Path(__file__).parent / "processes" / "compile.py")
_OF_TPU = ("TPUReplicatedInput", "TPUReplicateMetadata")


def interpreter(asked: str | None) -> tuple[str, str]:
    """Returns (path of the Python that compiles, reason why it cannot or '')."""
    python = asked or environment.COMPILER_PYTHON.value() or sys.executable
    program_text = (
        "import importlib.util as u, sys; "
        "print(*[n for n in sys.argv[1:] if u.find_spec(n) is None])"
    )
    try:
        missing = subprocess.run(
            [python, "-c", program_text, *REQUIRED],
            check=True,
            capture_output=True,
            text=True,
            timeout=60,
            env=_environment(python),
        ).stdout.split()
    except (OSError, subprocess.SubprocessError) as error:
        return python, f"{python} is no Python interpreter that runs: {error}."
    if not missing:
        return python, ""
    return python, (
        f"{' and '.join(missing)} not installed in {python}: "
        f"{installing.extra('preflight')}, or name an interpreter that has them in "
        f"{environment.COMPILER_PYTHON}."
    )


def _environment(python: str) -> dict[str, str]:
    """Returns this process's environment without variables for a TPU or another interpreter."""
    unwanted: tuple[str, ...] = ("TPU_", "XLA_", "LIBTPU_", "JAX_")
    if python != sys.executable:
        unwanted += ("PYTHONPATH", "PYTHONHOME")
    return {key: value for key, value in os.environ.items() if not key.startswith(unwanted)}


def compile_step(
    step: Step,
    generations: Sequence[str],
    python: str,
    timeout: float,
    progress: Callable[[int, int], Any] | None = None,
) -> tuple[tuple[Compilation, ...], tuple[str, str] | None, list[str]]:
    """Returns (compilations, versions of TensorFlow and libtpu if it was lowered, notes)."""
    with tempfile.TemporaryDirectory(prefix="preflight-") as folder:
        work = pathlib.Path(folder)
        advance = counter(progress, 1 + len(generations))
        advance(0)
        loops, outcome, words = _lower(step, work, timeout)
        if outcome != "accepted":
            failed = Compilation(", ".join(generations), "", step.replicas, outcome, words)
            return (failed,), None, []
        notes = []
        if loops:
            notes.append(
                "The step has loops: floating-point operations count each loop's body once."
            )
        compilations: list[Compilation] = []
        libtpu = "unknown"
        for name in generations:
            advance(1)
            targets = _targets(name, step.replicas)
            if len(targets) == 1 and step.replicas > 1:
                notes.append(
                    f"No topology of {name} with {step.replicas} cores is known: only one replica "
                    "was compiled."
                )
            (work / "targets.json").write_text(json.dumps(targets))
            result, words = run_process(python, _COMPILE, work, "compiled", timeout)
            libtpu = (result or {}).get("libtpu", libtpu)
            compilations += _compilations(name, targets, result, words, step)
    return tuple(compilations), (tf.__version__, libtpu), notes


def _lower(step: Step, work: pathlib.Path, timeout: float) -> tuple[bool, str, str]:
    """Returns (whether the step has loops, outcome and words as in `Compilation`)."""
    try:
        _write(step, work)
    except core_step.CannotLower as error:
        return False, "not compiled", f"It cannot be lowered without a TPU: {error}"
    result, words = run_process(sys.executable, lower.__file__, work, "lowered", timeout)
    if result is None:
        return False, "not compiled", f"Lowering by TensorFlow {tf.__version__} failed: {words}"
    if result["ok"]:
        return result["loops"], "accepted", ""
    words = _located(result["error"], step)
    if "OpKernel for XLA_CPU_JIT" in words:  # The lowering for a TPU may have that kernel.
        words = f"TensorFlow {tf.__version__} cannot lower it without a TPU: {words}"
        return False, "not compiled", words
    return False, "refused", f"TensorFlow {tf.__version__} could not lower it: {words}"


def _write(step: Step, folder: pathlib.Path) -> None:
    """Writes the step for `backends/xla/lower.py`: graph.pb, and step.json with its interface.

    Ops outside compilation are left out. Tensors that they give the step become arguments, and
    tensors that they take from it become results. Raises CannotLower if a part of this fails.
    """
    ops = static.reachable(step)
    outside = [op for op in ops if static.OUTSIDE in op.node_def.attr]
    left_out = {*outside, *(tensor.op for tensor in step.arguments)}
    inside = {op.name for op in ops if op not in left_out and op.type not in _OF_TPU}
    leaving = [*(one for _, one in step.results), *(one for op in outside for one in op.inputs)]
    results = {one.name: one for one in leaving if one.op.name in inside}
    train_op = step.train_op if step.train_op and step.train_op.name in inside else None
    with step.graph.as_default():
        taken = core_step.taken_out(ops, inside, list(results.values()), train_op)
    for node in taken.graph.node:
        if node.op == "CrossReplicaSum":
            _sum(node, step.graph.get_operation_by_name(node.name))
    graphs = static.graphs_of_functions(step)
    for function in taken.graph.library.function:
        if function.signature.name in graphs:
            _edit_function(function, graphs[function.signature.name])
    (folder / "graph.pb").write_bytes(taken.graph.SerializeToString())
    (folder / "step.json").write_text(json.dumps(taken.interface()))


def _sum(node: tf.compat.v1.NodeDef, op: tf.Operation) -> None:
    """Turns the node of a CrossReplicaSum into the custom call that replaces it."""
    tensor = op.inputs[1]
    groups = tf.get_static_value(tensor)
    while groups is None and tensor.op.type == "Placeholder":  # Captured by a function.
        outer = [outer for outer, inner in getattr(tensor.graph, "captures", ()) if inner is tensor]
        if not outer:
            break
        tensor = outer[0]
        groups = tf.get_static_value(tensor)
    if groups is None:
        raise core_step.CannotLower(f"the groups of {op.name} are no constants.")
    del node.input[1]
    core_step.sum_over_cores(node, op.outputs[0].shape, groups.tolist())


def _edit_function(function: tf.compat.v1.NodeDef, graph: tf.Graph) -> None:
    # Only the graph marks the ops that TensorFlow itself puts outside compilation.
    outside = {op.name for op in graph.get_operations() if static.OUTSIDE in op.node_def.attr}
    nodes = [node for node in function.node_def if node.name not in outside]
    used = {name.split(":")[0] for node in nodes for name in node.input if not name.startswith("^")}
    used.update(name.split(":")[0] for name in function.ret.values())
    if used & outside:
        raise core_step.CannotLower(
            f"the step needs what outside_compilation gives within {function.signature.name} "
            f"({', '.join(sorted(used & outside))})."
        )
    for node in nodes:
        kept = [name for name in node.input if name.removeprefix("^") not in outside]
        del node.input[:]
        node.input.extend(kept)
        if node.op == "CrossReplicaSum":
            _sum(node, graph.get_operation_by_name(node.name))
        core_step.clean(node)
    remaining = [type(node).FromString(node.SerializeToString()) for node in nodes]
    del function.node_def[:]
    function.node_def.extend(remaining)
    for key in [key for key, name in function.control_ret.items() if name in outside]:
        del function.control_ret[key]
        function.signature.control_output.remove(key)


def _targets(generation: str, replicas: int) -> list[tuple[str, int]]:
    topologies = GENERATIONS[generation].topologies
    targets = [(f"{generation}:{topologies[min(topologies)]}", 1)]
    if replicas > 1 and replicas in topologies:
        targets.append((f"{generation}:{topologies[replicas]}", replicas))
    return targets


def run_process(
    python: str, process: str, work: pathlib.Path, result: str, timeout: float
) -> tuple[Any, str]:
    """Runs a process and returns (content of its result file, or None and the reason)."""
    file = work / f"{result}.json"
    file.unlink(missing_ok=True)
    environment = _environment(python)
    environment.update(CUDA_VISIBLE_DEVICES="", TF_CPP_MIN_LOG_LEVEL="3")
    try:
        done = subprocess.run(
            [python, process, str(work)],
            env=environment,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
            timeout=timeout,
        )
    except subprocess.TimeoutExpired:
        return None, f"it took longer than {timeout:g} s"
    if file.exists():
        return json.loads(file.read_text()), ""
    last = "\n".join(done.stderr.strip().splitlines()[-8:])
    return None, f"its process ended with status {done.returncode}:\n{last}"


def _compilations(
    generation: str, targets: list[tuple[str, int]], result: Any, words: str, step: Step
) -> list[Compilation]:
    failed = words or result.get("error")
    if failed:
        return [Compilation(generation, *target, "not compiled", failed) for target in targets]
    found = []
    for target, answer in zip(targets, result["targets"], strict=True):
        if answer.pop("ok"):
            outcome = "compiles" if generation in PJRT else "accepted"
            answer["memory_bytes"] = GENERATIONS[generation].core_bytes
        else:
            largest = _largest(answer.get("largest", ()), step)
            text = "\n".join([_located(answer["error"], step), *largest])
            # An internal error of the compiler says nothing about the step.
            outcome = "not compiled" if text.startswith("INTERNAL") else "refused"
            answer = {"words": text}
        found.append(Compilation(generation, *target, outcome, **answer))
    return found


def _largest(tensors: Sequence[dict[str, Any]], step: Step) -> list[str]:
    lines = []
    for tensor in tensors:
        where = ", ".join(_line_of_op(tensor["op_name"], step.graph)) or tensor["op_name"]
        lines.append(f"{where}: makes {tensor['type']}, {tensor['bytes'] / 2**30:,.3g} GiB")
    return lines


def _located(words: str, step: Step) -> str:
    """Returns the compiler's message, with the lines of the program that made the ops in it."""
    graphs = static.graphs_of_functions(step)
    lines: dict[str, None] = {}
    for node in _NODE.finditer(words):
        # The op belongs to the function that the message names next as not converted.
        converting = _CONVERTING.search(words, node.end())
        graph = _graph_named(converting[1], graphs, step.graph) if converting else step.graph
        lines.update(dict.fromkeys(_line_of_op(node[1], graph)))
    for names in re.findall(r'op_name="([^"]+)"', words):
        for name in names.split(";"):
            lines.update(dict.fromkeys(_line_of_op(name, step.graph)))
    return "\n".join([words.strip(), *lines])


_NODE = re.compile(r"\[\[(?:\{\{function_node [^}]*\}\})?(?:\{\{node )?([^\]}]+)(?:\}\})?\]\]")
_CONVERTING = re.compile(r"failed while converting ([^\[\s]+)\[")
_CALLS = re.compile(r"^((Stateful)?PartitionedCall|__inference_[^/]*|jit\([^/]*\))/")


def _graph_named(name: str, graphs: dict[str, Any], outermost: tf.Graph) -> Any:
    """Returns the graph of a function. TensorFlow may have appended '_const_...' to its name."""
    names = [known for known in graphs if name == known or name.startswith(f"{known}_const_")]
    return graphs[names[0]] if names else outermost


def _line_of_op(name: str, graph: Any) -> list[str]:
    while _CALLS.match(name):
        name = _CALLS.sub("", name)
    while name:
        with contextlib.suppress(KeyError, ValueError):
            op = graph.get_operation_by_name(name)
            if where := program_lines.line_of(op):
                return [f"{where}: op '{op.name}'"]
        name = name.rpartition("/")[0]
    return []
