"""What is wrong in a program's values and graphs, judged by the checks without a training."""

import collections
import re
import sys
import types

import numpy as np
import pytest
import tensorflow as tf
from harness import refusal, tables_spec

import estimator_emb as ee
from estimator_emb.catalog.limits import HOW_TO_EMULATE, HOW_TO_OUTFEED
from estimator_emb.guards import call_errors, input_fn, model, table_use
from estimator_emb.guards.call import Call, Runs
from estimator_emb.guards.checks import batch_names
from estimator_emb.guards.events import Facts, ModelBatch
from estimator_emb.spec.resolved import tables_of

v1 = tf.compat.v1


def test_wrong_values_of_input_fn_are_refused():
    local, emulated = Call(Runs.LOCAL), Call(Runs.EMULATED)
    with_spec, dataset = Call(Runs.LOCAL, has_spec=True), tf.data.Dataset.from_tensors
    for call, value, error, said in (
        (local, (one for one in []), TypeError, "it returned a generator. For Python"),
        (local, "text", TypeError, "it returned a str."),
        (local, iter(dataset(1)), TypeError, "it returned an iterator, OwnedIterator. Return the"),
        (local, (1, 2, 3), ValueError, "(features, labels) as a len 2 tuple; got 3 parts."),
        (with_spec, dataset((1, {"x": 2})), ValueError, "a tensor. Are features and labels swap"),
        (with_spec, (1, 2), ValueError, "input_fn returned a int."),
        (emulated, {"x": np.ones(2)}, TypeError, "returned NumPy arrays or numbers"),
    ):
        message = refusal(error, input_fn.input_values, call, "input_fn", value)
        assert said in message and ("swap" in message) == ("swap" in said)
    three = collections.namedtuple("Features", "a b c")(1, 2, 3)
    for call, value in (
        *((local, one) for one in (three, np.ones(2))),
        *((emulated, one) for one in (tf.ones(1), dataset(1))),
        *((with_spec, one) for one in ({"x": 1}, ({"x": 1}, 2))),
    ):
        input_fn.input_values(call, "input_fn", value)


def test_parts_of_unknown_shape_are_named():
    error = ValueError("The features to the model returned by input_fn must have static shape.")
    with tf.Graph().as_default():
        unknown = v1.placeholder(tf.float32, [None, 1])
        said = batch_names.explain(error, {"x": [tf.ones([4, 1]), unknown]}, unknown, samples=None)
    assert re.findall(r"\n(\S+) has shape", str(said)) == ["features['x'][1]", "labels"]


def test_weights_are_named_after_their_feature():
    spec = tables_spec({"t": ee.TableConfig(4, 2)}, ee.AdagradParameters(0.1))
    spec.feature_to_config_dict["t"] = ee.FeatureConfig("t", weight_key="w")
    owner = batch_names.owner("features['w'] of core 1", tables_of(spec))
    assert owner == "Feature t of table t: its weights w of core 1"
    assert batch_names.owner("features['y']", tables_of(spec)) == "features['y']"


def test_advice_is_added_to_an_error_once():
    """An error of an evaluation inside a training passes through both calls."""
    # `shortened` adds advice to some errors of a call, and `known_errors` to some of a graph.
    for runs, error, advice, times in (
        (Runs.PLAIN, ValueError("must be from the same graph as", "more"), "graph of its own:", 1),
        (Runs.EMULATED, ValueError("has been marked as not fetchable", "more"), HOW_TO_OUTFEED, 1),
        (Runs.LOCAL, ValueError("has been marked as not fetchable"), HOW_TO_OUTFEED, 0),  # No TPU.
        (Runs.TPU, RuntimeError("Cannot find any TPU cores"), HOW_TO_EMULATE, 1),
        (Runs.TPU, RuntimeError("of the program"), HOW_TO_EMULATE, 0),
    ):
        train, evaluate, given = Call(runs, "train"), Call(runs, "evaluate"), error.args
        with pytest.raises(type(error)) as caught:
            with call_errors.shortened(train), call_errors.shortened(evaluate):
                raise error
        for call in (evaluate, train):
            call_errors.known_errors(call, caught.value)
        text, *more = caught.value.args
        assert text.count(advice) == times and more == list(given[1:])


def test_optimizers_of_keras_3_are_refused_in_a_model_fn(monkeypatch):
    class Optimizer:
        def apply(self, gradients): ...
        def apply_gradients(self, gradients_and_variables): ...

    optimizers = types.SimpleNamespace(Optimizer=Optimizer)
    third = types.SimpleNamespace(__version__="3.1.0", optimizers=optimizers)
    monkeypatch.setitem(sys.modules, "keras", third)
    with tf.Graph().as_default():
        with model.wrong_optimizers(Facts(Call(Runs.LOCAL))):
            for name in ("apply", "apply_gradients"):
                said = refusal(ValueError, getattr(Optimizer(), name), [])
                assert said.startswith(f"Optimizer.{name}: A Keras optimizer does not train in")
        Optimizer().apply([])


