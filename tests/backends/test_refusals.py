"""An emulated TPU and `check` refuse what a TPU refuses, in the same words.

The reference is tensorflow-estimator on a TPU that is only described. Each program of `refused` is
built there too, up to the session, and must fail in the same way.

A `Program` is a small training, of which a case replaces parts. Its `emulated` and `described` make
its estimator on an emulated and on the described TPU.
"""

import functools
import re

import harness
import pytest
import tensorflow as tf
import tpu_described
from refused import (
    CASES,
    OTHER_GRAPH,
    SCALAR,
    Fetches,
    by_dicts,
    divided,
    ids_and_weights,
    loss_of_type,
    of_type,
    with_hook,
)
from tensorflow.python.ops import control_flow_util
from tensorflow_estimator.python.estimator.tpu import tpu_estimator
from tpu_described import Program, sparse_of

import estimator_emb as ee
from estimator_emb import preflight
from estimator_emb.backends import tpu_checks
from estimator_emb.catalog.limits import HOW_TO_OUTFEED, collected
from estimator_emb.spec.resolved import tables_of

v1 = tf.compat.v1


@pytest.fixture(autouse=True)
def loops_of_the_v1_kind(monkeypatch):
    """Selects control flow v1. With it, a TPU's errors have their well-known phrases."""
    monkeypatch.setattr(control_flow_util, "ENABLE_CONTROL_FLOW_V2", False)


def as_a_session_would(made, program):
    """Trains on the described TPU, and does what TensorFlow does when a session begins."""
    reached = tpu_described.train(made, program.input_fn)
    with reached.graph.as_default():
        for hook in reached.hooks:
            if isinstance(hook, Fetches):
                hook.begin()
        (reached.scaffold or v1.train.Scaffold()).finalize()
    return reached


def fetched(hooks):
    """Returns the tensors that model_fn's hooks request."""
    return [one.tensor for one in hooks if isinstance(one, Fetches)]


@pytest.mark.parametrize("case", CASES)
def test_an_emulated_tpu_refuses_each_case(case, tmp_path):
    """Each of CASES has a program, and the type and a phrase of the TPU's error."""
    program, kind, phrase, *_ = CASES[case]
    with pytest.raises(kind) as error:
        program.emulated(tmp_path).train(program.input_fn, steps=2)
    assert phrase in str(error.value)
    assert not list(tmp_path.glob("model.ckpt-[1-9]*"))


def test_a_hook_that_fetches_from_a_tpu_is_told_what_to_do(tmp_path):
    losses = []
    program = with_hook(lambda loss: losses.append(loss) or Fetches(loss))
    with pytest.raises(ValueError, match="not fetchable") as error:
        program.emulated(tmp_path).train(program.input_fn, steps=2)
    assert str(error.value).count(HOW_TO_OUTFEED) == 1
    assert not losses[0].graph.is_feedable(losses[0])


@pytest.mark.slow
@pytest.mark.sampled(16)
@pytest.mark.parametrize("case", CASES)
def test_a_described_tpu_refuses_each_case(case, tmp_path, monkeypatch):
    program, kind, phrase, *_ = CASES[case]
    # Only control flow v2 builds the loop's body in a graph of its own.
    monkeypatch.setattr(control_flow_util, "ENABLE_CONTROL_FLOW_V2", phrase == OTHER_GRAPH)
    with pytest.raises(kind) as error:
        reached = as_a_session_would(program.described(tmp_path), program)
        with v1.Session(graph=reached.graph) as session:
            session.run(fetched(reached.hooks))  # A hook's fetch fails only here.
    # On the TPU, names may get another number, because the TPU's own ops count too.
    assert phrase in re.sub(r"Merge_\d+/", "Merge/", str(error.value))


@pytest.mark.fast(5)
@pytest.mark.parametrize("case", CASES)
def test_check_refuses_each_case(case, tmp_path):
    """`check` opens no session, so it cannot see the programs that are refused there."""
    program, _, phrase, *words_of_check = CASES[case]
    (words,) = words_of_check or [phrase]
    made, cores = program.emulated(tmp_path), program.replicas
    report = preflight.check_program(made, program.input_fn, compile=False, replicas=cores)
    if words is None:  # Only a session refuses the program.
        assert not report.findings
    else:
        assert words in str(report.findings[0])


