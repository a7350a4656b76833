"""Computes the checksums of checkpoints, CRC-32C, with NumPy.

TensorFlow compares the checksum of a tensor only where it reads all of it into memory. Here the
bytes may come in pieces, so that a table of any size is checked in little memory.

A CRC is linear over GF(2): the register after the bytes A and B is the register after A, carried
over as many zero bytes as B has, xor the register of B alone, which zeros in front of B do not
change. So a piece is cut into lanes which go through the tables side by side, and are then joined
in pairs.

Source: RFC 3720, section 12.1 (the polynomial), and tensorflow/core/lib/hash/crc32c.h, TF 2.15.1
(the mask).
"""

import functools

import numpy as np

_POLYNOMIAL = 0x82F63B78
_LANE_BYTES = 1024
_MASK_DELTA = 0xA282EAD8


class Checksum:
    """The CRC-32C of bytes that come in pieces."""

    def __init__(self) -> None:
        self._register = np.array([0xFFFFFFFF], np.uint32)

    def add(self, data: bytes | np.ndarray) -> None:
        """Adds the next bytes, at least one, or an array of uint8 [n]."""
        values = np.frombuffer(data, np.uint8)
        lane = min(_LANE_BYTES, 4 + len(values) // 4 * 4)
        padded = np.pad(values, (-len(values) % lane, 0))
        joined = _of_lanes(padded.view("<u4").reshape(-1, lane // 4))
        self._register = _carry(self._register, 8 * len(values)) ^ joined

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
    bits = 32 * words.shape[1]
    while len(registers) > 1:
        if len(registers) % 2:
            registers = np.pad(registers, (1, 0))
        registers = _carry(registers[::2], bits) ^ registers[1::2]
        bits *= 2
    return registers


def _carry(registers: np.ndarray, bits: int) -> np.ndarray:
    """Returns registers, uint32 [n], after a number of zero bits."""
    carried = np.zeros_like(registers)
    for bit, column in enumerate(_zeros(bits)):
        carried ^= (registers >> np.uint32(bit) & np.uint32(1)) * column
    return carried


@functools.lru_cache(maxsize=256)
def _zeros(bits: int) -> np.ndarray:
    """Returns what a number of zero bits make of each bit of the register, uint32 [32]."""
    if bits == 1:
        return np.array([_POLYNOMIAL, *(1 << bit for bit in range(31))], np.uint32)
    return _carry(_zeros(bits // 2), bits - bits // 2)


@functools.cache
def _word_tables() -> tuple[np.ndarray, np.ndarray]:
    """Returns the register after a word's lower and upper 16 bits, each uint32 [65536]."""
    words = np.arange(1 << 16, dtype=np.uint32)
    return _carry(words, 32), _carry(words << np.uint32(16), 32)
