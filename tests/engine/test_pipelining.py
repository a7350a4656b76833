"""Tensors kept for the next session call, and their place in input checkpoints."""

import tensorflow as tf

from estimator_emb.engine import pipelining


def test_kept_tensors_are_saved_and_restored():
    """A call gets the ids that the previous call kept, or those that a checkpoint restored."""
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        ids = tf.compat.v1.placeholder_with_default(tf.constant([1, 2], tf.int64), [2])
        buffer = pipelining.LookaheadBuffer()
        previous = buffer.carried({"a": ids, "b": None, "c": [ids * 10]})  # Of the previous call.
        assert previous["a"].shape == [2] and previous["b"] is None
        (saveable,) = pipelining.kept_in_graph()  # A checkpoint saves and restores "a" and "c".
        restore = saveable.restore([tf.constant(one, tf.int64) for one in ([5, 6], [7, 8])], None)
        step = [previous["a"], *previous["c"], buffer.kept]  # Also keeps this call's tensors.
        for _ in range(2):  # A session that begins again forgets what the last one kept.
            buffer.after_create_session(session, coord=None)
        assert [one.tolist() for one in session.run(step, {ids: [3, 4]})[:2]] == [[1, 2], [10, 20]]
        assert session.run(saveable.specs[1].tensor).tolist() == [30, 40]  # "c" of [3, 4].
        session.run(restore)
        assert [one.tolist() for one in session.run(step, {ids: [0, 0]})[:2]] == [[5, 6], [7, 8]]
