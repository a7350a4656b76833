"""Messages say which extra is missing, and the pip command that installs it in a clone."""

import sys

import pytest
from harness import refusal

import estimator_emb as ee
from estimator_emb.catalog import extras, installing


@pytest.mark.parametrize("python, more", [((3, 10), ", with Python 3.11 or newer"), ((3, 11), "")])
def test_an_extra_is_installed_in_a_clone(python, more, monkeypatch):
    monkeypatch.setattr(sys, "version_info", python)
    expected = f"pip install '.[pjrt]' (in a clone of estimator_emb{more})"
    assert installing.extra("pjrt") == expected
    line = installing.extra("tensorflow", "tensorflow<2.23")
    assert line == "pip install '.[tensorflow]' 'tensorflow<2.23' (in a clone of estimator_emb)"


def test_load_names_a_deleted_extra_but_not_one_without_its_package(tmp_path, monkeypatch):
    (tmp_path / "without_package.py").write_text("import no_such_package")
    monkeypatch.setattr(ee, "__path__", [*ee.__path__, str(tmp_path)])
    message = refusal(ModuleNotFoundError, extras.load, "devices", "without_package")
    assert message == "No module named 'no_such_package'"
    message = refusal(extras.MissingExtra, extras.load, "devices", "deleted.backend")
    contains = "This copy of estimator_emb does not contain the extra 'devices': "
    assert message == f"{contains}estimator_emb.deleted.backend is missing"
