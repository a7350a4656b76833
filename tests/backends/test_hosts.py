"""Compares a training on several hosts (processes of this machine) with an emulated TPU.

hosts_program.py has the program and its cases. In "v1", nothing happens but the training.
"""

import collections
import os
import pathlib
import random
import re
import signal
import subprocess
import sys
import textwrap
import time

import emulated_program
import harness
import hosts_program
import numpy as np
import processes
import pytest

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("eight_devices")]
PROGRAM = pathlib.Path(hosts_program.__file__)
STEPS = 6
ENVIRONMENT = {"PYTHONPATH": f"{processes.ROOT}:{PROGRAM.parent}", "XLA_FLAGS": None}


def command(*options, hosts=2, devices=2, program=()):
    return [
        *("cluster", "--device=pjrt", "--tables=device"),
        *(f"--hosts={hosts}", f"--devices={devices}", *options, str(PROGRAM), *program),
    ]


def run(model_dir, case, *options, steps=STEPS, status=0, **sizes):
    """Runs a case of hosts_program on all hosts. Returns its `lines_of`."""
    arguments = command(*options, program=[str(model_dir), case, str(steps)], **sizes)
    done = processes.run_command(*arguments, status=status, **ENVIRONMENT)
    return lines_of(done.stdout + done.stderr)


def lines_of(output):
    """Returns {name of a process: its lines}. The command's own lines have the name ''."""
    found = collections.defaultdict(list)
    for line in output.splitlines():
        name, bar, text = line.partition(" | ")
        if "estimator_emb: Waits for " not in line:  # On a busy machine.
            found[name.strip() if bar else ""].append(text if bar else line)
    return found


def emulated(model_dir, case, cores, *steps):
    """Trains a case of hosts_program until each of `steps` in turn. Returns all checkpoints."""
    made = hosts_program.estimator(model_dir, case, "emulate", cores)
    for last in steps or [STEPS]:
        made.train(hosts_program.input_of(case), max_steps=last)
    return emulated_program.every_checkpoint(model_dir)


def test_four_hosts_begin_and_train_random_rows_like_the_emulated_tpu(tmp_path):
    """The hosts draw a table's rows. `tests/laws` compares programs on two and three hosts."""
    lines = run(tmp_path / "hosts", "random rows", hosts=4, devices=1)
    want = emulated(tmp_path / "emulated", "random rows", 4)
    harness.assert_same(want, emulated_program.every_checkpoint(tmp_path / "hosts"))
    said = "The model runs on 4 PJRT devices (cpu) of 4 hosts."
    assert any(said in line for line in lines["chief"])
    assert not any("estimator_emb: " in line for line in lines["host 1"])
    assert len(list((tmp_path / "hosts").glob("events.*"))) == 1  # Of the chief.
    assert not any("[Gloo]" in line for of_process in lines.values() for line in of_process)


def test_several_hosts_begin_from_a_checkpoint(tmp_path):
    emulated(tmp_path / "model-old", "v1", 4, 2)
    run(tmp_path / "model", "warm", steps=2)  # Warm-starts from model-old.
    old, first = harness.saved(tmp_path / "model-old", 2), harness.saved(tmp_path / "model", 0)
    for name in old.keys() - {"global_step"}:
        if "Ada" not in name:  # Slots begin anew.
            np.testing.assert_array_equal(first[name], old[name])