@pytest.mark.fast(2)
@pytest.mark.parametrize(("mode", "replicas"), [("evaluate", 8), ("predict", 1)])
@pytest.mark.parametrize(
    "case",
    [
        "shared weights, columns",
        "dense weights of sparse ids",
        "a weighted vocabulary column",
        "a feature of float64",
        "a lookup table",
    ],
)
def test_a_tpu_refuses_in_every_mode(case, mode, replicas, tmp_path, monkeypatch):
    """An emulated TPU also refuses evaluation and prediction, on any number of cores."""
    program, kind, phrase, *_ = CASES[case]
    monkeypatch.setattr(program, "replicas", replicas)
    steps = {"steps": 1} if mode == "evaluate" else {}
    call = mode, program.emulated(tmp_path), program.input_fn
    assert phrase in harness.refusal(kind, harness.run, *call, **steps)


def test_evaluation_refuses_a_loss_that_is_not_float32(tmp_path):
    """Prediction ignores the loss."""
    program = loss_of_type(tf.float64)
    words = "Input 'y' of 'AddV2' Op has type float64 that does not match type float32 of"
    made = program.emulated(tmp_path / "here")
    message = harness.refusal(TypeError, made.evaluate, program.input_fn, steps=1)
    assert message.startswith(f"{words} argument 'x': the loss of model_fn is float64.")
    described = program.described(tmp_path / "there")
    assert words in harness.refusal(TypeError, tpu_described.evaluate, described, program.input_fn)
    assert next(made.predict(program.input_fn))["x"].tolist() == [1.0, 1.0, 1.0]


@pytest.mark.parametrize(
    "case", [name for name, (program, *_) in CASES.items() if program.spec is not None]
)
def test_check_of_features_refuses(case):
    program, kind, phrase = CASES[case]
    with tf.Graph().as_default():
        given = tables_of(program.spec), program.batch(4)[0]
        assert phrase in harness.refusal(kind, tpu_checks.check_features, *given)


@pytest.mark.parametrize("combiner, length", [("mean", 0), (None, 2)])
def test_check_of_features_accepts_valid_features(combiner, length):
    config = {"max_sequence_length": length}
    tables = tables_of(by_dicts(combiner, a={**config, "weight_key": "w"}, b=config))
    with tf.Graph().as_default():
        sparse = {key: of(4) for key, of in ids_and_weights("a", "b").items()}
        dense = {"a": tf.ones([4, 2], tf.int64), "w": tf.ones([4, 2])}
        # A missing feature is refused elsewhere. Features may be a single tensor.
        for given in (sparse, {**sparse, **dense}, {"b": sparse["b"]}, dense["w"]):
            tpu_checks.check_features(tables, given)


def test_checks_collect_each_value_that_no_infeed_carries():
    """An infeed carries tensors of some types, with static shapes, that the cores can divide."""

    def refused(check, *arguments):
        """Returns the names of the refused values, at the beginning of each problem's text."""
        with collected() as refusals:
            check({"features": given, "labels": [tf.zeros([], tf.float16)]}, *arguments)
        return [one.problem.partition(" (")[0].partition(": ")[0] for one in refusals]

    with tf.Graph().as_default():
        given = {
            "sparse": sparse_of([1, 2])(4),
            "text": v1.placeholder(tf.string, [4, None]),
            "scalar": tf.constant(1.0),
            "whole": tf.ones([4, 2], tf.bool),
            "batch": v1.placeholder(tf.float32, [None, 2]),
            "width": v1.placeholder(tf.int32, [4, None]),
            "rank": v1.placeholder(tf.int32),
        }
        here = {name: f"features['{name}']" for name in given}
        wrong_types = [here["sparse"], here["text"], "labels[0]"]
        assert refused(tpu_checks.check_infeed, 1) == wrong_types  # On one core.
        with_scalar = [here["sparse"], here["text"], here["scalar"], "labels[0]"]
        assert refused(tpu_checks.check_infeed, 2) == with_scalar  # Two cores cannot divide it.
        dynamic = [here["batch"], here["width"], here["rank"]]
        assert refused(tpu_checks.check_static, False) == dynamic
        # True: the last batch will be padded, so that the batch size may be unknown.
        assert refused(tpu_checks.check_static, True) == dynamic[1:]


