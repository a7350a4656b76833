# SPDX-License-Identifier: Apache-2.0
"""A model on PJRT devices trains as on the cores of an emulated TPU."""

import logging
import os
import signal
import subprocess
import sys
import time

import emulated_program
import golden_training
import harness
import id_program
import numpy as np
import processes
import pytest
import tensorflow as tf
from tensorflow.python.tpu.ops import tpu_ops

import estimator_emb as ee
from estimator_emb import preflight
from estimator_emb.backends.pjrt import backend
from estimator_emb.checks import run_checks

v1 = tf.compat.v1
PIPELINES = ee.InputPipelineConfig
pytestmark = pytest.mark.skipif(
    tuple(map(int, tf.__version__.split(".")[:2])) < (2, 18), reason="jax lives beside newer ones"
)


@pytest.fixture(scope="module", autouse=True)
def eight_devices():
    jax = pytest.importorskip("jax")
    jax.config.update("jax_platforms", "cpu")
    jax.config.update("jax_num_cpu_devices", 8)
    assert len(jax.devices()) == 8


def same(one, other, tolerance=1e-5):
    assert set(one) == set(other)
    for name, value in one.items():
        np.testing.assert_allclose(
            np.float64(other[name]),
            np.float64(value),
            rtol=tolerance,
            atol=tolerance,
            err_msg=name,
        )


def trained(
    model_fn, model_dir, device, spec, input_fn, cores, steps=4, hooks=(), tpu=None, **more
):
    """The estimator, and every variable of every checkpoint of its training."""
    estimator = emulated_program.make(
        model_fn,
        model_dir,
        cores,
        spec=spec,
        batch=16,
        tpu={**(tpu or {}), "device": device},
        run={"save_checkpoints_steps": 1, "keep_checkpoint_max": None},
        **more,
    )
    estimator.train(input_fn, max_steps=steps, hooks=list(hooks))
    return estimator, every_checkpoint(model_dir)


def every_checkpoint(model_dir):
    saved = {}
    for file in model_dir.glob("model.ckpt-*.index"):
        step = file.stem.rpartition("-")[2]
        variables = harness.saved(model_dir, step)
        saved |= {f"{name} after step {step}": value for name, value in variables.items()}
    return saved


def batches(params):
    dataset = emulated_program.examples().repeat()
    return dataset.batch(params["batch_size"], drop_remainder=True)


@pytest.mark.parametrize(
    ("cores", "pipelined"), [(1, True), (8, False), pytest.param(8, True, marks=pytest.mark.slow)]
)
def test_trains_evaluates_and_predicts_as_the_emulated_tpu(cores, pipelined, tmp_path, caplog):
    caplog.set_level(logging.INFO, "estimator_emb")
    spec = ee.EmbeddingConfigSpec(
        feature_columns=emulated_program.SPEC.feature_columns,
        optimization_parameters=emulated_program.SPEC.optimization_parameters,
        pipeline_execution_with_tensor_core=pipelined,
    )
    found = {}
    for device in ("host", "pjrt"):
        estimator, variables = trained(
            emulated_program.model_fn, tmp_path / device, device, spec, batches, cores
        )
        metrics = estimator.evaluate(batches, steps=3)
        predictions = list(
            estimator.predict(
                lambda params: (
                    emulated_program.examples(31)
                    .map(lambda features, _: features)
                    .batch(params["batch_size"])
                )
            )
        )
        assert len(predictions) == 31
        found[device] = (variables, metrics, predictions)
    for of_host, of_devices in zip(found["host"][:2], found["pjrt"][:2], strict=True):
        same(of_host, of_devices)
    for of_host, of_devices in zip(found["host"][2], found["pjrt"][2], strict=True):
        same(of_host, of_devices)
    which = "a PJRT device: cpu:0" if cores == 1 else "8 PJRT devices: cpu:0 to cpu:7"
    assert f"The model runs on {which}." in caplog.messages


def test_every_golden_optimizer_trains_a_table(tmp_path):
    """Each is a table of one training, from a config dict, with its slots and its rates."""
    cases = [case for case in golden_training.GOLDEN["cases"] if "num_shards" not in case["hyper"]]
    golden_training.check_training(cases, tmp_path, "pjrt", 1)


def dense(x, units, name):
    ones = v1.random_uniform_initializer(-0.5, 0.5, seed=len(name))
    kernel = v1.get_variable(f"{name}/kernel", [x.shape[1], units], initializer=ones)
    return tf.matmul(x, tf.cast(kernel, x.dtype))


