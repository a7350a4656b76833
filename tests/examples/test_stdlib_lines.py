"""examples/stdlib_lines.py, run as a program: it learns which package a line of code is from."""

import re

import numpy as np
import pytest
import running
import sampling

pytestmark = [pytest.mark.any_version, pytest.mark.slow]

LINE, PREVIOUS = "        self._loop.call_soon(self._wakeup)", "    def resume(self):"


def accuracies_in(output):
    """Returns the model's accuracy in %, and that of always naming the most frequent package."""
    of_model = r"Accuracy on [\d,]+ lines of held-out files: ([\d.]+)% "
    found = re.search(of_model + r"\(always the most frequent package: ([\d.]+)%\)", output)
    assert found, output
    return float(found[1]), float(found[2])


def test_stdlib_lines_serves_the_same_without_the_project_and_resumes(tmp_path):
    model_dir = tmp_path / "model"
    flags = {"model_dir": model_dir, "train_steps": 10, "batch_size": 64, "eval_steps": 2}
    first = running.example("stdlib_lines", **flags)
    assert "Training 10 steps." in first
    accuracy, majority = accuracies_in(first)
    assert 0 < accuracy < 100 and 5 < majority < 25  # 10 steps learn little.
    output = running.example("stdlib_lines", predict=LINE, previous=PREVIOUS, **flags)
    (line,) = output.splitlines()  # Packages, each with its probability in percent.
    pairs = (pair.rsplit(" ", 1) for pair in line.split(", "))
    predicted = {package: float(share.removesuffix("%")) / 100 for package, share in pairs}
    packages = (model_dir / "packages.txt").read_text().split()
    assert set(predicted) <= set(packages)
    np.savez(tmp_path / "in.npz", line=np.array([LINE]), previous=np.array([PREVIOUS]))
    served = running.served(model_dir, tmp_path / "in.npz", tmp_path)
    assert served["package"][0].decode() == max(predicted, key=predicted.get)
    shares = served["probabilities"][0]
    for package, share in predicted.items():  # Printed with one decimal.
        assert shares[packages.index(package)] == pytest.approx(share, abs=0.0006)
    flags["train_steps"] = 15
    assert "Training from step 10 to 15." in running.example("stdlib_lines", **flags)
    last = running.example("stdlib_lines", **flags)
    assert "Nothing left to train: 15 steps done" in last
    accuracies_in(last)  # The finished training is evaluated again.


def test_stdlib_lines_learns(tmp_path):
    steps = sampling.of(2000, some=1000)
    output = running.example("stdlib_lines", model_dir=tmp_path, train_steps=steps)
    accuracy, majority = accuracies_in(output)
    assert accuracy > 58 > 2 * majority  # README.md: 54 % after 500 steps, 64 % after 2,000.
    evaluations = re.findall(r"^evaluation at step ([\d,]+): loss [\d.]+, accuracy ", output, re.M)
    assert [int(step.replace(",", "")) for step in evaluations] == list(range(500, steps + 1, 500))
