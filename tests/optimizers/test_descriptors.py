# SPDX-License-Identifier: Apache-2.0
"""The list of optimizers that drives the suites holds every class that the package has."""

import json
import pathlib

import pytest
from descriptors import GOLDEN_CLASSES, OPTIMIZERS, RULES, SURROUNDED, TF2_GOLDEN_CLASSES

from estimator_emb import embedding, optimizers

GOLDEN = json.loads((pathlib.Path(__file__).parents[1] / "golden.json").read_text())


def exported():
    """Every class of an optimizer that the packages show and that trains here."""
    shown = [getattr(module, name) for module in (optimizers, embedding) for name in module.__all__]
    base = optimizers.OptimizationParameters
    classes = {one for one in shown if isinstance(one, type) and issubclass(one, base)} - {base}
    return {one for one in classes if not one.only_on_hardware}


def test_there_is_one_of_each_class():
    classes = {*optimizers.PARAMETERS, *optimizers.TF2_OPTIMIZERS}
    assert classes == exported()
    assert {type(one.parameters) for one in OPTIMIZERS} == classes
    assert set(RULES) == classes


def test_golden_covers_every_optimizer():
    assert {case["optimizer"] for case in GOLDEN["cases"]} == set(GOLDEN_CLASSES)
    assert set(GOLDEN_CLASSES.values()) == set(optimizers.PARAMETERS)
    assert set(TF2_GOLDEN_CLASSES.values()) == set(optimizers.TF2_OPTIMIZERS)


def test_names_are_unique_also_where_graphs_ignore_case():
    names = [one.name.lower() for one in (*OPTIMIZERS, *SURROUNDED)]
    assert len(set(names)) == len(names)


@pytest.mark.parametrize("optimizer", OPTIMIZERS, ids=lambda one: one.name)
def test_slots_start_as_described(optimizer):
    parameters = optimizer.parameters
    assert tuple(map(parameters.initial_value, parameters.slots)) == optimizer.start