def of_branches(x, y):
    hidden = tf.cond(tf.reduce_sum(x) > 0, lambda: dense(x, 4, "a"), lambda: dense(x, 4, "b"))

    def body(index, value):
        return index + 1, value * 1.25 + tf.cast(index, tf.float32)

    _, hidden = tf.while_loop(lambda i, _: i < 3, body, [0, hidden], maximum_iterations=3)

    @tf.function
    def called(value):
        return tf.tanh(value)

    values, indices = tf.math.top_k(called(hidden), 2)
    values += tf.cast(indices, tf.float32) + tf.sort(hidden, axis=1)[:, :2]
    return tf.reduce_mean(tf.square(values - y)), {}


def of_types(x, y):
    half = tf.cast(dense(tf.cast(x, tf.bfloat16), 4, "half"), tf.float32)
    double = dense(tf.cast(half, tf.float64), 1, "double") * tf.constant(2**40, tf.float64)
    counts = tf.cast(tf.cast(x * 10, tf.int64) % 7, tf.float64)
    loss = tf.reduce_mean(tf.square(double * 2.0**-40 + counts[:, :1] - tf.cast(y, tf.float64)))
    return tf.cast(loss, tf.float32), {}


def of_averages(x, y):
    hidden = v1.layers.batch_normalization(x, momentum=0.5, training=True)
    hidden = dense(hidden, 1, "output")
    average = tf.train.ExponentialMovingAverage(0.75, v1.train.get_global_step())
    kept = average.apply([v1.global_variables("output/kernel")[0]])
    return tf.reduce_mean(tf.square(hidden - y)), {"kept": kept}


def of_recurrence(x, y):
    steps = tf.reshape(x, [-1, 2, 2])
    glorot = tf.keras.initializers.GlorotUniform(1)
    for layer in (tf.keras.layers.LSTM, tf.keras.layers.GRU):
        made = layer(3, kernel_initializer=glorot, recurrent_initializer=glorot, unroll=False)
        steps = made(steps)[:, None] + steps[:, :, :1]
    return tf.reduce_mean(tf.square(dense(steps[:, 1], 1, "output") - y)), {}


MODELS = (of_branches, of_types, of_averages, of_recurrence)


@pytest.mark.parametrize("of", MODELS)
@pytest.mark.parametrize("cores", [1, 8])
def test_what_a_model_may_be(of, cores, tmp_path):
    written = []

    def host_call(loss, step):
        note = tf.numpy_function(lambda *of_step: written.append(of_step), [loss, step], [])
        return [note]

    def model_fn(features, labels, mode, params):
        loss, extra = of(features["x"] * features["word"], labels)
        step = v1.train.get_global_step()
        rate = v1.train.exponential_decay(0.1, step, 2, 0.5)
        optimizer = v1.tpu.CrossShardOptimizer(v1.train.AdamOptimizer(rate))
        train_op = optimizer.minimize(loss, step)
        if "kept" in extra:
            train_op = tf.group(train_op, extra["kept"])
        tensors = [loss[None], tf.reshape(step, [1])]
        scaffold = lambda: v1.train.Scaffold(  # noqa: E731
            init_fn=lambda scaffold, session: written.append("initialized")
        )
        return ee.TPUEstimatorSpec(
            mode, loss=loss, train_op=train_op, host_call=(host_call, tensors), scaffold_fn=scaffold
        )

    class Reads(v1.train.SessionRunHook):
        def after_run(self, run_context, run_values):
            written.append(run_context.session.run(v1.trainable_variables()[0]))

    rng = np.random.default_rng(3)
    rows = {"x": rng.normal(size=[64, 4]).astype(np.float32), "word": rng.integers(0, 9, [64, 2])}
    labels = rng.normal(size=[64, 1]).astype(np.float32)

    def input_fn(params):
        dataset = tf.data.Dataset.from_tensor_slices((rows, labels)).repeat()
        return dataset.batch(params["batch_size"], drop_remainder=True)

    spec = ee.EmbeddingConfigSpec(
        feature_to_config_dict={"word": ee.FeatureConfig("words")},
        table_to_config_dict={
            "words": ee.TableConfig(9, 4, v1.random_uniform_initializer(1, 2, seed=1), "mean")
        },
        optimization_parameters=ee.AdagradParameters(0.5),
        experimental_gradient_multiplier_fn=lambda step: 1 / (1 + tf.cast(step, tf.float32)),
    )
    found = {}
    for device in ("host", "pjrt"):
        written.clear()
        _, variables = trained(
            model_fn, tmp_path / device, device, spec, input_fn, cores,
            steps=5, hooks=[Reads()], tpu={"iterations_per_loop": 3},
        )  # fmt: skip
        found[device] = variables, list(written)
    same(*(variables for variables, _ in found.values()))
    of_host, of_devices = (notes for _, notes in found.values())
    assert len(of_host) == len(of_devices) and of_devices[0] == "initialized"
    for one, other in zip(of_host[1:], of_devices[1:], strict=True):
        for part, of_part in zip(one, other, strict=True):
            np.testing.assert_allclose(of_part, part, rtol=1e-5, atol=1e-6)


