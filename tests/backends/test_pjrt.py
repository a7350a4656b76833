"""A model trains on PJRT devices as on an emulated TPU.

`trained` of emulated_program trains 4 steps on a place, and returns the estimator and the variables
of every checkpoint. The places: "host" is an emulated TPU, "pjrt" are PJRT devices with the tables
on the host, and "pjrt+tables" are PJRT devices with the tables in their memory.
"""

import os
import signal
import threading

import golden_training
import harness
import id_program
import numpy as np
import processes
import pytest
import tensorflow as tf
from emulated_program import SPEC, batches, every_checkpoint, make, trained, without_labels
from tensorflow.python.ops import random_ops

import estimator_emb as ee
from estimator_emb.engine import engine
from estimator_emb.guards import input_fn as guarded_input

v1 = tf.compat.v1
pytestmark = pytest.mark.usefixtures("eight_devices")


@pytest.mark.parametrize(
    ("place", "cores", "pipelined"),
    [
        harness.slow("pjrt", 1, True),
        harness.slow("pjrt", 8, False),
        harness.slow("pjrt+tables", 1, False),
        ("pjrt+tables", 8, False),
    ],
)
def test_trains_evaluates_and_predicts_like_the_emulated_tpu(
    place, cores, pipelined, tmp_path, said
):
    """Compares the variables of every checkpoint, the metrics and each prediction."""
    spec = SPEC._replace(pipeline_execution_with_tensor_core=pipelined)
    found = {}
    for device in ("host", place):
        estimator, of_checkpoints = trained(tmp_path / device, device, cores, spec=spec)
        metrics = estimator.evaluate(batches, steps=3)
        predictions = list(estimator.predict(without_labels))
        assert len(predictions) == 31  # All samples, though the last batch of 16 is not full.
        found[device] = [of_checkpoints, metrics, *predictions]
    for of_host, of_devices in zip(*found.values(), strict=True):
        harness.assert_same(of_host, of_devices)
    which = "a PJRT device: cpu:0" if cores == 1 else "8 PJRT devices: cpu:0 to cpu:7"
    assert f"The model runs on {which}." in said()
    where = "in the memory of the devices" if place == "pjrt+tables" else "on the host"
    assert any(line.startswith(f"Embedding tables train {where}: 1 table") for line in said())


@pytest.mark.slow
@pytest.mark.parametrize(("place", "cores"), [("pjrt", 1), ("pjrt+tables", 1), ("pjrt+tables", 2)])
def test_every_golden_optimizer_trains_a_table(place, cores, tmp_path):
    """Each golden case is a table of one training, and has its values and slots after each step."""
    golden_training.assert_trains_like_golden(tmp_path, place, cores)


def dense(x, units, name):
    ones = v1.random_uniform_initializer(-0.5, 0.5, seed=len(name))
    kernel = v1.get_variable(f"{name}/kernel", [x.shape[1], units], initializer=ones)
    return tf.matmul(x, tf.cast(kernel, x.dtype))


# Models: functions of inputs and labels that return the loss, and an op to run in each step.
def of_branches(x, y):
    hidden = tf.cond(tf.reduce_sum(x) > 0, lambda: dense(x, 4, "a"), lambda: dense(x, 4, "b"))

    def body(index, value):
        return index + 1, value * 1.25 + tf.cast(index, tf.float32)

    _, hidden = tf.while_loop(lambda i, _: i < 3, body, [0, hidden], maximum_iterations=3)
    called = tf.function(lambda value: tf.tanh(value))
    values, indices = tf.math.top_k(called(hidden), 2)
    values += tf.cast(indices, tf.float32) + tf.sort(hidden, axis=1)[:, :2]
    return tf.reduce_mean(tf.square(values - y)), None


