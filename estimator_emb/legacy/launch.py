"""Runs an unchanged program in this process, and shows how it failed."""

import contextlib
import functools
import os
import random
import runpy
import signal
import sys
from collections.abc import Iterator, Sequence
from types import ModuleType, TracebackType
from typing import Any

import numpy as np
import tensorflow as tf

from estimator_emb.catalog import extras
from estimator_emb.compat.internals.estimators import (
    Estimator,
    LocalRunConfig,
    step_of_latest_checkpoint,
)
from estimator_emb.compat.internals.patches import LASTING
from estimator_emb.legacy import install
from estimator_emb.reporting import console
from estimator_emb.reporting.console import logger
from estimator_emb.reporting.text_columns import escaped


@console.shown()
def launch(
    program: Sequence[str],
    binds_tf_v1: bool = False,
    steps_limit: int | None = None,
    seed: int | None = None,
) -> int:
    """Runs a program with the classes of this package in its `tf.estimator`.

    The environment says where it trains. `program` is a file, or '-m' and a module, followed by its
    arguments. `binds_tf_v1` makes `import tensorflow` give TensorFlow 1. Each call of `train` and
    `evaluate` ends after `steps_limit` steps, if given. `seed` seeds the random numbers of Python,
    NumPy and TensorFlow, and each `RunConfig` without a seed.

    Returns 0 if the program ends normally, 1 if it ends by an exception, 130 if Ctrl-C ends it. The
    program's own `SystemExit` passes through, with status 143 if SIGTERM has ended a training.
    """
    install.install()
    if steps_limit is not None:
        _limit_steps(steps_limit)
    if seed is not None:
        _seed(seed)
    try:
        run_program(program, binds_tf_v1)
    except KeyboardInterrupt:
        print(f"estimator-emb: {name_of(program)} was interrupted.", file=sys.stderr)
        return 128 + signal.SIGINT
    except Exception as error:
        if not console.is_told_elsewhere(error):
            show_failure(error, binds_tf_v1)
        return 1
    return 0


def name_of(program: Sequence[str]) -> str:
    """Returns the name of a program in messages: its file or its module."""
    return escaped(program[1] if program[0] == "-m" else program[0])


def run_program(program: Sequence[str], binds_tf_v1: bool) -> None:
    """Runs a program with the arguments, `__main__` and sys.path[0] that Python would give it.

    Afterwards they stay as the program left them. `restored` restores them.
    """
    is_module = program[0] == "-m"
    if not getattr(sys.flags, "safe_path", False):  # In that mode Python adds nothing.
        # Before install: a file of the program may have the name of a module that tf_v1 supplies.
        sys.path[0] = os.getcwd() if is_module else os.path.dirname(os.path.realpath(program[0]))
    install.install(tf_v1=binds_tf_v1)
    if is_module:
        sys.argv[:] = program[1:]
        runpy.run_module(program[1], run_name="__main__", alter_sys=True)
        return
    sys.argv[:] = program
    main = ModuleType("__main__")
    main.__file__ = os.path.abspath(program[0])
    sys.modules["__main__"] = main
    with open(program[0], "rb") as file:
        code = compile(file.read(), main.__file__, "exec")
    exec(code, vars(main))


def show_failure(error: Exception, bound_tf_v1: bool) -> None:
    """Prints a program's exception as Python would, followed by advice."""
    frames = _frames_of_program(error.__traceback__)
    sys.excepthook(type(error), error.with_traceback(frames), frames)
    if bound_tf_v1:
        return
    with contextlib.suppress(extras.MissingExtra):
        advice = extras.load("tf1", "legacy.tf_v1").advice_about_name(error)
        if advice and advice not in str(error):
            print(f"estimator-emb: {advice}", file=sys.stderr)


@contextlib.contextmanager
def restored() -> Iterator[None]:
    """At its end, restores `__main__`, sys.argv, sys.path, the environment and `tf.estimator`."""
    main, variables = sys.modules["__main__"], dict(os.environ)
    arguments, path = list(sys.argv), list(sys.path)
    try:
        yield
    finally:
        sys.modules["__main__"], sys.argv[:], sys.path[:] = main, arguments, path
        install.uninstall()
        os.environ.clear()
        os.environ.update(variables)


def _frames_of_program(frames: TracebackType | None) -> TracebackType | None:
    leading = (__file__, "<frozen runpy>", runpy.__file__)
    while frames is not None and frames.tb_frame.f_code.co_filename != __file__:
        frames = frames.tb_next
    while frames is not None and frames.tb_frame.f_code.co_filename in leading:
        frames = frames.tb_next
    return frames


def _limit_steps(limit: int) -> None:
    train, evaluate = Estimator.train, Estimator.evaluate

    @functools.wraps(train)
    def limited_train(
        self: Any,
        input_fn: Any,
        hooks: Any = None,
        steps: Any = None,
        max_steps: Any = None,
        saving_listeners: Any = None,
    ) -> Any:
        # A call that fails without a limit still fails.
        if max_steps is None:
            steps = _limited("train: steps", self, steps, limit)
        elif steps is None:
            done = step_of_latest_checkpoint(self.model_dir)
            max_steps = _limited("train: max_steps", self, max_steps, done + limit)
        return train(self, input_fn, hooks, steps, max_steps, saving_listeners)

    @functools.wraps(evaluate)
    def limited_evaluate(self: Any, input_fn: Any, steps: Any = None, *args: Any, **kwargs: Any):
        return evaluate(
            self, input_fn, _limited("evaluate: steps", self, steps, limit), *args, **kwargs
        )

    LASTING.set_attribute(Estimator, "train", limited_train)
    LASTING.set_attribute(Estimator, "evaluate", limited_evaluate)


def _seed(seed: int) -> None:
    random.seed(seed)
    np.random.seed(seed)
    tf.random.set_seed(seed)
    given = LocalRunConfig.tf_random_seed.fget

    def tf_random_seed(self: Any) -> int:
        own = given(self)
        return seed if own is None else own

    LASTING.set_attribute(LocalRunConfig, "tf_random_seed", property(tf_random_seed))


def _limited(what: str, estimator: Any, steps: Any, limit: int) -> Any:
    backend = getattr(estimator, "backend", None)
    if steps is None and backend is not None and backend.request.use_tpu:
        return None  # The call fails then, as on a TPU, where steps are required.
    if steps is None or (isinstance(steps, int) and steps > limit):
        logger.info("%s is %d, not %s (--steps-limit).", what, limit, steps)
        return limit
    return steps