def test_only_a_missing_method_of_training_gets_advice_about_keras_3():
    class Adam: ...

    Adam.__module__ = "keras.src.optimizers.adam"
    for name, is_advised in (("minimize", True), ("learn", False)):
        with pytest.raises(AttributeError) as caught:
            getattr(Adam(), name)
        facts = Facts(Call(Runs.LOCAL))
        facts.batch = ModelBatch({}, None)
        model.model_errors(facts, caught.value)
        assert ("A Keras optimizer does not train in" in str(caught.value)) == is_advised


def test_wrong_metrics_are_refused():
    for metrics, runs, said in (  # What the metric_fn returns, where, and what the error says.
        (None, Runs.LOCAL, "it returned None. Is its `return` missing?"),
        ({1: (tf.ones([]), tf.ones([]))}, Runs.LOCAL, "for 1."),
        ({"x": (1, 2)}, Runs.LOCAL, "it returned (1, 2) for 'x'."),
        ({"x": [tf.ones([]), tf.ones([])]}, Runs.LOCAL, "and pairs (value, update op), as functi"),
        ("2" * 78, Runs.LOCAL, f"it returned '{'2' * 78}'."),  # A repr of 80 letters, the longest.
        ("2" * 79, Runs.LOCAL, "it returned a str."),
        ({"x": tf.keras.metrics.Mean}, Runs.EMULATED, "returned a Keras metric for 'x'."),
    ):
        spec = ee.TPUEstimatorSpec("eval", loss=tf.zeros([]), eval_metrics=(lambda one: one, [1]))
        facts = Facts(Call(runs, mode="eval", model_fn=lambda: None))
        # The check puts its own function around the spec's, which returns what it is given.
        checked, _ = model.model_values(facts, spec).eval_metrics
        assert said in refusal(TypeError, checked, metrics)


def test_a_shape_error_without_the_programs_spec_says_that_features_are_ids():
    """The program makes the spec, but does not give it to its TPUEstimator."""
    spec, explained = tables_spec({"mine": ee.TableConfig(4, 2)}, ee.AdagradParameters(0.1)), []
    for error, runs, has_spec in (
        (ValueError("wrong shape"), Runs.LOCAL, False),
        (ValueError("wrong"), Runs.LOCAL, False),
        (ValueError("wrong shape"), Runs.LOCAL, True),
        (ValueError("wrong shape"), Runs.PLAIN, False),  # An Estimator takes no spec.
        (RuntimeError("wrong shape"), Runs.LOCAL, False),
    ):
        facts = Facts(Call(runs, has_spec=has_spec))
        facts.batch = ModelBatch({"mine": 1, "of no spec": 1}, None)
        model.model_errors(facts, error)
        explained.append("features ['mine'] as input_fn yields them" in str(error))
    # `spec` must still be alive here: the check looks for specs among all objects.
    assert explained == [True, False, False, False, False], spec


def test_a_loss_of_all_pairs_of_samples_is_logged(caplog):
    """Labels [4] broadcast against predictions [4, 1]: each label meets each prediction."""
    facts = Facts(Call(Runs.LOCAL, mode="train"))
    with tf.Graph().as_default():
        x, labels, any_shape = (v1.placeholder(tf.float32, one) for one in ([4, 1], [4], None))
        facts.batch = ModelBatch(x, labels)
        pairs = [tf.abs(x) - labels * tf.cast(tf.size(x), tf.float32), labels - x[:, :1]]
        # One shape, a shape that is unknown, a single sample, or only one side is of the batch.
        rows = [x - labels[:, None], x - any_shape, x[:1] - labels[:1], x - tf.ones([4])]
        rows += [labels - tf.reshape(labels, [4, 1]), labels - tf.ones([4, 1])]
        loss = tf.add_n([tf.reduce_sum(one) for one in pairs + rows])
        model.spread_labels(facts, ee.TPUEstimatorSpec("eval", loss=loss))
    said = r"Sub of \(4,\), from labels, and \(4, 1\) gives \(4, 4\)\..* The op '(\w+)' was made"
    assert sorted(re.findall(said, caplog.text)) == ["sub", "sub_1"]  # The ops of `pairs`.


def test_an_activation_compared_as_an_id_is_logged(caplog):
    """Casts to integers and comparisons read ids. 'x' and 'y' are features of a table."""
    table = types.SimpleNamespace(features=[types.SimpleNamespace(key=key) for key in "xy"])
    facts = Facts(Call(Runs.LOCAL, tables=[table]))
    with tf.Graph().as_default():
        x, other = v1.placeholder(tf.float32, [4, 1]), v1.placeholder(tf.float32, [4, 1])
        # 'other' is of no table, and the activation of 'y' is not a tensor.
        facts.batch = ModelBatch({"x": x, "other": other, "y": [x]}, None)
        for one in (x, tf.reshape(x, [4]), other, x + 1.0):
            tf.cast(one, tf.int32, name="ids"), tf.cast(one, tf.float64), tf.equal(one, 2.0)
            tf.cast(tf.shape(one), tf.int64)
        table_use.compared_activations(facts, None)
    ops = re.findall(r"reads features\['x'\] as ids \(op (\w+)\)", caplog.text)
    assert sorted(ops) == ["Equal", "Equal_1", "ids", "ids_1"]  # Of x and of x reshaped.
