"""Computes the checksums of checkpoints, CRC-32C, with NumPy.

TensorFlow compares the checksum of a tensor only where it reads all of it into memory. Here the
bytes may come in pieces, so that a table of any size is checked in little memory.

A CRC is linear over GF(2): the register after the bytes A and B is the register after A, carried
over as many zero bytes as B has, xor the register of B alone. So a piece is cut into lanes which go
through the tables side by side, and are then joined in pairs.

Source: RFC 3720, section 12.1 (the polynomial), and tensorflow/core/lib/hash/crc32c.h, TF 2.15.1
(the mask).
"""

import functools

import numpy as np

_POLYNOMIAL = 0x82F63B78
_LANE_WORDS = 256
_MOST_LANES = 1 << 15
_MASK_DELTA = 0xA282EAD8


class Checksum:
    """The CRC-32C of bytes that come in pieces."""

    def __init__(self) -> None:
        self._register = np.array([0xFFFFFFFF], np.uint32)

    def add(self, data: bytes | np.ndarray) -> None:
        """Adds the next bytes, or an array of uint8 [n]."""
        values = np.frombuffer(data, np.uint8)
        whole = len(values) // (4 * _LANE_WORDS)
        for first in range(0, whole, _MOST_LANES):
            lanes = min(_MOST_LANES, whole - first)
            start, end = first * 4 * _LANE_WORDS, (first + lanes) * 4 * _LANE_WORDS
            joined = _of_lanes(values[start:end].view("<u4").reshape(lanes, _LANE_WORDS))
            self._register = _carry(self._register, end - start) ^ joined
        table = _byte_table()
        register = int(self._register[0])
        for byte in values[whole * 4 * _LANE_WORDS :].tolist():
            register = (register >> 8) ^ table[(register ^ byte) & 0xFF]
        self._register = np.array([register], np.uint32)

    @property
    def masked(self) -> int:
        value = int(self._register[0]) ^ 0xFFFFFFFF
        return ((value >> 15 | value << 17) + _MASK_DELTA) & 0xFFFFFFFF


def _of_lanes(words: np.ndarray) -> np.ndarray:
    """Returns the register, uint32 [1], after all lanes one after the other, begun with 0."""
    low, high = _word_tables()
    columns = np.ascontiguousarray(words.T)
    registers = np.zeros(len(words), np.uint32)
    for column in columns:
        mixed = registers ^ column
        registers = low[mixed & 0xFFFF] ^ high[mixed >> 16]
    size = 4 * _LANE_WORDS
    while len(registers) > 1:
        if len(registers) % 2:  # A lane of zeros in front changes nothing.
            registers = np.concatenate([np.zeros(1, np.uint32), registers])
        registers = _carry(registers[::2], size) ^ registers[1::2]
        size *= 2
    return registers


def _carry(registers: np.ndarray, size: int) -> np.ndarray:
    """Returns registers, uint32 [n], after `size` zero bytes."""
    carried = np.zeros_like(registers)
    for bit, column in enumerate(_zeros(size)):
        carried ^= np.where(registers >> np.uint32(bit) & np.uint32(1), column, np.uint32(0))
    return carried


@functools.lru_cache(maxsize=256)
def _zeros(size: int) -> np.ndarray:
    """Returns what `size` zero bytes make of each bit of the register, uint32 [32]."""
    if size == 1:
        table = _byte_table()
        one_bits = [1 << bit for bit in range(32)]
        return np.array([(one >> 8) ^ table[one & 0xFF] for one in one_bits], np.uint32)
    return _carry(_zeros(size // 2), size - size // 2)


@functools.cache
def _byte_table() -> list[int]:
    table = []
    for value in range(256):
        for _ in range(8):
            value = value >> 1 ^ (_POLYNOMIAL if value & 1 else 0)
        table.append(value)
    return table


@functools.cache
def _word_tables() -> tuple[np.ndarray, np.ndarray]:
    """Returns the register after a word's lower and upper 16 bits, each uint32 [65536]."""
    words = np.arange(1 << 16, dtype=np.uint32)
    return _carry(words, 4), _carry(words << np.uint32(16), 4)
