"""The texts of errors: their messages, and the last lines on the terminal."""

import importlib
import json
import pickle
import re
import sys
import traceback

import harness
import processes
import pytest
import tensorflow as tf

import estimator_emb as ee
from estimator_emb.checkpoints.files import checkpoint_files
from estimator_emb.checkpoints.restoring import mismatch_report
from estimator_emb.guards import input_fn as guarded_input
from estimator_emb.guards import numbers
from estimator_emb.reporting import error_notes, program_calls
from estimator_emb.reporting.suggestions import suggestion

CHECK = 'hidden *= tf.debugging.check_numerics(tf.random.uniform([]) / 0.0, "my check")'

PROGRAM = """
import sys
import tensorflow as tf
import estimator_emb as ee

def model_fn(features, labels, mode, params):
    return tf.reshape(features, [3, 7])

def input_fn(params):
    return tf.data.Dataset.from_tensors(tf.ones([4, 2])).repeat()

def main():
    if sys.argv[1] == "own":
        raise KeyError("of the program")
    config = ee.RunConfig(model_dir=sys.argv[2])
    estimator = ee.TPUEstimator(model_fn, config=config, use_tpu=False, train_batch_size=4)
    estimator.train(input_fn, max_steps=3)

main()
"""


def model_fn(features, labels, mode, params):
    hidden = tf.compat.v1.get_variable("weight", []) * features
    hidden *= tf.debugging.check_numerics(tf.random.uniform([]) / 0.0, "my check")
    return harness.minimized(mode, tf.reduce_mean(hidden))


def failed(model_dir, device=None):
    estimator = harness.estimator(model_fn, None, model_dir, device=device)
    with pytest.raises(tf.errors.InvalidArgumentError) as caught:
        estimator.train(lambda params: tf.data.Dataset.from_tensors(tf.ones([4, 1])), steps=1)
    return caught.value


@pytest.mark.parametrize("device", [None, "host"])
def test_a_session_error_has_its_cause_and_line(tmp_path, device):
    error = failed(tmp_path, device)
    line = model_fn.__code__.co_firstlineno + 2  # The line of CHECK.
    message, made = str(error).splitlines()
    assert message.startswith("my check : Tensor had ")
    place = f"{__file__}, line {line}, in model_fn"
    assert made == f"The op 'CheckNumerics' was made by {place}: {CHECK}"
    assert error.message == str(error)
    assert error.op.name == "CheckNumerics" and error.node_def.op == "CheckNumerics"
    assert error.error_code == tf.errors.INVALID_ARGUMENT
    assert type(error).__name__ == "InvalidArgumentError"  # It is of a subclass with this name.
    assert type(error).__module__ == tf.errors.InvalidArgumentError.__module__


@pytest.mark.fast(2)
@pytest.mark.parametrize("data", ["of my model", 2.5], ids=["one branch", "branch in a branch"])
@pytest.mark.parametrize("shards", [None, 2])
def test_an_error_in_a_branch_or_on_another_core_has_its_line(tmp_path, shards, data):
    # TensorFlow asserts in a branch of its own, unless the data are strings or int32.
    def asserted(values):
        good = tf.reduce_all(values > 0)
        with tf.control_dependencies([tf.debugging.Assert(good, [data])]):
            return tf.identity(values)

    def model_fn(features, labels, mode, params):
        weight = tf.compat.v1.get_variable("weight", [])
        bad = tf.reduce_any(features < 1)
        features = tf.cond(bad, lambda: asserted(features), lambda: features)
        return harness.minimized(mode, weight * tf.reduce_mean(features))

    def input_fn(params):
        # With two cores, the second core gets the bad value.
        return tf.data.Dataset.from_tensors(tf.constant([[1.0], [1.0], [1.0], [0.0]]))

    estimator = harness.estimator(model_fn, None, tmp_path, num_shards=shards)
    with pytest.raises(tf.errors.InvalidArgumentError) as caught:
        estimator.train(input_fn, steps=1)
    line = asserted.__code__.co_firstlineno + 2
    said, made = caught.value.message.splitlines()
    assert said == f"assertion failed: [{data}]"
    code = "with tf.control_dependencies([tf.debugging.Assert(good, [data])])"
    assert made.endswith(f" was made by {__file__}, line {line}, in asserted: {code}")


def test_an_op_that_no_line_of_the_program_made_keeps_its_name(installed, tmp_path):
    """An empty word with a weight fails in an op that is named after the column."""
    words = tf.feature_column.categorical_column_with_vocabulary_list("word", ["a", "b"])
    weighted = tf.feature_column.weighted_categorical_column(words, "weight")
    estimator = tf.estimator.LinearClassifier([weighted], str(tmp_path))

    def input_fn():
        word = tf.SparseTensor([[0, 0], [0, 1], [1, 0]], ["a", "", "b"], [2, 2])
        weight = tf.SparseTensor([[0, 0], [1, 0]], [1.0, 2.0], [2, 2])
        return tf.data.Dataset.from_tensors(({"word": word, "weight": weight}, [[1], [0]]))

    with pytest.raises(tf.errors.InvalidArgumentError) as raised:
        estimator.train(input_fn, max_steps=1)
    happened, op = str(raised.value).splitlines()
    assert happened == "Incompatible shapes: [3] vs. [2]"
    assert re.fullmatch(r"The op is 'linear/.*word_weighted_by_weight.*/LogicalAnd'\.", op)


