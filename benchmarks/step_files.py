"""Writes a training step of a program to files, and runs the step with jax alone.

    python benchmarks/step_files.py write FOLDER PROGRAM [ARGUMENTS]
    python benchmarks/step_files.py run FOLDER [--platform=gpu] [--rounds=20]

`write` is `estimator-emb run --device=pjrt --tables=device PROGRAM` up to the first step, on CPU
devices. With XLA_FLAGS=--xla_force_host_platform_device_count=N there are N devices. It writes the
step for CPUs, GPUs and TPUs (step.bin), its arguments (arguments.npz), and the variables and tables
that CPUs return (state.npz). The tables have plain rows, as on CPUs and GPUs.

`run` needs jax and NumPy, and as many devices. It prints how far their variables and tables are
from the CPUs', and the time of a step.
"""

import argparse
import os
import pathlib
import sys
import time

import numpy as np


def write(folder: pathlib.Path, program: list[str]) -> None:
    """Runs a program until its first step on devices, and writes that step."""
    from estimator_emb.backends.xla import devices
    from estimator_emb.cli import main as cli

    def launch(step, given, copies, ids=None, launch=devices.DeviceStep.launch):
        if not ids:  # An evaluation or a prediction.
            return launch(step, given, copies, ids)
        folder.mkdir(parents=True, exist_ok=True)
        exported, arguments = step.exported(given, ids)
        launch(step, given, copies, ids)
        (folder / "step.bin").write_bytes(exported)
        np.savez(folder / "arguments.npz", *arguments)
        np.savez(folder / "state.npz", *step.state())
        print(f"{folder}: a step of {len(exported):,} bytes, {len(arguments)} arrays", flush=True)
        os._exit(0)  # Skips the program's other steps.

    devices.DeviceStep.launch = launch
    os.environ["ESTIMATOR_EMB_PJRT_PLATFORM"] = "cpu"
    sys.exit(cli.main(["run", "--device=pjrt", "--tables=device", *program]))


def run(folder: pathlib.Path, platform: str | None, rounds: int) -> None:
    """Runs a step that `write` wrote, and prints its difference from CPUs and its time."""
    import jax
    import jax.export

    if platform == "cpu":  # Otherwise jax looks for a TPU too.
        jax.config.update("jax_platforms", platform)
    jax.config.update("jax_enable_x64", True)
    exported = jax.export.deserialize(bytearray((folder / "step.bin").read_bytes()))
    devices = jax.local_devices(backend=platform)
    if len(devices) < exported.nr_devices:
        sys.exit(f"The step is for {exported.nr_devices} devices; there are {len(devices)}.")
    mesh = jax.sharding.Mesh(np.array(devices[: exported.nr_devices]), ("core",))
    arrays = np.load(folder / "arguments.npz").values()
    placed = list(map(jax.device_put, arrays, exported.in_shardings_jax(mesh)))
    (state, *inputs), _ = jax.tree.unflatten(exported.in_tree, placed)
    step = jax.jit(exported.call, donate_argnums=0)
    state, _ = jax.block_until_ready(step(state, *inputs))
    expected = list(np.load(folder / "state.npz").values())
    furthest = max(
        float(np.max(np.abs(np.float64(got) - want) / np.maximum(np.abs(want), 1), initial=0))
        for got, want in zip(jax.tree.leaves(state), expected, strict=True)
    )
    start = time.perf_counter()
    for _ in range(rounds):
        state, _ = step(state, *inputs)
    jax.block_until_ready(state)
    milliseconds = (time.perf_counter() - start) / rounds * 1e3
    print(
        f"jax {jax.__version__}, {exported.nr_devices} x {devices[0].device_kind} "
        f"({devices[0].platform})\nfurthest from CPUs: {furthest:.1e}\n"
        f"a step: {milliseconds:.2f} ms, of {rounds}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = parser.add_subparsers(dest="command", required=True)
    writes, runs = commands.add_parser("write"), commands.add_parser("run")
    for command in (writes, runs):
        command.add_argument("folder", type=pathlib.Path)
    writes.add_argument("program", nargs=argparse.REMAINDER)
    runs.add_argument("--platform", choices=["cpu", "gpu", "tpu"])
    runs.add_argument("--rounds", type=int, default=20)
    options = parser.parse_args()
    if options.command == "write":
        write(options.folder.resolve(), options.program)
    else:
        run(options.folder, options.platform, options.rounds)


if __name__ == "__main__":
    main()
