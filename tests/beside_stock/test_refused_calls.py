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


def errors_of(side):
    """Returns {class of estimators: {call: [type of the error, message]}} of "stock" or "ours"."""
    done = processes.run_side(side, PROGRAM, side, status=0, ESTIMATOR_EMB_DEVICE="host")
    return json.loads(done.stdout.splitlines()[-1])


def phrases(text):
    """Returns a message's phrases, without the values between them."""
    values = r"given: .+|\(?<.*?>\)?|\(\{.*?\}\)|'?/[\w./]+'?|\.$"
    return [phrase.strip() for phrase in re.split(values, text) if phrase.strip()]


@pytest.mark.slow
def test_errors_of_refused_calls_contain_the_phrases_of_stock():
    """Programs and their tests look for such phrases. Ours may say more between and after them."""
    stock, ours = errors_of("stock"), errors_of("ours")
    assert stock.keys() == ours.keys() == {"Estimator", "on CPU", "on TPU"}
    compared = 0
    for of_class, errors in stock.items():
        for call, (kind, text) in errors.items():
            got, message = ours[of_class][call]
            if of_class == "on TPU" and call in NEED_A_TPU:
                continue
            if not text.startswith(ACCIDENTS):
                assert [one for one in phrases(text) if one not in message] == [], (of_class, call)
                assert got in (kind, "MissingCheckpoint"), (of_class, call)  # A class of ours.
                compared += 1
    assert compared > 55  # Most of 30 calls of 3 classes. The others are skipped above.
    assert "must be positive" in ours["on TPU"]["evaluate -321 steps"][1]
    # Off a TPU, the phrase is that of the plain Estimator.
    for of_class in ("Estimator", "on CPU"):
        assert "Must specify steps > 0" in ours[of_class]["evaluate -321 steps"][1]
