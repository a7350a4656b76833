"""Training or evaluating nothing, or without labels, is an error. No steps left are logged.

`make` returns a TPUEstimator with a table. The batches of `input_of(samples)` have 4 samples. WAYS
says where an estimator runs: way -> arguments of `make`. `assert_recorded` compares a
whole message with tests/messages.json.
"""

import harness
import pytest
import tensorflow as tf
from id_program import WAYS, input_of, make
from small_programs import without_tables

import estimator_emb as ee
from estimator_emb.guards import input_fn as guarded_input
from estimator_emb.guards.call import Call, Runs
from estimator_emb.guards.events import Facts, ModelBatch
from estimator_emb.legacy.input_checkpoint import CheckpointInputPipelineHook

NOTHING_TO_EVALUATE = "evaluate: input_fn yielded no batch, so there is nothing to evaluate."
NOTHING_TO_TRAIN = "train: input_fn yielded no batch"


@pytest.fixture
def log(caplog):
    """Returns a function that returns this package's log lines since its last call."""
    caplog.set_level("WARNING", "estimator_emb")

    def lines():
        found = harness.said(caplog)
        caplog.clear()
        return found

    return lines


def check_input_ends(begin, call, *args, **kwargs):
    """Asserts that a call raises OutOfRangeError, and returns the message, which starts so."""
    with pytest.raises(tf.errors.OutOfRangeError) as error:
        call(*args, **kwargs)
    assert error.value.message.startswith(begin)
    return error.value.message


def check_reads_input(call, estimator, **kwargs):
    """Asserts that a call reads its input, which ends the call by an error."""
    if call != "predict":
        kwargs["steps"] = 1
    with pytest.raises(ZeroDivisionError):
        harness.run(call, estimator, lambda params: 1 / 0, **kwargs)


@pytest.mark.parametrize(
    "way",
    [pytest.param(way, marks=[pytest.mark.slow] * (way != "host, pipelined")) for way in WAYS],
)
def test_a_run_without_batches_is_an_error(way, tmp_path, log, assert_recorded):
    """A training on the host, not pipelined, only warns: it ends without an error, as in stock."""
    estimator = make(tmp_path, **WAYS[way])
    raises_error = way.startswith("emulated") or "pipelined" in way  # The first lookup fails.
    estimator.train(input_of(16), max_steps=2)  # A step takes 4 samples, so 3 are no batch.
    if raises_error:
        check_input_ends(NOTHING_TO_TRAIN, estimator.train, input_of(3), max_steps=4)
    else:
        log()
        estimator.train(input_of(3), max_steps=4)
        assert NOTHING_TO_TRAIN in "".join(log())
    message = check_input_ends(NOTHING_TO_EVALUATE, estimator.evaluate, input_of(0), steps=2)
    if way == "host, pipelined":
        assert_recorded(message)
    assert not list(tmp_path.glob("eval/events*"))  # No results were written.
    assert estimator.get_variable_value("global_step") == 2
    log()
    if "use_tpu" in WAYS[way] or "eval_on_tpu" in WAYS[way]:  # Off a TPU, one batch is enough.
        assert estimator.evaluate(input_of(4), steps=2)["global_step"] == 2
    if "use_tpu" in WAYS[way]:
        check_input_ends(NOTHING_TO_EVALUATE, estimator.evaluate, input_of(0))
    assert log() == []


def test_an_input_resumed_at_its_end_gets_advice(tmp_path, log, assert_recorded):
    """The hook saves where the input stands: at its end, from which the second training resumes."""
    estimator = without_tables(tmp_path)
    hooks = [CheckpointInputPipelineHook(estimator)]
    estimator.train(input_of(8), hooks=hooks)
    log()
    estimator.train(input_of(8), hooks=hooks)
    (line,) = (line for line in log() if line.startswith(NOTHING_TO_TRAIN))
    assert "if that was its end, nothing is left: repeat() the dataset" in line
    assert_recorded(line)


