"""estimator-emb compare: finished runs, made by the tests and by programs."""

import pathlib

import numpy as np
import processes
import pytest
import saved_values
import tensorflow as tf

from estimator_emb.cli import main as main_lib

PROGRAM = pathlib.Path(__file__).parents[2] / "examples" / "legacy_tpu_binary.py"


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
        ((7,), 0.0, 2, "the runs saved their variables at different steps."),
    ],
)
def test_compares_finished_runs(tmp_path, capsys, steps, by, status, said):
    a, b = finished(tmp_path, "a", (0, 5)), finished(tmp_path, "b", steps, by)
    before = sorted(path.name for path in tmp_path.rglob("*"))
    assert main_lib.main(["compare", a, b]) == status
    captured = capsys.readouterr()
    assert said in captured.out + captured.err
    assert before == sorted(path.name for path in tmp_path.rglob("*"))


@pytest.mark.slow
def test_comparing_finished_runs_shows_no_deprecation_warnings(tmp_path):
    folder = finished(tmp_path, "a", (0, 5))
    done = processes.run_command("compare", folder, folder, status=0)
    assert "The sides are the same" in done.stdout and "deprecated" not in done.stderr


def test_a_damaged_checkpoint_is_not_compared(tmp_path, capsys):
    a, b = finished(tmp_path, "a", (0, 5)), finished(tmp_path, "b", (0, 5))
    (data,) = (tmp_path / "b").glob("model.ckpt-5.data-*")
    contents = bytearray(data.read_bytes())
    contents[contents.index(np.float32(5).tobytes())] ^= 1
    data.write_bytes(contents)
    assert main_lib.main(["compare", a, b]) == 2
    assert "model.ckpt-5' is damaged: variable w cannot be read" in capsys.readouterr().err


@pytest.mark.slow
@pytest.mark.parametrize("option, flag, status", [("--shards=8", "", 0), ("", "0.3", 1)])
def test_compares_two_runs_of_a_program(tmp_path, option, flag, status):
    """The second run begins from the first one's checkpoint of step 0, as on the page."""

    def run(name, option, flag):
        options = ["--seed=1", "--steps-limit=4", *filter(None, [option])]
        flags = [f"--model_dir={tmp_path / name}", f"--learning_rate={flag or 0.4}"]
        processes.run_command("run", *options, PROGRAM, *flags, status=0)

    run("a", "", "")
    (tmp_path / "b").mkdir()
    for file in (tmp_path / "a").glob("model.ckpt-0.*"):
        (tmp_path / "b" / file.name).write_bytes(file.read_bytes())
    (tmp_path / "b" / "checkpoint").write_text('model_checkpoint_path: "model.ckpt-0"\n')
    run("b", option, flag)
    folders = tmp_path / "a", tmp_path / "b"
    done = processes.run_command("compare", *folders, "--ignore=loss*", status=status)
    assert ("The sides are the same", "The sides differ: ")[status] in done.stdout
