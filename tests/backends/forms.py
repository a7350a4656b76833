"""A batch with ids in every form, and the features that look them up."""

import harness
import numpy as np

import estimator_emb as ee

SAMPLES, ROWS = 4, 11
"""Number of samples of the batch, and least number of rows of a table for it."""

_IDS = [[1, 9], [3], [], [1, 0, 0, 7]]
_MATRIX = np.array([[1, 10], [2, -1], [-1, -1], [0, 0]])
IDS = {
    "dense": np.array([1, 10, 1, 0]),
    "column": np.array([[1], [3], [1], [0]]),
    "matrix": _MATRIX,
    "sparse": harness.sparse(_IDS),
    "weighted": harness.sparse(_IDS),
    "weighted_matrix": _MATRIX,
    "sequence": harness.sparse([[1, 2], [9], [2, 2, 5, 6], [1]]),
}
WEIGHTS = {
    "weighted_w": harness.sparse([[0.5, 2.0], [3.0], [], [1.0, 1.0, 0.5, 0.25]], np.float32),
    "weighted_matrix_w": np.array([[1, 3], [2, 9], [9, 9], [0.5, 2]], np.float32),
}


def feature(form, table):
    """Returns the FeatureConfig for ids in a form. Some samples exceed its 3 positions."""
    weights = f"{form}_w" if form.startswith("weighted") else None
    length = 3 if form == "sequence" else 0
    return ee.FeatureConfig(table, max_sequence_length=length, weight_key=weights)
