"""Any batch trains right, or gives an error that names its feature before any update."""

import json

import harness
import numpy as np
import processes
import pytest
import sampling
import worker

CONFIGURATIONS = list(worker.CONFIGURATIONS)
OPS = ", TensorFlow's ops"


@pytest.mark.slow
def test_malformed_batches_train_right_or_are_named_in_this_process(native_library, monkeypatch):
    """Runs in this process: another import of TensorFlow would take as long as a hundred cases."""
    monkeypatch.setenv("ESTIMATOR_EMB_NATIVE", "1")
    assert list(worker.cases("two cores", range(20))) == [(seed, None) for seed in range(20)]


@pytest.mark.slow
@pytest.mark.sampled(2)
@pytest.mark.parametrize("configuration", CONFIGURATIONS)
def test_a_malformed_batch_trains_right_or_is_named(configuration, native_library):
    """TensorFlow 2.15 runs half of a configuration's seeds, and other versions the other half."""
    first = 1000 * CONFIGURATIONS.index(configuration) + (0 if harness.IS_2_15 else 500)
    seeds = sampling.drawn(range(first, first + 500), 150)
    done = processes.run(
        "import worker; worker.main()",
        *(configuration, *seeds),
        timeout=None,
        TF_CPP_MIN_LOG_LEVEL="3",
    )
    said = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    assert [one for one in said if "wrong" in one] == []
    assert [one["seed"] for one in said] == seeds


@pytest.mark.slow
def test_native_kernels_and_ops_say_the_same_of_a_malformed_batch(native_library, monkeypatch):
    monkeypatch.setenv("ESTIMATOR_EMB_NATIVE", "1")
    ways = [worker.Program(*worker.CONFIGURATIONS[f"one core{ops}"]) for ops in ("", OPS)]
    said = []
    for seed in range(60):
        given, slopes, _ = worker.generated(ways[0], np.random.default_rng(seed))
        native, ops = (program.run(given, slopes) for program in ways)
        if isinstance(ops, str):
            said.append([one.partition("\n")[0] for one in (native, ops)])
    assert len(said) > 20
    assert [native for native, _ in said] == [ops for _, ops in said]
