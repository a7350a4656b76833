"""A program shows its tables, its progress and its own lines, each once, and no more."""

import io
import logging
import re
import sys
import textwrap
import time
import types

import harness
import numpy as np
import processes
import pytest
import six
import tensorflow as tf
from absl import flags
from absl import logging as absl_logging

import estimator_emb as ee
from estimator_emb.reporting import bars, console

START_UP = re.compile(
    r"WARNING: All log messages before|[IWE]0000 |\d{4}-\d\d-\d\d |To enable the following"
    r"|=== Source Location Trace|external/xla/|$"
)
"""The start of lines that TensorFlow's C++ writes. 2.22 ends an error with an empty line."""
PREFIX = re.compile(r"[IWE]\d{4} [\d:.]+ +\d+ (?=\S+\.py:\d+\] )")
"""The time and thread in an absl log line."""

PROGRAM = """
import sys
import tensorflow as tf
import estimator_emb as ee
import feature_columns as fc

column = fc.embedding_column(tf.feature_column.categorical_column_with_identity("word", 9), 2)

def model_fn(features, labels, mode, params):
    tf.compat.v1.logging.info("The program's own line of %s.", mode)
    net = tf.compat.v1.layers.dense(tf.compat.v1.keras.layers.DenseFeatures([column])(features), 1)
    loss = tf.reduce_mean(tf.square(net - 1.0))
    if mode == "infer":
        return ee.TPUEstimatorSpec(mode, predictions={"net": net})
    optimizer = tf.compat.v1.train.GradientDescentOptimizer(0.1)
    if params["use_tpu"]:
        optimizer = tf.compat.v1.tpu.CrossShardOptimizer(optimizer)
    step = tf.compat.v1.train.get_global_step()
    return ee.TPUEstimatorSpec(mode, loss=loss, train_op=optimizer.minimize(loss, step))

def input_fn(params):
    words = tf.data.Dataset.range(9).repeat()
    batches = words.batch(params["batch_size"], drop_remainder=True)
    return batches.map(lambda word: {"word": word[:, tf.newaxis]})

def train(model_dir, use_tpu=False):
    config = ee.RunConfig(tpu_config=ee.TPUConfig(iterations_per_loop=5, device="host"))
    sizes = dict.fromkeys(["train_batch_size", "eval_batch_size", "predict_batch_size"], 4)
    spec = ee.EmbeddingConfigSpec([column], ee.AdagradParameters(0.1))
    estimator = ee.TPUEstimator(
        model_fn, model_dir, config, use_tpu=use_tpu, **sizes, embedding_config_spec=spec
    )
    for steps in (20, 40):
        estimator.train(input_fn, max_steps=steps)
    estimator.evaluate(input_fn, steps=2)
    next(estimator.predict(input_fn))
"""


def shown(tmp_path, end, *options, command=()):
    """Runs PROGRAM with `end` added, and returns its lines without those of TensorFlow's C++."""
    (tmp_path / "program.py").write_text(PROGRAM + textwrap.dedent(end))
    own = {"CUDA_VISIBLE_DEVICES": "", "ESTIMATOR_EMB_NATIVE": "1", "TF_CPP_MIN_LOG_LEVEL": "2"}
    done = processes.run_python(*command, "program.py", *options, cwd=tmp_path, status=0, **own)
    assert done.stdout == ""
    lines = [line for line in done.stderr.splitlines() if not START_UP.match(line)]
    return [PREFIX.sub("", line) for line in lines if "native kernels" not in line]


def own(lines):
    """Returns the lines about the program itself, without progress lines every ten seconds."""
    left_out = r"Instructions for|Use Keras pre|^  |step (?!20 of 20,)\d+ of"
    return [line for line in lines if not re.search(left_out, line)]


NO_EFFECT = "TPUConfig(device='host'): no effect, as use_tpu=False."
OF_A_TRAINING = [
    "Embedding tables train on the host: 1 table, 9 rows, ",
    "step 20 of 20, mean loss ",
    "evaluation at step 40: loss ",
]


@pytest.mark.slow
def test_a_program_without_logging_is_quiet(tmp_path):
    """Trains on the host and on an emulated TPU. Another model_dir shows the tables again."""
    lines = own(shown(tmp_path, "train('host')\ntrain('emulated', use_tpu=True)\n"))
    column, dense, *rest = sorted(lines, key=lambda line: not re.search("deprecated", line))
    assert "program.py:7: categorical_column_with_identity" in column  # The program's calls.
    assert "program.py:11: UserWarning: `tf.layers.dense`" in dense
    emulated = "A TPU is emulated on the host, with 1 core."
    expected = [NO_EFFECT, *OF_A_TRAINING, emulated, *OF_A_TRAINING]
    for line, start in zip(rest, expected, strict=True):
        assert line.startswith(f"estimator_emb: {start}"), lines
    assert rest[2].endswith(" examples/s")  # The line of step 20.


