"""Tensors kept for the next session call, and their place in input checkpoints."""

import tensorflow as tf

from estimator_emb.engine import pipelining


def test_kept_tensors_are_saved_and_restored():
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        fed = tf.compat.v1.placeholder(tf.int64, [2])
        buffer = pipelining.LookaheadBuffer()
        given = {"a": fed, "b": None, "c": [fed * 10]}
        before = buffer.carried(given)
        assert before["a"].shape == [2] and before["b"] is None
        (kept,) = pipelining.kept_in_graph()
        restore = kept.restore([tf.constant([5, 6], tf.int64), tf.constant([7, 8], tf.int64)], None)

        def step(*ids):
            found = session.run([before["a"], *before["c"], buffer.kept], {fed: ids})
            return [one.tolist() for one in found[:-1]]

        session.run(buffer.kept, {fed: [1, 2]})
        assert step(3, 4) == [[1, 2], [10, 20]]
        names = [spec.name for spec in kept.specs]
        assert names == [f"{kept.name}/0", f"{kept.name}/1"]
        assert session.run(kept.specs[1].tensor).tolist() == [30, 40]
        session.run(restore)
        assert step(1, 1) == [[5, 6], [7, 8]]
        session.run(buffer.kept, {fed: [9, 9]})  # A step that failed.
        buffer._kept, old = [], buffer._kept
        buffer.after_create_session(session, None)
        session.run(old, {fed: [0, 1]})
        assert step(2, 2) == [[0, 1], [0, 10]]