def of_types(x, y):
    half = tf.cast(dense(tf.cast(x, tf.bfloat16), 4, "half"), tf.float32)
    double = dense(tf.cast(half, tf.float64), 1, "double") * tf.constant(2**40, tf.float64)
    counts = tf.cast(tf.cast(x * 10, tf.int64) % 7, tf.float64)
    loss = tf.reduce_mean(tf.square(double * 2.0**-40 + counts[:, :1] - tf.cast(y, tf.float64)))
    return tf.cast(loss, tf.float32), None


def of_averages(x, y):
    hidden = v1.layers.batch_normalization(x, momentum=0.5, training=True)
    hidden = dense(hidden, 1, "output")
    average = tf.train.ExponentialMovingAverage(0.75, v1.train.get_global_step())
    kept = average.apply([v1.global_variables("output/kernel")[0]])
    return tf.reduce_mean(tf.square(hidden - y)), kept


def of_recurrence(x, y):
    steps = tf.reshape(x, [-1, 2, 2])
    glorot = tf.keras.initializers.GlorotUniform(1)
    for layer in (tf.keras.layers.LSTM, tf.keras.layers.GRU):
        made = layer(3, kernel_initializer=glorot, recurrent_initializer=glorot, unroll=False)
        steps = made(steps)[:, None] + steps[:, :, :1]
    return tf.reduce_mean(tf.square(dense(steps[:, 1], 1, "output") - y)), None


def of_chosen_rows(x, y):
    chosen = tf.where(x[:, 0] > 0)[:, 0]  # The number of rows depends on values.
    squares = tf.square(dense(x, 1, "output") - y)
    loss = tf.reduce_sum(tf.gather(squares, chosen))
    loss += tf.reduce_sum(tf.boolean_mask(x, y[:, 0] < 0))
    return 0.1 * loss, None


@pytest.mark.slow
@pytest.mark.parametrize(
    ("model", "cores"),
    [(of_branches, 8), (of_types, 1), (of_averages, 8), (of_recurrence, 1), (of_chosen_rows, 8)],
)
def test_models_of_every_kind_train_like_on_the_host(model, cores, tmp_path):
    """Compares the checkpoints, and the order and values of what the host sees."""
    written = []  # By init_fn: "initialized"; by host_call: (loss, step); by the hook: a variable.

    def host_call(loss, step):
        return [tf.numpy_function(lambda *of_step: written.append(of_step), [loss, step], [])]

    def model_fn(features, labels, mode, params):
        loss, kept = model(features["x"] * features["word"], labels)
        step = v1.train.get_global_step()
        rate = v1.train.exponential_decay(0.1, step, 2, 0.5)
        optimizer = v1.tpu.CrossShardOptimizer(v1.train.AdamOptimizer(rate))
        train_op = optimizer.minimize(loss, step)
        if kept is not None:
            train_op = tf.group(train_op, kept)
        calls_host = host_call, [loss[None], tf.reshape(step, [1])]
        functions = {"host_call": calls_host, "scaffold_fn": scaffold_fn}
        return ee.TPUEstimatorSpec(mode, loss=loss, train_op=train_op, **functions)

    def scaffold_fn():
        return v1.train.Scaffold(init_fn=lambda *_: written.append("initialized"))

    rng = np.random.default_rng(3)
    rows = {"x": harness.normal(rng, 64, 4), "word": rng.integers(0, 9, [64, 2])}
    input_fn = harness.endless((rows, harness.normal(rng, 64, 1)))
    spec = harness.tables_spec(
        {"word": ee.TableConfig(9, 4, v1.random_uniform_initializer(1, 2, seed=1), "mean")},
        ee.AdagradParameters(0.5),
        experimental_gradient_multiplier_fn=lambda step: 1 / (1 + tf.cast(step, tf.float32)),
    )
    found, reads = {}, harness.Reads(lambda: v1.trainable_variables()[0], written)
    for device in ("host", "pjrt"):
        written.clear()
        _, variables = trained(
            tmp_path / device, device, cores, model_fn, spec, input_fn,
            steps=5, hooks=[reads], tpu={"iterations_per_loop": 3},
        )  # fmt: skip
        found[device] = variables, list(written)
    # `of_types` computes in bfloat16. TensorFlow and XLA round its sums at different places.
    rounding = (2e-2, 1e-3) if model is of_types else (1e-5, 1e-5)
    harness.assert_same(*(variables for variables, _ in found.values()), *rounding)
    of_host, of_devices = (notes for _, notes in found.values())
    assert len(of_host) == len(of_devices) and of_devices[0] == "initialized"
    for one, other in zip(of_host[1:], of_devices[1:], strict=True):
        for part, of_part in zip(one, other, strict=True):
            np.testing.assert_allclose(of_part, part, *rounding)


