"""estimator-emb cluster starts, shows and ends processes, even if some of them fail.

These programs have a few lines without TensorFlow, except in the last test.
"""

import collections
import contextlib
import json
import os
import pathlib
import pty
import re
import signal
import subprocess
import sys
import textwrap
import time

import harness
import processes
import pytest
from processes import ROOT, SCRIPT

from estimator_emb.catalog import environment
from estimator_emb.cli import main as main_lib
from estimator_emb.cli import screen

START = """
import importlib.util, os, sys
spec = importlib.util.find_spec("estimator_emb")
sys.modules[spec.name] = importlib.util.module_from_spec(spec)
from estimator_emb.cli import cluster
for name in ("_TO_END_BY_ITSELF", "_TO_SAVE", "_BETWEEN_REMINDERS"):
    setattr(cluster, name, float(sys.argv[2]))
cluster._UNTIL_LOST = float(sys.argv[3])
workers, servers, evaluator = map(int, sys.argv[4:7])
status = cluster.start(
    [sys.executable, *sys.argv[7:]], dict(os.environ), workers, servers, bool(evaluator)
)
assert "tensorflow" not in sys.modules
sys.exit(status)
"""
"""Acts as `estimator-emb cluster` with other timeouts, and an empty package without TensorFlow."""

BEGIN = """
import contextlib, json, os, signal, sys, time
config = json.loads(os.environ["TF_CONFIG"])
job, index = config["task"]["type"], config["task"]["index"]

def tell(file):
    with open(file + ".new", "w") as new:
        new.write(str(os.getpid()))
    os.rename(new.name, file)

def wait_for(file):
    while not os.path.exists(file): time.sleep(0.02)

def wait_for_end_of(file):
    wait_for(file)
    with contextlib.suppress(ProcessLookupError):
        while True: os.kill(int(open(file).read()), 0) or time.sleep(0.02)
"""
"""Begins every program. Its processes report their progress to each other by files."""