def test_the_full_traceback_is_shown_on_request(tmp_path, monkeypatch):
    monkeypatch.setenv("ESTIMATOR_EMB_FULL_TRACEBACK", "1")
    error = failed(tmp_path)
    assert type(error) is tf.errors.InvalidArgumentError
    assert "Original stack trace for 'CheckNumerics'" in str(error)
    assert "_do_run" in lines_of(error)  # A frame of TensorFlow.
    monkeypatch.setenv("ESTIMATOR_EMB_FULL_TRACEBACK", "0")
    assert not error_notes.is_full()
    tf.debugging.disable_traceback_filtering()
    try:
        assert error_notes.is_full()
    finally:
        tf.debugging.enable_traceback_filtering()


def test_a_shortened_error_is_pickled_as_tensorflows():
    # Of an op in a function, and of no session. TensorFlow repeats lines.
    place = "{{function_node f}}{{node x}} nowhere"
    said = f"Graph execution error:\n\n{place}\n{place}\n\t [[{{{{x}}}}]]"
    error = tf.errors.NotFoundError(None, None, said)
    error.__context__ = tf.errors.NotFoundError(None, None, place)
    error_notes.shorten(error)
    error_notes.shorten(error)  # A second call has no effect.
    assert str(error) == place and error.__suppress_context__
    copy = pickle.loads(pickle.dumps(error))
    assert type(copy) is tf.errors.NotFoundError and copy.message == place


def test_a_message_without_a_cause_keeps_its_first_line():
    assert error_notes.cause("Graph execution error:\n\n\t [[{{x}}]]") == ["Graph execution error:"]


