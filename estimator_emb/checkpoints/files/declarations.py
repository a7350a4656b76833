"""Finds impossible declarations in the index of a checkpoint.

TensorFlow trusts an index with correct checksums. It allocates memory for any declared shape, and
crashes the process if that fails. So this module examines the index before TensorFlow reads it.
"""

import math

import numpy as np
import tensorflow as tf

from estimator_emb.checkpoints.files.bundle_index import Index, varint
from estimator_emb.compat.internals.protos import tensor_bundle_pb2
from estimator_emb.reporting.text_columns import escaped

_MOST_DIMENSIONS = 254
_LARGEST = 2**63 - 1
_LENGTH_BYTES = 10
"""The most bytes of a varint. TensorFlow saves the lengths of strings as varints."""


def find_problem(index: Index) -> str | None:
    """Describes an impossible declaration in an index, if any. The data files must be whole."""
    for key, entry in index.entries.items():
        fault = _fault_of_slices(index, key) if entry.slices else None
        fault = fault or _fault(index, entry)
        if fault:
            name = escaped(key.decode(errors="backslashreplace"))
            return f"'{index.path}.index' declares variable {name} {fault}"
    return None


def _fault(index: Index, entry: tensor_bundle_pb2.BundleEntryProto) -> str | None:
    """Describes the impossible part of a variable's or slice's declaration, if any."""
    try:
        dtype = tf.as_dtype(entry.dtype)
    except TypeError:
        dtype = None
    if dtype is None or dtype == tf.resource or dtype.base_dtype != dtype:
        return f"of the type {entry.dtype}, which no checkpoint has"
    shape = [dimension.size for dimension in entry.shape.dim]
    if len(shape) > _MOST_DIMENSIONS or entry.shape.unknown_rank:
        count = "unknown" if entry.shape.unknown_rank else len(shape)
        return f"with {count} dimensions; TensorFlow has at most {_MOST_DIMENSIONS}"
    # Zeros are left out: TensorFlow multiplies in order, and could overflow before a zero.
    if min(shape, default=0) < 0 or math.prod(filter(None, shape)) * 16 > _LARGEST:
        return f"of the shape {shape}, which no tensor has"
    if entry.slices:
        return None
    if min(entry.offset, entry.size, entry.shard_id) < 0:
        return f"at byte {entry.offset:,} of file {entry.shard_id}, with {entry.size:,} bytes"
    values = math.prod(shape)
    if dtype == tf.string:
        fits = _strings_fit(index, entry, values)
    elif dtype == tf.variant:
        fits = _variants_fit(index, entry, values)
    else:
        fits = values * dtype.size == entry.size
    if fits:
        return None
    return f"of {dtype.name} and the shape {shape}, which its {entry.size:,} bytes do not fill"


def _strings_fit(index: Index, entry: tensor_bundle_pb2.BundleEntryProto, values: int) -> bool:
    """Returns whether the strings' lengths, a 4-byte checksum and the strings fill an entry."""
    if values + 4 > entry.size:
        return False
    if not values:
        return True
    with tf.io.gfile.GFile(index.data_file(entry.shard_id), "rb") as file:
        file.seek(entry.offset)
        data = file.read(min(entry.size, values * _LENGTH_BYTES))
    codes = np.frombuffer(data, np.uint8)
    ends = np.flatnonzero(codes < 0x80)[:values]
    starts = np.concatenate([[0], ends[:-1] + 1])
    if len(ends) < values or (ends - starts).max() >= _LENGTH_BYTES:
        return False
    used = int(ends[-1]) + 1
    digits = codes[:used] & 0x7F
    places = np.arange(used) - np.repeat(starts, ends - starts + 1)
    total = sum(
        int(digits[places == place].sum(dtype=np.int64)) << 7 * place
        for place in range(_LENGTH_BYTES)
    )
    return used + 4 + total == entry.size


def _variants_fit(index: Index, entry: tensor_bundle_pb2.BundleEntryProto, values: int) -> bool:
    """Returns whether each value has a length, that many bytes and a 4-byte checksum."""
    position = 0
    with tf.io.gfile.GFile(index.data_file(entry.shard_id), "rb") as file:
        while values and position < entry.size:
            file.seek(entry.offset + position)
            length, used = varint(file.read(_LENGTH_BYTES) + b"\0", 0)
            position += used + length + 4
            values -= 1
    return not values and position == entry.size


def _fault_of_slices(index: Index, variable: bytes) -> str | None:
    entry = index.entries[variable]
    shape = [dimension.size for dimension in entry.shape.dim]
    covered = 0
    for extents, key in index.pieces(variable):
        piece = index.entries.get(key)
        if piece is None or len(extents) != len(shape) or not shape:
            return "with a slice that is missing"
        sizes = [
            size if length < 0 else length for (_, length), size in zip(extents, shape, strict=True)
        ]
        inside = all(
            start >= 0 and start + length <= whole
            for (start, _), length, whole in zip(extents, sizes, shape, strict=True)
        )
        same = [dimension.size for dimension in piece.shape.dim] == sizes
        if not inside or not same or piece.dtype != entry.dtype or piece.slices:
            return f"with a slice that does not fit its shape {shape}"
        covered += math.prod(sizes)
    if covered < math.prod(shape):
        return f"with slices that do not fill its shape {shape}"
    return None
