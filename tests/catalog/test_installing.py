"""The pip commands in messages name a clone, and a Python that can install the extra."""

import sys

import pytest

from estimator_emb.catalog import installing


@pytest.mark.parametrize("python, more", [((3, 10), ", with Python 3.11 or newer"), ((3, 11), "")])
def test_an_extra_is_installed_in_a_clone(python, more, monkeypatch):
    monkeypatch.setattr(sys, "version_info", python)
    assert installing.extra("pjrt") == f"pip install '.[pjrt]' (in a clone of estimator_emb{more})"
    line = installing.extra("tensorflow", "tensorflow<2.23")
    assert line == "pip install '.[tensorflow]' 'tensorflow<2.23' (in a clone of estimator_emb)"
