# SPDX-License-Identifier: Apache-2.0
"""Processes for tests: of the command, of Python, and of a program on a cluster."""

import json
import os
import pathlib
import socket
import subprocess
import sys
import textwrap
import time

HERE = pathlib.Path(__file__).parent
ROOT = HERE.parent


def environment(**changes):
    """The environment of a user who has this package and has set nothing of it."""
    own = ("ESTIMATOR_EMB_", "TF_USE_LEGACY_KERAS")  # The latter is set by an import.
    kept = {name: value for name, value in os.environ.items() if not name.startswith(own)}
    return {**kept, "PYTHONPATH": str(ROOT), "TF_CPP_MIN_LOG_LEVEL": "3", **changes}


def run_python(*arguments, cwd=None, **changes):
    """Runs Python to its end, with changes of that environment; the ended process."""
    return subprocess.run(
        [sys.executable, *map(str, arguments)],
        cwd=cwd,
        env=environment(**changes),
        capture_output=True,
        text=True,
        timeout=300,
    )


def run_command(*arguments, cwd=None, **changes):
    """Runs `estimator-emb`, likewise."""
    return run_python("-m", "estimator_emb", *arguments, cwd=cwd, **changes)


def addresses(**jobs):
    """Returns {job: free addresses} for a number of tasks of each job."""
    sockets = {
        job: [socket.create_server(("localhost", 0)) for _ in range(n)] for job, n in jobs.items()
    }
    found = {
        job: [f"localhost:{one.getsockname()[1]}" for one in of_job]
        for job, of_job in sockets.items()
    }
    for of_job in sockets.values():
        for one in of_job:
            one.close()
    return found


class Processes:
    """Starts processes of a program, each a task of one cluster. As a context, it ends them all.

    Args:
      directory: for their logs.
      program: Python code. At its end it prints "goes on".
      arguments: of the program.
      jobs: how many tasks each job of the cluster has.
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

    def start(self, job, index=0, **environment):
        task = {"cluster": self.cluster, "task": {"type": job, "index": index}}
        log = self.directory / f"{job}{index}.{len(self.started)}.log"
        process = subprocess.Popen(
            [sys.executable, "-c", self._program, *self.arguments],
            env={
                **os.environ,
                "PYTHONPATH": os.pathsep.join([str(HERE.parent), str(HERE)]),
                "TF_CONFIG": json.dumps(task),
                **environment,
            },
            stdout=log.open("w"),
            stderr=subprocess.STDOUT,
        )
        process.log = log
        self.started.append(process)
        return process

    def until(self, condition, seconds=150):
        """Waits until a condition is true."""
        deadline = time.monotonic() + seconds
        while not condition():
            assert time.monotonic() < deadline, self.logs()
            time.sleep(0.3)

    def ended(self, *processes, status=0):
        """Waits for the end of processes, each with a status."""
        for process in processes:
            self.until(lambda process=process: process.poll() is not None)
            assert process.returncode == status, self.logs()
            assert ("goes on" in process.log.read_text()) == (status == 0), self.logs()

    def logs(self):
        """Returns the ends of all logs."""
        return "\n".join(
            f"== {one.log.name}\n{one.log.read_text()[-2000:]}" for one in self.started
        )
