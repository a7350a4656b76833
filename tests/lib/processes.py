"""Starts processes for tests: programs, the command, and tasks of a cluster."""

import functools
import importlib.util
import json
import os
import pathlib
import signal
import socket
import subprocess
import sys
import textwrap
import time

import pytest

ROOT = pathlib.Path(__file__).parents[2]
SCRIPT = ROOT / "estimator_emb" / "cli" / "bin" / "estimator-emb"
"""The command as a file. It starts without TensorFlow."""

HANGS = 600
"""Timeout in seconds, long enough for a slow and busy machine."""

TO_END = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
"""The signals by which people end a program."""


def data(name):
    """Returns the content of a JSON file of tests/data."""
    return json.loads((ROOT / "tests" / "data" / name).read_text())


def module_of(path):
    """Returns the module of a file that is in no package, such as a script of CI."""
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def environment(**more):
    """Returns the environment of a process that can import all that this process can."""
    return {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path)), **more}


def default_signals():
    """Restores default handlers in a new process, as its `preexec_fn`.

    A background job, such as a job of .ci/run, ignores SIGINT. Under nohup, it ignores SIGHUP.
    """
    for number in TO_END:
        signal.signal(number, signal.SIG_DFL)


def ended(command, status, cwd, timeout, env, given=None):
    """Runs a command to its end, with `given` as its input. `status` None accepts any status."""
    command, texts = list(map(str, command)), {"capture_output": True, "text": True}
    done = subprocess.run(command, cwd=cwd, env=env, timeout=timeout, input=given, **texts)
    assert status in (None, done.returncode), done.stdout + done.stderr[-4000:]
    return done


def run(program, *arguments, status=0, cwd=None, timeout=HANGS, **more):
    """Runs Python code in a process that can import all that this process can."""
    command = [sys.executable, "-c", textwrap.dedent(program), *arguments]
    return ended(command, status, cwd, timeout, environment(**more))


def users_environment(**more):
    """Returns the environment of a user who set no options of this package. None unsets."""
    # Importing the package sets the last two.
    own = ("ESTIMATOR_EMB_", "TF_USE_LEGACY_KERAS", "TF_TPU_GRACEFUL_SHUTDOWN_MODE")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(own)}
    kept |= {"PYTHONPATH": str(ROOT), "TF_CPP_MIN_LOG_LEVEL": "3", **more}
    return {name: value for name, value in kept.items() if value is not None}


def run_python(
    *arguments, python=sys.executable, cwd=None, timeout=HANGS, status=None, given=None, **more
):
    """Runs Python to its end in a user's environment. Checks the exit status unless it is None."""
    return ended([python, *arguments], status, cwd, timeout, users_environment(**more), given)


def run_command(*arguments, cwd=None, **more):
    """Runs `estimator-emb` in a user's environment."""
    return run_python("-m", "estimator_emb", *arguments, cwd=cwd, **more)


def stock_python():
    """Returns a Python with stock tensorflow-estimator and TensorFlow 2.15.1, or skips.

    On TensorFlow 2.15, the default is this Python.
    """
    import tensorflow as tf

    named = os.environ.get("ESTIMATOR_EMB_STOCK_PYTHON")
    if not named and not tf.__version__.startswith("2.15."):
        pytest.skip("ESTIMATOR_EMB_STOCK_PYTHON names no Python with TensorFlow 2.15.1")
    return named or sys.executable


def run_side(side, *arguments, timeout=None, **more):
    """Runs Python: "ours" with this package, "stock" with stock Python and without this package.

    Stock can import the files of tests/lib that use nothing of this package.
    """
    lib = ROOT / "tests" / "lib"
    python, path = (sys.executable, ROOT) if side == "ours" else (stock_python(), lib)
    return run_python(*arguments, python=python, timeout=timeout, PYTHONPATH=str(path), **more)


_reserved = []
"""Sockets that reserve ports. Only TensorFlow's servers can share them."""


def addresses(**jobs):
    """Returns {job: addresses} for a number of tasks per job, with ports reserved for them."""
    os.environ["TF_GRPC_REUSE_PORT"] = "1"

    def reserve():
        kept = socket.socket()
        kept.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        kept.bind(("127.0.0.1", 0))
        _reserved.append(kept)
        return f"localhost:{kept.getsockname()[1]}"

    return {job: [reserve() for _ in range(count)] for job, count in jobs.items()}


def join_soon(seconds=1):
    """Makes workers check every `seconds`, not every 30, whether the chief has begun."""
    from tensorflow.compat.v1.train import SessionManager

    init = functools.partialmethod(SessionManager.__init__, recovery_wait_secs=seconds)
    SessionManager.__init__ = init


def until(condition, pause=0.02, said=str):
    """Waits until a condition is true. On timeout, fails with the text that `said` returns."""
    deadline = time.monotonic() + HANGS
    while not condition():
        assert time.monotonic() < deadline, said()
        time.sleep(pause)


class Processes:
    """Starts processes of a program, each a task of one cluster. Ends them on leaving the context.

    Args:
      directory: for their logs.
      program: Python code, which prints "goes on" at its end.
      arguments: of the program.
      jobs: number of tasks of each job of the cluster.
    """

    def __init__(self, directory, program, arguments, jobs):
        self.directory = directory
        self.arguments = arguments
        self.cluster = addresses(**jobs)
        self.started = []
        self._program = textwrap.dedent(program)

    def __enter__(self):
        return self

    def __exit__(self, *exception):
        for process in self.started:
            process.kill()
            process.wait()

    def start(self, job, index=0, **more):
        task = {"cluster": self.cluster, "task": {"type": job, "index": index}}
        log = self.directory / f"{job}{index}.{len(self.started)}.log"
        own = environment(TF_CONFIG=json.dumps(task), **more)
        command = [sys.executable, "-c", self._program, *self.arguments]
        to_log = {"stdout": log.open("w"), "stderr": subprocess.STDOUT}
        process = subprocess.Popen(command, env=own, **to_log)
        process.log, process.job = log, job
        self.started.append(process)
        return process

    def until(self, condition):
        until(condition, pause=0.3, said=self.logs)

    def ended(self, *processes, status=0):
        """Waits until the processes end, and checks their status."""
        for process in processes:
            self.until(lambda process=process: process.poll() is not None)
            assert process.returncode == status, self.logs()
            goes_on = status == 0 and process.job != "ps"  # A server exits in train_and_evaluate.
            assert ("goes on" in process.log.read_text()) == goes_on, self.logs()

    def logs(self):
        """Returns the ends of all logs."""
        return "\n".join(
            f"== {one.log.name}\n{one.log.read_text()[-2000:]}" for one in self.started
        )
