# SPDX-License-Identifier: Apache-2.0
"""Runs generated programs under stock tensorflow-estimator and under ours, each in a process."""

import os
import pathlib
import sys

import processes

HERE = pathlib.Path(__file__).parent


def run_programs(side, results, paths, directory):
    ours = side == "ours"
    done = processes.run_python(
        *(HERE / "run_programs.py", side, results, *paths),
        python=sys.executable if ours else processes.stock_python(),
        cwd=directory,
        timeout=None,
        PYTHONPATH=str(processes.ROOT) if ours else "",
        ESTIMATOR_EMB_CACHE=os.environ["ESTIMATOR_EMB_CACHE"],
        CUDA_VISIBLE_DEVICES="",
    )
    return f"{side}: exit {done.returncode}\n{done.stdout}{done.stderr}"
