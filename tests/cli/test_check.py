# SPDX-License-Identifier: Apache-2.0
"""The command `estimator-emb check`, on programs in files."""

import os
import sys

import processes
import pytest

from estimator_emb.cli import main as main_lib
from estimator_emb.preflight import compiler

PROGRAM = """
import argparse, pathlib, sys
import tensorflow as tf
import estimator_emb as ee
import feature_columns as fc

parser = argparse.ArgumentParser()
parser.add_argument("--model_dir", required=True)
parser.add_argument("--text", action="store_true")
parser.add_argument("--do", default="train")
parser.add_argument("--made")
flags = parser.parse_args()

def input_fn(params):
    features = {"x": tf.zeros([4]), "id": tf.zeros([], tf.int64)}
    dataset = tf.data.Dataset.from_tensors((features, tf.zeros([1]))).repeat()
    return dataset.batch(params["batch_size"], drop_remainder=True)

def model_fn(features, labels, mode, params):
    w = tf.compat.v1.get_variable("w", [4, 1])
    outputs = features["x"] @ w + tf.reduce_sum(features["id"], axis=1, keepdims=True)
    if flags.text:
        outputs += tf.strings.to_number(tf.strings.as_string(tf.stop_gradient(outputs)))  # text
    if mode == ee.ModeKeys.PREDICT:
        return ee.TPUEstimatorSpec(mode, predictions={"outputs": outputs})
    loss = tf.reduce_mean(tf.square(outputs - labels))
    optimizer = tf.compat.v1.tpu.CrossShardOptimizer(
        tf.compat.v1.train.GradientDescentOptimizer(0.1))
    step = tf.compat.v1.train.get_global_step()
    train_op = optimizer.minimize(loss, step) if mode == ee.ModeKeys.TRAIN else None
    return ee.TPUEstimatorSpec(mode, loss=loss, train_op=train_op)

columns = [
    fc.embedding_column(fc.categorical_column_with_identity("id", 10), size) for size in (2, 4)
]
if flags.made == "column":
    fc.embedding_column(columns[0].categorical_column, -1)
elif flags.made == "TPUConfig":
    ee.TPUConfig(tpu_generation="v9")
elif flags.made == "tensorflow":
    tf.constant("a", tf.int32)
elif flags.made == "initializer":
    ee.TableConfig(100, 8, initializer=int("not a number"))
spec = ee.EmbeddingConfigSpec(
    table_to_config_dict={"table": ee.TableConfig(100, 8, combiner="sum")},
    feature_to_config_dict={"id": ee.FeatureConfig("table")},
    optimization_parameters=ee.AdagradParameters(0.1),
)
if flags.made == "spec":
    spec = ee.EmbeddingConfigSpec(columns)
elif flags.made == "two columns":
    spec = ee.EmbeddingConfigSpec(columns, ee.AdagradParameters(0.1))
pipelines = ee.InputPipelineConfig
estimator = ee.TPUEstimator(
    model_fn,
    config=ee.RunConfig(
        model_dir=flags.model_dir,
        tpu_config=ee.TPUConfig(
            num_shards=12 if flags.made == "twelve" else None,
            per_host_input_for_training=(
                pipelines.BROADCAST if flags.made == "broadcast" else pipelines.PER_HOST_V1
            ),
        ),
    ),
    params={}, use_tpu=True,
    train_batch_size=32, eval_batch_size=16, predict_batch_size=8, embedding_config_spec=spec,
)
try:
    if flags.do == "train":
        estimator.train(input_fn, max_steps=10)
    elif flags.do == "endless":
        estimator.train(input_fn)
    elif flags.do == "evaluate":
        estimator.evaluate(input_fn, steps=1)
    elif flags.do == "predict":
        for prediction in estimator.predict(input_fn):
            print(prediction)
    elif flags.do == "both":
        ee.train_and_evaluate(
            estimator, ee.TrainSpec(input_fn, max_steps=10), ee.EvalSpec(input_fn, steps=1))
    elif flags.do == "plain":
        ee.Estimator(model_fn, params={}).train(input_fn, max_steps=10)
    elif flags.do == "exit":
        sys.exit(3)
    elif flags.do == "old":
        tf.placeholder(tf.float32)
    elif flags.do == "fail":
        raise ValueError("its own")
except ZeroDivisionError:
    pass
print("the program goes on")
"""


