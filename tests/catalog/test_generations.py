"""TPU generations and their slices are declared in one place, and the docs name them all."""

import pathlib
import re

from estimator_emb.catalog import slices
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
