"""Batches of every form, good or damaged, and the results that plain Python expects.

This module uses nothing of estimator_emb. A batch maps each feature to its components, as fed to a
session: `values`, `indices` and `shape` if sparse, `values` and `splits` if ragged, `values` if
dense. The components of weights have names that begin with `w_`.
"""

import dataclasses
import functools

import harness
import numpy as np

VOCABULARY = 7
LIMIT = 3
WORDS = [f"w{i}" for i in range(VOCABULARY)]


@dataclasses.dataclass(frozen=True)
class Kind:
    """The form and settings of a feature."""

    key: str
    form: str  # 'sparse', 'ragged', 'dense' [batch] or 'matrix' [batch, n].
    dtype: type = np.int64  # The dtype of ids.
    known: bool = True  # Whether the graph knows the ranks.
    sequence: bool = False
    weighted: bool = False
    combiner: str = "mean"


KINDS = [
    Kind("a_sparse", "sparse"),
    Kind("b_sparse32", "sparse", np.int32, known=False, combiner="sqrtn"),
    Kind("c_sequence32", "sparse", np.int32, sequence=True),
    Kind("d_sequence", "sparse", known=False, sequence=True),
    Kind("e_dense32", "dense", np.int32),
    Kind("f_matrix", "matrix", combiner="sum"),
    Kind("g_padded32", "matrix", np.int32, sequence=True),
    Kind("h_ragged", "ragged"),
    Kind("i_ragged_sequence32", "ragged", np.int32, sequence=True),
    Kind("j_weighted32", "sparse", np.int32, weighted=True),
    Kind("k_weighted", "sparse", known=False, weighted=True, combiner="sqrtn"),
    Kind("l_weighted_matrix", "matrix", weighted=True),
    Kind("m_weighted_ragged32", "ragged", np.int32, weighted=True, combiner="sum"),
    Kind("n_words", "sparse", object),
    Kind("o_word_sequence", "sparse", object, sequence=True),
    Kind("p_word_matrix", "matrix", object),
]


def whole(kind, batch, rng):
    """Returns a good feature of `batch` samples."""
    rows = harness.random_ids(rng, VOCABULARY, batch, 4)
    weights = [list(rng.integers(-3, 4, len(row)) / 2) for row in rows]
    if kind.form == "dense":
        return {"values": rng.integers(0, VOCABULARY, batch).astype(kind.dtype)}
    if kind.form == "matrix":
        value = {"values": _typed(harness.matrix(rows, 4), kind)}
        gains = harness.matrix(weights, 4, np.float32, fill=1)
        return {**value, "w_values": gains} if kind.weighted else value
    sparse, gains = harness.sparse(rows), harness.sparse(weights, np.float32).values
    ids = _typed(sparse.values, kind)
    if kind.form == "ragged":
        splits = np.cumsum([0] + [len(row) for row in rows]).astype(np.int64)
        value = {"values": ids, "splits": splits}
        return {**value, "w_values": gains, "w_splits": splits} if kind.weighted else value
    value = {"values": ids, "indices": sparse.indices, "shape": sparse.dense_shape}
    if kind.weighted:
        value |= {f"w_{part}": value[part] for part in ("indices", "shape")} | {"w_values": gains}
    return value


def _typed(ids, kind):
    if kind.dtype is object:
        words = [WORDS[i] if i >= 0 else "" for i in ids.ravel()]
        return np.array(words, object).reshape(ids.shape)
    return ids.astype(kind.dtype)


HAPPENINGS = []
"""Changes to a feature: functions of its kind, its components and a generator.

They return the new components. Some leave a feature good, and some do nothing to some kinds.
"""


def happens(*forms, unknown=False, words=None, weighted=False):
    """Registers a function that changes a feature's components, for some `forms` or for all.

    It can be limited to features of `unknown` rank, to `words` or to numbers, or to `weighted`
    features.
    """

    def add(change):
        @functools.wraps(change)
        def happening(kind, value, rng):
            if (
                (forms and kind.form not in forms)
                or (unknown and kind.known)
                or (words is not None and words != (kind.dtype is object))
                or (weighted and not kind.weighted)
            ):
                return value
            return {**value, **change(kind, value, rng)}

        HAPPENINGS.append(happening)
        return change

    return add


