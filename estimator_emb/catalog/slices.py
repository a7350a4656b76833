"""TPU slices that can be emulated: their hosts, and the cores that each host feeds.

A core is a TPU device as TensorFlow shows it. It is a replica unless the model is divided.

    v2-N, v3-N  N cores. A host has 4 chips with 2 cores each.
    v4-N        N / 2 cores, because the two TensorCores of a chip are a single device ("megacore").
                A host has 4 chips.

Source: the tables of slice sizes in Google Cloud's documentation of each generation ("TPU v2", "TPU
v3", "TPU v4"). A slice's name counts TensorCores there. The meshes of v2 and v3 are taken from
`_NUM_CORES_TO_COMPUTATION_SHAPE` in tensorflow_estimator/python/estimator/tpu/tpu_context.py,
2.15.0, as far as it goes. Other generations are not known well enough to be emulated.
"""

import dataclasses
import itertools
import math
from collections.abc import Iterator

from estimator_emb.catalog.generations import GENERATIONS

CORES_PER_HOST = 8
"""Cores of a v2 or v3 host. The hosts of an emulated TPU without a slice name have as many."""


@dataclasses.dataclass(frozen=True)
class Slice:
    """A slice of a TPU.

    Attributes:
      mesh: numbers of chips in the directions x, y and z, and number of cores on a chip.
      block: the part of `mesh` on a single host. It divides `mesh`.
    """

    mesh: tuple[int, int, int, int]
    block: tuple[int, int, int, int]

    @property
    def cores(self) -> int:
        return math.prod(self.mesh)

    @property
    def hosts(self) -> int:
        return -(-self.cores // self.cores_per_host)

    @property
    def cores_per_host(self) -> int:
        return math.prod(self.block)

    def coordinates(self) -> list[list[list[int]]]:
        return [
            [
                [corner + step for corner, step in zip(corners, steps, strict=True)]
                for steps in _places(self.block, (1, 1, 1, 1))
            ]
            for corners in _places(self.mesh, self.block)
        ]


def names() -> list[str]:
    """Returns the names of the slices that can be emulated."""
    return list(_SLICES)


def named(name: str) -> Slice:
    """Returns the slice with a name such as 'v3-32'. Raises ValueError for an unknown name."""
    if name not in _SLICES:
        raise ValueError(f"must be one of {', '.join(_SLICES)}; got {name!r}.")
    return _SLICES[name]


def slice_of(cores: int, mesh: tuple[int, int, int, int] | None = None) -> Slice:
    """Returns a slice with a number of cores: up to 8 on a single host, more on hosts of 8 each.

    `mesh` is the usual mesh for that number, if any. Raises ValueError for an impossible number.
    """
    if cores <= CORES_PER_HOST:
        mesh = mesh or (cores, 1, 1, 1)
        return Slice(mesh, mesh)
    most = max(one.cores for one in _SLICES.values())
    if cores > most:
        raise ValueError(f"must be at most {most:,}, as many as the largest TPU; got {cores:,}.")
    if cores % CORES_PER_HOST:
        raise ValueError(
            f"must be at most {CORES_PER_HOST}, which one host has, or a multiple of "
            f"{CORES_PER_HOST}, for several hosts; got {cores} cores."
        )
    return Slice(mesh or (2, cores // 4, 1, 2), (2, 2, 1, 2))


def _slices() -> Iterator[tuple[str, Slice]]:
    for name, generation in GENERATIONS.items():
        cores = 1 if generation.megacore else 2
        for shape in generation.slices:
            x, y, z, *_ = (*map(int, shape.split("x")), 1)
            yield f"{name}-{2 * x * y * z}", Slice((x, y, z, cores), (2, 2, 1, cores))


_SLICES = dict(_slices())


def _places(shape: tuple[int, ...], step: tuple[int, ...]) -> Iterator[tuple[int, ...]]:
    """Yields the coordinates of a grid. Cores of a chip vary fastest, then x, y and z."""
    x, y, z, core = (range(0, length, by) for length, by in zip(shape, step, strict=True))
    for k, j, i, c in itertools.product(z, y, x, core):
        yield i, j, k, c