@pytest.fixture
def run(tmp_path, capsys):
    """Runs the command on PROGRAM; (status, stdout, stderr)."""
    script = tmp_path / "program.py"
    script.write_text(PROGRAM)

    def of(*flags, options=("--compile=no",)):
        arguments = [*options, str(script), f"--model_dir={tmp_path / 'model'}", *flags]
        before = list(sys.path), list(sys.argv), os.environ.get("ESTIMATOR_EMB_DEVICE")
        status = main_lib.main(["check", *arguments])
        assert before == (sys.path, sys.argv, os.environ.get("ESTIMATOR_EMB_DEVICE"))
        assert not list(tmp_path.glob("model/*"))  # Nothing was trained or written.
        out, err = capsys.readouterr()
        assert "\nCompiler: skipped. " in out or status == 2 or "was not made" in out
        return status, out, err

    return of


def test_the_first_train_is_checked_and_the_program_left(run):
    status, out, _ = run()
    assert status == 0
    assert out.startswith("The train step of one core, one of 8: ")
    assert (
        " ops, 4 samples per core.\n  TPUConfig.num_shards is not set: 8 cores are assumed.\n"
        "Program, ops and shapes: use_tpu=True raises no error before a session opens, every op "
        "has a TPU kernel for its types, and every input a static shape.\n"
    ) in out
    assert "the program goes on" not in out


def test_findings_name_the_line_of_the_script(run, tmp_path):
    status, out, _ = run("--text")
    assert status == 1
    number = (
        PROGRAM.splitlines().index(
            next(line for line in PROGRAM.splitlines() if line.endswith("# text"))
        )
        + 1
    )
    where = f"  {tmp_path}/program.py:{number}: "
    strings = (
        "no TPU kernel has this op. Instead: keep strings on the host: turn them into numbers in "
        "input_fn."
    )
    assert (
        "Program, ops and shapes: 2 findings.\n"
        f"{where}AsString (op 'AsString', dtype float32): {strings}\n"
        f"{where}StringToNumber (op 'StringToNumber'): {strings}\n"
    ) in out


@pytest.mark.parametrize("do, mode", [("evaluate", "eval"), ("predict", "infer")])
def test_programs_that_do_not_train(run, do, mode):
    status, out, _ = run(f"--do={do}")
    assert out.startswith(f"The {mode} step of one core, one of 8: ")
    assert status == (1 if do == "predict" else 0)
    assert (
        "\n  use_tpu=True raises NotImplementedError: predict: tensorflow-estimator looks up no "
        "embedding tables when it predicts on a TPU. " in out
    ) == (do == "predict")


def test_train_and_evaluate_has_both_steps_checked(run):
    status, out, _ = run("--do=both", options=("--compile=no", "--replicas=4"))
    assert status == 0
    steps = [line for line in out.splitlines() if line.startswith("The ")]
    assert [line.split(":")[0] for line in steps] == [
        "The train step of one core, one of 4",
        "The eval step of one core, one of 4",
    ]
    assert [line.split(", ")[-1] for line in steps] == [
        "8 samples per core.",
        "4 samples per core.",
    ]


@pytest.mark.parametrize(
    "flag, message",
    [
        (
            "--do=nothing",
            "{} ended without a call of train, evaluate or predict of an Estimator.",
        ),
        ("--do=exit", "{} ended (status 3) before it trained."),
        (
            "--do=plain",
            "Only a TPUEstimator of estimator_emb can be checked; got Estimator of "
            "tensorflow_estimator.python.estimator.estimator.",
        ),
        # The program's own failures, and what only an emulated TPU cannot be.
        *(
            (flag, "{} failed before it trained.")
            for flag in ("--do=fail", "--made=tensorflow", "--made=initializer", "--made=twelve")
        ),
    ],
)
def test_what_cannot_be_checked(run, tmp_path, flag, message):
    status, out, err = run(flag)
    assert status == 2 and "step of one core" not in out
    assert err.endswith(f"estimator-emb check: {message.format(tmp_path / 'program.py')}\n")
    assert ("Traceback (most recent call last):" in err) == ("failed" in message)
    assert ("ValueError: its own" in err) == (flag == "--do=fail")