def one_other(values, others, rng):
    """Returns a copy of an array with an element replaced, if it has any."""
    values = values.copy()
    if values.size:
        values.flat[rng.integers(values.size)] = rng.choice(np.array(others, values.dtype))
    return values


@happens("sparse")
def shuffled(kind, value, rng):
    order = rng.permutation(len(value["values"]))
    moved = ["values", "indices", *(["w_values", "w_indices"] if kind.weighted else [])]
    return {part: value[part][order] for part in moved}


@happens("sparse")
def repeated(kind, value, rng):
    """Puts two ids at an index."""
    again = np.append(np.arange(len(value["values"])), rng.integers(len(value["values"])))
    return {part: one[again] for part, one in value.items() if not part.endswith("shape")}


@happens("sparse")
def wider(kind, value, rng):
    return {"shape": np.array([value["shape"][0], rng.choice([5, 100, 2**31, 2**62])])}


@happens(words=False)
def other_id(kind, value, rng):
    largest = np.iinfo(kind.dtype).max
    bad = [VOCABULARY, VOCABULARY + 1, -1, -2, 1000, largest, -largest - 1, largest - 1]
    return {"values": one_other(value["values"], bad, rng)}


@happens(words=True)
def other_word(kind, value, rng):
    return {"values": one_other(value["values"], ["", "unknown", "\x00", "w77"], rng)}


@happens("sparse", "ragged")
def more_values(kind, value, rng):
    extra = _typed(rng.integers(0, VOCABULARY, rng.integers(1, 3)), kind)
    return {"values": np.append(value["values"], extra)}


@happens("sparse", "ragged")
def fewer_values(kind, value, rng):
    return {"values": value["values"][: rng.integers(0, len(value["values"]) + 1)]}


@happens("sparse")
def other_indices(kind, value, rng):
    numbers = [-1, 0, 1, 3, 4, 100, 2**31, 2**61, 2**63 - 1, -(2**63)]
    indices = one_other(value["indices"], numbers, rng)
    moved = ["indices", *(["w_indices"] if kind.weighted and rng.integers(2) else [])]
    return dict.fromkeys(moved, indices)


@happens("sparse", unknown=True)
def other_rank_of_indices(kind, value, rng):
    n = len(value["values"])
    shapes = [[n], [n, 1], [n, 3], [n, 2, 1], [2, n], []]
    return {"indices": np.zeros(shapes[rng.integers(len(shapes))], np.int64)}


@happens("sparse")
def other_shape(kind, value, rng):
    shape = value["shape"].copy()
    numbers = [0, -1, -5, 1, 2, 9, 2**31, 2**40, 2**61, 2**62, 2**63 - 1, -(2**63)]
    shape[0 if rng.random() < 0.7 else 1] = rng.choice(np.array(numbers, np.int64))
    return {"shape": shape}


@happens("sparse", unknown=True)
def other_rank_of_shape(kind, value, rng):
    shapes = [[], [4], [4, 3, 1], [0, 0, 0]]
    return {"shape": np.array(shapes[rng.integers(len(shapes))], np.int64)}


@happens("ragged")
def other_splits(kind, value, rng):
    numbers = [-1, 0, 1, 2, 100, 2**31, 2**62, -(2**63)]
    splits = one_other(value["splits"], numbers, rng)
    moved = ["splits", *(["w_splits"] if kind.weighted and rng.integers(2) else [])]
    return dict.fromkeys(moved, splits)


@happens("ragged")
def no_splits(kind, value, rng):
    return {"splits": np.zeros([0], np.int64)}


@happens()
def other_batch(kind, value, rng):
    if kind.form in ("dense", "matrix"):
        fewer = rng.integers(len(value["values"]) + 1)
        return {part: one[:fewer] for part, one in value.items()}
    if kind.form == "sparse":
        return {"shape": value["shape"] + [rng.integers(0, 3), 0]}
    return {"splits": np.append(value["splits"], value["splits"][-1:])}


