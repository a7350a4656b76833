# SPDX-License-Identifier: Apache-2.0
"""Training on a cluster of a chief, a worker and a parameter server, each a process."""

import json
import os
import pathlib
import socket
import subprocess
import sys
import textwrap

import harness
import numpy as np
import pytest

PROGRAM = """
    import sys
    import harness, test_estimator
    import estimator_emb as ee

    def input_fn(params):
        return harness.dataset(test_estimator.batches()).repeat()

    columns = test_estimator.columns()
    estimator = ee.TPUEstimator(
        test_estimator.model_fn_of(columns),
        config=ee.RunConfig(model_dir=sys.argv[1], save_checkpoints_steps=1000),
        use_tpu=False,
        train_batch_size=4,
        embedding_config_spec=ee.EmbeddingConfigSpec(columns, ee.AdagradParameters(0.1)),
    )
    ee.train_and_evaluate(
        estimator, ee.TrainSpec(input_fn, max_steps=40), ee.EvalSpec(input_fn, steps=1)
    )
"""


@pytest.mark.slow
def test_trains_on_a_parameter_server(tmp_path):
    sockets = [socket.create_server(("localhost", 0)) for _ in range(3)]
    cluster = {
        job: [f"localhost:{one.getsockname()[1]}"]
        for job, one in zip(("chief", "worker", "ps"), sockets, strict=True)
    }
    for one in sockets:
        one.close()
    here = pathlib.Path(__file__).parent
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(here.parent), str(here)])}
    tasks = {}
    for job in ("ps", "worker", "chief"):
        task = {"cluster": cluster, "task": {"type": job, "index": 0}}
        tasks[job] = subprocess.Popen(
            [sys.executable, "-c", textwrap.dedent(PROGRAM), str(tmp_path)],
            env={**environment, "TF_CONFIG": json.dumps(task)},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
    try:
        assert tasks["chief"].wait(timeout=180) == 0
    finally:
        for process in tasks.values():
            process.kill()
            process.wait()
    first, last = harness.saved(tmp_path, 0), harness.saved(tmp_path, 40)
    for name in (
        "dense_features/item_embedding/embedding_weights",
        "history_words_shared_embedding",
        "history_words_shared_embedding/Adagrad",
    ):
        assert not np.allclose(first[name], last[name]), name
        assert np.all(np.isfinite(last[name]))
