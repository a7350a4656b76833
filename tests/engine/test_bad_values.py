"""The native kernels' search for the problem of a bad batch, in its arrays."""

import numpy as np
import pytest
import tensorflow as tf

from estimator_emb.engine.bad_values import explanation
from estimator_emb.engine.inputs import Source, SparsePlaces
from estimator_emb.spec.config import TableConfig
from estimator_emb.spec.resolved import Feature, Table


def sparse(indices, ids, shape=(2, 3), places=None):
    values, indices, shape = np.array(ids), np.array(indices).reshape(-1, 2), np.array(shape)
    return {"values": values, "indices": indices, "shape": shape, "places": places}


def computed(ids, **more):
    read = {"ids": np.array(ids), "segments": np.arange(len(ids)), "batch": np.int64(2)}
    return read | {key: value if key == "fit" else np.array(value) for key, value in more.items()}


GOOD = sparse([[0, 0], [1, 2]], [0, 4])
TWICE = sparse([[0, 0], [1, 2], [1, 1], [1, 2]], [1, 2, 3, 4])
BESIDE = SparsePlaces(np.array([[0, 0], [0, 3]]), np.array([2, 3]))


@pytest.mark.parametrize(
    "given, limit, message",
    [
        (GOOD, 0, None),
        (TWICE, 0, None),
        (TWICE, 2, None),
        (TWICE, 3, ": two ids stand at position 2 of the sequence of sample 1."),
        (sparse([], [], (2, 0)), 0, None),
        (sparse([], [], (0, 3)), 0, ": the batch has no samples."),
        (sparse([], [], (3, 3)), 0, ": the dense shape [3 3] of its ids has more samples than 2:"),
        (sparse([], [], (-4, 3)), 0, ": the dense shape [-4 3] of its ids is negative."),
        (sparse([], [], [3]), 0, ": its ids must have shape [batch, n]; got [3]."),
        (sparse([[0, 0]], [1, 2]), 0, ": its ids have 2 values, but indices of shape [1 2]:"),
        (sparse([[0, 0]], [[1]]), 0, ": its ids have 1 values, but indices of shape [1 2]:"),
        (sparse([[0, 3]], [1]), 0, ": sparse index [0 3] is outside the dense shape [2 3]."),
        (GOOD | {"places": BESIDE}, 0, ": sparse index [0 3] is outside the dense shape [2 3]."),
        ({"values": np.array([[1, -1], [0, 4]])}, 0, None),
        ({"values": np.array([[1, -1], [-2, 5]])}, 0, ": id -2 is outside [0, 5)."),
        ({"values": np.array([5, 1])}, 0, ": id 5 is outside [0, 5)."),
        ({"values": np.array([0, -1])}, 0, ": id -1 is outside [0, 5)."),
        ({"values": np.array([1])}, 0, " has 1 samples, but feature a has 2."),
        (computed([0], uncut=[0, 7]), 1, ": id 7 is outside [0, 5)."),
        (computed([0], fit=(3, 2, True)), 0, " has 3 ids but 2 weights."),
        (computed([0], fit=(3, 3, False)), 0, ": its weights have other indices than its ids."),
        (computed([0], fit=(1, 1, True), weights=[np.nan]), 0, ": weight nan is not finite."),
        (computed([0], fit=(1, 1, True), weights=[2.0]), 0, None),
    ],
)
def test_the_first_problem_of_a_batch_is_found(given, limit, message):
    table, feature = Table("t", TableConfig(5, 2), ()), Feature("x", max_sequence_length=limit)
    value = tf.constant(given.get("values", 0), tf.int64)
    sources = [Source(table, Feature("a"), tf.constant([0, 4]), None)]
    sources.append(Source(table, feature, value, None))
    batch = [{"values": np.array([0, 4])}, given]
    found = explanation(sources, batch, [2, 2], None)
    if message is None:
        assert found is None and explanation(sources, batch, [2, 2], 2) is None
        other = explanation(sources, batch, [2, 2], 4)
        assert other.startswith("Feature a of table t has 2 samples, but the batch size is 4.")
    else:
        assert found.startswith(f"Feature x of table t{message}")
