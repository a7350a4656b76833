# SPDX-License-Identifier: Apache-2.0
"""Runs a training program for TPUs as it is: `estimator-emb run`."""

from __future__ import annotations

import functools
import logging
import os
import signal
import sys
from typing import Any

import tensorflow as tf

from estimator_emb.cli import parsers, program
from estimator_emb.legacy import forks, install
from estimator_emb.private.estimator import Estimator, step_of_latest_checkpoint
from estimator_emb.private.patches import LASTING
from estimator_emb.spec.options import (
    DEVICE_VARIABLE,
    DEVICES,
    SHARDS_VARIABLE,
    TABLE_SUMMARIES_VARIABLE,
    TOPOLOGY_VARIABLE,
)

logger = logging.getLogger("estimator_emb")


def main(args: list[str]) -> int:
    """Runs the program that `args` name.

    Returns:
      0 if the program ends by itself, 1 if it ends by an exception, 130 if Ctrl-C ends it. An exit
      of its own (`SystemExit`) passes through, with status 143 if SIGTERM has ended a training.
    """
    options = parsers.parse("run", args)
    device = options.device or os.environ.get(DEVICE_VARIABLE) or "host"
    if device not in DEVICES:
        parsers.run().error(
            f"the environment variable {DEVICE_VARIABLE} must be 'host' or 'tpu'; it is {device!r}"
        )
    os.environ[DEVICE_VARIABLE] = device
    if options.shards is not None and options.topology is not None:
        parsers.run().error("--shards and --topology both say how many cores there are")
    if options.shards is not None:
        if device == "tpu":
            parsers.run().error("--shards is the number of emulated cores: it needs --device=host")
        os.environ[SHARDS_VARIABLE] = str(options.shards)
        os.environ.pop(TOPOLOGY_VARIABLE, None)
    if options.topology is not None:
        if device == "tpu":
            parsers.run().error("--topology is that of an emulated TPU: it needs --device=host")
        os.environ[TOPOLOGY_VARIABLE] = options.topology
        os.environ.pop(SHARDS_VARIABLE, None)

    if options.table_summaries is not None:
        os.environ[TABLE_SUMMARIES_VARIABLE] = str(int(options.table_summaries))

    logger.info(_what_is_emulated(device))
    install.install()
    forks.warn_of_copies()
    if options.steps_limit is not None:
        _limit_steps(options.steps_limit)
    try:
        program.run(options)
    except KeyboardInterrupt:
        print(f"estimator-emb: {program.name_of(options)} was interrupted.", file=sys.stderr)
        return 128 + signal.SIGINT
    except Exception as error:
        program.show_failure(error, options)
        return 1
    return 0


def _what_is_emulated(device: str) -> str:
    if device == "tpu":
        return f"A TPU is required (--device=tpu). TensorFlow {tf.__version__}."
    shards = os.environ.get(SHARDS_VARIABLE)
    cores = "" if shards is None else f" with {shards} core{'s' if shards != '1' else ''}"
    name = os.environ.get(TOPOLOGY_VARIABLE)
    emulated = "A TPU" if name is None else f"A TPU {name}"
    return (
        f"{emulated} is emulated on the host{cores}; no TPU name is looked up. "
        f"TensorFlow {tf.__version__}."
    )


def _limit_steps(limit: int) -> None:
    """Makes every `train` and `evaluate` of every estimator end after `limit` steps."""
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
        # A call that is an error without a limit stays one.
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


def _limited(what: str, estimator: Any, steps: Any, limit: int) -> Any:
    backend = getattr(estimator, "backend", None)
    if steps is None and backend is not None and backend.request.use_tpu:
        return None  # An error follows, as on a TPU, where the number of steps must be given.
    if steps is None or (isinstance(steps, int) and steps > limit):
        logger.info("%s is %d, not %s (--steps-limit).", what, limit, steps)
        return limit
    return steps
