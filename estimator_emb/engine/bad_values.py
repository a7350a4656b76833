"""The messages of bad batches, and the search for the problem in a batch's values."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from estimator_emb.engine.inputs import PADDING_ID, Source

_TOGETHER = "Batch the whole dataset, with drop_remainder=True."
_TEXTS = {
    "rank": "{what} must have the rank of its ids; got shape {{}}.",
    "sparse shape": "{what} must have shape [batch, n]; got {{}}.",
    "indices": ("{what} have {{}} values, but indices of shape {{}}: each value needs one index."),
    "splits": (
        "{what} have {{}} values, but row splits {{}}: row splits must begin with 0, never "
        "decrease, and end with the number of values."
    ),
    "negative": "{owner}: the dense shape {{}} of its ids is negative.",
    "large": (
        "{owner}: the dense shape {{}} of its ids has more samples than {most}: this machine's "
        "memory cannot hold the activations and gradients of more."
    ),
    "empty": "{owner}: the batch has no samples.",
    "samples": (
        "{owner} has {{}} samples, but feature {first} has {{}}. All features of a batch need the "
        "same number."
    ),
    "batch size": "{owner} has {{}} samples, but the batch size is {size}. " + _TOGETHER,
    "misplaced": "{owner}: sparse index {{}} is outside the dense shape {{}}.",
    "repeated": "{owner}: two ids stand at position {{}} of the sequence of sample {{}}.",
    "weights": "{owner} has {{}} ids but {{}} weights.",
    "aligned": "{owner}: its weights have other indices than its ids.",
    "id": (
        "{owner}: id {{}} is outside [0, {size}). TPUConfig(bad_ids='drop') leaves such ids out "
        "and counts them."
    ),
    "weight": "{owner}: weight {{}} is not finite.",
}


def text(name: str, **known: Any) -> str:
    """Returns a message with {} in place of each value that only a step knows."""
    return _TEXTS[name].format(**known)


def explanation(
    sources: Sequence[Source], given: Sequence[Mapping[str, Any]], most: Sequence[int], size: Any
) -> str | None:
    """Returns the error of `bad_input.checked` for a batch, or None if the batch is good.

    `given` has the arrays of each source: `ids` and other attributes of `Ids`, if they were read
    and their structure was checked. Otherwise `values`, and if sparse `indices`, `shape` and
    `places`. `most` has the largest batch sizes, and `size` is the batch size or None.
    """
    for source, values, largest in zip(sources, given, most, strict=True):
        for found in _misfits(source, values, largest):
            return found
    read = [_read(source, values) for source, values in zip(sources, given, strict=True)]
    for source, values in zip(sources, read, strict=True):
        for found in _problems(source, values, size, sources[0], read[0]):
            return found
    return None


def _misfits(source: Source, given: Mapping[str, Any], most: int) -> Iterator[str]:
    if "indices" not in given:
        return
    values, indices, shape = (given[name] for name in ("values", "indices", "shape"))
    owner, what = source.owner, f"{source.owner}: its ids"
    if np.size(shape) != 2:
        yield _said("sparse shape", shape, what=what)
    if np.ndim(values) != 1 or np.shape(indices) != (len(values), 2):
        yield _said("indices", np.size(values), np.shape(indices), what=what)
    if np.any(shape < 0):
        yield _said("negative", shape, owner=owner)
    if shape[0] > most:
        yield _said("large", shape, owner=owner, most=most)


def _read(source: Source, given: Mapping[str, Any]) -> Mapping[str, Any]:
    """Returns the attributes of `Ids` that were not read yet, as `inputs` reads them."""
    if "ids" in given:
        return given
    ids = given["values"]
    if "indices" in given:
        indices, shape = given["indices"], given["shape"]
        limit = source.feature.max_sequence_length
        rows, columns = indices[indices[:, 1] < limit].T
        places = given["places"] or (indices, shape)
        segments = rows * limit + columns
        return {"ids": ids, "segments": segments, "batch": shape[0], "places": places}
    kept = ids.ravel()
    return {"ids": kept if source.one_per_sample else kept[kept != PADDING_ID], "batch": len(ids)}


def _problems(
    source: Source, read: Mapping[str, Any], size: Any, first: Source, of_first: Mapping[str, Any]
) -> Iterator[str]:
    owner, limit = source.owner, source.feature.max_sequence_length
    batch, expected = int(read["batch"]), int(of_first["batch"])
    if batch <= 0:
        yield _said("empty", owner=owner)
    if batch != expected:
        yield _said("samples", batch, expected, owner=owner, first=first.feature.key)
    if size is not None and batch != size:
        yield _said("batch size", batch, owner=owner, size=size)
    if read.get("places") is not None:
        indices, shape = read["places"]
        inside = np.all((indices >= 0) & (indices < shape), axis=1)
        for index in indices[~inside]:
            yield _said("misplaced", index, shape, owner=owner)
        segments, counts = np.unique(read["segments"], return_counts=True)
        for segment in segments[counts > 1] if limit else ():
            yield _said("repeated", segment % limit, segment // limit, owner=owner)
    if read.get("fit") is not None:
        ids, weights, aligned = read["fit"]
        if ids != weights:
            yield _said("weights", ids, weights, owner=owner)
        if not aligned:
            yield _said("aligned", owner=owner)
    ids = read["ids"] if read.get("uncut") is None else read["uncut"]
    rows = source.table.config.vocabulary_size
    for bad in ids[(ids < 0) | (ids >= rows)]:
        yield _said("id", bad, owner=owner, size=rows)
    if read.get("weights") is not None:
        for bad in read["weights"][~np.isfinite(read["weights"])]:
            yield _said("weight", bad, owner=owner)


def _said(name: str, *values: Any, **known: Any) -> str:
    said, *rest = (part.format(**known) for part in _TEXTS[name].split("{{}}"))
    return said + "".join(map("".join, zip(map(_shown, values), rest, strict=True)))


def _shown(value: Any) -> str:
    """Returns a value as `tf.strings.format` shows it."""
    if np.ndim(value) == 0:
        return str(value)
    parts = [_shown(part) for part in value]
    return f"[{' '.join(parts if len(parts) <= 6 else [*parts[:3], '...', *parts[-3:]])}]"