def test_training_goes_on_in_turns(tmp_path):
    """Under devices, an emulated TPU and the host, with the same checkpoints."""
    for folder, ways in (
        ("at once", ["host"] * 4),
        ("in turns", ["pjrt", "off", "host", "pjrt"]),
    ):
        for number, way in enumerate(ways, start=1):
            _, variables = trained(
                emulated_program.model_fn,
                tmp_path / folder,
                way.replace("off", "host"),
                emulated_program.SPEC,
                batches,
                1,
                steps=2 * number,
                use_tpu=way != "off",
            )
        if folder == "at once":
            expected = variables
    # The host saves within the loops of a TPU too.
    same(expected, {name: variables[name] for name in expected})


def test_a_hook_may_write_variables(tmp_path):
    class Halves(v1.train.SessionRunHook):
        def begin(self):
            kernel = next(one for one in v1.trainable_variables() if "kernel" in one.name)
            self.halve = kernel.assign(kernel / 2)

        def after_run(self, run_context, run_values):
            run_context.session.run(self.halve)

    each = [
        trained(
            emulated_program.model_fn, tmp_path / device, device, emulated_program.SPEC, batches, 2,
            hooks=[Halves()], tpu={"iterations_per_loop": 1},
        )[1]
        for device in ("host", "pjrt")
    ]  # fmt: skip
    same(*each)


def test_an_input_that_ends_within_a_loop_saves_what_was_trained(tmp_path):
    def input_fn(params):
        return batches(params).take(5)

    for device in ("host", "pjrt"):
        with pytest.raises(run_checks.InputEndedError, match="ended after 1 steps of a loop"):
            trained(
                emulated_program.model_fn, tmp_path / device, device, emulated_program.SPEC,
                input_fn, 1, steps=8, tpu={"iterations_per_loop": 4},
            )  # fmt: skip
    same(every_checkpoint(tmp_path / "host"), every_checkpoint(tmp_path / "pjrt"))


def test_all_devices_unless_a_number_is_asked_for(monkeypatch):
    assert len(backend.chosen(ee.TPUConfig(device="pjrt"))) == 8
    assert len(backend.chosen(ee.TPUConfig(device="pjrt", num_shards=3))) == 3
    monkeypatch.setenv("ESTIMATOR_EMB_PJRT_PLATFORM", "cpu")
    assert len(backend.chosen(ee.TPUConfig())) == 8


def made(tmp_path, tpu=None, **kwargs):
    return emulated_program.make(
        emulated_program.model_fn, tmp_path, kwargs.pop("cores", None), spec=emulated_program.SPEC,
        tpu={"device": "pjrt", **(tpu or {})}, **kwargs,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("variables", "arguments", "words"),
    [
        (
            {"ESTIMATOR_EMB_PJRT_PLATFORM": "gpu"},
            {},
            "TPUConfig: device='pjrt' finds no devices of platform 'gpu' "
            "(ESTIMATOR_EMB_PJRT_PLATFORM): ",
        ),
        (
            {"ESTIMATOR_EMB_PJRT_PLATFORM": "npu"},
            {},
            "Environment variable ESTIMATOR_EMB_PJRT_PLATFORM must be 'cpu' or 'gpu' or 'tpu'; got "
            "'npu'.",
        ),
        (
            {"ESTIMATOR_EMB_TOPOLOGY": "v3-8"},
            {},
            "Environment variable ESTIMATOR_EMB_TOPOLOGY names an emulated TPU, and device='pjrt' "
            "takes the devices that are there: unset it, or choose a number of them with "
            "TPUConfig(num_shards=N) or ESTIMATOR_EMB_SHARDS.",
        ),
        (
            {},
            {"tpu": {"num_cores_per_replica": 2}},
            "TPUConfig: with device='pjrt', each device runs the whole model, and "
            "num_cores_per_replica must be None; got 2.",
        ),
        (
            {},
            {"cores": 9},
            "TPUConfig: num_shards asks for 9 devices, and there are 8: "
            f"{', '.join(f'cpu:{n}' for n in range(8))}. For more devices that are cores of the "
            "CPU, set XLA_FLAGS=--xla_force_host_platform_device_count=9.",
        ),
    ],
)
def test_refused_when_the_estimator_is_made(variables, arguments, words, tmp_path, monkeypatch):
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(ValueError) as refused:
        made(tmp_path, **arguments)
    said = str(refused.value)
    assert said.startswith(words) if words.endswith(": ") else said == words


