"""The list of optimizers in the test suites has every class of the package."""

import importlib
import pkgutil

import pytest
from descriptors import GOLDEN_CLASSES, OPTIMIZERS, RULES, SURROUNDED, TF2_GOLDEN_CLASSES
from golden_training import GOLDEN

import estimator_emb as ee
from estimator_emb import embedding, optimizers


def written():
    """Returns the package's optimizer classes."""
    names = [info.name for info in pkgutil.iter_modules(optimizers.__path__)]
    modules = [importlib.import_module(f"{optimizers.__name__}.{name}") for name in names]
    return {
        value
        for module in modules
        if not module.__name__.rpartition(".")[2].startswith("_")
        for value in vars(module).values()
        if isinstance(value, type) and value.__module__ == module.__name__
    }


def test_every_class_has_a_descriptor():
    classes = {*optimizers.PARAMETERS, *optimizers.TF2_OPTIMIZERS}
    assert classes == written()
    assert {type(one.parameters) for one in OPTIMIZERS} == classes
    assert set(RULES) == classes
    for one in optimizers.PARAMETERS:
        assert getattr(ee, one.__name__) is getattr(optimizers, one.__name__) is one
        assert one.__name__ in ee.__all__
    assert {one.__name__ for one in optimizers.TF2_OPTIMIZERS} < {*embedding.__all__}


def test_golden_covers_every_optimizer():
    assert {case["optimizer"] for case in GOLDEN["cases"]} == set(GOLDEN_CLASSES)
    assert set(GOLDEN_CLASSES.values()) == set(optimizers.PARAMETERS)
    assert set(TF2_GOLDEN_CLASSES.values()) == set(optimizers.TF2_OPTIMIZERS)


def test_descriptor_names_are_unique_ignoring_case():
    names = [one.name.lower() for one in (*OPTIMIZERS, *SURROUNDED)]
    assert len(set(names)) == len(names)


@pytest.mark.parametrize("optimizer", OPTIMIZERS, ids=lambda one: one.name)
def test_slots_start_as_described(optimizer):
    parameters = optimizer.parameters
    assert tuple(map(parameters.initial_value, parameters.slots)) == optimizer.start
