"""Tensors kept for the next session call, and their place in input checkpoints."""

import tensorflow as tf

from estimator_emb.engine import pipelining


def test_kept_tensors_are_saved_and_restored():
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        fed = tf.compat.v1.placeholder(tf.int64, [2])  # The ids of a batch.
        buffer = pipelining.LookaheadBuffer()
        before = buffer.carried({"a": fed, "b": None, "c": [fed * 10]})
        assert before["a"].shape == [2] and before["b"] is None
        (kept,) = pipelining.kept_in_graph()
        restore = kept.restore([tf.constant([5, 6], tf.int64), tf.constant([7, 8], tf.int64)], None)
        step = [before["a"], *before["c"], buffer.kept]  # Takes a batch's tensors, keeps the next.
        session.run(buffer.kept, {fed: [1, 2]})
        assert [one.tolist() for one in session.run(step, {fed: [3, 4]})[:2]] == [[1, 2], [10, 20]]
        assert session.run(kept.specs[1].tensor).tolist() == [30, 40]  # What a checkpoint saves.
        session.run(restore)
        assert [one.tolist() for one in session.run(step, {fed: [0, 0]})[:2]] == [[5, 6], [7, 8]]
