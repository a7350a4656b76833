"""A program in the style of 2019, run unchanged on one and two emulated cores."""

import numpy as np
import processes
import pytest
import tensorflow as tf

pytestmark = pytest.mark.slow


def run(folder, *arguments, status=0):
    program = processes.ROOT / "tests" / "cli" / "legacy_programs" / "mesh_model.py"
    command = ["run", "--tf-v1", "--device=host", program, f"--model_dir={folder}", *arguments]
    return processes.run_command(*command, status=status, timeout=600)


def trained_mesh(steps):
    """Returns mesh_model.py's weights and loss, by NumPy in float64."""
    w_in = np.cos(np.arange(24)).reshape(3, 8) / 2
    w_out = np.cos(np.arange(8)).reshape(8, 1) / 2
    x = np.sin(np.arange(24)).reshape(8, 3)
    y = x.sum(1, keepdims=True)
    for step in range(steps + 1):
        hidden = np.tanh(x @ w_in)
        wrong = hidden @ w_out - y
        if step == steps:
            return w_in, w_out, np.mean(wrong**2)
        upstream = 2 * wrong / len(x)
        of_hidden = upstream @ w_out.T * (1 - hidden**2)
        w_in, w_out = w_in - 0.1 * x.T @ of_hidden, w_out - 0.1 * hidden.T @ upstream
    return None


@pytest.mark.parametrize("cores", [1, 2])
def test_a_mesh_model_trains_like_numpy(cores, tmp_path):
    done = run(tmp_path, f"--cores={cores}")
    w_in, w_out, loss = trained_mesh(4)
    for name, want in (("dense/w_in", w_in), ("dense/w_out", w_out)):
        got = tf.train.load_variable(str(tmp_path), name)
        np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-6)
    (line,) = (one for one in done.stdout.splitlines() if one.startswith("metrics "))
    step, got, numbers = map(float, line.split()[1:])
    assert step == 4 and got == pytest.approx(loss, rel=1e-4)
    assert numbers in (0.0, (cores - 1) / 2)  # Metrics of a broadcast input come from core 0.


def test_refuses_a_mesh_with_another_number_of_cores(tmp_path):
    done = run(tmp_path, "--cores=2", "--inputs=3", status=1)
    assert done.stderr.splitlines()[-1].endswith(
        "tpu_replicated_input: inputs must have one tensor for each of 2 cores (replicas); got 3."
    )
