"""Reads the index file of a checkpoint: where in the data files each variable is.

TensorFlow's readers do not tell these places, which also show that a file is too short. The index
is a sorted table of keys and values, in blocks: the key '' has the header of the bundle, and the
others are variables or slices of them.

Source: tensorflow/core/lib/io/table_format.txt and tensorflow/core/protobuf/tensor_bundle.proto;
for the keys of slices, which begin with the variable's name and sort as their starts do,
EncodeTensorNameSlice of tensorflow/core/util/saved_tensor_slice_util.h; TF 2.15.1.
"""

import bisect
import dataclasses
from collections.abc import Iterator

import tensorflow as tf
from google.protobuf import message

from estimator_emb.compat.internals.protos import tensor_bundle_pb2

_FOOTER_BYTES = 48
_MAGIC = 0xDB4775248B80FB57


class UnknownFormat(Exception):
    """The error of an index that this module cannot read."""


@dataclasses.dataclass(frozen=True)
class FilePart:
    """Consecutive rows of a variable in a data file; a scalar has one. `crc32c` is masked."""

    start: int
    rows: int
    file: str
    offset: int
    size: int
    crc32c: int


class Index:
    """The index of a checkpoint, read once; UnknownFormat if it cannot be read."""

    def __init__(self, path: str):
        self._path = path
        self._count, self._entries, self._little_endian = _read(path)
        self._keys = sorted(self._entries)

    def parts(self, name: str) -> list[FilePart]:
        """Returns a variable's parts in the order of their rows, or raises UnknownFormat."""
        entry = self._entries.get(name.encode())
        if entry is None or not self._little_endian:
            raise UnknownFormat(f"{self._path}.index has no place of {name}.")
        shape = [dimension.size for dimension in entry.shape.dim]
        if not entry.slices:
            return [self._part(entry, 0, shape[0] if shape else 1)]
        whole = [(0, size) for size in shape]
        runs = sorted(
            [
                (extent.start, extent.length) if extent.HasField("length") else limits
                for extent, limits in zip(piece.extent, whole, strict=True)
            ]
            for piece in entry.slices
        )
        begin = b"\0" + name.encode().replace(b"\0", b"\0\xff") + b"\0\1"
        first, end = (bisect.bisect(self._keys, key) for key in (begin, begin + b"\xff"))
        data = [self._entries[key] for key in self._keys[first:end]]
        ends = [start + rows for (start, rows), *_ in runs]
        follow = [start for (start, _), *_ in runs] == [0, *ends[:-1]] and ends[-1] == shape[0]
        if not follow or len(data) != len(runs) or any(run[1:] != whole[1:] for run in runs):
            raise UnknownFormat(f"{self._path}.index: {name} is not in runs of rows.")
        return [self._part(one, *run[0]) for one, run in zip(data, runs, strict=True)]

    def data_files(self) -> dict[str, int]:
        sizes = dict.fromkeys(range(self._count), 0)
        for entry in self._entries.values():
            sizes[entry.shard_id] = max(sizes.get(entry.shard_id, 0), entry.offset + entry.size)
        return {_data_file(self._path, shard, self._count): sizes[shard] for shard in sizes}

    def _part(self, entry: tensor_bundle_pb2.BundleEntryProto, start: int, rows: int) -> FilePart:
        file = _data_file(self._path, entry.shard_id, self._count)
        return FilePart(start, rows, file, entry.offset, entry.size, entry.crc32c)


def _data_file(path: str, shard: int, count: int) -> str:
    return f"{path}.data-{shard:05d}-of-{count:05d}"


def _read(path: str) -> tuple[int, dict[bytes, tensor_bundle_pb2.BundleEntryProto], bool]:
    """Returns the number of data files, key -> entry, and whether values are little-endian."""
    with tf.io.gfile.GFile(f"{path}.index", "rb") as file:
        contents = file.read()
    try:
        values = dict(_pairs(contents))
        header = tensor_bundle_pb2.BundleHeaderProto.FromString(values.pop(b""))
        entries = {
            key: tensor_bundle_pb2.BundleEntryProto.FromString(value)
            for key, value in values.items()
        }
    except (IndexError, KeyError, message.DecodeError) as error:
        raise UnknownFormat(f"{path}.index cannot be read.") from error
    little = tensor_bundle_pb2.BundleHeaderProto.LITTLE
    return header.num_shards, entries, header.endianness == little


def _pairs(contents: bytes) -> Iterator[tuple[bytes, bytes]]:
    footer = contents[-_FOOTER_BYTES:]
    if int.from_bytes(footer[-8:], "little") != _MAGIC:
        raise UnknownFormat("No table of keys and values.")
    _, _, position = _handle(footer, 0)
    offset, size, _ = _handle(footer, position)
    for _, handle in _block(contents, offset, size):
        offset, size, _ = _handle(handle, 0)
        yield from _block(contents, offset, size)


def _block(contents: bytes, offset: int, size: int) -> Iterator[tuple[bytes, bytes]]:
    if contents[offset + size]:
        raise UnknownFormat("A block is compressed.")
    block = contents[offset : offset + size]
    restarts = int.from_bytes(block[-4:], "little")
    end = len(block) - 4 * (restarts + 1)
    position, key = 0, b""
    while position < end:
        shared, position = _varint(block, position)
        added, position = _varint(block, position)
        length, position = _varint(block, position)
        key = key[:shared] + block[position : position + added]
        position += added
        yield key, block[position : position + length]
        position += length


def _handle(data: bytes, position: int) -> tuple[int, int, int]:
    """Returns offset and size of a block, and the position after them."""
    offset, position = _varint(data, position)
    size, position = _varint(data, position)
    return offset, size, position


def _varint(data: bytes, position: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, position
        shift += 7
