"""TensorFlow's start-up messages are left out. All other output is shown, in order.

If the reader of stdout closes it, the command ends with the status of SIGPIPE, and no traceback.
"""

import os
import re
import signal
import subprocess
import sys

import processes
import pytest
import saved_values

from estimator_emb.cli import quiet_start

LEFT_OUT = """\
WARNING: All log messages before absl::InitializeLog() is called are written to STDERR
I0000 00:00:1795607946.198894   18651 port.cc:153] oneDNN custom operations are on.
E0000 00:00:1795607949.813078   18651 cuda_platform.cc:52] failed call to cuInit: INTERNAL: (303)
=== Source Location Trace: ===\x20
external/xla/xla/stream_executor/cuda/cuda_status.cc:50

2026-11-25 11:59:27.203546: E external/cuda/cuda_dnn.cc:9261] Unable to register cuDNN factory: x
2026-11-25 12:12:55.948476: I external/local_tsl/tsl/cuda/cudart_stub.cc:31] Could not find cuda
2026-11-25 12:12:57.043061: W tensorflow/compiler/py_utils.cc:38] TF-TRT Warning: no TensorRT
"""
KEPT = """\
E0000 00:00:1795607949.813078   18651 cuda_driver.cc:52] failed to allocate 2 GB
=== Source Location Trace: ===
external/xla/xla/stream_executor/cuda/cuda_status.cc:50

2026-11-25 11:59:27.203546: F tensorflow/core/platform/x.cc:1] Check failed: ok
Traceback (most recent call last):
I am no line of a log: port.cc:153] oneDNN
"""
# Shows what a command's start hides of its input, which the program writes to stderr.
CODE = """
import os, runpy, sys
path, how = sys.argv[1:]
lib = runpy.run_path(path)
print("before", file=sys.stderr)
with lib["quiet"]():
    for line in sys.stdin:
        os.write(2, line.encode())
    print("inside", file=sys.stderr)
    sys.stderr.write("no end of line")
    sys.stderr.flush()
    if how == "abort":
        os.abort()
    if how == "raise":
        raise ImportError("its own error")
print("|after", file=sys.stderr)
"""


def run(how, **more):
    """Runs CODE. Its input begins with an empty line, which belongs to no trace."""
    code, level = ("-c", CODE, quiet_start.__file__, how), {quiet_start.LEVEL: None, **more}
    return processes.run_python(*code, given=f"\n{LEFT_OUT}{KEPT}", **level)


@pytest.mark.parametrize(
    "how, more, status",
    [
        ("end", "|after\n", 0),
        ("abort", "", -signal.SIGABRT),
        ("raise", "Traceback (most recent call last):\nImportError: its own error\n", 1),
    ],
)
def test_hides_known_lines_and_shows_others_even_after_a_crash_or_an_exception(how, more, status):
    done = run(how)
    without_calls = re.sub("(Traceback.*\n)(  .*\n)+", r"\1", done.stderr)
    assert without_calls == f"before\n\n{KEPT}inside\nno end of line{more}"
    assert done.returncode == status


@pytest.mark.parametrize("level, more", [("0", LEFT_OUT), ("1", LEFT_OUT), ("3", "")])
def test_hides_nothing_if_the_user_asks_for_more_lines(level, more):
    """Level 3 asks for fewer lines."""
    done = run("end", TF_CPP_MIN_LOG_LEVEL=level)
    assert done.stderr == f"before\n\n{more}{KEPT}inside\nno end of line|after\n"


def test_works_with_a_closed_stderr():
    quiet = f"runpy.run_path({quiet_start.__file__!r})['quiet']()"
    code = f"import os, runpy\nos.close(2)\nwith {quiet}:\n  print('fine')"
    assert processes.run_python("-c", code, status=0).stdout == "fine\n"


@pytest.mark.parametrize(
    "command",
    [
        [processes.SCRIPT, "--help"],
        [processes.SCRIPT, "run", "--help"],
        pytest.param(["-m", "estimator_emb", "inspect", saved_values.MOD], marks=pytest.mark.slow),
    ],
)
def test_a_closed_pipe_ends_a_command_without_a_traceback(command):
    """The reader closes before the command has written a line, as `head` may."""
    reading, writing = os.pipe()
    os.close(reading)
    pipes = {"stdout": writing, "stderr": subprocess.PIPE}
    buffered = processes.users_environment(PYTHONUNBUFFERED="")
    done = subprocess.run([sys.executable, *command], env=buffered, **pipes)
    os.close(writing)
    assert not re.search(b"Traceback|Broken", done.stderr)
    assert done.returncode == 128 + signal.SIGPIPE
