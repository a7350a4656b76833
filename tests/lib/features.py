"""Features of every form, good or damaged, and the results that plain Python expects.

This module uses nothing of estimator_emb. A batch of a feature is a dict of its components:
`values`, `indices` and `shape` if sparse, `values` and `splits` if ragged, `values` if dense. The
components of weights have names that begin with `w_`.
"""

import dataclasses
import functools

import inputs
import numpy as np
import reference
import tensorflow as tf

v1 = tf.compat.v1
VOCABULARY = 7
LIMIT = 3
"""Rows of the tables and positions of the sequences of `pairs_of` and `step`."""
WORDS = [f"w{i}" for i in range(VOCABULARY)]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Feature:
    """The form and settings of a feature."""

    key: str
    form: str  # 'one' [batch], 'matrix' [batch, n], 'sparse' or 'ragged'.
    dtype: type = np.int64  # The dtype of ids; `object` for words.
    known: bool = True  # Whether the graph knows the ranks.
    sequence: bool = False
    weighted: bool = False
    combiner: str = "mean"
    width: int = 4  # Fewest columns of a matrix.


def lists(feature, vocabulary, samples, rng):
    """Draws the ids and the weights of each sample: zeros too, and weights that add up to zero."""
    counts = np.ones(samples, int) if feature.form == "one" else rng.integers(0, 5, samples)
    values = (-1.0, 0.0, 0.5, 1.0, 2.0) if feature.weighted else (1.0,)
    ids = [rng.integers(0, vocabulary, count).tolist() for count in counts]
    return ids, [rng.choice(values, count).tolist() for count in counts]


def batch_of(feature, ids, weights):
    """Returns the components of a good batch."""
    if feature.form == "one":
        return {"values": _typed(np.concatenate(ids), feature)}
    if feature.form == "matrix":
        width = max(feature.width, *map(len, ids))
        parts = {"values": _typed(inputs.matrix(ids, width), feature)}
        gains = {"w_values": inputs.matrix(weights, width, np.float32, fill=1)}
        return parts | (gains if feature.weighted else {})
    sparse, gains = inputs.sparse(ids), inputs.sparse(weights, np.float32).values
    if feature.form == "ragged":
        places = {"splits": np.cumsum([0, *map(len, ids)]).astype(np.int64)}
    else:
        places = {"indices": sparse.indices, "shape": sparse.dense_shape}
    parts = {"values": _typed(sparse.values, feature), **places}
    if feature.weighted:
        parts |= {"w_values": gains, **{f"w_{part}": value for part, value in places.items()}}
    return parts


def value_of(parts, which=""):
    """Returns components as input_fn gives them: as an array, or as a sparse or ragged value.

    `which` is "w_" for the weights.
    """
    values = parts[f"{which}values"]
    if f"{which}splits" in parts:
        return v1.ragged.RaggedTensorValue(values, parts[f"{which}splits"])
    if f"{which}indices" in parts:
        return v1.SparseTensorValue(parts[f"{which}indices"], values, parts[f"{which}shape"])
    return values


def _typed(ids, feature):
    if feature.dtype is object:
        words = [WORDS[i] if i >= 0 else "" for i in ids.ravel()]
        return np.array(words, object).reshape(ids.shape)
    return ids.astype(feature.dtype)


DAMAGES = []
"""Changes to a batch: functions of a feature, its components and a generator.

They return the new components. Some leave a batch good, and some do nothing to some features.
"""


def damage(*forms, unknown=False, words=None, weighted=False):
    """Registers a function that changes a feature's components, for some `forms` or for all.

    It can be limited to features of `unknown` rank, to `words` or to numbers, or to `weighted`
    features.
    """

    def add(change):
        @functools.wraps(change)
        def damaged(feature, value, rng):
            if (
                (forms and feature.form not in forms)
                or (unknown and feature.known)
                or (words is not None and words != (feature.dtype is object))
                or (weighted and not feature.weighted)
            ):
                return value
            return {**value, **change(feature, value, rng)}

        DAMAGES.append(damaged)
        return damaged

    return add


def one_other(values, others, rng):
    """Returns a copy of an array with an element replaced, if it has any."""
    values = values.copy()
    if values.size:
        values.flat[rng.integers(values.size)] = rng.choice(np.array(others, values.dtype))
    return values


