"""Runs the whole check: builds the step, looks up its ops, and compiles it."""

import dataclasses
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import estimator_emb.estimator
from estimator_emb.catalog.generations import GENERATIONS, PJRT
from estimator_emb.catalog.slices import CORES_PER_HOST
from estimator_emb.compat.internals.estimators import ModeKeys
from estimator_emb.preflight import (
    compiler,
    described,
    program_lines,
    static,
    tables,
)
from estimator_emb.preflight import described_step as step_lib
from estimator_emb.preflight.report import CannotCheck, Compilation, Finding, Report
from estimator_emb.reporting import error_notes
from estimator_emb.reporting.text_columns import counted
from estimator_emb.spec import options
from estimator_emb.spec.tpu_generations import NO_ESTIMATOR, check_runtime


def check_program(
    estimator: estimator_emb.estimator.TPUEstimator,
    input_fn: Callable[..., Any],
    mode: str = "train",
    generations: Sequence[str] | None = None,
    compile: bool | None = None,
    replicas: int | None = None,
    compiler_python: str | None = None,
    timeout: float = 600.0,
    has_steps: bool = True,
    progress: Callable[[int, int], Any] | None = None,
) -> Report:
    """Checks whether a TPU will accept the step of an estimator in one mode.

    It builds the step of one core and looks up every op and type among the TPU's kernels. If the
    extra `[preflight]` is installed, it also asks the TPU's own compiler. It computes the memory
    that tables take. It also makes the estimator as with `use_tpu=True` for a TPU that is only
    described, and reports the errors. It calls model_fn once, and input_fn as often as a TPU does.
    This reads no record unless input_fn itself does. It trains and writes nothing.

    Args:
      estimator: the estimator of the program; if it has use_tpu=False, the step is built as with
        use_tpu=True.
      input_fn: the program's input_fn for this mode.
      mode: 'train', the default, 'eval' or 'infer'.
      generations: names among `GENERATIONS`; for each, the compiler is asked and the tables are
        checked. None, the default, means `TPUConfig.tpu_generation`. If that is not set, it means
        v4, and also v6e unless the program has tables in the embedding hardware.
      compile: True asks the compiler, False does not; None, the default, asks it if it is
        installed.
      replicas: number of cores; None means `TPUConfig.num_shards`, or 8 if that is None.
      compiler_python: path of a Python interpreter that has jax, jaxlib and libtpu. None means the
        environment variable ESTIMATOR_EMB_COMPILER_PYTHON, or this interpreter if it is not set.
      timeout: seconds that the lowering, and each generation, may take; 600 by default.
      has_steps: False means that the program trains without `steps` and `max_steps`, or evaluates
        without `steps`, which a TPU refuses.
      progress: called with the numbers of compilations done and in all, including the lowering.
        None, the default, reports no progress.

    Returns:
      A `Report` of what was found.

    Raises:
      CannotCheck: the step could not be built, or `compile` is True and there is no compiler.
      ValueError: the mode or a generation is unknown, or a number is not positive.
    """
    if mode not in step_lib.MODES:
        raise ValueError(f"mode must be one of {step_lib.MODES}; got {mode!r}.")
    unknown = [name for name in generations or () if name not in GENERATIONS]
    if unknown:
        raise ValueError(f"generations must be among {tuple(GENERATIONS)}; got {unknown[0]!r}.")
    if replicas is not None and replicas < 1:
        raise ValueError(f"replicas must be at least 1; got {replicas}.")
    if timeout <= 0:
        raise ValueError(f"timeout must be positive; got {timeout}.")
    python, missing = compiler.interpreter(compiler_python)
    if compile and missing:
        raise CannotCheck(missing)

    if not isinstance(estimator, estimator_emb.estimator.TPUEstimator):
        raise CannotCheck(
            f"Only a TPUEstimator of estimator_emb can be checked; got {type(estimator).__name__} "
            f"of {type(estimator).__module__}."
        )
    with error_notes.explained(
        program_lines.unfollowed, "The checker itself cannot follow this program: "
    ):
        request, config = estimator.backend.request, estimator.config
        if generations is None:
            generations = tables.default_generations(request, config)
        cores = replicas or config.tpu_config.num_shards or CORES_PER_HOST
        built = _built(estimator, input_fn, mode, cores, has_steps)
        notes = [*_notes(estimator, replicas, cores), *built.notes]
        if set(generations) & set(PJRT):
            notes.append(
                f"What compiles for {', '.join(PJRT)} is for TPUConfig(device='pjrt'), which "
                f"nobody has tried on a TPU: {NO_ESTIMATOR}"
            )
        skipped = ""
        compilations: tuple[Compilation, ...] = ()
        versions: tuple[str, str] | None = None
        if built.step is None:
            skipped = "There is no step to compile."
        elif compile is False:
            skipped = "It was not asked for."
        elif missing:
            skipped = missing
        elif built.findings:
            skipped = "Correct the findings above first."
        else:
            compilations, versions, compiler_notes = compiler.compile_step(
                built.step,
                generations,
                python,
                timeout,
                progress,
            )
            notes += compiler_notes
        all_cores = cores * (config.tpu_config.num_cores_per_replica or 1)
        of_tables = tables.check_tables(request, config, mode, generations, all_cores, compilations)
        if built.findings:  # They may be about the tables.
            of_tables = tuple(one for one in of_tables if one.outcome == "refused")
        return Report(
            mode=mode,
            replicas=cores,
            batch_per_core=None if built.step is None else built.step.batch,
            op_count=built.op_count,
            findings=(*built.findings, *_generation_findings(config)),
            compilations=compilations,
            skipped=skipped,
            versions=versions,
            notes=tuple(notes),
            tables=of_tables,
        )


