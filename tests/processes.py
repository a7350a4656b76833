# SPDX-License-Identifier: Apache-2.0
"""Processes of a program that are the tasks of one cluster, for tests."""

import json
import os
import pathlib
import socket
import subprocess
import sys
import textwrap
import time

HERE = pathlib.Path(__file__).parent


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
