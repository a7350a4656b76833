"""A TPU program learns the same before and after its migration, and few lines change."""

import difflib
import re

import pytest
from running import ROOT, example, run

pytestmark = pytest.mark.any_version

LEGACY = ROOT / "examples" / "legacy_tpu_binary.py"
MODERN = ROOT / "examples" / "modern_binary.py"
STEPS = 150


@pytest.mark.slow
def test_both_binaries_learn_the_same(tmp_path):
    flags = [f"--model_dir={tmp_path}/legacy", "--tpu=my-tpu", "--tpu_zone=z", "--gcp_project=p"]
    legacy = run("-m", "estimator_emb", "run", LEGACY, *flags, f"--train_steps={STEPS}")
    modern = example("modern_binary", model_dir=tmp_path / "modern", train_steps=STEPS)
    metrics, predictions = legacy.splitlines()[:2]
    assert modern.splitlines()[:2] == [metrics, predictions]
    auc = re.fullmatch(rf"step {STEPS}: loss \d.\d+, accuracy 0.\d+, auc (0.\d+)", metrics)
    assert float(auc[1]) > 0.7  # Chance gives 0.5.
    assert predictions.startswith("4096 predictions, mean 0.")


def test_binaries_differ_in_few_lines(assert_recorded):
    """Shows the migration: three imports for four, a changed line, and a new one of the device."""

    def program(path):
        text = path.read_text()
        return [line for line in text[text.index("import numpy") :].splitlines() if line]

    lines = difflib.unified_diff(program(LEGACY), program(MODERN), n=0, lineterm="")
    changes = [line for line in lines if not line.startswith(("---", "+++", "@@"))]
    assert len(changes) == 4 + 3 + 2 + 1
    assert_recorded("\n".join(changes))