def draws():
    """Returns {name: (20,000 random numbers, the distribution's mean)}."""
    ones, shape = tf.ones([400, 50]), [400, 50]
    _, turns = tf.while_loop(
        lambda turn, _: turn < 4,
        lambda turn, made: (turn + 1, made.write(turn, tf.random.uniform([5000]))),
        [0, tf.TensorArray(tf.float32, 4)],
        maximum_iterations=4,
    )
    shuffled = tf.cast(tf.random.shuffle(tf.range(20_000)), tf.float32) / 20_000
    return {
        "dropout": (tf.nn.dropout(ones, rate=0.3), 1.0),
        "layer": (tf.keras.layers.Dropout(0.3)(ones, training=True), 1.0),
        "turns": (turns.stack(), 0.5),
        "seeded": (tf.random.uniform(shape, seed=7), 0.5),
        "normal": (tf.random.normal(shape), 0.0),
        "truncated": (tf.random.truncated_normal(shape, mean=1.0), 1.0),
        # The mean of a standard normal number between 0 and 2, the default of maxvals.
        "positive": (random_ops.parameterized_truncated_normal(shape, minvals=0.0), 0.7228),
        "integers": (tf.random.uniform(shape, 2, 9, tf.int32), 5.0),
        "categories": (tf.random.categorical(tf.math.log([[0.25, 0.75]] * 400), 50), 0.75),
        "shuffled": (shuffled, 0.5),
    }


@pytest.mark.slow
def test_random_numbers_depend_on_seeds_step_and_core(tmp_path):
    """Each step and core draws other numbers, the same ones if training ended in between."""

    def model_fn(features, labels, mode, params):
        made = draws()
        means.update({name: mean for name, (_, mean) in made.items()})

        def host_call(*given):
            return [tf.numpy_function(lambda *values: steps.append(values), given, [])]

        spec = harness.minimized(mode, tf.reduce_mean(features["words"]))
        return spec._replace(host_call=(host_call, [tensor[None] for tensor, _ in made.values()]))

    def drawn(folder, *ends, seed=1):
        """Returns the numbers each step and core drew. Training restarts after each of `ends`."""
        steps.clear()
        for end in ends:
            make(
                model_fn, tmp_path / folder, 2, spec=SPEC, batch=16,
                tpu={"device": "pjrt"}, run={"tf_random_seed": seed},
            ).train(batches, max_steps=end)  # fmt: skip
        return {name: np.stack(each) for name, *each in zip(means, *steps, strict=True)}

    means, steps = {}, []
    at_once = drawn("at once", 4)  # 4 steps on 2 cores.
    in_turns, other = drawn("in turns", 2, 4), drawn("other seed", 4, seed=2)
    unseeded = [drawn(f"no seed {number}", 1, seed=None) for number in range(2)]
    for name, values in at_once.items():
        np.testing.assert_array_equal(values, in_turns[name], err_msg=name)
        assert (values != other[name]).any(), name
        assert name == "seeded" or (unseeded[0][name] != unseeded[1][name]).any(), name
        # Largest deviation of a mean of 4 * 2 * 20,000 numbers that chance explains.
        np.testing.assert_allclose(values.mean(), means[name], atol=0.025, err_msg=name)
        rows = values.reshape([4 * 2, 20_000])
        assert len(np.unique(rows, axis=0)) == len(rows), f"{name}: steps or cores draw the same"
    # Each of the 4 turns of a loop draws other numbers.
    assert len(np.unique(at_once["turns"].reshape([-1, 5000]), axis=0)) == 4 * 2 * 4
    assert (at_once["dropout"] != at_once["layer"]).any()
    assert set(np.unique(at_once["dropout"])) == {0.0, np.float32(1 / 0.7)}