@dataclasses.dataclass
class _Built:
    step: step_lib.Step | None
    findings: list[Finding]
    op_count: int = 0
    notes: list[str] = dataclasses.field(default_factory=list)


def _built(
    estimator: estimator_emb.estimator.TPUEstimator,
    input_fn: Callable[..., Any],
    mode: str,
    replicas: int,
    has_steps: bool,
) -> _Built:
    found = described.findings(estimator, mode, replicas, has_steps)
    if mode == ModeKeys.EVAL and not estimator.backend.request.eval_on_tpu:
        note = "This call runs on the TPU's host, and has no step on the TPU."
        return _Built(None, found, notes=[note])
    try:
        step = step_lib.build(estimator, input_fn, mode, replicas)
    except CannotCheck:
        if found:
            return _Built(None, found)
        raise
    if not step.batch:  # Both raise the errors about batch sizes.
        return _Built(None, found or step.findings)
    ops = static.ops_of(step)
    outside = [op for op in ops if op.outside]
    softly = [op for op in outside if op.softly]
    found += [*step.findings, *static.findings(step, ops)]
    built = _Built(step, list(dict.fromkeys(found)), len(ops) - len(outside))
    if not step.complete:
        built.notes.append("The step could not be built, so its ops were not looked at.")
    if len(outside) > len(softly):
        count = counted(len(outside) - len(softly), "op")
        built.notes.append(f"Set aside: {count} in outside_compilation, which the host runs.")
    if softly:
        where = ", ".join(dict.fromkeys(f"{op.type} ({op.where or op.name})" for op in softly))
        built.notes.append(
            f"Set aside: {counted(len(softly), 'op')} that no TPU runs, and that TensorFlow puts "
            f"on the host, as tf.config.set_soft_device_placement(True) allows: {where}."
        )
    return built


def _notes(
    estimator: estimator_emb.estimator.TPUEstimator, asked: int | None, cores: int
) -> Iterator[str]:
    if asked is None and estimator.config.tpu_config.num_shards is None:
        yield f"TPUConfig.num_shards is not set: {cores} cores are assumed."
    if not estimator.backend.request.use_tpu:
        yield "The program said use_tpu=False; the step was built as with use_tpu=True."


def _generation_findings(config: Any) -> Iterator[Finding]:
    if options.asked(config) == "pjrt":
        return
    try:
        check_runtime(getattr(config.tpu_config, "tpu_generation", None))
    except ValueError as error:
        yield Finding(f"use_tpu=True raises ValueError: {str(error).rstrip('.')}")