ABSL = """
from absl import app
def main(argv):
    train("model")
app.run(main)
"""


@pytest.mark.slow
def test_an_absl_program_shows_its_own_lines_once(tmp_path):
    lines = own(shown(tmp_path, ABSL, command=["-m", "estimator_emb", "run"]))
    theirs = [line for line in lines if "program.py:" in line]
    mine = [line for line in lines if "program.py:" not in line]
    assert [line.partition("] ")[2] for line in theirs if "own line" in line] == [
        f"The program's own line of {mode}." for mode in ("train", "train", "eval", "infer")
    ]
    for line, start in zip(mine, [NO_EFFECT, *OF_A_TRAINING], strict=True):
        assert f"] {start}" in line, lines


@pytest.fixture
def free(monkeypatch, capsys):
    """Returns a function that clears levels and handlers of all loggers, as if never set up."""

    def free():
        for owner, level in [(logging.root, logging.WARNING), (OURS, 0), (THEIRS, 0)]:
            monkeypatch.setattr(owner, "handlers", [])
            monkeypatch.setattr(owner, "level", level)
        handler = logging.StreamHandler()
        handler.setFormatter(logging.Formatter(logging.BASIC_FORMAT))
        THEIRS.addHandler(handler)
        logging.root.manager._clear_cache()

    yield free
    assert not OURS.filters and not THEIRS.filters
    monkeypatch.undo()
    logging.root.manager._clear_cache()


OURS, THEIRS = logging.getLogger("estimator_emb"), tf.get_logger()
WARNED = ["WARNING:estimator_emb:warned", "WARNING:tensorflow:theirs warned"]
ALL_OF_OURS = ["INFO:estimator_emb:ours", *WARNED]
CHOICES = {
    "nothing": (lambda: None, ["estimator_emb: ours", "estimator_emb: warned", WARNED[1]]),
    "quiet TensorFlow": (lambda: THEIRS.setLevel(logging.ERROR), ["estimator_emb: warned"]),
    "handler": (lambda: logging.basicConfig(level=logging.WARNING), WARNED),
    "handler of a library": (lambda: absl_logging.debug("not shown"), ALL_OF_OURS),
    "handler of all": (
        lambda: (logging.basicConfig(level="INFO"), logging.root.handlers[0].setLevel("INFO")),
        ["INFO:estimator_emb:ours", WARNED[0], "INFO:tensorflow:theirs", WARNED[1]],
    ),
    "level": (lambda: logging.root.setLevel(logging.ERROR), []),
    "own level": (lambda: OURS.setLevel(logging.ERROR), WARNED[1:]),
    "silence": (console.silence, WARNED[1:]),
    "handler and own level": (
        lambda: (logging.basicConfig(), OURS.setLevel(logging.INFO)),
        ALL_OF_OURS,
    ),
    "handler of errors": (lambda: logging.root.addHandler(ErrorsOnly()), WARNED[1:]),
}
"""What a program sets up -> (function that sets it up, all lines that are shown)."""
LEVELS = dict.fromkeys(("own level", "silence"), logging.ERROR)
LEVELS["handler and own level"] = logging.INFO
"""What a program sets up -> the level of our logger afterwards, if it is set."""


class ErrorsOnly(logging.StreamHandler):
    def __init__(self):
        super().__init__()
        self.setLevel(logging.ERROR)


@pytest.mark.parametrize("inside", [False, True], ids=["before", "inside"])
@pytest.mark.parametrize("choice", CHOICES)
def test_the_programs_log_settings_take_precedence(free, capsys, monkeypatch, choice, inside):
    """The program sets up logging before an estimator's call, or inside: within `shown`."""
    free()
    main = types.ModuleType("__main__")
    # A root handler is the program's if its main file names basicConfig, as this file does.
    others = ("handler of a library", "handler of errors")
    main.__file__ = harness.__file__ if choice in others else __file__
    monkeypatch.setitem(sys.modules, "__main__", main)
    choose, expected = CHOICES[choice]
    if not inside:
        choose()
    with console.shown():
        if inside:
            choose()
        with console.shown():
            OURS.info("ours")
        OURS.warning("warned")
        THEIRS.info("theirs")
        THEIRS.warning("theirs warned")
    lines = capsys.readouterr().err.splitlines()
    if not inside and choice == "handler of a library":  # Our lines keep their form.
        expected = ["estimator_emb: ours", "estimator_emb: warned", WARNED[1]]
    if not inside and choice in ("handler", "handler of all", "handler and own level"):
        # TensorFlow's own handler writes its lines too.
        assert lines.count(WARNED[1]) == 2
        lines = list(dict.fromkeys(lines))
    assert lines == expected
    assert OURS.level == LEVELS.get(choice, logging.NOTSET)
    assert not OURS.handlers
    logging.basicConfig(format="%(rank)s", force=True)  # A filter of the program sets this field.
    with console.shown():  # Looks at the handler, and formats nothing: that would be an error.
        OURS.debug("not shown")


