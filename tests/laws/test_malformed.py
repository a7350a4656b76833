"""Any batch trains as NumPy does, or gives an error that names its feature before any update.

`malformed` draws batches and damages a feature of each, by a seed. It compares with NumPy.
"""

import re

import harness
import malformed
import processes
import pytest
import sampling

CONFIGURATIONS = list(malformed.CONFIGURATIONS)


@pytest.mark.parametrize("configuration, first", [("host, dropping", 0), ("two cores", 1)])
def test_malformed_batches_train_right_or_are_named_in_this_process(configuration, first, native):
    seeds, every_second_feature = range(20), slice(first, None, 2)  # A small program is fast.
    found = malformed.cases(configuration, seeds, part=every_second_feature)
    assert list(found) == [(seed, None) for seed in seeds]  # None: nothing is wrong.


@pytest.mark.slow
@pytest.mark.sampled(2)
@pytest.mark.parametrize("configuration", CONFIGURATIONS)
def test_a_malformed_batch_trains_right_or_is_named(configuration, native_library):
    """The program prints "seed N" before each case. TensorFlow 2.15 runs other seeds than 2.21."""
    first = 1000 * CONFIGURATIONS.index(configuration) + (0 if harness.IS_2_15 else 500)
    seeds = sampling.drawn(range(first, first + 500), 150)
    given = {"timeout": None, "TF_CPP_MIN_LOG_LEVEL": "3"}
    done = processes.run("import malformed; malformed.main()", configuration, *seeds, **given)
    assert "is wrong" not in done.stdout, done.stdout[-5000:]
    assert re.findall(r"(?m)^seed (\d+):", done.stdout) == [*map(str, seeds)]


@pytest.mark.slow
def test_native_kernels_and_ops_give_the_same_error_for_a_malformed_batch(native):
    names = ("host", "host, TensorFlow's ops")
    programs = [malformed.Program(*malformed.CONFIGURATIONS[name]) for name in names]
    errors = []
    for seed in range(100):
        given, slopes, _ = malformed.generated(programs[0], seed)
        results = [program.run(given, slopes) for program in programs]
        if any(isinstance(one, str) for one in results):  # `run` returns an error as a text.
            errors.append([str(one).partition("\n")[0] for one in results])
    assert len(errors) > 20
    assert [by_kernels for by_kernels, _ in errors] == [by_ops for _, by_ops in errors]
