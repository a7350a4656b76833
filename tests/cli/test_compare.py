"""estimator-emb compare: its arguments, finished runs, and programs.

The slow tests run `compared_program.py`, with flags that add errors.
"""

import contextlib
import os
import pathlib
import subprocess
import sys

import harness
import numpy as np
import processes
import pytest
import saved_values
import tensorflow as tf

from estimator_emb.cli import compare as compare_lib
from estimator_emb.cli import main as main_lib
from estimator_emb.cli import parsing
from estimator_emb.cli.comparison import CannotCompare, side_processes

WITHIN = "within rtol 0.0001 and atol 1e-05"
PROGRAM = pathlib.Path(__file__).with_name("compared_program.py")

# ---- Arguments --------------------------------------------------------------------------------


@pytest.fixture
def script(tmp_path):
    path = tmp_path / "program.py"
    path.write_text("print('ran')")
    return str(path)


def sides_of(*args):
    return compare_lib.sides(main_lib.parser_of("compare").parse(args))


def test_side_settings_are_options_and_environment(script, tmp_path):
    other = tmp_path / "other.py"
    other.write_text("")
    a, b = sides_of(
        "--a=--shards=1 --device host",
        "--b=ESTIMATOR_EMB_NATIVE=0 --shards=8 NOTE='two words'",
        f"--b-python={sys.executable}",
        f"--b-program={other}",
        "--b-flags=--rate=0.5 --name='a b'",
        "--tf-v1",
        script,
        "--rate=0.1",
        "--a={out}, the program's own",
    )
    given = {"steps_limit": None, "seed": None, "binds_tf_v1": True}
    assert a.launch == b.launch == given
    host = {"ESTIMATOR_EMB_DEVICE": "emulate", "ESTIMATOR_EMB_TOPOLOGY": ""}
    assert a.environment == {**host, "ESTIMATOR_EMB_SHARDS": "1"}
    assert a.program == (script, "--rate=0.1", "--a={out}, the program's own") and a.python is None
    own = {"ESTIMATOR_EMB_NATIVE": "0", "NOTE": "two words"}
    assert b.environment == {**host, **own, "ESTIMATOR_EMB_SHARDS": "8"}
    assert b.program[1:] == (*a.program[1:], "--rate=0.5", "--name=a b")
    assert b.program[0] == str(other) and b.python == sys.executable
    assert not a.stock and not b.stock


def test_stock_side_accepts_only_environment(script):
    a, b = sides_of("--a=stock OMP_NUM_THREADS=1", "--b", "", script, "{out}")
    assert a.stock and a.environment == {"OMP_NUM_THREADS": "1"} and not b.stock


def test_parses_a_module_and_finished_runs(tmp_path):
    a, _ = sides_of("-m", "package.program", "--steps=3", "{out}")
    assert a.program == ("-m", "package.program", "--steps=3", "{out}")
    (tmp_path / "model.ckpt-1.index").write_text("")
    a, b = sides_of(f"--a-model-dir={tmp_path}", f"--b-model-dir={tmp_path}", "--rtol=0")
    assert (a.model_dir, b.model_dir) == (str(tmp_path), str(tmp_path))


def test_a_cluster_is_refused(script, monkeypatch):
    monkeypatch.setenv("TF_CONFIG", "{}")
    with pytest.raises(parsing.WrongArguments, match="TF_CONFIG names a cluster, .* unset it"):
        sides_of(script, "{out}")


def test_refuses_a_side_that_restores_its_own_checkpoint():
    side = side_processes.Side("B", "", program=("program.py",))
    events = [{"event": "training", "number": 0}, {"event": "training", "number": 1}]
    start = {"event": "start", "number": 0}
    assert compare_lib._starts([*events[:1], start], side) == {0: start}
    said = harness.refusal(CannotCompare, compare_lib._starts, [*events, start], side)
    assert said == (
        "B: program.py restored a checkpoint of its own before its first step, so the sides do not "
        "start from the same values. Give it its model_dir by {out} in its arguments."
    )


