"""Runs the pages about libraries built on `tf.estimator`, if the libraries are installed.

These tests only look for a library. Its page imports it, in another process.
"""

import importlib.util
import os
import pathlib

import documents
import processes
import pytest
import tensorflow as tf

pytestmark = pytest.mark.any_version

PAGES = {
    "docs/libraries/adanet.md": "adanet",
    "docs/libraries/model_analysis.md": "tensorflow_model_analysis",
    "docs/libraries/ranking.md": "tensorflow_ranking",
    "docs/libraries/tfx.md": "tfx",
    "docs/libraries/transform.md": "tensorflow_transform",
}
"""Page -> the package that the page describes."""


def run_or_skip(folder, page, *command):
    """Runs Python in a folder and returns its output. Skips if the page's package is missing."""
    if importlib.util.find_spec(PAGES[page]) is None:
        pytest.skip(f"{PAGES[page]} is not installed")
    paths = os.pathsep.join([str(documents.REPOSITORY), os.environ.get("PYTHONPATH", "")])
    options = {"cwd": folder, "timeout": None, "status": 0}
    return processes.run_python(*command, PYTHONPATH=paths, **options).stdout


def test_every_library_page_is_tested():
    pages = {page for page in documents.PAGES if page.startswith(documents.LIBRARIES)}
    assert pages == {*PAGES, f"{documents.LIBRARIES}index.md"}


@pytest.mark.parametrize("page", PAGES)
def test_a_library_page_is_short(page):
    """A page is a short note around one complete program."""
    assert len((documents.REPOSITORY / page).read_text().splitlines()) <= 40


@pytest.mark.slow
@pytest.mark.parametrize("page", sorted({*PAGES} - {"docs/libraries/tfx.md"}))
def test_a_library_pages_program_runs(page, tmp_path):
    printed = run_or_skip(tmp_path, page, documents.__file__, str(tmp_path), page)
    assert f"{page}: " in printed  # `documents` prints this after the page's last line has run.


@pytest.mark.slow
def test_a_tfx_trainer_runs_the_pages_run_fn(tmp_path):
    """`tfx_trainer.py` asks for 5 steps."""
    page = "docs/libraries/tfx.md"
    (tmp_path / "trainer_module.py").write_text(documents.program_of(page))
    program = pathlib.Path(__file__).with_name("tfx_trainer.py")
    run_or_skip(tmp_path, page, str(program), str(tmp_path / "trainer_module.py"))
    assert (tmp_path / "model/Format-Serving/saved_model.pb").exists()
    assert tf.train.latest_checkpoint(str(tmp_path / "run")).endswith("model.ckpt-5")
