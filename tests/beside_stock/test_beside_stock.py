"""Compares random programs with stock tensorflow-estimator on TensorFlow 2.15.1.

A failing program is printed as source. To run it alone, select its seed:

    pytest tests/beside_stock -m '' -k 'program and 17]'

ESTIMATOR_EMB_STOCK_PYTHON names the stock Python, with TensorFlow 2.15.1 and tensorflow-estimator
2.15.0. On TensorFlow 2.15.1, the default is this Python.
"""

import concurrent.futures
import functools

import comparison
import grammar
import processes
import pytest

SEEDS = range(300)
CHUNK = 40
"""Programs per process: enough to make TensorFlow's import time negligible."""


@pytest.fixture(scope="module")
def results(request, tmp_path_factory):
    """Returns a function of a seed: the records of both sides, and the processes' output.

    It runs the programs of all selected seeds in chunks.
    """
    processes.stock_python()  # Skips the tests without a stock Python.
    directory = tmp_path_factory.getbasetemp()
    if hasattr(request.config, "workerinput"):
        directory = directory.parent
    seeds = [
        item.callspec.params["seed"]
        for item in request.session.items
        if item.function is test_random_program_gives_the_results_of_stock
    ]

    @functools.cache
    def of_chunk(number):
        folder = directory / f"programs_{number}"
        folder.mkdir(exist_ok=True)
        paths = {}
        for seed in seeds[number * CHUNK : (number + 1) * CHUNK]:
            program = grammar.Program(seed)
            paths[seed] = folder / f"{seed}{'_native' if program.native else ''}.py"
            paths[seed].write_text(program.source)
        with concurrent.futures.ThreadPoolExecutor(2) as pool:
            run = functools.partial(comparison.results_of, paths=[*paths.values()], folder=folder)
            (stock, of_stock), (ours, of_ours) = pool.map(run, ("stock", "ours"))
        log = f"{of_stock[-3000:]}\n{of_ours[-3000:]}"
        return {seed: (stock.get(path), ours.get(path), log) for seed, path in paths.items()}

    return lambda seed: of_chunk(seeds.index(seed) // CHUNK)[seed]


@pytest.mark.slow
@pytest.mark.sampled(16)
@pytest.mark.parametrize("seed", SEEDS)
def test_random_program_gives_the_results_of_stock(seed, results):
    program = grammar.Program(seed)
    stock, ours, log = results(seed)
    if None in (stock, ours):
        pytest.fail(f"a process ended before program {seed} did:\n{log}", False)
    lines = comparison.differences(program, stock, ours)
    if lines:
        traceback = ours.get("traceback", "") or stock.get("traceback", "")
        pytest.fail("\n".join([*lines, traceback, program.source]), False)


def test_random_programs_use_every_rule_and_part_of_the_grammar():
    programs = [grammar.Program(seed) for seed in SEEDS]
    assert set().union(*(program.rules for program in programs)) == set(comparison.RULES)
    for option in set().union(*(program.options for program in programs)):
        assert sum(option in program.drawn for program in programs) >= 3, option
