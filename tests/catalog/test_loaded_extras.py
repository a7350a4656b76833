"""A deleted extra is named. If an extra lacks a package, Python's own error says so."""

from harness import refusal

import estimator_emb as ee
from estimator_emb.catalog import extras


def test_load_names_a_deleted_extra():
    assert refusal(extras.MissingExtra, extras.load, "devices", "deleted.backend") == (
        "This copy of estimator_emb does not contain the extra 'devices': "
        "estimator_emb.deleted.backend is missing"
    )


def test_load_raises_the_error_of_an_extra_without_its_package(tmp_path, monkeypatch):
    (tmp_path / "without_package.py").write_text("import no_such_package")
    monkeypatch.setattr(ee, "__path__", [*ee.__path__, str(tmp_path)])
    said = refusal(ModuleNotFoundError, extras.load, "devices", "without_package")
    assert said == "No module named 'no_such_package'"
