# SPDX-License-Identifier: Apache-2.0
"""Checks whether a TPU will accept a program, without a TPU.

    estimator-emb check [options] SCRIPT.py [flags of the script]
    estimator-emb check [options] -m MODULE [its flags]

It runs the script as Python would, with its flags, until it trains, evaluates or predicts for the
first time. Then it checks that call, prints what it found, and ends the program. For
`train_and_evaluate` it checks both steps. Nothing is trained, and the rest of the program does not
run.

The exit status is 0 if nothing is refused, 1 if something is, 2 if it could not be checked.
"""

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import estimator_emb
from estimator_emb import preflight
from estimator_emb.cli import parsers, program
from estimator_emb.legacy import install
from estimator_emb.preflight import program as refusals
from estimator_emb.preflight import report
from estimator_emb.private.estimator import Estimator, TrainingExecutor
from estimator_emb.private.patches import Changes
from estimator_emb.spec.options import DEVICE_VARIABLE


class _Left(BaseException):
    """An exception that ends the program, which no `except Exception` of the program catches."""


def main(args: list[str]) -> int:
    """Checks the program that `args` name; returns the exit status."""
    options = parsers.parse("check", args)
    name = program.name_of(options)
    reports: list[preflight.Report] = []
    limits = preflight.SparseCoreLimits(
        options.max_ids_per_partition, options.max_unique_ids_per_partition
    )

    def check(estimator: Any, input_fn: Any, mode: str, has_steps: bool) -> None:
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
            sparse_core_limits=limits,
        )
        print(result, flush=True)
        reports.append(result)

    try:
        # A program that looks for a TPU finds an emulated one.
        with (
            _emulating(),
            _legacy_names(),
            _intercepted(check),
            program.restored(),
        ):
            program.run(options)
    except _Left as left:
        if left.__cause__ is not None:
            return _unchecked(str(left.__cause__))
    except SystemExit as ended:
        return _unchecked(f"{name} ended (status {ended.code}) before it trained.")
    except Exception as error:
        if refusals.is_refusal(error):
            print("The estimator was not made.\nProgram, ops and shapes: 1 finding.")
            print(f"  {refusals.refusal(error)}\n{report.NOT_SHOWN}", flush=True)
            return report.FINDINGS
        program.show_failure(error, options)
        return _unchecked(f"{name} failed before it trained.")
    if not reports:
        return _unchecked(
            f"{name} ended without a call of train, evaluate or predict of an Estimator."
        )
    statuses = {result.status for result in reports}
    for status in (report.FINDINGS, report.UNCHECKED):
        if status in statuses:
            return status
    return report.ACCEPTED


@contextmanager
def _intercepted(check: Callable[[Any, Any, str, bool], None]) -> Iterator[None]:
    """Makes Estimators inside be checked when they would train, evaluate or predict."""

    def leave(*steps: tuple[Any, Any, str, bool]) -> None:
        try:
            for arguments in steps:
                check(*arguments)
        except preflight.CannotCheck as error:
            raise _Left from error
        raise _Left

    def train(
        self: Any,
        input_fn: Any,
        hooks: Any = None,
        steps: Any = None,
        max_steps: Any = None,
        saving_listeners: Any = None,
    ) -> None:
        leave((self, input_fn, "train", steps is not None or max_steps is not None))

    def evaluate(self: Any, input_fn: Any, steps: Any = None, *args: Any, **kwargs: Any) -> None:
        leave((self, input_fn, "eval", steps is not None))

    def predict(self: Any, input_fn: Any, *args: Any, **kwargs: Any) -> None:
        leave((self, input_fn, "infer", True))

    def train_and_evaluate(self: Any) -> None:
        training, evaluation = self._train_spec, self._eval_spec
        leave(
            (self._estimator, training.input_fn, "train", training.max_steps is not None),
            (self._estimator, evaluation.input_fn, "eval", evaluation.steps is not None),
        )

    methods: dict[str, Any] = {"train": train, "evaluate": evaluate, "predict": predict}
    with Changes() as changes:
        for name, method in methods.items():
            changes.set_attribute(Estimator, name, method)
            changes.set_attribute(estimator_emb.TPUEstimator, name, method)
        changes.set_attribute(TrainingExecutor, "run", train_and_evaluate)
        yield


@contextmanager
def _emulating() -> Iterator[None]:
    before = dict(os.environ)
    os.environ[DEVICE_VARIABLE] = "host"
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)


@contextmanager
def _legacy_names() -> Iterator[None]:
    """Installs `tf.estimator` with the classes of this package for unchanged programs inside."""
    install.install()
    try:
        yield
    finally:
        install.uninstall()


def _unchecked(why: str) -> int:
    print(f"estimator-emb check: {why}", file=sys.stderr)
    return report.UNCHECKED
