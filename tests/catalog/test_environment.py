"""The list of environment variables agrees with the package's code and with the docs page."""

import re

import processes

from estimator_emb.catalog import environment

NAMES = {variable.name for variable in environment.VARIABLES}


def test_lists_every_variable_that_the_package_reads():
    """Every variable that the package's code names is listed, and every listed variable is used."""
    files = (processes.ROOT / "estimator_emb").rglob("*.py")
    package = "\n".join(path.read_text() for path in files if path.name != "environment.py")
    named = set(re.findall(r"\bESTIMATOR_EMB_[A-Z_]*[A-Z]\b", package))
    named -= {"ESTIMATOR_EMB_NAME"}  # A macro of the C++ kernels, not an environment variable.
    assert named <= NAMES
    for name in NAMES - named:
        assert f"environment.{name.removeprefix('ESTIMATOR_EMB_')}" in package, name


def test_docs_page_lists_every_variable():
    page = (processes.ROOT / "docs" / "api" / "index.md").read_text()
    rows = dict(re.findall(r"^\| `(ESTIMATOR_EMB_\w+)` \| (.*) \|$", page, re.M))
    assert set(rows) == NAMES
    for variable in environment.VARIABLES:
        for choice in variable.choices:
            assert f"`{choice}`" in rows[variable.name], variable.name


def test_an_empty_variable_counts_as_unset_and_an_older_value_as_todays(monkeypatch):
    monkeypatch.setenv("ESTIMATOR_EMB_DEVICE", "")
    assert environment.DEVICE.value() is None and str(environment.DEVICE) == "ESTIMATOR_EMB_DEVICE"
    monkeypatch.setenv("ESTIMATOR_EMB_DEVICE", "host")  # The older name of "emulate".
    assert environment.DEVICE.value() == "emulate"
