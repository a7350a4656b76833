"""Selects which cases of a test run: fast cases, and samples if ESTIMATOR_EMB_SAMPLE is set.

`@pytest.mark.fast(3)` marks all but three cases of a test as slow. The test's name determines the
three.

`@pytest.mark.sampled(20)` runs 20 of a test's cases, drawn by the text of ESTIMATOR_EMB_SAMPLE.
`.ci/run` sets it to the commit. If the variable is unset, all cases run. The end of Pytest's output
says how many cases were left out, and how to repeat the same sample.

ESTIMATOR_EMB_SHARE=20-60 also runs only this 40 % of the slow tests and of sampled cases. Two
TensorFlow versions with the shares 0-50 and 50-100 divide these tests between them. Tests marked
`any_version`, or limited to some versions, are not divided.

The functions with names of pytest are pytest hooks, which `conftest.py` imports.
"""

import collections
import os
import random
import re

import pytest

VARIABLE = "ESTIMATOR_EMB_SAMPLE"
SHARE = "ESTIMATOR_EMB_SHARE"
_COUNTS = pytest.StashKey[dict[str, list[int]]]()


def pytest_configure():
    """Raises an error for an invalid share, or a share without a sample, before collection."""
    _share()


def _share():
    """Returns the bounds of the share, in percent."""
    text = os.environ.get(SHARE)
    if text is None:
        return 0, 100
    bounds = re.fullmatch(r"(\d+)-(\d+)", text)
    if not bounds or not 0 <= int(bounds[1]) < int(bounds[2]) <= 100:
        raise pytest.UsageError(
            f"{SHARE} must be two numbers from 0 to 100, the first less, such as '20-60'; got "
            f"{text!r}."
        )
    if not seed():
        raise pytest.UsageError(f"{SHARE} is {text!r}, and {VARIABLE}, which draws, is not set.")
    return int(bounds[1]), int(bounds[2])


def seed():
    """Returns the text that seeds the sample, or '' if all cases run."""
    return os.environ.get(VARIABLE, "")


def of(everything, some):
    """Returns the number of repetitions of a test: `everything`, or `some` when sampling.

    Args:
      everything: number of repetitions when all cases run.
      some: number of repetitions in a sample.
    """
    return some if seed() else everything


def drawn(cases, some):
    """Returns all cases, or `some` random cases when sampling."""
    return random.Random(seed()).sample([*cases], some) if seed() else [*cases]


@pytest.hookimpl(hookwrapper=True)
def pytest_collection_modifyitems(config, items):
    """Marks slow cases before pytest applies -m and -k, then samples the remaining cases."""
    _mark_slow(items)
    yield
    _sample(config, items)


def _mark_slow(items):
    tests = collections.defaultdict(list)
    for item in items:
        if item.get_closest_marker("fast") and not item.get_closest_marker("slow"):
            tests[item.nodeid.partition("[")[0]].append(item)
    for test, cases in tests.items():
        count = cases[0].get_closest_marker("fast").args[0]
        for case in random.Random(test).sample(cases, max(0, len(cases) - count)):
            case.add_marker("slow")


def _sample(config, items):
    """Deselects cases outside the sample or share. All pytest-xdist workers agree on them."""
    counts = config.stash.setdefault(_COUNTS, {})
    if not seed():
        return
    tests = collections.defaultdict(list)
    for item in items:
        sampled = item.get_closest_marker("sampled")
        count = sampled.args[0] if sampled else None
        tests[item.nodeid.partition("[")[0], count, _is_shared_out(item)].append(item)
    kept = set()
    shared = [0, 0]
    for (test, count, is_shared_out), cases in tests.items():
        random_of_test = random.Random(f"{seed()} {test}")
        # Cases of a test without `sampled` share fixtures, so they stay together.
        parts = [cases]
        if count is not None:
            parts = [[case] for case in random_of_test.sample(cases, min(count, len(cases)))]
        if is_shared_out:
            start = random_of_test.random()
            first, end = (int(len(parts) * bound / 100 + start) for bound in _share())
            parts = parts[first:end]
        here = [case for part in parts for case in part]
        kept.update(here)
        if count is not None:
            counts[test] = [len(here), len(cases)]
        elif is_shared_out:
            shared = [shared[0] + len(here), shared[1] + len(cases)]
    if shared[0] < shared[1]:
        counts["the slow tests that several TensorFlows share"] = shared
    config.hook.pytest_deselected(items=[item for item in items if item not in kept])
    items[:] = [item for item in items if item in kept]


def _is_shared_out(item):
    names = {mark.name for mark in item.iter_markers()}
    return "slow" in names and not names & {"any_version", "skipif"}


def pytest_sessionfinish(session):
    """Sends the counts of a pytest-xdist worker to the controller."""
    if hasattr(session.config, "workeroutput"):
        session.config.workeroutput["sampled"] = session.config.stash.get(_COUNTS, {})


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node):
    """Collects the counts of a pytest-xdist worker."""
    counted = (getattr(node, "workeroutput", None) or {}).get("sampled", {})
    node.config.stash.setdefault(_COUNTS, {}).update(counted)


def pytest_terminal_summary(terminalreporter, config):
    """Prints how many cases were left out."""
    for test, (drawn, among) in config.stash.get(_COUNTS, {}).items():
        share = f" {SHARE}={os.environ[SHARE]}" if SHARE in os.environ else ""
        terminalreporter.write_line(
            f"sampled {drawn} of {among} cases of {test}: {VARIABLE}={seed()}{share} draws the same"
        )
