"""Explains the errors that an estimator's calls raise."""

import tensorflow as tf

from estimator_emb.checks import input_errors, nan_inputs
from estimator_emb.messages import errors
from estimator_emb.names import environment
from estimator_emb.step import checks

_HOW_TO_EMULATE = (
    f" To run this program without a TPU, set the environment variable {environment.DEVICE}="
    "host, or pass TPUConfig(device='host')."
)

HOW_TO_OUTFEED = (
    " On a TPU, hooks, scaffold_fn and summaries cannot read what model_fn computes: give the "
    "tensor to a function on the host, by host_call or eval_metrics of the TPUEstimatorSpec."
)
"""What to do about a tensor that only a TPU sees, a real or an emulated one."""


def explain(error: Exception, emulates_tpu: bool) -> Exception | None:
    """Explains what `errors.explained` returned, and adds to errors about TPUs what to do."""
    if isinstance(error, tf.errors.OpError):
        input_errors.explain(error)
        if not errors.is_full():
            errors.shorten(error)
        if (found := nan_inputs.of_failed_step(errors.graph_of(error))) is not None:
            raise found from (error if errors.is_full() else None)  # It says the same.
    text = str(error)
    if isinstance(error, tf.errors.InvalidArgumentError):
        error._message = checks.readable(error.message)
    elif emulates_tpu and isinstance(error, ValueError):
        if "has been marked as not fetchable" in text and HOW_TO_OUTFEED not in text:
            error.args = (text + HOW_TO_OUTFEED, *error.args[1:])
    elif isinstance(error, RuntimeError) and "Cannot find any TPU cores" in text:
        return None if _HOW_TO_EMULATE in text else RuntimeError(text + _HOW_TO_EMULATE)
    return None