def test_names_of_tensorflow_1(run, tmp_path):
    status, _, err = run("--do=old")
    assert status == 2
    assert f'Traceback (most recent call last):\n  File "{tmp_path}/program.py", line ' in err
    assert err.endswith(
        "has no attribute 'placeholder'\n"
        "estimator-emb: tf.placeholder is a name of TensorFlow 1: try --tf-v1. In TensorFlow 2 it "
        "is tf.compat.v1.placeholder.\n"
        f"estimator-emb check: {tmp_path}/program.py failed before it trained.\n"
    )


@pytest.mark.parametrize(
    "made, refusal",
    [
        (
            "broadcast",
            "ValueError: Only PER_HOST_V1 and PER_HOST_V2 is supported when using TPU Embedding; ",
        ),
        (
            "two columns",
            "ValueError: Feature 'id' is used with multiple embeddings and this is not supported: ",
        ),
        ("spec", "ValueError: EmbeddingConfigSpec: optimization_parameters must be given with "),
        ("column", "ValueError: "),
        ("TPUConfig", "ValueError: TPUConfig: tpu_generation must be "),
    ],
)
def test_what_cannot_be_made_is_a_finding(run, tmp_path, made, refusal):
    status, out, err = run(f"--made={made}")
    assert status == 1
    assert out.startswith(
        "The estimator was not made.\nProgram, ops and shapes: 1 finding.\n"
        f"  {tmp_path}/program.py:"
    )
    assert f": use_tpu=True raises {refusal}" in out
    assert "Nothing ran on a TPU." in out
    assert "Traceback" not in err


def test_shards_are_replicas(run):
    outputs = [run(options=("--compile=no", f"--{name}=4"))[1] for name in ("replicas", "shards")]
    assert outputs[0] == outputs[1]
    assert outputs[0].startswith("The train step of one core, one of 4: ")


@pytest.mark.parametrize(
    "flag, option, refusal",
    [
        (
            "--do=endless",
            "--replicas=8",
            "For TPU training, one of `steps` or `max_steps` must be set. Cannot be both `None`.\n",
        ),
        (
            "--do=train",
            "--replicas=3",
            "train batch size 32 must be divisible by number of replicas 3.\nCompiler: skipped. "
            "There is no step to compile.\n",
        ),
    ],
)
def test_what_a_tpu_refuses_is_a_finding(run, flag, option, refusal):
    status, out, _ = run(flag, options=("--compile=no", option))
    assert status == 1
    assert f"shapes: 1 finding.\n  use_tpu=True raises ValueError: {refusal}" in out


def test_the_compiler_that_is_asked_for_must_be_there(run, monkeypatch):
    monkeypatch.setattr(compiler, "REQUIRED", ("no_such_jax",))
    status, _, err = run(options=("--compile=yes", f"--compiler_python={sys.executable}"))
    assert status == 2
    assert err.endswith(
        f"estimator-emb check: no_such_jax not installed in {sys.executable}: pip install "
        "'estimator-emb[preflight]', or name an interpreter that has them in "
        "ESTIMATOR_EMB_COMPILER_PYTHON.\n"
    )


@pytest.mark.slow
def test_a_program_without_the_behaviour_of_tensorflow_2(tmp_path):
    script = tmp_path / "program.py"
    script.write_text(
        PROGRAM.replace(
            "import estimator_emb as ee",
            "import estimator_emb as ee\ntf.compat.v1.disable_v2_behavior()",
        )
    )
    options = ["--compile=no", script, "--model_dir", tmp_path / "m"]
    done = processes.run_command("check", *options)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("The train step of one core, one of 8: ")


@pytest.mark.slow
def test_a_program_of_tensorflow_1_as_a_module(tmp_path):
    program = PROGRAM.replace("tf.compat.v1.", "tf.").replace("= tf.tpu.", "= tpu.")
    program = "from tensorflow.contrib import tpu\n" + program
    (tmp_path / "legacy.py").write_text(program)
    options = ["--tf-v1", "--compile=no", "-m", "legacy", "--text"]
    options.append(f"--model_dir={tmp_path}/model")
    done = processes.run_command("check", *options, cwd=tmp_path)
    assert done.returncode == 1, done.stderr
    line = program.split("  # text")[0].count("\n") + 1
    assert f"legacy.py:{line}: AsString (op " in done.stdout
    assert "goes on" not in done.stdout
