"""Any batch trains right, or gives an error that names its feature before any update."""

import re

import harness
import malformed
import processes
import pytest
import sampling

CONFIGURATIONS = list(malformed.CONFIGURATIONS)


@pytest.mark.parametrize("configuration, first", [("host, dropping", 0), ("two cores", 1)])
def test_malformed_batches_train_right_or_are_named_in_this_process(configuration, first, native):
    seeds, every_second_feature = range(20), slice(first, None, 2)
    found = malformed.cases(configuration, seeds, part=every_second_feature)
    assert list(found) == [(seed, None) for seed in seeds]  # None: as NumPy says.


@pytest.mark.slow
@pytest.mark.sampled(2)
@pytest.mark.parametrize("configuration", CONFIGURATIONS)
def test_a_malformed_batch_trains_right_or_is_named(configuration, native_library):
    """TensorFlow 2.15 runs half of a configuration's seeds, and other versions the other half."""
    first = 1000 * CONFIGURATIONS.index(configuration) + (0 if harness.IS_2_15 else 500)
    seeds = sampling.drawn(range(first, first + 500), 150)
    done = processes.run(
        "import malformed; malformed.main()",
        *(configuration, *seeds),
        timeout=None,
        TF_CPP_MIN_LOG_LEVEL="3",
    )
    assert "is wrong" not in done.stdout, done.stdout[-5000:]
    assert re.findall(r"(?m)^seed (\d+):", done.stdout) == [*map(str, seeds)]


@pytest.mark.slow
def test_native_kernels_and_ops_say_the_same_of_a_malformed_batch(native):
    ways = [
        malformed.Program(*malformed.CONFIGURATIONS[f"host{ops}"])
        for ops in ("", ", TensorFlow's ops")
    ]
    said = []
    for seed in range(100):
        given, slopes, _ = malformed.generated(ways[0], seed)
        native, ops = (program.run(given, slopes) for program in ways)
        if isinstance(ops, str):
            said.append([one.partition("\n")[0] for one in (native, ops)])
    assert len(said) > 20
    assert [native for native, _ in said] == [ops for _, ops in said]