def test_the_chief_evaluates_predicts_and_exports_for_all(tmp_path):
    # Each host prints the results of train_and_evaluate, evaluate, predict and export_saved_model.
    lines = run(tmp_path / "model", "calls")
    chief, host = (
        [line for line in lines[name] if "estimator_emb" not in line]
        for name in ("chief", "host 1")
    )
    told = "train_and_evaluate ['error', 'global_step', 'loss']"
    assert told in chief and "train_and_evaluate None" in host
    assert "predict 31" in chief and "predict 0" in host  # The chief yields all predictions.
    for begin in ("evaluate ", "export "):
        (one,), (other,) = ([line for line in of if line.startswith(begin)] for of in (chief, host))
        assert one == other
    assert len(list((tmp_path / "model" / "export" / "best_exporter").iterdir())) >= 1
    # train_and_evaluate ends after two loops of steps, and a call of train after STEPS.
    want = emulated(tmp_path / "emulated", "v1", 4, 2 * hosts_program.LOOP, STEPS)
    got = emulated_program.every_checkpoint(tmp_path / "model")
    harness.assert_same({name: want[name] for name in got}, got)


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    # On host 1, the batch of step 4 is bad, the input ends after step 4, or a hook fails after
    # step 2. words: of the error on the chief. last: the step of the last save, of 2, 4 and 6.
    ("case", "words", "last"),
    [
        ("bad id", "host 1 (NAME): InvalidArgumentError: assertion failed: [Feature words of", 2),
        ("nan", "features['ages'] of core 2: nan in sample 0, at [0, 0], and", 2),
        ("hook", "host 1 (NAME): KeyError: 'of a hook'", 2),
        ("ends", "host 1 (NAME): InputEndedError: The input ended after 4 steps.", 4),
    ],
)
def test_all_end_with_the_error_of_a_host(case, words, last, tmp_path):
    lines = run(tmp_path, case, status=1)
    chief = re.sub(r"host 1 \([^)]*\)", "host 1 (NAME)", "\n".join(lines["chief"]))
    assert chief.count(words) == 1, chief
    assert not any(line.startswith(("Traceback", "estimator_emb")) for line in lines["host 1"])
    assert "estimator-emb: host 1 ended with status 1" in "\n".join(lines[""])
    saved = {int(file.stem.rpartition("-")[2]) for file in tmp_path.glob("model.ckpt-*.index")}
    assert max(saved) == last


def test_a_signal_to_one_host_ends_all_after_a_save(tmp_path):
    lines = run(tmp_path, "term", steps=20, status=143)
    (said,) = [line for line in lines["chief"] if "SIGTERM ended the training" in line]
    step = int(re.search(r"at step (\d+)\. The model is saved in", said)[1])
    assert step % hosts_program.LOOP == 0 and (tmp_path / f"model.ckpt-{step}.index").exists()
    want = emulated(tmp_path / "emulated", "v1", 4, step)
    got = emulated_program.every_checkpoint(tmp_path)
    harness.assert_same({name: got[name] for name in want}, want)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("seed", range(20))
def test_all_end_when_a_host_is_killed_and_start_again(seed, tmp_path):
    """The host is killed at a random time. The result equals an undisturbed training's."""
    rng = random.Random(seed)
    host, steps, model_dir = seed % 2, 8, tmp_path / "model"
    arguments = command("--restarts=1", program=[str(model_dir), "slow", str(steps)])
    with open(tmp_path / "output", "w") as output:
        started = subprocess.Popen(
            [sys.executable, "-m", "estimator_emb", *arguments],
            env=processes.users_environment(**ENVIRONMENT),
            stdout=output,
            stderr=subprocess.STDOUT,
        )
        begun = time.monotonic()
        while not (victim := process_of(started.pid, host)):
            assert started.poll() is None
            time.sleep(0.05)
        time.sleep(rng.uniform(0, 20))
        try:
            os.kill(victim, signal.SIGKILL)
        except ProcessLookupError:
            pytest.skip(f"The training ended {time.monotonic() - begun:.0f} s after it began.")
        assert started.wait(processes.HANGS) == 0
    text = (tmp_path / "output").read_text()
    if any("was ended by SIGKILL" in line for line in lines_of(text)[""]):
        name = "host 1" if host else "chief"
        assert f"estimator-emb: {name} was ended by SIGKILL" in text
        assert "All hosts start again, from the last checkpoint; the last restart." in text
    emulated(tmp_path / "emulated", "v1", 4, steps)
    folders = model_dir, tmp_path / "emulated"
    harness.assert_same(*(harness.saved(folder, steps) for folder in folders))


