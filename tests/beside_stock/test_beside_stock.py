# SPDX-License-Identifier: Apache-2.0
"""Random programs, under stock tensorflow-estimator on TensorFlow 2.15.1 and under ours here.

A failing program prints as source. Alone it runs by its seed:

    pytest tests/beside_stock -m '' -k 'program and 17]'

The stock side is the interpreter ESTIMATOR_EMB_STOCK_PYTHON, with TensorFlow 2.15.1 and
tensorflow-estimator 2.15.0; on TensorFlow 2.15.1 this one, if none is given. What stock says of a
program is the same beside every TensorFlow of ours: in a folder ESTIMATOR_EMB_STOCK_RESULTS it is
kept for the next run, and runs at a time share it.
"""

import concurrent.futures
import contextlib
import fcntl
import functools
import hashlib
import json
import os
import pathlib

import comparison
import grammar
import processes
import pytest
from sides import HERE, run_programs

from estimator_emb.native import build, ops

SEEDS = range(300)
CHUNK = 40
"""Programs in one process: enough that TensorFlow's import does not count."""


@pytest.fixture(scope="module")
def results(request, tmp_path_factory):
    """A function of a seed: what `run_programs.py` says of its program by side, and `log`.

    It runs programs by chunks of the selected seeds. Processes of pytest that run at a time share
    what was run.
    """
    processes.stock_python()  # Or it is skipped.
    directory = tmp_path_factory.getbasetemp()
    if hasattr(request.config, "workerinput"):
        directory = directory.parent
    directory = directory / "programs"
    directory.mkdir(exist_ok=True)
    try:
        ops.load()
        with_kernels = True
    except build.BuildError:
        with_kernels = False
    seeds = [
        item.callspec.params["seed"]
        for item in request.session.items
        if item.function is test_program
    ]

    @functools.cache
    def of_chunk(number):
        paths = []
        for seed in seeds[number * CHUNK : (number + 1) * CHUNK]:
            program = grammar.program(seed)
            native = "_native" if program.native and with_kernels else ""
            paths.append(directory / f"{seed}{native}.py")
            paths[-1].write_text(program.source)
        files = {"ours": directory / f"ours-{number}", "stock": _stock_results(directory, paths)}

        def run(side):
            with _held(files[side]):
                known = _read(files[side])
                rest = [path for path in paths if _seed(path.name) not in known]
                return run_programs(side, files[side], rest, directory) if rest else ""

        with concurrent.futures.ThreadPoolExecutor(2) as pool:
            logs = list(pool.map(run, files))
        found = {side: _read(file) for side, file in files.items()}
        return {**found, "log": "\n".join(log[-3000:] for log in logs)}

    return lambda seed: of_chunk(seeds.index(seed) // CHUNK)


def _seed(program):
    return int(program.split(".")[0].split("_")[0])


def _read(results):
    """Returns what `run_programs.py` wrote into a file, by seed."""
    lines = results.read_text().splitlines() if results.exists() else []
    found = [json.loads(line) for line in lines]
    return {_seed(result["program"]): result for result in found}


def _stock_results(directory, paths):
    """Returns the file for what stock says of these programs, as these scripts run them."""
    folder = pathlib.Path(os.environ.get("ESTIMATOR_EMB_STOCK_RESULTS", directory))
    folder.mkdir(parents=True, exist_ok=True)
    text = [path.read_text() for path in (*paths, HERE / "run_programs.py", HERE / "side.py")]
    return folder / f"stock-{hashlib.sha256(json.dumps(text).encode()).hexdigest()[:16]}"


@contextlib.contextmanager
def _held(path):
    with open(f"{path}.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


@pytest.mark.slow
@pytest.mark.sampled(16)
@pytest.mark.parametrize("seed", SEEDS)
def test_program(seed, results):
    program = grammar.program(seed)
    results = results(seed)
    missing = [side for side in ("ours", "stock") if seed not in results[side]]
    if missing:
        pytest.fail(f"{missing} ended before program {seed} did:\n{results['log']}", False)
    stock, ours = results["stock"][seed], results["ours"][seed]
    lines = comparison.differences(program, stock, ours)
    if lines:
        traceback = ours.get("traceback", "") or stock.get("traceback", "")
        pytest.fail("\n".join([*lines, traceback, program.source]), False)


def test_every_rule_is_met_and_every_part_of_the_grammar_is_used():
    programs = [grammar.program(seed) for seed in SEEDS]
    assert set().union(*(program.rules for program in programs)) == set(comparison.RULES)
    for option in set().union(*(program.options for program in programs)):
        assert sum(option in program.drawn for program in programs) >= 3, option