@pytest.mark.slow
def test_training_continues_on_another_device(tmp_path):
    """Six trainings with 2 steps each are as on an emulated TPU, wherever each of them runs."""

    def trained_in_turns(folder, places):
        for number, place in enumerate(places, start=1):
            device, use_tpu = ("host", False) if place == "without a TPU" else (place, True)
            _, variables = trained(tmp_path / folder, device, steps=2 * number, use_tpu=use_tpu)
        return variables

    expected = trained_in_turns("emulated", ["host"] * 6)
    places = ["pjrt", "without a TPU", "pjrt+tables", "host", "pjrt+tables", "pjrt"]
    found = trained_in_turns("several", places)
    # Without a TPU, the estimator also saves within the loops of a TPU.
    harness.assert_same(expected, {name: found[name] for name in expected})


def test_the_next_lookup_overlaps_the_devices(tmp_path, monkeypatch):
    """With pipelining, each of 4 steps goes on only after the lookup of the next step has ended."""
    from estimator_emb.backends.xla import devices

    # How many more lookups each step waits for: the first step for its own and the next.
    looked_up, awaited = threading.Semaphore(0), iter([2, 1, 1, 1])
    through, launch = engine.TableStep.from_previous_step, devices.DeviceStep.launch

    def noted(self, structure):
        if tf.is_tensor(structure):  # Activations.
            given = structure
            structure = tf.numpy_function(
                lambda one: (looked_up.release(), one)[1], [given], given.dtype
            )
            structure.set_shape(given.shape)
        return through(self, structure)

    def waits(*args, **kwargs):
        launch(*args, **kwargs)
        for _ in range(next(awaited)):
            assert looked_up.acquire(timeout=processes.HANGS)

    monkeypatch.setattr(engine.TableStep, "from_previous_step", noted)
    monkeypatch.setattr(devices.DeviceStep, "launch", waits)
    estimator = id_program.make(tmp_path, device="pjrt", pipelined=True)
    estimator.train(id_program.input_of(64), max_steps=4)
    assert not list(awaited)  # All 4 steps waited, and none waited forever.


@pytest.mark.fast(1)
@pytest.mark.parametrize("place", ["pjrt", "pjrt+tables"])
def test_a_hook_may_write_variables(place, tmp_path):
    """The devices compute with copies of the variables, loaded from the host before each loop."""

    def halve():
        kernel = next(one for one in v1.trainable_variables() if "kernel" in one.name)
        return kernel.assign(kernel / 2)

    halves_after_each_step = harness.Reads(halve)
    each = {"hooks": [halves_after_each_step], "tpu": {"iterations_per_loop": 1}}
    _, on_emulated_tpu = trained(tmp_path / "host", "host", 2, **each)
    _, on_devices = trained(tmp_path / place, place, 2, **each)
    harness.assert_same(on_emulated_tpu, on_devices)


@pytest.mark.fast(1)
@pytest.mark.parametrize("place", ["pjrt", "pjrt+tables"])
def test_saves_completed_steps_if_the_input_ends_within_a_loop(place, tmp_path):
    def input_fn(params):
        return batches(params).take(5)  # Of loops with 4 steps each.

    for device in ("host", place):
        with pytest.raises(guarded_input.InputEndedError, match="ended after 5 steps"):
            tpu = {"iterations_per_loop": 4}
            trained(tmp_path / device, device, input_fn=input_fn, steps=8, tpu=tpu)
    # The last checkpoint is of step 5, in the middle of a loop, as on the emulated TPU.
    assert harness.last_step(tmp_path / place) == 5
    harness.assert_same(every_checkpoint(tmp_path / "host"), every_checkpoint(tmp_path / place))


