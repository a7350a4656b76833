"""Activations' gradients are captured as the loss gives them, even if a program changes them."""

import harness
import numpy as np
import pytest
import tensorflow as tf

from estimator_emb.engine.gradient_capture import GradientCapture
from estimator_emb.engine.ordering import structure
from estimator_emb.reporting import console

v1 = tf.compat.v1
SGD = v1.train.GradientDescentOptimizer


class Halving(SGD):
    """Changes gradients while it applies them, as the rule of an optimizer may."""

    def _resource_apply_dense(self, grad, handle):
        return super()._resource_apply_dense(grad * 0.5, handle)


def doubled(gradient):
    return tf.multiply(gradient, 2.0, name="doubled")


CHANGED = "model_fn changes gradients before its optimizer applies them (op doubled)."
PENALIZED = "The loss has a penalty on tpu_embedding_dummy_table_variable, which stands for "


@pytest.mark.parametrize(
    "change, optimizer, sent, warning",  # `sent` is the tensor that other cores get, if any.
    [
        (tf.identity, SGD, None, None),
        (tf.identity, Halving, None, None),
        (doubled, SGD, None, CHANGED),
        (lambda gradient: (doubled(gradient), gradient)[1], SGD, None, None),  # Only displayed.
        (doubled, SGD, "given", None),
        (doubled, SGD, "changed", CHANGED),
        (lambda gradient: gradient + tf.ones([1]), SGD, None, PENALIZED),
    ],
    ids=["same", "rule", "changed", "displayed", "sent first", "changed first", "penalty"],
)
def test_changed_gradients_get_a_warning(change, optimizer, sent, warning, caplog, monkeypatch):
    monkeypatch.setattr(console, "_logged", set())
    with tf.Graph().as_default(), v1.Session() as session:
        capture = GradientCapture()
        x, y, _ = (capture.through(key, tf.ones([2])) for key in "xyz")
        loss = tf.reduce_sum(x) + 3.0 * tf.reduce_sum(y)
        tf.gradients(5.0 * loss, v1.trainable_variables())  # For display: it trains nothing.
        [(gradient, helper)] = optimizer(0.1).compute_gradients(loss)
        changed = change(gradient)
        applied = optimizer(0.1).apply_gradients([(changed, helper)])
        tf.gradients(7.0 * loss, helper)
        capture.wait_for([waited := tf.no_op()])
        assert waited in structure.leading_to([applied], {})
        to_cores = {None: [], "given": [gradient], "changed": [changed]}[sent]
        captured, last = session.run([capture.applied(to_cores), capture.gradients])
    np.testing.assert_equal(captured, {"x": [[1.0, 1.0]], "y": [[3.0, 3.0]]})
    np.testing.assert_equal(last, {"x": [7.0, 7.0], "y": [21.0, 21.0]})
    said = harness.said(caplog)
    assert len(said) == (warning is not None)
    assert all(line.startswith(warning) for line in said)