@pytest.mark.parametrize(
    "error",
    [
        guarded_input.InputEndedError("the input ended"),
        checkpoint_files.MissingCheckpoint("it is gone"),
        checkpoint_files.DamagedCheckpoint("it is cut"),
        mismatch_report.UnfitCheckpoint("it does not fit"),
        numbers.NanLossError("NaN loss during training.\n  table 't': 1 of 2 rows, ids 0"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_our_errors_can_be_pickled(error):
    kind, message = type(error), str(error)
    for short in (False, True):
        if short and isinstance(error, tf.errors.OpError):
            error_notes.shorten(error)
        copy = pickle.loads(pickle.dumps(error))
        assert type(copy) is kind and str(copy) == message


OURS = ["call"] if sys.version_info < (3, 11) else []
"""Before Python 3.11, a traceback has the frame of this package that raises an error again."""


def test_suggests_a_name_that_has_enough_letters_in_common():
    """At least 60% of the letters of both names, and 70% if the name has more than four."""
    assert suggestion("abcd", ["abcxy"]) == " Did you mean 'abcxy'?"  # 6 letters of 9.
    assert suggestion("abcde", ["abcxy"]) == ""  # 6 letters of 10.


def lines_of(error):
    """Returns the functions in an error's traceback, this test first."""
    return [frame.name for frame in traceback.extract_tb(error.__traceback__)]


def test_an_error_in_a_notebook_shows_its_lines():
    """`called_by_program` keeps the program's frames, also in files that have no path."""
    names = {"__name__": "__main__", "read": lambda: importlib.import_module("no_such")}
    exec(compile("def cell():\n    read()", "<ipython-input-1-x>", "exec"), names)
    with pytest.raises(ModuleNotFoundError) as caught:  # Raised in the file "<frozen importlib>".
        program_calls.called_by_program(names["cell"])()
    assert lines_of(caught.value)[1:] == [*OURS, "cell", "<lambda>"]
    with pytest.raises(ZeroDivisionError) as caught:
        [*program_calls.called_by_program(lambda: (1 / 0 for _ in "x"))()]
    assert lines_of(caught.value)[1:] == [*(["generate"] if OURS else []), "<genexpr>"]


def test_errors_that_the_program_handles_keep_their_lines():
    """While it handles an error of json, a program calls `fail`. Only `fail`'s is shortened."""

    def fail():
        raise ValueError("from train")

    def handled():
        try:
            json.loads("no JSON")
        except ValueError as handling:
            before = lines_of(handling)
            # A function, and one that returns a generator, as predict does.
            for function, read in ((fail, id), (lambda: (fail() for _ in "x"), list)):
                with pytest.raises(ValueError, match="from train") as caught:
                    read(program_calls.called_by_program(function)())
                assert caught.value.__context__ is handling
            return before, lines_of(handling)

    before, after = handled()
    assert before == after and "loads" in before


def test_wrong_arguments_of_predict_are_refused_before_it_is_iterated(tmp_path):
    estimator = ee.TPUEstimator(model_fn, str(tmp_path), ee.RunConfig(), use_tpu=False)
    with pytest.raises(TypeError, match="chekpoint_path"):
        estimator.predict(lambda params: None, chekpoint_path="x")
    assert "input_fn" in harness.refusal(TypeError, estimator.predict)


@pytest.mark.parametrize("fault", ["model", "hook", "input"])
@pytest.mark.parametrize("on_tpu", [False, True], ids=["plain", "emulated TPU"])
def test_a_traceback_has_the_programs_lines_and_no_more(on_tpu, fault, installed, tmp_path):
    class Hook(tf.estimator.SessionRunHook):
        def begin(self):
            if fault == "hook":  # TensorFlow raises its error from another error.
                tf.compat.v1.get_default_graph().get_tensor_by_name("missing:0")

    def model_fn(features, labels, mode, params):
        loss = tf.compat.v1.get_variable("w", []) * tf.reduce_sum(features)
        spec = harness.minimized(mode, tf.reshape(loss, [3]) if fault == "model" else loss)
        return spec if on_tpu else spec.as_estimator_spec()

    def input_fn(params):
        data = tf.data.Dataset.from_tensors(tf.ones([4]))
        return data.batch(None) if fault == "input" else data.repeat()

    estimator = tf.estimator.Estimator(model_fn, str(tmp_path), params={})
    if on_tpu:
        estimator = harness.estimator(model_fn, None, tmp_path, num_shards=2)
    with pytest.raises(Exception) as caught:
        estimator.train(input_fn, hooks=[Hook()], steps=1)
    shown = "".join(traceback.format_exception(caught.value)).replace(__file__, "program")
    assert len(re.findall('  File "(?!program)', shown)) == len(OURS), shown
    # The program's lines are the call of train, and the line in model_fn, the hook or input_fn.
    assert shown.count('  File "program"') == 2 and shown.count("Traceback (most") == 1, shown


@pytest.mark.parametrize(
    "construct",
    [
        lambda: ee.TPUConfig(device="gpu"),
        lambda: ee.AdagradParameters(0.1, initial_accumulator=-1),
        lambda: ee.EmbeddingConfigSpec(),
        lambda: ee.TPUEstimator(lambda features, params: None),
    ],
)
def test_a_constructors_error_has_the_programs_lines_only(construct):
    with pytest.raises(ValueError) as caught:
        construct()
    assert lines_of(caught.value)[1:] == ["<lambda>", *OURS]


def test_a_cause_that_says_more_stays():
    """A cause that only repeats the error's message is hidden. Errors may cause each other."""

    def fail():
        try:
            json.loads("no JSON")
        except ValueError as error:
            error.__cause__ = RuntimeError("the file is damaged")
            raise error.__cause__ from error

    with pytest.raises(RuntimeError) as caught:
        program_calls.called_by_program(fail)()
    assert str(caught.value.__cause__).startswith("Expecting value")
    with pytest.raises(KeyError) as caught, error_notes.explained(lambda error: KeyError("why")):
        fail()
    assert str(caught.value.__cause__) == "the file is damaged"


@pytest.mark.slow
@pytest.mark.sampled(2)
@pytest.mark.parametrize("command", [(), ("-m", "estimator_emb", "run")], ids=["python", "run"])
@pytest.mark.parametrize(
    "kind, cause, line",
    [
        ("graph", "ValueError: Cannot reshape a tensor with 8", "tf.reshape(features, [3, 7])"),
        ("own", "KeyError: 'of the program'", 'raise KeyError("of the program")'),
    ],
)
def test_the_last_ten_lines_have_the_cause_and_the_line_of_the_program(
    kind, cause, line, command, tmp_path
):
    (tmp_path / "program.py").write_text(PROGRAM)
    arguments = [*command, "program.py", kind, tmp_path / "model"]
    done = processes.run_python(*arguments, cwd=tmp_path, status=1)
    lines = done.stderr.splitlines()[-10:]
    assert any(one.startswith(cause) for one in lines) and any(line in one for one in lines)
    trace = lines[lines.index("Traceback (most recent call last):") :]
    assert all("program.py" in line for line in trace if line.startswith("  File "))


def test_a_message_keeps_the_programs_frames_of_a_python_function():
    def fails(x):
        return 1 / 0

    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        result = tf.numpy_function(fails, [1.0], tf.float32)
        with pytest.raises(tf.errors.UnknownError) as caught:
            session.run(result)
    error_notes.shorten(caught.value)
    first, *_ = re.findall('File "(.*)", line .* in (.*)', caught.value.message)
    assert first == (__file__, "fails")