@pytest.mark.slow
def test_reads_come_before_the_writes_of_a_step(tmp_path):
    """A read that waits for no write sees the value before the step, as on an emulated TPU.

    In training, host_call reads `scale`, which the optimizer writes. In the other modes, each step
    counts itself in `calls`: metrics read the number before the step, hooks the number after it.
    """

    def model_fn(features, labels, mode, params):
        scale = v1.get_variable("scale", [], initializer=v1.ones_initializer())
        calls = v1.get_variable("calls", [], initializer=v1.zeros_initializer(), trainable=False)
        loss = scale * tf.reduce_sum(features["words"])
        if mode == ee.ModeKeys.TRAIN:
            spec = harness.minimized(mode, loss, 0.01)
            read = scale.read_value()[None]
            written = lambda read: [tf.numpy_function(note, [read], [])]  # noqa: E731
            return spec._replace(host_call=(written, [read]))
        before = calls.read_value()[None]
        with tf.control_dependencies([calls.assign_add(1.0)]):
            loss = tf.identity(loss)
        if mode == ee.ModeKeys.PREDICT:
            return ee.TPUEstimatorSpec(mode, predictions={"loss": tf.fill([16], loss)})
        metrics = (lambda read: {"calls": v1.metrics.mean(read)}, [before])
        return ee.TPUEstimatorSpec(mode, loss=loss, eval_metrics=metrics)

    def note(read):
        seen.append(float(read[0]))

    def count():
        return next(one for one in v1.global_variables() if one.op.name == "calls")

    found = []
    for device in ("host", "pjrt"):
        seen, counted = [], harness.Reads(count)
        estimator, _ = trained(tmp_path / device, device, model_fn=model_fn)
        of_evaluation = estimator.evaluate(batches, steps=3, hooks=[counted])["calls"]
        assert of_evaluation == 1.0  # The mean of 0, 1 and 2.
        assert counted.seen == [3.0]  # At the end of the loop of 3 steps.
        list(estimator.predict(lambda params: batches(params).take(2), hooks=[counted]))
        assert counted.seen[1:3] == [1.0, 2.0]  # After each step of the prediction.
        found.append(seen)
    assert seen[0] == 1.0 and len(seen) == 4  # The scale before each of 4 steps; it begins at 1.
    np.testing.assert_allclose(*found, rtol=1e-5)


@pytest.mark.parametrize("place", ["pjrt", "pjrt+tables"])
def test_a_bad_id_is_named_and_no_step_is_saved(place, tmp_path):
    input_fn = harness.endless({"id": np.array([[0], [1], [7], [2]], np.int32)})
    estimator = id_program.make(tmp_path, device=place)
    bad_id = r"Feature id of table tbl_id: id 7 is outside \[0, 3\)"
    with pytest.raises(tf.errors.InvalidArgumentError, match=bad_id):
        estimator.train(input_fn, steps=3)
    assert {name for name in os.listdir(tmp_path) if name.startswith("model.ckpt")} <= {
        f"model.ckpt-0.{kind}" for kind in ("index", "meta", "data-00000-of-00001")
    }


ENDS_ITSELF = """
    import os, pkgutil, sys, id_program, jax

    number, place, owner, function, call, model_dir = sys.argv[1:]
    owner, calls, events = pkgutil.resolve_name(owner), [], []

    def ends(*args, original=getattr(owner, function), **kwargs):
        calls.append(function)
        if len(calls) == int(call):
            os.kill(os.getpid(), int(number))
        return original(*args, **kwargs)

    setattr(owner, function, ends)
    jax.monitoring.register_event_listener(lambda event, **more: events.append(event))
    estimator = id_program.make(model_dir, device=place, cores=2, iterations=5)
    estimator.train(id_program.input_of(4000), max_steps=20)
    print(events.count("/jax/compilation_cache/cache_hits"))
"""


STEP = "estimator_emb.backends.xla.devices:DeviceStep"
SAVER = "tensorflow.python.training.saver:Saver"