@pytest.mark.parametrize(
    "words, program, environment",
    [
        (["p.py", "--model_dir={out}"], ["p.py", "--model_dir=OUT"], ""),
        (
            ["p.py", "--model_dir", "{out}/model", "x"],
            ["p.py", "--model_dir", "OUT/model", "x"],
            "",
        ),
        (["p.py", "--to={out}/a,{out}/b"], ["p.py", "--to=OUT/a,OUT/b"], ""),
        (["p.py", "hydra.dir={out}"], ["p.py", "hydra.dir=OUT"], ""),
        (["-m", "p", "{out}"], ["-m", "p", "OUT"], ""),
        (["--b-flags=--model_dir={out}", "--a=X={out}", "p.py"], ["p.py", "--model_dir=OUT"], ""),
        (["--a=X={out}", "--b=DIR={out}/b", "p.py"], ["p.py"], "OUT/b"),
    ],
)
def test_out_in_the_arguments_becomes_the_sides_folder(
    words, program, environment, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    pathlib.Path("p.py").write_text("")
    side = sides_of(*words)[1].writing_to("OUT")
    assert side.program == tuple(program)
    assert side.environment.get("DIR", "") == environment


def test_refuses_out_in_the_name_of_the_program(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    pathlib.Path("{out}.py").write_text("")
    with pytest.raises(parsing.WrongArguments, match="side A: no argument .* has {out}"):
        sides_of("{out}.py")
    assert sides_of("{out}.py", "{out}")[0].writing_to("OUT").program == ("{out}.py", "OUT")


# ---- Finished runs ----------------------------------------------------------------------------


def finished(directory, name, steps, by=0.0):
    folder = directory / name
    folder.mkdir()
    prefixes = [
        saved_values.write(
            folder / f"model.ckpt-{step}",
            {"global_step": np.int64(step), "w": np.float32([step + by])},
        )
        for step in steps
    ]
    tf.compat.v1.train.update_checkpoint_state(str(folder), prefixes[-1], prefixes)
    with tf.Graph().as_default(), tf.compat.v1.summary.FileWriter(folder) as writer:
        loss = tf.compat.v1.Summary.Value(tag="loss", simple_value=0.5 + by)
        for step in steps:
            writer.add_summary(tf.compat.v1.Summary(value=[loss]), step)
    return f"{folder}"


@pytest.mark.parametrize(
    "steps, by, status, said",
    [
        ((0, 5), 0.0, 0, "The sides are the same"),
        ((0, 5), 0.5, 1, "The sides differ: loss, w are not the same"),
        ((0, 5, 9), 0.0, 1, "A has checkpoints of steps 0, 5, B of steps 0, 5, 9."),
        ((7,), 0.0, 2, "the sides saved their variables at different steps."),
    ],
)
def test_compares_finished_runs(tmp_path, capsys, steps, by, status, said):
    a, b = finished(tmp_path, "a", (0, 5)), finished(tmp_path, "b", steps, by)
    before = sorted(path.name for path in tmp_path.rglob("*"))
    assert main_lib.main(["compare", f"--a-model-dir={a}", f"--b-model-dir={b}"]) == status
    captured = capsys.readouterr()
    assert said in captured.out + captured.err
    assert before == sorted(path.name for path in tmp_path.rglob("*"))


@pytest.mark.slow
def test_comparing_finished_runs_shows_no_deprecation_warnings(tmp_path):
    folder = finished(tmp_path, "a", (0, 5))
    sides = f"--a-model-dir={folder}", f"--b-model-dir={folder}"
    done = processes.run_command("compare", *sides, status=0)
    assert "The sides are the same" in done.stdout and "deprecated" not in done.stderr


def test_a_damaged_checkpoint_is_not_compared(tmp_path, capsys):
    a, b = finished(tmp_path, "a", (0, 5)), finished(tmp_path, "b", (0, 5))
    (data,) = (tmp_path / "b").glob("model.ckpt-5.data-*")
    contents = bytearray(data.read_bytes())
    contents[contents.index(np.float32(5).tobytes())] ^= 1
    data.write_bytes(contents)
    assert main_lib.main(["compare", f"--a-model-dir={a}", f"--b-model-dir={b}"]) == 2
    assert "model.ckpt-5' is damaged: variable w cannot be read" in capsys.readouterr().err


# ---- Programs ---------------------------------------------------------------------------------


def run(directory, *arguments):
    """Runs the command in its own folder, and checks that it leaves no files there."""
    (directory / "tmp").mkdir(exist_ok=True)
    before = sorted(directory.iterdir())
    own = {"TMPDIR": str(directory / "tmp"), "ESTIMATOR_EMB_NATIVE": "0"}
    done = processes.run_command("compare", "--steps=3", *arguments, cwd=directory, **own)
    assert sorted(directory.iterdir()) == before, done.stderr
    left = [path.name for path in (directory / "tmp").glob("estimator-emb*")]
    assert all(name.endswith(".log") for name in left), left
    return done


PROGRAM_AND_FLAGS = [str(PROGRAM), "--model_dir={out}/model"]


@pytest.mark.slow
@pytest.mark.parametrize("clip, status", [(None, 0), (0.001, 1)])
def test_compares_with_stock(tmp_path, clip, status):
    """Stock never reads clipping_limit. All other results must agree."""
    stock = os.environ.get("ESTIMATOR_EMB_STOCK_PYTHON")
    if stock is None:
        pytest.skip("ESTIMATOR_EMB_STOCK_PYTHON names no Python with TensorFlow 2.15.1")
    clips = [] if clip is None else [f"--clip={clip}"]
    options = ["--a=stock", f"--a-python={stock}", "--repeat=no"]
    done = run(tmp_path, *options, *PROGRAM_AND_FLAGS, *clips)
    assert done.returncode == status, done.stderr
    if clip is not None:
        assert "dense_features/item_embedding/embedding_weights" in done.stdout.splitlines()[-1]
        assert done.stdout.splitlines()[-1].endswith("from step 1 on.")


@pytest.mark.slow
@pytest.mark.parametrize(
    "arguments, status, said",
    [
        (
            ["--b-program=other.py", "--repeat=no", "--plain"],
            1,
            [f"same {WITHIN} x ", "of table, from step 1 on.\n", "evaluation 1: loss"],
        ),
        (
            ["--chance"],
            2,
            ["Nothing can be said: run twice, side A differs from itself from step 1 on"],
        ),
        (
            ["--fail=2"],
            2,
            ["failed with status 1 after 2 steps.", "ValueError: the program's own failure"],
        ),
        (
            ["--repeat=no", "--calls=500", "--optimizer=adam"],
            0,
            [
                "Losses of steps 1 to 3",
                "evaluation 2: mae",
                "The program would go on training, but was ended after 3 steps",
            ],
        ),
    ],
)
def test_compares_programs(tmp_path, arguments, status, said):
    """Tests a different rate of an Estimator, chance, a failure, and repeated calls of train."""
    (tmp_path / "other.py").write_text(PROGRAM.read_text().replace("default=0.1", "default=0.11"))
    own = [one for one in arguments if one.startswith(("--b", "--repeat"))]
    done = run(tmp_path, *own, *PROGRAM_AND_FLAGS, *(one for one in arguments if one not in own))
    assert done.returncode == status, done.stderr
    assert all(one in done.stdout + done.stderr for one in said)
    assert ("A again" in done.stderr) == ("--chance" in arguments)
    assert "predict 1" not in done.stdout or "--calls=500" not in arguments


@pytest.mark.slow
def test_compares_a_program_that_writes_records_and_exports(tmp_path):
    done = run(tmp_path, *PROGRAM_AND_FLAGS, "--out={out}/records")
    assert done.returncode == 0, done.stderr


@pytest.mark.slow
def test_advises_out_for_a_fixed_model_dir(tmp_path):
    """Side B finds side A's checkpoint there, and the command gives advice."""
    parse = "flags = parser.parse_args()"
    text = PROGRAM.read_text().replace(parse, f"{parse}\nflags.model_dir = 'fixed'")
    text = text.replace("if os.path.exists(flags.model_dir)", "if False")
    (tmp_path / "program.py").write_text(text)
    done = processes.run_command(
        "compare", "--steps=3", "program.py", "--model_dir={out}", cwd=tmp_path, status=2
    )
    assert "B: program.py restored a checkpoint of its own" in done.stderr
    assert "Give it its model_dir by {out} in its arguments." in done.stderr
    assert (tmp_path / "fixed" / "checkpoint").exists()


def start(directory, interpreter):
    """Starts the command with a program that replaces side A's interpreter."""
    python = directory / "python"
    python.write_text(f"#!{sys.executable}\nimport os, pathlib, signal, sys, time\n{interpreter}")
    python.chmod(0o755)
    (directory / "program.py").write_text("")
    (directory / "tmp").mkdir()
    command = ["compare", f"--a-python={python}", "program.py", "{out}"]
    return subprocess.Popen(
        [sys.executable, processes.SCRIPT, *command],
        cwd=directory,
        env=processes.users_environment(TMPDIR=str(directory / "tmp")),
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=processes.default_signals,
    )


def end_of(started):
    """Returns the command's messages, without the progress that it prints every ten seconds."""
    _, stderr = started.communicate(timeout=processes.HANGS)
    lines = stderr.splitlines(keepends=True)
    return "".join(one for one in lines if not one.startswith("estimator-emb: A: starts, "))


@pytest.mark.parametrize(
    "records, said",
    [
        ('{"event": "end"}\n', "ended without training a step of an Estimator."),
        ("", "was ended by os._exit before it trained a step."),
    ],
)
def test_reports_a_program_that_does_not_train(tmp_path, records, said):
    """A side reports its end, unless os._exit ends it."""
    file = "pathlib.Path(sys.argv[2], 'record.jsonl')"
    started = start(tmp_path, f"print('x'); {file}.write_text({records!r})")
    stderr = end_of(started)
    (log,) = (tmp_path / "tmp").iterdir()
    kept = f"What it wrote is in {log}; the last lines:\n    x\n"
    assert stderr == f"estimator-emb compare: A: program.py {said} {kept}"
    assert started.returncode == 2


@pytest.mark.parametrize("number", processes.TO_END)
def test_an_interrupt_leaves_nothing(tmp_path, number):
    wait = "signal.signal(signal.SIGTERM, signal.SIG_IGN); print(os.getpid()); time.sleep(10_000)"
    started = start(tmp_path, f"sys.stdout.reconfigure(line_buffering=True)\n{wait}")

    def said_by_the_side():
        return "".join(one.read_text() for one in tmp_path.glob("tmp/*/A/log"))

    processes.until(lambda: said_by_the_side() or started.poll() is not None)
    pid = int(said_by_the_side())
    started.send_signal(number)
    stderr = end_of(started)
    assert started.returncode == 128 + number
    said = f"{number.name}: the sides were ended, and nothing is left of them."
    assert stderr == f"estimator-emb compare: {said}\n"
    assert list((tmp_path / "tmp").iterdir()) == []
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, 0)
        pytest.fail("the side still runs")