def start(
    directory, program, workers=2, servers=1, evaluator=False, seconds=600, lost=600, **kwargs
):
    """Starts a cluster.

    Processes that ignore a signal are killed after `seconds`. The chief must end within `lost`
    seconds after a server has failed.
    """
    (directory / "program.py").write_text(BEGIN + textwrap.dedent(program))
    numbers = [seconds, lost, workers, servers, int(evaluator)]
    arguments = [sys.executable, "-c", START, SCRIPT, *numbers, "-S", "program.py", "--flag=1"]
    return subprocess.Popen(
        list(map(str, arguments)),
        cwd=directory,
        preexec_fn=processes.default_signals,
        **{"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **kwargs},
    )


def run(directory, program, **kwargs):
    """Returns the status, and the lines of stdout and stderr."""
    process = start(directory, program, **kwargs)
    try:
        output, errors = process.communicate(timeout=processes.HANGS)
    finally:
        process.kill()
    return process.returncode, *(text.decode().splitlines() for text in (output, errors))


def of_command(lines):
    """Returns the lines of the command itself, not of its processes."""
    return [line.removeprefix("estimator-emb: ") for line in lines if line.startswith("estimator")]


def timeless(line):
    return re.sub(r"after \d+ s", "after N s", line)


def is_running(pid):
    """Returns whether a process runs. Zombies do not."""
    with contextlib.suppress(FileNotFoundError):
        return pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    return False


def test_each_process_has_its_task_and_prefixed_lines(tmp_path):
    """Lets gRPC reach the other processes, which are on this machine, without a proxy."""
    status, output, errors = run(
        tmp_path,
        """
        print(json.dumps(config), sys.argv, sys.stdin.read() == "")
        print("äé", file=sys.stderr)
        print("no proxy:", os.environ["no_grpc_proxy"])
        """,
        workers=3,
        servers=2,
        evaluator=True,
        env={**os.environ, "no_proxy": "example.org"},
    )
    assert status == 0
    names = ["chief", "worker 0", "worker 1", "ps 0", "ps 1", "evaluator"]
    said = [*(f"{name:<9} | äé" for name in names), "estimator-emb: chief is done after N s."]
    assert sorted(map(timeless, errors)) == sorted(said)
    addresses = set()
    for name in names:
        prefix = f"{name:<9} | "
        task, proxy = (line[len(prefix) :] for line in output if line.startswith(prefix))
        assert proxy == "no proxy: example.org,localhost"
        config, end = json.JSONDecoder().raw_decode(task)
        assert task[end:] == " ['program.py', '--flag=1'] True"
        job, _, index = name.partition(" ")
        assert config["task"] == {"type": job, "index": int(index or 0)}
        counts = {job: len(of_job) for job, of_job in config["cluster"].items()}
        assert counts == {"chief": 1, "worker": 2, "ps": 2}  # The chief is one of 3 workers.
        addresses.update(*config["cluster"].values())
    # The evaluator has no address.
    assert len(addresses) == 5 and all(re.fullmatch(r"localhost:\d+", one) for one in addresses)


def test_long_undecodable_and_partial_lines_are_shown():
    """Shows a line beyond 1 MiB in pieces. Other bytes wait for the end of their line."""
    lines = screen.Lines("chief | ", collections.deque())
    long = b"a" * 3_000_000
    parts = [long, b"\n\xff\xfe\n\n", b"no ", b"end", b""]
    shown = b"".join(map(lines.feed, parts)).split(b"\n")
    prefix = b"chief | "
    assert shown[-4:] == [prefix + b"\xff\xfe", prefix, prefix + b"no end", b""]
    assert all(line.startswith(prefix) for line in shown[:-4]) and len(shown[:-4]) == 3
    assert b"".join(line[len(prefix) :] for line in shown[:-4]) == long


@pytest.mark.parametrize("size", [1, 7, 1000])
def test_repeated_lines_are_counted(size):
    """Lines that differ only in their times are repeated lines. The chunks may have any size."""
    text = (
        "a\na\na\n\n\n"
        "W1127 02:54:18.123456   21926 a.py:1] b\nW1127 02:54:19.5   21926 a.py:1] b\n"
        "2026-11-27 02:54:18,123 c\n2026-11-27 02:54:18,200 c\n"
        "step 1 of 2\nstep 2 of 2\n" + 1234 * "d\n" + "d"
    ).encode()
    last = collections.deque(maxlen=3)  # The lines that are shown again if the process fails.
    lines = screen.Lines("ps 0 | ", last)
    parts = [text[start : start + size] for start in range(0, len(text), size)]
    shown = b"".join(lines.feed(part) for part in [*parts, b"", b""])
    times = "W1127 02:54:18.123456   21926 a.py:1] b", "2026-11-27 02:54:18,123 c"
    again = "(the same line 1 time more)"
    assert shown.decode().replace("ps 0 | ", "").splitlines() == [
        *("a", "(the same line 2 times more)", "", "", times[0], again, times[1], again),
        *("step 1 of 2", "step 2 of 2", "d", "(the same line 1,234 times more)"),
    ]
    assert shown.count(b"ps 0 | ") == 12  # Each line above has the prefix.
    assert [*last] == [b"step 2 of 2", b"d", b"(the same line 1,234 times more)"]


ENDS = {
    "the chief fails": (
        {},
        """
        print("begins", flush=True)
        if job == "chief":
            for number in range(12): print("line", number)
            sys.exit(7)
        time.sleep(10_000)
        """,
        7,
    ),
    "workers die": (
        {"workers": 3},
        """
        if job == "worker":
            print("the last words", flush=True)
            tell(f"worker{index}")
            os.kill(os.getpid(), signal.SIGSEGV if index else signal.SIGKILL)
        if job == "chief": wait_for_end_of("worker0"), wait_for_end_of("worker1")
        """,
        1,  # The chief's status is 0: it trains on without workers, to the end.
    ),
    "a server dies": (
        {"servers": 2, "lost": 0},
        """
        if job == "ps" and index == 1: wait_for("trains") or sys.exit(3)
        if job == "chief":
            signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
            tell("trains")
        time.sleep(10_000)
        """,
        1,  # The chief's status is 0, which would mean success.
    ),
    "the evaluator fails": (
        {"evaluator": True},
        """
        if job == "evaluator": tell("evaluates") or sys.exit(3)
        if job == "chief": wait_for_end_of("evaluates")
        """,
        1,  # Training is complete, but evaluations are missing.
    ),
    "the chief is done": (
        {"evaluator": True, "seconds": 5},
        """
        def say(text):
            print(text, file=sys.stderr, flush=True)

        if job == "worker":
            signal.signal(signal.SIGTERM, lambda *_: say("told to end, and ignores it"))
        if job in ("worker", "ps"):
            tell(job)
            while True: time.sleep(1)
        for other in ("worker", "ps"):
            wait_for(other) if job == "chief" else wait_for_end_of(other)
        if job == "evaluator": say("evaluated")
        """,
        0,
    ),
    "a server fails at its end": (
        {},
        """
        if job == "ps": tell("server") or sys.exit(3)
        if job == "chief": wait_for_end_of("server")
        """,
        0,  # The chief trained to its end, so it did not need the server any more.
    ),
}
"""What happens to processes -> (arguments of `start`, program, status of the command)."""


@pytest.mark.fast(1)
@pytest.mark.parametrize("what", ENDS)
def test_ends_of_processes_end_the_cluster_if_needed(what, tmp_path, assert_recorded):
    numbers, program, expected = ENDS[what]
    status, _, errors = run(tmp_path, program, **numbers)
    assert status == expected
    lines = [*map(timeless, errors)]
    # Lines of several processes have no fixed order, and reminders no fixed number. The table
    # tests/messages.json has the lines of each case: who ended how, and what follows from it.
    reminders = {line for line in lines if "still runs" in line}
    once = sorted([*(one for one in lines if one not in reminders), *reminders])
    assert_recorded("\n".join(once))


HANGS = """
import subprocess
def end(number, frame):
    print("saves", signal.Signals(number).name, flush=True)
    time.sleep(0.5 if job == "chief" else 0)
    print("saved", flush=True)
    sys.exit(128 + number)
for one in (signal.SIGINT, signal.SIGTERM):
    signal.signal(one, signal.SIG_IGN if os.environ.get("IGNORES") else end)
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(10_000)"])
with open(f"pids.{job}{index}", "w") as file:
    print(os.getpid(), child.pid, file=file)
os.rename(file.name, file.name.replace("pids.", "started."))
time.sleep(10_000)
"""


@pytest.fixture
def hanging(tmp_path):
    """Returns a function that starts a cluster of processes with a child each. All must end."""
    pids = []

    def started(**kwargs):
        process = start(tmp_path, HANGS, evaluator=True, **kwargs)
        processes.until(lambda: len(list(tmp_path.glob("started.*"))) == 4 or process.poll())
        for file in tmp_path.glob("started.*"):
            pids.extend(map(int, file.read_text().split()))
        assert len(pids) == 8 and all(map(is_running, pids))
        return process

    yield started
    processes.until(lambda: not any(map(is_running, pids)))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("number", "sent"),  # The signal to the command, and the one that its processes get.
    [(signal.SIGINT, "SIGINT"), (signal.SIGTERM, "SIGTERM"), (signal.SIGHUP, "SIGTERM")],
)
def test_a_signal_ends_all_and_the_servers_last(number, sent, hanging):
    process = hanging()
    process.send_signal(number)
    output, errors = process.communicate(timeout=processes.HANGS)
    lines = output.decode().splitlines()
    assert process.returncode == 128 + signal.Signals[sent]
    for name in ("chief", "worker 0", "evaluator"):
        assert lines.index(f"{name:<9} | saves {sent}") < lines.index(f"{name:<9} | saved")
    # A server is needed until the chief has saved.
    assert lines.index("ps 0      | saves SIGTERM") > lines.index("chief     | saved")
    assert of_command(errors.decode().splitlines()) == [
        f"{number.name}: the chief saves the model, and all processes end, in 600 s at most. "
        "Another signal ends them at once."
    ]


