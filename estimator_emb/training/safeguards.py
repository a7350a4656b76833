"""What surrounds the calls of every estimator of this package, with tables or without.

A training ends by SIGTERM with a checkpoint, and logs how far it is. A checkpoint that is missing,
damaged or does not fit is an error that says what to do, and so is an evaluation without input.
"""

import contextlib
import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from estimator_emb.checkpoints.restoring.model_directory import ModelDirectory
from estimator_emb.checks import call_arguments, run_checks
from estimator_emb.messages import errors
from estimator_emb.training import early_stopping, progress, stopping

Explain = Callable[[Exception], Exception | None]
"""Explains an error of a session, as `errors.explained` asks for it."""


@contextlib.contextmanager
def training(
    estimator: Any,
    directory: ModelDirectory,
    explain: Explain,
    hooks: Any,
    steps: Any,
    max_steps: Any,
    saving_listeners: Any,
    batch_size: int | None = None,
    needs_input: bool = True,
) -> Iterator[list[Any]]:
    """Surrounds a training; yields the program's `hooks` and those that the training needs.

    A `batch_size` of None logs steps per second. An input without any batch is an error if the
    training `needs_input`, else a warning.
    """
    call_arguments.check_call(
        "train", hooks=hooks, saving_listeners=saving_listeners, steps=steps, max_steps=max_steps
    )
    model_dir = estimator.model_dir
    run_checks.say_if_reached(model_dir, max_steps)
    early_stopping.say_why(hooks)
    log = progress.log_beside(hooks, steps, max_steps, batch_size, model_dir)
    with (
        errors.explained(explain),
        stopping.at_end_of_step(model_dir, estimator.config.is_chief) as end_hooks,
        run_checks.training(hooks, needs_input) as check,
        directory.continuing(estimator.config),
    ):
        yield [*(hooks or ()), *log, check, *end_hooks]


@contextlib.contextmanager
def evaluation(directory: ModelDirectory, explain: Explain, path: str | None) -> Iterator[None]:
    """Surrounds an evaluation of the checkpoint at `path`."""
    with (
        progress.pausing(),
        stopping.at_once(),
        errors.explained(explain),
        directory.restoring(path),
    ):
        yield


def evaluate_run(
    run: Callable[..., Any], all_hooks: Sequence[Any], model_dir: str, output_dir: str
) -> Any:
    """Calls `run(all_hooks=...)` with the hooks that an evaluation needs; logs its metrics.

    `output_dir` is the folder of the evaluation's summaries, 'eval' or 'eval_<name>'.
    """
    # Last, because the hook of a loop that the end of the input cuts short says more.
    hooks = [*all_hooks, run_checks.Evaluated(), stopping.EndEvaluation()]
    with progress.pausing():
        metrics = run(all_hooks=hooks)
    progress.log_evaluation(metrics, model_dir, output_dir)
    return metrics


def predictions(
    directory: ModelDirectory, explain: Explain, path: str | None, values: Any
) -> Iterator[Any]:
    """Yields the predictions of the checkpoint at `path`, from the generator `values`."""
    with stopping.at_once(), errors.explained(explain), contextlib.closing(values):
        # The first prediction builds the graph; after it the estimator may do something else.
        with directory.restoring(path):
            first = list(itertools.islice(values, 1))
        yield from first
        yield from values
