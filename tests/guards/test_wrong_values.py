"""Wrong values of input_fn and model_fn are refused, and errors in model_fn are explained."""

import re
import types

import numpy as np
import pytest
import tensorflow as tf
from harness import refusal, tables_spec

import estimator_emb as ee
from estimator_emb.guards import input_fn, model, table_use
from estimator_emb.guards.call import Call, Runs
from estimator_emb.guards.events import Facts, ModelBatch

v1 = tf.compat.v1


def test_wrong_values_of_input_fn_are_refused():
    def read(value, runs=Runs.EMULATED):
        input_fn.input_values(Call(runs, has_spec=True), "f", value)

    in_parts = tf.data.Dataset.from_tensors((0, {"x": 0}))
    assert refusal(TypeError, read, b"").startswith("f must return a Dataset")
    assert "f returned a tensor. Are features and labels" in refusal(ValueError, read, in_parts)
    assert refusal(ValueError, read, 3).endswith("f returned a int.")
    assert "f returned NumPy arrays" in refusal(TypeError, read, {"x": np.ones(4)})
    read({"x": np.ones(4)}, Runs.LOCAL)


def test_wrong_values_of_model_fn_are_refused():
    def returned(spec, mode, runs=Runs.EMULATED):
        return model.model_values(Facts(Call(runs, mode=mode, model_fn=returned)), spec)

    assert refusal(ValueError, returned, "x" * 79, "eval").endswith("returned a str.")
    with tf.Graph().as_default():
        loss = tf.constant(1.0)
        spec = ee.TPUEstimatorSpec("eval", loss=loss)
        assert "of mode 'eval'. Pass it the mode" in refusal(ValueError, returned, spec, "train")
        returned(spec, "infer", Runs.LOCAL)
        spec = ee.TPUEstimatorSpec("infer", predictions={"x": tf.ones([4]), "y": loss})
        assert "predictions['y'] is a scalar" in refusal(ValueError, returned, spec, "infer")
        for metrics, runs, said in (
            (None, Runs.LOCAL, "it returned None. Is its `return` missing?"),
            ([1], Runs.LOCAL, "it returned [1]."),
            ({1: (loss, loss)}, Runs.LOCAL, "for 1."),
            ({"x": (1, 2)}, Runs.LOCAL, "it returned (1, 2) for 'x'."),
            ({"x": tf.keras.metrics.Mean}, Runs.EMULATED, "returned a Keras metric for 'x'."),
        ):
            given = (lambda value: value, [loss])
            spec = ee.TPUEstimatorSpec("eval", loss=loss, eval_metrics=given)
            function, _ = returned(spec, "eval", runs).eval_metrics
            assert said in refusal(TypeError, function, metrics)


def test_errors_of_model_fn_are_explained():
    def explained(error, mode="train", has_spec=False):
        call = Call(Runs.LOCAL, mode=mode, has_spec=has_spec, model_fn=lambda labels: None)
        facts = Facts(call)
        facts.batch = ModelBatch({"word": 1}, None)
        model.model_errors(facts, error)
        input_fn.missing_labels(facts, error)
        return str(error)

    keras = type("Adam", (), {"__module__": "keras.src"})()
    for owner, said in (
        (ee.AdagradParameters(0.1), "it trains embedding tables"),
        (keras, "use an optimizer of tf.compat.v1.train"),
    ):
        assert said in explained(AttributeError("no", name="minimize", obj=owner))
        assert explained(AttributeError("no", name="rate", obj=owner)) == "no"
    spec = tables_spec({"word": ee.TableConfig(4, 2)}, ee.AdagradParameters(0.1))
    assert "features ['word'] as input_fn yields them" in explained(ValueError("wrong shape"))
    for text, has_spec in (("wrong", False), ("wrong shape", True)):
        assert explained(ValueError(text), has_spec=has_spec) == text
    assert list(spec.feature_to_config_dict) == ["word"]  # The spec lives until here.
    with pytest.raises(TypeError) as caught:
        None + 1  # noqa: B018 - A label.
    assert "as for every prediction" in explained(caught.value, "infer")
    assert explained(ValueError("None"), "infer") == "None"


def test_a_loss_of_all_pairs_of_samples_is_logged(caplog):
    facts = Facts(Call(Runs.LOCAL, mode="train"))
    with tf.Graph().as_default():
        x, labels, any_shape = (v1.placeholder(tf.float32, one) for one in ([4, 1], [4], None))
        facts.batch = ModelBatch(x, labels)
        pairs = [tf.abs(x) - labels * tf.cast(tf.size(x), tf.float32), labels - x]
        rows = [x - labels[:, None], x - any_shape, x[:1] - labels[:1], x - tf.ones([4])]
        rows += [labels - tf.reshape(labels, [4, 1]), labels - tf.ones([4, 1])]
        loss = tf.add_n([tf.reduce_sum(one) for one in pairs + rows])
        model.spread_labels(facts, ee.TPUEstimatorSpec("eval", loss=loss))
    said = r"Sub of \(4,\), from labels, and \(4, 1\) gives \(4, 4\)\..* The op '(\w+)' was made"
    assert sorted(re.findall(said, caplog.text)) == ["sub", "sub_1"]


def test_an_activation_compared_as_an_id_is_logged(caplog):
    table = types.SimpleNamespace(features=[types.SimpleNamespace(key=key) for key in "xy"])
    facts = Facts(Call(Runs.LOCAL, tables=[table]))
    with tf.Graph().as_default():
        x, other = v1.placeholder(tf.float32, [4, 1]), v1.placeholder(tf.float32, [4, 1])
        facts.batch = ModelBatch({"x": x, "other": other, "y": [x]}, None)
        for one in (x, tf.reshape(x, [4]), other, x + 1.0):
            tf.cast(one, tf.int32, name="ids"), tf.cast(one, tf.float64), tf.equal(one, 2.0)
        table_use.compared_activations(facts, None)
    ops = re.findall(r"reads features\['x'\] as ids \(op (\w+)\)", caplog.text)
    assert sorted(ops) == ["Equal", "Equal_1", "ids", "ids_1"]
