"""Runs programs on both sides, and compares their records, except for named differences."""

import fcntl
import json
import os
import pathlib
import re

import numpy as np
import processes

RULES = {
    "the spec trains the tables": "Stock is given a twin of the spec's optimizer by hand.",
    "bias correction": "A TPU's Adam has none: it is in learning_rate_fn, which stock never calls.",
    "no beta powers": (
        "Tables trained by Adam need none, and stock has those of the tables' optimizer. Where the "
        "program's Adam has no dense variables, only ours has them: the stock side leaves it out."
    ),
    "slot names": "As on a TPU: <table>/Adam/m, where tf.compat.v1.train says <table>/Adam.",
    "row 0 of the empty": (
        "Where a sample or a position holds no id, stock looks row 0 up and updates it with a "
        "gradient of 0, which moves it under optimizers with a memory. In ours no row is touched, "
        "so row 0, which no id of such a program names, keeps its first value."
    ),
    "sequences are cut": "max_sequence_length cuts on the host too. Stock's input is cut.",
    "the time axis": "max_sequence_length long; in stock as long as the batch's longest sequence.",
    "weights of 0 or less": (
        "They count with every combiner, as on a TPU. Stock leaves such ids out with 'mean' and "
        "'sqrtn', so our side's input is without them."
    ),
    "ragged ids": "Ids may be ragged. Stock takes a SparseTensor of the same ids.",
    "mod": "partition_strategy='mod' works off a TPU. Stock takes 'div' only.",
}
"""Name -> the difference, and why it is accepted. docs/differences.md explains it to users."""

# Slots of tf.compat.v1.train's optimizers -> slots of the TPU's optimizers.
SLOTS = {
    "Adam": {"Adam": "Adam/m", "Adam_1": "Adam/v"},
    "RMSProp": {"RMSProp": "RMSProp/ms", "RMSProp_1": "RMSProp/mom"},
    "Adadelta": {"Adadelta": "Adadelta/accumulators", "Adadelta_1": "Adadelta/updates"},
}

ABSOLUTE, RELATIVE = 1e-5, 2e-5


def results_of(side, paths, folder):
    """Runs programs in a process of a side. All pytest processes share a single run.

    Returns:
      {path: result of `run_programs.py`} of all programs, up to one that ends the process, and the
      process's output.
    """
    results, log = (folder / f"{side}{end}" for end in (".json", ".log"))
    with open(folder / f"{side}.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not log.exists():
            results.touch()
            done = processes.run_side(
                *(side, pathlib.Path(__file__).with_name("run_programs.py"), side, results, *paths),
                cwd=folder,
                ESTIMATOR_EMB_CACHE=os.environ["ESTIMATOR_EMB_CACHE"],
                CUDA_VISIBLE_DEVICES="",
            )
            log.write_text(f"{side}: exit {done.returncode}\n{done.stdout}{done.stderr}")
    lines = results.read_text().splitlines()
    return dict(zip(paths, map(json.loads, lines), strict=False)), log.read_text()


def differences(program, stock, ours):
    """Returns, as lines, the differences in results of `run_programs.py` that no rule allows."""
    failed = [
        f"{side} raised {result['error']}"
        for side, result in (("stock", stock), ("ours", ours))
        if "error" in result
    ]
    if failed:
        return failed
    expected, found = (_arrays(result["recorded"]) for result in (stock, ours))
    expected = _renamed(program, expected)
    if "no beta powers" in program.rules:
        expected, found = (_without_beta_powers(one) for one in (expected, found))
    if expected.keys() != found.keys():
        return [
            f"only in stock: {sorted(expected.keys() - found.keys())}",
            f"only in ours: {sorted(found.keys() - expected.keys())}",
        ]
    lines = []
    for name in sorted(expected):
        lines += _difference(program, name, expected[name], found[name])
    return lines


def _arrays(recorded):
    return {name: np.array(one["value"], one["dtype"]) for name, one in recorded.items()}


def _renamed(program, recorded):
    """Applies the rule `slot names`."""
    if "slot names" not in program.rules:
        return recorded
    slots = SLOTS[program.optimizer.name]

    def name_of(name):
        table, _, last = name.rpartition("/")
        return f"{table}/{slots[last]}" if "embedding" in table and last in slots else name

    return {name_of(name): value for name, value in recorded.items()}


def _without_beta_powers(recorded):
    return {n: value for n, value in recorded.items() if not re.search(r"/beta[12]_power", n)}


def _difference(program, name, expected, found):
    if expected.shape != found.shape:
        return [f"{name}: shape {expected.shape} in stock, {found.shape} in ours"]
    if expected.dtype != found.dtype:
        return [f"{name}: {expected.dtype} in stock, {found.dtype} in ours"]
    untouched = _first_row_0(program, name)
    if untouched is not None:
        if name.endswith(TABLE_ENDS) and not np.allclose(found[0], untouched, 0, 1e-6):
            return [f"{name}: row 0 is {found[0]} in ours, and no id names it"]
        expected, found = expected[1:], found[1:]
    wrong = ~np.isclose(found, expected, RELATIVE, ABSOLUTE)
    if not wrong.any():
        return []
    return [f"{name}: {expected[wrong][:4]} in stock, {found[wrong][:4]} in ours"]


TABLE_ENDS = ("/embedding_weights", "_embedding")


def _first_row_0(program, name):
    """Returns the initial row 0 of a variable's table if rule `row 0 of the empty` applies."""
    if name.startswith("checkpoint/"):
        for table, row in program.empty_tables.items():
            if re.search(rf"/{table}(_[0-9]+)?(/|$)", name):
                return row
    return None
