"""Random programs that use columns give the results of stock tensorflow-estimator.

Stock runs on TensorFlow 2.15.1, without this package, by the Python that ESTIMATOR_EMB_STOCK_PYTHON
names. The fast test has its results in a file.
"""

import json

import drawn_programs
import harness
import processes
import pytest
import sampling
from drawn_programs import Program

import estimator_emb as ee

PROGRAMS = 20
"""Number of programs per process."""
SEED = 147
"""Seed of a program with words, ragged ids, shared sequences and predictions."""
SAVED = processes.data("stock_program.json")


def results_of_stock(*seeds):
    """Returns stock's results for each seed."""
    file = drawn_programs.__file__
    done = processes.run_side("stock", file, *seeds, status=0, CUDA_VISIBLE_DEVICES="")
    return json.loads(done.stdout.splitlines()[-1])


def assert_gives(want, program, folder):
    print(program)  # Shown if the test fails.
    harness.assert_same(program.run(folder, ee), want, 2e-5)


def test_a_program_gives_the_saved_results_of_stock(tmp_path):
    assert_gives(SAVED[str(SEED)], Program(SEED), tmp_path)


@pytest.mark.slow
def test_stock_program_json_is_up_to_date():
    assert results_of_stock(SEED) == SAVED


@pytest.mark.slow
@pytest.mark.sampled(2)
@pytest.mark.parametrize("part", range(15))
def test_random_programs_give_the_results_of_stock(part, native_library, tmp_path, monkeypatch):
    seeds = sampling.drawn(range(part * PROGRAMS, (part + 1) * PROGRAMS), 8)
    stock = results_of_stock(*seeds)
    for seed in seeds:
        monkeypatch.setenv("ESTIMATOR_EMB_NATIVE", str(seed % 2))
        assert_gives(stock[str(seed)], Program(seed), tmp_path / str(seed))
