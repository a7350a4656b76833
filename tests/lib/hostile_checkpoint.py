"""Writes checkpoints with a manipulated index and correct checksums.

The format is described in tensorflow/core/lib/io/table_format.txt. The index is written as a single
block without shared key prefixes.
"""

import pathlib

import google_crc32c
from tensorflow.core.protobuf import tensor_bundle_pb2

from estimator_emb.checkpoints.files import bundle_index

Entry = tensor_bundle_pb2.BundleEntryProto
_MAGIC = 0xDB4775248B80FB57


def rewrite(path, change):
    """Calls `change` with the header and {key: entry} of an index, and writes the index back."""
    file = pathlib.Path(f"{path}.index")
    pairs = dict(bundle_index._pairs(file.read_bytes()))
    header = tensor_bundle_pb2.BundleHeaderProto.FromString(pairs.pop(b""))
    entries = {key: Entry.FromString(value) for key, value in pairs.items()}
    change(header, entries)
    entries = {b"": header, **entries}
    write(file, [(key, entries[key].SerializeToString()) for key in sorted(entries)])


def write(file, pairs):
    contents = bytearray()

    def add(pairs):
        block = b"".join(
            b"\0" + number(len(key)) + number(len(value)) + key + value for key, value in pairs
        )
        block += bytes(4) + (1).to_bytes(4, "little") + b"\0"
        begin, size = len(contents), len(block) - 1
        contents.extend(block + checksum(block))
        return number(begin) + number(size)

    data = add(pairs)
    meta = add([])
    index = add([(b"\xff" * 8, data)])
    contents.extend((meta + index).ljust(40, b"\0") + _MAGIC.to_bytes(8, "little"))
    file.write_bytes(contents)


def number(value):
    """Encodes a number with seven bits per byte, lowest bits first."""
    code = bytearray()
    while value >= 0x80:
        code.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*code, value])


def checksum(data):
    """CRC-32C of data, masked as TensorFlow stores it."""
    value = google_crc32c.value(bytes(data))
    return (((value >> 15 | value << 17) + 0xA282EAD8) & 0xFFFFFFFF).to_bytes(4, "little")
