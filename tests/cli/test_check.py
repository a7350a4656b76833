"""The command `estimator-emb check`, on programs in files."""

import os
import re
import sys

import processes
import pytest

from estimator_emb.cli import main as main_lib
from estimator_emb.preflight import compiler

PROGRAM = """
import sys
import tensorflow as tf
import estimator_emb as ee
import feature_columns as fc

def input_fn(params):
    features = {"x": tf.zeros([4]), "id": tf.zeros([], tf.int64)}
    dataset = tf.data.Dataset.from_tensors((features, tf.zeros([1]))).repeat()
    return dataset.batch(params["batch_size"], drop_remainder=True)

def model_fn(features, labels, mode, params):
    w = tf.compat.v1.get_variable("w", [4, 1])
    outputs = features["x"] @ w + tf.reduce_sum(features["id"], axis=1, keepdims=True)
    outputs += {more}
    if mode == ee.ModeKeys.PREDICT:
        return ee.TPUEstimatorSpec(mode, predictions={"outputs": outputs})
    loss = tf.reduce_mean(tf.square(outputs - labels))
    optimizer = tf.compat.v1.tpu.CrossShardOptimizer(
        tf.compat.v1.train.GradientDescentOptimizer(0.1))
    step = tf.compat.v1.train.get_global_step()
    train_op = optimizer.minimize(loss, step) if mode == ee.ModeKeys.TRAIN else None
    return ee.TPUEstimatorSpec(mode, loss=loss, train_op=train_op)

ids = fc.categorical_column_with_identity("id", 10)
columns = [fc.embedding_column(ids, size) for size in (2, 4)]
spec = ee.EmbeddingConfigSpec(
    table_to_config_dict={"table": ee.TableConfig(100, 8, combiner="sum")},
    feature_to_config_dict={"id": ee.FeatureConfig("table")},
    optimization_parameters=ee.AdagradParameters(0.1),
)
tpu_config = ee.TPUConfig()
{made}
estimator = ee.TPUEstimator(
    model_fn,
    config=ee.RunConfig(model_dir=sys.argv[1], tpu_config=tpu_config),
    train_batch_size=32, eval_batch_size=16, predict_batch_size=8, embedding_config_spec=spec,
)
{do}
print("the program goes on")
"""
STRING_OPS = "tf.strings.to_number(tf.strings.as_string(tf.stop_gradient(outputs)))"


def program(made="", do="estimator.train(input_fn, max_steps=10)", more="0"):
    """Returns PROGRAM with a line before the estimator is made, its call, and a term of outputs."""
    return PROGRAM.replace("{made}", made).replace("{do}", do).replace("{more}", more)


def line_of(text, program):
    return program.split(text)[0].count("\n") + 1


@pytest.fixture
def run(tmp_path, capsys):
    """Returns a function that checks a `program`, giving (status, stdout, stderr)."""
    script = tmp_path / "program.py"

    def of(options=("--compile=no",), **parts):
        script.write_text(program(**parts))
        before = list(sys.path), list(sys.argv), os.environ.get("ESTIMATOR_EMB_DEVICE")
        status = main_lib.main(["check", *options, str(script), str(tmp_path / "model")])
        assert before == (sys.path, sys.argv, os.environ.get("ESTIMATOR_EMB_DEVICE"))
        assert not list(tmp_path.glob("model/*"))  # Nothing was trained or written.
        out, err = capsys.readouterr()
        has_step = status != 2 and "The estimator was not made." not in out
        assert ("\nCompiler: skipped. " in out) == has_step
        return status, out, err

    return of


def test_checks_the_first_train_and_stops_the_program(run, assert_recorded):
    status, out, _ = run()
    assert status == 0 and "the program goes on" not in out
    # tests/messages.json has the report: what was checked, and that nothing was found.
    assert_recorded(re.sub(r"\d[\d,]* ops", "N ops", out))


def test_findings_name_the_line_of_the_script_for_any_number_of_cores(run, tmp_path):
    status, out, _ = run(("--compile=no", "--shards=4"), more=STRING_OPS)
    assert status == 1 and "Program, ops and shapes: 2 findings.\n" in out  # Two string ops.
    assert out.startswith("The train step of one core, one of 4: ")
    assert out.splitlines()[0].endswith(", 8 samples per core.")  # 32 samples on 4 cores.
    where = f"  {tmp_path}/program.py:{line_of('{more}', PROGRAM)}: "
    for op in ("AsString (op 'AsString', dtype float32)", "StringToNumber (op 'StringToNumber')"):
        assert f"{where}{op}: no TPU kernel has this op. Instead: keep strings on the host" in out


SPECS = "ee.TrainSpec(input_fn, max_steps=10), ee.EvalSpec(input_fn, steps=1)"
PJRT = "tpu_config = ee.TPUConfig(num_shards=16, device='pjrt', tables='{}')"