@pytest.mark.slow
@pytest.mark.parametrize("seconds, again", [(600, True), (1, False)])  # again: a second signal.
def test_processes_that_ignore_a_signal_are_killed_later(seconds, again, hanging):
    process = hanging(seconds=seconds, env={**os.environ, "IGNORES": "1"})
    process.send_signal(signal.SIGINT)
    if again:
        time.sleep(1.2)  # The command takes signals within a second for a single one.
        assert process.poll() is None
    while again and process.poll() is None:  # A busy machine may merge two signals into one.
        process.send_signal(signal.SIGINT)
        time.sleep(1.2)
    _, errors = process.communicate(timeout=processes.HANGS)
    assert process.returncode == 128 + signal.SIGKILL
    said = of_command(errors.decode().splitlines())[1:]  # After the line about the first signal.
    assert ("SIGINT again: all processes are killed." in said) == again


def test_no_process_outlives_a_killed_command(hanging):
    process = hanging()
    process.kill()
    process.wait()  # Afterwards the fixture `hanging` fails unless all processes end.


def test_closing_stdout_ends_the_cluster(tmp_path):
    """As with `estimator-emb cluster ... | head -1`: all processes end in order."""
    process = start(
        tmp_path,
        """
        if job == "chief":
            signal.signal(signal.SIGTERM, lambda *_: sys.exit(5))
        while True:
            print(time.time(), flush=True)  # Equal lines are counted, and not written.
            time.sleep(0.01)
        """,
        stderr=subprocess.DEVNULL,
    )
    lines = iter(process.stdout.readline, b"")
    assert any(line.startswith(b"chief") for line in lines)
    process.stdout.close()
    assert process.wait(processes.HANGS) == 5  # The status of the chief, so it got SIGTERM.