def process_of(launcher, host):
    """Returns the process id of a host that a launcher started, or None if it is not running."""
    for folder in pathlib.Path("/proc").glob("[0-9]*"):
        try:
            parent = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
            variables = (folder / "environ").read_bytes().split(b"\0")
        except (OSError, IndexError):
            continue
        if parent == launcher and f"ESTIMATOR_EMB_HOST={host}".encode() in variables:
            return int(folder.name)
    return None


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    ("case", "options", "phrase"),  # case: what differs on host 1. phrase: of the chief's error.
    [
        ("other step", [], "The step that model_fn makes on host 1 (NAME) is another than on host"),
        ("other folder", [], "model_dir on host 1 (NAME) is another than on host 0 (NAME): give"),
        ("v1", ["--tables=host"], "tables='host' trains the tables on one host, and 2 have joined"),
        ("v1", ["--shards=3"], "num_shards asks for 3 devices, and 2 hosts train on all of theirs"),
        ("leaves", [], "host 1 (NAME) ended the program, and host 0 (NAME) goes on: all hosts"),
        ("leaves early", [], "host 1 ended the program, and host 0 goes on: all hosts must"),
        ("small table", [], "Table 'words' has 1 rows, fewer than the 2 hosts that share it"),
        ("other devices", [], "devices: host 0 (NAME) has 2, host 1 (NAME) has 1. Give each"),
        ("other optimizer", [], "The training of the tables on host 1 (NAME) is another than on"),
        ("saver", [], "The program makes a Saver, and none can save tables that 2 hosts share"),
        ("slots", [], "'tbl_past_words_shared_embedding': slot_variable_creation_fn of Adagrad"),
    ],
)
def test_refuses_hosts_that_differ_and_unsupported_options(case, options, phrase, tmp_path):
    lines = run(tmp_path, case, *options, status=1)
    output = [re.sub(r"(host \d) \([^)]*\)", r"\1 (NAME)", line) for line in lines["chief"]]
    assert any(phrase in line for line in output), "\n".join(output[-20:])
    ends = re.findall(r"(chief|host 1) ended with status 1 after (\d+) s", "\n".join(lines[""]))
    # All hosts fail, about at once, except a host that had left the program.
    assert {name for name, _ in ends} == {"chief", *([] if "leaves" in case else ["host 1"])}
    seconds = [int(after) for _, after in ends]
    assert max(seconds) - min(seconds) < 30
    assert not any("training cannot go on" in line for line in lines[""])


ALONE = """
    import estimator_emb as ee
    from estimator_emb.backends.pjrt import backend
    from estimator_emb.backends.hosts import joining as hosts

    hosts._QUIET_SECONDS, hosts._JOIN_SECONDS = 0.1, 5
    backend.chosen(ee.TPUConfig(device="pjrt"))
"""


@pytest.mark.parametrize(
    ("number", "address", "words"),
    [
        (1, "127.0.0.1:PORT", "host 0 at 127.0.0.1:PORT (Connection refused)"),
        (1, "absent.invalid:PORT", "host 0 at absent.invalid:PORT (Name or service not known)"),
        (0, "localhost:PORT", "the other hosts to reach host 0, this one, at localhost:PORT"),
    ],
)
def test_a_host_that_waits_names_the_address(number, address, words):
    _, _, port = processes.addresses(host=1)["host"][0].partition(":")  # A free port.
    words = words.replace("PORT", port)
    started = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(ALONE)],
        env=processes.users_environment(
            ESTIMATOR_EMB_HOSTS="2",
            ESTIMATOR_EMB_HOST=str(number),
            ESTIMATOR_EMB_COORDINATOR=address.replace("PORT", port),
            JAX_PLATFORMS="cpu",
        ),
        stderr=subprocess.PIPE,
        text=True,
    )
    lines = iter(started.stderr.readline, "")
    assert any(line == f"estimator_emb: Waits for {words}.\n" for line in lines)
    # No other machine reaches the coordinator.
    assert listening(int(port)) == ({LOOPBACK} if number == 0 else set())
    assert list(lines)[-1] == (
        "ValueError: TPUConfig: device='pjrt' cannot take devices: after 5 s, this host still "
        f"waits for {words}\n"
    )
    assert started.wait(processes.HANGS) == 1


LOOPBACK = "0100007F"
"""127.0.0.1 in /proc/net, where it is also the end of an address of IPv6."""


def listening(port):
    """Returns the ends of the addresses on which a process of this machine accepts connections."""
    lines = [line for name in ("tcp", "tcp6") for line in open(f"/proc/net/{name}").readlines()[1:]]
    sockets = [(line.split()[1].rpartition(":"), line.split()[3]) for line in lines]
    return {
        place[-8:] for (place, _, of), state in sockets if int(of, 16) == port and state == "0A"
    }
