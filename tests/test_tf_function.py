"""Estimator calls inside a `tf.function` act as outside it: AutoGraph does not rewrite them.

AutoGraph would turn an `if` or a loop of model_fn, or of this package, into ops of the graph.
"""

import functools
import traceback

import harness
import numpy as np
import pytest
import tensorflow as tf
from words_program import call, input_fn, make

import estimator_emb as ee


def note_rewritten(seen, what):
    """Stores the names of running functions that AutoGraph has rewritten in `seen[what]`."""
    frames = traceback.extract_stack()
    seen[what] = [one.name for one in frames if "__autograph_generated" in one.filename]


def endless_input_fn(params):
    def mapped(features, labels):
        # AutoGraph rewrites functions that the program passes to a dataset, as it does outside.
        if tf.reduce_sum(labels) > 0.0:
            labels = -labels
        return features, labels

    return input_fn(params).map(mapped).repeat()


@pytest.mark.slow
@pytest.mark.parametrize("way", ["host", "emulated"])
def test_calls_in_a_tf_function_equal_calls_outside(way, tmp_path):
    # `make` returns the estimator of tests/lib/words_program.py, and `call` exports its model.
    estimators = {place: make(tmp_path / place, way) for place in ("inside", "outside")}
    found, seen = {}, {}
    hooks = {
        what: harness.AfterStep(functools.partial(note_rewritten, seen, what))
        for what in ("train", "evaluate", "predict")
    }

    def calls(place):
        estimator = estimators[place]
        estimator.train(endless_input_fn, hooks=[hooks["train"]], steps=3)
        found[place] = {
            "evaluate": estimator.evaluate(input_fn, steps=1, hooks=[hooks["evaluate"]]),
            "predict": list(estimator.predict(input_fn, hooks=[hooks["predict"]])),
        }
        call("export", estimator)
        train_spec = ee.TrainSpec(endless_input_fn, max_steps=5)
        ee.train_and_evaluate(estimator, train_spec, ee.EvalSpec(input_fn, steps=1))

    calls("outside")
    tf.function(calls)("inside")
    assert seen == dict.fromkeys(hooks, ["tf__calls"])  # AutoGraph rewrote only `calls`.
    inside, outside = (harness.saved(tmp_path / place, 5) for place in ("inside", "outside"))
    assert inside["global_step"] == 5
    np.testing.assert_equal(inside, outside)
    np.testing.assert_equal(found["inside"], found["outside"])
