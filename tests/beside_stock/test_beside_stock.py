# SPDX-License-Identifier: Apache-2.0
"""Random programs, under stock tensorflow-estimator on TensorFlow 2.15.1 and under ours here.

A failing program prints as source. Alone it runs by its seed:

    pytest tests/beside_stock -m '' -k 'program and 17]'

The stock side is the interpreter ESTIMATOR_EMB_STOCK_PYTHON, with TensorFlow 2.15.1 and
tensorflow-estimator 2.15.0; on TensorFlow 2.15.1 this one, if none is given.
"""

import concurrent.futures
import json
import os
import pathlib
import subprocess
import sys

import comparison
import grammar
import pytest
import tensorflow as tf

from estimator_emb.native import build, ops

HERE = pathlib.Path(__file__).parent
SEEDS = range(300)
FAST = (13, 17, 29, 35)
HERE_ALONE = SEEDS[:150] if tf.__version__.startswith("2.15.") else SEEDS[150:]
"""Those of this TensorFlow; ESTIMATOR_EMB_EVERY_PROGRAM=1 runs all, in some ten minutes more."""
CHUNK = 80
"""Programs in one process: enough that TensorFlow's import does not count."""


def _stock_python():
    given = os.environ.get("ESTIMATOR_EMB_STOCK_PYTHON")
    if given:
        return given
    return sys.executable if tf.__version__.startswith("2.15.") else None


@pytest.fixture(scope="module")
def results(request, tmp_path_factory):
    """(side, seed) -> what `run_programs.py` says of each selected program, and `log` of all."""
    python = _stock_python()
    if python is None:
        pytest.skip("ESTIMATOR_EMB_STOCK_PYTHON names no Python with TensorFlow 2.15.1")
    directory = tmp_path_factory.mktemp("programs")
    os.environ.setdefault("ESTIMATOR_EMB_CACHE", str(request.config.cache.mkdir("native")))
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
    print(f"seeds {seeds}")
    paths = []
    for seed in seeds:
        program = grammar.program(seed)
        native = "_native" if program.native and with_kernels else ""
        paths.append(directory / f"{seed}{native}.py")
        paths[-1].write_text(program.source)
    chunks = [paths[i : i + CHUNK] for i in range(0, len(paths), CHUNK)]
    jobs = [(side, chunk) for chunk in chunks for side in ("ours", "stock")]
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        logs = list(pool.map(lambda job: _run(*job, directory, python), jobs))
    found = {}
    for side in ("ours", "stock"):
        for line in (directory / side).read_text().splitlines():
            result = json.loads(line)
            found[side, int(result["program"].split(".")[0].split("_")[0])] = result
    found["log"] = "\n".join(log[-3000:] for log in logs)
    return found


def _run(side, paths, directory, stock_python):
    environment = {**os.environ, "CUDA_VISIBLE_DEVICES": "", "TF_CPP_MIN_LOG_LEVEL": "2"}
    environment.pop("PYTHONPATH", None)
    if side == "ours":
        environment["PYTHONPATH"] = str(HERE.parents[1])
    else:
        # What importing us sets: the Keras of TensorFlow 2.15 is Keras 2 by itself.
        environment.pop("TF_USE_LEGACY_KERAS", None)
    done = subprocess.run(
        [
            sys.executable if side == "ours" else stock_python,
            HERE / "run_programs.py",
            side,
            directory / side,
            *paths,
        ],
        env=environment,
        cwd=directory,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    return f"{side}: exit {done.returncode}\n{done.stdout}"


@pytest.mark.parametrize(
    "seed",
    [
        pytest.param(seed, marks=() if seed in FAST else pytest.mark.slow, id=str(seed))
        for seed in sorted(
            SEEDS
            if os.environ.get("ESTIMATOR_EMB_EVERY_PROGRAM") == "1"
            else {*HERE_ALONE, *FAST}
        )
    ],
)
def test_program(seed, results):
    program = grammar.program(seed)
    missing = [side for side in ("ours", "stock") if (side, seed) not in results]
    if missing:
        pytest.fail(f"{missing} ended before program {seed} did:\n{results['log']}", False)
    stock, ours = results["stock", seed], results["ours", seed]
    lines = comparison.differences(program, stock, ours)
    if lines:
        traceback = ours.get("traceback", "") or stock.get("traceback", "")
        pytest.fail("\n".join([*lines, traceback, program.source]), False)


def test_every_rule_is_met_and_every_part_of_the_grammar_is_used():
    programs = [grammar.program(seed) for seed in SEEDS]
    assert set().union(*(program.rules for program in programs)) == set(comparison.RULES)
    for tag in grammar.TAGS:
        assert sum(tag in program.tags for program in programs) >= 3, tag
