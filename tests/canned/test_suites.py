"""The test suites of linear models and networks in tensorflow-estimator's wheel pass.

Its modules `canned/*_testing_utils*.py` hold the test cases, in classes whose constructors take the
estimators. This file chooses the estimators, as tensorflow-estimator's own test files did.
"""

import importlib
import inspect
import itertools
import unittest

import pytest
import tensorflow as tf
from tensorflow.python.feature_column import feature_column, feature_column_v2
from tensorflow_estimator.python.estimator.canned import dnn, dnn_linear_combined, linear

MODULES = {
    "v1": ("v1.dnn_testing_utils_v1", "v1.linear_testing_utils_v1"),
    "v2": ("dnn_testing_utils", "linear_testing_utils"),
}
UNFIT = {
    "combined": "testPartitioner testSparseCombiner "
    "test_warm_starting_with_vocab_remapping_and_partitioning",  # They need unsupported arguments.
    "v1 feature_column_v2": "test_compute_fraction_of_zero_v2",  # Also fails on TensorFlow 2.15.
}
"""Part of a suite's name -> tests that do not apply to it."""


def half_of(combined, kind):
    """Returns a function that makes a combined model with only its linear or its deep half."""

    def made(**kwargs):
        prefixed = {"feature_columns", "hidden_units", "optimizer"}
        names = {key: f"{kind}_{key}" if key in prefixed else key for key in kwargs}
        return combined(**{names[key]: value for key, value in kwargs.items()})

    return made


def estimators(version, combined):
    """Returns the objects that the test cases need, by the names of constructor parameters."""
    end = "V2" if version == "v2" else ""
    found = {}
    for kind, prefix, module in (("dnn", "DNN", dnn), ("linear", "Linear", linear)):
        for task in ("Classifier", "Regressor"):
            made = getattr(module, prefix + task + end)
            if combined:
                whole = getattr(dnn_linear_combined, f"DNNLinearCombined{task}{end}")
                made = half_of(whole, kind)
            found[f"{kind}_{task.lower()}_fn"] = made
    if not combined:
        found["dnn_model_fn"] = dnn.dnn_model_fn_v2 if end else dnn._dnn_model_fn
        builder = dnn.dnn_logit_fn_builder_v2 if end else dnn.dnn_logit_fn_builder
        found["dnn_logit_fn_builder"] = builder
    return found


def collect():
    """Returns {name: (class, arguments of its constructor, method)} of all tests.

    Each version, model and implementation of columns has its own suite.
    """
    found = {}
    for version, columns, combined in (
        *itertools.product(["v1"], [feature_column, feature_column_v2], ["", " combined"]),
        *itertools.product(["v2"], [feature_column_v2], ["", " combined"]),
    ):
        suite = f"{version} {columns.__name__.rpartition('.')[2]}{combined}"
        given = estimators(version, combined)
        unfit = " ".join(names for part, names in UNFIT.items() if part in suite).split()
        for module in MODULES[version]:
            module = importlib.import_module(f"{dnn.__package__}.{module}")
            for name, base in vars(module).items():
                if name.startswith("Base"):
                    parameters = list(inspect.signature(base.__init__).parameters)[1:]
                    wanted = [one.lstrip("_") for one in parameters]
                    if set(wanted[:-1]) <= set(given) and (not combined or wanted[:-1]):
                        arguments = [*(given[one] for one in wanted[:-1]), columns]
                        tests = unittest.defaultTestLoader.getTestCaseNames(base)
                        for method in set(tests) - set(unfit):
                            found[f"{suite} {name[4:]}.{method}"] = (base, arguments, method)
    return dict(sorted(found.items()))


TESTS = collect()


@pytest.fixture(autouse=True)
def filtering():
    """Filters tracebacks again, because TensorFlow's test cases turn this off."""
    yield
    tf.debugging.enable_traceback_filtering()


@pytest.mark.slow
@pytest.mark.sampled(20)
@pytest.mark.parametrize("name", TESTS)
def test_a_suite_of_tensorflow_estimator_passes(name):
    base, arguments, method = TESTS[name]

    class Case(base, tf.test.TestCase):
        assertEquals = tf.test.TestCase.assertEqual  # noqa: N815 - until Python 3.11.

        def __init__(self):
            tf.test.TestCase.__init__(self, method)
            base.__init__(self, *arguments)

    Case().debug()  # Runs the method without a runner, so a failure raises.


def test_finds_over_500_tests_of_tensorflow_estimator():
    assert len(TESTS) > 500