@pytest.mark.fast(2)
@pytest.mark.parametrize(
    "parts, modes, cores",
    [
        ({"do": "estimator.evaluate(input_fn, steps=1)"}, ["eval"], 8),
        ({"do": f"ee.train_and_evaluate(estimator, {SPECS})"}, ["train", "eval"], 8),
        # PJRT devices that this machine lacks.
        ({"made": PJRT.format("host")}, ["train"], 16),
        ({"made": PJRT.format("device")}, ["train"], 16),
    ],
)
def test_checks_the_steps_that_the_program_runs(run, parts, modes, cores):
    """Assumes 8 cores unless the program has their number. No device is needed, nor used."""
    status, out, _ = run(**parts)
    found = [line.partition(":")[0] for line in out.splitlines() if line.startswith("The ")]
    steps = [f"The {mode} step of one core, one of {cores}" for mode in modes]
    assert status == 0 and found == steps, out


@pytest.mark.parametrize(
    "parts, finding",
    [
        (
            {"made": "tpu_config = ee.TPUConfig(num_cores_per_replica=2, device='pjrt')"},
            "num_cores_per_replica must be None",
        ),
        (
            {"do": "for prediction in estimator.predict(input_fn): print(prediction)"},
            "\n  use_tpu=True raises NotImplementedError: predict: tensorflow-estimator looks up ",
        ),
        (
            {"do": "estimator.train(input_fn)"},
            "shapes: 1 finding.\n  use_tpu=True raises ValueError: For TPU training, one of "
            "`steps` or `max_steps` must be set. Cannot be both `None`.\n",
        ),
    ],
)
def test_a_refusal_is_a_finding(run, parts, finding):
    status, out, _ = run(**parts)
    assert status == 1 and finding in out


@pytest.mark.parametrize(
    "parts, message",
    [
        ({"do": "pass"}, "{} ended without a call of train, evaluate or predict of an Estimator."),
        ({"do": "sys.exit(3)"}, "{} ended (status 3) before it trained."),
        (
            {"do": "ee.Estimator(model_fn, params={}).train(input_fn, max_steps=10)"},
            "Only a TPUEstimator of estimator_emb can be checked; got Estimator of "
            "tensorflow_estimator.python.estimator.estimator.",
        ),
        ({"do": "raise ValueError('its own')"}, "{} failed before it trained."),
        ({"made": "ee.TableConfig(100, 8, initializer=int('x'))"}, "{} failed before it trained."),
        # With more than 8 cores, their number must be a multiple of 8.
        ({"made": "tpu_config = ee.TPUConfig(num_shards=12)"}, "{} failed before it trained."),
    ],
)
def test_reports_programs_that_cannot_be_checked(run, tmp_path, parts, message):
    status, out, err = run(**parts)
    assert status == 2 and "step of one core" not in out
    assert err.endswith(f"estimator-emb check: {message.format(tmp_path / 'program.py')}\n")
    assert ("Traceback (most recent call last):" in err) == ("failed" in message)
    assert ("ValueError: its own" in err) == ("its own" in str(parts))


def test_suggests_tf_v1_for_names_of_tensorflow_1(run, tmp_path):
    status, _, err = run(do="tf.placeholder(tf.float32)")
    assert status == 2
    assert f'Traceback (most recent call last):\n  File "{tmp_path}/program.py", line ' in err
    assert "\nestimator-emb: tf.placeholder is a name of TensorFlow 1: try --tf-v1" in err
    assert err.endswith(f"estimator-emb check: {tmp_path}/program.py failed before it trained.\n")


@pytest.mark.parametrize(
    "made, refusal",
    {
        "tpu_config = ee.TPUConfig(per_host_input_for_training=ee.InputPipelineConfig.BROADCAST)": (
            "Only PER_HOST_V1 and PER_HOST_V2 is supported when using TPU Embedding; "
        ),
        "spec = ee.EmbeddingConfigSpec(columns, ee.AdagradParameters(0.1))": (
            "Feature 'id' is used with multiple embeddings and this is not supported: "
        ),
        "fc.embedding_column(ids, -1)": "",  # In TensorFlow's own words.
        "ee.TPUConfig(tpu_generation='v9')": "TPUConfig: tpu_generation must be ",
    }.items(),
)
def test_an_estimator_that_cannot_be_made_is_a_finding(run, tmp_path, made, refusal):
    status, out, err = run(made=made)
    assert status == 1 and "Traceback" not in err
    start = "The estimator was not made.\nProgram, ops and shapes: 1 finding.\n"
    assert out.startswith(f"{start}  {tmp_path}/program.py:")
    assert f": use_tpu=True raises ValueError: {refusal}" in out and "Nothing ran on a TPU." in out


def test_a_requested_compiler_must_be_installed(run, monkeypatch):
    monkeypatch.setattr(compiler, "REQUIRED", ("no_such_jax",))
    status, _, err = run(("--compile=yes", f"--compiler_python={sys.executable}"))
    assert status == 2
    assert f"check: no_such_jax not installed in {sys.executable}: pip install " in err


@pytest.mark.slow
def test_checks_a_tensorflow_1_program_run_as_a_module(tmp_path):
    """--tf-v1 also disables the behavior of TensorFlow 2."""
    text = program(more=STRING_OPS).replace("tf.compat.v1.", "tf.")
    text = "from tensorflow.contrib import tpu\n" + text
    (tmp_path / "legacy.py").write_text(text)
    options = ["--tf-v1", "--compile=no", "-m", "legacy", tmp_path / "model"]
    done = processes.run_command("check", *options, cwd=tmp_path, status=1)
    assert f"legacy.py:{line_of(STRING_OPS, text)}: AsString (op " in done.stdout
    assert "goes on" not in done.stdout