@damage("sparse")
def shuffled(feature, value, rng):
    order = rng.permutation(len(value["values"]))
    moved = ["values", "indices", *(["w_values", "w_indices"] if feature.weighted else [])]
    return {part: value[part][order] for part in moved}


@damage("sparse")
def repeated(feature, value, rng):
    """Puts two ids at an index."""
    again = np.append(np.arange(len(value["values"])), rng.integers(len(value["values"])))
    return {part: one[again] for part, one in value.items() if not part.endswith("shape")}


@damage("sparse")
def wider(feature, value, rng):
    return {"shape": np.array([value["shape"][0], rng.choice([5, 100, 2**31, 2**62])])}


@damage(words=False)
def other_id(feature, value, rng):
    largest = np.iinfo(feature.dtype).max
    bad = [VOCABULARY, VOCABULARY + 1, -1, -2, 1000, largest, -largest - 1, largest - 1]
    return {"values": one_other(value["values"], bad, rng)}


@damage(words=True)
def other_word(feature, value, rng):
    return {"values": one_other(value["values"], ["", "unknown", "\x00", "w77"], rng)}


@damage("sparse", "ragged")
def other_number_of_values(feature, value, rng):
    extra = _typed(rng.integers(0, VOCABULARY, 2), feature)
    kept = rng.integers(0, len(value["values"]) + 3)
    return {"values": np.append(value["values"], extra)[:kept]}


@damage("sparse")
def other_indices(feature, value, rng):
    numbers = [-1, 0, 1, 3, 4, 100, 2**31, 2**61, 2**63 - 1, -(2**63)]
    indices = one_other(value["indices"], numbers, rng)
    moved = ["indices", *(["w_indices"] if feature.weighted and rng.integers(2) else [])]
    return dict.fromkeys(moved, indices)


@damage("sparse")
def other_shape(feature, value, rng):
    shape = value["shape"].copy()
    numbers = [0, -1, -5, 1, 2, 9, 2**31, 2**40, 2**61, 2**62, 2**63 - 1, -(2**63)]
    shape[0 if rng.random() < 0.7 else 1] = rng.choice(np.array(numbers, np.int64))
    return {"shape": shape}


@damage("sparse", unknown=True)
def other_rank(feature, value, rng):
    n = len(value["values"])
    shapes = [[n], [n, 1], [n, 3], [n, 2, 1], [2, n], []]
    if rng.integers(2):
        return {"indices": np.zeros(shapes[rng.integers(len(shapes))], np.int64)}
    shapes = [[], [4], [4, 3, 1], [0, 0, 0]]
    return {"shape": np.array(shapes[rng.integers(len(shapes))], np.int64)}


@damage("ragged")
def other_splits(feature, value, rng):
    numbers = [-1, 0, 1, 2, 100, 2**31, 2**62, -(2**63)]
    splits = one_other(value["splits"], numbers, rng)
    moved = ["splits", *(["w_splits"] if feature.weighted and rng.integers(2) else [])]
    return dict.fromkeys(moved, splits)


@damage("ragged")
def no_splits(feature, value, rng):
    return {"splits": np.zeros([0], np.int64)}


@damage()
def other_batch(feature, value, rng):
    if feature.form in ("one", "matrix"):
        fewer = rng.integers(len(value["values"]) + 1)
        return {part: one[:fewer] for part, one in value.items()}
    if feature.form == "sparse":
        return {"shape": value["shape"] + [rng.integers(0, 3), 0]}
    return {"splits": np.append(value["splits"], value["splits"][-1:])}


@damage("matrix", "sparse")
def nothing(feature, value, rng):
    """Removes all ids. The feature stays good."""
    if feature.form == "matrix":
        return {"values": np.full_like(value["values"], "" if feature.dtype is object else -1)}
    return {part: one[:0] for part, one in value.items() if not part.endswith("shape")}


@damage(weighted=True)
def other_weight(feature, value, rng):
    # Not too large: otherwise a row would swallow other values in float32 from then on.
    return {"w_values": one_other(value["w_values"], [np.nan, np.inf, -np.inf, 0, -1, 8], rng)}