def test_an_error_while_the_log_is_set_up_leaves_no_filter(free):
    free()
    THEIRS.addHandler(types.SimpleNamespace(addFilter=lambda wanted: 1 / 0))
    with pytest.raises(ZeroDivisionError), console.shown():
        pass
    assert not THEIRS.filters


def test_the_flag_verbosity_is_a_choice_of_an_absl_program(free, monkeypatch):
    """`absl.app.run` itself sets up its handler and INFO."""
    free()
    monkeypatch.setattr(logging.root, "handlers", [absl_logging.get_absl_handler()])
    flag, levels = flags.FLAGS["verbosity"], absl_logging
    for given, value in ((0, levels.INFO), (1, levels.INFO), (0, levels.ERROR)):
        monkeypatch.setattr(flag, "present", given)
        monkeypatch.setattr(flag, "_value", value)
        with console.shown():
            assert bool(OURS.handlers) == (not given and value == levels.INFO)


def test_deprecation_notices_of_libraries_are_hidden(free, capsys):
    # Of a library's line, of a line of the program with advice to leave tf.estimator, of another.
    libraries = [(f"{tf.sysconfig.get_lib()}/any.py", "y"), (six.__file__, "y")]
    notices = [*libraries, ("/p.py", "Use tf.keras instead."), ("/p.py", "y")]

    def said():
        with console.shown():
            for file, advice in notices:
                THEIRS.warning("From %s: %s is deprecated.\n%s", f"{file}:1", "x", advice)
            THEIRS.warning("From %s to %s.", "here", "there")  # No notice, so it is shown.
            THEIRS.warning("Reraising captured error")  # A TPU's estimator then raises the error.
        return capsys.readouterr().err.splitlines()

    free()
    assert said() == [
        *["WARNING:tensorflow:From /p.py:1: x is deprecated.", "y"],
        "WARNING:tensorflow:From here to there.",
    ]
    logging.root.setLevel(logging.INFO)  # The program sets logging up, so nothing is hidden.
    assert len(said()) == 2 * len(notices) + 2  # A notice has two lines.


def test_install_hides_advice_to_leave_tf_estimator(free, installed, capsys):
    """Each call and line here gives such advice, except one. The second time, logging is set up."""
    free()
    for _ in range(2):
        tf.estimator.RunConfig()
        ids = tf.feature_column.categorical_column_with_identity("x", 3)
        tf.feature_column.indicator_column(ids)
        tf.feature_column.crossed_column(["x", "y"], 3)
        tf.compat.v1.feature_column.make_parse_example_spec([tf.feature_column.numeric_column("x")])
        THEIRS.warning("From %s: %s is deprecated.\n%s", "/p.py:1", "x", "Use tf.keras instead.")
        THEIRS.warning("From %s: %s is deprecated.\n%s", "/p.py:1", "x", "Use tf.keras.y.")
        place = ("/p.py:1", "tf.estimator.tpu", "tf.compat.v1.estimator.tpu")
        THEIRS.warning("From %s: The name %s is deprecated. Please use %s instead.\n", *place)
        logging.basicConfig(level=logging.INFO)
    lines = capsys.readouterr().err.splitlines()
    assert set(lines) == {"WARNING:tensorflow:From /p.py:1: x is deprecated.", "Use tf.keras.y."}
    ee.uninstall()
    assert not THEIRS.filters


