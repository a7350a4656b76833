# SPDX-License-Identifier: Apache-2.0
"""A training that a test kills again and again: `killed_program.py WAY DIRECTORY`."""

import sys

import test_input_checkpoint as tests

if __name__ == "__main__":
    way, directory = sys.argv[1:]
    print("ready", flush=True)
    estimator = tests.make(directory, **{**tests.WAYS[way], "save_checkpoints_steps": 3})
    estimator.train(
        lambda params=None: tests.input_fn(params, steps=tests.LONG + 2),
        hooks=[tests.CheckpointInputPipelineHook(estimator)],
        max_steps=tests.LONG,
    )
