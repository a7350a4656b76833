# SPDX-License-Identifier: Apache-2.0
"""Runs the pages about libraries that are built on `tf.estimator`, where they are installed.

A library is looked for, not imported: it is for its page to import, in a process of its own.
"""

import importlib.util
import os
import subprocess
import sys

import documents
import pytest

PAGES = {
    "docs/libraries/adanet.md": ["adanet"],
    "docs/libraries/ranking.md": ["tensorflow_ranking"],
}
"""Page -> the packages that it imports."""


def test_every_page_is_run():
    folder = documents.LIBRARIES
    assert {page for page in documents.PAGES if page.startswith(folder)} == {
        *PAGES,
        f"{folder}index.md",
    }


@pytest.mark.parametrize("page", PAGES)
def test_a_page_is_short(page):
    assert len((documents.REPOSITORY / page).read_text().splitlines()) <= 45


@pytest.mark.slow
@pytest.mark.parametrize("page", PAGES)
def test_page(page, tmp_path):
    for package in PAGES[page]:
        if importlib.util.find_spec(package) is None:
            pytest.skip(f"{package} is not installed")
    done = subprocess.run(
        [sys.executable, documents.__file__, str(tmp_path), page],
        env={**os.environ, "PYTHONPATH": str(documents.REPOSITORY), "TF_CPP_MIN_LOG_LEVEL": "3"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr[-3000:]
    assert done.stdout.startswith(f"{page}: ")
