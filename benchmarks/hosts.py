"""Compares the bytes that several hosts send in a step with the formula of docs/pjrt.md.

    python benchmarks/hosts.py [--hosts 2 4] [--batch=512] [--steps=20]

It trains `dlrm.py` on hosts that are processes of this machine, each with a single CPU device. It
counts the bytes of the loopback interface, so no other program should use it. It needs Linux.
"""

import argparse
import json
import os
import pathlib
import subprocess
import sys
import tempfile

TABLES, DIMENSION = 26, 16
WARM_UP = 10


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--hosts", type=int, nargs="+", default=[2, 4])
    parser.add_argument("--batch", type=int, default=512)
    parser.add_argument("--steps", type=int, default=20)
    options = parser.parse_args()
    print(f"{'hosts':>5} {'MB sent by a host in a step':>28} {'by the model':>13}")
    for hosts in options.hosts:
        measured, parameters = run(hosts, options.batch, options.steps)
        expected = sent(hosts, options.batch, parameters)
        print(f"{hosts:>5} {measured / 1e6:>28.3f} {expected / 1e6:>13.3f}", flush=True)


def sent(hosts, batch, parameters):
    """Returns the number of bytes that a host sends in a step, by the formula of docs/pjrt.md."""
    ids = 4 * batch * TABLES
    activations = 4 * batch * TABLES * DIMENSION
    return (hosts - 1) / hosts * (ids + 2 * activations + 2 * 4 * parameters)


def run(hosts, batch, steps):
    """Returns the measured bytes that a host sends in a step, and the count of dense parameters."""
    with tempfile.TemporaryDirectory(prefix="hosts") as folder:
        command = [sys.executable, "-m", "estimator_emb", "cluster", "--device=pjrt"]
        command += ["--tables=device", f"--hosts={hosts}", "--devices=1", __file__]
        variables = {**os.environ, "HOSTS_TASK": json.dumps([folder, batch, steps])}
        subprocess.run(command, env=variables, check=True, stdout=subprocess.DEVNULL)
        found = json.loads((pathlib.Path(folder) / "bytes").read_text())
    return found["bytes"] / steps / hosts, found["parameters"]


def task(folder, batch, steps):
    import dlrm
    import tensorflow as tf

    class Counts(tf.compat.v1.train.SessionRunHook):
        """Counts the bytes that pass the loopback interface in `steps` steps after the warm-up."""

        def begin(self):
            self._step = 0
            dense = [one for one in tf.compat.v1.trainable_variables() if one.name[0] != "c"]
            self._parameters = sum(one.shape.num_elements() for one in dense)

        def after_run(self, run_context, run_values):
            self._step += 1
            if self._step == WARM_UP:
                self._before = loopback_bytes()
            elif self._step == WARM_UP + steps and os.environ["ESTIMATOR_EMB_HOST"] == "0":
                passed = loopback_bytes() - self._before
                found = {"bytes": passed, "parameters": self._parameters}
                pathlib.Path(folder, "bytes").write_text(json.dumps(found))

    estimator = dlrm.ours(f"{folder}/model", batch, device="pjrt", tables="device", cores=None)
    estimator.train(dlrm.input_fn, hooks=[Counts()], max_steps=WARM_UP + steps + 1)


def loopback_bytes():
    """Returns the number of bytes that the loopback interface has received."""
    (line,) = [
        line for line in pathlib.Path("/proc/net/dev").read_text().splitlines() if "lo:" in line
    ]
    return int(line.split(":")[1].split()[0])


if __name__ == "__main__":
    given = os.environ.get("HOSTS_TASK")
    task(*json.loads(given)) if given else main()
