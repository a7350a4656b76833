"""Common mistakes, as small changes of a good program, get a helpful error message.

mistakes.json has the changes: places in the program, each with the expression of its new value, and
a phrase of the message. So {"tpu.device": "'cpu'"} makes it use TPUConfig(device='cpu'). `errors`
groups them by the call, the device if only one of them has the mistake, and the error. `checks` has
an entry for each registered check. Unless it says so, it trains off a TPU. Its phrase is in
docs/errors.md, and … in it stands for any text. If TensorFlow says it too, `also` has more words.
"""

import builtins
import json
import pathlib
import re

import functions
import harness  # harness.refusal(error, call, ...) asserts the error, returns its message.
import pytest
import tensorflow as tf
from program import Program, changed

import estimator_emb as ee
from estimator_emb.guards import watching

TABLE = json.loads(pathlib.Path(__file__).with_name("mistakes.json").read_text())


def changed_program(model_dir, entry, device):
    """Returns a program on a device, changed as an entry of the table says."""
    program = Program(model_dir, device)
    values = {
        place: eval(compile(value, "mistakes.json", "eval"), vars(functions))
        for place, value in entry["change"].items()
    }
    changed(program, values)
    return program


def mistakes():
    """Returns cases of each mistake and its devices. A second device and exports are slow."""
    cases = []
    entries = ({**group, **one} for group in TABLE["errors"] for one in group["mistakes"])
    for number, entry in enumerate(entries):
        devices = [entry["device"]] if "device" in entry else ["cpu", "host"]
        changes = "; ".join(f"{place} = {value}" for place, value in entry["change"].items())
        for device in devices:
            is_first = device == devices[number % len(devices)]
            name = f"{entry['call']}; {changes}" + ("" if is_first else f"; on {device}")
            marks = [] if is_first and entry["call"] != "export" else [pytest.mark.slow]
            cases.append(pytest.param(entry, device, is_first, id=name, marks=marks))
    return cases


@pytest.mark.slow
@pytest.mark.parametrize("device", ["cpu", "host"])
@pytest.mark.parametrize("dicts", [False, True], ids=["columns", "dicts"])
def test_the_good_program_runs(tmp_path, device, dicts):
    program = Program(tmp_path, device)
    program.dicts = dicts
    program.run("train")
    assert program.run("evaluate")["global_step"] == 1
    assert set(program.run("predict")) == {"logits"}
    assert program.run("export")


@pytest.mark.parametrize("entry, device, is_first", mistakes())
def test_a_mistake_gets_its_message(
    entry, device, is_first, tmp_path, monkeypatch, assert_recorded
):
    if entry["call"] == "export":
        Program(tmp_path, device).run("train")
    error = getattr(builtins, entry["error"], None) or getattr(tf.errors, entry["error"])
    with pytest.raises(error) as caught:
        program = changed_program(tmp_path, entry, device)
        for variable, value in program.environment.items():
            monkeypatch.setenv(variable, value)
        program.run(entry["call"])
    message = str(caught.value).rstrip()
    assert entry["phrase"] in message
    if is_first:
        assert_recorded(re.sub(r"(\w+\.py, line) \d+", r"\1 N", message))


def test_a_message_has_the_line_of_its_function(tmp_path):
    program = Program(tmp_path)
    changed(program, {"train.input_fn": lambda params: None})
    message = harness.refusal(ValueError, program.run, "train")
    line = program.train["input_fn"].__code__.co_firstlineno
    assert f"(<lambda> (test_mistakes.py, line {line})) must return" in message


@pytest.mark.slow
def test_an_unread_batch_size_off_a_tpu_may_have_any_value(tmp_path):
    """Stock tensorflow-estimator passes on any value."""
    program = Program(tmp_path)
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
    # Stock's hooks run in this order: training_chief_hooks, hooks, the one that ends at max_steps,
    # training_hooks. The last count a step after the end was asked for: training takes one more.
    [("hooks", 3), ("training_hooks", 4), ("training_chief_hooks", 3)],
)
def test_a_hook_may_increase_the_global_step(place, last, tmp_path, caplog):
    program = Program(tmp_path)
    changed(program, {"train_op": functions.without_step})
    program.train = {"max_steps": 3}
    hooks = {place: [Counter()]}
    if place == "hooks":
        program.train |= hooks
    else:
        returned = program.model_fn

        def model_fn(features, labels, mode, params):
            spec = returned(features, labels, mode, params)
            return ee.EstimatorSpec(mode, loss=spec.loss, train_op=spec.train_op, **hooks)

        program.estimator["model_fn"] = model_fn
    program.run("train")
    assert tf.train.latest_checkpoint(str(tmp_path)).endswith(f"model.ckpt-{last}")
    (said,) = [line for line in harness.said(caplog) if "global step" in line]
    assert "does not increase the global step, unless one of the hooks does (Counter)." in said


CHECKED = TABLE["checks"]
ERRORS = pathlib.Path(__file__).parents[2] / "docs" / "errors.md"


def test_each_check_has_a_row_and_a_line_on_the_page():
    names = {check.run.__name__ for check in watching.CHECKS}
    assert {entry["check"] for entry in CHECKED} == names, "The checks of mistakes.json differ."
    quoted = "\n".join(re.findall(r"`([^`]+)`", ERRORS.read_text()))
    missing = [entry["phrase"] for entry in CHECKED if entry["phrase"] not in quoted]
    assert not missing, f"docs/errors.md does not quote {missing}"


def says_its_phrases(model_dir, entry, caplog):
    """Returns whether a changed program says the entry's phrases, and all that it says."""
    caplog.clear()
    error = ""
    try:
        program = changed_program(model_dir, entry, entry.get("device", "cpu"))
        program.run(entry.get("call", "train"))
    except Exception as raised:
        error = str(raised)
    said = "\n".join([error, *harness.said(caplog)])
    phrases = entry["phrase"], entry.get("also", "")
    return all(re.search(re.escape(one).replace("…", ".*"), said) for one in phrases), said


of_checks = pytest.mark.parametrize("entry", CHECKED, ids=[entry["check"] for entry in CHECKED])


@pytest.mark.fast(1)
@of_checks
def test_a_check_finds_its_mistake(entry, tmp_path, caplog):
    found, said = says_its_phrases(tmp_path, entry, caplog)
    assert found, said


@pytest.mark.slow
@of_checks
def test_without_a_check_its_mistake_is_not_found(entry, tmp_path, caplog, monkeypatch):
    if entry["check"] == "core_numbers":
        pytest.skip("without this check, TensorFlow's kernel aborts the process")
    assert says_its_phrases(tmp_path / "all", entry, caplog)[0]
    others = [one for one in watching.CHECKS if one.run.__name__ != entry["check"]]
    monkeypatch.setattr(watching, "CHECKS", others)
    found, said = says_its_phrases(tmp_path / "others", entry, caplog)
    assert not found, said
