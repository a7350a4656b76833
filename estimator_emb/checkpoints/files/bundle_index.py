"""Reads the index file of a checkpoint: the place of each variable in the data files.

TensorFlow's readers do not report these places. The places also reveal a data file that is too
short. The index is a sorted table of keys and values, stored in blocks. The key '' has the bundle's
header. Every other key is a variable or a slice of a variable.

Source: tensorflow/core/lib/io/table_format.txt and tensorflow/core/protobuf/tensor_bundle.proto;
for the keys of slices, EncodeTensorNameSlice of tensorflow/core/util/saved_tensor_slice_util.h; TF
2.15.1. A slice's key begins with the variable's name, and the keys sort like the slices' starts.
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
    """Raised for an index that this module cannot read."""


@dataclasses.dataclass(frozen=True)
class FilePart:
    """Consecutive rows of a variable in a data file, or a scalar. `crc32c` is masked."""

    start: int
    rows: int
    file: str
    offset: int
    size: int
    crc32c: int


class Index:
    """The index of a checkpoint, read once. Raises UnknownFormat if it cannot be read.

    Attributes:
      path: prefix of the checkpoint.
      entries: key -> entry of a variable or a slice.
    """

    def __init__(self, path: str):
        self.path = path
        self._count, self.entries, self._little_endian = _read(path)
        self._keys = sorted(self.entries)

    def parts(self, name: str) -> list[FilePart]:
        """Returns a variable's parts in the order of their rows, or raises UnknownFormat."""
        entry = self.entries.get(name.encode())
        if entry is None or not self._little_endian:
            raise UnknownFormat(f"{self.path}.index has no place of {name}.")
        shape = [dimension.size for dimension in entry.shape.dim]
        if not entry.slices:
            return [self._part(entry, 0, shape[0] if shape else 1)]
        whole = [(0, size) for size in shape]
        runs, keys = self._slices(name.encode(), whole)
        ends = [start + rows for (start, rows), *_ in runs]
        follow = [start for (start, _), *_ in runs] == [0, *ends[:-1]] and ends[-1] == shape[0]
        if len(keys) != len(runs) or not follow or any(run[1:] != whole[1:] for run in runs):
            raise UnknownFormat(f"{self.path}.index: {name} is not in runs of rows.")
        data = [self.entries[key] for key in keys]
        return [self._part(one, *run[0]) for one, run in zip(data, runs, strict=True)]

    def _slices(
        self, key: bytes, whole: list[tuple[int, int]]
    ) -> tuple[list[list[tuple[int, int]]], list[bytes]]:
        """Returns (start, length) of each dimension of a variable's slices, and the slices' keys.

        `whole` has (0, size) of each dimension of the variable.
        """
        extents = sorted(
            [
                (one.start, one.length) if one.HasField("length") else limits
                for one, limits in zip(piece.extent, whole, strict=True)
            ]
            for piece in self.entries[key].slices
        )
        begin = b"\0" + key.replace(b"\0", b"\0\xff") + b"\0\1"
        first, end = (bisect.bisect(self._keys, one) for one in (begin, begin + b"\xff"))
        return extents, self._keys[first:end]

    def data_files(self) -> Iterator[tuple[str, int]]:
        """Yields each data file and its minimum size in bytes."""
        sizes: dict[int, int] = {}
        for entry in self.entries.values():
            sizes[entry.shard_id] = max(sizes.get(entry.shard_id, 0), entry.offset + entry.size)
        for shard in range(self._count):
            yield self.data_file(shard), sizes.pop(shard, 0)
        for shard, size in sizes.items():
            yield self.data_file(shard), size

    def data_file(self, shard: int) -> str:
        return f"{self.path}.data-{shard:05d}-of-{self._count:05d}"

    def _part(self, entry: tensor_bundle_pb2.BundleEntryProto, start: int, rows: int) -> FilePart:
        file = self.data_file(entry.shard_id)
        return FilePart(start, rows, file, entry.offset, entry.size, entry.crc32c)


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
    """Returns a block's offset and size, and the position after them."""
    offset, position = _varint(data, position)
    size, position = _varint(data, position)
    return offset, size, position


def _varint(data: bytes, position: int) -> tuple[int, int]:
    """Returns the number at a position, and the position after it."""
    value = shift = 0
    while True:
        byte = data[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, position
        shift += 7
