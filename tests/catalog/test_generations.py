"""TPU generations and their slices are declared in one place, and the docs name them all."""

import re

import numpy as np
import processes

from estimator_emb.catalog import generations, slices
from estimator_emb.catalog.generations import GENERATIONS


def test_documents_name_every_generation():
    page = (processes.ROOT / "docs" / "tpu.md").read_text()
    assert set(re.findall(r"\bv\d\w?\b", page)) >= set(GENERATIONS)


def test_every_slice_has_a_known_generation():
    for name in slices.names():
        generation, cores = name.split("-")
        one = slices.named(name)
        # TensorFlow shows the two cores of a chip with megacore as one. The name counts both.
        assert one.cores * (2 if GENERATIONS[generation].megacore else 1) == int(cores)
        assert len(one.coordinates()) == one.hosts
        assert sorted(sum(one.coordinates(), [])) == [list(core) for core in np.ndindex(one.mesh)]
    assert slices.slice_of(2048).cores == 2048  # As many as the largest TPU has.


def test_generations_have_the_memory_and_the_runtime_of_their_hardware():
    # GiB of a chip, as Google Cloud documents it, divided by its cores.
    memory = {"v2": 16 / 2, "v3": 32 / 2, "v4": 32 / 2, "v5e": 16, "v5p": 95, "v6e": 32}
    assert {name: one.core_bytes / 2**30 for name, one in GENERATIONS.items()} == memory
    assert [name for name, one in GENERATIONS.items() if one.megacore] == ["v4"]
    assert generations.PJRT == ("v5e", "v5p", "v6e")  # TensorFlow's own runtime drives the others.