@pytest.mark.parametrize(
    "use_tpu, samples",  # 4 of the evaluation's samples are a batch. A TPU needs all 3 batches.
    [(True, 0), *(harness.slow(*one) for one in [(False, 0), (True, 4)])],
)
def test_an_empty_evaluation_ends_train_and_evaluate(use_tpu, samples, tmp_path):
    check_input_ends(
        "The input ended after 1 steps." if samples else NOTHING_TO_EVALUATE,
        ee.train_and_evaluate,
        make(tmp_path, use_tpu=use_tpu),
        ee.TrainSpec(input_of(64), max_steps=4),
        ee.EvalSpec(input_of(samples), steps=3, throttle_secs=0, start_delay_secs=0),
    )


@pytest.mark.parametrize("way", ["host", harness.slow("emulated, 2 cores")])
def test_untrained_weights_are_logged(way, tmp_path, log, assert_recorded):
    untrained, trained, warm = tmp_path / "untrained", tmp_path / "trained", tmp_path / "warm"
    for call in ("evaluate", "predict"):
        check_reads_input(call, make(untrained, **WAYS[way]))
        (line,) = log()
        assert line.startswith(f"{call}: Could not find trained model in model_dir: {untrained}.")
        assert_recorded(line)
    estimator = make(trained, **WAYS[way])
    estimator.train(input_of(16), max_steps=1)
    result = estimator.evaluate(input_of(16), steps=2)
    path = estimator.latest_checkpoint()
    check_reads_input("evaluate", make(untrained, **WAYS[way]), checkpoint_path=path)
    assert log() == []  # The weights of `checkpoint_path` are trained.
    estimator = make(warm, **WAYS[way], warm_start_from=str(trained))
    assert estimator.evaluate(input_of(16), steps=2)["loss"] == result["loss"]
    (line,) = log()
    assert f"Only the weights that warm_start_from names come from {trained}" in line
    assert_recorded(line)


@pytest.mark.fast(1)
@pytest.mark.parametrize("way", ["host", "emulated"])
def test_a_reached_max_steps_is_logged(way, tmp_path, log, assert_recorded):
    estimator = make(tmp_path, **WAYS[way])
    estimator.train(input_of(16), max_steps=2)
    assert log() == []
    for max_steps in (1, 2):
        estimator.train(input_of(16), max_steps=max_steps)
        (line,) = log()
        assert f"is at step 2, so max_steps={max_steps} is reached: nothing was trained" in line
        assert_recorded(line)
    harness.refusal(ValueError, estimator.train, input_of(16), max_steps=0)  # As stock.
    check_reads_input("train", estimator)  # With steps=1, there is a step to train.
    assert log() == []


@pytest.mark.parametrize(
    "error, explained",
    [
        (ValueError("Shapes (None, 3) and (None, 4) are incompatible"), False),
        (ValueError("expected min_ndim=2, found ndim=1. Full shape received: (None,)"), False),
        (TypeError("Expected [None, 3], got <TensorShape (None)>"), False),
        (KeyError("None"), False),
        (ValueError("Attempt to convert a value (None) to a Tensor."), True),
        (ValueError("None values not supported."), True),
        (AttributeError("'NoneType' object has no attribute 'shape'"), True),
    ],
)
def test_only_errors_about_none_mention_missing_labels(error, explained):
    before = str(error)
    facts = Facts(Call(Runs.LOCAL, mode="train", model_fn=lambda features, labels: None))
    facts.batch = ModelBatch(None, labels=None)
    guarded_input.missing_labels(facts, error)
    assert str(error) == before  # Features are None too: input_fn returned nothing.
    facts.batch = ModelBatch({}, labels=None)
    guarded_input.missing_labels(facts, error)
    assert str(error).startswith(before.rstrip("."))
    assert ("labels is None in mode 'train'" in str(error)) is explained


def test_predictions_explain_only_lines_that_read_labels():
    """A prediction has no labels. The failing line tells by the word whether it read labels."""
    facts = Facts(Call(Runs.LOCAL, mode="infer", model_fn=lambda features, labels: None))
    facts.batch = ModelBatch({}, labels=None)
    said = "In model_fn, labels is None in mode 'infer', as for every prediction and export: return"
    for read, explained in (
        (lambda labels: labels.shape, True),
        (lambda other: other.shape, False),
    ):
        with pytest.raises(AttributeError) as caught:
            read(None)
        guarded_input.missing_labels(facts, caught.value)
        assert (said in str(caught.value)) is explained
