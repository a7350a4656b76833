"""Says which cases of a test run: the fast ones, and a sample where ESTIMATOR_EMB_SAMPLE is set.

`@pytest.mark.fast(3)` marks all cases of a test as slow but for three, drawn by its name.

`@pytest.mark.sampled(20)` leaves 20 of a test's cases. Which ones follows from the variable's text,
for which `.ci/run` takes the commit; without it all cases run. Pytest's last lines say how many
were left out, and how to have the same sample again.

With ESTIMATOR_EMB_SHARE=20-60 besides, a share of forty in a hundred runs of the slow tests, and of
the sample of those that are sampled: of two TensorFlows that are given 0-50 and 50-100 each runs
what the other leaves. Tests marked `any_version` or for some versions only are not shared out.

The functions with names of pytest are its hooks, which `conftest.py` takes over.
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
    """Refuses a share that is none, or one that nothing would draw, before it looks for tests."""
    _share()


def _share():
    """Returns the first and the end of the numbers, of 100, for which a test runs here."""
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
    """Returns what the sample is drawn by, or '' where all cases run."""
    return os.environ.get(VARIABLE, "")


def of(everything, some):
    """Returns how often a test is to repeat: `everything`, or `some` where samples are asked for.

    Args:
      everything: how often where all cases run.
      some: how often in a sample.
    """
    return some if seed() else everything


def drawn(cases, some):
    """Returns a list of all cases, or of `some` that are drawn where samples are asked for."""
    return random.Random(seed()).sample([*cases], some) if seed() else [*cases]


@pytest.hookimpl(hookwrapper=True)
def pytest_collection_modifyitems(config, items):
    """Marks cases as slow before -m and -k look, and samples what they have left."""
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
    """Deselects what is not in the sample, or not in the share: the same in all processes."""
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
        # The cases of a test that is not sampled share its fixtures, and stay together.
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
    """Has a worker of pytest-xdist tell what it counted."""
    if hasattr(session.config, "workeroutput"):
        session.config.workeroutput["sampled"] = session.config.stash.get(_COUNTS, {})


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node):
    """Takes over what a worker has counted."""
    counted = (getattr(node, "workeroutput", None) or {}).get("sampled", {})
    node.config.stash.setdefault(_COUNTS, {}).update(counted)


def pytest_terminal_summary(terminalreporter, config):
    """Says what was left out."""
    for test, (drawn, among) in config.stash.get(_COUNTS, {}).items():
        share = f" {SHARE}={os.environ[SHARE]}" if SHARE in os.environ else ""
        terminalreporter.write_line(
            f"sampled {drawn} of {among} cases of {test}: {VARIABLE}={seed()}{share} draws the same"
        )