@pytest.mark.slow
@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    # number: of the signal that the program sends itself before the given call of a function of
    # `owner`: before a step, before and after its table update, or during a save. The calls are
    # after the first save and before the last step, 20.
    ("number", "place", "owner", "function", "call"),
    [
        (signal.SIGTERM, "pjrt", STEP, "launch", 13),
        (signal.SIGKILL, "pjrt", STEP, "launch", 13),
        (signal.SIGKILL, "pjrt", STEP, "results", 12),
        (signal.SIGKILL, "pjrt", STEP, "variables", 16),
        (signal.SIGKILL, "pjrt", SAVER, "_RecordLastCheckpoint", 3),
        (signal.SIGTERM, "pjrt+tables", STEP, "launch", 13),
        (signal.SIGKILL, "pjrt+tables", STEP, "launch", 13),
        (signal.SIGKILL, "pjrt+tables", STEP, "fetch_tables", 3),
        (signal.SIGKILL, "pjrt+tables", SAVER, "_RecordLastCheckpoint", 3),
    ],
)
def test_training_resumes_after_a_signal(number, place, owner, function, call, tmp_path):
    """The result equals an undisturbed training's, on an emulated TPU."""
    environment = {"JAX_PLATFORMS": "cpu", "ESTIMATOR_EMB_CACHE": str(tmp_path / "cache")}
    environment["XLA_FLAGS"] = "--xla_force_host_platform_device_count=2"
    environment["JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS"] = "0"
    arguments = place, owner, function, call, tmp_path / place
    status = 128 + number if number == signal.SIGTERM else -number
    processes.run(ENDS_ITSELF, number, *arguments, status=status, **environment)
    assert 0 < harness.last_step(tmp_path / place) < 20
    compiled = set(os.listdir(tmp_path / "cache" / "programs"))
    # The second run (with signal 0, which does nothing) uses the compiled program of the first.
    assert int(processes.run(ENDS_ITSELF, 0, *arguments, **environment).stdout) > 0
    assert compiled and set(os.listdir(tmp_path / "cache" / "programs")) == compiled
    estimator = id_program.make(tmp_path / "host", device="host", cores=2, iterations=5)
    estimator.train(id_program.input_of(4000), max_steps=20)
    at_once, went_on = (every_checkpoint(tmp_path / device) for device in ("host", place))
    both = at_once.keys() & went_on.keys()
    assert {name for name in at_once if name.endswith("step 20")} <= both
    harness.assert_same(*({name: of_one[name] for name in both} for of_one in (at_once, went_on)))


@pytest.mark.slow
@pytest.mark.sampled(1)
@pytest.mark.parametrize(
    ("program", "folder", "options"),
    [
        ("examples/legacy_tpu_binary.py", "--model_dir", []),
        ("tests/cli/legacy_programs/run_classifier.py", "--output_dir", ["--tf-v1"]),
    ],
)
def test_programs_of_2018_run_unchanged(program, folder, options, tmp_path):
    """These programs name a TPU. The command trains, evaluates and exports them."""
    for device in ("host", "pjrt"):
        done = processes.run_command(
            *("run", f"--device={device}", "--shards=2", "--steps-limit=4", *options),
            *(processes.ROOT / program, f"{folder}={tmp_path / device}"),
            cwd=tmp_path,
            status=0,
            JAX_PLATFORMS="",
            ESTIMATOR_EMB_PJRT_PLATFORM="cpu",
            XLA_FLAGS="--xla_force_host_platform_device_count=2",
        )
        assert "TPU_ACCELERATOR_TYPE" not in done.stderr, "libtpu has looked for a TPU"
    says_nothing = "run_classifier" in program  # It shows only warnings.
    assert says_nothing or "The model runs on 2 PJRT devices: cpu:0 to cpu:1." in done.stderr
    harness.assert_same(*(every_checkpoint(tmp_path / device) for device in ("host", "pjrt")))
