"""Inputs that end early, drop an incomplete last batch, or are read ahead."""

import functools
import logging
from unittest import mock

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
def log(caplog):
    caplog.set_level(logging.INFO, "estimator_emb")
    return caplog


def ended(caplog):
    return [line for line in harness.said(caplog) if "input ended" in line]


@pytest.mark.parametrize(
    "way", ["no tables", *(pytest.param(way, marks=pytest.mark.slow) for way in list(WAYS)[:2])]
)
def test_an_input_that_ends_early_is_logged(way, tmp_path, log):
    estimator = make(tmp_path, **WAYS[way]) if way in WAYS else without_tables(tmp_path)
    estimator.train(input_of(12), max_steps=7)  # 12 samples are three steps.
    estimator.train(input_of(12), steps=5)
    assert estimator.get_variable_value("global_step") == 6
    assert ended(log) == [
        f"train: the input ended at step 3, before max_steps=7. {TELLS}",
        f"train: the input ended after 3 of steps=5. {TELLS}",
    ]


def test_an_emulated_tpu_says_an_early_end_once(tmp_path, log):
    with pytest.raises(tf.errors.OutOfRangeError, match="The input ended after 3 steps"):
        make(tmp_path, **WAYS["emulated, 2 cores"]).train(input_of(12), max_steps=7)
    assert ended(log) == []  # The error says it.


def test_only_an_op_of_the_sessions_graph_ends_its_input():
    ended, other = mock.Mock(graph="the session's"), mock.Mock(graph="another")
    of_op = functools.partial(tf.errors.OutOfRangeError, message="")
    for error, said in (
        (of_op(None, ended), True),
        (of_op(None, other), False),
        (of_op(None, None), False),  # Of a hook.
        (guarded_input.InputEndedError("in an evaluation"), False),
    ):
        try:
            raise error
        except Exception:
            assert guarded_input._input_ended(ended) is said
    assert not guarded_input._input_ended(ended)


def test_an_end_before_the_requested_step_is_logged(log, monkeypatch):
    monkeypatch.setattr(guarded_input, "_input_ended", lambda session: True)
    for first, last, asked, said in (
        (2, 5, {}, ""),
        (2, 5, {"steps": 3}, ""),
        (2, 5, {"steps": 4}, f"after 3 of steps=4. {TELLS}"),
        (2, 5, {"max_steps": 5}, ""),
        (2, 5, {"max_steps": 6}, f"at step 5, before max_steps=6. {TELLS}"),
        (5, 5, {"max_steps": 6}, "at step 5, before max_steps=6. No step raised the global step"),
    ):
        log.clear()
        hook, session = guarded_input._Trained(Call(Runs.LOCAL, "train", **asked)), mock.Mock()
        hook._global_step = None
        session.run.side_effect = [first, last]
        hook.after_create_session(session, None)
        hook.after_run(None, None)
        hook.end(session)
        assert said in log.text and bool(ended(log)) == bool(said)
    hook.any, session.run.side_effect = False, [6]
    hook.end(session)
    assert hook.any  # KMeans counts a step whose `run` ended for want of a second batch.


def features(ids):
    return {"id": ids}


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
        return tf.data.Dataset.from_generator(ask, output_signature=signature).map(features)

    answers = estimator.predict(input_fn, yield_single_examples=False)
    answered = []
    for asked in (0, 1, 0, 1):
        question[0] = asked
        (values,) = next(answers).values()
        answered.append(values[0, 0])
    answers.close()
    assert answered == [answered[0], answered[1]] * 2 and answered[0] != answered[1]


def test_the_programs_own_prefetch_is_kept():
    options = tf.data.Options()
    options.experimental_optimization.inject_prefetch = True
    asked = tf.data.Dataset.range(3).with_options(options)
    assert guarded_input.with_late_reads(Call(Runs.PLAIN, "predict"), asked) is asked


@pytest.mark.usefixtures("installed")
@pytest.mark.fast(1)
@pytest.mark.parametrize("way", ["plain", "local"])
def test_an_evaluation_that_never_ends_is_reported(way, tmp_path, caplog, monkeypatch):
    monkeypatch.setattr(guarded_input, "_MINUTE", -60.0)

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

    caplog.clear()
    estimator.evaluate(lambda params=None: batches().take(3))
    estimator.evaluate(batches, steps=3)
    assert not any("never ends" in line for line in harness.said(caplog))


@pytest.mark.usefixtures("installed")
def test_only_an_input_of_plain_tensors_warns_that_predict_yields_forever(tmp_path, caplog):
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
    tensors = estimator.predict(lambda: {"x": tf.ones([1, 2])})
    assert [next(tensors), next(tensors)] == [2.0, 2.0]
    assert "yields forever" in caplog.text
