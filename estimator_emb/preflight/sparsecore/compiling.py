# SPDX-License-Identifier: Apache-2.0
"""Asks libtpu about the lookup and the update of a spec's tables on SparseCore."""

import dataclasses
import json
import pathlib
import tempfile
import time
from collections.abc import Sequence

from estimator_emb.estimator import TPUEstimator
from estimator_emb.names.generations import GENERATIONS, SPARSE_CORES
from estimator_emb.preflight import compiler
from estimator_emb.preflight.sparsecore import module
from estimator_emb.preflight.sparsecore.layout import (
    Chips,
    SparseCoreLimits,
    Stack,
    stacks_of,
)
from estimator_emb.preflight.sparsecore.results import Answer, SparseCoreResult, StackResult
from estimator_emb.preflight.sparsecore.rule import NoRule, trace
from estimator_emb.preflight.step import ModeKeys
from estimator_emb.spec.resolved import Table, tables_of

_WORDS = 700
"""The number of characters after which a report cuts off the compiler's words."""


@dataclasses.dataclass(frozen=True)
class SparseCoreStep:
    """The use of a spec's tables in one step: a lookup, and in training an update.

    `batch` is the number of samples of one replica.
    """

    tables: Sequence[Table]
    clipping_limit: float | None
    training: bool
    batch: int
    replicas: int
    cores_per_replica: int = 1
    limits: SparseCoreLimits = SparseCoreLimits()


def of_program(
    estimator: TPUEstimator,
    mode: str,
    replicas: int,
    batch: int | None = None,
    limits: SparseCoreLimits | None = None,
) -> SparseCoreStep | None:
    """Returns how a step uses a program's tables; None if it uses none on a TPU.

    `batch` is the number of samples of one replica; None means its share of the estimator's batch.
    """
    asked = estimator.backend.request
    tables = tables_of(asked.spec)
    if asked.spec is None or not tables or mode == ModeKeys.PREDICT:
        return None
    training = mode == ModeKeys.TRAIN
    if batch is None:
        size = asked.train_batch_size if training else asked.eval_batch_size
        batch = (size or 0) // replicas
    if not batch:
        return None
    return SparseCoreStep(
        tables,
        asked.spec.clipping_limit,
        training,
        batch,
        replicas,
        estimator.config.tpu_config.num_cores_per_replica or 1,
        limits or SparseCoreLimits(),
    )


def compile_tables(
    step: SparseCoreStep | None, generations: Sequence[str], python: str, timeout: float
) -> tuple[SparseCoreResult, ...]:
    """Compiles lookup and update of tables for each generation that has SparseCores.

    Nothing is trained, and no memory is needed for the tables. Each generation may take `timeout`
    seconds.
    """
    if step is None:
        return ()
    return tuple(
        _compile(step, name, python, timeout) for name in generations if name in SPARSE_CORES
    )


def _compile(
    step: SparseCoreStep, generation: str, python: str, timeout: float
) -> SparseCoreResult:
    chips = Chips(step.replicas, SPARSE_CORES[generation])
    topology, problem = _topology(step, generation, chips)
    result = SparseCoreResult(
        generation, topology, chips.count, chips.sparse_cores, str(step.limits), words=problem
    )
    if problem:
        return result
    stacks = stacks_of(step.tables, step.batch, chips)
    programs: dict[tuple[int, str], str] = {}
    reasons: dict[int, str] = {}
    for index, stack in enumerate(stacks):
        programs[index, "lookup"] = module.lookup(stack, chips, step.limits)
        if step.training:
            try:
                programs[index, "update"] = _update(stack, chips, step)
            except NoRule as reason:
                reasons[index] = str(reason)
    # Stacks with the same shapes and rule have the same program.
    texts = list(dict.fromkeys(programs.values()))
    answers, libtpu = _ask(texts, topology, chips.count, python, timeout)
    answer_to = dict(zip(texts, answers, strict=True))
    stack_results = []
    for index, stack in enumerate(stacks):
        update = None
        if index in reasons:
            update = Answer("refused", f"it cannot be said for SparseCore: {reasons[index]}.")
        elif step.training:
            update = answer_to[programs[index, "update"]]
        optimizer = stack.tables[0].optimizer
        stack_results.append(
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
    return dataclasses.replace(
        result,
        stacks=tuple(stack_results),
        libtpu=libtpu,
        memory_bytes=GENERATIONS[generation].core_bytes,
    )


def _topology(step: SparseCoreStep, generation: str, chips: Chips) -> tuple[str, str]:
    """Returns (libtpu's name of the topology or '', '' or why nothing can be compiled)."""
    sizes = GENERATIONS[generation].topologies
    size = min(sizes) if chips.count == 1 else chips.count
    if step.cores_per_replica > 1:
        return "", (
            f"num_cores_per_replica={step.cores_per_replica} divides the model, and it is not "
            "known how SparseCores would share the samples of a replica"
        )
    if size not in sizes:
        counts = ", ".join(str(count) for count in (1, *sorted(sizes)))
        return "", f"no topology with {chips.count} chips is known, but with {counts}"
    if step.batch % chips.sparse_cores:
        return "", (
            f"a chip's SparseCores share its samples evenly, and {step.batch} samples per core are "
            f"no multiple of {chips.sparse_cores}"
        )
    return f"{generation}:{sizes[size]}", ""


def _update(stack: Stack, chips: Chips, step: SparseCoreStep) -> str:
    optimizer = stack.tables[0].optimizer
    if optimizer is None:
        raise NoRule("it has no optimizer")
    rule = trace(optimizer, step.clipping_limit, chips.count)
    return module.update(stack, rule, chips, step.limits)


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
            result, words = compiler.run_process(
                python, "compile_tables.py", work, "compiled", left
            )
            if result is None:
                file = work / "compiled.json"
                if file.exists():  # It ended in the middle of a later program.
                    result = json.loads(file.read_text())
            if result is None:
                # The first program ended the process; the others are asked again without it.
                answers.append(Answer("not compiled", words))
                continue
            libtpu = result["libtpu"]
            answers += [_answer(answer) for answer in result["programs"]]
    return answers, libtpu


def _answer(answer: dict) -> Answer:
    if answer["ok"]:
        return Answer(
            "compiles",
            argument_bytes=answer["argument_bytes"],
            temporary_bytes=answer["temporary_bytes"],
        )
    words = answer["error"].strip()
    # An internal error of the compiler says nothing about the tables.
    outcome = "not compiled" if words.startswith("INTERNAL") else "refused"
    if len(words) > _WORDS:
        words = f"{words[:_WORDS]} ..."
    return Answer(outcome, words)
