"""Checks without a TPU whether a TPU will accept a program: `estimator-emb check`.

It runs the script as Python would, with the script's flags, until the first call that trains,
evaluates or predicts. It checks this call, prints the findings, and ends the program without
training. For `train_and_evaluate` it checks both the training step and the evaluation step.
"""

import argparse
import inspect
import os
import shutil
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from estimator_emb.catalog import environment
from estimator_emb.catalog.generations import GENERATIONS
from estimator_emb.cli import load_package, parsing, run_options

DETAILS = ""


class _Left(BaseException):
    """Raised to end the program. As a BaseException, it passes `except Exception`."""


def _generations(text: str) -> tuple[str, ...]:
    names = tuple(text.split(","))
    for name in names:
        if name not in GENERATIONS:
            raise argparse.ArgumentTypeError(f"{name!r} is none of {', '.join(GENERATIONS)}")
    return names


def fill_parser(parser: parsing.Parser) -> None:
    """Adds the arguments."""
    parser.add_argument(
        "--generations",
        type=_generations,
        help=f"TPU generations to check, of {','.join(GENERATIONS)}. Default: "
        "TPUConfig.tpu_generation; else v4, and also v6e if no table is in the embedding hardware",
    )
    parser.add_count(
        "--replicas", "--shards", help="number of cores. Default: TPUConfig.num_shards, or 8"
    )
    parser.add_argument(
        "--compile",
        choices=("auto", "yes", "no"),
        default="auto",
        help="whether to compile the step with libtpu's compiler. auto, the default: if installed",
    )
    parser.add_argument(
        "--compiler_python",
        help="Python interpreter with jax, jaxlib and libtpu, if this interpreter lacks them",
    )
    parser.add_argument(
        "--timeout",
        type=parsing.number(float, "a number > 0", lambda value: value > 0),
        default=600.0,
        help="time limit in seconds for the lowering, and for each generation. Default: 600",
    )
    run_options.add_to(parser, run_options.OF_ANY_PROGRAM)
    parser.add_program()


def main(options: argparse.Namespace) -> int:
    """Returns 0 if nothing is refused, 1 if something is, 2 if the program could not be checked."""
    run_options.check_program(options)
    python = options.compiler_python
    if python is not None and shutil.which(python) is None:
        raise parsing.WrongArguments(f"--compiler_python: there is no interpreter {python!r}")
    load_package()
    from estimator_emb import preflight
    from estimator_emb.legacy import install, launch
    from estimator_emb.preflight import program_lines as refusals
    from estimator_emb.preflight import report
    from estimator_emb.reporting import bars, console

    name = launch.name_of(options.program)
    reports: list[preflight.Report] = []

    def check(estimator: Any, input_fn: Any, mode: str, has_steps: bool) -> None:
        with bars.work_bar("compilation", stays=False, after=0.1) as progress:
            result = preflight.check_program(
                estimator,
                input_fn,
                mode,
                generations=options.generations,
                compile={"auto": None, "yes": True, "no": False}[options.compile],
                replicas=options.replicas,
                compiler_python=options.compiler_python,
                timeout=options.timeout,
                has_steps=has_steps,
                progress=progress,
            )
        print(result, flush=True)
        reports.append(result)

    def unchecked(why: str) -> int:
        print(f"estimator-emb check: {why}", file=sys.stderr)
        return report.UNCHECKED

    try:
        with launch.restored(), console.shown():
            # Programs that look up a TPU find an emulated TPU.
            os.environ[environment.DEVICE.name] = "emulate"
            if options.contrib is not None:
                os.environ[environment.CONTRIB.name] = options.contrib
            install.install()
            with _intercepted(check):  # Last, because it patches what install() installed.
                launch.run_program(options.program, options.tf_v1)
    except _Left as left:
        if left.__cause__ is not None:
            return unchecked(str(left.__cause__))
    except BrokenPipeError:
        raise
    except SystemExit as ended:
        return unchecked(f"{name} ended (status {ended.code}) before it trained.")
    except Exception as error:
        if refusals.is_refusal(error):
            print("The estimator was not made.\nProgram, ops and shapes: 1 finding.")
            print(f"  {refusals.refusal(error)}\n{report.NOT_SHOWN}", flush=True)
            return report.FINDINGS
        launch.show_failure(error, options.tf_v1)
        return unchecked(f"{name} failed before it trained.")
    if not reports:
        return unchecked(
            f"{name} ended without a call of train, evaluate or predict of an Estimator."
        )
    statuses = {result.status for result in reports}
    worse = (one for one in (report.FINDINGS, report.UNCHECKED) if one in statuses)
    return next(worse, report.ACCEPTED)


@contextmanager
def _intercepted(check: Callable[[Any, Any, str, bool], None]) -> Iterator[None]:
    """Makes the first call that trains, evaluates or predicts run `check`, then end the program."""
    from estimator_emb import TPUEstimator, preflight
    from estimator_emb.backends import choose
    from estimator_emb.backends.emulated.backend import EmulatedTPU
    from estimator_emb.compat.internals.estimators import Estimator, TrainingExecutor
    from estimator_emb.compat.internals.patches import Changes
    from estimator_emb.preflight import described
    from estimator_emb.reporting import program_calls

    def leave(*steps: tuple[Any, Any, str, bool]) -> None:
        try:
            for one in steps:
                check(*one)
        except preflight.CannotCheck as error:
            raise _Left from error
        raise _Left

    def intercepting(method: str, mode: str) -> Callable[..., None]:
        signature = inspect.signature(getattr(Estimator, method))

        def intercept(*args: Any, **kwargs: Any) -> None:
            given = signature.bind(*args, **kwargs).arguments
            has_steps = any(given.get(one) is not None for one in ("steps", "max_steps"))
            leave((given["self"], given["input_fn"], mode, has_steps or mode == "infer"))

        return intercept

    def train_and_evaluate(self: Any) -> None:
        training, evaluation = self._train_spec, self._eval_spec
        leave(
            (self._estimator, training.input_fn, "train", training.max_steps is not None),
            (self._estimator, evaluation.input_fn, "eval", evaluation.steps is not None),
        )

    def on_devices(request: Any) -> Any:
        return EmulatedTPU(request, described.DescribedDevices(request))

    with Changes() as changes:
        # The lines of a constructor show that it refused its arguments.
        changes.set_attribute(program_calls, "shorten_traceback", lambda *args: None)
        changes.set_attribute(choose, "BACKENDS", {**choose.BACKENDS, "pjrt": on_devices})
        for method, mode in {"train": "train", "evaluate": "eval", "predict": "infer"}.items():
            intercept = intercepting(method, mode)
            for owner in (Estimator, TPUEstimator):
                changes.set_attribute(owner, method, intercept)
        changes.set_attribute(TrainingExecutor, "run", train_and_evaluate)
        yield
