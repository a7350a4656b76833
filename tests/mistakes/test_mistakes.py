# SPDX-License-Identifier: Apache-2.0
"""Mistakes that people make, each a small change of one good program, and what is said of each.

The changes are in `model.py`, `inputs.py` and `configuration.py` beside this file.
"""

import os
import re
import shutil
import sys

import pytest
import tensorflow as tf

sys.path.insert(0, os.path.dirname(__file__))

import configuration  # noqa: E402
import inputs  # noqa: E402
import model  # noqa: E402
from program import MISTAKES, Program  # noqa: E402

FILES = ("configuration.py", "inputs.py", "model.py", "program.py")


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """The model directory of the good program in each way of running."""
    directories = {}

    def of(device):
        if device not in directories:
            directories[device] = tmp_path_factory.mktemp(device)
            program = Program(directories[device], None if device == "cpu" else device)
            program.run("train")
        return directories[device]

    return of


@pytest.mark.parametrize("device", ["cpu", "host"])
@pytest.mark.parametrize(
    "dicts", [False, pytest.param(True, marks=pytest.mark.slow)], ids=["columns", "dicts"]
)
def test_the_good_program(tmp_path, device, dicts):
    program = Program(tmp_path, None if device == "cpu" else device)
    program.dicts = dicts
    program.run("train")
    assert program.run("evaluate")["global_step"] == 1
    assert set(program.run("predict")) == {"logits"}
    assert program.run("export")


def test_there_are_many():
    assert len({name for name, *_ in MISTAKES}) >= 100
    assert {one.__name__ for one in (configuration, inputs, model)} == {
        change.__module__ for _, _, _, change, _, _ in MISTAKES
    }


def said(error, directory):
    """The text of an error, without what differs between two runs of a test."""
    text = str(error).replace(str(directory), "{directory}")
    for file in FILES:
        text = re.sub(rf"\b{file}, line \d+", f"{file}, line {{line}}", text)
    return text


@pytest.mark.parametrize(
    "device, action, change, error, message",
    [mistake[1:] for mistake in MISTAKES],
    ids=[f"{name}-{device}" for name, device, *_ in MISTAKES],
)
def test_mistake(device, action, change, error, message, tmp_path, trained, monkeypatch):
    if action == "export":
        shutil.copytree(trained(device), tmp_path, dirs_exist_ok=True)
    program = Program(tmp_path, None if device == "cpu" else device)
    with pytest.raises(Exception) as caught:
        change(program)
        for name, value in program.environment.items():
            monkeypatch.setenv(name, value)
        program.run(action)
    assert said(caught.value, tmp_path) == message
    assert isinstance(caught.value, error)


def test_the_line_of_a_message_is_that_of_the_function(tmp_path):
    program = Program(tmp_path, None)
    inputs.input_fn_returns_nothing(program)
    with pytest.raises(ValueError) as caught:
        program.run("train")
    line = program.train["input_fn"].__code__.co_firstlineno
    assert f"(input_fn (inputs.py, line {line})) must return" in str(caught.value)


def test_a_session_is_not_started_for_a_train_op_without_step(tmp_path, caplog):
    """Where input ends by itself, training ends too: a warning."""
    program = Program(tmp_path, None)
    model.minimize_without_the_global_step(program)
    program.train = {
        "input_fn": lambda params: program.input_fn(params).take(1),
    }
    program.run("train")
    assert "The train_op of model_fn does not increase the global step" in caplog.text
    assert tf.train.latest_checkpoint(str(tmp_path)).endswith("model.ckpt-0")
