# SPDX-License-Identifier: Apache-2.0
"""What the errors of an estimator's calls say."""

import contextlib
from collections.abc import Iterator

import tensorflow as tf

from estimator_emb import failures, options
from estimator_emb.checks import input_errors
from estimator_emb.step import checks

_HOW_TO_EMULATE = (
    f" To run this program without a TPU, set the environment variable {options.DEVICE_VARIABLE}="
    "host, or pass TPUConfig(device='host')."
)


@contextlib.contextmanager
def explained() -> Iterator[None]:
    """Adds to the error about a missing TPU how to do without one, and makes others readable.

    See `failures.readable` and `input_errors.explained` for what becomes of the others.
    """
    try:
        with failures.readable(), input_errors.explained():
            yield
    except tf.errors.InvalidArgumentError as error:
        error._message = checks.readable(error.message)
        raise
    except RuntimeError as error:
        if "Cannot find any TPU cores" in str(error) and _HOW_TO_EMULATE not in str(error):
            raise RuntimeError(str(error) + _HOW_TO_EMULATE) from error
        raise
