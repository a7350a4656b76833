"""TPU generations and their slices are declared in one place, and the docs name them all."""

import pathlib
import re

from estimator_emb.catalog import generations, slices
from estimator_emb.catalog.generations import GENERATIONS

DOCS = pathlib.Path(__file__).parents[2] / "docs"


def test_documents_name_every_generation():
    assert set(re.findall(r"\bv\d\w?\b", (DOCS / "tpu.md").read_text())) >= set(GENERATIONS)


def test_every_slice_has_a_known_generation():
    for name in slices.names():
        generation, cores = name.split("-")
        one = slices.named(name)
        assert one.cores * (2 if GENERATIONS[generation].megacore else 1) == int(cores)
        assert len(one.coordinates()) == one.hosts


def test_generations_have_the_memory_and_the_runtime_of_their_hardware():
    memory = {"v2": 16 / 2, "v3": 32 / 2, "v4": 32 / 2, "v5e": 16, "v5p": 95, "v6e": 32}
    assert {name: one.core_bytes / 2**30 for name, one in GENERATIONS.items()} == memory
    assert [name for name, one in GENERATIONS.items() if one.megacore] == ["v4"]
    assert generations.PJRT == ("v5e", "v5p", "v6e")  # No other runtime drives them.