@damage(weighted=True)
def other_number_of_weights(feature, value, rng):
    weights = value["w_values"]
    if feature.form == "matrix":
        shapes = [[weights.size, 1], [1, weights.size], [len(weights), weights.shape[1] + 1]]
        return {"w_values": np.ones(shapes[rng.integers(len(shapes))], np.float32)}
    if rng.integers(2):
        return {"w_values": np.append(weights, np.float32(1))}
    kept = rng.integers(len(weights) + 1)
    parts = ["w_values", *(["w_indices"] if feature.form == "sparse" else [])]
    return {part: value[part][:kept] for part in parts}


@damage(weighted=True)
def other_places_of_weights(feature, value, rng):
    if feature.form == "matrix":
        return {"w_values": value["w_values"].T.copy()}
    part = "w_indices" if feature.form == "sparse" else "w_splits"
    places = value[part].copy()
    if places.size:
        places.flat[rng.integers(places.size)] += rng.choice([-1, 1, 5])
    return {part: places}


def pairs_of(feature, value, batch, drop):
    """Returns a feature's (id, weight) or (id, position) pairs by sample, or None if it is bad.

    With `drop`, ids outside the vocabulary are skipped.
    """
    found = _occurrences(feature, value, batch)
    if found is None:
        return None
    rows = [[] for _ in range(batch)]
    taken = set()
    for sample, position, one, weight in found:
        if feature.dtype is object:
            if one not in WORDS:
                continue  # Unknown and empty words are skipped.
            one = WORDS.index(one)
        elif not 0 <= one < VOCABULARY:
            if drop:
                continue
            return None
        if feature.sequence:
            if position >= LIMIT:
                continue
            if (sample, position) in taken:
                return None
            taken.add((sample, position))
            rows[sample].append((one, position))
        elif not np.isfinite(weight):
            return None
        else:
            rows[sample].append((one, float(weight)))
    return rows


def _occurrences(feature, value, batch):
    ids = value["values"]
    if feature.form in ("one", "matrix"):
        if len(ids) != batch:
            return None
        weights = value.get("w_values", np.ones_like(ids, np.float32))
        if weights.shape != ids.shape:
            return None
        if feature.form == "one":
            return [(i, 0, one, 1.0) for i, one in enumerate(ids)]
        padding = "" if feature.dtype is object else -1
        return [
            (i, j, ids[i, j], weights[i, j])
            for i in range(batch)
            for j in range(ids.shape[1])
            if ids[i, j] != padding
        ]
    places = _places(value, "", len(ids))
    if places is None:
        return None
    samples = int(value["shape"][0]) if feature.form == "sparse" else len(value["splits"]) - 1
    if samples != batch:
        return None
    weights = np.ones(len(ids))
    if feature.weighted:
        weights = value["w_values"]
        of_weights = _places(value, "w_", len(weights), inside=False)
        if of_weights is None or of_weights != places:
            return None
    return [(i, j, one, w) for (i, j), one, w in zip(places, ids, weights, strict=True)]


def _places(value, which, count, inside=True):
    """Returns the (sample, position) of each of `count` values, or None if they are bad."""
    if f"{which}splits" in value:
        splits = [int(one) for one in value[f"{which}splits"]]
        if not splits or splits[0] != 0 or splits[-1] != count or sorted(splits) != splits:
            return None
        return [(i, j) for i in range(len(splits) - 1) for j in range(splits[i + 1] - splits[i])]
    indices, shape = value[f"{which}indices"], value[f"{which}shape"]
    if shape.shape != (2,) or indices.shape != (count, 2):
        return None
    places = [(int(i), int(j)) for i, j in indices]
    rows, columns = int(shape[0]), int(shape[1])
    if inside and (rows < 0 or columns < 0):
        return None
    if inside and not all(0 <= i < rows and 0 <= j < columns for i, j in places):
        return None
    return places


def step(feature, rows, table, gradient):
    """Returns each sample's activation and the table after a step of SGD of rate 1, in float64."""
    after = table.astype(np.float64)
    shape = [LIMIT, table.shape[1]] if feature.sequence else [table.shape[1]]
    activation = np.zeros([len(rows), *shape])
    for sample, row in enumerate(rows):
        gains = np.ones(len(row))
        if not feature.sequence:
            gains = reference.gains([weight for _, weight in row], feature.combiner)
        for (one, position), gain in zip(row, gains, strict=True):
            place = (sample, position) if feature.sequence else sample
            activation[place] += gain * table[one]
            after[one] -= gain * gradient[sample]
    return activation, after
