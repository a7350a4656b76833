"""Inputs that end early, drop an incomplete last batch, or are read ahead.

`make` returns a TPUEstimator with a table. The batches of `input_of(samples)` have 4 samples. WAYS
says where an estimator runs: way -> arguments of `make`.
"""

import itertools
import types

import harness
import numpy as np
import pytest
import tensorflow as tf
from id_program import WAYS, input_of, make
from small_programs import without_tables

import estimator_emb as ee
from estimator_emb.guards import input_fn as guarded_input
from estimator_emb.guards.call import Call, Runs

v1 = tf.compat.v1
TELLS = "To train on, repeat() its dataset."


@pytest.fixture(autouse=True)
def log_is_shown(caplog):
    caplog.set_level("INFO", "estimator_emb")


def ended(caplog):
    return [line for line in harness.said(caplog) if "input ended" in line]


@pytest.mark.parametrize("way", ["no tables", *(harness.slow(way) for way in list(WAYS)[:2])])
def test_an_input_that_ends_early_is_logged(way, tmp_path, caplog):
    estimator = make(tmp_path, **WAYS[way]) if way in WAYS else without_tables(tmp_path)
    estimator.train(input_of(12), max_steps=7)  # 12 samples are three steps.
    estimator.train(input_of(12), steps=5)
    assert estimator.get_variable_value("global_step") == 6
    assert ended(caplog) == [
        f"train: the input ended at step 3, before max_steps=7. {TELLS}",
        f"train: the input ended after 3 of steps=5. {TELLS}",
    ]


def test_an_emulated_tpu_says_an_early_end_once(tmp_path, caplog):
    with pytest.raises(tf.errors.OutOfRangeError, match="The input ended after 3 steps"):
        make(tmp_path, **WAYS["emulated, 2 cores"]).train(input_of(12), max_steps=7)
    assert ended(caplog) == []  # The error says it.


def ending(error):
    """Returns a hook that ends a training after two steps, maybe by an error that ends inputs."""
    if error is None:
        return v1.train.StopAtStepHook(last_step=2)
    errors = iter([None, error])

    def end():
        if raised := next(errors):
            raise raised

    return harness.AfterStep(end)


OF_PROGRAM = tf.errors.OutOfRangeError(None, None, "of the program")


@pytest.mark.fast(1)
@pytest.mark.parametrize(
    "error", [None, StopIteration(), OF_PROGRAM], ids=lambda one: type(one).__name__
)
def test_an_end_by_a_hook_is_not_logged(error, tmp_path, caplog):
    estimator = without_tables(tmp_path)
    estimator.train(input_of(12), hooks=[ending(error)], max_steps=7)
    assert estimator.get_variable_value("global_step") == 2
    assert ended(caplog) == []


def test_an_intended_end_is_not_logged(tmp_path, caplog):
    """The training has no number of steps, or the input has exactly enough."""
    estimator = without_tables(tmp_path)
    estimator.train(input_of(12))  # Three steps.
    estimator.train(input_of(12), max_steps=6)
    assert ended(caplog) == []


@pytest.mark.usefixtures("installed")
@pytest.mark.parametrize("way", ["table", "plain"])
def test_predict_answers_before_it_reads_the_next_batch(way, tmp_path):
    """A service's generator may yield the current question each time it is asked."""

    def echo(features, labels, mode, spec):
        return spec(mode, predictions={"id": tf.identity(features["id"])})

    if way == "plain":
        estimator = harness.of_kind(way, echo, tmp_path)
    else:
        table = ee.TableConfig(3, 2, harness.initializer(np.arange(6.0).reshape(3, 2)))
        spec = harness.tables_spec({"id": table}, ee.AdagradParameters(0.1))
        estimator = harness.estimator(harness.gradient_model_fn(["id"]), spec, tmp_path)
    question = [0]

    def ask():
        while True:
            yield np.full([4, 1], question[0])

    def input_fn(params=None):
        signature = tf.TensorSpec([4, 1], tf.int64)
        questions = tf.data.Dataset.from_generator(ask, output_signature=signature)
        return questions.map(lambda ids: {"id": ids})

    answers = estimator.predict(input_fn, yield_single_examples=False)
    answered = []
    for asked in (0, 1, 0, 1):
        question[0] = asked
        (values,) = next(answers).values()
        answered.append(values[0, 0])
    answers.close()
    # Read a batch ahead, an answer would be to the question before.
    assert answered == [answered[0], answered[1]] * 2 and answered[0] != answered[1]


