"""Programs in the style of 2019, run unchanged on one and two emulated cores."""

import re

import harness
import numpy as np
import originals
import processes
import pytest
from legacy_checkpoint import read

PROGRAMS = processes.ROOT / "tests" / "cli" / "legacy_programs"
pytestmark = pytest.mark.slow


def run(name, folder, *arguments, options=(), status=0):
    command = ["run", "--tf-v1", "--device=host", *options, PROGRAMS / f"{name}.py"]
    return processes.run_command(
        *command, f"--model_dir={folder}", *arguments, status=status, timeout=600
    )


def metrics(done):
    (line,) = (one for one in done.stdout.splitlines() if one.startswith("metrics "))
    return [float(number) for number in re.findall(r"-?[\d.]+(?:e-?\d+)?", line)]


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
    done = run("mesh_model", tmp_path, f"--cores={cores}")
    w_in, w_out, loss = trained_mesh(4)
    found = read(str(tmp_path))
    np.testing.assert_allclose(found["dense/w_in"], w_in, rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(found["dense/w_out"], w_out, rtol=1e-4, atol=1e-6)
    step, got, numbers = metrics(done)
    assert step == 4 and got == pytest.approx(loss, rel=1e-4)
    assert numbers in (0.0, (cores - 1) / 2)  # Metrics of a broadcast input come from core 0.


def test_refuses_a_mesh_with_another_number_of_cores(tmp_path):
    done = run("mesh_model", tmp_path, "--cores=2", "--inputs=3", status=1)
    assert done.stderr.splitlines()[-1].endswith(
        "tpu_replicated_input: inputs must have one tensor for each of 2 cores (replicas); got 3."
    )


@originals.needs_wheel
def test_text_to_text_trains_equally_on_cores_and_host(tmp_path):
    """On the host, the program takes other branches than on emulated cores."""
    results, variables = {}, {}
    for name, arguments in (
        ("host", ["--cores=1"]),
        ("one", ["--tpu=my-tpu", "--cores=1"]),
        ("two", ["--tpu=my-tpu", "--cores=2"]),
    ):
        folder = tmp_path / name
        done = run("text_to_text", folder, *arguments, options=originals.OPTIONS)
        lines = done.stdout.splitlines()
        compiled = [one for one in lines if one.startswith("compiled ")]
        assert {one.split()[2] for one in compiled} == {str(name != "host")}
        assert len({one.split()[1] for one in compiled}) == 3
        results[name] = metrics(done)
        variables[name] = read(str(folder))
        predicted = [one.split("]") for one in lines if one.startswith("predicted ")]
        # The last batch has 2 samples, so as many rows remain of the cores' values.
        cores = 2 if name == "two" else 1
        assert [len(outputs.split(",")) for outputs, _ in predicted] == [4, 2]
        assert [int(rows) for _, rows in predicted] == [cores, cores]
        if name != "host":
            # As on a TPU, a step reads its number before counting.
            assert [*harness.summaries(folder / "host")] == [0, 1, 2, 3]
    assert results["host"][2] == 4
    for name in ("one", "two"):
        np.testing.assert_allclose(results[name], results["host"], rtol=1e-4)
        for key in ("symbol_modality/weights", "symbol_modality/weights/ExponentialMovingAverage"):
            want = variables["host"][key]
            np.testing.assert_allclose(variables[name][key], want, rtol=1e-3, atol=1e-5)


@originals.needs_wheel
def test_detector_trains_equally_on_one_and_two_cores(tmp_path):
    """Batch normalization over cores makes two cores train like one."""
    results, variables = {}, {}
    for cores in (1, 2):
        folder = tmp_path / str(cores)
        done = run("detector", folder, f"--cores={cores}", options=originals.OPTIONS)
        assert "mixed precision <module" in done.stdout
        results[cores], variables[cores] = metrics(done), read(str(folder))
    assert results[1][2] == 4 and "dense/kernel/ExponentialMovingAverage" in variables[1]
    # An evaluation's loss comes from core 0, whose samples differ.
    np.testing.assert_allclose(results[2][1:], results[1][1:], rtol=1e-3)
    for name, value in variables[1].items():
        np.testing.assert_allclose(variables[2][name], value, 1e-3, 1e-4, err_msg=name)


@pytest.mark.parametrize(
    "flag, name",
    [("tensorrt", "tensorrt.create_inference_graph"), ("nomoving_average", "image.rotate")],
)
def test_detector_says_how_to_get_what_it_uses(flag, name, tmp_path):
    done = run("detector", tmp_path, "--cores=1", f"--{flag}", status=1)
    said = f"tf.contrib.{name} left TensorFlow with version 2."
    (line,) = (line for line in done.stderr.splitlines() if said in line)
    assert "pip download --no-deps" in line and "--contrib=tensorflow-1.15.5" in line
