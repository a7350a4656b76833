"""Declares the hardware of each TPU generation.

Source: Google Cloud's documentation of each generation for memory and slices; libtpu
0.0.42.1 for topologies. By its error messages, libtpu allows a program on a core of v2, v3, v4,
v5e, v5p and v6e 7.48, 15.48, 15.25, 15.75, 95.74 and 31.25 GiB.
"""

import dataclasses
import math


@dataclasses.dataclass(frozen=True)
class Generation:
    """A generation of TPUs.

    Attributes:
      embedding: its embedding hardware: 'TPUEmbedding' (driven by `backends.tpu`), 'SparseCore' or
        'none'.
      chip_gib: memory of a chip in GiB.
      cores: number of TensorCores of a chip. Each is a device to libtpu.
      shapes: libtpu's names of its topologies: numbers of chips in each direction.
      slices: the slices that can be emulated, in the same form.
      megacore: whether TensorFlow shows the two TensorCores of a chip as a single device.
      pjrt: whether PJRT is its only runtime. TPUEstimator needs TensorFlow's older runtime, and
        that runtime drives the other generations. Source: tensorflow/tensorflow#90807, with a
        TPUEstimator on v5p that ends with "No TPU platform registered". Untested here.
    """

    embedding: str
    chip_gib: int
    cores: int
    shapes: tuple[str, ...]
    slices: tuple[str, ...] = ()
    megacore: bool = False
    pjrt: bool = False

    @property
    def core_bytes(self) -> int:
        return self.chip_gib * 2**30 // self.cores

    @property
    def topologies(self) -> dict[int, str]:
        return {self.cores * math.prod(map(int, name.split("x"))): name for name in self.shapes}


_SQUARES = ("2x2", "4x4", "8x8", "16x16")
_PLANES = ("2x2", "2x4", "4x4", "4x8", "8x8", "8x16", "16x16")
_CUBES = ("2x2x1", "2x2x2", "2x2x4", "2x4x4", "4x4x4")
_V2_SLICES = ("2x2", "4x4", "8x8", "8x16", "16x16")
_V3_SLICES = (*_V2_SLICES, "16x32", "32x32")

GENERATIONS = {
    "v2": Generation("TPUEmbedding", 16, 2, _SQUARES, _V2_SLICES),
    "v3": Generation("TPUEmbedding", 32, 2, _SQUARES, _V3_SLICES),
    "v4": Generation("TPUEmbedding", 32, 2, _CUBES, _CUBES, megacore=True),
    "v5e": Generation("none", 16, 1, _PLANES, pjrt=True),
    "v5p": Generation("SparseCore", 95, 1, _CUBES, pjrt=True),
    "v6e": Generation("SparseCore", 32, 1, _PLANES, pjrt=True),
}

PJRT = tuple(name for name, one in GENERATIONS.items() if one.pjrt)
"""Generations that cannot run a TPUEstimator."""