@happens("matrix", "sparse")
def nothing(kind, value, rng):
    """Removes all ids. The feature stays good."""
    if kind.form == "matrix":
        return {"values": np.full_like(value["values"], "" if kind.dtype is object else -1)}
    return {part: one[:0] for part, one in value.items() if not part.endswith("shape")}


@happens(weighted=True)
def other_weight(kind, value, rng):
    # Not too large: otherwise a row would swallow other values in float32 from then on.
    return {"w_values": one_other(value["w_values"], [np.nan, np.inf, -np.inf, 0, -1, 8], rng)}


@happens(weighted=True)
def other_number_of_weights(kind, value, rng):
    weights = value["w_values"]
    if kind.form == "matrix":
        shapes = [[weights.size, 1], [1, weights.size], [len(weights), weights.shape[1] + 1]]
        return {"w_values": np.ones(shapes[rng.integers(len(shapes))], np.float32)}
    if rng.integers(2):
        return {"w_values": np.append(weights, np.float32(1))}
    kept = rng.integers(len(weights) + 1)
    parts = ["w_values", *(["w_indices"] if kind.form == "sparse" else [])]
    return {part: value[part][:kept] for part in parts}


@happens(weighted=True)
def other_places_of_weights(kind, value, rng):
    if kind.form == "matrix":
        return {"w_values": value["w_values"].T.copy()}
    part = "w_indices" if kind.form == "sparse" else "w_splits"
    places = value[part].copy()
    if places.size:
        places.flat[rng.integers(places.size)] += rng.choice([-1, 1, 5])
    return {part: places}


def pairs_of(kind, value, batch, drop):
    """Returns a feature's (id, weight) or (id, position) pairs by sample, or None if it is bad.

    With `drop`, ids outside the vocabulary are skipped.
    """
    found = _occurrences(kind, value, batch)
    if found is None:
        return None
    rows = [[] for _ in range(batch)]
    taken = set()
    for sample, position, one, weight in found:
        if kind.dtype is object:
            if one not in WORDS:
                continue  # Unknown and empty words are skipped.
            one = WORDS.index(one)
        elif not 0 <= one < VOCABULARY:
            if drop:
                continue
            return None
        if kind.sequence:
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


def _occurrences(kind, value, batch):
    ids = value["values"]
    if kind.form in ("dense", "matrix"):
        if len(ids) != batch:
            return None
        weights = value.get("w_values", np.ones_like(ids, np.float32))
        if weights.shape != ids.shape:
            return None
        if kind.form == "dense":
            return [(i, 0, one, 1.0) for i, one in enumerate(ids)]
        padding = "" if kind.dtype is object else -1
        return [
            (i, j, ids[i, j], weights[i, j])
            for i in range(batch)
            for j in range(ids.shape[1])
            if ids[i, j] != padding
        ]
    places = _places(value, "", len(ids))
    if places is None:
        return None
    samples = int(value["shape"][0]) if kind.form == "sparse" else len(value["splits"]) - 1
    if samples != batch:
        return None
    weights = np.ones(len(ids))
    if kind.weighted:
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


def step(kind, rows, table, gradient):
    """Returns each sample's activation and the table after a step of SGD of rate 1, in float64."""
    after = table.astype(np.float64)
    batch, dimension = len(rows), table.shape[1]
    shape = [batch, LIMIT, dimension] if kind.sequence else [batch, dimension]
    activation = np.zeros(shape)
    for sample, row in enumerate(rows):
        if kind.sequence:
            for one, position in row:
                activation[sample, position] = table[one]
                after[one] -= gradient[sample]
            continue
        weights = np.array([weight for _, weight in row], np.float64)
        norm = {
            "sum": 1.0,
            "mean": weights.sum(),
            "sqrtn": np.sqrt(np.square(weights).sum()),
        }[kind.combiner]
        for one, weight in row:
            gain = weight / norm if norm else 0.0
            activation[sample] += gain * table[one]
            after[one] -= gain * gradient[sample]
    return activation, after