def test_without_jax_the_extra_is_named(tmp_path, monkeypatch):
    monkeypatch.setattr(backend.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ValueError) as refused:
        made(tmp_path)
    assert str(refused.value) == (
        "TPUConfig: device='pjrt' needs jax, which is not installed: pip install "
        "'estimator-emb[pjrt]', and for GPUs or TPUs jax's plugin for them."
    )


def test_an_older_tensorflow_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(backend.tf, "__version__", "2.17.1")
    with pytest.raises(ValueError) as refused:
        made(tmp_path)
    assert str(refused.value) == (
        "TPUConfig: device='pjrt' needs TensorFlow 2.18 or newer, beside which jax can be "
        "installed; this is 2.17.1."
    )


@pytest.mark.parametrize(
    ("of_loss", "words"),
    [
        (
            lambda loss: v1.tpu.outside_compilation(
                lambda loss: tf.numpy_function(lambda value: value, [loss], tf.float32), loss
            ),
            "model_fn's step cannot run on PJRT devices: ",
        ),
        (
            lambda loss: tpu_ops.collective_permute(loss[None], [[0, 1], [1, 0]]),
            "model_fn calls collective_permute (",
        ),
    ],
)  # fmt: skip
def test_refused_when_the_step_is_lowered(of_loss, words, tmp_path):
    def model_fn(features, labels, mode, params):
        loss = tf.reduce_sum(features["words"]) * v1.get_variable("scale", [])
        loss += tf.reshape(tf.stop_gradient(of_loss(loss)), [])
        return harness.minimized(mode, loss)

    estimator = emulated_program.make(
        model_fn, tmp_path, 2, spec=emulated_program.SPEC, tpu={"device": "pjrt"}
    )
    with pytest.raises(ValueError) as refused:
        estimator.train(batches, steps=1)
    assert str(refused.value).startswith(words), refused.value


def test_a_step_that_cannot_be_lowered_names_its_line(tmp_path):
    def model_fn(features, labels, mode, params):
        x = tf.reshape(features["ages"], [-1, 2, 1])
        loss = tf.reduce_mean(tf.keras.layers.LSTM(4)(x))
        return harness.minimized(mode, loss + tf.reduce_sum(features["words"]))

    estimator = emulated_program.make(
        model_fn, tmp_path, 1, spec=emulated_program.SPEC, tpu={"device": "pjrt"}
    )
    with pytest.raises(ValueError) as refused:
        estimator.train(batches, steps=1)
    first, *_, line, last = str(refused.value).splitlines()
    assert first.startswith(
        "model_fn's step cannot run on PJRT devices: XLA compilation requires a fixed tensor list"
    )
    assert line.startswith("The op 'gradients/")
    assert line.endswith("train_op = optimizer.minimize(loss, v1.train.get_global_step())")
    assert last == (
        "Give each loop a constant maximum_iterations, and a recurrent layer unroll=True."
    )


