"""estimator-emb compare: finished runs, made by the tests and by programs."""

import itertools
import shutil

import numpy as np
import processes
import pytest
import saved_values
import tensorflow as tf

from estimator_emb.cli import main as main_lib
from estimator_emb.cli.comparison import name_pairs

v1 = tf.compat.v1
PROGRAM = processes.ROOT / "examples" / "legacy_tpu_binary.py"
TABLE = "dense_features/x_embedding/embedding_weights"


def write_scalars(folder, by_step):
    with tf.Graph().as_default(), v1.summary.FileWriter(folder) as writer:
        for step, scalars in by_step.items():
            values = [v1.Summary.Value(tag=tag, simple_value=one) for tag, one in scalars.items()]
            writer.add_summary(v1.Summary(value=values), step)


@pytest.fixture
def run(tmp_path):
    """Returns a function that writes the checkpoints and event files of a finished run.

    `change(variables, step)` changes what is saved. `losses` and `metrics` replace the values of
    some steps and names. `exported` is a step whose variables are exported as a SavedModel.
    """
    count = itertools.count()

    def write(change=None, losses=(), metrics=(), steps=(1, 2, 3), exported=None):
        folder = tmp_path / f"run {next(count)}"
        prefixes = []
        for step in steps:
            variables = {
                "global_step": np.int64(step),
                "w": np.float32([step, 2.0]),
                TABLE: np.full([3, 2], 1.0 + step, np.float32),
            }
            if change is not None:
                change(variables, step)
            prefixes.append(saved_values.write(folder / f"model.ckpt-{step}", variables))
        v1.train.update_checkpoint_state(str(folder), prefixes[-1], prefixes)
        write_scalars(folder, {step: {"loss": dict(losses).get(step, 1 / step)} for step in steps})
        write_scalars(folder / "eval", {3: {"loss": 0.25, **dict(metrics or {"auc": 0.5})}})
        if exported is not None:
            model = folder / "export" / "best" / "1"
            (model / "variables").mkdir(parents=True)
            (model / "saved_model.pb").touch()
            for file in folder.glob(f"model.ckpt-{exported}.*"):
                shutil.copy(file, model / "variables" / f"variables{file.suffix}")
        return folder

    return write


@pytest.fixture
def compare(capsys):
    """Returns a function that compares two folders, giving the status and the output's lines."""

    def of(a, b, *options):
        status = main_lib.main(["compare", str(a), str(b), *options])
        said = capsys.readouterr()
        return status, [*said.out.splitlines(), *said.err.splitlines()]

    return of


def from_step(first, name, by):
    """Returns a `change` that adds `by` to a variable from a step on."""

    def change(variables, step):
        if step >= first:
            variables[name] = variables[name] + by

    return change


def having(**values):
    """Returns a `change` that sets variables in all steps."""
    return lambda variables, step: variables.update(values)


def without_w(variables, step):
    del variables["w"]


@pytest.mark.parametrize(
    # of_a, of_b: arguments of `run`. Values that are within 1e-5 + 1e-4 |value| count as equal.
    "of_a, of_b, status, said",
    [
        ({}, {"change": from_step(2, "w", np.float32(1e-6))}, 0, "The sides are the same"),
        ({}, {"change": from_step(2, TABLE, np.float32(1e-2))}, 1, f"differ: {TABLE} are not"),
        ({}, {"losses": {2: 9.0}}, 1, "The sides differ: loss are not the same"),
        ({"exported": 3}, {"exported": 3}, 0, "The sides are the same"),
        ({"exported": 3}, {}, 0, "The sides are the same"),  # Compares what both exported.
        ({"exported": 3}, {"exported": 2}, 1, "export best: w"),
        ({}, {"steps": (7,)}, 2, "the runs saved their variables at different steps."),
    ],
)
def test_the_verdict_and_the_status_fit_the_runs(run, compare, of_a, of_b, status, said, tmp_path):
    a, b = run(**of_a), run(**of_b)
    before = sorted(tmp_path.rglob("*"))
    got, lines = compare(a, b)
    assert got == status and any(said in line for line in lines), lines
    assert sorted(tmp_path.rglob("*")) == before  # It writes nothing.


def test_all_that_one_side_lacks_or_that_does_not_fit_is_named_and_counted(run, compare):
    a = run(having(kind=np.float32(1), shape=np.zeros(2, "f4")), metrics={"f1": 0.5})
    b = run(having(kind=np.float64(1), shape=np.zeros(3, "f4"), w2=np.float32(1)), steps=(1, 2))
    status, lines = compare(a, b)
    assert status == 1 and {
        "  A has losses of steps 1 to 3, B of steps 1, 2.",
        "  A has checkpoints of steps 1 to 3, B of steps 1, 2.",
        "  kind has the type float32 on A, and float64 on B.",
        "  shape has the shape (2,) on A, and (3,) on B.",
        "  Only B has the variable w2.",
        "  eval at step 3: only A has the metric f1.",
        "  eval at step 3: only B has the metric auc.",
    } <= {*lines}
    assert "7 things that one side lacks or that do not fit, listed above" in lines[-1]
    status, lines = compare(run(), run(without_w))
    assert status == 1 and "  Only A has the variable w." in lines
    assert "1 thing that one side lacks or that do not fit, listed above" in lines[-1]


