"""Random programs that use columns give the results of stock tensorflow-estimator.

The fast test runs stock's class in this process. The other test runs stock on TensorFlow 2.15.1,
without this package, by the Python that ESTIMATOR_EMB_STOCK_PYTHON names.
"""

import json

import harness
import processes
import pytest
import sampling
from drawn_programs import Program

import estimator_emb as ee

PROGRAMS = 20
"""Number of programs per process."""


def test_a_program_gives_the_results_of_tensorflow_estimators_class(tmp_path):
    """A program with words, ragged ids, shared sequences and predictions."""
    program = Program(147)
    check(program, program.run(tmp_path / "stock"), tmp_path / "ours")


@pytest.mark.slow
@pytest.mark.sampled(2)
@pytest.mark.parametrize("part", range(15))
def test_random_programs_give_the_results_of_stock(part, native_library, tmp_path, monkeypatch):
    seeds = sampling.drawn(range(part * PROGRAMS, (part + 1) * PROGRAMS), 8)
    file = processes.ROOT / "tests" / "beside_stock" / "drawn_programs.py"
    done = processes.run_side("stock", file, *seeds, status=0, CUDA_VISIBLE_DEVICES="")
    stock = json.loads(done.stdout.splitlines()[-1])
    for seed in seeds:
        monkeypatch.setenv("ESTIMATOR_EMB_NATIVE", str(seed % 2))
        check(Program(seed), stock[str(seed)], tmp_path / str(seed))


def check(program, want, folder):
    print(program)  # Shown if the test fails.
    harness.same(program.run(folder, ee), want, 2e-5)
