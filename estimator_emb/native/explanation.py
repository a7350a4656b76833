# SPDX-License-Identifier: Apache-2.0
"""Says what is wrong with a batch that the native kernels refuse, once a step has failed.

TensorFlow's ops find the problem, in a graph of their own, which no other step needs.
"""

import functools
from typing import Any

import tensorflow as tf

from estimator_emb.step import checks, inputs
from estimator_emb.step.inputs import Batch, Source

_UNKNOWN = (
    "The native kernels refuse a batch in which TensorFlow's ops find nothing wrong; "
    "ESTIMATOR_EMB_NATIVE=0 trains without them."
)


def of_bad_batch(batch: Batch) -> tf.Tensor:
    """Returns a tensor that fails, with the error of `checks.checked`, when a step computes it."""
    structure = [source.given for source in batch.sources]
    tensors = inputs.tensors_in(structure)

    @functools.cache
    def graph_of_problems() -> Any:
        with tf.Graph().as_default():
            fed = [tf.compat.v1.placeholder(tensor.dtype, tensor.shape) for tensor in tensors]
            ids = list(map(Source.again, batch.sources, inputs.packed(structure, fed)))
            found = [(holds, message()) for holds, message in checks.problems(ids, batch.size)]
            # Threads of its own: those that are shared may all wait for this.
            config = tf.compat.v1.ConfigProto(use_per_session_threads=True, device_count={"GPU": 0})
            return fed, found, tf.compat.v1.Session(config=config)

    def explain(*values: Any) -> Any:
        fed, found, session = graph_of_problems()
        feed = dict(zip(fed, values, strict=True))
        for holds, message in found:
            if not session.run(holds, feed):
                return session.run(message, feed)
        return _UNKNOWN

    message = tf.numpy_function(explain, tensors, tf.string)
    stops = tf.raw_ops.Assert(condition=tf.constant(False), data=[message], summarize=1)
    with tf.control_dependencies([stops]):
        return tf.constant(False)