def test_only_predictions_without_a_prefetch_of_the_program_read_late():
    """A prediction's dataset gets an option against a prefetch, unless the program sets it."""
    predict, given = Call(Runs.PLAIN, "predict"), tf.data.Dataset.range(3)
    assert guarded_input.with_late_reads(predict, given) is not given
    for other in (Call(Runs.PLAIN, "train"), Call(Runs.EMULATED, "predict")):
        assert guarded_input.with_late_reads(other, given) is given  # TensorFlow reads ahead.
    options = tf.data.Options()
    options.experimental_optimization.inject_prefetch = True
    asked = given.with_options(options)
    assert guarded_input.with_late_reads(predict, asked) is asked


@pytest.mark.usefixtures("installed")
@pytest.mark.fast(1)
@pytest.mark.parametrize("way", ["plain", "local"])
def test_an_evaluation_that_never_ends_is_reported(way, tmp_path, caplog, monkeypatch):
    """Only if the dataset repeats and the program gives no steps, and only once."""
    clock = itertools.count(step=30)  # Half a minute passes between two looks at the clock.
    monkeypatch.setattr(guarded_input, "time", types.SimpleNamespace(monotonic=clock.__next__))

    def batch(number):
        ends = tf.debugging.assert_less(number, np.int64(5), "ends this test")
        with tf.control_dependencies([ends]):
            return {"x": tf.ones([4, 1])}, tf.ones([4, 1])

    def batches(params=None):
        return tf.data.Dataset.counter().map(batch)

    def model(features, labels, mode, spec):
        return spec(mode, loss=tf.reduce_sum(features["x"] * v1.get_variable("w", [1])))

    estimator = harness.of_kind(way, model, tmp_path)
    with pytest.raises(tf.errors.OpError, match="ends this test"):
        estimator.evaluate(batches)
    assert len([line for line in harness.said(caplog) if "never ends" in line]) == 1
    assert next(clock) == 120  # It began at 0 and looked at 30, 60 and 90: then a minute was over.
    caplog.clear()
    estimator.evaluate(lambda params=None: batches().take(3))
    estimator.evaluate(batches, steps=3)
    assert not any("never ends" in line for line in harness.said(caplog))


@pytest.mark.usefixtures("installed")
def test_only_an_input_of_plain_tensors_warns_that_predict_yields_forever(tmp_path, caplog):
    """`sparse` reads an iterator, which ends. Stock warns if an op comes after the iterator."""

    def model(features, labels, mode):
        total = tf.add_n([tf.reduce_sum(one, 1) for one in features.values()])
        return tf.estimator.EstimatorSpec(mode, predictions=total)

    def sparse():
        data = tf.data.Dataset.from_tensors({"x": tf.sparse.from_dense([[1.0, 0.0], [2.0, 3.0]])})
        (words,) = v1.data.make_one_shot_iterator(data).get_next().values()
        return {"x": tf.sparse.to_dense(words)}

    estimator = tf.estimator.Estimator(model, str(tmp_path))
    assert [*estimator.predict(sparse)] == [1.0, 5.0]
    assert "yields forever" not in caplog.text
    tensors = estimator.predict(lambda: {"x": tf.ones([1, 2])})  # Nothing ends them.
    assert [next(tensors), next(tensors)] == [2.0, 2.0]
    assert "yields forever" in caplog.text
