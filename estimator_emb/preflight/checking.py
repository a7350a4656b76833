# SPDX-License-Identifier: Apache-2.0
"""Runs the whole check: builds the step, looks its ops up, and compiles it."""

from collections.abc import Callable, Sequence
from typing import Any

import estimator_emb.estimator
from estimator_emb.preflight import compiler, static
from estimator_emb.preflight import step as step_lib
from estimator_emb.preflight.report import CannotCheck, Compilation, Report
from estimator_emb.preflight.sparsecore import compiling
from estimator_emb.preflight.sparsecore.layout import SparseCoreLimits
from estimator_emb.preflight.sparsecore.results import SparseCoreResult

MODES = (step_lib.ModeKeys.TRAIN, step_lib.ModeKeys.EVAL, step_lib.ModeKeys.PREDICT)


def check(
    estimator: estimator_emb.estimator.TPUEstimator,
    input_fn: Callable[..., Any],
    mode: str = "train",
    generations: Sequence[str] = ("v4", "v6e"),
    compile: bool | None = None,
    replicas: int | None = None,
    compiler_python: str | None = None,
    timeout: float = 600.0,
    sparse_core_limits: SparseCoreLimits | None = None,
) -> Report:
    """Checks whether a TPU will accept the step of an estimator in one mode.

    It calls input_fn once for the shapes of its tensors, which reads no record unless input_fn does
    so itself, and model_fn once. It trains and writes nothing.

    Args:
      estimator: the estimator of the program; with use_tpu=False, the step is built as with
        use_tpu=True.
      input_fn: the program's input_fn for this mode.
      mode: 'train', the default, 'eval' or 'infer'.
      generations: names among `GENERATIONS`, for each of which the compiler is asked; v4 and v6e by
        default.
      compile: True asks the compiler, False does not, and None, the default, does if it is
        installed.
      replicas: number of cores; None means `TPUConfig.num_shards`, or 8 if that is None.
      compiler_python: path of a Python interpreter that has jax, jaxlib and libtpu; None means that
        of the environment variable ESTIMATOR_EMB_COMPILER_PYTHON, or this interpreter.
      timeout: seconds that the lowering, and each generation, may take; 600 by default.
      sparse_core_limits: the sizes for which lookup and update of the tables are compiled for
        generations that have SparseCores; None means the defaults of `SparseCoreLimits`.

    Returns:
      What was found.

    Raises:
      CannotCheck: the step could not be built, or `compile` is True and there is no compiler.
      ValueError: the mode or a generation is unknown, or a number is not positive.
    """
    if mode not in MODES:
        raise ValueError(f"mode must be one of {MODES}; got {mode!r}.")
    unknown = [name for name in generations if name not in compiler.GENERATIONS]
    if unknown:
        raise ValueError(
            f"generations must be among {tuple(compiler.GENERATIONS)}; got {unknown[0]!r}."
        )
    if replicas is not None and replicas < 1:
        raise ValueError(f"replicas must be at least 1; got {replicas}.")
    if timeout <= 0:
        raise ValueError(f"timeout must be positive; got {timeout}.")
    python, missing = compiler.interpreter(compiler_python)
    if compile and missing:
        raise CannotCheck(missing)

    step = step_lib.build(estimator, input_fn, mode, replicas)
    ops = static.ops_of(step)
    findings = (*step.findings, *static.findings(step, ops))
    outside = [op for op in ops if op.outside]
    notes = []
    if replicas is None and estimator.config.tpu_config.num_shards is None:
        notes.append(f"TPUConfig.num_shards is not set: {step.replicas} cores are assumed.")
    if not estimator.backend.request.use_tpu:
        notes.append("The program said use_tpu=False; the step was built as with use_tpu=True.")
    if not step.complete:
        notes.append("The step could not be built, so its ops were not looked at.")
    if outside:
        count = f"{len(outside)} op{'s' if len(outside) > 1 else ''}"
        notes.append(f"Set aside: {count} in outside_compilation, which the host runs.")
    skipped = ""
    compilations: tuple[Compilation, ...] = ()
    versions: tuple[str, str] | None = None
    if compile is False:
        skipped = "It was not asked for."
    elif missing:
        skipped = missing
    elif findings:
        skipped = "The findings above come first."
    else:
        compilations, versions, compiler_notes = compiler.compile_step(
            step, generations, python, timeout
        )
        notes += compiler_notes
    sparse_core: tuple[SparseCoreResult, ...] = ()
    if compile is not False and not missing:
        table_step = compiling.of_program(
            estimator, mode, step.replicas, step.batch, sparse_core_limits
        )
        sparse_core = compiling.compile_tables(table_step, generations, python, timeout)
    return Report(
        mode=mode,
        replicas=step.replicas,
        batch_per_core=step.batch,
        op_count=len(ops) - len(outside),
        findings=findings,
        compilations=compilations,
        skipped=skipped,
        versions=versions,
        notes=tuple(notes),
        sparse_core=sparse_core,
    )