def test_the_report_lists_losses_variables_and_metrics(run, compare):
    _, lines = compare(run(), run(from_step(2, TABLE, np.float32(1e-2))))
    assert "Losses of steps 1 to 3" in lines and "Metrics" in lines
    assert any(line.startswith("  eval at step 3: auc ") for line in lines)
    (of_table,) = [line for line in lines if line.startswith(f"  {TABLE} ")]
    assert of_table.split()[-3:] == ["from", "step", "2"]


def test_verdict_shows_the_tolerance_used(run, compare):
    """For a small variable, the tolerance is smaller than atol."""
    a = run(having(b=np.float32([1e-3, 0])))
    status, lines = compare(a, run(having(b=np.float32([1e-3, 3.3e-8]))))
    assert status == 1 and lines[-1] == (
        "The sides differ: b are not the same within rtol 0.0001 and atol 1e-05 x 0.001, the "
        "largest value of b, from step 1 on."
    )
    assert compare(a, run(having(b=np.float32([1e-3, 0.9e-8]))))[0] == 0  # 1e-05 x 0.001 is 1e-8.


def test_ignored_results_are_no_difference(run, compare):
    other = run(without_w, losses={2: 9.0}, metrics={"auc": 0.9})
    status, lines = compare(run(), other, *(f"--ignore={name}" for name in ("w", "auc", "loss")))
    assert status == 0 and "Losses of steps 1 to 3" not in lines
    assert "Ignored, as asked: w" in lines
    status, lines = compare(run(), run(), "--ignore=*")
    assert status == 2 and lines[-1].endswith("no variable is left to compare.")


def test_nan_on_both_sides_is_inconclusive_on_one_side_a_difference(run, compare):
    spoiled, nan = having(w=np.float32([np.nan, 1])), float("nan")
    for both, what, step in ((run(spoiled), "w", 1), (run(losses={2: nan}), "loss", 2)):
        status, lines = compare(both, both)
        said = f"Nothing can be said: {what} is NaN on both sides, from step {step} on."
        assert (status, lines[-1]) == (2, said)
    status, lines = compare(run(), run(losses={3: nan}))
    assert status == 1 and "loss are not the same" in lines[-1]


def test_control_characters_in_names_are_escaped(run, compare):
    a = run(having(**{"\x1b[2J\nThe sides are the same": np.float32(1)}))
    _, lines = compare(a, run(having(**{"\x9b2J": np.float32(1)})), "--ignore=\x9b*")
    assert all(one.isprintable() for one in lines)
    assert r"  Only A has the variable \x1b[2J\nThe sides are the same." in lines
    assert r"Ignored, as asked: \x9b2J" in lines


def test_names_that_mean_the_same_are_listed_with_their_rule(run, compare):
    """Pairs Adam's slots with a TPU's. There, Adam corrects no bias, so it has no beta1_power."""
    more = {f"v{index:02}": np.float32(index) for index in range(40)}  # Too many to list each.
    of_stock = {f"{TABLE}/Adam": np.ones([3, 2], "f4"), "beta1_power": np.float32(0.9)}
    ours = {f"{TABLE}/Adam/m": np.ones([3, 2], "f4")}
    status, lines = compare(run(having(**of_stock, **more)), run(having(**ours, **more)))
    assert status == 0
    assert f"  {TABLE}/Adam on A is {TABLE}/Adam/m on B" in lines
    assert f"  Rule: {name_pairs.RULES['slot']}." in lines
    assert "Left out: beta1_power" in lines and f"  Rule: {name_pairs.RULES['beta']}." in lines
    assert any("more, at most 0 apart, 0 of them past the tolerance" in line for line in lines)


@pytest.mark.slow
def test_draws_the_plot_of_a_comparison(run, compare, tmp_path):
    pytest.importorskip("matplotlib")
    plot = tmp_path / "plot.png"
    compare(run(), run(from_step(2, "w", np.float32(0.1))), f"--plot={plot}")
    width, height = tf.io.decode_png(plot.read_bytes()).shape[:2]
    assert width > 300 and height > 300


def test_a_damaged_checkpoint_is_not_compared(run, compare):
    a, b = run(), run()
    (data,) = b.glob("model.ckpt-3.data-*")
    contents = bytearray(data.read_bytes())
    contents[contents.index(np.float32([3, 2]).tobytes())] ^= 1  # A bit of w, [step, 2].
    data.write_bytes(contents)
    status, lines = compare(a, b)
    assert status == 2 and "model.ckpt-3' is damaged: variable w cannot be read" in lines[-1]


@pytest.mark.slow
@pytest.mark.parametrize("option, rate, status", [("--shards=8", 0.4, 0), ("--seed=1", 0.3, 1)])
def test_compares_two_runs_of_a_program(option, rate, status, tmp_path):
    """Both begin from the same checkpoint. More cores make no difference, another rate does.

    The loss is that of core 0, so it depends on the number of cores.
    """
    a, b = tmp_path / "a", tmp_path / "b"

    def train(folder, rate, *options):
        options = ["--seed=1", "--steps-limit=4", *options]
        flags = [f"--model_dir={folder}", f"--learning_rate={rate}"]
        processes.run_command("run", *options, PROGRAM, *flags, status=0)

    train(a, 0.4)
    b.mkdir()
    for file in a.glob("model.ckpt-0.*"):
        shutil.copy(file, b)
    (b / "checkpoint").write_text('model_checkpoint_path: "model.ckpt-0"\n')
    train(b, rate, option)
    done = processes.run_command("compare", a, b, "--ignore=loss*", status=status)
    assert ("The sides are the same", "The sides differ: ")[status] in done.stdout
    assert "deprecated" not in done.stderr
