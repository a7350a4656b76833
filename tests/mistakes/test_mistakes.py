"""Common mistakes, as small changes of a good program, get a helpful error message.

mistakes.json has the changes: places in the program (see `changed`), each with the expression of
its new value. An entry also has the call, the device if only one of them has the mistake, and a
phrase of the message. `checks` has an entry for each registered check. Its phrase is in
docs/errors.md, and … in it stands for any text.
"""

import builtins
import json
import pathlib
import re
import shutil

import functions
import harness
import pytest
import tensorflow as tf
from program import Program, changed

import estimator_emb as ee
from estimator_emb.guards import watching

TABLE = json.loads(pathlib.Path(__file__).with_name("mistakes.json").read_text())


def change_of(entry):
    """Returns {place: new value} of an entry of the table."""
    return {
        place: eval(compile(value, "mistakes.json", "eval"), vars(functions))
        for place, value in entry["change"].items()
    }


def mistakes(is_first):
    """Yields the mistakes, each on 'cpu' or 'host' in turns, or those on the other device."""
    for number, entry in enumerate(TABLE["errors"]):
        devices = [entry["device"]] if "device" in entry else ["cpu", "host"]
        error = getattr(builtins, entry["error"], None) or getattr(tf.errors, entry["error"])
        name = "; ".join(f"{place} = {value}" for place, value in entry["change"].items())
        for device in devices:
            if is_first == (device == devices[number % len(devices)]):
                case = device, entry["call"], change_of(entry), error, entry["phrase"]
                yield pytest.param(*case, id=f"{entry['call']}; {name}")


WITHOUT_STEP = {"train_op": lambda program, loss: program.dense_optimizer().minimize(loss)}


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    directories = {}

    def of(device):
        if device not in directories:
            directories[device] = tmp_path_factory.mktemp(device)
            program = Program(directories[device], None if device == "cpu" else device)
            program.run("train")
        return directories[device]

    return of


@pytest.mark.parametrize("device", [pytest.param("cpu", marks=pytest.mark.slow), "host"])
@pytest.mark.parametrize(
    "dicts", [False, pytest.param(True, marks=pytest.mark.slow)], ids=["columns", "dicts"]
)
def test_the_good_program_runs(tmp_path, device, dicts):
    program = Program(tmp_path, None if device == "cpu" else device)
    program.dicts = dicts
    program.run("train")
    assert program.run("evaluate")["global_step"] == 1
    assert set(program.run("predict")) == {"logits"}
    assert program.run("export")


def refused(program, action, change, error, monkeypatch):
    """Returns the error of a changed program."""
    with pytest.raises(Exception) as caught:
        changed(program, change)
        for variable, value in program.environment.items():
            monkeypatch.setenv(variable, value)
        program.run(action)
    assert isinstance(caught.value, error)
    return str(caught.value).rstrip()


MISTAKE = "device, action, change, error, phrase"


@pytest.mark.fast(8)
@pytest.mark.parametrize(MISTAKE, mistakes(is_first=True))
def test_a_mistake_gets_its_message(
    device, action, change, error, phrase, tmp_path, trained, monkeypatch, same_message
):
    if action == "export":
        shutil.copytree(trained(device), tmp_path, dirs_exist_ok=True)
    program = Program(tmp_path, None if device == "cpu" else device)
    message = refused(program, action, change, error, monkeypatch)
    assert phrase in message
    same_message(re.sub(r"(\w+\.py, line) \d+", r"\1 N", message))


@pytest.mark.slow
@pytest.mark.parametrize(MISTAKE, mistakes(is_first=False))
def test_a_mistake_gets_its_message_on_the_other_device(
    device, action, change, error, phrase, tmp_path, trained, monkeypatch
):
    if action == "export":
        shutil.copytree(trained(device), tmp_path, dirs_exist_ok=True)
    program = Program(tmp_path, None if device == "cpu" else device)
    assert phrase in refused(program, action, change, error, monkeypatch)


def test_a_message_has_the_line_of_its_function(tmp_path):
    program = Program(tmp_path, None)
    changed(program, {"train.input_fn": lambda params: None})
    message = harness.refusal(ValueError, program.run, "train")
    line = program.train["input_fn"].__code__.co_firstlineno
    assert f"(<lambda> (test_mistakes.py, line {line})) must return" in message


