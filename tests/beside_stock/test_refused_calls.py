"""Errors of refused calls contain tensorflow-estimator's phrases, for each class of estimators."""

import json
import pathlib
import re

import processes
import pytest

PROGRAM = pathlib.Path(__file__).with_name("refused_calls.py")
ACCIDENTS = (
    "unsupported callable",
    "'<=' not supported between instances",
    "'NoneType' object has no attribute",
    "Expected any non-tensor type",
)
"""Stock's errors for mistakes that stock does not check: Python or TensorFlow raises them."""
NEED_A_TPU = ("model_fn returns None", "evaluate no checkpoint", "predict no checkpoint")
"""Calls that stock refuses only after it has reached its TPU."""


def refused(side):
    done = processes.run_side(side, PROGRAM, side, status=0, ESTIMATOR_EMB_DEVICE="host")
    return json.loads(done.stdout.splitlines()[-1])


def phrases(text):
    """Returns a message's phrases, without the values between them."""
    values = r"given: .+|\(?<.*?>\)?|\(\{.*?\}\)|'?/[\w./]+'?|\.$"
    return [phrase.strip() for phrase in re.split(values, text) if phrase.strip()]


@pytest.mark.slow
def test_errors_keep_the_phrases_of_each_class():
    stock, ours = refused("stock"), refused("ours")
    assert stock.keys() == ours.keys() == {"Estimator", "on CPU", "on TPU"}
    wanted = 0
    for of_class, errors in stock.items():
        for call, (kind, text) in errors.items():
            got, message = ours[of_class][call]
            if of_class == "on TPU" and call in NEED_A_TPU:
                continue
            if not text.startswith(ACCIDENTS):
                assert [one for one in phrases(text) if one not in message] == [], (of_class, call)
                assert got in (kind, "MissingCheckpoint"), (of_class, call)
                wanted += 1
    assert wanted > 55
    assert "must be positive" in ours["on TPU"]["evaluate -321 steps"][1]
    for of_class in ("Estimator", "on CPU"):
        assert "Must specify steps > 0" in ours[of_class]["evaluate -321 steps"][1]
