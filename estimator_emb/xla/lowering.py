# SPDX-License-Identifier: Apache-2.0
"""Has TensorFlow lower a step to XLA's HLO, in a process of its own."""

import json
import os
import pathlib
import subprocess
import sys
import tempfile

from estimator_emb.xla.core_step import CannotLower, CoreStep

LOWER = pathlib.Path(__file__).parent / "processes" / "lower.py"


def lowered(step: CoreStep) -> bytes:
    """Returns XLA's serialized module of a step; raises CannotLower with TensorFlow's words."""
    with tempfile.TemporaryDirectory(prefix="lowering-") as folder:
        work = pathlib.Path(folder)
        step.write(work)
        done = subprocess.run(
            [sys.executable, str(LOWER), folder],
            env={**os.environ, "CUDA_VISIBLE_DEVICES": "", "TF_CPP_MIN_LOG_LEVEL": "3"},
            capture_output=True,
            text=True,
            errors="replace",
        )
        answer = work / "lowered.json"
        if not answer.exists():
            last = "\n".join(done.stderr.strip().splitlines()[-8:])
            raise CannotLower(
                f"the process that lowers it ended with status {done.returncode}:\n{last}"
            )
        result = json.loads(answer.read_text())
        if not result["ok"]:
            raise CannotLower(result["error"])
        return (work / "step.hlo").read_bytes()