def test_reads_come_before_the_writes_of_a_step(tmp_path):
    """In host_call, and where steps are counted, whose count hooks can read after a call."""

    def model_fn(features, labels, mode, params):
        scale = v1.get_variable("scale", [], initializer=v1.ones_initializer())
        calls = v1.get_variable("calls", [], initializer=v1.zeros_initializer(), trainable=False)
        loss = scale * tf.reduce_sum(features["words"])
        if mode == ee.ModeKeys.TRAIN:
            spec = harness.minimized(mode, loss, 0.01)
            read = scale.read_value()[None]
            written = lambda read: [tf.numpy_function(note, [read], [])]  # noqa: E731
            return spec._replace(host_call=(written, [read]))
        before = calls.read_value() + tf.zeros([16])
        with tf.control_dependencies([calls.assign_add(1.0)]):
            loss = tf.identity(loss)
        if mode == ee.ModeKeys.PREDICT:
            return ee.TPUEstimatorSpec(mode, predictions={"calls": before + 0.0 * loss})
        metrics = (lambda read: {"calls": v1.metrics.mean(read)}, [before])
        return ee.TPUEstimatorSpec(mode, loss=loss, eval_metrics=metrics)

    def note(read):
        seen.append(float(read[0]))

    class Reads(v1.train.SessionRunHook):
        def begin(self):
            self.calls = next(one for one in v1.global_variables() if one.op.name == "calls")

        def after_run(self, run_context, run_values):
            counted.append(float(run_context.session.run(self.calls)))

    found = []
    for device in ("host", "pjrt"):
        seen, counted = [], []
        estimator, _ = trained(
            model_fn, tmp_path / device, device, emulated_program.SPEC, batches, 1
        )
        of_evaluation = estimator.evaluate(batches, steps=3, hooks=[Reads()])["calls"]
        assert of_evaluation == 1.0  # The mean of 0, 1 and 2.
        assert counted == [3.0]
        predicted = estimator.predict(lambda params: batches(params).take(2), hooks=[Reads()])
        assert [float(one["calls"]) for one in predicted] == [0.0] * 16 + [1.0] * 16
        assert counted == [3.0, 1.0, 2.0]
        found.append(seen)
    assert seen[0] == 1.0 and len(seen) == 4
    np.testing.assert_allclose(*found, rtol=1e-5)


def test_warm_starts_and_exports(tmp_path):
    def model_fn(features, labels, mode, params):
        output = dense(features["word"], 1, "output")
        if mode == ee.ModeKeys.PREDICT:
            return harness.served(mode, output=output)
        return harness.minimized(mode, tf.reduce_mean(tf.square(output - labels)), 0.5)

    def input_fn(params):
        words = np.arange(16)[:, None] % 9
        return tf.data.Dataset.from_tensors(({"word": words}, words.astype(np.float32))).repeat()

    def receive():
        words = v1.placeholder(tf.int64, [None, 1], name="word")
        return ee.export.ServingInputReceiver({"word": words}, {"word": words})

    spec = ee.EmbeddingConfigSpec(
        feature_to_config_dict={"word": ee.FeatureConfig("words")},
        table_to_config_dict={"words": ee.TableConfig(9, 4, v1.ones_initializer(), "mean")},
        optimization_parameters=ee.AdagradParameters(0.5),
    )
    served = {}
    for device in ("host", "pjrt"):
        before = tmp_path / device / "before"
        trained(model_fn, before, device, spec, input_fn, 2)
        after, variables = trained(
            model_fn, tmp_path / device / "after", device, spec, input_fn, 2,
            steps=2, warm_start_from=str(before),
        )  # fmt: skip
        serve = harness.exported(after, tmp_path / device / "export", receive)
        output = serve(word=tf.constant([[3], [8]], tf.int64))["output"].numpy()
        served[device] = {**variables, "served": output}
    same(served["host"], served["pjrt"])