def test_an_interactive_session_shows_a_bar_and_evaluations(free, monkeypatch, capsys, tmp_path):
    """TensorFlow's logger has level INFO, as in a notebook. A step lowers the loss 1 by 0.5."""
    monkeypatch.setattr(sys, "ps1", ">>> ", raising=False)  # Python's prompt.
    free()
    THEIRS.setLevel(logging.INFO)

    def model_fn(features, labels, mode, params):
        x = tf.compat.v1.get_variable("x", [], initializer=tf.ones_initializer())
        return harness.minimized(mode, x, rate=0.5)

    config = ee.RunConfig(model_dir=str(tmp_path))
    estimator = harness.configured(model_fn, None, config, batch_size=2, use_tpu=False)
    batches = harness.input_fn_of([({"x": np.ones(2)}, np.ones(2))] * 2)
    estimator.train(batches, steps=2)
    estimator.train(batches, max_steps=4)
    estimator.evaluate(batches, steps=1)
    captured = capsys.readouterr()
    assert "INFO:tensorflow" not in captured.err
    bar = r"100%%\|█+\| %s/%s steps \[\d\d:\d\d<\d\d:\d\d, mean loss %s, [\d,]+ examples/s\]"
    for line, expected in zip(
        re.sub(r"[^\n]*\r", "", captured.out).splitlines(),
        [
            bar % (2, 2, r"0\.7500"),  # The mean of 1 and 0.5.
            bar % (4, 4, r"-0\.2500"),  # The mean of 0 and -0.5, the losses of this training.
            r"estimator_emb: evaluation at step 4: loss -1 \(over 1 batch\)",
        ],
        strict=True,
    ):
        assert re.fullmatch(expected, line), captured.out
    free()
    THEIRS.setLevel(logging.DEBUG)  # The program's choice.
    estimator.evaluate(batches, steps=1)
    assert "INFO:tensorflow:Calling model_fn." in capsys.readouterr().err


def drawn(monkeypatch, is_terminal=True, fails=False, **how):
    """Returns the texts that work of two parts draws. A bar appears `after` so many seconds."""
    stream = io.StringIO()
    stream.isatty = lambda: is_terminal
    monkeypatch.setattr(console, "stream", lambda: stream)
    with bars.work_bar(**{"after": 0.01, **how}) as progress:
        for done in (0, 1_500_000, 3_000_000):
            time.sleep(0.12)  # tqdm does not draw more often.
            progress(done, 3_000_000)
            if fails:
                raise KeyError("its error")
    return stream.getvalue().split("\r")


def test_a_bar_goes_to_its_end(monkeypatch):
    *before, last = drawn(monkeypatch)
    assert any(re.match(r" 50%\|[█#\d ]+\| 1\.50M/3\.00M \[", one) for one in before)
    assert re.match(r"100%\|[█#]+\| 3\.00M/3\.00M \[", last)
    assert sys.stderr.isatty() or len(last) == 80 + len("\n")  # Only a terminal has a width.


def test_a_temporary_bar_is_erased(monkeypatch):
    *_, wiped, last = drawn(monkeypatch, unit="compilation", stays=False)
    assert wiped.isspace() and last == ""


@pytest.mark.parametrize("how", [{"is_terminal": False}, {"after": 1e3}])
def test_no_bar_without_a_terminal_or_for_short_work(how, monkeypatch):
    assert drawn(monkeypatch, **how) == [""]


def test_an_error_passes_through_a_bar(monkeypatch):
    assert "its error" in harness.refusal(KeyError, drawn, monkeypatch, fails=True)


def test_a_bar_is_one_output_of_a_notebook(monkeypatch):
    outputs = []

    def display(data, raw, display_id):
        assert raw and display_id
        outputs.append([data])
        return types.SimpleNamespace(update=lambda data, raw: outputs[-1].append(raw and data))

    shell = types.SimpleNamespace(kernel=object())
    module = types.SimpleNamespace(display=display)
    notebook = types.SimpleNamespace(get_ipython=lambda: shell, display=module)
    monkeypatch.setitem(sys.modules, "IPython", notebook)
    monkeypatch.setattr(console, "stream", lambda: pytest.fail("The bar is not in a stream."))
    with bars.bar(total=2, mininterval=0) as drawn:
        drawn.update()
        drawn.update()
    (states,) = outputs  # A single output, whose text was replaced.
    assert len(states) > 2 and all(list(state) == ["text/plain"] for state in states)
    assert states[0]["text/plain"].startswith("  0%|")
    assert re.match(r"100%\|█+\| 2/2 \[.*\]$", states[-1]["text/plain"])


@pytest.mark.parametrize("shell", [None, types.SimpleNamespace()])  # Only a notebook has a kernel.
def test_a_bar_of_ipython_on_a_terminal_is_in_the_stream(shell, monkeypatch):
    monkeypatch.setitem(sys.modules, "IPython", types.SimpleNamespace(get_ipython=lambda: shell))
    assert drawn(monkeypatch)[-1].startswith("100%|")
