# SPDX-License-Identifier: Apache-2.0
"""Asks libtpu about the lookup and the update of a spec's tables on SparseCore."""

import json
import pathlib
import tempfile
import time
from collections.abc import Sequence

from estimator_emb.estimator import TPUEstimator
from estimator_emb.preflight import compiler
from estimator_emb.preflight.sparsecore import module
from estimator_emb.preflight.sparsecore.layout import (
    SPARSE_CORES,
    Chips,
    SparseCoreLimits,
    Stack,
    stacks_of,
)
from estimator_emb.preflight.sparsecore.results import Answer, SparseCoreResult, StackResult
from estimator_emb.preflight.sparsecore.rule import NoRule, trace
from estimator_emb.preflight.step import ModeKeys, Step
from estimator_emb.spec import Table, tables_of

_WORDS = 700
"""The most characters of the compiler's words that a report repeats."""


def of_step(
    estimator: TPUEstimator,
    step: Step,
    generations: Sequence[str],
    python: str,
    timeout: float,
    limits: SparseCoreLimits | None = None,
) -> tuple[SparseCoreResult, ...]:
    """Compiles lookup and update of the tables of a step; see `compile_tables`."""
    spec = estimator.backend.request.spec
    if spec is None or step.mode == ModeKeys.PREDICT:
        return ()
    return compile_tables(
        tables_of(spec),
        spec.clipping_limit,
        step.mode == ModeKeys.TRAIN,
        step.batch,
        step.replicas,
        generations,
        python,
        timeout,
        limits,
    )


def compile_tables(
    tables: Sequence[Table],
    clipping_limit: float | None,
    training: bool,
    batch: int,
    replicas: int,
    generations: Sequence[str],
    python: str,
    timeout: float,
    limits: SparseCoreLimits | None = None,
) -> tuple[SparseCoreResult, ...]:
    """Compiles lookup and update of tables for each generation that has SparseCores.

    Nothing is trained, and no memory is needed for the tables.

    Args:
      tables: the tables of a spec; none gives no results.
      clipping_limit: that of the `EmbeddingConfigSpec`.
      training: True compiles lookups and updates, False lookups.
      batch: number of samples of one chip.
      replicas: number of chips, each of which is one core of the program.
      generations: names of generations; those without SparseCores are left out.
      python: path of an interpreter that has jax, jaxlib and libtpu.
      timeout: seconds that each generation may take.
      limits: the sizes of SparseCore's buffers; None means the defaults of `SparseCoreLimits`.

    Returns:
      What the compiler says, for each generation that has SparseCores.
    """
    limits = limits or SparseCoreLimits()
    if not tables:
        return ()
    return tuple(
        _compile(tables, clipping_limit, training, batch, replicas, name, python, timeout, limits)
        for name in generations
        if name in SPARSE_CORES
    )


def _compile(
    tables: Sequence[Table],
    clipping_limit: float | None,
    training: bool,
    batch: int,
    replicas: int,
    generation: str,
    python: str,
    timeout: float,
    limits: SparseCoreLimits,
) -> SparseCoreResult:
    chips = Chips(replicas, SPARSE_CORES[generation])
    known = compiler.GENERATIONS[generation]
    sizes = known.topologies
    topology = (
        f"{generation}:{sizes[min(sizes) if replicas == 1 else replicas]}"
        if (replicas == 1 or replicas in sizes)
        else ""
    )
    problem = ""
    if not topology:
        counts = ", ".join(str(count) for count in (1, *sorted(sizes)))
        problem = f"no topology with {replicas} chips is known, but with {counts}"
    elif batch % chips.sparse_cores:
        problem = (
            f"a chip's SparseCores share its samples evenly, and {batch} samples per core are no "
            f"multiple of {chips.sparse_cores}"
        )
    if problem:
        return SparseCoreResult(
            generation, topology, replicas, chips.sparse_cores, str(limits), words=problem
        )
    stacks = stacks_of(tables, batch, chips)
    programs: dict[tuple[int, str], str] = {}
    reasons: dict[int, str] = {}
    for index, stack in enumerate(stacks):
        programs[index, "lookup"] = module.lookup(stack, chips, limits)
        if training:
            try:
                programs[index, "update"] = _update(stack, clipping_limit, chips, limits)
            except NoRule as reason:
                reasons[index] = str(reason)
    # Stacks of the same shapes and rule are the same program.
    texts = list(dict.fromkeys(programs.values()))
    answers, libtpu = _ask(texts, topology, replicas, python, timeout)
    answer_to = dict(zip(texts, answers, strict=True))
    results = []
    for index, stack in enumerate(stacks):
        update = None
        if index in reasons:
            update = Answer("refused", f"it cannot be said for SparseCore: {reasons[index]}.")
        elif training:
            update = answer_to[programs[index, "update"]]
        optimizer = stack.tables[0].optimizer
        results.append(
            StackResult(
                tuple(table.name for table in stack.tables),
                type(optimizer).__name__ if optimizer else "",
                stack.rows,
                stack.dimension,
                stack.table_bytes,
                stack.used_bytes,
                answer_to[programs[index, "lookup"]],
                update,
            )
        )
    return SparseCoreResult(
        generation,
        topology,
        replicas,
        chips.sparse_cores,
        str(limits),
        tuple(results),
        libtpu,
        known.core_bytes,
    )


def _update(
    stack: Stack, clipping_limit: float | None, chips: Chips, limits: SparseCoreLimits
) -> str:
    optimizer = stack.tables[0].optimizer
    if optimizer is None:
        raise NoRule("it has no optimizer")
    rule = trace(optimizer, clipping_limit, chips.count)
    return module.update(stack, rule, chips, limits)


def _ask(
    programs: Sequence[str], topology: str, replicas: int, python: str, timeout: float
) -> tuple[list[Answer], str]:
    """Returns (the compiler's answer to each program, the version of libtpu or '')."""
    answers: list[Answer] = []
    libtpu = ""
    end = time.monotonic() + timeout
    with tempfile.TemporaryDirectory(prefix="preflight-") as folder:
        work = pathlib.Path(folder)
        names = [f"{index}.mlir" for index in range(len(programs))]
        for name, program in zip(names, programs, strict=True):
            (work / name).write_text(program)
        while len(answers) < len(programs):
            left = end - time.monotonic()
            if left <= 0:
                late = f"the generation took longer than {timeout:g} s"
                missing = len(programs) - len(answers)
                return answers + [Answer("not compiled", late)] * missing, libtpu
            asked = {
                "topology": topology,
                "replicas": replicas,
                "programs": names[len(answers) :],
            }
            (work / "tables.json").write_text(json.dumps(asked))
            result, words = compiler.run(python, "compile_tables.py", work, "compiled", left)
            if result is None:
                file = work / "compiled.json"
                if file.exists():  # It ended in the middle of a later program.
                    result = json.loads(file.read_text())
            if result is None:
                # The first of them ended the process; the others are asked again without it.
                answers.append(Answer("not compiled", words))
                continue
            libtpu = result["libtpu"]
            answers += [_answer(answer) for answer in result["programs"]]
    return answers, libtpu


def _answer(answer: dict) -> Answer:
    if answer["ok"]:
        return Answer(
            "accepted",
            argument_bytes=answer["argument_bytes"],
            temporary_bytes=answer["temporary_bytes"],
        )
    words = answer["error"].strip()
    # An error of the compiler's own is no judgement of the tables.
    outcome = "not compiled" if words.startswith("INTERNAL") else "refused"
    if len(words) > _WORDS:
        words = f"{words[:_WORDS]} ..."
    return Answer(outcome, words)