def test_a_bad_id_is_named_and_nothing_is_written(tmp_path):
    def input_fn(params):
        ids = np.array([[0], [1], [7], [2]], np.int32)
        return tf.data.Dataset.from_tensors({"id": ids}).repeat()

    estimator = id_program.make(tmp_path, device="pjrt", train_batch_size=4)
    with pytest.raises(tf.errors.InvalidArgumentError, match="7"):
        estimator.train(input_fn, steps=3)
    assert {name for name in os.listdir(tmp_path) if name.startswith("model.ckpt")} <= {
        f"model.ckpt-0.{kind}" for kind in ("index", "meta", "data-00000-of-00001")
    }


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_a_training_goes_on_after_a_signal(number, tmp_path):
    program = tmp_path / "program.py"
    program.write_text(
        "import sys, id_program\n"
        "estimator = id_program.make(sys.argv[1], device=sys.argv[2], cores=2, iterations=5)\n"
        "estimator.train(id_program.input_of(4000), max_steps=int(sys.argv[3]))\n"
    )
    environment = processes.environment(
        JAX_PLATFORMS="cpu", XLA_FLAGS="--xla_force_host_platform_device_count=2"
    )
    model_dir = tmp_path / "model"
    process = subprocess.Popen(
        [sys.executable, program, model_dir, "pjrt", "400"],
        env=environment,
        stderr=subprocess.PIPE,
        text=True,
    )
    deadline = time.monotonic() + 100
    while not os.path.exists(model_dir / "model.ckpt-20.index"):
        assert time.monotonic() < deadline and process.poll() is None
        time.sleep(0.02)
    process.send_signal(number)
    printed = process.communicate(timeout=100)[1]
    assert process.returncode == {signal.SIGTERM: 143, signal.SIGKILL: -9}[number], printed
    step = int(tf.train.latest_checkpoint(model_dir).rpartition("-")[2])
    assert 0 < step < 400
    # It goes on as if nothing had been: compared with one training of an emulated TPU.
    for folder, device in ((model_dir, "pjrt"), (tmp_path / "at once", "host")):
        subprocess.run(
            [sys.executable, program, folder, device, str(step + 10)], env=environment, check=True
        )
    same(harness.saved(tmp_path / "at once", step + 10), harness.saved(model_dir, step + 10))


def test_check_says_where_the_tables_are(tmp_path):
    """It looks for nothing that only the TPUs of TensorFlow refuse."""
    report = preflight.check_program(
        made(tmp_path, cores=4), batches, generations=["v6e"], compile=False
    )
    assert report.status == 0, str(report)
    assert "\n  v6e, tables: accepted; on the host, whose memory they need " in str(report)


@pytest.mark.slow
@pytest.mark.parametrize("topology", ["v5e:2x4", "v5p:2x2x2", "v6e:2x4", "v4:2x2x1", "v2:2x2"])
def test_libtpu_compiles_the_jit_that_runs(topology, tmp_path, monkeypatch):
    """What devices have just run is given to the compiler of TPUs, ahead of time."""
    pytest.importorskip("libtpu")
    for name in ("TPU_SKIP_MDS_QUERY", "ALLOW_MULTIPLE_LIBTPU_LOAD"):
        monkeypatch.setenv(name, "1")
    monkeypatch.setenv("TPU_ACCELERATOR_TYPE", "v4-8")
    monkeypatch.setenv("TPU_WORKER_HOSTNAMES", "localhost")
    from jax.experimental import topologies

    from estimator_emb.xla import devices

    modules = []
    monkeypatch.setattr(
        devices,
        "LoweredModule",
        lambda *arguments, make=devices.LoweredModule: (
            modules.append(make(*arguments)) or modules[-1]
        ),
    )
    trained(emulated_program.model_fn, tmp_path, "pjrt", emulated_program.SPEC, batches, 8, steps=2)
    described = topologies.get_topology_desc(platform="tpu", topology_name=topology).devices
    compiled = devices.JittedStep(modules[0], list(described)[:8]).ahead_of_time()
    assert "all-reduce" in compiled.as_text()
    assert compiled.memory_analysis().alias_size_in_bytes > 0, "variables are not donated"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("program", "folder", "options"),
    [
        ("examples/legacy_tpu_binary.py", "--model_dir", []),
        ("tests/cli/legacy_programs/recommender.py", "--dir", ["--tf-v1"]),
        ("tests/cli/legacy_programs/resnet_main.py", "--model_dir", ["--tf-v1"]),
    ],
)
def test_programs_of_2018_run_unchanged(program, folder, options, tmp_path):
    """They name a TPU, and train, evaluate and export by the command."""
    for device in ("host", "pjrt"):
        done = processes.run_command(
            "run",
            f"--device={device}",
            "--shards=2",
            "--steps-limit=4",
            *options,
            processes.ROOT / program,
            f"{folder}={tmp_path / device}",
            cwd=tmp_path,
            JAX_PLATFORMS="cpu",
            XLA_FLAGS="--xla_force_host_platform_device_count=2",
        )
        assert done.returncode == 0, done.stderr[-3000:]
    assert "The model runs on 2 PJRT devices: cpu:0 to cpu:1." in done.stderr
    step = int(tf.train.latest_checkpoint(tmp_path / "pjrt").rpartition("-")[2])
    same(harness.saved(tmp_path / "host", step), harness.saved(tmp_path / "pjrt", step))
