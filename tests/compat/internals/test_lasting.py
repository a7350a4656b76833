"""The page about importing lists all changes that last until the process ends."""

import re

import processes
import pytest

PACKAGE = processes.ROOT / "estimator_emb"
PAGE = processes.ROOT / "docs" / "importing.md"

EVERYTHING = """
from estimator_emb.compat.internals.patches import LASTING

from estimator_emb.compat import custom_gradients, legacy_optimizers
from estimator_emb.guards import model
from estimator_emb.guards.call import Call, Runs
from estimator_emb.guards.events import Facts
from estimator_emb.legacy import input_checkpoint, launch
from estimator_emb.engine.tables import column_reads, scopes

custom_gradients.find_local_variables()
legacy_optimizers._install()
with model.wrong_optimizers(Facts(Call(Runs.LOCAL, has_spec=True))):
    pass
input_checkpoint.attach_hooks()
launch._limit_steps(1)
launch._seed(1)
column_reads._install()
scopes._install()
print(*LASTING.attributes, sep="\\n")
"""


def test_runs_every_file_with_lasting_changes():
    """A file changes other packages for good by calling `patches.LASTING`, a set of changes."""
    changing = {
        ".".join(file.relative_to(PACKAGE).with_suffix("").parts)
        for file in PACKAGE.rglob("*.py")
        if "LASTING." in file.read_text() and file.stem != "patches"
    }
    named = re.findall(r"from estimator_emb\.([\w.]+) import (.+)", EVERYTHING)
    named = [(folder, names) for folder, names in named if names.islower()]  # Only modules.
    run = {f"{folder}.{name}" for folder, names in named for name in names.split(", ")}
    assert changing == run


@pytest.mark.slow
def test_docs_page_lists_all_lasting_changes():
    done = processes.run_python("-c", EVERYTHING, status=0)
    # Keras 3 is optional, and Keras 2 has two names.
    changed = {re.sub(r"^(tf_keras|keras)\.src\.", "keras.", name) for name in done.stdout.split()}
    section = PAGE.read_text().partition("## What lasts until the process ends")[2]
    listed = set(re.findall(r"`([\w.]+\.[\w.]+)`", section.partition("\n## ")[0]))
    assert changed == listed