@pytest.mark.slow
def test_an_unread_batch_size_off_a_tpu_may_have_any_value(tmp_path):
    """Stock tensorflow-estimator passes on any value."""
    program = Program(tmp_path, None)
    program.config.update(save_summary_steps=1, log_step_count_steps=1)
    given = []

    def input_fn(params):
        given.append(params.get("batch_size"))
        return program.input_fn({"batch_size": 4})

    sizes = {"train_batch_size": -1, "eval_batch_size": "4", "predict_batch_size": 0}
    program.estimator |= sizes
    for arguments in (program.train, program.evaluate, program.predict):
        arguments["input_fn"] = input_fn
    program.train["max_steps"] = 2
    program.run("train")
    assert program.run("evaluate")["global_step"] == 2
    assert set(program.run("predict")) == {"logits"}
    assert given == [*sizes.values()]


class Counter(harness.Reads):
    """Increases the global step after each step, as AdaNet's hooks do."""

    def __init__(self):
        super().__init__(lambda: tf.compat.v1.train.get_global_step().assign_add(1).op)


@pytest.mark.fast(1)
@pytest.mark.parametrize(
    "place, last",
    # If the hook that ends training comes before it, training takes another step.
    [("hooks", 3), ("training_hooks", 4), ("training_chief_hooks", 3)],
)
def test_a_hook_may_increase_the_global_step(place, last, tmp_path, caplog):
    program = Program(tmp_path, None)
    changed(program, WITHOUT_STEP)
    program.train = {"max_steps": 3}
    if place == "hooks":
        program.train["hooks"] = [Counter()]
    else:
        returned = program.model_fn

        def model_fn(features, labels, mode, params):
            spec = returned(features, labels, mode, params)
            return ee.EstimatorSpec(
                mode, loss=spec.loss, train_op=spec.train_op, **{place: [Counter()]}
            )

        program.estimator["model_fn"] = model_fn
    program.run("train")
    assert tf.train.latest_checkpoint(str(tmp_path)).endswith(f"model.ckpt-{last}")
    (said,) = [line for line in harness.said(caplog) if "global step" in line]
    assert "does not increase the global step, unless one of the hooks does (Counter)." in said


CHECKED = [
    (entry["check"], entry["call"], entry["device"], change_of(entry), entry["phrase"])
    for entry in TABLE["checks"]
]
ERRORS = pathlib.Path(__file__).parents[2] / "docs" / "errors.md"


def test_each_check_has_a_row_and_a_line_on_the_page():
    names = {check.run.__name__ for check in watching.CHECKS}
    assert {row[0] for row in CHECKED} == names, "The checks of mistakes.json differ."
    quoted = "\n".join(re.findall(r"`([^`]+)`", ERRORS.read_text()))
    missing = [phrase for *_, phrase in CHECKED if phrase not in quoted]
    assert not missing, f"docs/errors.md does not quote {missing}"


OF_CHECKS = pytest.mark.parametrize(
    "check, action, device, change, phrase", CHECKED, ids=[row[0] for row in CHECKED]
)


def outcome(model_dir, action, device, change, caplog):
    """Returns what a changed program says: its error and the lines of the log."""
    program = Program(model_dir, None if device == "cpu" else device)
    changed(program, change)
    caplog.clear()
    try:
        program.run(action)
        error = ""
    except Exception as raised:
        error = str(raised)
    return "\n".join([error, *harness.said(caplog)]).replace(str(model_dir), "")


@pytest.mark.fast(8)
@OF_CHECKS
def test_a_check_finds_its_mistake(check, action, device, change, phrase, tmp_path, caplog):
    said = outcome(tmp_path, action, device, change, caplog)
    assert re.search(re.escape(phrase).replace("…", ".*"), said), said


@pytest.mark.slow
@OF_CHECKS
def test_only_this_check_finds_it(
    check, action, device, change, phrase, tmp_path, caplog, monkeypatch
):
    if check == "core_numbers":
        pytest.skip("without this check, TensorFlow's kernel aborts the process")
    said = outcome(tmp_path / "all", action, device, change, caplog)
    others = [one for one in watching.CHECKS if one.run.__name__ != check]
    monkeypatch.setattr(watching, "CHECKS", others)
    assert outcome(tmp_path / "others", action, device, change, caplog) != said
