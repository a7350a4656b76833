"""Programs in the style of 2019, run unchanged on one and two emulated cores.

Each program of legacy_programs trains 4 steps, evaluates, and prints "metrics" with its results.
"""

import re

import harness
import numpy as np
import originals
import processes
import pytest

PROGRAMS = processes.ROOT / "tests" / "cli" / "legacy_programs"
pytestmark = pytest.mark.slow


def run(name, folder, *arguments, options=(), status=0):
    command = ["run", "--tf-v1", "--device=host", *options, PROGRAMS / f"{name}.py"]
    return processes.run_command(*command, f"--model_dir={folder}", *arguments, status=status)


def printed(done, name):
    """Returns the rest of each line of the output that begins with a name."""
    lines = (line.partition(" ") for line in done.stdout.splitlines())
    return [rest for start, _, rest in lines if start == name]


def printed_metrics(done):
    (line,) = printed(done, "metrics")
    return [float(number) for number in re.findall(r"-?[\d.]+(?:e-?\d+)?", line)]


def mesh_model_in_numpy(steps):
    """Returns the weights and the loss of mesh_model.py after gradient descent, in float64."""
    w_in = np.cos(np.arange(24)).reshape(3, 8) / 2
    w_out = np.cos(np.arange(8)).reshape(8, 1) / 2
    x = np.sin(np.arange(24)).reshape(8, 3)
    y = x.sum(1, keepdims=True)
    for _ in range(steps):
        hidden = np.tanh(x @ w_in)
        upstream = 2 * (hidden @ w_out - y) / len(x)
        of_hidden = upstream @ w_out.T * (1 - hidden**2)
        w_in, w_out = w_in - 0.1 * x.T @ of_hidden, w_out - 0.1 * hidden.T @ upstream
    return w_in, w_out, np.mean((np.tanh(x @ w_in) @ w_out - y) ** 2)


@pytest.mark.parametrize("cores", [1, 2])
def test_a_mesh_model_trains_like_numpy(cores, tmp_path):
    """Each core computes a part of the hidden layer for the whole batch."""
    done = run("mesh_model", tmp_path, f"--cores={cores}")
    w_in, w_out, loss = mesh_model_in_numpy(steps=4)
    found = harness.saved(tmp_path, 4)
    np.testing.assert_allclose(found["dense/w_in"], w_in, rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(found["dense/w_out"], w_out, rtol=1e-4, atol=1e-6)
    step, got, core = printed_metrics(done)
    assert step == 4 and got == pytest.approx(loss, rel=1e-4)
    assert core == 0  # All cores read the same batch, so only core 0 evaluates.


def test_refuses_a_mesh_with_another_number_of_cores(tmp_path):
    done = run("mesh_model", tmp_path, "--cores=2", "--inputs=3", status=1)
    assert done.stderr.splitlines()[-1].endswith(
        "tpu_replicated_input: inputs must have one tensor for each of 2 cores (replicas); got 3."
    )


@originals.needs_wheel
def test_text_to_text_trains_equally_on_cores_and_host(tmp_path):
    """The program looks up rows in another way if XLA compiles it, as on emulated cores."""
    results, variables = {}, {}
    for place, cores in (("host", 1), ("one core", 1), ("two cores", 2)):
        folder, tpu = tmp_path / place, [] if place == "host" else ["--tpu=my-tpu"]
        done = run("text_to_text", folder, f"--cores={cores}", *tpu, options=originals.OPTIONS)
        # model_fn prints its mode, and whether XLA compiles it.
        by_xla = place != "host"
        compiled = {f"{mode} {by_xla}" for mode in ("train", "eval", "infer")}
        assert {*printed(done, "compiled")} == compiled
        # 6 samples are predicted in batches of 4. A line has the outputs, and the number of means:
        # each core returns the mean of its samples.
        predicted = [line.split("]") for line in printed(done, "predicted")]
        assert [len(outputs.split(",")) for outputs, _ in predicted] == [4, 2]
        assert [int(of_cores) for _, of_cores in predicted] == [cores, cores]
        if place != "host":
            # The host_call writes events under each step's number. As on a TPU, it is read before
            # it is increased.
            assert [*harness.summaries(folder / "host")] == [0, 1, 2, 3]
        results[place], variables[place] = printed_metrics(done), harness.saved(folder, 4)
    assert results["host"][-1] == 4  # The global step.
    for place in ("one core", "two cores"):
        np.testing.assert_allclose(results[place], results["host"], rtol=1e-4)
        for key in ("symbol_modality/weights", "symbol_modality/weights/ExponentialMovingAverage"):
            want = variables["host"][key]
            np.testing.assert_allclose(variables[place][key], want, rtol=1e-3, atol=1e-5)


@originals.needs_wheel
def test_detector_trains_equally_on_one_and_two_cores(tmp_path):
    """A batch normalization over the samples of all cores makes two cores train like one."""
    results, variables = {}, {}
    for cores in (1, 2):
        folder = tmp_path / str(cores)
        done = run("detector", folder, f"--cores={cores}", options=originals.OPTIONS)
        assert "mixed precision <module" in done.stdout  # It found tf.contrib.mixed_precision.
        results[cores], variables[cores] = printed_metrics(done), harness.saved(folder, 4)
    (_, *of_one_core), (_, *of_two_cores) = results[1], results[2]  # Without the loss of core 0,
    np.testing.assert_allclose(of_two_cores, of_one_core, rtol=1e-3)  # whose samples differ.
    _, global_step = of_one_core
    assert global_step == 4 and "dense/kernel/ExponentialMovingAverage" in variables[1]
    for name, value in variables[1].items():
        np.testing.assert_allclose(variables[2][name], value, 1e-3, 1e-4, err_msg=name)


@pytest.mark.parametrize(
    "flag, name",  # name: what the detector uses first with this flag, without the option --contrib
    [("tensorrt", "tensorrt.create_inference_graph"), ("nomoving_average", "image.rotate")],
)
def test_detector_without_a_wheel_says_how_to_get_contrib(flag, name, tmp_path):
    done = run("detector", tmp_path, "--cores=1", f"--{flag}", status=1)
    said = f"tf.contrib.{name} left TensorFlow with version 2."
    (line,) = (line for line in done.stderr.splitlines() if said in line)
    assert "pip download --no-deps" in line and "--contrib=tensorflow-1.15.5" in line