def test_the_state_of_each_process_is_shown_on_a_terminal(tmp_path):
    """Shows a process's last line in its state, without log prefix, colours and control bytes."""
    shown, terminal = pty.openpty()
    process = start(
        tmp_path,
        r"""
        print("I1122 15:50:10.000001 1234 place.py:1] \x1b[31mred\x07 " + 300 * "x")
        if job == "chief": wait_for("seen")
        sys.exit(4 if job == "worker" else 0)
        """,
        stderr=terminal,
        env={**os.environ, "TERM": "xterm", "COLUMNS": "60", "LINES": "24"},
    )
    os.close(terminal)
    written = b""
    with contextlib.suppress(OSError):  # Raised when the terminal closes.
        while data := os.read(shown, 4096):
            written += data
            if re.search(rb"worker 0   \d+:\d\d ended with status 4  ", written):
                (tmp_path / "seen").touch()
    output, _ = process.communicate(timeout=processes.HANGS)
    assert process.returncode == 1
    assert len(output.splitlines()) == 3 and b"\x1b[31mred\x07" in output
    screens = written.decode().replace("\r\n", "\n").split("\x1b[3A\x1b[J")  # Cursor up 3 lines.
    lines = screens[-1].splitlines()[-3:]
    assert all(len(line) == 59 for line in lines) and len(lines) == 3  # COLUMNS - 1.
    assert re.match(r"chief      \d+:\d\d ended with status 0  red xxx", lines[0])
    assert re.match(r"worker 0   \d+:\d\d ended with status 4  red xxx", lines[1])
    assert re.match(r"ps 0       \d+:\d\d ended with status 0  red xxx", lines[2])
    assert any(re.search(r"^chief      \d+:\d\d runs  ", screen) for screen in screens)


def test_each_process_runs_the_program_with_the_options_of_the_cluster(monkeypatch, tmp_path):
    """Keeps the options of `cluster`, and gives those of `run` to the process of each task."""
    calls = []
    monkeypatch.setattr("estimator_emb.cli.cluster.start", lambda *args: calls.append(args) or 0)
    monkeypatch.delenv(environment.WAIT_LIMIT.name, raising=False)

    def command(*arguments):
        monkeypatch.setattr(sys, "argv", ["estimator-emb", *arguments])
        monkeypatch.setattr(sys, "orig_argv", ["python", "-X", "dev", "estimator-emb", *arguments])
        main_lib.main()
        return calls.pop()

    for name in ("program.py", "module.py"):
        (tmp_path / name).write_text("")
    monkeypatch.chdir(tmp_path)
    started, variables, *counts = command(
        *("cluster", "--workers=3", "--ps", "2", "--evaluator", "--wait-limit=90", "--tf-v1"),
        *("--device=emulate", "--steps-limit=5", "program.py", "--ps=7", "--", "x"),
    )
    assert counts == [3, 2, True]  # Workers, parameter servers and the evaluator.
    assert started == [
        *(sys.executable, "-X", "dev", "estimator-emb", "run", "--device=emulate"),
        *("--steps-limit=5", "--tf-v1", "program.py", "--ps=7", "--", "x"),
    ]
    assert variables == {**os.environ, environment.WAIT_LIMIT.name: "90"}
    started, variables, *counts = command("cluster", "--table-summaries", "-m", "module", "--tf-v1")
    assert counts == [1, 1, False]
    assert started[4:] == ["run", "--table-summaries", "-m", "module", "--tf-v1"]
    assert variables == dict(os.environ)


@pytest.mark.slow
def test_the_example_trains_as_a_cluster_and_ends(tmp_path):
    example = str(ROOT / "examples" / "legacy_cluster.py")
    (tmp_path / "soon.py").write_text(
        # join_soon: each worker looks every second, not every 30, whether the chief has begun.
        "import processes, runpy\nprocesses.join_soon()\n"
        f"runpy.run_path({example!r}, run_name='__main__')"
    )
    done = processes.run_python(
        *(SCRIPT, "cluster", "--workers=2", "--ps=2", "--evaluator", tmp_path / "soon.py"),
        *(f"--model_dir={tmp_path}", "--train_steps=400", "--save_checkpoints_steps=200"),
        status=0,
        PYTHONPATH=f"{ROOT}:{ROOT / 'tests' / 'lib'}",
    )
    (said,) = of_command(done.stderr.splitlines())  # No process died.
    assert timeless(said) == "chief is done after N s."
    for server in ("ps 0", "ps 1"):
        assert re.search(f"{server}  .*: this parameter server ends.", done.stderr)
    assert "over 2 parameter servers: 2 tables, 1,300 rows" in done.stderr  # 500 users, 800 items.
    step = harness.last_step(tmp_path)
    assert step >= 400
    # A worker may take one more step after the chief is done.
    assert 400 <= max(harness.summaries(tmp_path / "eval")) <= step
