# SPDX-License-Identifier: Apache-2.0
"""Explains the errors of an estimator's calls."""

import contextlib
from collections.abc import Iterator

import tensorflow as tf

from estimator_emb.checks import input_errors
from estimator_emb.messages import failures
from estimator_emb.names import environment
from estimator_emb.step import checks

_HOW_TO_EMULATE = (
    f" To run this program without a TPU, set the environment variable {environment.DEVICE}="
    "host, or pass TPUConfig(device='host')."
)

HOW_TO_OUTFEED = (
    " On a TPU nothing outside reads what model_fn computes, and so hooks, scaffold_fn and "
    "summaries cannot: give the tensor to a function on the host, by host_call or eval_metrics of "
    "the TPUEstimatorSpec."
)
"""What to do about a tensor that only a TPU sees, real or emulated."""

_NOT_FETCHABLE = "has been marked as not fetchable"


@contextlib.contextmanager
def explained(emulates_tpu: bool = False) -> Iterator[None]:
    """Adds to errors about TPUs what to do, and makes others readable.

    See `failures.readable` and `input_errors.explained` for what becomes of the others.

    Args:
      emulates_tpu: whether the program is shown a TPU that is not there.
    """
    try:
        with failures.readable(), input_errors.explained():
            yield
    except tf.errors.InvalidArgumentError as error:
        error._message = checks.readable(error.message)
        raise
    except ValueError as error:
        text = str(error)
        if emulates_tpu and _NOT_FETCHABLE in text and HOW_TO_OUTFEED not in text:
            error.args = (text + HOW_TO_OUTFEED, *error.args[1:])
        raise
    except RuntimeError as error:
        if "Cannot find any TPU cores" in str(error) and _HOW_TO_EMULATE not in str(error):
            raise RuntimeError(str(error) + _HOW_TO_EMULATE) from error
        raise