@pytest.mark.fast(2)
@pytest.mark.parametrize("as_tensors", [True, False])
@pytest.mark.parametrize("in_loop", [True, False])
def test_queues_are_refused_or_warned_of(in_loop, as_tensors, tmp_path, monkeypatch, caplog):
    """Queues are refused if input_fn's ops run in a loop. Otherwise a warning is logged."""
    monkeypatch.setattr(tpu_estimator, "_WRAP_INPUT_FN_INTO_WHILE_LOOP", in_loop)
    program = Program(as_tensors=as_tensors)

    def input_fn(params):
        v1.train.input_producer(tf.constant([1, 2, 3]))
        return program.input_fn(params)

    phrase = "Input pipeline contains one or more QueueRunners. It could be slow and not scalable."

    here, there = program.emulated(tmp_path / "here"), program.described(tmp_path / "there")
    for train in (here.train, functools.partial(tpu_described.train, there)):
        caplog.clear()
        if in_loop:
            assert harness.refusal(RuntimeError, train, input_fn, max_steps=1).startswith(phrase)
        else:
            train(input_fn, max_steps=1)
            assert phrase in caplog.text


def reads(loss):
    """Reads variables, and ops outside of the loop, when the session begins and in hooks."""
    w = v1.global_variables()[-1]
    with tf.init_scope():
        lifted = tf.constant(2.0) + 1.0
    with tf.control_dependencies(None):
        free = tf.constant(3.0) + 1.0

    def scaffold_fn():
        tf.identity(w) + lifted + free
        return v1.train.Scaffold(local_init_op=v1.local_variables_initializer())

    hooks = [Fetches(lifted), Fetches(free, makes=True)]
    return {"scaffold_fn": scaffold_fn, "training_hooks": hooks}


def outfed(loss):
    """Gives host_call a tensor of the TPU with a dimension, not a scalar."""
    return {"host_call": (lambda given: given, [loss[None]])}


TAKEN = {one.name: of_type(one) for one in (tf.bool, tf.int8, tf.uint8, tf.uint32, tf.bfloat16)}
TAKEN["input_partition_dims that fit"] = divided({"x": [2, 1]}, [1, 1])


@pytest.mark.fast(1)
@pytest.mark.parametrize("case", TAKEN)
def test_programs_that_a_tpu_accepts_train_here_too(case, tmp_path):
    program = TAKEN[case]
    made = program.emulated(tmp_path / "here")
    made.train(program.input_fn, steps=1)
    assert made.get_variable_value("global_step") == 1
    reached = tpu_described.train(program.described(tmp_path / "there"), program.input_fn)
    (replicated,) = reached.ops("TPUReplicateMetadata")
    assert replicated.get_attr("num_replicas") == program.replicas


def test_one_core_accepts_scalars(tmp_path):
    """Several cores cannot divide a scalar feature, so that a TPU refuses it there."""
    program = Program(**SCALAR, replicas=1)
    made = program.emulated(tmp_path)
    made.train(program.input_fn, steps=1)
    assert made.get_variable_value("global_step") == 1


@pytest.mark.fast(1)
@pytest.mark.parametrize(("fields", "replicas"), [(reads, 2), (outfed, 1)])
def test_ops_outside_of_the_loop_are_accepted(fields, replicas, tmp_path):
    """The loop of steps runs on the TPU. Its tensors cannot be read outside, but others can."""
    program = Program(fields=fields, replicas=replicas)
    program.emulated(tmp_path / "here").train(program.input_fn, steps=3)
    reached = as_a_session_would(program.described(tmp_path / "there"), program)
    assert all(map(reached.graph.is_fetchable, fetched(reached.hooks)))


@pytest.mark.slow
@pytest.mark.parametrize("replicas", [None, 2])
def test_an_unused_feature_trains_with_zero_gradients(replicas, tmp_path, caplog):
    def model_fn(features, labels, mode, params):
        return harness.minimized(mode, tf.reduce_sum(features["a"]), 0.1)

    table = ee.TableConfig(5, 2, tf.ones_initializer())
    spec = harness.tables_spec({"a": table, "b": table}, ee.FtrlParameters(0.1))
    program = Program(spec, features=ids_and_weights("a", "b", weights=()), replicas=replicas)
    program.model_fn = model_fn
    program.emulated(tmp_path).train(program.input_fn, steps=2)
    assert any("No gradient reaches features ['b']" in line for line in harness.said(caplog))
    # Rows 1 and 2 were looked up. FTRL recomputes them from a linear slot of 0.
    of_b = harness.saved(tmp_path, 2)["b"]
    assert not of_b[1:3].any() and of_b[[0, 3, 4]].all()
    if replicas:  # It trains on a TPU too.
        tpu_described.train(program.described(tmp_path / "described"), program.input_fn)
